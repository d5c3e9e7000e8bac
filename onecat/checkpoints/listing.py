"""A listing of a remote directory, in place of the directory: names and sizes of its files.

Read are a hub's JSON (a list of `path` and `size`, or `siblings` of `rfilename` and `size`), what `ls -l` prints, and
lines of a size and a name in either order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from onecat.checkpoints.architectures.configuration import is_count
from onecat.checkpoints.directory import loaded_files
from onecat.checkpoints.numbering import missing_of_series, numbered
from onecat.checkpoints.records import Problem
from onecat.checkpoints.sources import INDEX, Source, read_documents
from onecat.checkpoints.tokenizers import NAMES, tokenizers
from onecat.errors import OnecatError

LISTS = ("siblings", "files", "Files", "data", "Data")
"""Fields that hold the list of files where a hub answers with an object."""

MOST_DIGITS = 19
"""A size of so many digits is none."""

_LS = re.compile(r"^[-lr][rwxsStT-]{9}[.+@]?\s+\d+\s+\S+\s+\S+\s+(?P<size>\d+)\s+\S+\s+\S+\s+\S+\s+(?P<name>.+)$")
_SIZE_FIRST = re.compile(r"^(?P<size>\d+)\s+(?P<name>\S.*)$")
_NAME_FIRST = re.compile(r"^(?P<name>\S.*?)\s+(?P<size>\d+)$")


def read_listing(path: Path, text: str) -> Source:
    """What a listing tells, with the configuration beside it where there is one.

    Raises OnecatError when it names no file.
    """
    sizes = dict(_entries(text))
    weights = {name for name in sizes if name.endswith(".safetensors") and "/" not in name}
    if not sizes:
        raise OnecatError(
            f"{path.name} is neither a config.json nor a listing of files",
            expected="a hub's JSON list of files with sizes, the output of `ls -l`, or lines of size and name",
            where=str(path),
            next_steps=("curl -s https://HUB/api/models/ORG/NAME/tree/main > listing.json",),
        )
    problems: list[Problem] = []
    documents = read_documents(path.parent, problems, required=False)
    chosen = loaded_files(weights, numbered(weights))
    where = str(path)
    if not weights:
        problems.append(Problem("no-weights", "lists no *.safetensors file", where, "take a revision that has some"))
    for name in missing_of_series(weights):
        problems.append(Problem("missing-shard", f"does not list {name}", where, "upload or download that shard"))
    for name in sorted(name for name in weights if sizes[name] < 1024):
        problems.append(
            Problem("lfs-pointer", f"lists {name} with {sizes[name]} bytes: a Git LFS pointer", where,
                    "run `git lfs pull` in that directory")
        )  # fmt: skip
    if not tokenizers(sizes):
        problems.append(
            Problem("missing-tokenizer", f"lists no tokenizer (none of {NAMES})", where,
                    "take the tokenizer of the original checkpoint", "warn")
        )  # fmt: skip
    if INDEX not in sizes and len(chosen) > 1:
        problems.append(Problem("missing-index", f"does not list {INDEX}", where, "copy it from the publisher", "warn"))
    return Source(where, documents, (), tuple(chosen), sum(sizes[name] for name in chosen), tuple(problems))


def _entries(text: str) -> Iterator[tuple[str, int]]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    if document is not None:
        yield from _json_entries(document)
        return
    for line in text.splitlines():
        found = _LS.match(line.strip()) or _SIZE_FIRST.match(line.strip()) or _NAME_FIRST.match(line.strip())
        if found and len(found["size"]) < MOST_DIGITS:
            name = found["name"].split(" -> ")[0]
            yield name.removeprefix("./"), int(found["size"])


def _json_entries(document: Any) -> Iterator[tuple[str, int]]:
    files = document
    if isinstance(document, dict):
        files = next((document[key] for key in LISTS if key in document), [])
        if isinstance(files, dict):
            files = files.get("Files", [])
    for entry in files if isinstance(files, list) else []:
        if not isinstance(entry, dict) or entry.get("type") == "directory":
            continue
        name = next(
            (entry[key] for key in ("path", "rfilename", "Path", "name") if isinstance(entry.get(key), str)), ""
        )
        large = entry.get("lfs")
        size = large.get("size") if isinstance(large, dict) else None
        size = size if size is not None else entry.get("size", entry.get("Size"))
        if name and is_count(size):
            yield name, size
