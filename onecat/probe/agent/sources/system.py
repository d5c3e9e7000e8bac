"""Operating system, user, processor, memory and clock."""

# os.path spares every host the import of pathlib; one broken source must not cost the others.
# ruff: noqa: PTH100, PTH110, PTH115, PTH118, PTH119, PTH120, PTH123, PTH208, BLE001
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

import os
import sys

from onecat.probe.agent.core import Unknown, as_int


def operating_system(machine, emit):
    release = {}
    text = machine.read_or_none("/etc/os-release") or machine.read_or_none("/usr/lib/os-release") or ""
    for line in text.splitlines():
        key, separator, value = line.partition("=")
        if separator:
            release[key.strip()] = value.strip().strip("\"'")
    emit(
        operating_system={
            "id": release.get("ID"),
            "id_like": (release.get("ID_LIKE") or "").split(),
            "version_id": release.get("VERSION_ID"),
            "pretty_name": release.get("PRETTY_NAME"),
            "kernel": machine.read_or_none("/proc/sys/kernel/osrelease"),
            "kernel_command_line": machine.read_or_none("/proc/cmdline"),
            "architecture": os.uname().machine if machine.is_running else None,
            "libc": libc_version() if machine.is_running else None,
            "container": in_container(machine),
            "virtualization": virtualization(machine),
            "secure_boot": secure_boot(machine),
            "init": machine.read_or_none("/proc/1/comm"),
            "python": ".".join(map(str, sys.version_info[:3])),
        }
    )
    if not text:
        raise Unknown("absent", "neither /etc/os-release nor /usr/lib/os-release can be read")


def libc_version():
    try:
        return os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError):
        return None


FIRST_NAMESPACES = {"pid": 0xEFFFFFFC, "uts": 0xEFFFFFFE, "ipc": 0xEFFFFFFF}
"""The numbers of the namespaces that the kernel itself begins with; a container has at least one of its own.

Source: enum init_ns_ino of https://github.com/torvalds/linux/blob/master/include/uapi/linux/nsfs.h
"""


def in_container(machine):
    # A disk made of an image still has /.dockerenv when it is started as a machine (Firecracker, cloud images).
    if has_first_namespaces(machine):
        return False
    if any(machine.exists(name) for name in ("/.dockerenv", "/run/.containerenv", "/run/systemd/container")):
        return True
    groups = machine.read_or_none("/proc/1/cgroup")
    if groups is None:
        return None
    if any(word in groups for word in ("docker", "kubepods", "containerd", "libpod", "/lxc")):
        return True
    environment = machine.read_or_none("/proc/1/environ") or ""
    return "\0container=" in "\0" + environment


def has_first_namespaces(machine):
    """Whether we run where the kernel itself does; False also where that is not to be seen."""
    try:
        return all(
            os.readlink(machine.path("/proc/self/ns/" + name)) == f"{name}:[{number}]"
            for name, number in FIRST_NAMESPACES.items()
        )
    except OSError:
        return False


VIRTUAL_HARDWARE = (
    ("KVM", "kvm"),
    ("OpenStack", "kvm"),
    ("KubeVirt", "kvm"),
    ("Amazon EC2", "amazon"),
    ("QEMU", "qemu"),
    ("VMware", "vmware"),
    ("VMW", "vmware"),
    ("innotek GmbH", "oracle"),
    ("VirtualBox", "oracle"),
    ("Xen", "xen"),
    ("Bochs", "bochs"),
    ("Parallels", "parallels"),
    ("BHYVE", "bhyve"),
    ("Hyper-V", "microsoft"),
    ("Apple Virtualization", "apple"),
    ("Google Compute Engine", "google"),
)
"""What firmware says of virtual machines, and the words for them.

Source: detect_vm_dmi_vendor of https://github.com/systemd/systemd/blob/main/src/basic/virt.c
"""


def virtualization(machine):
    """The word that systemd-detect-virt --vm would print, from files; None when they do not tell."""
    release = (machine.read_or_none("/proc/sys/kernel/osrelease") or "").lower()
    if "microsoft" in release or "wsl" in release:
        return "wsl"
    if machine.exists("/proc/xen") or machine.read_or_none("/sys/hypervisor/type") == "xen":
        control = "control_d" in (machine.read_or_none("/proc/xen/capabilities") or "")
        return "none" if control else "xen"
    names = ("product_name", "sys_vendor", "board_vendor", "bios_vendor", "product_version")
    firmware = [machine.read_or_none("/sys/class/dmi/id/" + name) or "" for name in names]
    flags = processor_flags(first_processor(machine.read_or_none("/proc/cpuinfo") or ""))
    if flags and "hypervisor" not in flags and os.uname().machine in ("x86_64", "i686"):
        return "none"
    found = None
    for text in firmware:
        found = found or next((word for start, word in VIRTUAL_HARDWARE if text.startswith(start)), None)
    if firmware[:2] == ["Virtual Machine", "Microsoft Corporation"]:
        found = "microsoft"
    if found == "amazon" and firmware[0].endswith(".metal"):
        return "none"
    clocks = machine.read_or_none("/sys/devices/system/clocksource/clocksource0/available_clocksource") or ""
    tree = machine.read_or_none("/proc/device-tree/hypervisor/compatible") or ""
    if found in (None, "qemu") and ("kvm-clock" in clocks or "kvm" in tree):
        return "kvm"
    if found is None and "hypervisor" in flags:
        return "vm-other"
    if found is None and firmware[0] and os.uname().machine == "aarch64":
        return "none"
    return found


