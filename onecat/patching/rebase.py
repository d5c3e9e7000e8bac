"""A series tried on another release of its source: what fits, what upstream changed around the rest, what can go."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from onecat.errors import OnecatError
from onecat.patching.archive import MemorySource, contents, read_members
from onecat.patching.authoring import new_series
from onecat.patching.diff import ADDED as ADDED_LINE
from onecat.patching.diff import CONTEXT, FileChange, Hunk
from onecat.patching.diff import REMOVED as REMOVED_LINE
from onecat.patching.placing import Fit, apply_hunks, split_lines
from onecat.patching.series import ADDED, SERIES, Guard, Patch, Series, Upstream
from onecat.patching.source import Overlay, Source, SourceFile
from onecat.patching.states import ChangeState, GuardState, try_changes, unmet
from onecat.patching.tree import touched_paths
from onecat.patching.writing import hunk_text, make_hunks, write_diff
from onecat.resources import read_table

AROUND = 8
"""Lines around a hunk within which upstream's changes are told."""

SIMILAR = 0.6
"""Share of equal lines from which a file of another name counts as the moved one."""


@dataclass(frozen=True)
class Surroundings:
    """A hunk that is not where it was, and what upstream changed around it between the releases.

    is_there: it fits nowhere because the other release has it already.
    """

    path: str
    fit: Fit
    upstream: tuple[Hunk, ...]
    is_there: bool = False

    @property
    def is_conflict(self) -> bool:
        return self.fit.line is None and not self.is_there


@dataclass(frozen=True)
class Move:
    """How one patch stands to the other release.

    word: `fits`, `fits with offsets`, `fits with fuzz`, `partly`, `not at all`, or `to drop`: the guards after hold
    without it.
    changes: each file on the other release. surroundings: of the hunks that are not where they were. guards: those
    that do not hold. diff: the patch for the other release, of all that fits. rejected: the hunks that do not.
    """

    patch: Patch
    word: str
    changes: tuple[ChangeState, ...]
    surroundings: tuple[Surroundings, ...]
    guards: tuple[GuardState, ...]
    diff: str
    rejected: str

    @property
    def is_whole(self) -> bool:
        """Whether all of it fits and its guards hold, or it can go."""
        return self.word == "to drop" or (self.word.startswith("fits") and not self.guards)


@dataclass(frozen=True)
class Rebase:
    """A series tried on another release.

    moved: files that are elsewhere there, old path to new. vanished: files that are nowhere. taken: added files
    whose place upstream has taken.
    """

    series: Series
    upstream: Upstream
    moves: tuple[Move, ...]
    moved: dict[str, str]
    vanished: tuple[str, ...]
    taken: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        return all(move.is_whole for move in self.moves) and not self.taken


def try_rebase(series: Series, old: Path, new: Path, upstream: Upstream, *, fuzz: int = 0) -> Rebase:
    """Try every patch of a series on another release.

    Parameters:
        old, new: the source archives. upstream: the pin of the new one. fuzz: lines of context at each end of a hunk
            that may differ on the new one.

    Raises OnecatError when an archive is not the pinned one.
    """
    touched = touched_paths(series) - set(series.added)
    old_source = read_members(old, series.upstream, touched)
    names: set[str] = set()

    def wanted(path: str) -> bool:
        names.add(path)
        return path in touched or path in series.added

    new_files = dict(contents(new, upstream, wanted))
    missing = {path for path in touched if path in old_source.files and path not in names}
    moved = _moved(missing, old_source, lambda paths: read_members(new, upstream, paths), names)
    new_files |= read_members(new, upstream, set(moved.values())).files if moved else {}
    old_tree, new_tree = Overlay(old_source), Overlay(MemorySource(new_files))
    moves = tuple(_move(patch, moved, old_tree, new_tree, fuzz) for patch in series.patches)
    vanished = tuple(sorted(missing - moved.keys()))
    taken = tuple(path for path in series.added if path in new_files)
    return Rebase(series, upstream, moves, moved, vanished, taken)


