"""The device code as NVIDIA's compilers make it for 7.0, made once for all tests and all processes that run them."""

from __future__ import annotations

import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.testbed.cache import Cache
from tests.unit.volta.device_compiler import VERSIONS, ptx_of, report_of


@dataclass(frozen=True)
class MachineCode:
    """Files of the cache: the cubin, and what ptxas printed while it made it."""

    cubin: Path
    report: Path


def sources_of(source: Path) -> tuple[Path, ...]:
    """A source and all that it includes of its own folder."""
    found = [source]
    for path in found:
        for name in re.findall(r'#\s*include "(\S+)"', path.read_text(encoding="utf-8")):
            if (source.parent / name).exists() and source.parent / name not in found:
                found.append(source.parent / name)
    return tuple(found)


def cached_ptx(cache: Cache, source: Path) -> str:
    """PTX of a source of device code."""
    texts = [path.read_text(encoding="utf-8") for path in sources_of(source)]

    def make(path: Path) -> None:
        path.write_text(ptx_of(texts[0], source.name, source.parent), encoding="utf-8")

    return cache.entry("volta-device-code.ptx", (*VERSIONS, *texts), make).read_text(encoding="utf-8")


def cached_machine_code(cache: Cache, ptx: str) -> MachineCode:
    """Machine code of PTX; raises CompilationError with what the assembler says."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "kernels.cubin"

        def make_report(path: Path) -> None:
            path.write_text(report_of(ptx, Path(folder)), encoding="utf-8")

        def make_cubin(path: Path) -> None:
            if not made.exists():
                report_of(ptx, Path(folder))
            shutil.copyfile(made, path)

        report = cache.entry("volta-device-code.txt", (*VERSIONS, ptx), make_report)
        return MachineCode(cache.entry("volta-device-code.cubin", (*VERSIONS, ptx), make_cubin), report)
