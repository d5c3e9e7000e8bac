"""What confines programs and containers."""

# os.path spares every host the import of pathlib; one broken source must not cost the others.
# ruff: noqa: PTH100, PTH110, PTH118, PTH119, PTH120, PTH123, PTH208, BLE001
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

from onecat.probe.agent.core import Unknown


def selinux(machine, emit):
    enforce = machine.read_or_none("/sys/fs/selinux/enforce")
    if enforce in ("0", "1"):
        emit(selinux={"mode": "enforcing" if enforce == "1" else "permissive"})
    elif "selinuxfs" not in machine.read("/proc/filesystems"):
        # The kernel registers selinuxfs only when SELinux is switched on.
        emit(selinux={"mode": "disabled"})
    else:
        raise Unknown("absent", "the kernel has SELinux but /sys/fs/selinux is not visible here (inside a container?)")


SOURCES = {"selinux": selinux}
