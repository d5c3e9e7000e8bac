"""Resource limits of the user who runs the server."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import requirements
from onecat.doctor.context import Context
from onecat.doctor.registry import Verdict, check
from onecat.facts import Limit

OPEN_FILES = 65535
"""The limit on open files that vLLM's API server sets for itself at its start, if the hard limit lets it."""


def _limit(context: Context, name: str) -> Limit | None:
    return next((each for each in context.facts.limits if each.name == name), None)


@check(
    "limits.open-files",
    title="The server may open as many files as it wants",
    why="Each connection is an open file. vLLM raises its limit to 65535 at its start; where the hard limit forbids "
    "that, "
    'many clients at once end in "Too many open files".',
    fix=(
        "echo '* hard nofile 1048576' | sudo tee /etc/security/limits.d/90-onecat.conf, then log in again",
        "in a systemd unit: LimitNOFILE=1048576",
    ),
    source=("https://github.com/vllm-project/vllm/pull/11530",),
    requires=(requirements.native_possible,),
)
def limits_open_files(context: Context) -> Iterator[Verdict]:
    """The hard limit on open files of the user who probes (ulimit -Hn). A container has its own."""
    limit = _limit(context, "nofile")
    if limit is None:
        yield Verdict("skip", f"Not checked: {context.why_absent('limits', 'the limit on open files is not known')}")
    elif limit.hard is None or limit.hard >= OPEN_FILES:
        highest = "unlimited" if limit.hard is None else str(limit.hard)
        yield Verdict("pass", f"The limit on open files can be raised to {highest}")
    else:
        yield Verdict(
            "warn",
            f"At most {limit.hard} open files, vLLM wants {OPEN_FILES}",
            evidence=(f"open files: soft {'unlimited' if limit.soft is None else limit.soft}, hard {limit.hard}",),
            fix=(
                "echo '* hard nofile 1048576' | sudo tee /etc/security/limits.d/90-onecat.conf, then log in again",
                "in a systemd unit: LimitNOFILE=1048576",
            ),
        )


@check(
    "limits.locked-memory",
    title="NCCL may lock the memory that InfiniBand needs",
    why="InfiniBand reads and writes memory that is locked in place; where little may be locked, NCCL cannot register "
    "its buffers and falls back to sockets or fails.",
    fix=(
        "echo '* - memlock unlimited' | sudo tee /etc/security/limits.d/90-onecat.conf, then log in again",
        "docker run: --ulimit memlock=-1",
    ),
    source=("https://www.ibm.com/support/pages/node/129429",),
    requires=(requirements.native_possible, requirements.environment),
)
def limits_locked_memory(context: Context) -> Iterator[Verdict]:
    """The limit on locked memory, only where NCCL's variables ask for InfiniBand."""
    variables = dict(context.facts.environment or ())
    asked = sorted(name for name in variables if name.startswith("NCCL_IB_") and name != "NCCL_IB_DISABLE")
    if variables.get("NCCL_IB_DISABLE") == "1" or not (asked or variables.get("NCCL_NET", "").upper() == "IB"):
        yield Verdict("skip", "Not checked: it matters only where NCCL is told to use InfiniBand")
        return
    limit = _limit(context, "memlock")
    if limit is None:
        yield Verdict("skip", f"Not checked: {context.why_absent('limits', 'the limit on locked memory is not known')}")
    elif limit.soft is None:
        yield Verdict("pass", "Any amount of memory may be locked for InfiniBand")
    else:
        yield Verdict(
            "info",
            f"At most {limit.soft // 1024} KiB of memory may be locked, and NCCL is told to use InfiniBand",
            evidence=(f"max locked memory: {limit.soft} bytes", *(f"{name}={variables[name]}" for name in asked)),
            fix=(
                "echo '* - memlock unlimited' | sudo tee /etc/security/limits.d/90-onecat.conf, then log in again",
                "docker run: --ulimit memlock=-1",
            ),
        )
