"""What the errors of modules mean, as faults."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from onecat.checkpoints.integrity import Fault
from onecat.checkpoints.numbering import counted, first_of
from onecat.nvfp4.comparison.limits import limits_of
from onecat.nvfp4.comparison.records import ComparedModule

FIX = "convert the original again with `onecat model convert`, or take the publisher's files again"


def faults_of_modules(modules: Iterable[ComparedModule]) -> Iterator[Fault]:
    """One fault for all modules of one scheme with the same cause."""
    grouped: dict[tuple[str, str, str | None], list[ComparedModule]] = defaultdict(list)
    wrong = {cause for each in modules if (cause := each.cause) is not None}
    for each in modules:
        if each.verdict != "usual":
            # What was not looked into is told with the others, when they all have the same cause.
            cause = each.cause or (next(iter(wrong)) if len(wrong) == 1 and not each.was_tried else None)
            grouped[each.verdict, each.scheme, cause].append(each)
    for (verdict, scheme, cause), those in grouped.items():
        yield _fault(verdict, scheme, cause, sorted(those, key=lambda each: -each.relative_error))


def told_error(error: float) -> str:
    """A relative error in words."""
    return f"{error:.2%}" if error < 10 else f"{error:.3g} times its weight"


def _fault(verdict: str, scheme: str, cause: str | None, those: list[ComparedModule]) -> Fault:
    limits = limits_of(scheme)
    told = first_of([f"{each.name} ({told_error(each.relative_error)})" for each in those], 3, noun="modules")
    count = f"{counted(len(those), 'module')} of {scheme}"
    usual = f"usual is {limits.usual:.1%}"
    if verdict == "far":
        return Fault(
            "further-than-usual", "warn", f"{count}: further from the original than usual: {told}; {usual}",
            "the weights", "measure what it does: --perplexity FILE",
            "Training with quantisation, or rounding that looks at outputs (GPTQ), moves weights that far.",
        )  # fmt: skip
    if cause is None:
        return Fault(
            "far-from-original", "fail",
            f"{count}: not the weights of the original: {told}; {usual}, {limits.fail:.1%} the limit",
            "the weights", f"see that ORIGINAL is what this was made of; then {FIX}",
            "Tried, and not it: swapped nibbles, an inverted tensor scale, block scales in the order of kernels, "
            "transposed matrices, heads in another layout, smoothed columns, matrices exchanged.",
        )  # fmt: skip
    return Fault("far-from-original", "fail", f"{count}: {cause}: {told}; {usual}", "the weights", FIX)
