"""The operating system: what it is, and what ready-made engines need of it."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import requirements
from onecat.doctor.context import Context
from onecat.doctor.packages import install
from onecat.doctor.registry import Verdict, check
from onecat.doctor.units import version_key
from onecat.knowledge.hardware import engine_build
from onecat.knowledge.systems import end_of_life

MACHINES = ("x86_64", "aarch64")
LEAST_KERNEL = "3.10"
"""The oldest kernel that Docker runs on (https://docs.docker.com/engine/install/binaries/)."""


@check(
    "os.architecture",
    title="The processor is of an architecture that engines are built for",
    why="vLLM's images and wheels exist for x86_64 and aarch64 only; on anything else nothing starts.",
    fix=("use an x86_64 or aarch64 host with a 64-bit system",),
    source=("https://docs.vllm.ai/en/latest/getting_started/installation/",),
)
def os_architecture(context: Context) -> Iterator[Verdict]:
    """The machine name of the kernel (uname -m), against what the engine of the profile is built for."""
    system = context.facts.operating_system
    if system is None or system.architecture is None:
        yield Verdict("skip", f"Not checked: {context.why_absent('os', 'the architecture is not known')}")
        return
    evidence = (f"uname -m: {system.architecture}",)
    engine = context.profile.engine if context.profile else None
    build = engine_build(engine.name, engine.version) if engine else None
    if build is not None and build.machine != system.architecture:
        yield Verdict(
            "fail",
            f"{build.engine} {build.version} is built for {build.machine}, this host is {system.architecture}",
            evidence=evidence,
            fix=(f"use a {build.machine} host", "or a profile whose engine is built for this one: onecat profile list"),
            source=build.source,
        )
    elif system.architecture in MACHINES:
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
            fix=install(context.facts.operating_system, debian=library.debian, redhat=library.redhat),
        )


@check(
    "os.kernel",
    title="The kernel is new enough for containers",
    why="Docker needs Linux 3.10; on anything older its daemon does not start.",
    fix=("install a newer release of the system",),
    source=("https://docs.docker.com/engine/install/binaries/",),
    requires=(requirements.container_possible,),
)
def os_kernel(context: Context) -> Iterator[Verdict]:
    """The version of the running kernel (uname -r)."""
    system = context.facts.operating_system
    version = version_key(system.kernel or "") if system else ()
    if system is None or not version:
        yield Verdict("skip", f"Not checked: {context.why_absent('os', 'the version of the kernel is not known')}")
    elif version >= version_key(LEAST_KERNEL):
        yield Verdict("pass", f"Linux {system.kernel}", evidence=(f"needed: {LEAST_KERNEL}",))
    else:
        yield Verdict(
            "fail",
            f"Linux {system.kernel} is too old for Docker, which needs {LEAST_KERNEL}",
            evidence=(f"uname -r: {system.kernel}",),
            fix=("install a newer release of the system",),
        )


@check(
    "os.release",
    title="The system still gets updates",
    why="After its end of life a release gets no security fixes, and makers of drivers and of Docker stop building for "
    "it.",
    fix=("plan the move to a release that is still maintained",),
    source=("https://github.com/docker/docker-install/pull/435",),
)
def os_release(context: Context) -> Iterator[Verdict]:
    """ID and VERSION_ID of os-release, against the releases whose end of life is known, on the day of the probe."""
    system, today = context.facts.operating_system, context.facts.collected_at
    if system is None or not system.id or not system.version_id:
        yield Verdict("skip", f"Not checked: {context.why_absent('os', 'the release of the system is not known')}")
        return
    name = system.pretty_name or f"{system.id} {system.version_id}"
    ended = end_of_life(system.id, system.version_id)
    if ended is None:
        yield Verdict("skip", f"Not checked: onecat knows no end of life of {name}")
    elif today is None:
        yield Verdict("skip", "Not checked: when these facts were collected is not known")
    elif today[:7] <= ended.month:
        yield Verdict("pass", f"{name} gets updates until {ended.month}", evidence=(name,), source=ended.source)
    else:
        yield Verdict(
            "info",
            f"{name} has had no free updates since {ended.month}",
            evidence=(name,),
            fix=("plan the move to a release that is still maintained",),
            source=ended.source,
        )


@check(
    "os.virtualization",
    title="The system runs on the machine itself",
    why="In a virtual machine the hypervisor decides what the guest sees: GPUs come by passthrough, topology and "
    "processor flags may be hidden, and peer-to-peer between GPUs may not work.",
    fix=(
        "pass the whole GPU through to the guest (VFIO), with its NVSwitches where it has any",
        "give the guest the host's processor model (QEMU: -cpu host) and memory that is not overcommitted",
    ),
    source=(
        "https://man.archlinux.org/man/systemd-detect-virt.1",
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
    ),
)
def os_virtualization(context: Context) -> Iterator[Verdict]:
    """What systemd-detect-virt says of the machine, and whether the probe ran in a container."""
    system = context.facts.operating_system
    if system is None or (system.virtualization is None and not system.container):
        yield Verdict(
            "skip", f"Not checked: {context.why_absent('os', 'whether this is a virtual machine is not known')}"
        )
        return
    if system.container:
        yield Verdict(
            "info",
            "These facts are those that a container sees",
            evidence=("the probe ran in a container: devices, limits and /dev/shm are the container's own",),
            fix=("to judge the host itself, run onecat on it",),
        )
    elif system.virtualization == "none":
        yield Verdict("pass", "The system runs on the machine itself")
    else:
        guest = f"This is a virtual machine ({system.virtualization})"
        missing = context.wants_gpus and not context.has_nvidia_hardware and context.facts.nvidia is not None
        yield Verdict(
            "info",
            f"{guest}, and no GPU is passed through to it" if missing else guest,
            evidence=(f"systemd-detect-virt: {system.virtualization}",),
            fix=("pass the whole GPU through to the guest (VFIO)",) if missing else (),
        )
