"""Files of checksums."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onecat.errors import OnecatError
from onecat.pull.manifest import is_manifest, parse, text_of

A, B = "a" * 64, "0123456789abcdef" * 4


def test_rows_of_sha256sum_in_all_its_forms_are_read() -> None:
    text = f"# made by us\n{A}  a.bin\n{B.upper()} *sub/b.bin\nSHA256 (c.bin) = {A}\n\n{B}\t./d e.bin\r\n"
    assert parse(text, "SHA256SUMS") == {"a.bin": A, "sub/b.bin": B, "c.bin": A, "d e.bin": B}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"{A}00  a.bin", "the checksum of a.bin has 66 hex digits; a SHA-256 has 64"),
        (f"{'a' * 40}  a.bin", "the checksum of a.bin has 40 hex digits"),
        (f"{'z' * 64}  a.bin", "the checksum of a.bin has 64 characters"),
        ("<html>", "the manifest is no checksum and file name"),
    ],
)
def test_malformed_rows_are_told_with_their_line(text: str, found: str) -> None:
    with pytest.raises(OnecatError, match=found) as caught:
        parse(text, "SHA256SUMS")
    assert caught.value.where == "SHA256SUMS:1"


def test_an_empty_manifest_is_told_by_its_address() -> None:
    with pytest.raises(OnecatError, match="the manifest holds no checksum") as caught:
        parse("", "https://example.org/m/SHA256SUMS")
    assert caught.value.where == "https://example.org/m/SHA256SUMS"


def test_a_checksum_alone_is_of_the_file_that_its_manifest_is_named_after() -> None:
    assert parse(f"{A}\n", "https://example.org/m/model.safetensors.sha256") == {"model.safetensors": A}


@given(
    st.dictionaries(
        st.text("abc 0._-/", max_size=12).map(lambda name: f"m{name}m"), st.sampled_from([A, B]), min_size=1
    )
)
def test_what_is_written_is_read_back(sums: dict[str, str]) -> None:
    assert parse(text_of(sums), "x") == sums


@pytest.mark.parametrize("name", ["SHA256SUMS", "sha256sum.txt", "model.sha256", "checksums.txt", "SHA256SUMS.txt"])
def test_manifests_are_known_by_their_name(name: str) -> None:
    assert is_manifest(name)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "sha256.py", ""])
def test_other_files_are_none(name: str) -> None:
    assert not is_manifest(name)
