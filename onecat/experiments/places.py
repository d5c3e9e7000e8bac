"""Where result files lie, how they are named, and how one is found again."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from onecat import paths
from onecat.errors import OnecatError
from onecat.experiments.records import Kind
from onecat.experiments.results import Outline, read_outline

SUFFIX = ".jsonl"


def results_directory() -> Path:
    """The directory of result files that nobody named a place for; it may not exist."""
    return paths.home().data / "benchmarks"


def new_path(kind: Kind, deployment: str, directory: Path | None = None) -> Path:
    """A place for a new result file: KIND-DEPLOYMENT-TIME.jsonl, as run-chat-20260728T101500Z.jsonl.

    deployment: its name, or the address of an endpoint that is none of ours. directory: `results_directory` if None.
    """
    folder = results_directory() if directory is None else directory
    name = re.sub(r"[^A-Za-z0-9.]+", "-", deployment.partition("://")[2] or deployment).strip("-.")[:60]
    stem = "-".join(filter(None, (kind, name, datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ"))))
    path, again = folder / f"{stem}{SUFFIX}", 1
    while path.exists():
        again += 1
        path = folder / f"{stem}-{again}{SUFFIX}"
    return path


@dataclass(frozen=True)
class Listing:
    """The result files of a directory, the latest last. others: files that are none, each with the reason."""

    directory: Path
    files: tuple[Outline, ...]
    others: tuple[tuple[Path, str], ...]


def list_results(directory: Path | None = None) -> Listing:
    """What lies in the directory of result files, without reading all of them. Raises OSError."""
    folder = results_directory() if directory is None else directory
    files: list[Outline] = []
    others: list[tuple[Path, str]] = []
    for path in sorted(folder.glob(f"*{SUFFIX}")) if folder.is_dir() else ():
        try:
            files.append(read_outline(path))
        except OnecatError as error:
            others.append((path, error.found))
    # What began in the same moment is told apart by what was written last.
    files.sort(key=lambda each: (each.experiment.started_at, each.path.stat().st_mtime_ns))
    return Listing(folder, tuple(files), tuple(others))


def find_result(name: str, directory: Path | None = None) -> Path:
    """The result file that a person means: a path, a name in the directory of result files (its end or a part of it
    may be left out where it is the only one), `latest`, or an experiment's id.

    Raises OnecatError when there is none, or several.
    """
    if Path(name).is_file() or "/" in name:
        return Path(name)
    folder = results_directory() if directory is None else directory
    for candidate in (folder / name, folder / f"{name}{SUFFIX}"):
        if name and candidate.is_file():
            return candidate
    files = list_results(folder).files
    if name == "latest" and files:
        return files[-1].path
    found = [each.path for each in files if name and (name in each.path.name or each.experiment.id == name)]
    if len(found) == 1:
        return found[0]
    raise OnecatError(
        f"several result files have {name!r} in their names" if found else f"there is no result file {name!r}",
        expected="a file, or the name of one there",
        where=str(folder),
        next_steps=["see which there are: onecat bench report"],
        details=[each.name for each in found[-10:]],
    )
