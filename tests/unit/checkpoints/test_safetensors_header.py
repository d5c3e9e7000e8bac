"""Headers of safetensors files: what the library reads is read, what lies is refused, nothing large is allocated."""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import safetensors
from hypothesis import given, settings
from hypothesis import strategies as st

from onecat.checkpoints import safetensors_groups
from onecat.checkpoints.collapsing import collapsed
from onecat.checkpoints.safetensors_groups import from_groups
from onecat.checkpoints.safetensors_header import BITS, HeaderError, parse_header, read_header
from onecat.checkpoints.safetensors_json import from_json

ONE = '"dtype":"F32","shape":[1],"data_offsets":[0,4]'
HUGE = 2**63


def described(dtype: str = "F32", shape: Any = (1,), offsets: Any = (0, 4), name: str = "a") -> str:
    return json.dumps({name: {"dtype": dtype, "shape": shape, "data_offsets": offsets}}, separators=(",", ":"))


def file_of(header: str | bytes, data_bytes: int) -> bytes:
    text = header.encode() if isinstance(header, str) else header
    return len(text).to_bytes(8, "little") + text + b"\0" * data_bytes


def the_library_reads(content: bytes) -> bool:
    try:
        safetensors.deserialize(content)
    except safetensors.SafetensorError:
        return False
    return True


def we_read(content: bytes, directory: Path) -> bool:
    path = directory / "x.safetensors"
    path.write_bytes(content)
    try:
        read_header(path)
    except HeaderError:
        return False
    return True


READ = {
    "one tensor": ("{" + f'"a":{{{ONE}}}' + "}", 4),
    "another order of keys": ('{"a":{"data_offsets":[0,4],"shape":[1],"dtype":"F32"}}', 4),
    "blanks around": (' \n{"a" : {' + ONE.replace(",", " , ") + "} }\n  ", 4),
    "padding": ("{" + f'"a":{{{ONE}}}' + "}     ", 4),
    "no tensor": ("{}", 0),
    "metadata alone": ('{"__metadata__":{"format":"pt"}}', 0),
    "metadata that is null": ('{"__metadata__":null,"a":{' + ONE + "}}", 4),
    "metadata after the tensors": ('{"a":{' + ONE + '},"__metadata__":{"format":"pt"}}', 4),
    "metadata with escapes": ('{"__metadata__":{"x":"{\\"a\\":[]}"},"a":{' + ONE + "}}", 4),
    "a field of a later version": ('{"a":{"x":[1,{}],' + ONE + "}}", 4),
    "a scalar": (described(shape=[]), 4),
    "no elements": (described(shape=[0], offsets=[0, 0]), 0),
    "no elements, at the end": ('{"b":{"dtype":"F32","shape":[0],"data_offsets":[4,4]},"a":{' + ONE + "}}", 4),
    "no elements of the largest size": (described(shape=[2**64 - 1, 0], offsets=[0, 0]), 0),
    "an unaligned tensor": (
        '{"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}}',
        5,
    ),
    "tensors in another order than the file's": (
        '{"b":{"dtype":"U8","shape":[1],"data_offsets":[4,5]},"a":{' + ONE + "}}",
        5,
    ),
    "a hundred dimensions": (described(shape=[1] * 100), 4),
    "an empty name": (described(name=""), 4),
    "an escaped name": ('{"\\ud83d\\ude00":{' + ONE + "}}", 4),
    "half bytes": (described("F4", [4], [0, 2]), 2),
}

