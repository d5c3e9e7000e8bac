"""How a series stands to a source tree, told from the tree itself.

Applied patches are first taken off in memory, the last one first; then all are put on again in order. So each patch is
judged on the tree that it was written for, and its guards before and after are looked at where they mean something.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from onecat.patching.diff import FileChange
from onecat.patching.placing import Fit, apply_hunks
from onecat.patching.record import Record
from onecat.patching.series import Guard, Patch, Series
from onecat.patching.source import Overlay, Source, SourceFile, check_path

ADDED_FILES = "add"
"""The name under which a series' added files stand among its patches."""


class State(str, Enum):
    """How one patch stands to a tree."""

    APPLIED = "applied"
    APPLIES = "applies"
    OFFSET = "offset"
    CONFLICT = "conflict"


@dataclass(frozen=True)
class ChangeState:
    """How one file of a patch stands to a tree.

    fits: its hunks in order. problem: why it cannot be changed, besides hunks that do not fit.
    """

    path: str
    fits: tuple[Fit, ...]
    problem: str | None = None

    @property
    def conflicts(self) -> tuple[Fit, ...]:
        """The hunks that fit nowhere."""
        return tuple(fit for fit in self.fits if fit.line is None)

    @property
    def is_conflict(self) -> bool:
        return self.problem is not None or bool(self.conflicts)


@dataclass(frozen=True)
class GuardState:
    """A guard that does not hold.

    when: `before` or `after`. found: what the file does with the text, as `lacks`; the guard says the contrary.
    """

    when: str
    file: str
    found: str
    text: str

    def __str__(self) -> str:
        return f"guard {self.when} does not hold: {self.file} {self.found} {self.text!r}"


@dataclass(frozen=True)
class PatchState:
    """How one patch stands to a tree.

    changes: each file that it touches. guards: those that do not hold.
    """

    name: str
    purpose: str
    state: State
    changes: tuple[ChangeState, ...] = ()
    guards: tuple[GuardState, ...] = ()

    @property
    def is_clean(self) -> bool:
        return self.state is not State.CONFLICT

    @property
    def fits(self) -> tuple[tuple[str, Fit], ...]:
        """All hunks, each with the path of its file."""
        return tuple((change.path, fit) for change in self.changes for fit in change.fits)

    @property
    def offset(self) -> int:
        """The largest distance in lines at which one of its hunks was found."""
        return max((fit.offset for _, fit in self.fits), key=abs, default=0)

    @property
    def fuzz(self) -> int:
        """The most lines of context that one of its hunks gave up."""
        return max((fit.fuzz for _, fit in self.fits), default=0)


@dataclass(frozen=True)
class Attempt:
    """A patch tried on a tree. writes: the files it makes, None for one it removes; of the parts that fit."""

    changes: tuple[ChangeState, ...]
    writes: dict[str, SourceFile | None]

    @property
    def fits(self) -> bool:
        return not any(change.is_conflict for change in self.changes)

    @property
    def distance(self) -> int:
        """How far off its hunks are, in lines."""
        return sum(abs(fit.offset) for change in self.changes for fit in change.fits)


@dataclass(frozen=True)
class Examination:
    """A series and a tree.

    states: of each patch, then of the added files if there are any. without, complete: the tree without and with
    the series, as changes in memory.
    """

    states: tuple[PatchState, ...]
    without: Overlay
    complete: Overlay

    @property
    def is_clean(self) -> bool:
        return all(state.is_clean for state in self.states)

    @property
    def is_absent(self) -> bool:
        return all(state.state is not State.APPLIED for state in self.states)


def examine(series: Series, source: Source, *, fuzz: int = 0, record: Record | None = None) -> Examination:
    """How a series stands to a tree, and the tree without and with it.

    Parameters:
        fuzz: lines of context at each end of a hunk that may differ. record: what was written down when the series
            was applied; it decides only where the tree allows both answers.

    Raises OnecatError when a patch may not be applied at all (parse_diff), or a link is in the way.
    """
    without = Overlay(source)
    applied_files = _take_off_added(series, without)
    upstream = dict(without.changes)
    applied = set()
    for patch in reversed(series.patches):
        taken_off = _taken_off(patch, without, fuzz, record)
        if taken_off is not None:
            applied.add(patch.file)
            without.changes.update(taken_off.writes)
    if applied and record is None and _is_pristine(series, source):
        applied, without.changes = set(), upstream
    complete, states = Overlay(without), []
    for patch in series.patches:
        guards = unmet("before", patch.before, complete)
        attempt = try_changes(patch.changes, complete, fuzz)
        complete.changes.update(attempt.writes)
        if attempt.fits:
            guards += unmet("after", patch.after, complete)
        state = _state(attempt, guards, patch.file in applied)
        states.append(PatchState(patch.name, patch.purpose, state, attempt.changes, guards))
    if series.added:
        states.append(_put_on_added(series, complete, applied_files))
    return Examination(tuple(states), without, complete)


