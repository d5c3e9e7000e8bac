"""Several connections that fetch the pieces of several files, and the thread that keeps their journals."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from onecat.own_files import open_own
from onecat.pull.crowd import RefusedError
from onecat.pull.part import Part
from onecat.pull.records import RemoteFile
from onecat.pull.transfer import StoppedError, Transfer

FIRST_JOURNAL_SECONDS, JOURNAL_SECONDS = 0.5, 3.0
"""How much work a kill may cost: a journal needs its bytes on the disk first, which takes the disk's time."""
_IDLE_SECONDS = 0.05
_END_SECONDS = 1.0
"""For all connections together: one that waits for its server does not see that the pull ends."""
_RESERVE_BYTES = 65536
FULL = (errno.ENOSPC, errno.EDQUOT)


class Crew:
    """Fetches files, each verified and put in its place by `finish` as soon as it is whole.

    Parameters:
        folder: where parts lie. finish: called in a thread of the crew with a whole part.

    failure: what ended it, if it failed.
    """

    def __init__(
        self,
        folder: Path,
        files: Sequence[RemoteFile],
        transfer: Transfer,
        jobs: int,
        finish: Callable[[Part], None],
    ) -> None:
        self._folder, self._transfer, self._jobs, self._finish = folder, transfer, jobs, finish
        self._waiting = deque(files)
        self._open: list[Part] = []
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._left = len(files)
        self._received = 0
        self._done_bytes = 0
        self.files_done = 0
        self.failure: BaseException | None = None

    def start(self) -> None:
        """Start the threads. They are daemons: a connection that hangs must not keep a Ctrl-C waiting."""
        with open(open_own(self._reserve, os.O_WRONLY | os.O_TRUNC), "wb") as stream:  # noqa: PTH123 - a descriptor
            stream.write(b"\0" * _RESERVE_BYTES)
        for target in [self._work] * self._jobs + [self._keep_journals]:
            thread = threading.Thread(target=target, daemon=True)
            thread.start()
            self._threads.append(thread)

    @property
    def _reserve(self) -> Path:
        """Room for the journals on a disk that has filled up."""
        return self._folder / "reserve"

    @property
    def is_running(self) -> bool:
        return self._left > 0 and self.failure is None

    @property
    def received(self) -> int:
        """Bytes that came over the network."""
        with self._lock:
            return self._received + sum(each.received for each in self._open)

    @property
    def done(self) -> int:
        """Bytes that are on this machine, of files in their place and of parts."""
        with self._lock:
            return self._done_bytes + sum(each.done for each in self._open)

    def end(self) -> int:
        """Stop, and write the journals. Returns the bytes that parts keep for the next run."""
        self._transfer.stop.set()
        limit = time.monotonic() + _END_SECONDS
        for thread in self._threads:
            thread.join(timeout=max(limit - time.monotonic(), 0))
        with self._lock:
            kept = sum(self._saved(each) for each in self._open)
            for each in self._open:
                each.close()
        self._reserve.unlink(missing_ok=True)
        return kept

    def _saved(self, part: Part) -> int:
        try:
            return part.save()
        except OSError as error:
            if error.errno not in FULL:
                return 0
        with contextlib.suppress(OSError):
            self._reserve.unlink(missing_ok=True)
            return part.save(sync=False)
        return 0

    def _work(self) -> None:
        stop = self._transfer.stop
        try:
            while self.is_running and not stop.is_set():
                part = self._next()
                if part is None:
                    stop.wait(_IDLE_SECONDS)
        except (StoppedError, RefusedError):
            return
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
            self._fail(error)

    def _next(self) -> Part | None:
        """Do one piece of work; the part that it was for, or None when there is none now."""
        with self._lock:
            part, claim = None, None
            for part in self._open:
                claim = part.claim()
                if claim is not None:
                    break
            else:
                if not self._waiting or len(self._open) >= self._jobs + 1:
                    return None
                part = Part(self._folder, self._waiting.popleft(), self._jobs)
                self._open.append(part)
                claim = part.claim()
        assert part is not None
        if claim is not None:
            try:
                self._transfer.fetch(part, claim)
            finally:
                part.release(claim)
            part.catch_up()
        self._finished(part)
        return part

    def _finished(self, part: Part) -> None:
        with self._lock:
            if part.is_finishing or not part.is_complete:
                return
            part.is_finishing = True
        try:
            self._finish(part)
        finally:
            with self._lock:
                self._open.remove(part)
                self._received += part.received
        with self._lock:
            self._done_bytes += part.size or 0
            self.files_done += 1
            self._left -= 1

    def _keep_journals(self) -> None:
        seconds = FIRST_JOURNAL_SECONDS
        while self.is_running and not self._transfer.stop.wait(seconds):
            seconds = min(seconds * 2, JOURNAL_SECONDS)
            with self._lock:
                parts = list(self._open)
            try:
                for each in parts:
                    each.save()
            except OSError as error:
                self._fail(error)

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            self.failure = self.failure or error
        self._transfer.stop.set()
