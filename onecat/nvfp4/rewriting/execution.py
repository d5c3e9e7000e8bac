"""Carrying a plan out, or what an earlier run has left of it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass

from onecat import __version__
from onecat.checkpoints.safetensors_header import HeaderError
from onecat.errors import ExitCode, OnecatError
from onecat.nvfp4.rewriting.failures import how_to_go_on, told
from onecat.nvfp4.rewriting.layout import bytes_read, largest_tensor, layout_of, plan_digest
from onecat.nvfp4.rewriting.making import write_part
from onecat.nvfp4.rewriting.memory import Memory
from onecat.nvfp4.rewriting.parts import Part
from onecat.nvfp4.rewriting.places import check_places, folder_for, names_of, refuse_others, remove_files
from onecat.nvfp4.rewriting.placing import place_copy, place_text
from onecat.nvfp4.rewriting.progress import Count, Say, Show
from onecat.nvfp4.rewriting.records import Rewrite, StepReport
from onecat.nvfp4.rewriting.source import SourceFiles
from onecat.nvfp4.rewriting.state import (
    State,
    begin_anew,
    clear,
    end_state,
    has_state,
    only_run,
    read_state,
    refuse_another,
    state_directory,
    write_state,
)
from onecat.space import check_room, room


@dataclass(frozen=True)
class Rewritten:
    """A directory that is whole.

    reports: of all steps, also those of an earlier run. bytes_read, bytes_written: of all tensors. seconds: of this
    run. reused: files that an earlier run had finished. bytes_reused: what was not read again for its sake.
    """

    reports: tuple[StepReport, ...]
    bytes_read: int
    bytes_written: int
    seconds: float
    reused: tuple[str, ...] = ()
    bytes_reused: int = 0


def rewrite(
    work: Rewrite,
    source: SourceFiles,
    show: Show = lambda progress: None,
    say: Say = lambda line: None,
) -> Rewritten:
    """Write the new checkpoint, or what an earlier run of the same work has left.

    Raises OnecatError: a target that cannot be one or holds something else, another unfinished run there, a source
    that changed, contents that a step refuses (naming its module), or no room before anything is written (exit codes 1
    and 2); a second run (4); a full or failing disk in the middle (5). A KeyboardInterrupt and a kill leave what the
    same call goes on with. Nothing that looks finished is there until all of it is.
    """
    began = time.monotonic()
    check_places(work, (each.file for each in source.tensors.values()))
    try:
        run = _Run(work, source, show, say, began)
        if not state_directory(work.target).exists():  # before anything is made
            refuse_others(work)
            run.check_room()
        with only_run(work.target, say):
            run.settle()
            try:
                return run.write()
            except KeyboardInterrupt:
                say(how_to_go_on(work.target))
                raise
    except OSError as error:
        raise told(error, work.target, kept=has_state(work.target)) from error


def check_target(work: Rewrite, source: SourceFiles) -> None:
    """What a dry run looks at: whether the target can be one. Nothing is changed, and room is not looked at.

    Raises OnecatError for a target that cannot be one or holds something else, as `rewrite` does.
    """
    check_places(work, (each.file for each in source.tensors.values()))
    try:
        if not state_directory(work.target).exists():
            refuse_others(work)
    except OSError as error:
        raise told(error, work.target, kept=False) from error


class _Run:
    """One run; all but the beginning of it holds the target's lock."""

    def __init__(self, work: Rewrite, source: SourceFiles, show: Show, say: Say, began: float) -> None:
        self._work, self._source, self._say = work, source, say
        self._folder = state_directory(work.target)
        self._layouts = tuple(map(layout_of, work.shards))
        total = sum(bytes_read(step, source) for shard in work.shards for step in shard.steps)
        self._count = Count(total, began, show)
        self._memory = Memory(largest_tensor(work, source))
        self._state = State(
            source=str(work.source.absolute()),
            version=__version__,
            identity=json.loads(json.dumps(dict(work.identity))),
            files=source.fingerprints(),
            plan=plan_digest(work, self._layouts),
            writes=names_of(work),
        )

    def settle(self) -> None:
        """See that this run may write, and what it goes on with. Raises OnecatError."""
        work = self._work
        there = read_state(work.target) if has_state(work.target) else None
        is_begun = has_state(work.target)
        if is_begun and work.restart:
            begin_anew(work.target, there)
            is_begun = False
        if is_begun:
            refuse_another(work.target, there, self._state)
            self.check_room()
            self._say("going on with what an earlier run has made; it is checked first")
            return
        clear(work.target)
        refuse_others(work)
        self.check_room()
        write_state(work.target, self._state)
        if work.replace:
            remove_files(work.target, names_of(work))

    def check_room(self) -> None:
        """Raises OnecatError when what is still to be written does not fit."""
        work, parts = self._work, list(self._parts())
        missing = sum(max(part.layout.size - part.allocated, 0) for part in parts)
        missing += sum((work.source / name).stat().st_size for name in work.copied)
        missing += sum(len(text.encode()) for text in work.documents.values())
        files = 2 * len(parts) + len(work.copied) + len(work.documents)
        check_room(work.target, room(work.target), missing, files, done="written")

    def write(self) -> Rewritten:
        """Write all that is missing."""
        reports: list[StepReport] = []
        reused = []
        for part in self._parts():
            if self._is_whole(part):
                reused.append(part.shard.file)
            else:
                write_part(part, self._source, self._memory, self._count)
            reports += part.reports
        self._place_others()
        return Rewritten(
            tuple(reports),
            self._count.done,
            sum(each.bytes_written for each in reports),
            self._count.seconds,
            tuple(reused),
            self._count.reused,
        )

    def _parts(self) -> Iterator[Part]:
        for number, (shard, layout) in enumerate(zip(self._work.shards, self._layouts, strict=True)):
            yield Part(self._folder, self._work.target, number, shard, layout)

    def _is_whole(self, part: Part) -> bool:
        """Whether an earlier run has finished a part; what is left of it otherwise is opened for writing."""
        was_in_place = part.is_in_place
        if part.verify_in_place(self._count.reuse):
            return True
        self._count.forget(part.reports)
        if was_in_place:
            self._say(f"{part.shard.file} is not what an earlier run wrote there: it is made anew")
        part.open(self._count.reuse)
        return False

    def _place_others(self) -> None:
        """Put the small files in their places, the last of which makes it a checkpoint."""
        work = self._work
        if not self._is_source_unchanged():
            raise OnecatError(
                "the source was changed while it was read",
                expected="nobody writes there until the new checkpoint is whole",
                where=str(work.source),
                next_steps=["type the same command again with --restart"],
                code=ExitCode.NO,
            )
        for name in work.copied:
            place_copy(work.source / name, folder_for(work.target, name), self._folder)
        for name in names_of(work)[len(work.shards) + len(work.copied) :]:
            place_text(work.documents[name], work.target / name, self._folder)
        end_state(work.target)

    def _is_source_unchanged(self) -> bool:
        try:
            return self._source.fingerprints() == self._state.files
        except HeaderError:
            return False
