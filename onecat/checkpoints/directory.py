"""A directory with weight files, or with no more than their headers."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from onecat.checkpoints import consolidated
from onecat.checkpoints.architectures.configuration import LARGEST
from onecat.checkpoints.collapsing import collapsed
from onecat.checkpoints.json_text import DOWNLOAD_AGAIN
from onecat.checkpoints.numbering import counted, missing_of_series
from onecat.checkpoints.records import Problem
from onecat.checkpoints.safetensors_header import (
    Header,
    HeaderError,
    header_of,
    parse_header,
    read_header_text,
)
from onecat.checkpoints.sources import CONFIG, INDEX, Source, read_documents, read_json, unreadable
from onecat.checkpoints.tokenizers import COPY, MISSING, tokenizers

LARGE_INDEX = 1 << 20
"""Bytes above which an index is searched for the names of its files and not parsed: some have 200,000 lines."""

BLOCK = 1 << 16
MOST_NAMES = 16
"""Names that are searched for in one block of an index, each in a pass of its own; it has one or two where the index is
in order."""

_END_OF_FILE = b'.safetensors"'

OTHER_COPIES = re.compile(r"^(pytorch_model|adapter)[-.]")
"""Files of the same weights in another layout, left out when there are others: by an index, engines do so
(vllm/model_executor/model_loader/weight_utils.py, filter_duplicate_safetensors_files)."""


def read_directory(directory: Path) -> Source:
    """Configuration and headers; no weight is loaded. Raises OSError when the directory cannot be listed."""
    problems: list[Problem] = []
    documents = read_documents(directory, problems)
    files = {entry.name for entry in os.scandir(directory)}
    names = {name for name in files if name.endswith(".safetensors")}
    listed = _listed(directory / INDEX, problems)
    own = consolidated.consolidated(names)
    own_listed = _listed(directory / consolidated.INDEX, problems) if own else set()
    for index, those in ((INDEX, listed), (consolidated.INDEX, own_listed)):
        problems += [
            Problem("missing-shard", f"is listed in {index} and not there", str(directory / missing),
                    "download the missing shard")
            for missing in sorted(those - names)
        ]  # fmt: skip
    for missing in [] if listed else missing_of_series(names):
        problems.append(
            Problem("missing-shard", "is one of those that the names of the others count, and not there",
                    str(directory / missing), "download the missing shard")
        )  # fmt: skip
    if not names and not (directory / INDEX).is_file():
        problems.append(
            Problem("no-weights", "has no *.safetensors file", str(directory),
                    "download the weights, or convert a .bin or GGUF checkpoint to safetensors")
        )  # fmt: skip
    chosen = loaded_files(names, own_listed if own else listed)
    headers = _Headers(directory)
    rows = collapsed(headers.of(name) for name in chosen)
    config = documents.get(CONFIG)
    if own and config:
        stated = config.get("architectures")
        name = str(stated[0]) if isinstance(stated, list) and stated else None
        rows = consolidated.renamed(rows)
        if (copies := consolidated.told(str(directory), names, files, name)) is not None:
            problems.append(copies)
    problems += headers.problems
    complete = headers.found and headers.found == headers.without_weights
    if headers.without_weights and not complete:
        problems += [_cut(directory / name) for name in headers.without_weights]
    if complete:
        problems.append(
            Problem("headers-only", f"holds the headers of {counted(len(chosen), 'weight file')}, not the weights",
                    str(directory), "download the weights before you serve from here", "info")
        )  # fmt: skip
    if not any((directory / name).is_file() for name in tokenizers(files)):
        problems.append(
            Problem("missing-tokenizer", MISSING, str(directory), COPY, "info" if complete else "fail")
        )  # fmt: skip
    total, parameters = stated_sizes(read_json(directory / INDEX, []) or {}) if listed and not rows else (0, 0)
    return Source(str(directory), documents, rows, tuple(headers.found), total, tuple(problems), parameters)


def loaded_files(names: Iterable[str], listed: Iterable[str]) -> list[str]:
    """The weight files that an engine loads: Mistral's own copy where there is one, else those of the index, else all
    but other copies of the same weights.

    Parameters:
        listed: by the index of the copy that is loaded.
    """
    own = consolidated.consolidated(names := set(names))
    present = own or sorted(names)
    wanted = set(listed) & set(present)
    if wanted:
        return [name for name in present if name in wanted]
    return [name for name in present if not OTHER_COPIES.match(name)] or present


NOTHING = Header((), 0)


class _Headers:
    """Reads one header after another, and keeps what was wrong with them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.problems: list[Problem] = []
        self.found: list[str] = []
        self.without_weights: list[str] = []

    def of(self, name: str) -> Header:
        """The header of a file; an empty one when it has none that can be read."""
        path = self._directory / name
        try:
            header, cut = read_whole_or_header(path)
        except HeaderError as error:
            fix = "run `git lfs pull` in that directory" if error.code == "lfs-pointer" else DOWNLOAD_AGAIN
            self.problems.append(Problem(error.code, str(error), str(path), fix))
            return NOTHING
        except OSError as error:
            self.problems.append(unreadable(path, error))
            return NOTHING
        self.found.append(name)
        if isinstance(cut, Problem):
            self.problems.append(cut)
        elif cut == "header":
            self.without_weights.append(name)
        return header


