"""The Ascend NPUs that a profile counts on."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor.context import Context
from onecat.doctor.registry import Verdict, check
from onecat.doctor.units import counted

INSTALLATION = "https://docs.vllm.ai/projects/ascend/en/v0.23.0/installation.html"


def _profile_uses_npus(context: Context) -> str | None:
    """The profile uses Ascend NPUs."""
    if context.profile is None:
        return "no profile was chosen"
    uses = context.profile.hardware.accelerator == "ascend"
    return None if uses else f"the profile {context.profile.name} uses no Ascend NPU"


@check(
    "ascend.present",
    title="The host has the NPUs of the profile",
    why="A server of this profile calculates on Ascend NPUs and on nothing else.",
    fix=("npu-smi info", "lspci -nn -d 19e5:", "choose another profile: onecat profile detect"),
    source=(INSTALLATION,),
    requires=(_profile_uses_npus,),
)
def ascend_present(context: Context) -> Iterator[Verdict]:
    """The NPUs that npu-smi lists and Huawei's accelerators on the PCI bus, against the number in the profile."""
    assert context.profile is not None
    ascend, needed = context.facts.ascend, context.profile.hardware.count
    if ascend is None or (ascend.files is None and not ascend.npus):
        yield Verdict("skip", f"Not checked: {context.why_absent('ascend', 'no Ascend facts were collected')}")
        return
    found = max(len(ascend.npus), len(ascend.pci_devices))
    if found >= needed:
        yield Verdict("pass", f"{counted(found, 'NPU')}, {needed} needed")
    else:
        yield Verdict(
            "fail",
            f"{counted(found, 'NPU')} found, {needed} needed" if found else "No Ascend NPU was found",
            evidence=(f"npu-smi: {len(ascend.npus)}", f"on the PCI bus: {len(ascend.pci_devices)}"),
            fix=("npu-smi info", "choose another profile: onecat profile detect"),
        )
