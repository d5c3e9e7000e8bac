"""Values as programs print them."""

from __future__ import annotations

import pytest

from onecat.probe.importers.text import clean, decimal, decode, enabled, known, pci_address, size, whole

KIB = 1024


@pytest.mark.parametrize(
    "value", ["N/A", "[N/A]", "[Not Supported]", "ERR!", "Unknown Error", "[GPU is lost]", "", "-", None]
)
def test_what_a_program_does_not_know_is_none(value: str | None) -> None:
    assert known(value) is None
    assert whole(value) is None and decimal(value) is None and size(value) is None and enabled(value) is None


@pytest.mark.parametrize(
    ("value", "bytes_"),
    [
        ("143771 MiB", 143771 * KIB**2),
        ("81920MiB", 81920 * KIB**2),
        ("125Gi", 125 * KIB**3),
        ("1.5T", int(1.5 * KIB**4)),
        ("64M", 64 * KIB**2),
        ("12 kB", 12 * KIB),
        ("0B", 0),
        ("125", None),
        ("12 monkeys", None),
    ],
)
def test_sizes_need_a_unit(value: str, bytes_: int | None) -> None:
    assert size(value) == bytes_


@pytest.mark.parametrize(
    ("value", "number"), [("16x", 16), ("0 %", 0), ("-8 C", -8), ("3 bank(s)", 3), ("x16", None), ("9" * 30, None)]
)
def test_whole_numbers(value: str, number: int | None) -> None:
    assert whole(value) == number


@pytest.mark.parametrize(
    ("value", "address"),
    [
        ("00000000:3B:00.0", "0000:3b:00.0"),
        ("PCI:0000:3b:00", "0000:3b:00.0"),
        ("3b:00.1", "0000:3b:00.1"),
        ("10000:01:00.0", "10000:01:00.0"),
        ("12:34:56:78", None),
        ("nothing", None),
    ],
)
def test_addresses_as_sysfs_spells_them(value: str, address: str | None) -> None:
    assert pci_address(value) == address


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_text_of_any_encoding(encoding: str) -> None:
    assert clean(decode("GPU 0: Tesla T4\r\n".encode(encoding))) == "GPU 0: Tesla T4\n"


def test_what_terminals_add_is_taken_out() -> None:
    assert clean("\x1b[4mGPU0\x1b[0m\x1b]0;title\x07\tNV2\x00\x08\r\nnext\rlast") == "GPU0\tNV2\nnext\nlast"


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert "T4" in decode(b"\xc3\x28 T4 \xff")