REFUSED = {
    "nothing": ("", 0, "not JSON"),
    "no object": ("[]", 0, "not a JSON object"),
    "a number": ("1", 0, "not a JSON object"),
    "a comma too many": ('{"a":{' + ONE + "},}", 4, "not JSON"),
    "a comma first": ('{,"a":{' + ONE + "}}", 4, "not JSON"),
    "bytes after the object": ('{"a":{' + ONE + "}}\0", 4, "not JSON"),
    "a byte order mark": ('\ufeff{"a":{' + ONE + "}}", 4, "not JSON"),
    "a tensor inside the metadata": ('{"__metadata__":{"x":"y","a":{' + ONE + "}}}", 4, "object of strings"),
    "bytes that are no UTF-8": (b'{"\xff":{' + ONE.encode() + b"}}", 4, "not UTF-8"),
    "UTF-16": (('{"a":{' + ONE + "}}").encode("utf-16"), 4, "not UTF-8"),
    "half a surrogate pair": ('{"\\ud800":{' + ONE + "}}", 4, "not JSON"),
    "a hole at the start": (described(offsets=[4, 8]), 8, "a hole before tensor 'a'"),
    "a hole": ('{"a":{' + ONE + '},"b":{"dtype":"U8","shape":[1],"data_offsets":[5,6]}}', 6, "a hole before"),
    "an overlap": ('{"a":{' + ONE + '},"b":{"dtype":"U8","shape":[1],"data_offsets":[3,4]}}', 4, "an overlap before"),
    "two tensors at one place": ('{"a":{' + ONE + '},"b":{' + ONE + "}}", 4, "an overlap before tensor 'b'"),
    "an empty tensor inside another": (
        '{"b":{"dtype":"U8","shape":[0],"data_offsets":[2,2]},"a":{' + ONE + "}}",
        4,
        "an overlap before",
    ),
    "an end before the beginning": (described(offsets=[4, 0]), 4, "offsets or a size"),
    "a negative offset": (described(offsets=[-4, 0]), 4, "offsets or a size"),
    "a negative size": (described(shape=[-1]), 4, "no machine"),
    "two negative sizes": (described(shape=[-1, -1]), 4, "no machine"),
    "a length that is not the shape's": (described(shape=[2]), 4, "4 bytes, and its shape and type 8"),
    "a size of 2^63": (described("U8", [HUGE], [0, HUGE]), 0, "offsets or a size"),
    "an end of 2^64": (described("U8", [2**64], [0, 2**64]), 0, "no machine"),
    "a product that overflows": (described(shape=[HUGE, 4], offsets=[0, 0]), 0, "no machine"),
    "a product that overflows before a zero": (described(shape=[HUGE, 4, 0], offsets=[0, 0]), 0, "no machine"),
    "bits that overflow": (described(shape=[2**62], offsets=[0, 0]), 0, "offsets or a size"),
    "a number of four thousand digits": (described(shape=[10**4000, 0], offsets=[0, 0]), 0, "no machine"),
    "a number of a hundred thousand digits": ('{"a":{"dtype":"U8","shape":[1' + "0" * 100_000 + "]}}", 0, "not JSON"),
    "sizes that are fractions": ('{"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}}', 4, "wrong type"),
    "sizes that are true": ('{"a":{"dtype":"F32","shape":[true],"data_offsets":[0,4]}}', 4, "wrong type"),
    "minus zero": ('{"a":{"dtype":"F32","shape":[1],"data_offsets":[-0,4]}}', 4, "wrong type"),
    "a leading zero": ('{"a":{"dtype":"F32","shape":[01],"data_offsets":[0,4]}}', 4, "not JSON"),
    "three offsets": (described(offsets=[0, 4, 4]), 4, "incompletely"),
    "a shape that is an object": ('{"a":{"dtype":"U8","shape":{},"data_offsets":[0,1]}}', 1, "wrong type"),
    "a shape that is text": ('{"a":{"dtype":"U8","shape":"","data_offsets":[0,1]}}', 1, "wrong type"),
    "a type that is a list": ('{"a":{"dtype":["F32"],"shape":[1],"data_offsets":[0,4]}}', 4, "incompletely"),
    "a type that is null": ('{"a":{"dtype":null,"shape":[1],"data_offsets":[0,4]}}', 4, "wrong type"),
    "a type that nobody knows": (described("Q4_K"), 4, "as 'Q4_K'; the format knows F4"),
    "a field that is missing": ('{"a":{"dtype":"F32","shape":[1]}}', 4, "incompletely"),
    "a tensor that is a number": ('{"a":4}', 0, "incompletely"),
    "a tensor that is null": ('{"a":null}', 0, "incompletely"),
    "half a byte": (described("F4", [3], [0, 2]), 2, "2 bytes, and its shape and type 1.5"),
    "NaN": ('{"a":{"x":NaN,' + ONE + "}}", 4, "holds NaN"),
    "Infinity": ('{"a":{"x":-Infinity,' + ONE + "}}", 4, "holds -Infinity"),
    "deep JSON": ('{"a":' + "[" * 200 + "]" * 200 + "}", 0, "nested deeper than 127"),
    "very deep JSON": ('{"a":' + "[" * 100_000 + "]" * 100_000 + "}", 0, "not JSON"),
    "metadata that is a list": ('{"__metadata__":[],"a":{' + ONE + "}}", 4, "object of strings"),
    "metadata that is a number": ('{"__metadata__":{"x":1},"a":{' + ONE + "}}", 4, "object of strings"),
    "a field twice": ('{"a":{"dtype":"U8",' + ONE + "}}", 4, "'dtype' twice"),
    "metadata twice": ('{"__metadata__":{},"__metadata__":{},"a":{' + ONE + "}}", 4, "'__metadata__' twice"),
    "metadata before and after": (
        '{"__metadata__":{},"a":{' + ONE + '},"__metadata__":{}}',
        4,
        "'__metadata__' twice",
    ),
}