def try_changes(changes: Iterable[FileChange], source: Source, fuzz: int = 0) -> Attempt:
    """The changes of one patch, tried on a tree, all of which are read before any is made."""
    changes = tuple(changes)
    leaving = {change.old for change in changes if change.old != change.new}
    states = []
    gone: dict[str, SourceFile | None] = {}
    writes: dict[str, SourceFile | None] = {}
    for change in changes:
        state, file = _try_change(change, source, leaving, fuzz)
        states.append(state)
        if not state.is_conflict:
            if change.old is not None and change.old != change.new:
                gone[change.old] = None
            if change.new is not None:
                writes[change.new] = file
    return Attempt(tuple(states), {**gone, **writes})


def unmet(when: str, guards: Iterable[Guard], source: Source) -> tuple[GuardState, ...]:
    """The guards that a tree does not meet."""
    found = []
    for guard in guards:
        file = source.read(check_path(guard.file, "a guard"))
        if file is None:
            found.append(GuardState(when, guard.file, "is missing, a file that has", next(iter(guard.contains), "")))
            continue
        for text in guard.contains:
            if text.encode() not in file.content:
                found.append(GuardState(when, guard.file, "lacks", text))
        for text in guard.lacks:
            if text.encode() in file.content:
                found.append(GuardState(when, guard.file, "contains", text))
    return tuple(found)


def with_executable(mode: int, executable: bool) -> int:
    """Permission bits with the right to execute given to whoever may read, or taken from all."""
    return mode | (mode & 0o444) >> 2 if executable else mode & ~0o111


def _state(attempt: Attempt, guards: Sequence[GuardState], is_applied: bool) -> State:
    if not attempt.fits or guards:
        return State.CONFLICT
    if is_applied:
        return State.APPLIED
    exact = all(fit.is_exact for change in attempt.changes for fit in change.fits)
    return State.APPLIES if exact else State.OFFSET


def _is_pristine(series: Series, source: Source) -> bool:
    """Whether every patch goes exactly where it says, one after the other: then none of them is there."""
    tree = Overlay(source)
    for patch in series.patches:
        attempt = try_changes(patch.changes, tree)
        if not attempt.fits or attempt.distance:
            return False
        tree.changes.update(attempt.writes)
    return True


def _taken_off(patch: Patch, source: Source, fuzz: int, record: Record | None) -> Attempt | None:
    """The patch taken off a tree that has it, None where it is not applied."""
    backward = try_changes([change.reversed() for change in patch.changes], source, fuzz)
    if not backward.fits:
        return None
    forward = try_changes(patch.changes, source, fuzz)
    if not forward.fits or backward.distance < forward.distance:
        return backward
    recorded = record is not None and patch.file in record.patches
    return backward if backward.distance == forward.distance and recorded else None


def _try_change(
    change: FileChange, source: Source, leaving: set[str | None], fuzz: int
) -> tuple[ChangeState, SourceFile | None]:
    if change.new is not None and change.new != change.old and change.new not in leaving:
        there = source.read(change.new)
        if there is not None:
            return ChangeState(change.path, (), f"{change.new} is there already"), None
    if change.old is None:
        content, fits = apply_hunks(b"", change.hunks)
        return ChangeState(change.path, fits), SourceFile(content, 0o755 if change.new_executable else 0o644)
    file = source.read(change.old)
    if file is None:
        missing = tuple(Fit(hunk, None) for hunk in change.hunks)
        return ChangeState(change.path, missing, f"{change.old} is not there"), None
    content, fits = apply_hunks(file.content, change.hunks, fuzz)
    if change.new is None:
        left = content and all(fit.line is not None for fit in fits)
        return ChangeState(change.path, fits, f"{change.old} has more than the patch removes" if left else None), None
    mode = file.mode
    if change.new_executable is not None and change.old_executable is not None:
        if file.executable != change.old_executable:
            is_now = "is" if file.executable else "is not"
            return ChangeState(change.path, fits, f"{change.old} {is_now} executable already"), None
        mode = with_executable(mode, change.new_executable)
    return ChangeState(change.path, fits), SourceFile(content, mode)


def _take_off_added(series: Series, tree: Overlay) -> bool:
    """Remove from a tree the added files that are there as the series has them; whether all were."""
    found = [path for path in series.added if _is_ours(series, path, tree)]
    tree.changes.update(dict.fromkeys(found))
    return bool(found) and len(found) == len(series.added)


def _is_ours(series: Series, path: str, tree: Source) -> bool:
    file = tree.read(path)
    return file is not None and file.content == series.added_content(path)


def _put_on_added(series: Series, tree: Overlay, were_there: bool) -> PatchState:
    changes = []
    for path in series.added:
        if tree.read(path) is not None:
            changes.append(ChangeState(path, (), f"{path} is there with other content"))
            continue
        changes.append(ChangeState(path, ()))
        tree.changes[path] = SourceFile(series.added_content(path), series.added_mode(path))
    conflict = any(change.is_conflict for change in changes)
    state = State.CONFLICT if conflict else State.APPLIED if were_there else State.APPLIES
    return PatchState(ADDED_FILES, f"our own files, {len(series.added)} of them", state, tuple(changes))
