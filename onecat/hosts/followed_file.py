"""A file that is written while it is read: every line once, also where it is cut off or another one takes its name.

Standard library of Python 3.6 alone, and no imports of onecat: this module is also sent to hosts as a program,
`python3 -c TEXT PATH COUNT`, that prints the last lines and then new ones until its standard input ends.
"""

import os
import select
import sys
import time

POLL_SECONDS = 0.25
"""Between two looks at the file."""
LEFT_SECONDS = 5.0
"""How long a file that has lost its name is read on: nginx's workers write to it until each has opened the new one."""
_BLOCK = 1 << 16
_MOST = 1 << 23
"""Bytes that are read at once, so that a large file does not fill the memory."""
_MARK = 64


class _Opened:
    """One open file: what was read of it, and the beginning of a line that is not whole yet."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        found = os.fstat(descriptor)
        self.identity = (found.st_dev, found.st_ino)
        self.position = 0
        self.rest = b""
        self.left_at = None  # type: float | None
        self._mark = b""

    def seek_last(self, count: int) -> None:
        """Go to where its last `count` lines begin."""
        end = at = os.fstat(self.descriptor).st_size
        if end and os.pread(self.descriptor, 1, end - 1) == b"\n":
            count += 1
        while at and count > 0:
            size = min(_BLOCK, at)
            data = os.pread(self.descriptor, size, at - size)
            found = len(data)
            while count > 0 and found >= 0:
                found = data.rfind(b"\n", 0, found)
                count -= found >= 0
            if count == 0:
                self.position = at - size + found + 1
                return
            at -= size
        self.position = 0

    def lines(self) -> "list[bytes]":
        """Whole lines that came since, or some of many; of a file that was begun anew, from its beginning on."""
        size = os.fstat(self.descriptor).st_size
        if size < self.position or (size > self.position and not self._is_as_it_was()):
            self.position, self.rest, self._mark = 0, b"", b""
        size = min(size, self.position + _MOST)
        lines = []  # type: list[bytes]
        while self.position < size:
            data = os.pread(self.descriptor, min(1 << 20, size - self.position), self.position)
            if not data:
                break
            self.position += len(data)
            self._mark = (self._mark + data)[-_MARK:]
            parts = (self.rest + data).split(b"\n")
            self.rest = parts.pop()
            lines += parts
        return lines

    @property
    def is_behind(self) -> bool:
        """Whether there is more to read."""
        return self.position < os.fstat(self.descriptor).st_size

    def _is_as_it_was(self) -> bool:
        """Whether what was read last still stands there: a file may be cut off and grow beyond that meanwhile."""
        return os.pread(self.descriptor, len(self._mark), self.position - len(self._mark)) == self._mark


class FollowedFile:
    """The file at `path`, which need not be there yet; close it in the end."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._files = []  # type: list[_Opened]
        self._open()

    @property
    def identity(self) -> "tuple[int, int] | None":
        """Device and inode of the file that is read; None where there is none yet."""
        return self._files[-1].identity if self._files else None

    def seek_last(self, count: int) -> None:
        """Begin with its last `count` lines."""
        if self._files:
            self._files[-1].seek_last(count)

    def lines(self) -> "list[bytes]":
        """Whole lines that came since, or some of many, without their ends: those of a file that has lost the name
        before those of the one that has it now. None: there are none now."""
        lines = []  # type: list[bytes]
        self._open()
        now = time.monotonic()
        for each in list(self._files):
            found = each.lines()
            lines += found
            if found and each.is_behind:
                break
            if each.left_at is not None and now - each.left_at > LEFT_SECONDS:
                lines += [each.rest] if each.rest else []
                self._files.remove(each)
                os.close(each.descriptor)
        return lines

    def rest(self) -> "list[bytes]":
        """The beginnings of lines that never became whole."""
        return [each.rest for each in self._files if each.rest]

    def close(self) -> None:
        """Let go of the files."""
        for each in self._files:
            os.close(each.descriptor)
        self._files = []

    def _open(self) -> None:
        """Open what has the name, where that is another file than before."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        opened = _Opened(descriptor)
        for each in self._files:
            if each.identity == opened.identity:
                each.left_at = None
                os.close(descriptor)
                return
        for each in self._files:
            each.left_at = each.left_at or time.monotonic()
        self._files.append(opened)


def main(path: str, count: int) -> None:
    """Print the last `count` lines of a file (-1: all), then new ones, until standard input ends."""
    followed = FollowedFile(path)
    if count >= 0:
        followed.seek_last(count)
    while True:
        lines = followed.lines()
        sys.stdout.buffer.write(b"".join(line + b"\n" for line in lines))
        sys.stdout.buffer.flush()
        if select.select([0], [], [], 0 if lines else POLL_SECONDS)[0] and not os.read(0, 1 << 10):
            return


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
