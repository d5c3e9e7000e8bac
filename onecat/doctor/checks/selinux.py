"""SELinux: its mode, the labels of device files, and what it has denied."""

from __future__ import annotations

import re
from collections.abc import Iterator

from onecat.doctor import requirements
from onecat.doctor.context import Context
from onecat.doctor.registry import Verdict, check
from onecat.facts import KernelEvent

DEVICE_BOOLEANS = {
    "container_use_xserver_devices": "xserver_misc_device_t",
    "container_use_dri_devices": "dri_device_t",
    "container_use_devices": "any device",
}
"""Booleans of container-selinux, and the type of device file that each lets containers use."""
ONE_CONTAINER = "or only for that container: docker run --security-opt label=disable ..."
OWN_CONTAINERS = "onecat's own containers are not concerned: each runs with --security-opt label=disable"
NEVER = "do not switch SELinux off for this"
XSERVER_BOOLEAN = "https://github.com/containers/container-selinux/pull/306"
DRI_BOOLEAN = "https://github.com/containers/container-selinux/pull/278"
WRONG_LABEL = "https://github.com/NVIDIA/nvidia-docker/issues/219"


@check(
    "selinux.mode",
    title="SELinux does not stand between containers and the GPUs",
    why="Where the daemon confines containers, SELinux may deny them the GPU device files and mounted models.",
    fix=(
        "nothing for onecat's own containers: `onecat up` makes each with --security-opt label=disable",
        "for others: sudo setsebool -P container_use_xserver_devices 1 (NVIDIA's device files; since container-selinux "
        "2.236)",
        "never switch SELinux off for this",
    ),
    source=(
        "https://github.com/containers/container-selinux/pull/306",
        "https://github.com/containers/buildah/discussions/4184",
    ),
    requires=(requirements.container_possible,),
)
def selinux_mode(context: Context) -> Iterator[Verdict]:
    """The mode of SELinux and whether the Docker daemon uses it."""
    selinux, docker = context.facts.selinux, context.facts.docker
    if selinux is None:
        yield Verdict("skip", f"Not checked: {context.why_absent('selinux', 'the mode is not known')}")
        return
    evidence = [f"SELinux: {selinux.mode}"]
    allowed = sorted(name for name, value in selinux.booleans if value and name in DEVICE_BOOLEANS)
    if selinux.mode != "enforcing":
        yield Verdict("pass", f"SELinux is {selinux.mode}", evidence=tuple(evidence))
    elif docker is None or docker.state != "reachable" or not docker.security_options:
        yield Verdict("skip", "Not checked: SELinux is enforcing and what the daemon does is not known")
    elif any("selinux" in option for option in docker.security_options):
        evidence.append(f"docker info: {', '.join(docker.security_options)}")
        evidence += [f"{name} is on" for name in allowed]
        yield Verdict(
            "info",
            "SELinux confines containers on this host, but for those of onecat",
            evidence=tuple(evidence),
            fix=(
                "nothing for onecat's own containers: `onecat up` makes each with --security-opt label=disable",
                "if another container is denied a GPU: sudo setsebool -P container_use_xserver_devices 1",
            ),
        )
    else:
        evidence.append("the daemon runs without --selinux-enabled")
        yield Verdict("pass", "SELinux is enforcing and does not confine containers", evidence=tuple(evidence))


@check(
    "selinux.denials",
    title="SELinux has denied no GPU",
    why="What SELinux denies looks like a broken driver from inside: NVML reports insufficient permissions, or CUDA "
    "finds no device.",
    fix=(
        "for device files of type xserver_misc_device_t: sudo setsebool -P container_use_xserver_devices 1",
        "for dri_device_t: sudo setsebool -P container_use_dri_devices 1",
        ONE_CONTAINER,
        "for a kernel module that may not be loaded: sudo restorecon -v FILE",
        NEVER,
    ),
    source=(XSERVER_BOOLEAN, "https://github.com/fedora-selinux/selinux-policy/issues/1695"),
    requires=(requirements.kernel_log,),
    to_pass=(requirements.whole_kernel_log,),
)
def selinux_denials(context: Context) -> Iterator[Verdict]:
    """AVC denials in the kernel log that concern device files of GPUs and NPUs, or their kernel modules."""
    selinux = context.facts.selinux
    denials = [each for each in context.facts.kernel_events or () if each.kind == "selinux-denial"]
    about_gpus = [denial for denial in denials if _is_about_gpu(denial.text)]
    if not about_gpus:
        reason = _why_denials_are_not_known(context)
        if reason is not None:
            yield Verdict("skip", f"Not checked: {reason}")
        else:
            yield Verdict("pass", "SELinux is disabled" if _is_off(context) else "SELinux has denied no GPU")
    for denial in about_gpus:
        if _is_off(context) or "permissive=1" in denial.text or (selinux is not None and selinux.mode == "permissive"):
            yield Verdict(
                "info",
                "SELinux, if it were enforcing, would deny this",
                _object(denial.text),
                (denial.text,),
                fix=_denial_fix(denial, context),
            )
        else:
            yield _denied(denial, context)


def _is_off(context: Context) -> bool:
    return context.facts.selinux is not None and context.facts.selinux.mode == "disabled"


def _why_denials_are_not_known(context: Context) -> str | None:
    """Why denials may stand where nobody has looked: auditd, where it runs, keeps them from the kernel log."""
    selinux, note = context.facts.selinux, context.facts.note("selinux")
    if selinux is None:
        return context.why_absent("selinux", "whether SELinux is at work is not known")
    if _is_off(context):
        return None
    if note is not None and note.kind == "permission":
        return note.text
    return "the audit log is not among the captures" if context.facts.collected_at is None else None


