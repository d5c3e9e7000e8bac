"""Where a checkpoint may be written: beside its source, over nothing, and in no place that a name leads to."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from onecat.checkpoints.quantization.reading import SIDE_FILES
from onecat.checkpoints.rewritten import REWRITE_DIRECTORY
from onecat.errors import ExitCode, OnecatError
from onecat.nvfp4.rewriting.records import Rewrite
from onecat.own_files import check_writable

_MAY_BE_THERE = (REWRITE_DIRECTORY, "lost+found")
_WEIGHTS = (".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json")
"""What loaders take for weights; SIDE_FILES they take for what is said of weights."""


def names_of(work: Rewrite) -> tuple[str, ...]:
    """All files that a plan writes, in the order in which they come into their places; config.json is the last."""
    documents = sorted(work.documents, key=lambda name: (name == "config.json", name))
    return (*(shard.file for shard in work.shards), *work.copied, *documents)


def check_places(work: Rewrite, read: Iterable[str]) -> None:
    """Raises OnecatError for a target that cannot be one, and for names of files that lead out of it.

    read: names of the source's weight files.
    """
    source, target = work.source.resolve(), work.target.resolve()
    if target == source:
        raise _wrong("the new checkpoint would be written over the one that it is made from", work.target)
    if source in target.parents:
        raise _wrong(f"{work.target} lies in the checkpoint that is read", work.target)
    check_writable(work.target)
    there = next(each for each in (target, *target.parents) if each.exists())
    if not there.is_dir():
        raise _wrong(f"{there} is no directory", work.target)
    for name in [*(shard.file for shard in work.shards), *work.documents]:
        _check_name(name, work, folders=False)
    for name in work.copied:
        _check_name(name, work, folders=True)
    seen: set[str] = set()
    for name in names_of(work):
        if name in seen:
            raise _strange(name, "stands for two files", work)
        seen.add(name)
    written = {target / name for name in seen}
    for name in sorted({*read, *seen}):
        if (place := (source / name).resolve()) in written:
            raise _wrong(f"{work.source / name} is a link to {place}, which would be replaced", work.target)


def is_plain(name: str, *, folders: bool) -> bool:
    """Whether a name stays in the directory that it is put to, and is none of ours. folders: it may be in some."""
    parts = name.split("/")
    try:
        lengths = [len(os.fsencode(part)) for part in parts]
    except UnicodeEncodeError:
        return False
    return (
        (folders or len(parts) == 1)
        and not any(part in ("", ".", "..") or "\0" in part for part in parts)
        and parts[0].casefold() != REWRITE_DIRECTORY
        and max(lengths) <= 255
    )


def _check_name(name: str, work: Rewrite, *, folders: bool) -> None:
    if not is_plain(name, folders=folders):
        raise _strange(name, "is no plain file name", work)


def _strange(name: str, why: str, work: Rewrite) -> OnecatError:
    return OnecatError(
        f"the source has a file whose name {why}: {name!a}",
        expected="names without folders, as model-00001-of-00002.safetensors, each once",
        where=str(work.source),
        next_steps=[f"onecat model verify {work.source}", "rename that file, and correct the index"],
        code=ExitCode.NO,
    )


def _wrong(found: str, target: Path) -> OnecatError:
    return OnecatError(
        found, expected="a new directory", where=str(target), next_steps=["name another directory"], code=ExitCode.USAGE
    )


def refuse_others(work: Rewrite) -> None:
    """Raises OnecatError when a target in which no run is under way holds something.

    With `replace` only when that cannot be replaced, or would be taken for a part of the new checkpoint.
    """
    if not work.target.is_dir():
        return
    there = sorted(each.name for each in os.scandir(work.target) if each.name not in _MAY_BE_THERE)
    if there and not work.replace:
        raise _not_empty(work.target, there)
    names = names_of(work)
    for name in there:
        if name not in names and (name.endswith(_WEIGHTS) or name in SIDE_FILES):
            raise OnecatError(
                f"{name} is there, would stay there, and would be taken for a part of the new checkpoint",
                where=str(work.target / name),
                next_steps=["move it away, or name another directory"],
                code=ExitCode.NO,
            )
    for name in names:
        for folder in _folders(work.target, name):
            _refuse_link(folder)
            if folder.exists() and not folder.is_dir():
                raise OnecatError(
                    f"{folder.relative_to(work.target)} is a file there, and a directory of that name is to be made",
                    where=str(folder),
                    next_steps=["move it away, or name another directory"],
                    code=ExitCode.NO,
                )
        if (work.target / name).is_dir() and not (work.target / name).is_symlink():
            raise OnecatError(
                f"{name} is a directory there, and a file of that name is to be written",
                where=str(work.target / name),
                next_steps=["move it away, or name another directory"],
                code=ExitCode.NO,
            )


def _not_empty(target: Path, there: list[str]) -> OnecatError:
    is_finished = "config.json" in there and any(name.endswith(".safetensors") for name in there)
    more = f" and {len(there) - 1} more" if len(there) > 1 else ""
    return OnecatError(
        f"{target} holds a finished checkpoint" if is_finished else f"{target} holds other things: {there[0]}{more}",
        expected="a new or an empty directory, or one in which this was begun",
        where=str(target),
        details=there[:20],
        next_steps=["name another directory", "or have files of the same names replaced: add --replace"],
        code=ExitCode.NO,
    )


def folder_for(target: Path, name: str) -> Path:
    """Where a file of a checked name goes; its folders are made. Raises OnecatError when a link is among them."""
    for folder in _folders(target, name):
        _refuse_link(folder)
        folder.mkdir(exist_ok=True)
    return target / name


def remove_files(target: Path, names: Iterable[str]) -> None:
    """Remove files that a plan writes, or that a record says an earlier run wrote. Raises OSError.

    Nothing is removed that such a name does not lead to below the target itself, through no link.
    """
    for name in names:
        if is_plain(name, folders=True) and not any(each.is_symlink() for each in _folders(target, name)):
            (target / name).unlink(missing_ok=True)


def _folders(target: Path, name: str) -> Iterator[Path]:
    """The directories between the target and a file of it, the outermost first."""
    return reversed([each for each in (target / name).parents if target in each.parents])


def _refuse_link(folder: Path) -> None:
    if folder.is_symlink():
        raise OnecatError(
            f"{folder} is a link; files of the new checkpoint would be written where it leads",
            expected="a directory that onecat made itself",
            where=str(folder),
            next_steps=["remove that link, then type the same command again"],
            code=ExitCode.NO,
        )
