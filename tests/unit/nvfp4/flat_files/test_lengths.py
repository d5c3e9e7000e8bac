"""Every wrong length is refused, with the number of bytes and the part that is not whole."""

from __future__ import annotations

import re
from pathlib import Path

import numpy
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as some

from onecat.errors import ExitCode, OnecatError
from onecat.nvfp4.flat_files import look
from onecat.nvfp4.flat_files.layouts import FlatTensor, Layout
from onecat.nvfp4.flat_files.lengths import group_size
from tests.unit.nvfp4.flat_files.flat_writer import write_flat

SHAPES = ((4, 32), (8, 16), (2, 48))
GROUP = 16
ELEMENTS = sum(out * into for out, into in SHAPES)
GROUPS = ELEMENTS // GROUP
TABLE = Layout(tuple(FlatTensor(f"t{place}.weight", shape) for place, shape in enumerate(SHAPES)))
STATED = Layout(TABLE.tensors, GROUP)
ONE_FILE = 8 + 2 * GROUPS + ELEMENTS // 2


def write(directory: Path, *, header: bool) -> Path:
    codes = [numpy.full(shape, 5) for shape in SHAPES]
    scales = [numpy.ones((out, into // GROUP), numpy.float16) for out, into in SHAPES]
    return write_flat(directory, codes, scales, header=header)


def refused(path: Path, layout: Layout) -> OnecatError:
    with pytest.raises(OnecatError) as caught:
        group_size(look(path), layout)
    assert caught.value.code == ExitCode.NO
    return caught.value


@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("layout", [TABLE, STATED])
def test_a_whole_file_tells_its_group_size(layout: Layout, header: bool, tmp_path: Path) -> None:
    seen = look(write(tmp_path, header=header))
    assert group_size(seen, layout) == seen.own_group_size == GROUP
    assert seen.all_groups == GROUPS and seen.has_header == header


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(length=some.integers(1, ONE_FILE - 1), is_stated=some.booleans())
@example(length=8 + 2 * GROUPS, is_stated=True)
@example(length=8, is_stated=False)
def test_every_truncation_of_one_file(length: int, is_stated: bool, tmp_path: Path) -> None:
    path = write(tmp_path, header=True)
    path.write_bytes(path.read_bytes()[:length])
    found = refused(path, STATED if is_stated else TABLE).found
    if length >= 8:
        part, there = ("scales", length - 8) if length < 8 + 2 * GROUPS else ("codes", length - 8 - 2 * GROUPS)
        wanted = 2 * GROUPS if part == "scales" else ELEMENTS // 2
        assert f"is {ONE_FILE - length} bytes too short: it ends in the {part}, {there} of {wanted} bytes" in found
    else:
        assert f"is {8 - length} bytes too short for its header" in found
        assert (f"; {ONE_FILE - length} with scales and codes" in found) == is_stated


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(more=some.integers(1, 500), is_stated=some.booleans())
def test_bytes_that_are_too_many(more: int, is_stated: bool, tmp_path: Path) -> None:
    path = write(tmp_path, header=True)
    path.write_bytes(path.read_bytes() + bytes(more))
    assert f"is {more} bytes too long" in refused(path, STATED if is_stated else TABLE).found


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(difference=some.integers(-ELEMENTS // 2, 100).filter(bool))
def test_codes_of_two_files(difference: int, tmp_path: Path) -> None:
    path = write(tmp_path, header=False)
    path.write_bytes((path.read_bytes() + bytes(100))[: ELEMENTS // 2 + difference])
    word = "short" if difference < 0 else "long"
    assert f"model.bin is {abs(difference)} bytes too {word}" in refused(path, TABLE).found


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(length=some.integers(0, 2 * GROUPS + 20).filter(lambda length: length != 2 * GROUPS))
def test_scales_of_two_files(length: int, tmp_path: Path) -> None:
    path = write(tmp_path, header=False)
    scales = tmp_path / "scales.bin"
    scales.write_bytes((scales.read_bytes() + bytes(20))[:length])
    difference = length - 2 * GROUPS
    word = "short" if difference < 0 else "long"
    assert f"scales.bin is {abs(difference)} bytes too {word}" in refused(path, STATED).found


def test_a_group_size_that_would_fit_is_told(tmp_path: Path) -> None:
    error = refused(write(tmp_path, header=True), Layout(TABLE.tensors, 8))
    assert re.search(rf"states {GROUPS} groups .* groups of 8 make {2 * GROUPS}: {GROUPS} fewer, .* {2 * GROUPS} bytes",
                     error.found)  # fmt: skip
    assert f"a group size of {GROUP} would fit this table and this length" in error.details


def test_a_matrix_that_the_table_lacks_is_told(tmp_path: Path) -> None:
    table = Layout(TABLE.tensors[:2], GROUP, left_out=(FlatTensor("lm_head.weight", SHAPES[2]),))
    error = refused(write(tmp_path, header=False), table)
    assert "is 48 bytes too long: 176 bytes of codes where 128 belong" in error.found
    assert "those are lm_head.weight [2, 48] more than the table has: list it in a layout file" in error.details


def test_groups_do_not_go_over_the_end_of_a_row(tmp_path: Path) -> None:
    table = Layout((*TABLE.tensors[:2], FlatTensor("odd.weight", (6, 16))), 32)
    error = refused(write(tmp_path, header=True), table)
    assert "cannot hold t1.weight [8, 16]: 16 in_features are no multiple of the group size 32" in error.found


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is empty"),
        (b"PK\x03\x04\0\0\0\0\0", "as a PyTorch file does"),
        (b'{"a": 1}', "as a JSON document does"),
        (b"\x0a\x0d\x0a\x1c\x01\0\0\0", "backwards"),
        (b"\x1c\x0a\x0e\x0a\x01\0\0\0", "begins with 1c 0a 0e 0a, and there is no scales.bin"),
    ],
)
def test_what_is_no_flat_file(content: bytes, why: str, tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(content)
    with pytest.raises(OnecatError, match=re.escape(why)):
        look(tmp_path / "model.bin")


def test_both_variants_at_once(tmp_path: Path) -> None:
    path = write(tmp_path, header=True)
    (tmp_path / "scales.bin").write_bytes(b"\0\0")
    with pytest.raises(OnecatError, match="scales.bin lies beside it"):
        look(path)
