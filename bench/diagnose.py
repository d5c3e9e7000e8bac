"""How long `onecat diagnose` takes for long logs, and how much memory, next to grep and ripgrep on the same patterns.

Logs of the given size, one kind after the other: a healthy one, faults all the way, real failing starts over and over,
alone and of several services, lines of megabytes, random bytes, UTF-16, Docker's json-file, and colours. Exit code 1
when one of them takes longer or more memory than the limits.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from onecat.observe import load_signatures

LIMIT_SECONDS_PER_GIGABYTE = 10.0
LIMIT_MIB = 100
LOGS = Path(__file__).parents[1] / "tests" / "fixtures" / "logs"
FAULTS = [
    "ERROR 11-29 16:59:51 [core.py:1349] Traceback (most recent call last):",
    "RuntimeError: CUDA error: no kernel image is available for execution on the device",
    "\x1b[1;31mtorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\x1b[0m",
    "NVRM: Xid (PCI:0000:cb:00): 13, pid='<unknown>', name=<unknown>, Graphics SM Warp Exception",
    "ERROR EngineCore failed to start.",
]
_PIECE = 1 << 20


def healthy() -> list[str]:
    return (LOGS / "healthy-start-and-stop-compiled.log").read_text(encoding="utf-8").splitlines()


def failing() -> list[str]:
    names = ("kv-cache-too-small", "truncated-safetensors", "port-in-use", "unknown-argument", "no-tokenizer")
    return [line for name in names for line in (LOGS / f"{name}.log").read_text(encoding="utf-8").splitlines()]


def stamped(lines: Iterable[str]) -> Iterator[str]:
    """The lines over and over, each with a time stamp of its own."""
    for number, line in enumerate(itertools.cycle(list(lines))):
        yield f"2026-11-29T16:{number // 60 % 60:02d}:{number % 60:02d}.{number % 1_000_000:06d}Z {line}\n"


def pieces(lines: Iterator[str], encoding: str = "utf-8") -> Iterator[bytes]:
    while True:
        yield "".join(itertools.islice(lines, 5000)).encode(encoding)


def docker(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        stamp, _, text = line.partition(" ")
        yield json.dumps({"log": text, "stream": "stderr", "time": stamp}, separators=(",", ":")) + "\n"


def coloured(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        yield f"\x1b[0;36m(EngineCore pid=7)\x1b[0;0m \x1b[32m{line[:-1]}\x1b[0m\n"


def several(services: int) -> Iterator[str]:
    """Services of Compose that fail and start again, a few lines of each in turn."""
    source = random.Random(10)
    logs = [itertools.islice(stamped(failing()), 100 * number, None) for number in range(services)]
    while True:
        number = source.randrange(services)
        for line in itertools.islice(logs[number], source.randint(1, 6)):
            yield f"vllm-{number}  | {line}"


def long_lines() -> Iterator[bytes]:
    """Lines of 8 MiB of what a healthy server writes, without its ends of lines."""
    text = "".join(line.rstrip("\n") for line in itertools.islice(stamped(healthy()), 7000)).encode()[:_PIECE]
    for number in itertools.count(1):
        yield text + (b"\n" if number % 8 == 0 else b"")


def rubbish() -> Iterator[bytes]:
    source = random.Random(10)
    some = [source.randbytes(_PIECE) for _ in range(16)]
    yield from itertools.cycle(some)


KINDS: dict[str, Callable[[], Iterator[bytes]]] = {
    "healthy": lambda: pieces(stamped(healthy())),
    "faults": lambda: pieces(stamped(FAULTS)),
    "failing starts": lambda: pieces(stamped(failing())),
    "several services": lambda: pieces(several(3)),
    "long lines": long_lines,
    "random bytes": rubbish,
    "UTF-16": lambda: pieces(stamped(healthy()), "utf-16-le"),
    "CRLF": lambda: pieces(line[:-1] + "\r\n" for line in stamped(healthy())),
    "Docker's JSON": lambda: pieces(docker(stamped(healthy()))),
    "colours": lambda: pieces(coloured(stamped(healthy()))),
}


def write(path: Path, log: Iterator[bytes], size: int) -> None:
    """A log of `size` bytes at least."""
    written = 0
    with path.open("wb") as file:
        while written < size:
            written += file.write(next(log))


def run(argv: list[str]) -> tuple[float, float, float]:
    """Wall seconds, processor seconds and the largest resident memory in MiB of one run."""
    begin = time.perf_counter()
    # A file and not the null device, for which grep would stop at its first hit.
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output)
        _, _, usage = os.wait4(process.pid, 0)
    return time.perf_counter() - begin, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def expressions() -> list[str]:
    """Each pattern of the signatures, without names of groups."""
    return [
        re.sub(r"\(\?P<\w+>", "(?:", pattern.pattern)
        for signature in load_signatures().signatures
        for pattern in (*signature.patterns, *signature.sequence)
    ]


def peers(scratch: Path) -> dict[str, list[str]]:
    """Commands that count the lines in which any of the patterns matches; the log's path is to be appended."""
    found: dict[str, list[str]] = {}
    (scratch / "rust").write_text("\n".join(expressions()) + "\n", encoding="utf-8")
    posix = [re.sub(r"([*+?}])\?", r"\1", each.replace("(?:", "(").replace(r"\d", "[0-9]")) for each in expressions()]
    (scratch / "posix").write_text("\n".join(each for each in posix if "(?" not in each) + "\n", encoding="utf-8")
    if rg := shutil.which("rg"):
        found["ripgrep"] = [rg, "--count", "--text", "--file", str(scratch / "rust")]
    if grep := shutil.which("grep"):
        found["grep -E"] = [grep, "-c", "-a", "-E", "-f", str(scratch / "posix")]
    return found


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--megabytes", type=int, default=1000)
    arguments.add_argument("--kind", action="append", choices=list(KINDS), help="only these")
    arguments.add_argument("--peers", action="store_true", help="measure grep and ripgrep as well, where they are")
    given = arguments.parse_args()
    size = given.megabytes * 1_000_000
    limit = max(2.0, LIMIT_SECONDS_PER_GIGABYTE * size / 1e9)
    onecat = str(Path(sys.executable).with_name("onecat"))
    results: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        for name in given.kind or KINDS:
            log = scratch / "log"
            write(log, KINDS[name](), size)
            seconds, processor, memory = run([onecat, "diagnose", str(log)])
            results[name] = {"seconds": round(seconds, 2), "cpu_seconds": round(processor, 2), "mib": round(memory, 1)}
            for peer, argv in (peers(scratch) if given.peers else {}).items():
                results[name][f"{peer} seconds"] = round(run([*argv, str(log)])[0], 2)
            print(json.dumps({name: results[name]}), file=sys.stderr, flush=True)
            log.unlink()
    print(
        json.dumps({"megabytes": given.megabytes, "limit_seconds": limit, "limit_mib": LIMIT_MIB, **results}, indent=2)
    )
    bad = [name for name, each in results.items() if each["seconds"] > limit or each["mib"] > LIMIT_MIB]
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
