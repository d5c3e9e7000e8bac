"""Operating system, processor and memory."""

# os.path spares every host the import of pathlib; one broken source must not cost the others.
# ruff: noqa: PTH100, PTH110, PTH118, PTH119, PTH120, PTH123, PTH208, BLE001
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

import os
import re
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
            "version_id": release.get("VERSION_ID"),
            "pretty_name": release.get("PRETTY_NAME"),
            "kernel": machine.read_or_none("/proc/sys/kernel/osrelease"),
            "architecture": os.uname().machine,
            "libc": libc_version() if machine.is_running else None,
            "container": in_container(machine),
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


def in_container(machine):
    if any(machine.exists(name) for name in ("/.dockerenv", "/run/.containerenv", "/run/systemd/container")):
        return True
    groups = machine.read_or_none("/proc/1/cgroup")
    if groups is None:
        return None
    if re.search(r"docker|kubepods|containerd|libpod|/lxc", groups):
        return True
    environment = machine.read_or_none("/proc/1/environ") or ""
    return "\0container=" in "\0" + environment


def cpu(machine, emit):
    text = machine.read("/proc/cpuinfo")
    first = {}
    for line in text.split("\n\n")[0].splitlines():
        key, _, value = line.partition(":")
        first[key.strip()] = value.strip()
    emit(
        cpu={
            "model": first.get("model name") or first.get("Processor") or first.get("CPU part"),
            "logical_cores": len(re.findall(r"^processor\s*:", text, re.MULTILINE)) or None,
            "usable_cores": len(os.sched_getaffinity(0)) if machine.is_running else None,
            "flags": sorted((first.get("flags") or first.get("Features") or "").split()),
        }
    )


def memory(machine, emit):
    sizes = {}
    for line in machine.read("/proc/meminfo").splitlines():
        match = re.match(r"(\w+):\s+(\d+) kB", line)
        if match:
            sizes[match.group(1)] = int(match.group(2)) * 1024
    emit(
        memory={
            "total": sizes.get("MemTotal"),
            "available": sizes.get("MemAvailable"),
            "swap_total": sizes.get("SwapTotal"),
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


SOURCES = {"os": operating_system, "cpu": cpu, "memory": memory}