def secure_boot(machine):
    """Whether firmware starts signed systems only; False without UEFI, None where firmware is not visible."""
    if machine.exists("/sys/firmware/efi"):
        variables = "/sys/firmware/efi/efivars"
        name = next((each for each in machine.list(variables) if each.startswith("SecureBoot-8be4df61-")), None)
        if name is None:
            return False if machine.list(variables) else None
        # Four bytes of attributes, then the value.
        with open(machine.path(variables + "/" + name), "rb") as file:
            return file.read()[-1:] == b"\1"
    return False if machine.list("/sys/firmware") else None


def first_processor(text):
    """What /proc/cpuinfo says of the first processor."""
    first = {}
    for line in text.split("\n\n")[0].splitlines():
        key, _, value = line.partition(":")
        first[key.strip()] = value.strip()
    return first


def processor_flags(processor):
    return (processor.get("flags") or processor.get("Features") or "").split()


def user(machine, emit):
    emit(user=str(os.geteuid()))
    # The name may come from a directory service that does not answer.
    emit(doing="asking for the name of the user")
    import pwd

    try:
        emit(user=pwd.getpwuid(os.geteuid()).pw_name)
    except KeyError:
        return


def cpu(machine, emit):
    text = machine.read("/proc/cpuinfo")
    first = first_processor(text)
    pairs = [line.partition(":") for line in text.splitlines()]
    packages = {value.strip() for key, _, value in pairs if key.strip() == "physical id"}
    base = "/sys/devices/system/cpu"
    if not packages:
        names = [name for name in machine.list(base) if name.startswith("cpu") and name[3:].isdigit()]
        packages = {machine.read_or_none(base + "/" + name + "/topology/physical_package_id") for name in names}
        packages -= {None, "-1"}
    # Beside the nodes there are files as has_cpu, and nodes may have memory only.
    nodes = machine.list("/sys/devices/system/node")
    with_processors = [name for name in nodes if machine.read_or_none("/sys/devices/system/node/" + name + "/cpulist")]
    emit(
        cpu={
            "model": first.get("model name") or first.get("Processor") or first.get("CPU part"),
            "logical_cores": sum(key.strip() == "processor" for key, _, _ in pairs) or None,
            "usable_cores": len(os.sched_getaffinity(0)) if machine.is_running else None,
            "sockets": len(packages) or None,
            "numa_nodes": len(with_processors) or None,
            "flags": sorted(processor_flags(first)),
        }
    )


def memory(machine, emit):
    sizes = {}
    for line in machine.read("/proc/meminfo").splitlines():
        name, _, value = line.partition(":")
        if value.endswith(" kB"):
            sizes[name] = int(value[:-3]) * 1024
    emit(
        memory={
            "total": sizes.get("MemTotal"),
            "available": sizes.get("MemAvailable"),
            "swap_total": sizes.get("SwapTotal"),
            "swap_free": sizes.get("SwapFree"),
            "cgroup_limit": cgroup_memory_limit(machine),
        }
    )


def cgroup_memory_limit(machine):
    """The lowest memory limit of our control group and the groups above it, in bytes; None without a limit."""
    limits = []
    for line in (machine.read_or_none("/proc/self/cgroup") or "").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if number == "0" and not controllers:
            base, name = "/sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            base, name = "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        parts = [part for part in group.split("/") if part and part != ".."]
        for depth in range(len(parts), -1, -1):
            limit = as_int(machine.read_or_none("/".join([base] + parts[:depth] + [name])))
            # Version 1 writes "no limit" as the largest page-aligned number.
            if limit is not None and limit < 1 << 60:
                limits.append(limit)
    return min(limits) if limits else None


def clock(machine, emit):
    """Whether the kernel's clock is kept by a server, as timedatectl tells it: by the kernel's largest error.

    STA_UNSYNC does not tell: it is also set to keep the kernel off the hardware clock.
    Source: ntp_synced of https://github.com/systemd/systemd/blob/main/src/shared/clock-util.c
    """
    if machine.exists("/run/systemd/timesync/synchronized"):
        emit(clock={"synchronized": True})
        return
    if not machine.is_running:
        raise Unknown("absent", "/run/systemd/timesync/synchronized does not exist")
    import ctypes

    # struct timex: int modes; long offset, freq, maxerror; ...: https://man7.org/linux/man-pages/man2/adjtimex.2.html
    timex = (ctypes.c_long * 64)()
    if ctypes.CDLL(None, use_errno=True).adjtimex(timex) < 0:
        raise Unknown("error", "adjtimex: " + os.strerror(ctypes.get_errno()))
    emit(clock={"synchronized": timex[3] < MAXIMUM_ERROR_MICROSECONDS})


MAXIMUM_ERROR_MICROSECONDS = 16000000
"""NTP_PHASE_LIMIT of the kernel: the error of a clock that nothing keeps grows up to it."""

SOURCES = {"os": operating_system, "user": user, "cpu": cpu, "memory": memory, "clock": clock}
