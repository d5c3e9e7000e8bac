"""The clock."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor.context import Context
from onecat.doctor.hardware import is_wsl
from onecat.doctor.packages import install
from onecat.doctor.registry import Verdict, check
from onecat.doctor.services import runs_systemd
from onecat.facts import OperatingSystem

MOST_OFFSET_SECONDS = 5.0
"""More than what a slow connection can feign, less than what any validity period forgives."""
TIMEDATECTL = "https://man.cx/timedatectl"


@check(
    "clock.offset",
    title="The host's clock agrees with the operator's",
    why="With a wrong clock certificates and tokens are not yet or no longer valid, and the lines of logs from several "
    "machines cannot be put in order.",
    fix=("sudo timedatectl set-ntp true", "timedatectl status"),
    source=(TIMEDATECTL,),
)
def clock_offset(context: Context) -> Iterator[Verdict]:
    """The time on the host when it was probed, less that of the machine onecat runs on."""
    clock = context.facts.clock
    if clock is None or clock.offset_seconds is None:
        yield Verdict("skip", f"Not checked: {context.why_absent('clock', 'the time of the host was not compared')}")
        return
    offset = clock.offset_seconds
    evidence = (f"host minus operator: {offset:+.1f} s",)
    if abs(offset) <= MOST_OFFSET_SECONDS:
        yield Verdict("pass", "The clocks agree", evidence=evidence)
    else:
        way = "ahead of" if offset > 0 else "behind"
        yield Verdict(
            "warn",
            f"The host's clock is {abs(offset):.0f} s {way} this machine's",
            evidence=evidence,
            fix=("timedatectl status on both machines: one of them is wrong", "sudo timedatectl set-ntp true"),
        )


@check(
    "clock.synchronized",
    title="The clock is kept by a time server",
    why="A clock that nothing corrects drifts by seconds a week.",
    fix=("sudo timedatectl set-ntp true", "timedatectl status"),
    source=(TIMEDATECTL,),
)
def clock_synchronized(context: Context) -> Iterator[Verdict]:
    """Whether the kernel's clock is marked as synchronized."""
    clock = context.facts.clock
    if clock is None or clock.synchronized is None:
        yield Verdict("skip", f"Not checked: {context.why_absent('clock', 'whether it is synchronized is not known')}")
    elif clock.synchronized:
        yield Verdict("pass", "The clock is synchronized")
    elif is_wsl(context):
        yield Verdict("skip", "Not checked: in WSL Windows keeps the clock")
    elif context.is_container:
        yield Verdict("skip", "Not checked: a container has the clock of its host, which keeps it")
    else:
        yield Verdict(
            "info",
            "No time server keeps this clock",
            evidence=("the kernel's clock is not marked as synchronized",),
            fix=_keeping(context.facts.operating_system),
        )


def _keeping(system: OperatingSystem | None) -> tuple[str, ...]:
    chrony = install(system, debian="chrony", redhat="chrony", suse="chrony")
    if not runs_systemd(system):
        return chrony
    return ("sudo timedatectl set-ntp true", "or, where that answers `NTP not supported`:", *chrony)
