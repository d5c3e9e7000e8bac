"""What is said of several GPUs alike is shown once."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from onecat.doctor import Finding

_SUBJECT = re.compile(r"GPU (\d+)")
_OPTION = re.compile(r"(?<= )-i (\d+)\b")


def grouped(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings in their order, those that say the same of several GPUs of one host made one.

    Its subject lists the GPUs, its evidence is that of all, and `-i` of nvidia-smi names them all (it takes a list).
    """
    groups: dict[object, list[Finding]] = {}
    for position, finding in enumerate(findings):
        match = _SUBJECT.fullmatch(finding.subject)
        own = f"-i {match.group(1)}" if match else None
        fix = tuple(line.replace(own, "-i N") if own and own in _options(line) else line for line in finding.fix)
        key: object = (finding.check, finding.status, finding.title, fix) if match else position
        groups.setdefault(key, []).append(finding)
    return tuple(each[0] if len(each) == 1 else _merged(each) for each in groups.values())


def _options(line: str) -> list[str]:
    return [match.group() for match in _OPTION.finditer(line)]


def _merged(alike: list[Finding]) -> Finding:
    numbers = [finding.subject.removeprefix("GPU ") for finding in alike]
    return replace(
        alike[0],
        subject=f"GPU {', '.join(numbers)}",
        evidence=tuple(line for finding in alike for line in finding.evidence),
        fix=tuple(
            _OPTION.sub(f"-i {','.join(numbers)}", line) if f"-i {numbers[0]}" in _options(line) else line
            for line in alike[0].fix
        ),
    )
