"""Choosing and launching kernels that were compiled elsewhere, with a driver that only keeps what it is given."""

from __future__ import annotations

import ctypes
import enum
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from bench.attention.prebuilt import DriverError, Kernels, NoVariant, Variant, choose, read_listing, write_listing

STREAM = 0x77
PLAIN = Variant(
    kernel="attend",
    entry="attend_entry",
    file="attend.ptx",
    parameters=[("out", "*fp16"), ("scale", "fp32"), ("count", "i32")],
    constants={"HEADS": 32, "CAUSAL": True, "sinks": None, "MODE": 0},
    aligned=["out"],
    warps=4,
    shared=1024,
    target=".target sm_70",
    triton="3.7.1",
)
SIXTEENS = replace(PLAIN, file="sixteens.ptx", aligned=["out", "count"])
ONE = replace(PLAIN, file="one.ptx", parameters=PLAIN.parameters[:2], constants={**PLAIN.constants, "count": 1})


class Tensor:
    """What a launch asks of one."""

    def __init__(self, address: int) -> None:
        self.address = address

    def data_ptr(self) -> int:
        return self.address


class Mode(enum.IntEnum):
    NONE = 0


def values(**changes: object) -> dict[str, object]:
    given: dict[str, object] = {"out": Tensor(4096), "scale": 0.5, "count": 3, "HEADS": 32, "CAUSAL": True}
    return {**given, "sinks": None, "MODE": Mode.NONE, **changes}


@pytest.mark.parametrize(
    ("changes", "chosen"),
    [
        pytest.param({}, PLAIN, id="nothing special"),
        pytest.param({"count": 48}, SIXTEENS, id="a multiple of 16"),
        pytest.param({"count": 1}, ONE, id="a number that is compiled in"),
    ],
)
def test_the_most_special_variant_that_fits_is_chosen(changes: dict[str, object], chosen: Variant) -> None:
    assert choose([PLAIN, SIXTEENS, ONE], "attend", values(**changes)) is chosen


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"HEADS": 24}, id="another number"),
        pytest.param({"CAUSAL": 1}, id="a number for a truth value"),
        pytest.param({"MODE": False}, id="a truth value for a number"),
        pytest.param({"sinks": Tensor(64)}, id="a tensor for none"),
        pytest.param({"out": Tensor(4100)}, id="an address that is not aligned"),
    ],
)
def test_a_launch_that_nothing_was_compiled_for_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(NoVariant, match="attend was not compiled for"):
        choose([PLAIN, SIXTEENS, ONE], "attend", values(**changes))


def test_a_listing_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_listing(tmp_path, [PLAIN, ONE])
    assert read_listing(tmp_path) == [PLAIN, ONE]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library = tmp_path_factory.mktemp("driver") / "libcuda.so.1"
    source = Path(__file__).with_name("fake_driver.cpp")
    subprocess.run(["g++", "-shared", "-fPIC", "-std=c++17", str(source), "-o", str(library)], check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.parameter_of_last.restype = ctypes.POINTER(ctypes.c_ubyte)
    return loaded


def kernels(folder: Path, driver: ctypes.CDLL, variant: Variant, text: str = "attend_entry") -> Kernels:
    (folder / variant.file).write_text(text, encoding="utf-8")
    return Kernels(folder, [variant], driver, lambda: STREAM)


def last(driver: ctypes.CDLL, which: int, size: int) -> bytes:
    return bytes(driver.parameter_of_last(which)[:size])


def test_a_launch_gives_the_driver_what_the_kernel_takes(tmp_path: Path, driver: ctypes.CDLL) -> None:
    wide = replace(PLAIN, shared=65536)
    started = kernels(tmp_path, driver, wide)
    address = 0x1234567890A0
    started.named("attend")[(5, 8, 16)](**values(out=Tensor(address), scale=0.25, count=-7))
    assert [driver.size_of_last(i) for i in range(7)] == [5, 8, 16, 128, 1, 1, 65536]
    assert driver.size_of_last(7) == 65536, "more shared memory than a block has by itself must be asked for"
    assert int.from_bytes(last(driver, 0, 8), "little") == address
    assert ctypes.c_float.from_buffer_copy(last(driver, 1, 4)).value == 0.25
    assert int.from_bytes(last(driver, 2, 4), "little", signed=True) == -7
    assert last(driver, 3, 8) == last(driver, 4, 8) == bytes(8), "Triton's scratch memory is not there"
    assert started.used == {PLAIN.file}


def test_a_grid_may_have_fewer_dimensions(tmp_path: Path, driver: ctypes.CDLL) -> None:
    kernels(tmp_path, driver, PLAIN).named("attend")[(9,)](**values())
    assert [driver.size_of_last(i) for i in range(3)] == [9, 1, 1]


def test_a_choice_that_is_remembered_is_still_that_of_its_values(tmp_path: Path, driver: ctypes.CDLL) -> None:
    started = kernels(tmp_path, driver, PLAIN)
    started.variants.append(SIXTEENS)
    found = [started.variant_for("attend", values(count=count)).file for count in (3, 16, 3, 16)]
    assert found == [PLAIN.file, SIXTEENS.file] * 2


def test_what_the_driver_refuses_is_named(tmp_path: Path, driver: ctypes.CDLL) -> None:
    with pytest.raises(DriverError, match="cuModuleLoadData failed with 218"):
        kernels(tmp_path, driver, PLAIN, "refused").named("attend")[(1,)](**values())
    with pytest.raises(DriverError, match="cuModuleGetFunction failed with 500"):
        kernels(tmp_path, driver, PLAIN, "another entry").named("attend")[(1,)](**values())
