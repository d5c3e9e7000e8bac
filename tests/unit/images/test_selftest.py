"""The program that proves an image: it reads the GPU code out of extensions as NVIDIA's tools write it."""

from __future__ import annotations

import importlib.util
import json
import struct
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onecat.config import load_profile
from onecat.images import render_context
from onecat.resources import resource_directory

SCRIPT = resource_directory("templates") / "image" / "cuda" / "selftest.py"


def load() -> ModuleType:
    specification = importlib.util.spec_from_file_location("selftest", SCRIPT)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


selftest = load()
PTX, CUBIN = 1, 2

codes = st.lists(st.tuples(st.sampled_from([PTX, CUBIN]), st.integers(50, 129)), max_size=4)


def fat_binary(code: list[tuple[int, int]], payload: int = 24) -> bytes:
    """A fat binary with entries of these kinds and architectures, each with as many bytes behind its header."""
    entries = b""
    for kind, architecture in code:
        entries += struct.pack("<HHIQIIHHI", kind, 0x101, 64, payload, 0, 0, 7, 1, architecture) + b"\0" * 32
        entries += b"\xed" * payload
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries


def elf(sections: dict[str, bytes]) -> bytes:
    """A 64-bit little-endian ELF file with these sections and no more."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name in (*sections, ".shstrtab"))
    rows, body, offset = [struct.pack("<IIQQQQ", 0, 0, 0, 0, 0, 0) + b"\0" * 24], b"", 64
    for name, data in {**sections, ".shstrtab": names}.items():
        place = names.index(b"\0" + name.encode() + b"\0") + 1
        rows.append(struct.pack("<IIQQQQ", place, 1, 0, 0, offset + len(body), len(data)) + b"\0" * 24)
        body += data
    head = b"\x7fELF\x02\x01" + b"\0" * 34 + struct.pack("<Q", 64 + len(body)) + b"\0" * 10
    head += struct.pack("<HHH", 64, len(rows), len(rows) - 1)
    return head + body + b"".join(rows)


@given(st.lists(codes, max_size=4), st.integers(0, 3))
def test_every_entry_of_every_fat_binary_is_read(binaries: list[list[tuple[int, int]]], words: int) -> None:
    section = b"".join(fat_binary(code) + b"\0" * 8 * words for code in binaries)
    file = elf({".text": b"\x90" * 8, ".nv_fatbin": section})
    assert list(selftest.device_code(selftest.section(file, b".nv_fatbin"))) == [
        row for code in binaries for row in code
    ]


@given(st.binary(max_size=300) | st.just(b"\0" * 300), st.integers(0, 2**40))
def test_no_bytes_make_the_reader_stumble_or_hang(data: bytes, size: int) -> None:
    list(selftest.device_code(data))
    list(selftest.device_code(fat_binary([(CUBIN, 70)]) + data))
    list(selftest.device_code(struct.pack("<IHHQ", 0xBA55ED50, 1, 16, size) + data))


def test_what_torch_holds_is_asked_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch 2.10 is in a build step: its own get_arch_list() looks for a GPU first and then tells nothing."""
    compiled = SimpleNamespace(_cuda_getArchFlags=lambda: "sm_70 sm_75 compute_75")
    without_gpu = SimpleNamespace(get_arch_list=lambda: [])
    torch = SimpleNamespace(__version__="2.10.0+cu128", _C=compiled, cuda=without_gpu)
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert selftest.check_torch({"architectures": [70]}) == "torch 2.10.0+cu128 holds sm_70, sm_75, compute_75"
    with pytest.raises(selftest.Failure, match=r"holds code for sm_70, sm_75"):
        selftest.check_torch({"architectures": [80]})

    torch._C = SimpleNamespace()
    with pytest.raises(selftest.Failure, match="holds code for no GPU"):
        selftest.check_torch({"architectures": [70]})


def test_files_that_are_no_libraries_hold_no_code() -> None:
    assert selftest.section(b"#!/bin/sh\n", b".nv_fatbin") == b""
    assert selftest.section(elf({".text": b"\x90"}), b".nv_fatbin") == b""


@pytest.mark.parametrize(
    ("code", "runs"),
    [
        ([(CUBIN, 70)], True),
        ([(CUBIN, 75)], False),
        ([(CUBIN, 60)], False),
        ([(PTX, 52)], True),
        ([(PTX, 75)], False),
        ([(CUBIN, 80), (PTX, 70)], True),
        ([], False),
    ],
)
def test_what_runs_on_volta(code: list[tuple[int, int]], runs: bool) -> None:
    assert selftest.runs_on(code, 70) is runs


def test_the_profile_says_what_is_expected(tmp_path: Path) -> None:
    context = render_context(load_profile("v100x2-pcie"))
    wanted = json.loads(next(file.content for file in context.files if file.name == "selftest.json"))
    assert wanted["architectures"] == [70] and "_C::rms_norm" in wanted["operators"]


def test_a_failed_check_says_what_was_found_what_was_expected_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "selftest.py").write_bytes(SCRIPT.read_bytes())
    (tmp_path / "selftest.json").write_text(json.dumps({"architectures": [70], "packages": ["no_such_engine"]}))
    command = [sys.executable, "-I", str(tmp_path / "selftest.py"), "code"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == ["selftest code", *["onecat"] * 3]
    assert "there is no package no_such_engine" in done.stderr
