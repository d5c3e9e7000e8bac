"""What a verification says."""

from __future__ import annotations

from dataclasses import dataclass, field

from onecat.checkpoints.records import Severity

SEVERITIES: tuple[Severity, ...] = ("fail", "warn", "info")

FORMAT_SOURCE = "https://github.com/huggingface/safetensors"


@dataclass(frozen=True)
class Fault:
    """Something that is not as it should be.

    code: stable. severity: `fail` stops or spoils serving, `warn` may, `info` is worth knowing. where: the file, or
    a tensor of it as `FILE: TENSOR`. why: what comes of it. source: of the rule.
    """

    code: str
    severity: Severity
    text: str
    where: str
    fix: str = ""
    why: str = ""
    source: str = FORMAT_SOURCE


@dataclass(frozen=True)
class Verification:
    """What was looked at and what was found.

    checked: what was done, in words, with its numbers. skipped: what was not done, with the reason and the command
    that does it. weight_files, tensors, weight_bytes: of all weight files with a whole header.
    """

    directory: str
    faults: tuple[Fault, ...]
    checked: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    weight_files: int = 0
    tensors: int = 0
    weight_bytes: int = 0
    digests: dict[str, str] = field(default_factory=dict)

    @property
    def is_fine(self) -> bool:
        """Whether nothing was found that stops or spoils serving."""
        return not any(fault.severity == "fail" for fault in self.faults)
