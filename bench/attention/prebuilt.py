"""Triton kernels that were compiled elsewhere, as PTX in an archive: described, chosen and launched without Triton.

An archive holds `kernels.json` (a list of Variant), the PTX files that it names, and the sources of vLLM that they were
made of.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

LISTING = "kernels.json"
SCRATCH_PARAMETERS = 2
"""Pointers that Triton 3.7.1 adds to each kernel's parameters: global and profiling scratch memory, both unused."""
PLAIN_SHARED_MEMORY = 48 * 1024
MOST_DYNAMIC_SHARED_SIZE = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
C_TYPES = {"i32": ctypes.c_int32, "i64": ctypes.c_int64, "fp32": ctypes.c_float}


@dataclass(frozen=True)
class Variant:
    """One kernel compiled for some constants.

    kernel: the function's name. entry: that in the PTX. parameters: name and Triton's type ("*fp16", "i32") of those
    that are passed, in order. constants: values that are compiled in, by name. aligned: parameters that were taken to
    be multiples of 16.
    """

    kernel: str
    entry: str
    file: str
    parameters: list[tuple[str, str]]
    constants: dict[str, Any]
    aligned: list[str]
    warps: int
    shared: int
    target: str
    triton: str

    def fits(self, values: Mapping[str, object]) -> bool:
        """Whether it may be launched with these values, by parameter; tensors count by their address."""
        for name, constant in self.constants.items():
            if name in values and not _same(values[name], constant):
                return False
        return all(_address_or_value(values[name]) % 16 == 0 for name in self.aligned)


def _same(value: object, constant: object) -> bool:
    """Whether a launch's value is the constant; enumerations count as numbers, but no truth value does."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = int(value)
    return type(value) is type(constant) and value == constant


def _address_or_value(value: Any) -> int:
    return int(value.data_ptr() if hasattr(value, "data_ptr") else value)


def _told_apart(value: Any) -> object:
    """What variants can differ by."""
    return value.data_ptr() % 16 == 0 if hasattr(value, "data_ptr") else (type(value), value)


class NoVariant(Exception):
    """No compiled kernel fits a launch."""


def choose(variants: Sequence[Variant], kernel: str, values: Mapping[str, object]) -> Variant:
    """The most specialised variant of a kernel that fits. Raises NoVariant."""
    fitting = [each for each in variants if each.kernel == kernel and each.fits(values)]
    if not fitting:
        known = {name for each in variants if each.kernel == kernel for name in each.constants}
        asked = {name: value for name, value in values.items() if name in known and not hasattr(value, "data_ptr")}
        raise NoVariant(f"{kernel} was not compiled for {asked}")
    return max(fitting, key=lambda each: (len(each.constants), len(each.aligned)))


def packed_arguments(variant: Variant, values: Mapping[str, object]) -> list[Any]:
    """What cuLaunchKernel's parameters point at, in the kernel's order. Raises KeyError for a type that is unknown."""
    arguments: list[Any] = []
    for name, kind in variant.parameters:
        value: Any = values[name]
        arguments.append(
            ctypes.c_void_p(value.data_ptr()) if kind.startswith("*") else C_TYPES[kind](_number(kind, value))
        )
    return arguments + [ctypes.c_void_p(0)] * SCRATCH_PARAMETERS


def _number(kind: str, value: Any) -> Any:
    return float(value) if kind.startswith("fp") else int(value)


def read_listing(folder: Path) -> list[Variant]:
    """The variants of an unpacked archive."""
    listing = json.loads((folder / LISTING).read_text(encoding="utf-8"))
    return [Variant(**{**each, "parameters": [tuple(pair) for pair in each["parameters"]]}) for each in listing]


def write_listing(folder: Path, variants: Sequence[Variant]) -> None:
    text = json.dumps([asdict(each) for each in variants], indent=1)
    (folder / LISTING).write_text(text, encoding="utf-8")


class DriverError(Exception):
    """The CUDA driver refused."""


@dataclass
class Kernels:
    """The variants in an unpacked archive, loaded by the driver when they are first used.

    driver: libcuda. stream: the address of the stream to launch in.
    """

    folder: Path
    variants: list[Variant]
    driver: ctypes.CDLL
    stream: Callable[[], int]
    loaded: dict[str, ctypes.c_void_p] = field(default_factory=dict)
    chosen: dict[tuple[object, ...], Variant] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    def named(self, kernel: str) -> Launcher:
        """Something to put in the place of a Triton function."""
        return Launcher(self, kernel)

    def variant_for(self, kernel: str, values: Mapping[str, object]) -> Variant:
        """choose(), remembered: a launch must cost little. Raises NoVariant."""
        key = (kernel, *((name, _told_apart(value)) for name, value in values.items()))
        if key not in self.chosen:
            self.chosen[key] = choose(self.variants, kernel, values)
        return self.chosen[key]

    def function(self, variant: Variant) -> ctypes.c_void_p:
        """The driver compiles the PTX when it is first asked for; its disk cache may have it from another process."""
        if variant.file not in self.loaded:
            module, function = ctypes.c_void_p(), ctypes.c_void_p()
            text = (self.folder / variant.file).read_bytes() + b"\0"
            self._check("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(text))
            entry = ctypes.c_char_p(variant.entry.encode())
            self._check("cuModuleGetFunction", ctypes.byref(function), module, entry)
            if variant.shared > PLAIN_SHARED_MEMORY:
                self._check("cuFuncSetAttribute", function, MOST_DYNAMIC_SHARED_SIZE, variant.shared)
            self.loaded[variant.file] = function
        return self.loaded[variant.file]

    def launch(self, variant: Variant, grid: Sequence[int], values: Mapping[str, object]) -> None:
        arguments = packed_arguments(variant, values)
        pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(each) for each in arguments))
        sizes = [ctypes.c_uint(size) for size in (*grid, 1, 1)[:3]]
        self._check(
            "cuLaunchKernel",
            self.function(variant),
            *sizes,
            ctypes.c_uint(32 * variant.warps),
            ctypes.c_uint(1),
            ctypes.c_uint(1),
            ctypes.c_uint(variant.shared),
            ctypes.c_void_p(self.stream()),
            pointers,
            None,
        )
        self.used.add(variant.file)

    def _check(self, name: str, *arguments: Any) -> None:
        code = getattr(self.driver, name)(*arguments)
        if code != 0:
            raise DriverError(f"{name} failed with {code}")


@dataclass(frozen=True)
class Launcher:
    """Takes `launcher[grid](parameter=value, ...)` as a Triton function does."""

    kernels: Kernels
    kernel: str

    def __getitem__(self, grid: Sequence[int]) -> Callable[..., None]:
        def launch(**values: object) -> None:
            self.kernels.launch(self.kernels.variant_for(self.kernel, values), grid, values)

        return launch