def write_rebased(rebase: Rebase, directory: Path) -> tuple[str, ...]:
    """Write what could be moved as a series of the other release; what could not beside it as NAME.rej.

    Returns the paths written. Raises OnecatError when the folder has something in it.
    """
    if directory.exists() and any(directory.iterdir()):
        raise OnecatError(f"{directory} is not empty", expected="a new folder", where=str(directory.absolute()))
    directory.mkdir(parents=True, exist_ok=True)
    rows = {row["file"]: row for row in read_table(rebase.series.directory / SERIES)["patches"]}
    written, kept = [], []
    for move in rebase.moves:
        if move.word == "to drop":
            continue
        if move.diff:
            kept.append(_row(rows[move.patch.file], rebase.moved))
            _write(directory / move.patch.file, move.diff.encode("utf-8", "surrogateescape"))
            written.append(move.patch.file)
        if move.rejected:
            _write(directory / f"{move.patch.name}.rej", move.rejected.encode("utf-8", "surrogateescape"))
            written.append(f"{move.patch.name}.rej")
    for path in rebase.series.added:
        _write(directory / ADDED / path, rebase.series.added_content(path))
        (directory / ADDED / path).chmod(rebase.series.added_mode(path))
        written.append(f"{ADDED}/{path}")
    licence = rebase.upstream.licence or rebase.series.upstream.licence
    new_series(directory, replace(rebase.upstream, licence=licence), kept)
    return ("upstream.yaml", SERIES, *written)


def _move(patch: Patch, moved: dict[str, str], old_tree: Overlay, new_tree: Overlay, fuzz: int) -> Move:
    """Try one patch on the new tree, and carry both trees on to the next one."""
    changes = tuple(_renamed(change, moved) for change in patch.changes)
    before = tuple(_renamed_guard(guard, moved) for guard in patch.before)
    after = tuple(_renamed_guard(guard, moved) for guard in patch.after)
    old_attempt = try_changes(patch.changes, old_tree)
    if after and not unmet("after", after, new_tree.base):
        old_tree.changes.update(old_attempt.writes)
        return Move(patch, "to drop", (), (), (), "", "")
    attempt = try_changes(changes, new_tree, fuzz)
    guards = unmet("before", before, new_tree)
    surroundings = tuple(
        Surroundings(
            state.path,
            fit,
            _upstream_changes(place, state.path, original.old, old_tree, new_tree),
            fit.line is None and _is_there(fit.hunk, state.path, new_tree),
        )
        for state, was, original in zip(attempt.changes, old_attempt.changes, patch.changes, strict=True)
        for fit, place in zip(state.fits, was.fits or state.fits, strict=True)
        if not fit.is_exact
    )
    partial = dict(_partial(changes, attempt.changes, new_tree, fuzz))
    diff = write_diff((path, new_tree.read(path), file) for path, file in partial.items())
    left = [each for each in surroundings if each.is_conflict]
    rejected = _rejected(left)
    new_tree.changes.update(partial)
    # The old tree goes on with the same hunks: what is then different between the two is upstream's doing.
    old_tree.changes.update(dict(_partial(patch.changes, attempt.changes, old_tree, 0)))
    if not left and all(state.problem is None for state in attempt.changes):
        guards += unmet("after", after, new_tree)
        fits = [fit for state in attempt.changes for fit in state.fits]
        fuzzy = any(fit.fuzz for fit in fits)
        word = "fits with fuzz" if fuzzy else "fits" if all(fit.is_exact for fit in fits) else "fits with offsets"
    else:
        word = "partly" if diff else "not at all"
    return Move(patch, word, attempt.changes, surroundings, guards, diff, rejected)


def _partial(
    changes: Iterable[FileChange], states: Iterable[ChangeState], tree: Source, fuzz: int
) -> Iterable[tuple[str, SourceFile | None]]:
    """The files after those hunks that fit."""
    for change, state in zip(changes, states, strict=True):
        if state.problem is not None:
            continue
        rest = replace(change, hunks=tuple(fit.hunk for fit in state.fits if fit.line is not None))
        if change.hunks and not rest.hunks:
            continue
        if (change.new is None or change.old is None) and rest != change:
            continue
        yield from try_changes([rest], tree, fuzz).writes.items()


