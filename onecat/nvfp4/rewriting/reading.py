"""Reading tensors before they are asked for, in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from onecat.nvfp4.rewriting.memory import Memory
from onecat.nvfp4.rewriting.records import Step
from onecat.nvfp4.rewriting.source import SourceFiles
from onecat.nvfp4.tensor_types import Array


class ReadAhead:
    """Gives the tensors of steps, in the order in which the steps name them; others are read when they are asked for.

    A failure to read is raised where the tensor is asked for.
    """

    def __init__(self, source: SourceFiles, steps: Sequence[Step], memory: Memory) -> None:
        self._source, self._memory = source, memory
        self._wanted = [name for step in steps if step.make is not None for name in step.reads]
        self._ready: dict[int, Array | BaseException] = {}
        self._taken: dict[str, int] = {}
        self._position = self._next = self._first_of_step = 0
        self._reading = -1
        self._stopped = False
        self._thread = threading.Thread(target=self._work, name="read-ahead", daemon=True)
        self._thread.start()

    def take(self, name: str) -> Array:
        """The bytes of a tensor. Raises KeyError, OSError, OnecatError."""
        size = self._source.tensors[name].bytes
        found: Array | BaseException | None = None
        with self._memory.changed:
            if self._position < len(self._wanted) and self._wanted[self._position] == name:
                mine = self._position
                self._position += 1
                self._memory.changed.wait_for(lambda: self._reading != mine)
                found = self._ready.pop(mine, None)
                if found is not None:
                    self._memory.add(-size)
            if name not in self._taken:
                self._taken[name] = size
                self._memory.add(size)
        if isinstance(found, BaseException):
            raise found
        return self._source.piece(name, 0, size) if found is None else found

    def end_step(self, step: Step) -> None:
        """A step is done: what it has taken is held no longer, and what it has not taken is not needed."""
        with self._memory.changed:
            self._memory.add(-sum(self._taken.values()))
            self._taken = {}
            if step.make is None:
                return
            self._first_of_step += len(step.reads)
            self._position = self._first_of_step
            self._memory.changed.wait_for(lambda: not 0 <= self._reading < self._position)
            for left in [each for each in self._ready if each < self._position]:
                del self._ready[left]
                self._memory.add(-self._size(left))

    def stop(self) -> None:
        """Read no more; the thread has ended then."""
        with self._memory.changed:
            self._stopped = True
            self._memory.changed.notify_all()
        self._thread.join()

    def _size(self, index: int) -> int:
        return self._source.tensors[self._wanted[index]].bytes

    def _work(self) -> None:
        while (index := self._claim()) is not None:
            found: Array | BaseException
            try:
                found = self._source.piece(self._wanted[index], 0, self._size(index))
            except BaseException as error:  # noqa: BLE001 - raised where the tensor is asked for
                found = error
            with self._memory.changed:
                self._ready[index] = found
                self._reading = -1
                self._memory.changed.notify_all()
            del found

    def _claim(self) -> int | None:
        """The next tensor to read, when there is room for it; None at the end."""
        with self._memory.changed:
            self._memory.changed.wait_for(self._may_go_on)
            self._next = max(self._next, self._position)
            if self._stopped or self._next >= len(self._wanted):
                return None
            index = self._reading = self._next
            self._next += 1
            self._memory.add(self._size(index))
            return index

    def _may_go_on(self) -> bool:
        index = max(self._next, self._position)
        return self._stopped or index >= len(self._wanted) or self._memory.fits(self._size(index))
