"""The system itself: uname, os-release, /proc/meminfo, /proc/cpuinfo, lscpu in any language, free, limits."""

from __future__ import annotations

import re
from typing import Any

from onecat.probe.importers.registry import Capture, Part, holds, importer
from onecat.probe.importers.text import known, short_lines, size, whole

_ARCHITECTURES = r"(?:x86_64|aarch64|arm64|ppc64le|i686|riscv64|s390x)"
_UNAME = re.compile(rf"^Linux \S{{1,255}} ([0-9]\S{{1,100}}) #.{{1,200}}? ({_ARCHITECTURES})\b", re.MULTILINE)
_RELEASE = re.compile(r'^(ID|ID_LIKE|VERSION_ID|PRETTY_NAME)=["\']?([^"\'\n]{1,200})["\']?[ \t]*$', re.MULTILINE)


@importer("uname -a", recognises=lambda text: _UNAME.search(text) is not None, hints=("uname", "linux"))
def uname(capture: Capture) -> Part:
    match = _UNAME.search(capture.text)
    return {"operating_system": {"kernel": match.group(1), "architecture": match.group(2)}} if match else {}


@importer("os-release", recognises=lambda text: _RELEASE.search(text) is not None, hints=("os-release", "pretty_name"))
def os_release(capture: Capture) -> Part:
    values: dict[str, str] = {}
    for match in _RELEASE.finditer(capture.text):
        values.setdefault(match.group(1), match.group(2))
    system: dict[str, Any] = {
        "id": values.get("ID"),
        "id_like": values.get("ID_LIKE", "").split() or None,
        "version_id": values.get("VERSION_ID"),
        "pretty_name": values.get("PRETTY_NAME"),
    }
    return {"operating_system": {key: value for key, value in system.items() if value}}


@importer("/proc/meminfo", recognises=holds("MemAvailable:", "MemTotal:"), hints=("meminfo", "memtotal"))
def meminfo(capture: Capture) -> Part:
    memory: dict[str, Any] = {}
    for name, label in (
        ("total", "MemTotal"),
        ("available", "MemAvailable"),
        ("swap_total", "SwapTotal"),
        ("swap_free", "SwapFree"),
    ):
        match = re.search(rf"^{label}: {{1,20}}([0-9]{{1,15}}) kB", capture.text, re.MULTILINE)
        if match:
            memory[name] = int(match.group(1)) * 1024
    return {"memory": memory} if memory else {}


@importer(
    "/proc/cpuinfo",
    recognises=lambda text: re.search(r"^processor\s*: [0-9]", text, re.MULTILINE) is not None,
    hints=("cpuinfo",),
)
def cpuinfo(capture: Capture) -> Part:
    """Model, number of processors and instruction sets; sockets where it tells them."""
    first: dict[str, str] = {}
    sockets: set[str] = set()
    processors = 0
    for line in short_lines(capture.text):
        label, separator, value = (each.strip() for each in line.partition(":"))
        if not separator:
            continue
        processors += label == "processor" and value.isdigit()
        if label == "physical id":
            sockets.add(value)
        first.setdefault(label, value)
    cpu: dict[str, Any] = {
        "model": known(first.get("model name")),
        "logical_cores": processors or None,
        "sockets": len(sockets) or None,
        "flags": sorted(set((first.get("flags") or first.get("Features") or "").split())) or None,
    }
    return {"cpu": {key: value for key, value in cpu.items() if value}}


_LSCPU = {
    "architecture": ("Architecture", "架构", "架構", "Architektur", "Arquitectura"),
    "logical_cores": ("CPU(s)", "CPU", "CPU 数"),
    "model": ("Model name", "型号名称", "Modellname", "Nom de modèle"),
    "sockets": ("Socket(s)", "座", "插槽", "Sockel"),
    "numa_nodes": ("NUMA node(s)", "NUMA 节点", "NUMA-Knoten", "NUMA 節點"),
    "flags": ("Flags", "标记", "標記", "Markierungen"),
    "hypervisor": ("Hypervisor vendor", "超管理器厂商"),
}
"""Labels of lscpu, untranslated and as https://translationproject.org/domain/util-linux.html has them."""

_LSCPU_LINE = re.compile(
    rf"^ {{0,8}}(?:Architecture|架构|架構|Architektur|CPU\(s\)|CPU)[:：] {{0,40}}(?:{_ARCHITECTURES}|[0-9]{{1,5}})\s*$",
    re.MULTILINE,
)


def _is_lscpu(text: str) -> bool:
    return len({re.split("[:：]", match.group())[0].strip() for match in _LSCPU_LINE.finditer(text)}) >= 2


