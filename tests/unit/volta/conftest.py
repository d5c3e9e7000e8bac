"""What is compiled once, for all tests and all processes that run them: the kernels for the host and for 7.0."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

from tests.testbed.cache import open_cache
from tests.unit.volta import device_compiler
from tests.unit.volta import host_kernels as host
from tests.unit.volta.device_compiler import DeviceCode
from tests.unit.volta.host_kernels import HostKernels


@pytest.fixture(scope="session")
def device_code() -> DeviceCode:
    """All kernels as NVIDIA's compilers make them."""
    texts = tuple(path.read_text(encoding="utf-8") for path in host.device_sources())

    def make_ptx(path: Path) -> None:
        path.write_text(device_compiler.ptx_of(texts[0], "device_code.cu", host.CSRC), encoding="utf-8")

    def make_report(path: Path) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path.write_text(device_compiler.report_of(ptx, Path(folder)), encoding="utf-8")

    versions = device_compiler.VERSIONS
    with open_cache() as cache:
        ptx = cache.entry("volta-device-code.ptx", (*versions, *texts), make_ptx).read_text(encoding="utf-8")
        report = cache.entry("volta-device-code.txt", (*versions, ptx), make_report).read_text(encoding="utf-8")
    return DeviceCode(ptx, device_compiler.bodies_of(ptx), device_compiler.read_report(report))


@pytest.fixture(scope="session")
def host_kernels() -> HostKernels:
    """The kernels as host code."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.fail("g++ is missing: `make test` installs it as root, or type: apt-get install g++", pytrace=False)

    def make(path: Path) -> None:
        host.build(compiler, path)

    with open_cache() as cache:
        return HostKernels(cache.entry("volta-host-kernels.so", host.inputs(compiler), make))
