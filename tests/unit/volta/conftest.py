"""What is compiled once, for all tests and all processes that run them: the kernels for the host and for 7.0."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.testbed.cache import open_cache
from tests.unit.volta import device_compiler
from tests.unit.volta import host_kernels as host
from tests.unit.volta.compiled import cached_machine_code, cached_ptx
from tests.unit.volta.device_compiler import DeviceCode
from tests.unit.volta.host_attention import HostAttention
from tests.unit.volta.host_kernels import HostKernels


@pytest.fixture(scope="session")
def device_code() -> DeviceCode:
    """All kernels as NVIDIA's compilers make them."""
    with open_cache() as cache:
        ptx = cached_ptx(cache, host.CSRC / "device_code.cu")
        report = cached_machine_code(cache, ptx).report.read_text(encoding="utf-8")
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


@pytest.fixture(scope="session")
def attention(host_kernels: HostKernels) -> HostAttention:
    """The kernels for attention as host code."""
    return HostAttention(host_kernels)
