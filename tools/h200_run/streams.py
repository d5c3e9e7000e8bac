"""Throughput and text of servers: `python streams.py JOB RESULT`, both JSON files.

JOB: {"lanes": [[{"name", "environment", "arguments" of `vllm serve`, "model", "measured": bool}, ...], ...],
"held_out", "logs": folder, "ready": seconds, "wait_for": a file or null}. All servers start at once; then each lane (a
GPU) measures its servers one after the other, so that none shares its GPU with another that works. While `wait_for` is
not there, nothing is measured: other work is still going on.

RESULT: per name {"ready": seconds, "texts", "tokens_per_second": {"1", "8", "32"}, "rounds", "long": {what: number}} or
{"failed"}.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
import traceback
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from generate import CLEAR_PIECES, LONG_PIECES, make_prompts
from scheduling import stop

STREAMS = (1, 8, 32)
TOKENS = 256
TEXT_TOKENS = 64
ROUNDS = 2
"""How often each number of streams is measured; the better one counts, the other is in the result."""
FIRST_PORT = 8101
LONG_STREAMS = 8
LONG_TOKENS = 128


def main() -> None:
    """Start, wait, measure, end; the exit code is 1 when a server failed. A SIGTERM ends the servers too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    job, result = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    text = Path(job["held_out"]).read_text()
    prompts, (long_prompt,) = make_prompts(text, CLEAR_PIECES), make_prompts(text, LONG_PIECES[-1:])
    logs = Path(job["logs"])
    servers = [server for lane in job["lanes"] for server in lane]
    found: dict[str, Any] = {}
    processes = {}
    began = time.monotonic()
    try:
        for index, server in enumerate(servers):
            server["port"] = FIRST_PORT + index
            processes[server["name"]] = start(server, logs)

        def measure(lane: list[dict[str, Any]]) -> None:
            for server in lane:
                process, name = processes[server["name"]], server["name"]
                try:
                    ready = wait_until_ready(server, process, began, job["ready"])
                    wait_for(job["wait_for"])
                    found[name] = {"ready": ready} | measured(server, prompts, long_prompt)
                except Exception:  # noqa: BLE001 - the next server shall still be measured; the failure is in the result
                    found[name] = {"failed": traceback.format_exc()}
                print(name, json.dumps(found[name].get("tokens_per_second", found[name].get("failed"))), flush=True)
                result.write_text(json.dumps(found))

        threads = [threading.Thread(target=measure, args=(lane,), daemon=True) for lane in job["lanes"]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        with ThreadPoolExecutor(max(1, len(processes))) as pool:
            list(pool.map(stop, processes.values()))
    sys.exit(any("failed" in answer for answer in found.values()))


def start(server: dict[str, Any], logs: Path) -> subprocess.Popen[bytes]:
    """Start one server in a session of its own."""
    argv = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", server["model"], "--served-model-name", "model"]
    argv += ["--host", "127.0.0.1", "--port", str(server["port"]), *server["arguments"]]
    with (logs / f"server-{server['name']}.log").open("wb") as log:
        return subprocess.Popen(
            argv,
            env={**os.environ, **server["environment"]},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def wait_until_ready(server: dict[str, Any], process: subprocess.Popen[bytes], began: float, limit: float) -> float:
    """Seconds from `began` until the server is healthy.

    Raises RuntimeError when it ends or takes longer than `limit` seconds.
    """
    while time.monotonic() - began < limit:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with exit code {process.returncode}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{server['port']}/health", timeout=2):
                return time.monotonic() - began
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            time.sleep(0.5)
    raise RuntimeError(f"the server was not healthy after {limit} s")


def wait_for(path: str | None) -> None:
    """Return as soon as the file is there."""
    while path is not None and not Path(path).exists():
        time.sleep(0.5)


def measured(server: dict[str, Any], prompts: list[str], long_prompt: str) -> dict[str, Any]:
    """A server's greedy texts, with how many tokens a second it answers 1, 8 and 32 requests, and a long prompt."""
    texts = [complete(server, prompt, TEXT_TOKENS) for prompt in prompts]
    answer: dict[str, Any] = {"texts": [text["choices"][0]["text"] for text in texts]}
    answer["text_tokens"] = [text["usage"]["completion_tokens"] for text in texts]
    if not server["measured"]:
        return answer
    rates: dict[str, list[float]] = {}
    for streams in STREAMS:
        with ThreadPoolExecutor(streams) as pool:
            # The first round meets shapes that were never seen before.
            list(pool.map(lambda _: complete(server, prompts[0], 16), range(streams)))
            for _ in range(ROUNDS):
                began = time.monotonic()
                done = list(pool.map(lambda _: complete(server, prompts[0], TOKENS), range(streams)))
                tokens = sum(each["usage"]["completion_tokens"] for each in done)
                rates.setdefault(str(streams), []).append(tokens / (time.monotonic() - began))
    best = {streams: max(each) for streams, each in rates.items()}
    return answer | {"tokens_per_second": best, "rounds": rates, "long": measured_long(server, long_prompt)}


def measured_long(server: dict[str, Any], prompt: str) -> dict[str, float]:
    """Milliseconds until a long prompt's first token, alone; tokens a second of several that go on from it.

    The latter are the tokens after the first, in the time that these took: requests of one token end where they begin.
    """

    def seconds(streams: int, tokens: int) -> float:
        with ThreadPoolExecutor(streams) as pool:
            began = time.monotonic()
            done = list(pool.map(lambda _: complete(server, prompt, tokens), range(streams)))
            taken = time.monotonic() - began
        if any(each["usage"]["completion_tokens"] != tokens for each in done):
            raise RuntimeError(f"a request of {tokens} tokens was answered with fewer")
        return taken

    seconds(LONG_STREAMS, 2)
    first = statistics.median(seconds(1, 1) for _ in range(5))
    begun = statistics.median(seconds(LONG_STREAMS, 1) for _ in range(3))
    ended = statistics.median(seconds(LONG_STREAMS, 1 + LONG_TOKENS) for _ in range(3))
    length = complete(server, prompt, 1)["usage"]["prompt_tokens"]
    return {
        f"ms to the first token after {length}:": round(1000 * first, 1),
        f"tok/s at {LONG_STREAMS} after {length}:": round(LONG_STREAMS * LONG_TOKENS / (ended - begun), 1),
    }


def complete(server: dict[str, Any], prompt: str, tokens: int) -> Any:
    """One completion, greedy, of so many tokens."""
    body = {"model": "model", "prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "temperature": 0}
    request = urllib.request.Request(
        f"http://127.0.0.1:{server['port']}/v1/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as response:
        return json.load(response)


if __name__ == "__main__":
    main()
