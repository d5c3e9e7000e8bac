"""Writing what steps make, in a thread of its own."""

from __future__ import annotations

import threading
from collections import deque

from onecat.nvfp4.rewriting.memory import Memory
from onecat.nvfp4.rewriting.parts import Part
from onecat.nvfp4.rewriting.records import StepReport


class WriteBehind:
    """Writes to one part, in the order in which it is given what to write.

    A failure to write is raised by the next call.
    """

    def __init__(self, part: Part, memory: Memory) -> None:
        self._part, self._memory = part, memory
        self._waiting: deque[memoryview | StepReport] = deque()
        self._is_busy = self._stopped = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="write-behind", daemon=True)
        self._thread.start()

    def put(self, content: memoryview) -> None:
        """Bytes that come next; returns when there is room to hold them until they are written. Raises OSError."""
        self._put(content, len(content))

    def end_step(self, report: StepReport) -> None:
        """All bytes of a step were given. Raises OSError."""
        self._put(report, 0)

    def finish(self) -> None:
        """Wait until all is written. Raises OSError."""
        with self._memory.changed:
            self._memory.changed.wait_for(lambda: self._is_idle() or self._failure is not None)
        self.stop()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Write no more; the thread has ended then."""
        with self._memory.changed:
            self._stopped = True
            self._memory.changed.notify_all()
        self._thread.join()

    def _is_idle(self) -> bool:
        return not self._waiting and not self._is_busy

    def _put(self, item: memoryview | StepReport, count: int) -> None:
        with self._memory.changed:
            self._memory.changed.wait_for(
                lambda: self._failure is not None or self._is_idle() or self._memory.fits(count)
            )
            if self._failure is not None:
                raise self._failure
            self._waiting.append(item)
            self._memory.add(count)

    def _work(self) -> None:
        while (item := self._next()) is not None:
            try:
                if isinstance(item, StepReport):
                    self._part.note(item)
                else:
                    self._part.write(item)
            except BaseException as error:  # noqa: BLE001 - raised where the next call waits
                self._failure = error
            count = 0 if isinstance(item, StepReport) else len(item)
            del item
            with self._memory.changed:
                self._is_busy = False
                self._memory.add(-count)

    def _next(self) -> memoryview | StepReport | None:
        with self._memory.changed:
            self._memory.changed.wait_for(lambda: bool(self._stopped or self._waiting or self._failure is not None))
            if self._stopped or self._failure is not None:
                return None
            self._is_busy = True
            return self._waiting.popleft()
