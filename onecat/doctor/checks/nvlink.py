"""NVLink: the links between GPUs, and what sets them up where NVSwitches connect them."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import requirements
from onecat.doctor.context import Context
from onecat.doctor.hardware import place, several_gpus, subject
from onecat.doctor.registry import Verdict, check
from onecat.doctor.units import counted

NVLINK = "https://docs.nvidia.com/health-validation/reference/checks/nvlink.md"
FABRIC_MANAGER = "https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/index.html"
NOT_INITIALIZED = "https://github.com/MiniMax-AI/MiniMax-M2.5/issues/9"


@check(
    "nvlink.links",
    title="The NVLinks of the GPUs are active",
    why="GPUs exchange the results of every layer. With a link down they take the others, or PCIe.",
    fix=("nvidia-smi nvlink -s", "nvidia-smi topo -m", "bridge cards: power off and reseat the bridge"),
    source=(NVLINK,),
    requires=(requirements.gpus,),
)
def nvlink_links(context: Context) -> Iterator[Verdict]:
    """The state of each link, against that of the other GPUs: cards without a bridge have inactive links by nature."""
    active = {
        gpu.index: sum(link.active is True for link in gpu.nvlinks)
        for gpu in context.gpus
        if gpu.nvlinks and all(link.active is not None for link in gpu.nvlinks)
    }
    most: dict[str, int] = {}
    for gpu in context.gpus:
        most[gpu.name] = max(most.get(gpu.name, 0), active.get(gpu.index, 0))
    needed = context.profile is not None and context.profile.hardware.interconnect == "nvlink"
    for gpu in context.gpus:
        if gpu.index not in active:
            yield Verdict("skip", "Not checked: this GPU has no NVLink, or its links are not known", subject(gpu))
            continue
        count, links = active[gpu.index], gpu.nvlinks or ()
        down = ", ".join(str(link.link) for link in links if not link.active)
        evidence = (f"{place(gpu)}: {count} of {len(links)} links active" + (f", down: {down}" if down else ""),)
        if count < most[gpu.name] and (count or "SXM" in gpu.name or context.nvidia.nvswitches):
            yield Verdict(
                "warn",
                f"{counted(count, 'NVLink')} active, {most[gpu.name]} on another {gpu.name} of this host",
                subject(gpu),
                evidence,
                fix=(
                    "nvidia-smi nvlink -s",
                    "sudo dmesg | grep -i -e xid -e nvlink",
                    "power off, reseat card and bridge",
                ),
            )
        elif count == len(links):
            yield Verdict("pass", f"All {counted(count, 'NVLink')} active", subject(gpu))
        elif count == 0 and needed and several_gpus(context):
            yield Verdict(
                "warn",
                "No NVLink is active, and the profile counts on NVLink",
                subject(gpu),
                evidence,
                fix=(
                    "nvidia-smi nvlink -s",
                    "systemctl status nvidia-fabricmanager",
                    "bridge cards: reseat the bridge",
                ),
            )
        else:
            yield Verdict(
                "info",
                f"{count} of {counted(len(links), 'NVLink')} active",
                subject(gpu),
                (*evidence, "cards without a bridge have inactive links by nature"),
            )


@check(
    "nvlink.errors",
    title="The NVLinks carry data without errors",
    why="Errors on a link are corrected by sending again, until it fails with Xid 74.",
    fix=("nvidia-smi nvlink -e", "look again under load: a rising number means a bad link or bridge"),
    source=(NVLINK, "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"),
    requires=(requirements.gpus,),
)
def nvlink_errors(context: Context) -> Iterator[Verdict]:
    """The replay and CRC counters of each link since the driver was loaded."""
    for gpu in context.gpus:
        links = [link for link in gpu.nvlinks or () if link.replay_errors is not None or link.crc_errors is not None]
        bad = [link for link in links if link.replay_errors or link.crc_errors]
        if not links:
            yield Verdict("skip", "Not checked: this GPU has no NVLink, or its counters are not known", subject(gpu))
        elif bad:
            yield Verdict(
                "info",
                f"Errors on {counted(len(bad), 'NVLink')} since the driver was loaded",
                subject(gpu),
                tuple(f"link {each.link}: {each.replay_errors} replays, {each.crc_errors} CRC errors" for each in bad),
                fix=("look again under load: nvidia-smi nvlink -e", "a rising number means a bad link or bridge"),
            )
        else:
            yield Verdict("pass", "No errors on any NVLink", subject(gpu))


@check(
    "nvlink.fabric-manager",
    title="The fabric manager runs where NVSwitches connect the GPUs",
    why="It sets up the NVSwitches. Until it has, every CUDA program ends with error 802, system not yet initialized.",
    fix=(
        "install nvidia-fabricmanager of the driver's version",
        "sudo systemctl enable --now nvidia-fabricmanager",
    ),
    source=(FABRIC_MANAGER, NOT_INITIALIZED),
    requires=(requirements.nvidia_hardware,),
)
def nvlink_fabric_manager(context: Context) -> Iterator[Verdict]:
    """The number of NVSwitches and whether nv-fabricmanager runs."""
    nvidia, manager = context.nvidia, context.nvidia.fabric_manager
    ready = bool(context.gpus) and all(gpu.fabric_state == "completed" for gpu in context.gpus)
    if not nvidia.nvswitches:
        reason = "it is not known whether there are NVSwitches" if nvidia.nvswitches is None else "there is no NVSwitch"
        yield Verdict("skip", f"Not checked: {reason}")
        return
    evidence = (
        f"NVSwitches: {nvidia.nvswitches}",
        f"fabric manager: {(manager.version if manager else None) or 'version unknown'}",
    )
    if manager is None or manager.running is None:
        yield Verdict("skip", "Not checked: whether the fabric manager runs is not known", evidence=evidence)
    elif manager.running:
        yield Verdict("pass", "The fabric manager runs", evidence=evidence)
    elif context.is_container:
        yield Verdict("skip", "Not checked: a container does not see the services of its host", evidence=evidence)
    elif ready:
        yield Verdict(
            "warn",
            "The fabric manager does not run; the GPUs are set up still",
            evidence=evidence,
            fix=("sudo systemctl enable --now nvidia-fabricmanager", "journalctl -u nvidia-fabricmanager"),
        )
    else:
        yield Verdict(
            "fail",
            "The fabric manager does not run",
            evidence=evidence,
            fix=(
                f"install nvidia-fabricmanager of version {nvidia.driver_version or 'as the driver'}",
                "sudo systemctl enable --now nvidia-fabricmanager",
                "journalctl -u nvidia-fabricmanager",
            ),
        )


@check(
    "nvlink.fabric-manager-version",
    title="The fabric manager is of the driver's version",
    why="It refuses to work with a driver of any other version.",
    fix=("install nvidia-fabricmanager of the driver's version and hold both back from upgrades",),
    source=(FABRIC_MANAGER, "https://www.talos.dev/v1.10/talos-guides/configuration/nvidia-fabricmanager"),
    requires=(requirements.nvidia_hardware,),
)
def nvlink_fabric_manager_version(context: Context) -> Iterator[Verdict]:
    """The version of nv-fabricmanager against that of the driver."""
    manager = context.nvidia.fabric_manager
    driver = context.nvidia.driver_version or context.nvidia.kernel_module_version
    if manager is None or manager.version is None or driver is None:
        missing = "driver" if manager is not None and manager.version is not None else "fabric manager"
        yield Verdict("skip", f"Not checked: there is no {missing}, or its version is not known")
        return
    evidence = (f"fabric manager: {manager.version}", f"driver: {driver}")
    if manager.version == driver:
        yield Verdict("pass", f"Both are {driver}", evidence=evidence)
    else:
        yield Verdict(
            "fail" if context.nvidia.nvswitches else "info",
            f"The fabric manager is {manager.version}, the driver {driver}",
            evidence=evidence,
            fix=(
                f"install nvidia-fabricmanager {driver}, then: sudo systemctl restart nvidia-fabricmanager",
                "hold both back from upgrades (apt-mark hold, dnf versionlock)",
            ),
        )


@check(
    "nvlink.fabric-state",
    title="Every GPU has joined the NVLink fabric",
    why="A GPU that has not joined answers every CUDA program with error 802, system not yet initialized.",
    fix=("systemctl status nvidia-fabricmanager", "nvidia-smi -q | grep -A 3 Fabric"),
    source=(FABRIC_MANAGER, "https://github.com/NVIDIA/NVSentinel/issues/883"),
    requires=(requirements.gpus,),
)
def nvlink_fabric_state(context: Context) -> Iterator[Verdict]:
    """NVML's fabric state of each GPU. GPUs without a fabric have none."""
    for gpu in context.gpus:
        state, status = (gpu.fabric_state or "").lower(), (gpu.fabric_status or "").lower()
        evidence = (f"{place(gpu)}: fabric {state}{f', {status}' if status else ''}",)
        fix = ("systemctl status nvidia-fabricmanager", "journalctl -u nvidia-fabricmanager")
        if state == "completed" and status in ("", "success"):
            yield Verdict("pass", "The GPU has joined the fabric", subject(gpu))
        elif state == "completed":
            yield Verdict("fail", f"The GPU could not join the fabric: {status}", subject(gpu), evidence, fix=fix)
        elif state == "in progress":
            yield Verdict("warn", "The GPU is still joining the fabric", subject(gpu), evidence, fix=fix)
        elif state == "not started" and context.nvidia.nvswitches:
            yield Verdict("fail", "The GPU has not joined the fabric", subject(gpu), evidence, fix=fix)
        elif state == "not started":
            # A GPU handed to a virtual machine alone works so: it has no fabric to join.
            yield Verdict("info", "The GPU has not joined a fabric; no NVSwitch is seen here", subject(gpu), evidence)
        else:
            yield Verdict("skip", "Not checked: this GPU has no fabric, or its state is not known", subject(gpu))