def read_whole_or_header(path: Path) -> tuple[Header, Problem | Literal["header"] | None]:
    """A file's header, and what is wrong with the length of the file: `header` when it ends where the header does.

    Raises HeaderError when the header itself cannot be read, OSError when the file cannot.
    """
    text, size = read_header_text(path)
    if size == 8 + len(text):
        header = parse_header(text)
        return header, "header" if header.data_bytes else None
    try:
        return header_of(text, size), None
    except HeaderError as error:
        if error.code not in ("truncated", "overlong"):
            raise
        return parse_header(text), Problem(error.code, str(error), str(path), DOWNLOAD_AGAIN)


def _cut(path: Path) -> Problem:
    return Problem("truncated", "is cut off after its header", str(path), DOWNLOAD_AGAIN)


def _listed(path: Path, problems: list[Problem]) -> set[str]:
    """The weight files that an index names; empty without one."""
    if not path.is_file():
        return set()
    if path.stat().st_size > LARGE_INDEX and (found := _names_in(path)):
        return found
    weight_map = (read_json(path, problems) or {}).get("weight_map")
    if not isinstance(weight_map, Mapping):
        return set()
    return {name for name in weight_map.values() if isinstance(name, str)}


def _names_in(path: Path) -> set[str]:
    """The names of weight files in a JSON text, each of which stands there for thousands of tensors."""
    found: set[bytes] = set()
    rest = b""
    with path.open("rb", buffering=0) as file:
        while block := file.read(BLOCK):
            whole, end, rest = (rest + block).rpartition(_END_OF_FILE)
            text = whole + end
            for _ in range(MOST_NAMES):
                if (at := text.find(_END_OF_FILE)) < 0:
                    break
                name = text[text.rfind(b'"', 0, at) : at + len(_END_OF_FILE)]
                found.add(name)
                text = b"" if text.count(name) == text.count(_END_OF_FILE) else text.replace(name, b"")
            found.update(each[each.rfind(b'"') :] + _END_OF_FILE for each in text.split(_END_OF_FILE)[:-1])
    return {name.strip(b'"').decode("utf-8", "replace") for name in found}


def stated_sizes(index: Mapping[str, object]) -> tuple[int, int]:
    """Bytes and parameters of all weights as an index states them, 0 where it does not."""
    stated = index.get("metadata")
    if not isinstance(stated, Mapping):
        return 0, 0
    return _whole(stated.get("total_size")), _whole(stated.get("total_parameters"))


def _whole(stated: object) -> int:
    if isinstance(stated, bool) or not isinstance(stated, (int, float)):
        return 0
    return int(stated) if 0 < stated < LARGEST else 0