@importer("lscpu", recognises=_is_lscpu, hints=("lscpu", "cpu(s)"))
def lscpu(capture: Capture) -> Part:
    values: dict[str, str] = {}
    for line in short_lines(capture.text.replace("\uff1a", ":")):
        label, separator, value = line.partition(":")
        name = next((name for name, labels in _LSCPU.items() if label.strip() in labels), None) if separator else None
        if name:
            values.setdefault(name, value.strip())
    cpu: dict[str, Any] = {
        "model": known(values.get("model")),
        "logical_cores": whole(values.get("logical_cores")),
        "sockets": whole(values.get("sockets")),
        "numa_nodes": whole(values.get("numa_nodes")),
        "flags": sorted(set(values.get("flags", "").split())) or None,
    }
    part: Part = {"cpu": {key: value for key, value in cpu.items() if value}}
    architecture = re.fullmatch(_ARCHITECTURES, values.get("architecture", ""))
    hypervisor = values.get("hypervisor", "").lower()
    system = {
        "architecture": architecture.group() if architecture else None,
        "virtualization": {"kvm": "kvm", "vmware": "vmware", "microsoft": "microsoft", "xen": "xen"}.get(hypervisor),
    }
    stated = {key: value for key, value in system.items() if value}
    return {**({"cpu": part["cpu"]} if part["cpu"] else {}), **({"operating_system": stated} if stated else {})}


_FREE_ROW = re.compile(
    r"^ {0,4}(Mem|Swap|内存|交换|記憶體|置換|Speicher|Auslager) ?[:：]((?: {1,20}[0-9.,]{1,20}[A-Za-z]{0,3}){2,7})",
    re.MULTILINE,
)
_FREE_UNITS = {"-b": 1, "-k": 1024, "-m": 1024**2, "-g": 1024**3, "": 1024, "-w": 1024}


@importer("free", recognises=lambda text: _FREE_ROW.search(text) is not None, hints=("free", "mem:"))
def free(capture: Capture) -> Part:
    """Memory and swap. Numbers without a unit count only where the command with its option is told."""
    unit = None
    if capture.command and capture.command.split()[0] == "free":
        unit = _FREE_UNITS.get((capture.command.split() + [""])[1])
    memory: dict[str, Any] = {}
    for match in _FREE_ROW.finditer(capture.text):
        values = [_amount(word, unit) for word in match.group(2).split()]
        is_swap = match.group(1) in ("Swap", "交换", "置換", "Auslager")
        names = {"swap_total": 0, "swap_free": 2} if is_swap else {"total": 0, "available": 5}
        for name, at in names.items():
            if len(values) > at and values[at] is not None:
                memory.setdefault(name, values[at])
    return {"memory": memory} if memory else {}


def _amount(word: str, unit: int | None) -> int | None:
    stated = size(word)
    if stated is not None:
        return stated
    number = whole(word)
    if number is None or not word.isdigit():
        return None
    return number * unit if unit else (0 if number == 0 else None)


_ULIMIT = re.compile(
    r"^(open files|max locked memory|max user processes|stack size) .{0,40}\) unlimited *$", re.MULTILINE
)
_PROC_LIMIT = re.compile(
    r"^Max (open files|locked memory|processes|stack size) {1,20}([0-9]{1,20}|unlimited) {1,20}([0-9]{1,20}|unlimited)",
    re.MULTILINE,
)
_LIMITS = {
    "open files": "nofile",
    "max locked memory": "memlock",
    "locked memory": "memlock",
    "max user processes": "nproc",
    "processes": "nproc",
    "stack size": "stack",
}


@importer(
    "limits",
    recognises=lambda text: _ULIMIT.search(text) is not None or _PROC_LIMIT.search(text) is not None,
    sections=("ulimit -a", "/proc/self/limits"),
    hints=("ulimit", "open files"),
)
def limits(capture: Capture) -> Part:
    """Limits of /proc/self/limits. Of `ulimit -a` only those that are unlimited: it does not tell the hard ones."""
    found = [
        {"name": _LIMITS[match.group(1)], "soft": _limit(match.group(2)), "hard": _limit(match.group(3))}
        for match in _PROC_LIMIT.finditer(capture.text)
    ]
    found += [{"name": _LIMITS[match.group(1)], "soft": None, "hard": None} for match in _ULIMIT.finditer(capture.text)]
    return {"limits": found} if found else {}


def _limit(word: str) -> int | None:
    return None if word == "unlimited" else int(word)