def _rejected(left: Iterable[Surroundings]) -> str:
    hunks: dict[str, list[str]] = {}
    for each in left:
        hunks.setdefault(each.path, []).append(hunk_text(each.fit.hunk))
    return "".join(f"--- a/{path}\n+++ b/{path}\n{''.join(texts)}" for path, texts in hunks.items())


def _is_there(hunk: Hunk, path: str, tree: Source) -> bool:
    """Whether a file has what a hunk makes."""
    file = tree.read(path)
    return file is not None and apply_hunks(file.content, [hunk.reversed()])[1][0].line is not None


def _upstream_changes(
    fit: Fit, new_path: str, old_path: str | None, old_tree: Source, new_tree: Source
) -> tuple[Hunk, ...]:
    """Upstream's changes between the releases that touch the lines around a hunk, which `fit` places in the old one."""
    before, now = old_tree.read(old_path) if old_path else None, new_tree.read(new_path)
    if before is None or now is None or before.content == now.content:
        return ()
    start = fit.line or fit.hunk.old_start
    first, last = start - AROUND, start + len(fit.hunk.old) + AROUND
    near = (_trimmed(hunk, first, last) for hunk in make_hunks(before.content, now.content))
    return tuple(hunk for hunk in near if any(tag != CONTEXT for tag, _ in hunk.lines))


def _trimmed(hunk: Hunk, first: int, last: int) -> Hunk:
    """The part of a hunk between two lines of the old file."""
    old, new = hunk.old_start, hunk.new_start
    kept: list[tuple[str, bytes]] = []
    start = old, new
    for tag, line in hunk.lines:
        if first <= old <= last:
            start = start if kept else (old, new)
            kept.append((tag, line))
        old += tag != ADDED_LINE
        new += tag != REMOVED_LINE
    return Hunk(*start, tuple(kept), hunk.section)


def _moved(
    missing: Collection[str],
    old: MemorySource,
    read: Callable[[set[str]], MemorySource],
    names: Collection[str],
) -> dict[str, str]:
    """Where the missing files went: the file of the same name, or of the same folder, that is most like it."""
    if not missing:
        return {}
    candidates = {path: _candidates(path, names) for path in missing}
    found = read({each for rows in candidates.values() for each in rows}).files
    moved = {}
    for path, rows in candidates.items():
        lines = split_lines(old.files[path].content)
        ranked = sorted((_likeness(lines, split_lines(found[each].content)), each) for each in rows if each in found)
        if ranked and ranked[-1][0] >= SIMILAR:
            moved[path] = ranked[-1][1]
    return moved


def _candidates(path: str, names: Collection[str]) -> list[str]:
    place = PurePosixPath(path)
    inside = f"{path.removesuffix(place.suffix)}/"
    return [
        name
        for name in names
        if PurePosixPath(name).name == place.name
        or (name.startswith(inside) and name.endswith(place.suffix))
        or (PurePosixPath(name).parent == place.parent and place.stem in PurePosixPath(name).stem)
    ]


def _likeness(old: list[bytes], new: list[bytes]) -> float:
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    return matcher.ratio() if matcher.quick_ratio() >= SIMILAR else 0.0


def _renamed(change: FileChange, moved: dict[str, str]) -> FileChange:
    return replace(
        change,
        old=moved.get(change.old, change.old) if change.old else None,
        new=moved.get(change.new, change.new) if change.new else None,
    )


def _renamed_guard(guard: Guard, moved: dict[str, str]) -> Guard:
    return replace(guard, file=moved.get(guard.file, guard.file))


def _row(row: dict[str, Any], moved: dict[str, str]) -> dict[str, Any]:
    """A row of series.yaml whose guards look at the moved files."""
    guards = {
        when: [{**each, "file": moved.get(each["file"], each["file"])} for each in rows]
        for when, rows in row.get("guard", {}).items()
    }
    return {**row, **({"guard": guards} if guards else {})}


def _write(place: Path, content: bytes) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)
