"""Widths of text in a terminal, and text broken into lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onecat.render.columns import NARROWEST, clip, pad, width, wrap


@pytest.mark.parametrize(
    ("text", "columns"), [("abc", 3), ("显存", 4), ("ｶﾞ", 2), ("e\u0301", 1), ("温度 45°C", 9), ("", 0)]
)
def test_wide_characters_take_two_columns(text: str, columns: int) -> None:
    assert width(text) == columns


def test_chinese_text_is_broken_between_characters_and_never_before_a_full_stop() -> None:
    lines = wrap("显卡的驱动程序没有加载，请先安装驱动程序。然后重新启动机器。", 20, "seen: ", "      ")
    assert [width(line) <= 21 for line in lines] == [True] * len(lines)
    assert "".join(line[6:] for line in lines) == "显卡的驱动程序没有加载，请先安装驱动程序。然后重新启动机器。"
    assert not any(line.strip().startswith(("，", "。")) for line in lines)


def test_commands_and_addresses_stay_whole() -> None:
    address = "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/"
    assert wrap(f"see {address} first", 30, "fix: ", "     ") == ["fix: see", f"     {address}", "     first"]


def test_a_line_always_has_room() -> None:
    assert wrap("one two three four five six", 1) == ["one two three four", "five six"]
    assert wrap("", 80, "  ") == ["  "]


@given(st.text(), st.integers(0, 200))
def test_wrapping_loses_no_word_and_keeps_to_the_width(text: str, columns: int) -> None:
    lines = wrap(text, columns)
    assert "".join("".join(lines).split()) == "".join(text.split())
    for line in lines:
        breakable = len(line.split()) > 1
        assert not breakable or width(line) <= max(columns, NARROWEST)


@given(st.text(), st.integers(1, 50))
def test_clipped_text_fits_and_padded_text_fills(text: str, columns: int) -> None:
    assert width(clip(text, columns)) <= columns
    assert width(pad(clip(text, columns), columns)) == columns
