"""A model directory on any host: looked at without moving its weights."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from onecat.checkpoints import inspect
from onecat.checkpoints.integrity.manifests.reading import LARGEST
from onecat.checkpoints.safetensors_header import MAXIMUM_HEADER_BYTES
from onecat.checkpoints.sources import DOCUMENTS, INDEX
from onecat.errors import OnecatError

if TYPE_CHECKING:
    from onecat.checkpoints import Checkpoint
    from onecat.hosts import FileStatus, Machine

HEADER_BYTES = 1 << 16
"""What is fetched of each weight file at once: the header of nearly every file."""
_SETTINGS = (*DOCUMENTS, INDEX)
_READ_SECONDS = 120.0


def inspect_on(machine: Machine, directory: str) -> Checkpoint:
    """What `onecat.checkpoints.inspect` tells of a directory of a host.

    From another machine come its settings and the headers of its weight files alone. Raises OnecatError when there is
    no such directory, or a file in it cannot be read.
    """
    if machine.is_local:
        return inspect(Path(directory))
    with mirror_of(machine, directory) as mirror:
        seen = inspect(mirror)
    problems = tuple(
        replace(each, where=each.where.replace(str(mirror), directory), text=each.text.replace(str(mirror), directory))
        for each in seen.problems
    )
    return replace(seen, directory=directory, problems=problems)


@contextlib.contextmanager
def mirror_of(machine: Machine, directory: str, *, with_small_files: bool = False) -> Iterator[Path]:
    """A directory here, while the block runs, with the files of one on another machine: as long as there, but with
    settings and the headers of weight files alone in them.

    Parameters:
        with_small_files: whether all other files come whole, up to LARGEST bytes each: tokenizers, lists of checksums.

    Raises OnecatError when there is no such directory, or a file in it cannot be read.
    """
    found = machine.status(directory)
    if found is None or found.kind not in ("directory", "link"):
        raise OnecatError(
            f"the model directory {directory} does not exist on {machine.name}"
            if found is None
            else f"{directory} is not a directory",
            expected="model.path as that host names it: a directory with config.json, *.safetensors and a tokenizer",
            where=f"{directory} on {machine.name}",
            next_steps=["correct model.path in onecat.yaml", "or copy the checkpoint there: rsync --archive"],
        )
    with tempfile.TemporaryDirectory(prefix="onecat-model-") as folder:
        mirror = Path(folder)
        entries = machine.entries(directory)
        for name, content in _starts(machine, directory, entries, with_small_files).items():
            with (mirror / name).open("wb") as file:
                file.write(content)
                file.truncate(entries[name].size)  # as long as there, with nothing in it
        yield mirror


def _starts(
    machine: Machine, directory: str, entries: Mapping[str, FileStatus], with_small_files: bool
) -> dict[str, bytes]:
    """The files as far as they are looked at: settings whole, weights to the end of their header, else nothing."""
    found = {name: b"" for name, entry in entries.items() if entry.kind == "file"}
    weights = [name for name in found if name.endswith(".safetensors")]
    found |= _headers(machine, directory, {name: entries[name].size for name in weights})
    for name in found:
        is_small = with_small_files and name not in weights and entries[name].size <= LARGEST
        if name in _SETTINGS or is_small:
            found[name] = _read(machine, f"{directory}/{name}", 0, entries[name].size)
    return found


def _headers(machine: Machine, directory: str, sizes: Mapping[str, int]) -> dict[str, bytes]:
    """The start of each weight file, with its whole header."""
    if not sizes:
        return {}
    paths = [f"{directory}/{name}" for name in sizes]
    done = machine.run(["head", "-q", "-c", str(HEADER_BYTES), "--", *paths], timeout=_READ_SECONDS)
    starts: dict[str, bytes] = {}
    rest = done.stdout
    for name, size in sizes.items():
        length = min(HEADER_BYTES, size)
        starts[name], rest = rest[:length], rest[length:]
    if done.exit_code != 0 or rest:  # one cannot be read: which one, the host says when it is asked for that one
        starts = {
            name: _read(machine, f"{directory}/{name}", 0, min(HEADER_BYTES, size)) for name, size in sizes.items()
        }
    for name, start in starts.items():
        needed = 8 + int.from_bytes(start[:8], "little")
        if len(start) < needed <= min(sizes[name], 8 + MAXIMUM_HEADER_BYTES):
            starts[name] = start + _read(machine, f"{directory}/{name}", len(start), needed - len(start))
    return starts


def _read(machine: Machine, path: str, offset: int, size: int) -> bytes:
    try:
        return machine.read_part(path, offset, size)
    except OSError as error:
        raise OnecatError(
            f"a file of the model cannot be read: {error.strerror}",
            where=f"{path} on {machine.name}",
            next_steps=["check its owner and mode: ls -l"],
        ) from error
