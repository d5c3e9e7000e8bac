"""What `onecat model verify` prints: progress, the result for a person, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from onecat.checkpoints.integrity import Fault, Progress, Severity, Verification
from onecat.render.columns import harmless, wrap
from onecat.render.pulls import duration, size

if TYPE_CHECKING:
    from onecat.nvfp4.comparison import Comparison, Perplexity

WIDTH = 80
_MARKS: dict[Severity, str] = {"fail": "FAIL", "warn": "WARN", "info": "INFO"}


def progress_line(progress: Progress) -> str:
    """One line about how far a reading has come."""
    percent = f" ({100 * progress.done // progress.total} %)" if progress.total else ""
    left = progress.seconds_left
    rest = f", {duration(left)} left" if left is not None else ""
    speed = f", {size(progress.speed)}/s" if progress.seconds > 0 else ""
    return f"{progress.what}: {size(progress.done)} of {size(progress.total)}{percent}{speed}{rest}"


def verification_document(
    found: Verification, comparison: Comparison | None = None, perplexity: Perplexity | None = None
) -> dict[str, Any]:
    """The result as a JSON-ready document (onecat.model-verify/1)."""
    from onecat.render.weight_comparisons import comparison_document, perplexity_document

    return {
        "schema": "onecat.model-verify/1",
        "directory": found.directory,
        "fine": found.is_fine,
        "weight_files": found.weight_files,
        "tensors": found.tensors,
        "weight_bytes": found.weight_bytes,
        "problems": [asdict(fault) for fault in found.faults],
        "checked": list(found.checked),
        "skipped": list(found.skipped),
        "comparison": comparison_document(comparison),
        "perplexity": perplexity_document(perplexity),
        "sha256": dict(sorted(found.digests.items())),
        "summary": _summary(found),
    }


def verification_lines(
    found: Verification, comparison: Comparison | None = None, perplexity: Perplexity | None = None,
    columns: int = WIDTH,
) -> Iterator[str]:  # fmt: skip
    """The result for a person, in lines of at most `columns` where words allow."""
    from onecat.render.weight_comparisons import comparison_lines, perplexity_lines

    if comparison is not None:
        yield from comparison_lines(comparison, columns)
    if perplexity is not None:
        yield from perplexity_lines(perplexity, columns)
    explained: set[tuple[str, str]] = set()
    for fault in found.faults:
        yield from _fault(fault, columns, is_known=(fault.code, fault.fix) in explained)
        explained.add((fault.code, fault.fix))
    for text in found.checked:
        yield from _wrapped(f"looked at  {text}", columns, 11)
    for text in found.skipped:
        yield from _wrapped(f"left out   {text}", columns, 11)
    counts = _summary(found)
    told = ", ".join(f"{counts[severity]} {severity}" for severity in _MARKS if counts[severity])
    verdict = "is whole as far as was looked" if found.is_fine else "is not whole"
    yield from _wrapped(f"{found.directory} {verdict}" + (f": {told}" if told else ""), columns, 0)


def _fault(fault: Fault, columns: int, *, is_known: bool) -> Iterator[str]:
    yield from _wrapped(f"{_MARKS[fault.severity]}  {fault.where}: {fault.text} [{fault.code}]", columns, 6)
    if is_known:
        return
    if fault.why:
        yield from _wrapped(f"      {fault.why}", columns, 6)
    if fault.fix:
        yield from _wrapped(f"      fix: {fault.fix}", columns, 11)


def _summary(found: Verification) -> dict[Severity, int]:
    return {severity: sum(fault.severity == severity for fault in found.faults) for severity in _MARKS}


def _wrapped(text: str, columns: int, indent: int) -> list[str]:
    head = text[: len(text) - len(text.lstrip())]
    words = harmless(text)
    if indent and not head:
        # The mark and the two blanks after it stay as they are.
        return wrap(words[indent:], columns, first=words[:indent], following=" " * indent)
    return wrap(words, columns, first=head, following=" " * indent)
