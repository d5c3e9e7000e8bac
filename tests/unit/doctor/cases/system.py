"""The system, the processor, the memory."""

from __future__ import annotations

from dataclasses import replace

from onecat.facts import Facts, Memory, Tools
from tests.unit.doctor.cases.form import Case, case
from tests.unit.doctor.examples import CPU, GIB, HEALTHY, NOTHING_KNOWN, V100


def libc(text: str | None) -> Facts:
    assert HEALTHY.operating_system is not None
    return replace(HEALTHY, operating_system=replace(HEALTHY.operating_system, libc=text))


def architecture(text: str) -> Facts:
    assert HEALTHY.operating_system is not None
    return replace(HEALTHY, operating_system=replace(HEALTHY.operating_system, architecture=text))


CASES: list[Case] = [
    case("os.architecture", "pass", "x86_64 is supported", HEALTHY),
    case("os.architecture", "pass", "aarch64 is supported", architecture("aarch64")),
    case("os.architecture", "fail", "No engine is built for riscv64", architecture("riscv64")),
    case("os.architecture", "skip", "not known", NOTHING_KNOWN),
    case("os.c-library", "pass", "glibc 2.35 is new enough", HEALTHY, CPU),
    case("os.c-library", "fail", "needs glibc 2.31, this system has glibc 2.28", libc("glibc 2.28"), CPU),
    case("os.c-library", "fail", "this system has musl 1.2.5", libc("musl 1.2.5"), CPU),
    case("os.c-library", "skip", "not known", libc(None), CPU),
    case("os.c-library", "skip", "runs in a container", HEALTHY, V100),
    case("os.libraries", "pass", "libnuma.so.1 found", HEALTHY, CPU),
    case("os.libraries", "fail", "libnuma.so.1 is missing", replace(HEALTHY, tools=Tools(libraries=())), CPU),
    case("os.libraries", "skip", "the loader was not asked", replace(HEALTHY, tools=Tools()), CPU),
    case("cpu.instruction-sets", "pass", "has avx2", HEALTHY, CPU),
    case(
        "cpu.instruction-sets",
        "fail",
        "lacks avx2",
        replace(HEALTHY, cpu=replace(HEALTHY.cpu, flags=("avx", "fma"))),  # type: ignore[type-var]
        CPU,
    ),
    case("cpu.instruction-sets", "skip", "flags are not known", NOTHING_KNOWN, CPU),
    case("cpu.instruction-sets", "skip", "needs none", HEALTHY, V100),
    case("memory.total", "pass", "192 GiB", HEALTHY),
    case("memory.total", "pass", "31 GiB", replace(HEALTHY, memory=Memory(total=31 * GIB))),
    case("memory.total", "fail", "16 GiB of memory, 32 GiB", replace(HEALTHY, memory=Memory(total=16 * GIB))),
    case(
        "memory.total",
        "fail",
        "control group limits memory to 8 GiB",
        replace(HEALTHY, memory=Memory(total=192 * GIB, cgroup_limit=8 * GIB)),
    ),
    case("memory.total", "skip", "not known", NOTHING_KNOWN),
]
