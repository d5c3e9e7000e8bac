"""YAML that is more, or less, than one plain mapping."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onecat.config.source import Place, parse_source, read_source
from onecat.errors import OnecatError
from onecat.resources import resource_directory

BOMB = "a: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]\n" for level in range(1, 9)
)


def test_values_and_keys_know_their_place() -> None:
    source = parse_source('name: chat\nlist:\n  - a\n  - "b": 1\n', "f")
    assert source.data == {"name": "chat", "list": ("a", {"b": 1})}
    assert source.spots[("name",)].key == Place("f", 1, 1)
    assert source.spots[("name",)].value == Place("f", 1, 7)
    assert source.spots[("list", 1, "b")].value == Place("f", 4, 10)


def test_what_ships_is_read_the_same_by_libyaml() -> None:
    files = sorted(resource_directory("profiles").rglob("*.yaml"))
    assert len(files) > 20
    for path in files:
        assert read_source(path, "f", shipped=True) == read_source(path, "f")


def test_plain_anchors_are_followed() -> None:
    assert parse_source("a: &x [1]\nb: *x\n", "f").data == {"a": (1,), "b": (1,)}


@pytest.mark.parametrize(
    ("text", "where", "found"),
    [
        pytest.param("a: 1\nb: 2\na: 3\n", "f:3:1", "the key `a` stands here for the second time", id="duplicate"),
        pytest.param(
            "m: {x: 1, x: 2}\n", "f:1:11", "the key `x` stands here for the second time", id="inner-duplicate"
        ),
        pytest.param("a:\n\tb: 1\n", "f:2:1", "a tab is used as indentation", id="tab"),
        pytest.param("a: 1\n---\nb: 2\n", "f:3:1", "a second YAML document begins", id="two-documents"),
        pytest.param("- a\n", "f:1:1", "the file holds a list", id="list"),
        pytest.param("hello\n", "f:1:1", "the file holds a single value", id="scalar"),
        pytest.param("", "f", "f is empty", id="empty"),
        pytest.param("# nothing\n", "f", "f is empty", id="comments-only"),
        pytest.param(
            "8000: 1\n", "f:1:1", "the key 8000 is not text: YAML reads 8000 as the number 8000", id="number-key"
        ),
        pytest.param("[a]: 1\n", "f:1:1", "a list or mapping is used as a key", id="list-key"),
        pytest.param("a: {<<: {b: 1}}\n", "f:1:5", "merge keys (<<) are not supported", id="merge-key"),
        pytest.param("a: !!python/name:os.system\n", "f:1:4", "'' cannot be read as os.system", id="python-tag"),
        pytest.param("a: !secret {}\n", "f:1:4", "the tag !secret is not understood", id="own-tag"),
        pytest.param("a: 2026-99-99\n", "f:1:4", "'2026-99-99' cannot be read as timestamp", id="no-date"),
        pytest.param("a: \x07\n", "f:1:4", "the character '\\x07' is not allowed in YAML", id="control-character"),
        pytest.param("a: b: c\n", "f:1:5", "broken YAML: mapping values are not allowed here", id="two-colons"),
        pytest.param("a: *b\n", "f:1:4", "broken YAML: found undefined alias 'b'", id="no-such-anchor"),
        pytest.param(
            "a: &a [*a]\n", "f:1:4", "the file grows beyond all bounds when its anchors are followed", id="loop"
        ),
        pytest.param(BOMB, "f:1:33", "the file grows beyond all bounds when its anchors are followed", id="bomb"),
        pytest.param("[" * 5000, "f", "the values are nested too deeply", id="deep"),
    ],
)
def test_structure_that_is_refused(text: str, where: str, found: str) -> None:
    with pytest.raises(OnecatError) as caught:
        parse_source(text, "f")
    assert (caught.value.where, caught.value.found) == (where, found)


def test_bytes_that_are_no_text_are_told_with_their_place(tmp_path: Path) -> None:
    path = tmp_path / "onecat.yaml"
    path.write_bytes("a: 1\nb: gr\u00fcn\n".encode("latin-1"))
    with pytest.raises(OnecatError, match="byte 0xfc is not UTF-8") as caught:
        read_source(path, "onecat.yaml")
    assert caught.value.where == "onecat.yaml:2:6"


def test_a_byte_order_mark_is_no_problem(tmp_path: Path) -> None:
    path = tmp_path / "onecat.yaml"
    path.write_bytes(b"\xef\xbb\xbfname: chat\n")
    assert read_source(path).data == {"name": "chat"}


@settings(max_examples=400, deadline=None)
@given(st.text(alphabet=st.sampled_from("ab:- \n\t{}[]&*!|>'\"#,%@?~<=019.xyeTZ\\/\x00\x85\u2028\u00e9"), max_size=60))
def test_any_text_is_data_or_one_clear_error(text: str) -> None:
    try:
        assert isinstance(parse_source(text, "f").data, dict)
    except OnecatError as error:
        assert error.found
