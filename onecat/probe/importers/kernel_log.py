"""The kernel log, from dmesg or the journal in any of their timestamp forms: what it tells of GPUs, PCIe and modules.

Sources: Xid messages https://docs.nvidia.com/deploy/xid-errors/; the driver's other messages
https://github.com/NVIDIA/open-gpu-kernel-modules; AER https://docs.kernel.org/PCI/pcieaer-howto.html; PCI resources
https://github.com/torvalds/linux/blob/master/drivers/pci/setup-res.c; module signatures
https://docs.kernel.org/admin-guide/module-signing.html.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from onecat.probe.importers.registry import Capture, Part, importer
from onecat.probe.importers.text import pci_address, short_lines

Event = dict[str, Any]


@dataclass(frozen=True)
class Rule:
    """A kind of event. marks: text of which its line holds one. pattern: of its message, which may go on over `lines`
    lines; its groups xid, process and those of `_at` become facts. accept: a last look at the message, for lines that
    occur on healthy machines too."""

    kind: str
    marks: tuple[str, ...]
    pattern: str
    lines: int = 1
    accept: Callable[[str], bool] = lambda message: True


def _at(group: str = "address") -> str:
    """A pattern for the address of a PCI function."""
    return rf"(?P<{group}>(?:[0-9a-fA-F]{{4,8}}:)?[0-9a-fA-F]{{2}}:[0-9a-fA-F]{{2}}(?:\.[0-7])?)"


_GPU_WORDS = ("nvidia", "davinci", "devmm_svm", "hisi_hdc", "xserver_misc_device_t", "dri_device_t", "/dri/")


def _is_about_gpu(message: str) -> bool:
    return any(word in message for word in _GPU_WORDS) or "module_load" in message


RULES: tuple[Rule, ...] = (
    Rule(
        "xid",
        ("NVRM: Xid",),
        rf"NVRM: Xid \((?:PCI:)?{_at()}[^)]{{0,20}}\): (?P<xid>[0-9]{{1,4}})\b"
        r"(?:.*?\bname=(?P<process>[^,<]{1,80}))?",
    ),
    Rule(
        "gpu-fell-off",
        ("fallen off the bus",),
        rf"NVRM: The NVIDIA GPU {_at()} .{{0,120}}fallen off the bus",
        lines=3,
    ),
    Rule("gpu-fell-off", ("fallen off the bus",), rf"NVRM:.{{0,60}}?(?:{_at()}.{{0,60}}?)?fallen off the bus"),
    Rule(
        "gpu-ignored",
        ("Legacy drivers", "is not supported by"),
        rf"NVRM: The NVIDIA (?:GPU {_at()} )?.{{0,160}}?installed in this .{{0,20}}?system is\s{{1,3}}"
        r"(?:supported through .{1,60} Legacy drivers|not supported by)",
        lines=3,
    ),
    Rule(
        "gpu-init-failed",
        ("RmInitAdapter failed", "rm_init_adapter failed", "probe routine failed", "devices were initialized"),
        rf"NVRM: (?:GPU {_at()}: |.{{0,30}}?)"
        r"(?:RmInitAdapter failed|rm_init_adapter failed|.{0,20}probe routine failed|None of the NVIDIA)",
    ),
    Rule("gpu-init-failed", ("nvidia: probe of",), rf"nvidia: probe of {_at()} failed with error"),
    Rule("gpu-init-failed", ("nvidia ",), rf"nvidia {_at()}: probe with driver nvidia failed with error"),
    Rule(
        "bar-unassigned",
        ("assigned to your NVIDIA device is invalid",),
        rf"NVRM: This PCI I/O region assigned to your NVIDIA device is invalid(?:.{{0,80}}?\(PCI:{_at()})?",
        lines=2,
    ),
    # Only memory of a function's own BARs: I/O ports, option ROMs and bridge windows often find no place on healthy
    # machines.
    Rule(
        "bar-unassigned",
        ("no space for", "failed to assign", "can't assign; no space"),
        rf"(?:pci|nvidia) {_at()}: BAR [0-5](?: \[mem [^\]]{{1,60}}\])?: "
        r"(?:no space for \[mem|failed to assign(?! \[io)|can't assign; no space)",
    ),
    Rule("version-mismatch", ("NVRM: API mismatch",), r"NVRM: API mismatch"),
    Rule("gsp-timeout", ("GSP RPC error prints",), rf"NVRM: .{{0,80}}?GSP RPC error prints for GPU at PCI:{_at()}"),
    Rule(
        "gsp-timeout",
        ("GSP", "gsp"),
        r"NVRM: .{0,80}?(?:GSP RM heartbeat timed out|[Tt]imeout .{0,40}waiting for RPC (?:response )?from G(?:PU|SP)"
        r"|kgspWaitForRmInitDone\w{0,10}: .{0,40}fail|[Ff]ailed to boot GSP)",
    ),
    Rule("pcie-error", ("PCIe Bus Error:",), rf"[\w-]{{1,30}} {_at()}: (?:AER: )?PCIe Bus Error: severity="),
    Rule(
        "iommu-fault",
        ("DMAR: [",),
        rf"DMAR: \[(?:DMA|INTR-REMAP)[^\]]{{0,40}}\] Request device \[{_at()}\]",
    ),
    Rule(
        "iommu-fault",
        ("IO_PAGE_FAULT",),
        rf"(?:\b\w{{1,20}} {_at('owner')}: )?AMD-Vi: Event logged \[IO_PAGE_FAULT(?: device={_at()})?",
    ),
    Rule(
        "selinux-denial",
        ("avc:",),
        r"avc:\s{1,4}denied\s.{0,400}?\bcomm=\"?(?P<process>[^\"\s]{1,80})",
        accept=_is_about_gpu,
    ),
    Rule(
        "module-refused",
        ("is rejected", "unsigned module loading is restricted"),
        r"Loading of (?:unsigned module|module with (?:unavailable key|unsupported crypto)) is rejected"
        r"|Lockdown: .{1,60}unsigned module loading is restricted",
    ),
    Rule(
        "module-refused",
        ("ey was rejected", "required key not available", "version magic", "version of symbol", "Unknown symbol"),
        r"nvidia[\w-]{0,12}'?: .{0,80}?(?:[Kk]ey was rejected|required key not available|version magic"
        r"|disagrees about version of symbol|Unknown symbol)",
    ),
    Rule(
        "out-of-memory-kill",
        ("Killed process", "Kill process"),
        r"(?:Memory cgroup o|O)ut of memory: Kill(?:ed)? process [0-9]{1,8} \((?P<process>[^)]{1,80})\)",
    ),
    Rule(
        "illegal-instruction",
        ("trap invalid opcode",),
        r"(?:traps: )?(?P<process>[^\s\[\]]{1,80})\[[0-9]{1,8}\] trap invalid opcode ",
    ),
    Rule(
        "hung-task",
        ("blocked for more than",),
        r"INFO: task (?P<process>.{1,80}?):[0-9]{1,8} blocked for more than [0-9]{1,6} seconds",
    ),
    Rule("other", ("SXid (",), rf"nvidia-nvswitch[0-9]{{0,3}}: SXid \(PCI:{_at()}"),
    Rule(
        "other",
        ("segfault at",),
        r"(?P<process>[^\s\[\]]{1,80})\[[0-9]{1,8}\]: segfault at .{1,120} in lib(?:nccl|cuda|torch|vllm)\w{0,40}\.so",
    ),
)

_MARKS = tuple(dict.fromkeys(mark for rule in RULES for mark in rule.marks))
_SECONDS = re.compile(r"^(?:\w+ *: *\w+ *: )?\[ *([0-9]{1,9}\.[0-9]{1,9})\]")
_TIMES = (
    re.compile(r"^ *(?:<[0-9]{1,4}>)?(?:kern|user|daemon|syslog|auth) *: *\w{1,8} *: *"),
    re.compile(r"(?:^|\s)kernel(?:\[[0-9]{0,8}\])?: "),
    re.compile(r"^ *(?:<[0-9]{1,4}>)?\[(?: *[0-9]{1,9}\.[0-9]{1,9}|[A-Z][a-z]{2} [A-Z][a-z]{2} [0-9 :]{10,30})\] ?"),
    re.compile(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.,+-]{8,30} "),
    re.compile(r"^(?:audit(?:\[[0-9]{0,8}\])?: )"),
)
_STRONG = re.compile(
    r"^(?:kern *: *\w{1,8} *: |\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ 0-9][0-9] [0-9:]{8} [0-9]{4}\] "
    r"|(?:[A-Z][a-z]{2} [ 0-9][0-9] [0-9:]{8}|[0-9]{4}-[0-9-]{5}[T ][0-9:.,+-]{8,24}) \S{1,255} kernel: )",
    re.MULTILINE,
)
_WEAK = re.compile(r"^(?:<[0-9]{1,4}>)?\[ *[0-9]{1,9}\.[0-9]{6}\] ", re.MULTILINE)
_EVIDENCE = (
    "NVRM: ",
    "Killed process",
    "avc:  denied",
    "trap invalid opcode",
    "PCIe Bus Error:",
    "blocked for more than",
    "Key was rejected by service",
    "unavailable key is rejected",
)


def _is_kernel_log(text: str) -> bool:
    if any(mark in text for mark in _EVIDENCE) and "NVRM version:" not in text:
        return True
    return _STRONG.search(text) is not None or len(list(islice(_WEAK.finditer(text), 3))) == 3


CHANGED_RECOVERY = 154
"""NVIDIA's error number for a change of what brings the GPU back: the last one counts, not the first."""


