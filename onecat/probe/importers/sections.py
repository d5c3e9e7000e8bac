"""Splits a text that holds the output of several programs into one section for each.

Known separators: those of onecat's own collector (`===== onecat: NAME`), shell prompts with the command (`$ df -h`,
`root@gpu1:~# dmesg`), headings with it (`## dmesg`, `# $ nvidia-smi -q`, `=== free -m ===`, `==> dmesg.txt <==`).
Text between or without separators is kept: importers find their own form in it too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

COLLECTOR = "===== onecat: "
"""Begins the lines with which the collector begins and ends its sections (agent/collector.sh)."""

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
_END = re.compile(r"end (?P<name>.+) (?P<code>[0-9]{1,3}|timeout)$")


@dataclass(frozen=True)
class Section:
    """The output of one program.

    name: for people. command: the program with its options or the file, if it was told.
    exit_code: of the program, where the collector tells it; 127 when it is not there. timed_out: it gave no answer.
    """

    name: str
    text: str
    command: str | None = None
    exit_code: int | None = None
    timed_out: bool = False


def split_sections(name: str, text: str) -> tuple[Section, ...]:
    """The sections of a text, in their order; the text itself as the only one when it has none.

    name: of the whole, which stays in front of the sections' own.
    """
    if text.startswith(COLLECTOR) or f"\n{COLLECTOR}" in text:
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
    """A section ends with the line that says so, or with the next one's beginning where it was cut off."""
    name: str | None = None
    lines: list[str] = []
    for line in [*text.split("\n"), COLLECTOR]:
        if not line.startswith(COLLECTOR):
            lines.append(line)
            continue
        head = line[len(COLLECTOR) :].strip()
        end = _END.fullmatch(head)
        if name is not None:
            code = end.group("code") if end else None
            exit_code = int(code) if code and code != "timeout" else None
            timed_out = code in ("timeout", "124", "137")
            yield Section(name, "\n".join(lines), name, exit_code, timed_out)
        name = None if end or not head else head
        lines = []
