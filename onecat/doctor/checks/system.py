"""Operating system, processor and memory."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import requirements
from onecat.doctor.context import Context
from onecat.doctor.registry import Verdict, check
from onecat.doctor.units import GIB, gibibytes, version_key
from onecat.knowledge.hardware import engine_build

MACHINES = ("x86_64", "aarch64")
SOLD_TO_SEEN = 0.9
"""A machine sold with 32 GB shows less: the firmware and the kernel keep some."""


@check(
    "os.architecture",
    title="The processor is of an architecture that engines are built for",
    why="vLLM's images and wheels exist for x86_64 and aarch64 only; on anything else nothing starts.",
    fix=("use an x86_64 or aarch64 host with a 64-bit system",),
    source=("https://docs.vllm.ai/en/latest/getting_started/installation/",),
)
def os_architecture(context: Context) -> Iterator[Verdict]:
    """The machine name of the kernel (uname -m)."""
    system = context.facts.operating_system
    if system is None or system.architecture is None:
        yield Verdict("skip", f"Not checked: {context.why_absent('os', 'the architecture is not known')}")
        return
    evidence = (f"uname -m: {system.architecture}",)
    if system.architecture in MACHINES:
        yield Verdict("pass", f"{system.architecture} is supported", evidence=evidence)
    else:
        yield Verdict(
            "fail",
            f"No engine is built for {system.architecture}",
            evidence=evidence,
            fix=("use an x86_64 or aarch64 host with a 64-bit system",),
        )


@check(
    "os.c-library",
    title="The C library fits the engine's ready-made files",
    why="A native engine is installed from files that are linked against glibc; older ones and musl cannot load them.",
    fix=("use the container runtime: --runtime container", "or a newer release of the system"),
    source=("https://packaging.python.org/en/latest/specifications/platform-compatibility-tags/",),
    requires=(requirements.native_possible,),
)
def os_c_library(context: Context) -> Iterator[Verdict]:
    """Name and version of the C library, against what the engine of the profile was linked with."""
    assert context.profile is not None
    engine = context.profile.engine
    build = engine_build(engine.name, engine.version)
    system = context.facts.operating_system
    if build is None:
        yield Verdict("skip", f"Not checked: what {engine.name} {engine.version} needs is not known")
        return
    if system is None or system.libc is None:
        yield Verdict("skip", "Not checked: the C library is not known")
        return
    name, _, version = system.libc.partition(" ")
    if name == "glibc" and version_key(version) >= version_key(build.glibc):
        yield Verdict("pass", f"{system.libc} is new enough", evidence=(f"needed: glibc {build.glibc}",))
    else:
        yield Verdict(
            "fail",
            f"{engine.name} needs glibc {build.glibc}, this system has {system.libc}",
            evidence=(f"{system.pretty_name or 'system'}: {system.libc}",),
            fix=("use the container runtime: --runtime container", "or a newer release of the system"),
        )


@check(
    "os.libraries",
    title="The system libraries that the engine is linked against are there",
    why="Without them the engine's kernels do not load and the server ends at its start.",
    fix=("install the package that holds the library",),
    source=("https://docs.vllm.ai/en/latest/getting_started/installation/cpu/",),
    requires=(requirements.native_possible,),
)
def os_libraries(context: Context) -> Iterator[Verdict]:
    """Whether the loader finds the shared libraries that a native engine does not bring with it."""
    assert context.profile is not None
    build = engine_build(context.profile.engine.name, context.profile.engine.version)
    tools = context.facts.tools
    if build is None or tools is None or tools.libraries is None:
        reason = "what the engine needs is not known" if build is None else "the loader was not asked"
        yield Verdict("skip", f"Not checked: {reason}")
        return
    missing = [each for each in build.libraries if each.file not in tools.libraries]
    if not missing:
        yield Verdict("pass", f"{', '.join(each.file for each in build.libraries)} found")
    for library in missing:
        yield Verdict(
            "fail",
            f"The system library {library.file} is missing",
            library.file,
            (f"the loader does not find {library.file}",),
            fix=(
                f"Debian, Ubuntu: sudo apt-get install {library.debian}",
                f"RHEL, Fedora: sudo dnf install {library.redhat}",
            ),
        )


@check(
    "cpu.instruction-sets",
    title="The processor has the instruction sets that the engine was built with",
    why='A program that meets an instruction the processor lacks dies of SIGILL ("Illegal instruction").',
    fix=("in a virtual machine: give it the host's processor model (QEMU: -cpu host)", "otherwise use another host"),
    source=("https://docs.vllm.ai/en/latest/getting_started/installation/cpu/",),
    requires=(requirements.profile,),
)
def cpu_instruction_sets(context: Context) -> Iterator[Verdict]:
    """The flags of /proc/cpuinfo against those that the profile names."""
    assert context.profile is not None
    needed = context.profile.doctor.cpu_flags
    if not needed:
        yield Verdict("skip", f"Not checked: the profile {context.profile.name} needs none in particular")
        return
    cpu = context.facts.cpu
    if cpu is None or not cpu.flags:
        yield Verdict("skip", f"Not checked: {context.why_absent('cpu', 'the flags are not known')}")
        return
    missing = [flag for flag in needed if flag not in cpu.flags]
    if missing:
        yield Verdict(
            "fail",
            f"The processor lacks {', '.join(missing)}",
            evidence=(f"{cpu.model or 'processor'}: no {', '.join(missing)} in /proc/cpuinfo",),
            fix=(
                "in a virtual machine: give it the host's processor model (QEMU: -cpu host)",
                "otherwise use another host",
            ),
        )
    else:
        yield Verdict("pass", f"The processor has {', '.join(needed)}", evidence=(cpu.model or "/proc/cpuinfo",))


@check(
    "memory.total",
    title="The host has enough memory",
    why="The engine, its workers and the page cache that holds the weights while they load need it; too little ends in "
    "the kernel killing the server.",
    fix=("give the host more memory", "or raise the limit of the control group or container that onecat runs in"),
    source=("https://docs.vllm.ai/en/latest/getting_started/installation/",),
    requires=(requirements.profile,),
)
def memory_total(context: Context) -> Iterator[Verdict]:
    """MemTotal of /proc/meminfo, or the limit of our control group when that is lower, against the profile."""
    assert context.profile is not None
    memory = context.facts.memory
    needed = context.profile.doctor.memory_gib
    if memory is None or memory.total is None:
        yield Verdict("skip", f"Not checked: {context.why_absent('memory', 'the memory size is not known')}")
        return
    usable = min(memory.total, memory.cgroup_limit or memory.total)
    evidence = [f"total: {gibibytes(memory.total)}", f"needed: {needed:g} GiB"]
    if memory.cgroup_limit is not None and memory.cgroup_limit < memory.total:
        evidence.insert(1, f"limit of the control group: {gibibytes(memory.cgroup_limit)}")
    if usable >= needed * GIB * SOLD_TO_SEEN:
        yield Verdict("pass", f"{gibibytes(usable)} of memory", evidence=tuple(evidence))
    elif usable < memory.total:
        yield Verdict(
            "fail",
            f"A control group limits memory to {gibibytes(usable)}, {needed:g} GiB are needed",
            evidence=tuple(evidence),
            fix=("raise the memory limit of the container or unit that onecat runs in",),
        )
    else:
        yield Verdict(
            "fail",
            f"{gibibytes(usable)} of memory, {needed:g} GiB are needed",
            evidence=tuple(evidence),
            fix=("give the host more memory",),
        )