STRICTER = {
    "a name twice": ('{"a":{' + ONE + '},"a":{' + ONE + "}}", 4, "'a' twice"),
    "a name twice, once escaped": ('{"a":{' + ONE + '},"\\u0061":{' + ONE + "}}", 4, "'a' twice"),
    "a name twice, in another form": ('{"a":{ ' + ONE + '},"a":{' + ONE + "}}", 4, "'a' twice"),
    "a key of the metadata twice": ('{"__metadata__":{"x":"1","x":"2"},"a":{' + ONE + "}}", 4, "'x' twice"),
    "a tensor as an array": ('{"a":["F32",[1],[0,4]]}', 4, "incompletely"),
}
"""What the format forbids and the library lets pass."""


@pytest.mark.parametrize("case", READ)
def test_what_the_library_reads_is_read(case: str, tmp_path: Path) -> None:
    header, data_bytes = READ[case]
    content = file_of(header, data_bytes)
    assert the_library_reads(content)
    assert we_read(content, tmp_path)


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_library_refuses_is_refused_with_the_reason(case: str) -> None:
    header, data_bytes, reason = REFUSED[case]
    assert not the_library_reads(file_of(header, data_bytes))
    with pytest.raises(HeaderError) as caught:
        parse_header(header.encode() if isinstance(header, str) else header)
    assert reason in str(caught.value)
    assert caught.value.code == ("unknown-dtype" if "nobody knows" in case else "bad-header")
    assert str(caught.value).isascii() and len(str(caught.value)) < 400


@pytest.mark.parametrize("case", STRICTER)
def test_what_says_two_things_of_one_tensor_is_refused_though_the_library_reads_it(case: str) -> None:
    header, data_bytes, reason = STRICTER[case]
    assert the_library_reads(file_of(header, data_bytes))
    with pytest.raises(HeaderError, match=reason):
        parse_header(header.encode())


def test_bits_of_each_type_are_the_librarys() -> None:
    for dtype, bits in BITS.items():
        assert the_library_reads(file_of(described(dtype, [8], [0, bits]), bits)), dtype


