"""What confines programs and containers."""

# os.path spares every host the import of pathlib; one broken source must not cost the others.
# ruff: noqa: PTH100, PTH110, PTH118, PTH119, PTH120, PTH123, PTH208, BLE001
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

import os

from onecat.probe.agent.core import Unknown, needs_root

AUDIT_LOG = "/var/log/audit/audit.log"
AUDIT_BYTES = 4 << 20
MOST_DENIALS = 500
GPU_DEVICES = ("nvidia", "davinci")


def selinux(machine, emit):
    enforce = machine.read_or_none("/sys/fs/selinux/enforce")
    if enforce in ("0", "1"):
        emit(
            selinux={
                "mode": "enforcing" if enforce == "1" else "permissive",
                "policy": policy(machine),
                "booleans": list(booleans(machine)),
                "device_labels": list(device_labels(machine)),
            }
        )
        if machine.exists("/var/log/audit"):
            denials(machine, emit)
    elif "selinuxfs" not in machine.read("/proc/filesystems"):
        # The kernel registers selinuxfs only when SELinux is switched on.
        emit(selinux={"mode": "disabled"})
    else:
        raise Unknown("absent", "the kernel has SELinux but /sys/fs/selinux is not visible here (inside a container?)")


def denials(machine, emit):
    """What SELinux has denied, which auditd keeps in a file of its own and away from the kernel log."""
    try:
        with open(machine.path(AUDIT_LOG), "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - AUDIT_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except PermissionError:
        emit(note=needs_root("what SELinux has denied (" + AUDIT_LOG + ")"))
        return
    found = [line for line in lines if "avc:" in line and "denied" in line]
    if found:
        emit(captures=[{"name": AUDIT_LOG, "text": "\n".join(found[-MOST_DENIALS:]) + "\n"}])


def policy(machine):
    for line in (machine.read_or_none("/etc/selinux/config") or "").splitlines():
        key, _, value = line.partition("=")
        if key.strip() == "SELINUXTYPE":
            return value.strip()
    return None


def booleans(machine):
    """The switches about containers; a file of selinuxfs holds the value now and the one to be committed."""
    folder = "/sys/fs/selinux/booleans"
    for name in machine.list(folder):
        if name.startswith(("container_", "virt_sandbox_", "virt_use_")):
            values = (machine.read_or_none(folder + "/" + name) or "").split()
            if values:
                yield [name, values[0] == "1"]


def device_labels(machine):
    for name in machine.list("/dev"):
        if name.startswith(GPU_DEVICES):
            try:
                label = os.getxattr(machine.path("/dev/" + name), "security.selinux")
            except OSError:
                continue  # Without a label of its own, or gone meanwhile.
            yield ["/dev/" + name, label.rstrip(b"\0").decode(errors="replace")]


def apparmor(machine, emit):
    restricted = machine.read_or_none("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
    emit(
        apparmor={
            "enabled": machine.read_or_none("/sys/module/apparmor/parameters/enabled") == "Y",
            "user_namespaces_restricted": None if restricted is None else restricted == "1",
        }
    )


SOURCES = {"selinux": selinux, "apparmor": apparmor}
