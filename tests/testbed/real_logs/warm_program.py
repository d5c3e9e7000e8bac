"""Runs in the engine's Python: has vLLM's modules loaded, and becomes a server as often as it is asked.

Each line of standard input is a JSON document {argv, environment, folder, log}; the answer is the new process's number.
When that has ended, `folder`/exit-code holds its code, negative for a signal.
"""

from __future__ import annotations

import json
import os
import select
import sys
from pathlib import Path


def become_server(order: dict[str, object]) -> None:
    from vllm.entrypoints.cli.main import main

    os.setsid()
    os.chdir(str(order["folder"]))
    os.environ.clear()
    os.environ.update(order["environment"])  # type: ignore[arg-type]
    log = os.open(str(order["log"]), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for wanted, descriptor in ((0, nothing), (1, log), (2, log)):
        os.dup2(descriptor, wanted)
    sys.argv = list(order["argv"])  # type: ignore[call-overload]
    sys.exit(main())


def reap(folders: dict[int, str]) -> None:
    while folders:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        path = Path(folders.pop(pid), "exit-code")
        path.with_suffix(".partial").write_text(str(os.waitstatus_to_exitcode(status)))
        path.with_suffix(".partial").rename(path)


def run() -> None:
    import vllm.benchmarks.serve
    import vllm.entrypoints.cli.main
    import vllm.entrypoints.cli.serve
    import vllm.entrypoints.openai.api_server  # noqa: F401

    print("ready", flush=True)
    folders: dict[int, str] = {}
    while True:
        readable, _, _ = select.select([0], [], [], 0.1)
        reap(folders)
        if not readable:
            continue
        line = sys.stdin.readline()
        if not line:
            return
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            become_server(order)
        folders[pid] = str(order["folder"])
        print(pid, flush=True)


if __name__ == "__main__":
    run()