@pytest.mark.parametrize("length", [2**64 - 1, 2**63, 2**40, 100_000_001, 99_999_999, 1000])
def test_a_header_length_that_the_file_cannot_hold_costs_no_memory(length: int, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(length.to_bytes(8, "little") + b"{}")
    tracemalloc.start()
    try:
        with pytest.raises(HeaderError, match=str(length) if length > 100_000_000 else "cut off"):
            read_header(path)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_a_shape_of_many_huge_sizes_is_refused_at_its_first_overflow() -> None:
    with pytest.raises(HeaderError, match="no machine"):
        parse_header(described(shape=[HUGE] * 20_000, offsets=[0, 0]).encode())


def test_a_sparse_file_of_many_terabytes_is_read_by_its_header_alone(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    header = described("U8", [2**42], [0, 2**42]).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    os.truncate(path, 8 + len(header) + 2**42)
    assert [tensor.end for tensor in read_header(path).tensors] == [2**42]
    os.truncate(path, 8 + len(header) + 2**42 - 1)
    with pytest.raises(HeaderError, match="is cut off") as caught:
        read_header(path)
    assert caught.value.code == "truncated"


def test_where_the_data_begins_and_what_the_writer_left_are_told(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(file_of('{"__metadata__":{"format":"pt"},"a":{' + ONE + "}}", 4))
    header = read_header(path)
    assert (header.metadata, header.data_start + header.data_bytes) == ({"format": "pt"}, path.stat().st_size)


sizes = st.sampled_from([0, 0, 1, 2, 3, 5, 2**32, HUGE, 2**64 - 1, 2**64, -1, True, 1.0, None, "1"])
near = st.sampled_from([0] * 20 + [-1, 1, 4, HUGE])
names = st.sampled_from(
    ["a", "b", "c", "d", "__metadata__", "layers.0.\u00e9", 'quote"', "\ud800"]
    + [f"m.experts.{number}" for number in ("0.a", "1.a", "0.b", "1.b", "01.a", "2", "2.experts.3.a")]
)


@st.composite
def headers(draw: st.DrawFn) -> tuple[str, int]:
    """A header with more or less wrong in it, and the bytes of data it describes when all of it is true."""
    pairs, position = [], 0
    for name in draw(st.lists(names, unique=True, max_size=4)):
        dtype = draw(st.sampled_from([*BITS, "F32", "BF16", "Q4"]))
        shape = draw(st.lists(st.integers(0, 4), max_size=3) | st.lists(sizes, max_size=3))
        length = 0
        if all(type(size) is int for size in shape):
            length = BITS.get(dtype, 8)
            for size in shape:
                length *= size
            length = min(max(length // 8, 0), 10_000)
        entry = {
            "dtype": dtype,
            "shape": shape,
            "data_offsets": [position + draw(near), position + length + draw(near)],
        }
        position += length
        pairs.append((name, entry))
    pairs = draw(st.permutations(pairs))
    separators = draw(st.sampled_from([(",", ":"), (", ", ": ")]))
    return json.dumps(dict(pairs), separators=separators, ensure_ascii=draw(st.booleans())), position


@settings(max_examples=60, deadline=None)
@given(headers())
def test_any_header_is_read_or_refused_as_the_library_does(drawn: tuple[str, int]) -> None:
    text, data_bytes = drawn
    header = text.encode("utf-8", "surrogatepass")
    try:
        ours = parse_header(header).data_bytes == data_bytes
    except HeaderError:
        ours = False
    assert ours == the_library_reads(file_of(header, data_bytes))


@settings(max_examples=60, deadline=None)
@given(headers())
def test_the_fast_way_gives_what_the_json_parser_gives_or_nothing(drawn: tuple[str, int]) -> None:
    text, _ = drawn
    if (fast := from_groups(text)) is not None:
        tensors, metadata = from_json(text)
        assert (list(fast[0]), fast[1]) == (tensors, metadata)
        assert [fast[0][at] for at in range(len(tensors))] == tensors
        assert fast[0].data_bytes == tensors[-1].end


def test_the_form_that_the_library_writes_takes_the_fast_way(tmp_path: Path) -> None:
    import numpy
    from safetensors.numpy import save_file

    arrays = {f"layer.{number}.weight": numpy.ones((number, 2), numpy.float16) for number in range(12)}
    for metadata in (None, {"format": "pt", "of": '{"a": "\\n"}'}):
        save_file(arrays, tmp_path / "x.safetensors", metadata=metadata)
        content = (tmp_path / "x.safetensors").read_bytes()
        text = content[8 : 8 + int.from_bytes(content[:8], "little")].decode()
        fast = from_groups(text)
        assert fast is not None and (list(fast[0]), fast[1]) == from_json(text)


def experts_of(count: int, *, layers: int = 2) -> str:
    """Experts as the library writes them: all scales of a layer, then all weights, names in order."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    position = 0
    for parts in (("down.scale", "up.scale"), ("down.weight", "up.weight")):
        for name in sorted(f"layers.{layer}.mlp.experts.{n}" for layer in range(layers) for n in range(count)):
            for part in parts:
                size = 8 if part.endswith("weight") else 4
                dtype, shape = ("U8", [2, 4]) if part.endswith("weight") else ("F32", [])
                entries[f"{name}.{part}"] = {
                    "dtype": dtype, "shape": shape, "data_offsets": [position, position + size]
                }  # fmt: skip
                position += size
        entries[f"norm.{parts[0]}"] = {"dtype": "F32", "shape": [1], "data_offsets": [position, position + 4]}
        position += 4
    return json.dumps(entries, separators=(",", ":"))


def test_experts_take_the_fast_way_and_few_of_their_tensors_are_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    one_by_one = safetensors_groups._Reader._next_tensor
    monkeypatch.setattr(
        safetensors_groups._Reader, "_next_tensor", lambda reader: parsed.append("") or one_by_one(reader)
    )
    text = experts_of(12)
    fast = from_groups(text)
    assert fast is not None and (list(fast[0]), fast[1]) == from_json(text)
    assert (len(fast[0]), fast[0][3].name, fast[0].data_bytes) == (98, "layers.0.mlp.experts.1.up.scale", 584)
    assert len(parsed) == 2 * (2 * 2 + 1)


@settings(max_examples=80, deadline=None)
@given(st.text(alphabet='{}[]",:\\0123456789.ab_ ', max_size=3), st.integers(0, 1500), st.integers(0, 3))
def test_experts_with_something_put_between_them_are_read_as_the_json_parser_does(
    extra: str, at: int, cut: int
) -> None:
    whole = experts_of(3, layers=1)
    text = whole[:at] + extra + whole[at + cut :]
    if (fast := from_groups(text)) is not None:
        assert (list(fast[0]), fast[1]) == from_json(text)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("layers.0.mlp.experts.2.up.scale", "layers.0.mlp.experts.1.up.scale"),
        ("layers.0.mlp.experts.2.down.scale", "layers.0.mlp.experts.1.up.scale"),
        ("layers.0.mlp.experts.2.up.weight", "layers.0.mlp.experts.1.up.scale"),
        ("norm.down.weight", "norm.down.scale"),
        ("norm.down.weight", "layers.0.mlp.experts.1.up.scale"),
    ],
)
def test_a_name_that_stands_twice_among_experts_is_refused(name: str, other: str) -> None:
    text = experts_of(3)
    assert f'"{name}"' in text and f'"{other}"' in text
    twice = text.replace(f'"{name}"', f'"{other}"')
    assert from_groups(twice) is None
    with pytest.raises(HeaderError, match="twice"):
        parse_header(twice.encode())


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet='{}[]",:\\0123456789.eE-ntfa_ \x00', max_size=60), st.integers(0, 100), st.integers(0, 30))
def test_a_header_with_something_put_into_it_is_read_or_refused_as_the_library_does(
    extra: str, at: int, cut: int
) -> None:
    whole = '{"__metadata__":{"format":"pt"},"a":{' + ONE + '},"b":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}}'
    text = (whole[:at] + extra + whole[at + cut :]).encode()
    try:
        ours = parse_header(text).data_bytes == 6
    except HeaderError as error:
        ours = False
        if "twice" in str(error):
            return
    assert ours == the_library_reads(file_of(text, 6))


def test_experts_that_are_alike_are_one_row_and_others_another(tmp_path: Path) -> None:
    entries: dict[str, Any] = {}
    position = 0
    for name, size in [
        *((f"model.layers.1.mlp.experts.{expert}.up_proj.weight", 4) for expert in range(12)),
        ("model.layers.1.mlp.experts.12.up_proj.weight", 6),
        ("model.layers.1.mlp.shared_experts.up_proj.weight", 4),
        ("model.experts.3", 1),
        ("new\nline", 1),
    ]:
        entries[name] = {"dtype": "U8", "shape": [size], "data_offsets": [position, position + size]}
        position += size
    header = parse_header(json.dumps(entries).encode())
    assert [(row.name, row.shape, row.count, row.bytes) for row in collapsed([header, header])] == [
        ("model.layers.1.mlp.experts.*.up_proj.weight", (4,), 24, 96),
        ("model.layers.1.mlp.experts.*.up_proj.weight", (6,), 2, 12),
        ("model.layers.1.mlp.shared_experts.up_proj.weight", (4,), 2, 8),
        ("model.experts.*", (1,), 2, 2),
        ("new\nline", (1,), 2, 2),
    ]
