"""Which files of a source are fetched: what was asked for, and by default no second copy of the weights. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from onecat.errors import OnecatError
from onecat.pull.records import RemoteFile, Skipped

PICKLES = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.pickle", "*.ckpt", "*.bin.index.json")
"""Formats that run code when they are loaded (https://docs.python.org/3/library/pickle.html), and their index."""
OTHER_FRAMEWORKS = ("*.h5", "*.msgpack", "*.ot")
"""Weights for TensorFlow, Flax and rust-bert; vLLM reads none of them."""
SAFETENSORS = "*.safetensors"


@dataclass(frozen=True)
class Selection:
    """Files to fetch, files that are not, and words for a person."""

    files: tuple[RemoteFile, ...]
    skipped: tuple[Skipped, ...]
    notes: tuple[str, ...] = ()


def select(files: Sequence[RemoteFile], include: Sequence[str], exclude: Sequence[str]) -> Selection:
    """Choose by globs, which are compared with the whole path and with the name alone.

    Without `include`, duplicates of the weights are left out where the source has safetensors. Raises OnecatError when
    nothing is left.
    """
    left: list[RemoteFile] = []
    skipped: list[Skipped] = []
    for each in files:
        if include and not _matches(each.path, include):
            skipped.append(Skipped(each.path, "not asked for by --include"))
        elif _matches(each.path, exclude):
            skipped.append(Skipped(each.path, "excluded by --exclude"))
        else:
            left.append(each)
    reasons = [] if include else _duplicates([each.path for each in left])
    chosen = []
    for each in left:
        why = next((why for is_duplicate, why in reasons if is_duplicate(each.path)), None)
        if why is None:
            chosen.append(each)
        else:
            skipped.append(Skipped(each.path, why))
    if not chosen:
        raise OnecatError(
            "no file is left to fetch" if files else "the source has no files",
            expected="globs that match files of the source, as --include '*.safetensors' --include '*.json'",
            details=[f"{each.path}: {each.why}" for each in skipped[:20]],
        )
    return Selection(tuple(chosen), tuple(skipped), _notes([each.path for each in chosen]))


def _duplicates(paths: Sequence[str]) -> list[tuple[Callable[[str], bool], str]]:
    plain = [path for path in paths if _matches(path, (SAFETENSORS,)) and not _is_publishers(path)]
    if not plain:
        if any(_matches(path, (SAFETENSORS,)) for path in paths):
            return [(lambda path: _matches(path, PICKLES), "pickle; the source has safetensors")]
        return []
    return [
        (_is_publishers, "the same weights once more, in the publisher's own layout"),
        (lambda path: _matches(path, PICKLES), "pickle; the source has safetensors"),
        (lambda path: _matches(path, OTHER_FRAMEWORKS), "weights for another framework; the source has safetensors"),
    ]


def _is_publishers(path: str) -> bool:
    """Meta's folder `original/`, and Mistral's consolidated*.safetensors."""
    return path.startswith("original/") or (path.startswith("consolidated") and path.endswith(SAFETENSORS[1:]))


def _notes(paths: Sequence[str]) -> tuple[str, ...]:
    pickles = [path for path in paths if _matches(path, PICKLES) and not path.endswith(".json")]
    if not pickles:
        return ()
    return (
        f"{pickles[0]} is a pickle, which runs code of its author when it is loaded; the source has no safetensors",
    )


def _matches(path: str, globs: Sequence[str]) -> bool:
    name = path.rpartition("/")[2]
    return any(fnmatchcase(path, glob) or fnmatchcase(name, glob) for glob in globs)
