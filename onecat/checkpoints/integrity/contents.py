"""What lies in a model directory: names and sizes, headers, JSON documents. No weight is read."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from onecat.checkpoints import consolidated
from onecat.checkpoints.json_text import NotJson, parse_json
from onecat.checkpoints.safetensors_header import LFS_POINTER, Header, HeaderError, Tensor, read_header
from onecat.checkpoints.sources import INDEX
from onecat.errors import OnecatError

LARGEST_DOCUMENT = 256 << 20
"""JSON above this is not read: the largest tokenizers take 35 MB, the largest index 25 MB."""

SMALL_FILE = 4096
"""Bytes of a file's beginning that tell a Git LFS pointer or a web page."""


@dataclass(frozen=True)
class Unread:
    """Why a document was not read. code: of the fault; fix: what to do."""

    code: str
    reason: str
    fix: str


@dataclass(frozen=True)
class Copy:
    """All weights once. index: the file that says where each tensor is; weight_map: what it says, None without one.
    files: those of the index, or all."""

    index: str
    weight_map: Mapping[str, str] | None
    files: tuple[str, ...]


@dataclass(frozen=True)
class Contents:
    """A model directory as it lies there.

    sizes: bytes of each file by its path below the directory. headers: of the weight files that are whole, by name.
    broken: what is wrong with the others. documents: the JSON files of the top directory; unread: why one is none.
    starts: the first bytes of each small file that is no weight file. shards: the weight files that an engine loads.
    """

    directory: Path
    sizes: Mapping[str, int]
    headers: Mapping[str, Header]
    broken: Mapping[str, HeaderError]
    documents: Mapping[str, Any]
    unread: Mapping[str, Unread]
    starts: Mapping[str, bytes]

    @property
    def config(self) -> Mapping[str, Any]:
        """config.json, empty when there is none."""
        return self.document("config.json")

    def document(self, name: str) -> Mapping[str, Any]:
        """A JSON object of the directory, empty when there is none of that name."""
        found = self.documents.get(name)
        return found if isinstance(found, Mapping) else {}

    @cached_property
    def weight_map(self) -> Mapping[str, str] | None:
        """Which shard holds each tensor, as the index says; None without an index that says so."""
        return self._copy(INDEX, []).weight_map

    @cached_property
    def weight_files(self) -> tuple[str, ...]:
        """All weight files of the top directory, whole or broken."""
        return tuple(sorted({*self.headers, *self.broken}))

    @cached_property
    def shards(self) -> tuple[str, ...]:
        return self.copies[0].files

    @cached_property
    def copies(self) -> tuple[Copy, ...]:
        """The copies of the weights that lie there: first the one that an engine loads, which is Mistral's own where
        there are two, then the other."""
        own = set(consolidated.consolidated(self.weight_files))
        other = self._copy(INDEX, [name for name in self.weight_files if name not in own])
        return (self._copy(consolidated.INDEX, sorted(own)), *([other] if other.files else [])) if own else (other,)

    def _copy(self, index: str, names: list[str]) -> Copy:
        stated = self.document(index).get("weight_map")
        if not isinstance(stated, Mapping) or not all(isinstance(value, str) for value in stated.values()):
            return Copy(index, None, tuple(names))
        listed = set(stated.values()) if stated else set(names)
        return Copy(index, stated, tuple(name for name in names if name in listed))

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Each tensor that an engine loads, with the name of its file, in the order of files."""
        yield from self.tensors_of(self.shards)

    def tensors_of(self, files: Iterable[str]) -> Iterator[tuple[str, Tensor]]:
        """Each tensor of some weight files, with the name of its file."""
        for name in files:
            for tensor in self.headers[name].tensors if name in self.headers else ():
                yield name, tensor


def read_contents(directory: Path) -> Contents:
    """Look at a model directory. Raises OnecatError when it does not exist or is no directory."""
    if not directory.is_dir():
        raise OnecatError(
            f"the model directory {directory} {'is not a directory' if directory.exists() else 'does not exist'}",
            expected="a directory with config.json, *.safetensors and a tokenizer",
            where=str(directory),
            next_steps=("give the path of a checkpoint's directory", "onecat model pull ORG/NAME fetches one"),
        )
    sizes = dict(sorted(_files(directory)))
    headers: dict[str, Header] = {}
    broken: dict[str, HeaderError] = {}
    documents: dict[str, Any] = {}
    unread: dict[str, Unread] = {}
    starts: dict[str, bytes] = {}
    for name, size in sizes.items():
        if "/" not in name and name.endswith(".safetensors"):
            try:
                headers[name] = read_header(directory / name)
            except HeaderError as error:
                broken[name] = error
            except OSError as error:
                broken[name] = HeaderError("unreadable", f"cannot be read ({error.strerror})")
            continue
        if size < 0:
            continue
        try:
            if size == 0:
                starts[name] = b""
            elif size <= SMALL_FILE or _is_html_name(name):
                with open(f"{directory}/{name}", "rb", buffering=0) as file:  # noqa: PTH123
                    starts[name] = file.read(SMALL_FILE)
            if "/" not in name and name.endswith(".json") and not starts.get(name, b"").startswith(LFS_POINTER):
                documents[name] = _document(directory / name, size)
        except OSError as error:
            unread[name] = Unread("unreadable", f"cannot be read ({error.strerror})", "check its owner and mode")
        except NotJson as error:
            unread[name] = Unread("bad-json", f"is not valid JSON ({error})", error.fix)
    return Contents(directory, sizes, headers, broken, documents, unread, starts)


def _files(directory: Path) -> Iterator[tuple[str, int]]:
    """All files with their sizes, those behind links too; a link that leads nowhere has the size -1."""
    root = str(directory)
    for folder, folders, names in os.walk(root):
        folders[:] = [each for each in folders if each != ".git"]
        below = folder[len(root) :].strip("/")
        for name in names:
            try:
                found = os.stat(f"{folder}/{name}")  # noqa: PTH116
                size = found.st_size if stat.S_ISREG(found.st_mode) else -1
            except OSError:
                size = -1
            yield f"{below}/{name}" if below else name, size


def _document(path: Path, size: int) -> Any:
    if size > LARGEST_DOCUMENT:
        raise NotJson(f"{size} bytes are more than any such file has")
    return parse_json(path.read_bytes())


def _is_html_name(name: str) -> bool:
    return "/" not in name and name.endswith((".json", ".model", ".txt", ".jinja"))
