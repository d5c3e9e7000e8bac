"""The server's log."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import Verdict, check
from onecat.live.preflight.look import Look, needs
from onecat.live.preflight.observing.log import LogSeen

_LONGEST = 160
_SHOWN = 3


@check(
    "preflight.log",
    title="The server's log tells of no fault",
    why="What fails at load later is often written there once before: preempted requests, time-outs between workers, "
    "errors that were caught.",
    fix=("onecat diagnose reads a log; onecat logs NAME shows it",),
    source=("https://docs.vllm.ai/en/latest/usage/troubleshooting.html",),
    requires=needs(LogSeen),
    group="log",
    place=1,
)
def log(look: Look) -> Iterator[Verdict]:
    """All of the release's log that is kept, that of this preflight included: what onecat's signatures know as a fault
    or a warning, other lines of level ERROR, and exceptions."""
    seen = look.of(LogSeen)
    show = f"onecat logs {look.name}{look.host_option} --lines 1000"
    known = [each for each in seen.diagnoses if each.standing == "cause"]
    for each in known:
        yield Verdict(
            "fail" if each.severity == "fail" and each.confidence == "high" else "warn",
            each.cause,
            evidence=tuple(f"line {line.line}: {line.text[:_LONGEST]}" for line in each.evidence[:_SHOWN]),
            fix=each.fix or (show,),
            source=each.source,
        )
    if seen.unexplained:
        number = len(seen.unexplained)
        yield Verdict(
            "warn",
            f"{number} error{'s' if number > 1 else ''} in the log that onecat knows no cause of",
            evidence=tuple(f"line {line}: {text[:_LONGEST]}" for line, text in seen.unexplained[:_SHOWN]),
            fix=(show,),
        )
    if not known and not seen.unexplained:
        harmless = tuple(f"harmless: {each.cause}" for each in seen.diagnoses if each.standing == "harmless")
        yield Verdict("pass", f"{seen.lines:,} lines tell of no fault", evidence=harmless)