def _concerns(denial: KernelEvent, context: Context) -> bool:
    """Whether what was denied is of a kind of accelerator that the profile uses; without a profile any is."""
    if context.profile is None:
        return True
    is_ascend = re.search(r"davinci|devmm|hisi", denial.text) is not None
    return context.profile.hardware.accelerator == ("ascend" if is_ascend else "nvidia")


def _denied(denial: KernelEvent, context: Context) -> Verdict:
    what = _object(denial.text)
    if _is_allowed_now(denial, context):
        return Verdict(
            "info",
            f"SELinux once denied {what}, and allows it now",
            what,
            (denial.text,),
            fix=_denial_fix(denial, context),
        )
    concerns = _concerns(denial, context)
    if _is_module(denial.text):
        return Verdict(
            "fail" if concerns else "info",
            "SELinux keeps the kernel from loading the driver",
            what,
            (denial.text,),
            fix=_denial_fix(denial, context),
            source=("https://github.com/NVIDIA/gpu-operator/issues/553",),
        )
    who = f" to {denial.process}" if denial.process else ""
    is_container = "container" in _type(denial.text, "scontext")
    # What onecat starts itself is not confined: see selinux.mode.
    spared = is_container and context.profile is not None
    return Verdict(
        "info" if not concerns else "fail" if is_container and not spared else "warn",
        f"SELinux has denied {what}{who}",
        what,
        (denial.text,),
        fix=(*_denial_fix(denial, context), *((OWN_CONTAINERS,) if spared else ())),
    )


def _denial_fix(denial: KernelEvent, context: Context) -> tuple[str, ...]:
    text, target = denial.text, _type(denial.text, "tcontext")
    if _is_module(text):
        path = _field(text, "path") or "/lib/modules/$(uname -r)"
        return (f"sudo restorecon -Rv {path}", "then load it again: sudo modprobe nvidia", NEVER)
    if target == "device_t" and "nvidia" in text:
        return ("the device files have lost their label: sudo restorecon -v /dev/nvidia*", ONE_CONTAINER, NEVER)
    boolean = _boolean(target)
    known = dict(context.facts.selinux.booleans) if context.facts.selinux else {}
    one_container = ONE_CONTAINER.removeprefix("or only ")
    if known and boolean not in known:
        return (f"this policy has no boolean {boolean}; {one_container}", NEVER)
    if known.get(boolean):
        return (f"{boolean} is on by now; should it be denied again, {one_container}", NEVER)
    return (f"sudo setsebool -P {boolean} 1", ONE_CONTAINER, NEVER)


def _boolean(target: str) -> str:
    return next((name for name, type_ in DEVICE_BOOLEANS.items() if type_ == target), "container_use_devices")


def _is_allowed_now(denial: KernelEvent, context: Context) -> bool:
    booleans = dict(context.facts.selinux.booleans) if context.facts.selinux else {}
    return not _is_module(denial.text) and booleans.get(_boolean(_type(denial.text, "tcontext")), False)


def _is_about_gpu(text: str) -> bool:
    devices = r"/dev/(nvidia|dri|davinci|devmm|hisi)|[\"=](nvidia|davinci|renderD)[\w.-]*|nvidia[\w-]*\.ko"
    return bool(re.search(devices, text)) or _type(text, "tcontext") in ("xserver_misc_device_t", "dri_device_t")


def _is_module(text: str) -> bool:
    return "module_load" in text


def _object(text: str) -> str:
    return _field(text, "path") or _field(text, "name") or _type(text, "tcontext") or "a GPU"


def _field(text: str, name: str) -> str | None:
    match = re.search(rf'\b{name}="?([^"\s]+)"?', text)
    return match[1] if match else None


def _type(text: str, context: str) -> str:
    """The type in a security context: user:role:type:level."""
    parts = (_field(text, context) or "").split(":")
    return parts[2] if len(parts) > 2 else ""


@check(
    "selinux.device-labels",
    title="The GPU's device files have their label",
    why="The policy knows NVIDIA's device files by their type. Files that were made by hand or too early carry "
    "device_t, which no container may use.",
    fix=("sudo restorecon -v /dev/nvidia*",),
    source=(WRONG_LABEL,),
    requires=(requirements.gpus_matter,),
)
def selinux_device_labels(context: Context) -> Iterator[Verdict]:
    """The SELinux labels of /dev/nvidia*."""
    selinux = context.facts.selinux
    if selinux is None:
        yield Verdict("skip", f"Not checked: {context.why_absent('selinux', 'the mode is not known')}")
        return
    labels = [(path, label) for path, label in selinux.device_labels if path.startswith("/dev/nvidia")]
    if selinux.mode == "disabled" or not labels:
        yield Verdict("skip", f"Not checked: SELinux is {selinux.mode}, no labels were read")
        return
    wrong = [(path, label) for path, label in labels if label.split(":")[2:3] in (["device_t"], ["unlabeled_t"])]
    if not wrong:
        yield Verdict("pass", "NVIDIA's device files have a label of their own", evidence=(" ".join(labels[0]),))
    else:
        yield Verdict(
            "warn" if selinux.mode == "enforcing" else "info",
            f"{wrong[0][0]} has not the label of a GPU",
            evidence=tuple(f"{path}: {label}" for path, label in wrong),
            fix=("sudo restorecon -v /dev/nvidia*",),
        )
