"""Splits a text that holds the output of several programs into one section for each.

Known separators: those of onecat's own collector (`===== onecat: NAME`), shell prompts with the command (`$ df -h`,
`root@gpu1:~# dmesg`), headings with it (`## dmesg`, `# $ nvidia-smi -q`, `=== free -m ===`, `==> dmesg.txt <==`).
Text between or without separators is kept: importers find their own form in it too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

COLLECTOR = "===== onecat: "
"""Begins the line with which the collector begins and ends its sections (agent/collector.sh)."""

_PROGRAMS = frozenset(
    re.findall(
        r"\S+",
        """
        nvidia-smi lspci dmesg journalctl df free uname cat docker podman lscpu getenforce sestatus ss netstat
        nvidia-ctk nvidia-container-cli nvcc nginx npu-smi ulimit env printenv python python3 modinfo lsmod ls id nproc
        getconf timedatectl hostnamectl mokutil vllm topo sysfs ausearch systemctl ip numactl aa-status head tail grep
        """,
    )
)
_FILES = ("/proc/", "/etc/", "/sys/", "/dev/", "/usr/", "/var/")

_HEADING = re.compile(
    r"(?:#{1,4} (?:\$ )?|(?:[\w.@:~/\[\] -]{0,80})?[$#] |={3,} ?|-{3,} ?|==> )"
    r"(?P<command>[\w./-]\S*(?: [^\n]*?)?)(?: ?={3,}| ?-{3,}| <==)?"
)
_END = re.compile(r"end (?P<name>.+) (?P<code>[0-9]{1,3})$")
_NOTES = {124: ("timeout", "gave no answer in time"), 137: ("timeout", "gave no answer in time")}


@dataclass(frozen=True)
class Section:
    """The output of one program. name: for people. command: the program with its options or the file, if it was told.

    note: a Note of onecat.facts as a dictionary, when the collector says that the program failed.
    """

    name: str
    text: str
    command: str | None = None
    note: dict[str, Any] | None = None


def split_sections(name: str, text: str) -> tuple[Section, ...]:
    """The sections of a text, in their order; the text itself as the only one when it has none.

    name: of the whole, which stays in front of the sections' own.
    """
    if COLLECTOR in text:
        return tuple(_collector_sections(text))
    found: list[Section] = []
    command: str | None = None
    lines: list[str] = []
    for line in text.split("\n"):
        heading = heading_command(line) if line[:1] in "#$=-[" or "$ " in line[:100] or "# " in line[:100] else None
        if heading is None:
            lines.append(line)
            continue
        found.append(_section(name, command, lines))
        command, lines = heading, []
    found.append(_section(name, command, lines))
    return tuple(each for each in found if each.text.strip()) or (Section(name, text),)


def _section(name: str, command: str | None, lines: list[str]) -> Section:
    return Section(f"{name}: {command}" if command else name, "\n".join(lines), command)


def heading_command(line: str) -> str | None:
    """The command that a separating line names, in its plain spelling, or None when it separates nothing."""
    if len(line) > 1000:
        return None
    match = _HEADING.fullmatch(line.strip())
    return plain_command(match.group("command")) if match else None


def plain_command(text: str) -> str | None:
    """A command without sudo and paths, `cat FILE` as FILE; None when it names no program that matters."""
    words = text.split()
    while words and words[0] in ("sudo", "-n", "cat", "LC_ALL=C", "LANG=C"):
        words = words[1:]
    if not words:
        return None
    if words[0].startswith(_FILES) and "/bin/" not in words[0] and "/sbin/" not in words[0]:
        return words[0]
    program = words[0].rpartition("/")[2]
    return " ".join([program, *words[1:]]) if program in _PROGRAMS else None


def _collector_sections(text: str) -> Iterator[Section]:
    name: str | None = None
    lines: list[str] = []
    for line in [*text.split("\n"), COLLECTOR]:
        if not line.startswith(COLLECTOR):
            lines.append(line)
            continue
        head = line[len(COLLECTOR) :].strip()
        end = _END.fullmatch(head)
        if name is not None:
            code = int(end.group("code")) if end else 0
            yield Section(name, "\n".join(lines), name, _failure(name, code, lines))
        name = None if end or not head else head
        lines = []


def _failure(name: str, code: int, lines: list[str]) -> dict[str, Any] | None:
    if code == 0:
        return None
    said = next((line.strip() for line in reversed(lines) if line.strip()), "")
    if code == 127:
        return {"source": name, "kind": "absent", "text": said or f"{name} is not there"}
    if code in _NOTES:
        kind, text = _NOTES[code]
        return {"source": name, "kind": kind, "text": f"{name} {text}"}
    refused = re.search(r"permission denied|not permitted|must be root|access denied", said, re.IGNORECASE)
    return {"source": name, "kind": "permission" if refused else "error", "text": said or f"exit code {code}"}
