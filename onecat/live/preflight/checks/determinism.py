"""Identical requests get identical answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onecat.doctor import Verdict, check
from onecat.live.preflight.look import Look, needs
from onecat.live.preflight.observing.answers import Repeats

_QUOTED = 40


@check(
    "preflight.determinism",
    title="The same request gets the same answer",
    why="At temperature 0 and one request at a time a healthy server gives the same text each time. Another one points "
    "to memory or kernels that calculate wrongly, or to servers of different releases behind one address.",
    fix=("onecat preflight again, while nobody else asks", "onecat doctor --only 'gpu.*'"),
    source=("https://docs.vllm.ai/en/latest/usage/reproducibility/",),
    requires=needs(Repeats),
    group="answers",
    place=2,
)
def determinism(look: Look) -> Iterator[Verdict]:
    """preflight.repeats identical requests at temperature 0, one after the other, after one that is not counted.
    Where others were asking meanwhile, the batch was another one each time, which may change the text of a healthy
    server; that is told as information."""
    seen = look.of(Repeats)
    logs = f"onecat logs {look.name}{look.host_option}"
    if seen.failure:
        told = f"Request {len(seen.texts) + 1} had no answer: {seen.failure}"
        yield Verdict("fail", told, evidence=(f"asked: {seen.question!r}",), fix=(logs,))
        return
    kinds = list(dict.fromkeys(seen.texts))
    if "" in kinds:
        empty = seen.texts.count("")
        told = f"{empty} of {len(seen.texts)} answers are empty"
        yield Verdict("fail", told, evidence=(f"asked: {seen.question!r}",), fix=(logs,))
        return
    if len(kinds) == 1:
        yield Verdict("pass", f"{len(seen.texts)} identical requests, one text", evidence=(f"text: {kinds[0][:80]!r}",))
        return
    at = _differ_at(kinds)
    evidence = tuple(f"{seen.texts.count(each)} x ...{each[at : at + _QUOTED]!r}" for each in kinds[:4])
    title = f"{len(seen.texts)} identical requests have {len(kinds)} different texts, from character {at + 1} on"
    if seen.in_between:
        title += f"; {seen.in_between} requests of others ran meanwhile"
        yield Verdict("info", title, evidence=evidence, fix=("again, while nobody else asks",))
        return
    yield Verdict(
        "warn",
        title,
        evidence=evidence,
        fix=(
            "while nobody else asks:",
            f"onecat preflight {look.name}{look.host_option} --only preflight.determinism",
            "onecat doctor --only 'gpu.*'",
        ),
    )


def _differ_at(texts: Sequence[str]) -> int:
    """The first place at which some texts differ."""
    shortest = min(map(len, texts))
    return next((at for at in range(shortest) if len({each[at] for each in texts}) > 1), shortest)