@importer(
    "kernel log",
    recognises=_is_kernel_log,
    sections=("dmesg", "dmesg -T", "journalctl -k", "journalctl -k -b", "journalctl -k -b --no-pager"),
    hints=("dmesg", "kernel", "journal", "xid"),
)
def kernel_log(capture: Capture) -> Part:
    """The events, equal ones counted; an empty list when the log tells of none."""
    lines = short_lines(capture.text)
    if capture.exit_code == 127 or (not capture.text.strip() and capture.exit_code not in (None, 0, 1)):
        return {}
    if _is_refusal(lines):
        return {"notes": [{"source": "kernel-log", "kind": "permission", "text": _refusal(lines)}]}
    events: dict[tuple[Any, ...], Event] = {}
    assigned = _assigned_bars(capture.text)
    for number, line in enumerate(lines):
        event = _event(lines, number) if any(mark in line for mark in _MARKS) else None
        if event is None or _found_its_place(line, assigned):
            continue
        identity = (event["kind"], event["xid"], event["address"], "severity=Correct" in event["text"])
        before = events.setdefault(identity, event)
        if before is not event:
            before["count"] += 1
            if event["xid"] == CHANGED_RECOVERY:
                before["text"] = event["text"]
            before["seconds"] = event["seconds"] if event["seconds"] is not None else before["seconds"]
            before["process"] = before["process"] or event["process"]
    return {"kernel_events": list(events.values())}


