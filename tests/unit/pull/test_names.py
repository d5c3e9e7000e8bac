"""Names of a listing that become files, and those that never do."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onecat.errors import OnecatError
from onecat.pull.names import check_together, checked_name, checked_path


@pytest.mark.parametrize("path", ["config.json", "a/b/c.safetensors", ".gitattributes", "模型.bin", "a b", "-r", "..a"])
def test_ordinary_names_are_taken(path: str) -> None:
    assert checked_path(path, "there") == path


@pytest.mark.parametrize(
    "path",
    [
        *("", ".", "..", "/etc/passwd", "../x", "a/../../x", "a/..", "a//b", "a/", "./a", "a\\..\\b", "C:\\x"),
        *("a\0b", "a\nb", "\x1b[2J", "a\x7f", "\udcff", "a\u2028b", "x" * 201, "/".join(["x" * 100] * 12)),
        *(".git/hooks/post-checkout", "a/.GIT/config", ".onecat-pull/state.json"),
    ],
)
def test_names_that_lead_elsewhere_or_steer_are_refused(path: str) -> None:
    with pytest.raises(OnecatError, match="the listing names a file"):
        checked_path(path, "there")


@given(
    st.text(max_size=60) | st.lists(st.sampled_from(["..", ".", "a", "", "/", "\\", "\0"]), max_size=6).map("/".join)
)
def test_no_name_that_is_taken_leads_out_of_the_directory(path: str) -> None:
    try:
        taken = checked_path(path, "there")
    except OnecatError:
        return
    parts = PurePosixPath(taken).parts
    assert parts and ".." not in parts and not taken.startswith("/") and "/".join(parts) == taken


def test_a_row_of_a_listing_is_one_name() -> None:
    with pytest.raises(OnecatError, match="one name"):
        checked_name("a/b", "there")


@pytest.mark.parametrize("paths", [["a", "a"], ["a", "a/b"], ["a/b", "a/b/c/d"]])
def test_names_that_clash_are_refused(paths: list[str]) -> None:
    with pytest.raises(OnecatError, match="twice|as a file and as a directory"):
        check_together(paths, "there")


def test_names_beside_each_other_are_fine() -> None:
    check_together(["a", "b/a", "b/c/a", "b.a"], "there")


def test_a_file_system_that_ignores_case_holds_one_of_two_names_that_differ_in_it_alone() -> None:
    check_together(["a.json", "A.json"], "there")
    for paths in (["a.json", "A.json"], ["\u00e9", "e\u0301"], ["Sub", "sub/x"]):
        with pytest.raises(OnecatError, match="twice|as a file and as a directory"):
            check_together(paths, "there", any_case=True)


@pytest.mark.parametrize("name", ["\u202egpj.exe", "a\u2066b", "a\u200fb"])
def test_names_that_a_terminal_shows_backwards_are_refused(name: str) -> None:
    with pytest.raises(OnecatError, match="control characters"):
        checked_path(name, "there")
