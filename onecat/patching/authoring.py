"""Patches made of edits: a new one, or those of a series written anew."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from onecat.errors import ExitCode, OnecatError
from onecat.files import write_atomically
from onecat.patching.archive import MemorySource, contents
from onecat.patching.diff import FileChange
from onecat.patching.report import conflict_lines
from onecat.patching.series import ADDED, SERIES, Series, Upstream, load_series
from onecat.patching.source import RECORD, STAGING, Directory, Overlay, SourceFile
from onecat.patching.states import Attempt, Examination, PatchState, State, examine, try_changes
from onecat.patching.tree import touched_paths
from onecat.patching.writing import make_hunks, write_diff

NOT_SOURCE = (".git", "__pycache__", ".venv", ".mypy_cache", ".ruff_cache", ".pytest_cache", "build", "dist")
"""Folders of a working tree that hold no source."""


@dataclass(frozen=True)
class Edits:
    """What a working tree has otherwise than a series makes it.

    pristine: the files of the source that matter. examination: the series on it. files: path to the file that the
    series makes and the file that is there.
    """

    pristine: MemorySource
    examination: Examination
    files: dict[str, tuple[SourceFile | None, SourceFile | None]]


def find_edits(series: Series, archive: Path, root: Path | None) -> Edits:
    """Compare a working tree with what a series makes of its source archive; no tree has no edits.

    Raises OnecatError when the series does not fit the archive (exit code 1), or a link is in the tree.
    """
    touched = touched_paths(series)
    tree = None if root is None else Directory(root.resolve())
    pristine: dict[str, SourceFile] = {}
    differing: dict[str, SourceFile] = {}
    seen = set()
    for path, file in contents(archive, series.upstream):
        seen.add(path)
        if path in touched:
            pristine[path] = file
        elif tree is not None and not _same(file, tree.read(path)):
            differing[path] = file
    source = MemorySource({**pristine, **differing})
    examination = examine(series, source)
    if not examination.is_clean:
        raise OnecatError(
            f"{series.name} does not fit its own source",
            where=str(archive),
            details=[line for state in examination.states for line in conflict_lines(state)],
            code=ExitCode.NO,
        )
    files: dict[str, tuple[SourceFile | None, SourceFile | None]] = {}
    if tree is None:
        return Edits(source, examination, files)
    there = examine(series, tree)
    if series.patches and there.is_clean and there.is_absent:
        raise OnecatError(
            f"{series.name} is not applied to {root}",
            expected="edits on top of the series",
            where=str(root),
            next_steps=[f"onecat patch apply --to {root}, then edit"],
            code=ExitCode.NO,
        )
    candidates = {*touched, *differing, *(path for path in _files(tree.root) if path not in seen)}
    for path in sorted(candidates):
        made, now = examination.complete.read(path), tree.read(path)
        if not _same(made, now):
            files[path] = made, now
    return Edits(source, examination, files)


def new_patch(series: Series, edits: Edits, name: str, fields: Mapping[str, Any]) -> str:
    """Write a patch of the edits, and its row behind the others; returns the patch's file name.

    Parameters:
        name: with or without a number in front. fields: purpose, author, reference, drop_when, and applies_to.

    Raises OnecatError when there are no edits outside the added files (exit code 1), or the name is taken (2).
    """
    changes = [(path, made, now) for path, (made, now) in edits.files.items() if path not in series.added]
    text = write_diff(changes)
    if not text:
        raise OnecatError(
            "the tree has no edits that a patch could be made of",
            expected="files that differ from what the series makes",
            next_steps=["edits of added files: onecat patch refresh"],
            code=ExitCode.NO,
        )
    file = f"{_numbered(series, name)}.patch"
    place = series.directory / file
    if place.exists():
        raise OnecatError(f"{file} exists", expected="another name", where=str(place))
    table = series.directory / SERIES
    before = table.read_text(encoding="utf-8")
    write_atomically(place, text.encode("utf-8", "surrogateescape"), 0o644)
    write_atomically(table, with_row(before, {"file": file, **fields}), 0o644)
    return file


def refreshed(series: Series, edits: Edits, name: str | None = None) -> dict[str, str]:
    """The patches that take edits or fit with offsets only, written anew; file name to text.

    Parameters:
        name: the patch that takes all edits. None: each file's edits go to the last patch that changes it.

    Raises OnecatError (exit code 1) when an edit belongs to no patch, or does not fit beneath the later patches.
    """
    owners = _owners(series, edits, name)
    tree: Overlay = Overlay(edits.pristine)
    texts = {}
    for patch in series.patches:
        before = dict(tree.changes)
        attempt = _fitting(patch.file, tree, patch.changes)
        is_exact = not attempt.distance
        tree.changes.update(attempt.writes)
        mine = [path for path, owner in owners.items() if owner == patch.file]
        tree.changes.update(_fitting(patch.file, tree, [_edit(path, *edits.files[path]) for path in mine]).writes)
        then = Overlay(edits.pristine)
        then.changes = before
        text = write_diff((path, then.read(path), tree.read(path)) for path in tree.changes)
        if text and (mine or not is_exact) and _reads_otherwise(patch.changes, text, patch.file):
            texts[patch.file] = text
    for path in owners:
        if not _same(tree.read(path), edits.files[path][1]):
            raise OnecatError(
                f"the edits of {path} do not fit beneath the patches that come after {owners[path]}",
                expected="edits of the last patch that changes the file",
                next_steps=["onecat patch refresh, without a name"],
                code=ExitCode.NO,
            )
    return texts


def write_refreshed(series: Series, edits: Edits, texts: Mapping[str, str]) -> tuple[str, ...]:
    """Write patches anew, and copy edited added files back into the series; returns what was written."""
    written = []
    for file, text in texts.items():
        write_atomically(series.directory / file, text.encode("utf-8", "surrogateescape"), 0o644)
        written.append(file)
    for path, (_, now) in edits.files.items():
        if path in series.added and now is not None:
            write_atomically(series.directory / ADDED / path, now.content, now.mode)
            written.append(f"{ADDED}/{path}")
    return tuple(written)


def with_row(table: str, row: Mapping[str, Any]) -> str:
    """The text of a series.yaml with one more row behind the others; what stands there stays as it is."""
    text = yaml.safe_dump([dict(row)], sort_keys=False, allow_unicode=True, width=116)
    indent = re.search(r"^( *)- ", table, re.MULTILINE)
    entry = "".join(f"{indent[1] if indent else '  '}{line}\n" for line in text.splitlines())
    empty = re.sub(r"^patches: *\[ *\] *$", "patches:", table.rstrip("\n"), flags=re.MULTILINE)
    return f"{empty}\n{entry}"


def new_series(directory: Path, upstream: Upstream, rows: list[dict[str, Any]]) -> None:
    """Write upstream.yaml and series.yaml into a folder."""
    pin = yaml.safe_dump(dict(vars(upstream)), sort_keys=False)
    head = "# The source that onecat patches, pinned by content: any index or folder may supply it.\n"
    write_atomically(directory / "upstream.yaml", head + pin, 0o644)
    table = (
        "# The patches in the order in which they are applied; what the fields say: patches/README.md.\npatches: []\n"
    )
    for row in rows:
        table = with_row(table, row)
    write_atomically(directory / SERIES, table, 0o644)
    load_series(f"{directory}/")


def _owners(series: Series, edits: Edits, name: str | None) -> dict[str, str]:
    """Edited path to the file name of the patch that takes the edits."""
    owners = {}
    for path in edits.files:
        if path in series.added:
            continue
        last = [patch.file for patch in series.patches if path in {change.new for change in patch.changes}]
        if name is None and not last:
            raise OnecatError(
                f"{path} was edited, and no patch changes it",
                expected="the name of the patch that takes the edits",
                next_steps=["onecat patch refresh NAME --from DIR", "onecat patch new NAME --from DIR"],
                code=ExitCode.NO,
            )
        owners[path] = name or last[-1]
    return owners


def _fitting(file: str, tree: Overlay, changes: Any) -> Attempt:
    attempt = try_changes(changes, tree)
    if not attempt.fits:
        state = PatchState(file.removesuffix(".patch"), "", State.CONFLICT, attempt.changes)
        raise OnecatError(
            "an edit does not fit beneath the patches that come after it",
            where=file,
            details=conflict_lines(state),
            code=ExitCode.NO,
        )
    return attempt


def _edit(path: str, made: SourceFile | None, now: SourceFile | None) -> FileChange:
    hunks = make_hunks(made.content if made else b"", now.content if now else b"")
    change = FileChange(path if made else None, path if now else None, hunks)
    if (made and made.executable) != (now and now.executable):
        change = replace(
            change, old_executable=made.executable if made else None, new_executable=now.executable if now else None
        )
    return change


def _reads_otherwise(changes: tuple[FileChange, ...], text: str, file: str) -> bool:
    """Whether a diff says something else than these changes; what git writes behind @@ is no difference."""
    from onecat.patching.diff import parse_diff

    def plain(rows: tuple[FileChange, ...]) -> list[FileChange]:
        bare = (replace(row, hunks=tuple(replace(hunk, section="") for hunk in row.hunks)) for row in rows)
        return sorted(bare, key=lambda row: row.path)

    return plain(changes) != plain(parse_diff(text, file))


def _numbered(series: Series, name: str) -> str:
    name = name.removesuffix(".patch")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise OnecatError(f"{name!r} is no name of a patch", expected="letters, digits, hyphens, as 0007-attention")
    if re.match(r"\d{4}-", name):
        return name
    numbers = [int(patch.file[:4]) for patch in series.patches if patch.file[:4].isdigit()]
    return f"{max(numbers, default=0) + 1:04d}-{name}"


def _same(made: SourceFile | None, now: SourceFile | None) -> bool:
    if made is None or now is None:
        return made is now
    return (made.content, made.executable) == (now.content, now.executable)


def _files(root: Path) -> Iterator[str]:
    """The source files of a working tree."""
    ignored: Callable[[str], bool] = lambda name: name in NOT_SOURCE or name.endswith(".egg-info")  # noqa: E731
    for parent, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not ignored(name) and name != STAGING]
        for name in names:
            path = Path(parent, name).relative_to(root).as_posix()
            if path != RECORD and not name.endswith((".pyc", ".orig", ".rej", "~")):
                yield path
