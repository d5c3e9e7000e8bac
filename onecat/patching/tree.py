"""A series put on a source tree, taken off it, and judged there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from onecat.errors import ExitCode, OnecatError
from onecat.patching.record import Record, Seen, parse_record
from onecat.patching.report import conflict_lines
from onecat.patching.series import Series
from onecat.patching.source import RECORD, STAGING, Directory, Overlay, Source, SourceFile
from onecat.patching.states import Examination, PatchState, State, examine, try_changes, unmet
from onecat.patching.transaction import commit, exclusively, is_interrupted, new_directories, recover


@dataclass(frozen=True)
class Outcome:
    """What was done to a tree.

    states: of the patches before it was done. changed: paths of the files that were written or removed, none when
    there was nothing to do. recovered: whether an earlier change that was cut off was finished first.
    """

    root: Path
    states: tuple[PatchState, ...]
    changed: tuple[str, ...]
    recovered: bool = False


def apply(series: Series, root: Path, *, fuzz: int = 0) -> Outcome:
    """Put a series on a source tree: all of it or nothing, and nothing where it is applied already.

    Parameters:
        root: the folder of the unpacked source. fuzz: lines of context at each end of a hunk that may differ.

    Raises OnecatError (exit code 1) when a patch conflicts, or the tree has edits or patches that stand against it;
    the tree is then as it was.
    """
    root = _root(root)
    with exclusively(root):
        recovered = recover(root)
        tree = Directory(root)
        record = read_record(root)
        _check_record(record, series, root)
        examination = examine(series, tree, fuzz=max(fuzz, record.fuzz if record else 0), record=record)
        writes = _writes(tree, examination.complete, _paths(examination))
        if writes:
            _refuse_edits(record, series, examination, root)
        if not examination.is_clean:
            raise _conflict(series, root, examination.states, "applied to")
        if writes:
            known = record.directories if record else ()
            made = (*known, *new_directories(root, [path for path, file in writes.items() if file]))
            written = _record(series, examination, record, fuzz, tuple(sorted(set(made))))
            commit(root, {**writes, RECORD: SourceFile(written.to_bytes())})
    return Outcome(root, examination.states, tuple(writes), recovered)


def reverse(series: Series, root: Path) -> Outcome:
    """Take a series off a source tree, byte for byte, with the files and folders that it added.

    Raises OnecatError (exit code 1) when files were edited since, or hold only a part of a patch; the tree is then
    as it was.
    """
    root = _root(root)
    with exclusively(root):
        recovered = recover(root)
        tree = Directory(root)
        record = read_record(root)
        _check_record(record, series, root)
        examination = examine(series, tree, fuzz=record.fuzz if record else 0, record=record)
        _refuse_edits(record, series, examination, root)
        if any(change.is_conflict for state in examination.states for change in state.changes):
            raise _conflict(series, root, examination.states, "taken off")
        writes = _writes(tree, examination.without, _paths(examination))
        gone = [path for path, file in writes.items() if file is None]
        folders = _parents(gone)
        if record is not None:
            folders = [*record.directories, *_parents(path for path in gone if path not in record.before)]
            writes = {**_with_modes(writes, record), RECORD: None}
        if writes:
            commit(root, writes, folders)
    return Outcome(root, examination.states, tuple(path for path in writes if path != RECORD), recovered)


def verify(series: Series, root: Path | Source) -> tuple[PatchState, ...]:
    """How each patch of a series, and its added files, stand to a source tree; nothing is changed.

    Parameters:
        root: the folder of the unpacked source, or a tree as `read_members` gives it.

    Raises OnecatError when a patch is none that may be applied, or a change of the tree was cut off.
    """
    if not isinstance(root, Path):
        return examine(series, root).states
    root = _root(root)
    if is_interrupted(root):
        raise OnecatError(
            "a change of this tree was cut off in the middle",
            where=str(root / STAGING),
            next_steps=[f"onecat patch apply --to {root}", f"onecat patch reverse --to {root}"],
            code=ExitCode.NO,
        )
    record = read_record(root)
    _check_record(record, series, root)
    return examine(series, Directory(root), fuzz=record.fuzz if record else 0, record=record).states


@dataclass(frozen=True)
class TreeStatus:
    """How a tree stands.

    record: what was written down when a series was applied, if any. edited: files changed by more than the patches.
    interrupted: whether a change of the tree was cut off; the states are not known then.
    """

    states: tuple[PatchState, ...]
    record: Record | None
    edited: tuple[str, ...]
    interrupted: bool = False

    @property
    def is_applied(self) -> bool:
        """Whether all of the series is on the tree and nothing else."""
        return bool(self.states) and not self.edited and all(each.state is State.APPLIED for each in self.states)


def tree_status(series: Series, root: Path) -> TreeStatus:
    """How a series stands to a tree and what was done to it since; nothing is changed."""
    root = _root(root)
    record = read_record(root)
    if is_interrupted(root):
        return TreeStatus((), record, (), interrupted=True)
    examination = examine(series, Directory(root), fuzz=record.fuzz if record else 0, record=record)
    return TreeStatus(examination.states, record, edited_since(record, examination) if record else ())


def source_release(root: Path) -> str | None:
    """`name-version` of an unpacked source, as its PKG-INFO says; None when it has none."""
    file = Directory(root).read("PKG-INFO")
    fields = dict(re.findall(r"^(Name|Version): *(\S+)", file.content.decode("utf-8", "replace"), re.M)) if file else {}
    return f"{fields['Name']}-{fields['Version']}" if {"Name", "Version"} <= fields.keys() else None


def patched_files(
    series: Series, original: Callable[[str], bytes | None], wanted: Callable[[str], bool]
) -> dict[str, bytes]:
    """The new content of the wanted files that a series changes or adds, by path; those that it removes are left out.

    Parameters:
        original: upstream's bytes of a path, None where there is no such file. wanted: which paths are looked at.

    Raises OnecatError (exit code 1) when a patch does not fit, or a guard of a wanted file does not hold.
    """
    tree = Overlay(_Callable(original))
    states = []
    for patch in series.patches:
        changes = [change for change in patch.changes if wanted(change.path)]
        guards = unmet("before", (guard for guard in patch.before if wanted(guard.file)), tree)
        attempt = try_changes(changes, tree)
        tree.changes.update(attempt.writes)
        guards += unmet("after", (guard for guard in patch.after if wanted(guard.file)), tree)
        if not attempt.fits or guards:
            states.append(PatchState(patch.name, patch.purpose, State.CONFLICT, attempt.changes, guards))
    if states:
        raise _conflict(series, None, states, "applied to")
    files = {path: file.content for path, file in tree.changes.items() if file is not None}
    return files | {path: series.added_content(path) for path in series.added if wanted(path)}


def touched_paths(series: Series) -> set[str]:
    """All paths that a series looks at: changed, guarded, added."""
    changed = {path for patch in series.patches for change in patch.changes for path in (change.old, change.new)}
    guarded = {guard.file for patch in series.patches for guard in (*patch.before, *patch.after)}
    return {path for path in changed if path is not None} | guarded | set(series.added)


def read_record(root: Path) -> Record | None:
    """What was written down when a series was applied to this tree. Raises OnecatError when it is damaged."""
    place = root / RECORD
    if place.is_symlink() or not place.is_file():
        return None
    return parse_record(place.read_bytes(), str(place))


def edited_since(record: Record, examination: Examination) -> tuple[str, ...]:
    """The files whose difference to what they were before is more than the patches."""
    found = []
    for path, before in record.before.items():
        after, now = record.after.get(path), examination.without.base.read(path)
        without = examination.without.read(path)
        if _hash(_seen(now)) != _hash(after) and _hash(_seen(without)) != _hash(before):
            found.append(path)
    return tuple(found)


@dataclass(frozen=True)
class _Callable:
    original: Callable[[str], bytes | None]

    def read(self, path: str) -> SourceFile | None:
        content = self.original(path)
        return None if content is None else SourceFile(content)


def _root(root: Path) -> Path:
    if not root.is_dir():
        raise OnecatError(
            f"{root} is not a folder", expected="the folder of an unpacked source", where=str(root.absolute())
        )
    return root.resolve()


def _paths(examination: Examination) -> list[str]:
    return sorted({*examination.without.changes, *examination.complete.changes})


def _writes(tree: Source, wanted: Source, paths: Iterable[str]) -> dict[str, SourceFile | None]:
    """What must be written so that a tree is as wanted; a mode that only differs in who may read or write stays."""
    writes: dict[str, SourceFile | None] = {}
    for path in paths:
        now, then = tree.read(path), wanted.read(path)
        if now is None or then is None:
            if now is not then:
                writes[path] = then
        elif (now.content, now.executable) != (then.content, then.executable):
            writes[path] = then
    return writes


def _record(
    series: Series, examination: Examination, earlier: Record | None, fuzz: int, made: tuple[str, ...]
) -> Record:
    before = {path: _seen(examination.without.read(path)) for path in _paths(examination)}
    before |= earlier.before if earlier else {}
    after = {path: _seen(examination.complete.read(path)) for path in _paths(examination)}
    names = tuple(patch.file for patch in series.patches)
    return Record(series.name, series.digest, names, max(fuzz, earlier.fuzz if earlier else 0), before, after, made)


def _hash(seen: Seen | None) -> str | None:
    return seen.sha256 if seen else None


def _seen(file: SourceFile | None) -> Seen | None:
    return None if file is None else Seen.of(file)


def _with_modes(writes: dict[str, SourceFile | None], record: Record) -> dict[str, SourceFile | None]:
    """The writes with the modes that the files had before."""
    restored: dict[str, SourceFile | None] = {}
    for path, file in writes.items():
        before = record.before.get(path)
        restored[path] = replace(file, mode=before.mode) if file is not None and before is not None else file
    return restored


def _parents(paths: Iterable[str]) -> list[str]:
    found = {str(parent) for path in paths for parent in PurePosixPath(path).parents if str(parent) != "."}
    return sorted(found)


def _check_record(record: Record | None, series: Series, root: Path) -> None:
    """Refuse a tree on which another series, or patches that this one has not, are applied."""
    if record is None:
        return
    if record.series != series.name:
        raise OnecatError(
            f"{root} has the series {record.series} applied",
            expected=series.name,
            where=str(root / RECORD),
            next_steps=[f"onecat patch reverse --series {record.series} --to {root}"],
        )
    unknown = sorted(set(record.patches) - {patch.file for patch in series.patches})
    if unknown:
        raise OnecatError(
            f"{root} has patches applied that are not asked for: {', '.join(unknown)}",
            expected="the whole series, without --profile, as it was when it was applied",
            where=str(root / RECORD),
            next_steps=[f"onecat patch reverse --to {root}", "or unpack the source anew, into another folder"],
        )


def _refuse_edits(record: Record | None, series: Series, examination: Examination, root: Path) -> None:
    """Refuse a tree in which more than the patches was changed since they were applied."""
    edited = edited_since(record, examination) if record else ()
    if not edited:
        return
    other = record is not None and record.digest != series.digest
    found = "the patches were applied to {} by another state of the series" if other else "files of {} were edited"
    raise OnecatError(
        found.format(root) + ("" if other else " since the patches were applied"),
        expected="the files as the patches left them",
        where=str(root),
        details=list(edited),
        next_steps=[
            *([] if other else [f"onecat patch refresh --from {root}, to keep the edits in the series"]),
            "take the edits back, or unpack the source anew into another folder",
        ],
        code=ExitCode.NO,
    )


MOST_DETAILS = 60
"""Lines of a refusal; `onecat patch verify` shows all of it."""


def _conflict(series: Series, root: Path | None, states: Iterable[PatchState], what: str) -> OnecatError:
    conflicts = [state for state in states if state.state is State.CONFLICT]
    details = [line for state in conflicts for line in conflict_lines(state)]
    if len(details) > MOST_DETAILS:
        details = [*details[:MOST_DETAILS], f"... and {len(details) - MOST_DETAILS} lines more"]
    return OnecatError(
        f"{series.name} cannot be {what} this source: {', '.join(state.name for state in conflicts)} "
        f"conflict{'s' if len(conflicts) == 1 else ''}; nothing was changed",
        where=str(root) if root else None,
        details=details,
        next_steps=[f"onecat patch verify --series {series.name} --source {root}"] if root else [],
        code=ExitCode.NO,
    )
