"""How far a long command is: one line on a terminal, lines now and then elsewhere."""

from __future__ import annotations

import io
import sys

import pytest

from onecat.cli import console, progress_line
from onecat.cli.progress_line import ProgressLine


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch, *, quiet: bool = False, every: float = 0.0) -> str:
    """What stands on standard error after a command that told how far it is, said something, and told it again."""
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress_line, "DRAW_SECONDS", every)
    monkeypatch.setattr(progress_line, "LINE_SECONDS", every)
    monkeypatch.setenv("COLUMNS", "11")
    console.configure(quiet)
    with ProgressLine() as line:
        line.show(lambda: "half of all files")
        line.say("a note")
        line.show(lambda: "all")
    return stream.getvalue()


def test_a_terminal_has_one_line_that_fits_and_is_gone_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    drawn = ["half of a…", "", "all", ""]
    first, second, third, last = (f"\r\x1b[K{text}" for text in drawn)
    assert shown(Terminal(), monkeypatch) == f"{first}{second}a note\n{third}{last}"


def test_elsewhere_each_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(io.StringIO(), monkeypatch) == "half of all files\na note\nall\n"
    monkeypatch.setenv("TERM", "dumb")
    assert shown(Terminal(), monkeypatch) == "half of all files\na note\nall\n"


def test_it_is_not_shown_more_often_than_a_person_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(io.StringIO(), monkeypatch, every=60.0) == "a note\n"


def test_quiet_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert shown(Terminal(), monkeypatch, quiet=True) == ""
