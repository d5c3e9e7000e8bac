"""One fault, told once: what only follows from another finding of the same host refers to it.

A GPU that has fallen off the bus leaves an Xid in the kernel log, does not answer NVML, and cannot be started any more.
Each of these checks is right by itself; told side by side they look like four faults. The rows below say which finding
is the fault and which ones follow from it. What follows is told as information and points to the fault.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from onecat.doctor.findings import STATUSES, Finding


@dataclass(frozen=True)
class Consequence:
    """Findings of `effects` follow from a finding of `cause`.

    cause_titles, effect_titles: how their titles begin; any does where none is given.
    same_subject: only of the same GPU, device or source.
    effect_subject: only of this one.
    """

    cause: str
    effects: tuple[str, ...]
    cause_titles: tuple[str, ...] = ("",)
    effect_titles: tuple[str, ...] = ("",)
    same_subject: bool = True
    effect_subject: str | None = None

    def explains(self, cause: Finding, effect: Finding) -> bool:
        """Whether `effect` follows from `cause`. Nothing follows from what is less severe than itself."""
        return (
            cause.check == self.cause
            and effect.check in self.effects
            and STATUSES.index(cause.status) <= STATUSES.index(effect.status)
            and cause.title.startswith(self.cause_titles)
            and effect.title.startswith(self.effect_titles)
            and (not self.same_subject or cause.subject == effect.subject)
            and self.effect_subject in (None, effect.subject)
        )


def _xids(*numbers: int) -> tuple[str, ...]:
    return tuple(f"Xid {number}:" for number in numbers)


_NO_GPU_SHOWN = ("gpu.present", "engine.cuda-available")
"""What is said where the driver shows no GPU at all, whatever the reason."""

CONSEQUENCES: tuple[Consequence, ...] = (
    # A GPU is lost: NVIDIA's errors 119 and 120 (no answer), 45 and 154 (what to do now) come with it.
    Consequence("gpu.fallen-off-bus", ("gpu.xid",), effect_titles=_xids(45, 79, 119, 120, 154)),
    Consequence("gpu.fallen-off-bus", ("gpu.reachable", "gpu.initialization", "gpu.gsp", "gpu.present")),
    Consequence(
        "gpu.fallen-off-bus",
        ("gpu.reachable",),
        effect_titles=("The GPU does not answer: GPU is lost",),
        same_subject=False,  # which of several is where cannot be told
    ),
    Consequence("gpu.fallen-off-bus", ("driver.nvml",), effect_titles=("A GPU has fallen off",), same_subject=False),
    Consequence("gpu.gsp", ("gpu.xid",), effect_titles=_xids(119, 120, 154)),
    # Bad memory, counted by the driver and told in the kernel log.
    Consequence("gpu.ecc-errors", ("gpu.xid",), effect_titles=_xids(48, 94, 95, 140, 171, 172)),
    Consequence("gpu.row-remapping", ("gpu.xid",), effect_titles=_xids(63, 64)),
    Consequence("gpu.retired-pages", ("gpu.xid",), effect_titles=_xids(63, 64)),
    Consequence("gpu.slowdown", ("gpu.temperature",)),
    Consequence("gpu.compute-capability", ("gpu.model",)),
    Consequence("pcie.bar-assignment", ("gpu.initialization", "gpu.present")),
    Consequence("gpu.initialization", ("gpu.present",)),
    Consequence("gpu.initialization", _NO_GPU_SHOWN, same_subject=False, effect_subject=""),
    # The driver is of the wrong kind, of the wrong version, or not there.
    Consequence("driver.last-branch", ("driver.gpu-ignored", *_NO_GPU_SHOWN), same_subject=False),
    Consequence("driver.kernel-module", ("driver.gpu-ignored", *_NO_GPU_SHOWN), same_subject=False),
    Consequence("driver.gpu-ignored", ("gpu.present",)),
    Consequence("driver.gpu-ignored", _NO_GPU_SHOWN, same_subject=False, effect_subject=""),
    Consequence("driver.nouveau", ("driver.loaded", "driver.nvml", *_NO_GPU_SHOWN), same_subject=False),
    Consequence("driver.module-refused", ("driver.loaded", "driver.nvml", *_NO_GPU_SHOWN), same_subject=False),
    Consequence(
        "selinux.denials",
        ("driver.module-refused", "driver.loaded", "driver.nvml", *_NO_GPU_SHOWN),
        cause_titles=("SELinux keeps the kernel",),
        same_subject=False,
    ),
    Consequence("driver.loaded", ("driver.nvml", *_NO_GPU_SHOWN), same_subject=False),
    Consequence(
        "driver.versions",
        ("driver.nvml",),
        effect_titles=("The loaded kernel module and the user-space driver are of different versions",),
        same_subject=False,
    ),
    Consequence("driver.nvml", ("engine.cuda-available",), same_subject=False),
    Consequence("nvlink.fabric-manager-version", ("nvlink.fabric-manager", "nvlink.fabric-state"), same_subject=False),
    Consequence("nvlink.fabric-manager", ("nvlink.fabric-state",), same_subject=False),
    # What hangs is told by the check that asked it.
    Consequence("driver.nvml", ("probe.sources",), ("The driver hangs",), same_subject=False, effect_subject="nvml"),
    Consequence("docker.daemon", ("probe.sources",), same_subject=False, effect_subject="docker"),
    Consequence("ascend.npu-smi", ("probe.sources",), same_subject=False, effect_subject="ascend"),
    # Who holds a port is told by name where the name is known.
    Consequence("serving.units", ("serving.port",), same_subject=False),
    Consequence("serving.containers", ("serving.port",), same_subject=False),
)


_BY_EFFECT = {
    check: tuple(row for row in CONSEQUENCES if check in row.effects) for row in CONSEQUENCES for check in row.effects
}


def told_once(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings of one host, those that follow from another one lowered to information that names it."""
    listed = tuple(findings)
    bad = [finding for finding in listed if finding.status in ("fail", "warn")]
    return tuple(
        _lowered(finding, bad) if finding.check in _BY_EFFECT and finding.status in ("fail", "warn") else finding
        for finding in listed
    )


def _lowered(effect: Finding, bad: Iterable[Finding]) -> Finding:
    for cause in bad:
        if cause is not effect and any(row.explains(cause, effect) for row in _BY_EFFECT[effect.check]):
            return replace(
                effect,
                status="info",
                title=f"{effect.title} (follows from {cause.check})",
                fix=(f"put {cause.check} right first",),
            )
    return effect
