"""What `onecat model verify` does beside looking at files: the order of nibbles, the original, perplexity."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from onecat.cli.progress_line import ProgressLine
from onecat.errors import OnecatError

if TYPE_CHECKING:
    from onecat.checkpoints.integrity import Fault, Progress, Verification
    from onecat.nvfp4.codec import Codec
    from onecat.nvfp4.comparison import Comparison, Perplexity
    from onecat.nvfp4.dequantisation import Original


@dataclass(frozen=True)
class Wanted:
    """What a person asked for. jobs: threads. text: to measure perplexity on; window, limit, python: for that."""

    directory: Path
    original: Path | None
    text: Path | None
    window: int | None
    limit: float | None
    python: Path | None
    jobs: int | None

    def check(self) -> None:
        """Refuse what cannot be done, before long work. Raises OnecatError (exit code 2)."""
        from onecat.nvfp4.dequantisation import open_original

        if self.text is None and (self.window, self.limit, self.python) != (None, None, None):
            raise OnecatError("--window, --limit and --python are for --perplexity", expected="--perplexity FILE")
        if self.limit is not None and self.original is None:
            raise OnecatError("--limit is for two perplexities", expected="--against ORIGINAL")
        if self.original is not None:
            open_original(self.original)
        if self.text is not None:
            from onecat.deploy.perplexity import read_text

            read_text(self.text)
            self.interpreter()

    def interpreter(self) -> Path:
        """The Python to measure perplexity with. Raises OnecatError (exit code 2) when there is none."""
        from onecat.images.torch_interpreter import interpreter_with_torch
        from onecat.paths import home

        return interpreter_with_torch(home(), self.python)


@dataclass(frozen=True)
class Checked:
    """found: with all faults. comparison, perplexity: None where not asked for, or not possible."""

    found: Verification
    comparison: Comparison | None = None
    perplexity: Perplexity | None = None


def check_weights(found: Verification, wanted: Wanted, line: ProgressLine) -> Checked:
    """Look at the weights of a directory whose files were looked at.

    Raises OnecatError when the original or the text cannot be read, or perplexity not be measured; OSError.
    """
    from onecat.nvfp4.codec import choose
    from onecat.nvfp4.dequantisation import open_original, quantised_weights

    try:
        ours = open_original(wanted.directory)
        quantised_weights(ours)
    except OnecatError as error:
        return Checked(_not_read(found, error, wanted))
    codec = choose(wanted.jobs)
    found = _nibbles(found, ours, codec)
    comparison = perplexity = None
    if wanted.original is not None:
        comparison = _compared(ours, wanted.original, codec, line)
        found = _with(found, *comparison.faults, checked=f"all weights against those of {wanted.original}")
    if wanted.text is not None:
        perplexity = _measured(wanted, wanted.text, codec, line)
        found = _with(found, *perplexity.faults(), checked=f"perplexity on {wanted.text}")
    return Checked(found, comparison, perplexity)


def _not_read(found: Verification, error: OnecatError, wanted: Wanted) -> Verification:
    """The weights cannot be read, which is a fault of its own where nothing else says why."""
    from onecat.checkpoints.integrity import Fault

    if wanted.original is None and wanted.text is None:
        return found
    if not found.is_fine:
        return _with(found, skipped=f"the weights themselves, which cannot be read: {error.found}")
    step = error.next_steps[0] if error.next_steps else ""
    return _with(found, Fault("unreadable-weights", "fail", error.found, "the weights", step))


def _compared(ours: Original, original: Path, codec: Codec, line: ProgressLine) -> Comparison:
    from onecat.nvfp4.comparison import compare
    from onecat.render import verifications

    def show(progress: Progress) -> None:
        line.show(lambda: verifications.progress_line(progress))

    found = compare(ours, original, codec, show)
    line.clear()
    return found


def _measured(wanted: Wanted, text: Path, codec: Codec, line: ProgressLine) -> Perplexity:
    from onecat.deploy import perplexity

    request = perplexity.Request(
        wanted.directory,
        wanted.original,
        text,
        wanted.interpreter(),
        wanted.window,
        wanted.limit,
        wanted.jobs or len(os.sched_getaffinity(0)),
    )
    found = perplexity.measure(request, codec, lambda told: line.show(lambda: told))
    line.clear()
    return found


def _nibbles(found: Verification, ours: Original, codec: Codec) -> Verification:
    """With what the weights say of the order of nibbles."""
    from onecat.checkpoints.integrity import Fault
    from onecat.nvfp4.comparison import nibble_order

    try:
        order = nibble_order(ours, codec)
    except OnecatError as error:
        return _with(found, skipped=f"the order of nibbles: {error.found}")
    if order is None:
        return found
    if order.verdict == "unseen":
        return _with(found, skipped="the order of nibbles: these weights do not tell it; --against ORIGINAL does")
    measured = f"channels of {order.tensors} tensors fit each other"
    if order.verdict == "right":
        return _with(found, checked=f"order of nibbles: {measured} ({order.strength:.0f} deviations above chance)")
    return _with(found, Fault(
        "nibbles-swapped", "fail",
        f"the nibbles are swapped, the odd column is in the low four bits: {measured} with columns exchanged "
        f"({order.exchanged:.0f} deviations above chance), and not as they are ({order.strength:.1f})",
        "the weights", "convert the original again with `onecat model convert`",
        "Engines read the even column from the low four bits: every answer becomes noise.",
        "https://github.com/vllm-project/compressed-tensors/blob/main/src/compressed_tensors/compressors/nvfp4/helpers.py",
    ))  # fmt: skip


def _with(found: Verification, *faults: Fault, checked: str = "", skipped: str = "") -> Verification:
    from onecat.checkpoints.integrity.records import SEVERITIES

    together = sorted((*found.faults, *faults), key=lambda fault: SEVERITIES.index(fault.severity))
    return replace(
        found,
        faults=tuple(dict.fromkeys(together)),
        checked=(*found.checked, *([checked] if checked else [])),
        skipped=(*found.skipped, *([skipped] if skipped else [])),
    )
