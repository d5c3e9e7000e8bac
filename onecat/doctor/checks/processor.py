"""The processor: its instruction sets, and programs that met one it lacks."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import requirements
from onecat.doctor.context import Context
from onecat.doctor.engine_programs import is_engine
from onecat.doctor.registry import Verdict, check


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
    cpu, system = context.facts.cpu, context.facts.operating_system
    if system is not None and system.architecture not in (None, "x86_64"):
        yield Verdict("skip", f"Not checked: the flags are those of x86_64, this host is {system.architecture}")
        return
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
        slower = "" if "avx512f" in cpu.flags else "; without avx512f it is slower than it could be"
        yield Verdict(
            "pass", f"The processor has {', '.join(needed)}{slower}", evidence=(cpu.model or "/proc/cpuinfo",)
        )


@check(
    "cpu.illegal-instructions",
    title="No program has met an instruction that the processor lacks",
    why='A build for newer processors ends with SIGILL ("Illegal instruction") on an older one. It is the processor of '
    "the "
    "host that lacks the instruction, never the GPU: no option of the engine changes it.",
    fix=(
        "compare: grep -m1 -o -w -E 'avx2|avx512f' /proc/cpuinfo",
        "in a virtual machine: give it the host's processor model (QEMU: -cpu host)",
        "otherwise install a build for this processor",
    ),
    source=("https://docs.vllm.ai/en/latest/getting_started/installation/cpu/",),
    requires=(requirements.kernel_log,),
    to_pass=(requirements.whole_kernel_log,),
)
def cpu_illegal_instructions(context: Context) -> Iterator[Verdict]:
    """Lines of the kernel log about invalid opcodes, by the program they stopped."""
    events = [each for each in context.facts.kernel_events or () if each.kind == "illegal-instruction"]
    if not events:
        yield Verdict("pass", "The kernel log tells of no illegal instruction")
    for event in events:
        name = event.process or "a program"
        yield Verdict(
            "warn" if is_engine(event.process) else "info",
            f"{name} met an instruction that the processor lacks",
            name,
            (event.text,),
            fix=(
                "compare: grep -m1 -o -w -E 'avx2|avx512f' /proc/cpuinfo",
                "in a virtual machine: give it the host's processor model (QEMU: -cpu host)",
                "otherwise install a build for this processor",
            ),
        )