def _event(lines: Sequence[str], number: int) -> Event | None:
    """The event of which a line holds a mark; its message may have begun on a line before."""
    line = lines[number]
    for rule in RULES:
        if not any(mark in line for mark in rule.marks):
            continue
        for first in range(number, max(-1, number - rule.lines), -1):
            opening = _message(lines[first])
            message = " ".join([opening, *map(_continuation, lines[first + 1 : first + rule.lines])])
            match = re.search(rule.pattern, message)
            if match and match.start() < len(opening) and rule.accept(message):
                told = opening if match.end() <= len(opening) else message[: match.end()]
                return _facts(rule, match, told, lines[first])
    return None


def _facts(rule: Rule, match: re.Match[str], message: str, line: str) -> Event:
    groups = match.groupdict()
    address = next((groups[name] for name in ("address", "owner") if groups.get(name)), None)
    seconds = _SECONDS.match(line)
    return {
        "kind": rule.kind,
        "text": message[match.start() :].strip(),
        "address": pci_address(address),
        "xid": int(groups["xid"]) if groups.get("xid") else None,
        "process": groups.get("process"),
        "count": 1,
        "seconds": float(seconds.group(1)) if seconds else None,
    }


def _message(line: str) -> str:
    """A line without its time, host and level."""
    for pattern in _TIMES:
        match = pattern.search(line, 0, 300)
        if match:
            line = line[match.end() :]
    return line.strip()


def _continuation(line: str) -> str:
    """A following line of the same message, which the driver begins anew."""
    return _message(line).removeprefix("NVRM:").strip()


_BAR = re.compile(
    r"(?:pci|nvidia) ((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]): "
    r"(BAR [0-5])(?: \[mem [^\]\n]{1,60}\])?:( assigned)?"
)


def _assigned_bars(text: str) -> frozenset[tuple[str | Any, ...]]:
    """Functions and their BARs that found their place at a later attempt."""
    if "BAR " not in text:
        return frozenset()
    return frozenset(match.group(1, 2) for match in _BAR.finditer(text) if match.group(3))


def _found_its_place(line: str, assigned: frozenset[tuple[str | Any, ...]]) -> bool:
    match = _BAR.search(line)
    return match is not None and match.group(1, 2) in assigned


_REFUSED = re.compile(r"\b(?:dmesg|journalctl|klogctl|kmsg)\b.{0,80}(?:not permitted|Permission denied)")


def _is_refusal(lines: Sequence[str]) -> bool:
    return len(lines) < 5 and any(map(_REFUSED.search, lines))


def _refusal(lines: Sequence[str]) -> str:
    return next(line.strip() for line in lines if _REFUSED.search(line))
