"""Files that a command writes where a person said so: what is there already stays, unless it is to be replaced."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from onecat.errors import OnecatError

ForceOption = Annotated[
    bool, typer.Option("--force", help="Replace a file that is there; the old one is kept as FILE.old.")
]


@dataclass(frozen=True)
class Output:
    """A file to be written.

    command: what asks for the file, for the message, as `onecat report --output`.
    """

    file: str
    command: str
    force: bool = False

    @property
    def is_printed(self) -> bool:
        """Whether the text goes to standard output instead of a file."""
        return self.file == "-"

    def check(self) -> None:
        """Refuse a file that could not be written or is somebody's, before any work is done for it.

        Raises OnecatError (exit code 2).
        """
        if self.is_printed:
            return
        path = Path(self.file)
        if not self.file or os.path.isdir(path):  # noqa: PTH112 - answers also where asking is forbidden
            raise self._refused(f"{self.file!r} names no file", "a file, or - for standard output")
        if not os.path.isdir(path.parent):  # noqa: PTH112
            raise self._refused(f"{path.parent} is no directory", "a file in a directory that is there")
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise self._refused(f"{self.file} cannot be written: Permission denied", "a directory of yours")
        if not os.path.lexists(path):  # a link that leads nowhere is somebody's too
            return
        if path.is_symlink() or not path.is_file():
            raise self._refused(f"{self.file} is no plain file and was left as it is", "a new file, or - to print it")
        if not self.force:
            raise self._refused(
                f"{self.file} exists and was left as it is", None, f"{self.command} {self.file} --force, to replace it"
            )

    def write(self, text: str, mode: int) -> Path | None:
        """Write or print the text. Returns where an old file is kept; raises OnecatError when nothing was written."""
        from onecat.files import write_atomically

        self.check()
        if self.is_printed:
            print(text, end="")
            return None
        path = Path(self.file)
        kept = path.with_name(f"{path.name}.old") if path.exists() else None
        try:
            if kept is not None:
                path.replace(kept)
            try:
                write_atomically(path, text, mode)
            except OSError:
                if kept is not None:
                    kept.replace(path)
                raise
        except OSError as error:
            raise self._refused(
                f"{self.file} cannot be written: {error.strerror}", "a directory of yours with room for it"
            ) from error
        return kept

    def _refused(self, found: str, expected: str | None, *steps: str) -> OnecatError:
        where = str(Path(self.file).absolute()) if self.file else None
        return OnecatError(
            found, expected=expected, where=where, next_steps=[f"name another one: {self.command} FILE", *steps]
        )
