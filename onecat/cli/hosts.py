"""The options of commands that look at hosts, and waiting for these with the progress on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onecat.cli import console
from onecat.errors import OnecatError

if TYPE_CHECKING:
    from onecat.hosts import Target
    from onecat.probe import Observation, Observing

HostsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--host",
        metavar="HOST",
        help="A host: local, NAME, USER@NAME:PORT, ssh://... (repeat, or separate by commas).",
    ),
]
HostsFileOption = Annotated[
    Path | None, typer.Option("--hosts-file", metavar="FILE", help="More hosts, one a line; # begins a comment.")
]
ParallelOption = Annotated[
    int, typer.Option("--parallel", min=1, max=1024, metavar="N", help="Look at so many hosts at the same time.")
]
ConnectTimeoutOption = Annotated[
    float,
    typer.Option(
        "--connect-timeout", min=0.1, max=3600, metavar="SECONDS", help="For reaching a host, and for logging in."
    ),
]
SudoOption = Annotated[bool, typer.Option("--sudo", help="Become root on the hosts by sudo, to see everything.")]
LoadOption = Annotated[
    bool, typer.Option("--load", help="Measure the PCIe link of each idle GPU under load, a second each.")
]
RootOption = Annotated[
    str, typer.Option("--root", metavar="DIR", help="Read /proc, /sys and /etc below this directory.")
]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", min=0.1, max=3600, metavar="SECONDS", help="For each source of facts.")
]


def targets_of(words: Iterable[str], hosts_file: Path | None) -> list[Target]:
    """The hosts that were named, each once. Raises OnecatError when a word names none."""
    from onecat.hosts import parse_target

    listed = [part.strip() for word in words for part in word.split(",")]
    if hosts_file is not None:
        listed += [name for line in _lines_of(hosts_file) if (name := line.partition("#")[0].strip())]
        if not listed:
            raise OnecatError("the file names no host", where=str(hosts_file), expected="one host a line")
    return [parse_target(name) for name in dict.fromkeys(listed)]


def _lines_of(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise OnecatError("the file is no text", where=str(file), expected="one host a line, in UTF-8") from error
    except OSError as error:
        raise OnecatError(
            f"the file of hosts cannot be read: {error.strerror}", where=str(file), expected="one host a line"
        ) from error


def checked_root(root: str, targets: Sequence[Target]) -> str:
    """The directory of `--root`; that it exists can be told for this machine only."""
    return console.existing_directory(root) if any(target.is_local for target in targets) else root


def wait_for(observing: Observing, count: int) -> list[Observation]:
    """What came of the hosts; meanwhile a terminal shows how many have answered."""
    return observing.observations(teller(count))


def teller(count: int) -> Callable[[int], None] | None:
    """What shows on a terminal how many of some hosts have answered; None where that is not wanted."""
    if count < 2 or console.quiet() or not sys.stderr.isatty():
        return None

    def tell(ended: int) -> None:
        text = f"{ended} of {count} hosts have answered"
        print("\r" + (text if ended < count else " " * len(text) + "\r"), end="", file=sys.stderr, flush=True)

    return tell
