"""The sampling agent as one program, and the command line that runs it on a host.

It is sent over standard input and stays as long as that is open. See agent/sampling.
"""

from __future__ import annotations

import functools
import pkgutil
from collections.abc import Sequence
from dataclasses import dataclass

from onecat.probe.program import AGENT, FOLDER, PYTHONS, packed_modules

_SHARED = ("core", "sources.files", "sources.nvml", "sources.nvml_gpu", "sources.nvml_library")
"""What it has in common with the agent that observes facts."""
_READ_AND_RUN = "import sys;exec(sys.stdin.buffer.read(int(sys.argv.pop(1))))"
BOOTSTRAP = (
    "n=$1; shift; "
    f"for p in {' '.join(PYTHONS)}; do "
    'case "$("$p" -V 2>&1 </dev/null)" in "Python 3."[6-9]*|"Python 3."[1-9][0-9]*) '
    f'exec "$p" -I -S -c "{_READ_AND_RUN}" $n "$@";; esac; '
    "done; "
    "echo onecat-sampling: no Python 3.6 or newer on this host >&2; exit 127"
)
"""Runs the first `$1` bytes of standard input with the first Python that can; see onecat.probe.program.BOOTSTRAP."""


@dataclass(frozen=True)
class SamplingOptions:
    """What to sample.

    interval: seconds between two samples. count: how many; 0 for as long as the input is open. metrics_url: of the
    server, as the host reaches it; None: there is none. keep: names of metrics, or their beginnings; empty: all.
    pids: the server's processes there; empty: the programs that use its GPUs. gpus: whether NVML is asked.
    """

    interval: float = 2.0
    count: int = 0
    metrics_url: str | None = None
    keep: tuple[str, ...] = ()
    pids: tuple[int, ...] = ()
    gpus: bool = True


@functools.cache
def sampling_program() -> bytes:
    """The text of the sampling agent.

    Raises OnecatError when nvidia-ml-py is not installed beside onecat.
    """
    folder = FOLDER / "sampling"
    names = [each.name for each in pkgutil.iter_modules([str(folder)]) if each.name != "start"]
    files = {f"{AGENT}.{each}": FOLDER / f"{each.replace('.', '/')}.py" for each in _SHARED}
    files.update((f"{AGENT}.sampling.{each}", folder / f"{each}.py") for each in names)
    start = (folder / "start.py").read_text(encoding="utf-8")
    return (packed_modules(files, sorted(files), packages=("sources", "sampling")) + start).encode()


def sampling_argv(options: SamplingOptions) -> list[str]:
    """The command that runs the agent on a host; its standard input is sampling_program(), then nothing until its end.

    `shlex.join` of it is one line that every login shell understands.
    """
    return ["sh", "-c", BOOTSTRAP, "onecat-sampling", str(len(sampling_program())), *_arguments(options)]


def local_sampling_argv(python: str, options: SamplingOptions) -> list[str]:
    """The same with one Python interpreter of this machine."""
    return [python, "-I", "-S", "-c", _READ_AND_RUN, str(len(sampling_program())), *_arguments(options)]


def _arguments(options: SamplingOptions) -> Sequence[str]:
    arguments = ["--interval", f"{options.interval:g}", "--count", str(options.count)]
    if options.metrics_url is not None:
        arguments += ["--url", options.metrics_url]
    for name in options.keep:
        arguments += ["--keep", name]
    for pid in options.pids:
        arguments += ["--pid", str(pid)]
    return arguments if options.gpus else [*arguments, "--no-gpus"]
