"""What the log of a server says."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor.context import Context
from onecat.doctor.registry import Verdict, check


@check(
    "serving.log",
    title="The server's log tells of no fault",
    why="A log that ends in an error names the cause better than any check of the host.",
    fix=("onecat diagnose FILE tells the same, for a log alone",),
    source=("https://docs.vllm.ai/en/v0.6.4.post1/getting_started/debugging.html",),
)
def serving_log(context: Context) -> Iterator[Verdict]:
    """Each log of a server among the facts, against the patterns that `onecat diagnose` knows."""
    if not context.facts.server_logs:
        yield Verdict("skip", "Not checked: there is no log of a server among the facts (--from FILE)")
        return
    from onecat.observe import diagnose

    for log in context.facts.server_logs:
        causes = diagnose(log.lines)
        if not causes:
            yield Verdict("pass", f"{log.name} tells of no fault that onecat knows", log.name)
        for cause in causes:
            yield Verdict(
                "fail" if cause.severity == "fail" and cause.confidence == "high" else "warn",
                cause.cause,
                log.name,
                tuple(f"line {each.line}: {each.text}" for each in cause.evidence),
                fix=cause.fix or ("onecat explain serving.log",),
                source=cause.source,
            )
