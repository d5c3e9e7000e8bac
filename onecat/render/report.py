"""One redacted file for a bug tracker: findings, plan, facts and the last lines of the server's log, as Markdown.

`onecat doctor --from` reads the facts back from its fenced block.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from onecat.doctor import HostReport, Report
from onecat.facts import Facts
from onecat.render.columns import clip, harmless
from onecat.render.markdown import doctor_markdown, escape

TITLE = "# onecat report"
"""The first line of every report."""

_LONGEST_LINE = 600


@dataclass(frozen=True)
class Observed:
    """What a report is made of, redacted.

    plan: as `onecat plan` prints it, or why there is none. log: the last lines of the deployment's server.
    """

    facts: Facts
    findings: HostReport
    profile: str | None
    plan: str | None
    log: Sequence[str] | None
    versions: Sequence[tuple[str, str]]


def report_markdown(observed: Observed) -> str:
    """The file."""
    return "\n".join(_lines(observed)).rstrip() + "\n"


def _lines(observed: Observed) -> Iterator[str]:
    facts = observed.facts
    yield TITLE
    yield ""
    yield ", ".join(f"{name} {version}" for name, version in observed.versions)
    yield ""
    yield (
        "Names, addresses, serial numbers and UUIDs in it are pseudonyms, secrets are taken out. Read it before you "
        "post it. `onecat doctor --from FILE` reads it back."
    )
    yield ""
    yield from _machine(facts)
    yield ""
    yield doctor_markdown(Report(observed.profile, (observed.findings,)))
    if observed.plan is not None:
        yield "## Plan"
        yield ""
        yield from _fenced(observed.plan.splitlines(), "text")
    yield "## Facts"
    yield ""
    yield "<details><summary>as onecat observed them</summary>"
    yield ""
    yield "```json"
    yield json.dumps(known_fields(facts), ensure_ascii=True, separators=(",", ":"))
    yield "```"
    yield ""
    yield "</details>"
    yield ""
    if observed.log is not None:
        yield "## Last lines of the server's log"
        yield ""
        yield "<details><summary>as the server wrote them</summary>"
        yield ""
        yield from _fenced([clip(line, _LONGEST_LINE) for line in observed.log], "text")
        yield "</details>"


def _machine(facts: Facts) -> Iterator[str]:
    system, nvidia = facts.operating_system, facts.nvidia
    if system is not None:
        words = [
            system.pretty_name or system.id,
            f"kernel {system.kernel}" if system.kernel else None,
            system.architecture,
        ]
        yield f"- system: {escape(', '.join(word for word in words if word))}"
    if nvidia is not None:
        names = [gpu.name for gpu in nvidia.gpus]
        counted = [f"{names.count(name)}x {name}" for name in dict.fromkeys(names)]
        yield f"- GPUs: {escape(', '.join(counted) or 'none')}; driver {escape(nvidia.driver_version or 'not known')}"
    if facts.docker is not None:
        yield f"- Docker: {escape(facts.docker.server_version or facts.docker.state)}"
    for engine in facts.engines:
        yield escape(
            f"- engine in {engine.where}: {engine.engine_version or 'not known'}, torch {engine.torch_version}"
        )


def _fenced(lines: Sequence[str], language: str) -> Iterator[str]:
    """Lines in a code block that none of them can end."""
    longest = max((len(run) for line in lines for run in re.findall(r"`{3,}", line)), default=2)
    fence = "`" * max(longest + 1, 4)
    yield fence + language
    yield from (harmless(line.expandtabs()) for line in lines)
    yield fence
    yield ""


def known_fields(record: Any) -> Any:
    """A record as a JSON document without the fields that have their default; `from_json` reads it back the same."""
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return {
            field.name: known_fields(getattr(record, field.name))
            for field in dataclasses.fields(record)
            if field.name == "schema" or getattr(record, field.name) != field.default
        }
    return [known_fields(each) for each in record] if isinstance(record, tuple) else record
