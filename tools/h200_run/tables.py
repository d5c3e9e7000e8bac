"""The table of an engine run: steps, texts beside those of a reference, attention backends, throughput."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comparing import MODES, compare
from scheduling import Ended

REASON_LINES = 12
WIDTH = 160


@dataclass(frozen=True)
class Table:
    """is_good: every step ended well, no text is wrong, each engine has the attention backend that was asked for."""

    lines: list[str]
    is_good: bool


@dataclass(frozen=True)
class Chosen:
    """An engine's attention backend. name: step and kind; asked: by its arguments; found: all that its log names."""

    name: str
    asked: str
    found: tuple[str, ...]

    @property
    def is_right(self) -> bool:
        """Whether the log names what was asked for, and nothing else."""
        return self.found == (self.asked,)


def table(ended: Sequence[Ended], work: Path) -> Table:
    """What came of it. WORK: the folder of logs, jobs and results, also of earlier calls."""
    good = [each for each in ended if each.result == "ok"]
    bad = [each for each in ended if each.result != "ok"]
    lines = [
        f"{len(good)} of {len(ended)} steps ok, the longest {max((each.seconds for each in ended), default=0):.0f} s"
    ]
    for each in bad:
        lines.append(f"  {each.result}: {each.name}, {each.seconds:.0f} s; {reason(log_of(work, each.name))}")
    jobs = {path.stem: json.loads(path.read_text()) for path in sorted((work / "jobs").glob("*.json"))}
    results = {path.stem: json.loads(path.read_text()) for path in sorted((work / "results").glob("*.json"))}
    engines = {name: result for name, result in results.items() if "engines" in jobs.get(name, {})}
    compared = [line for name in engines for line in texts(name, jobs[name], engines, log_of(work, name))]
    lines += ["texts (and the reference), alone / together / again with what is cached:", *compared]
    servers = results.get("streams", {})
    lines += throughput(servers, jobs.get("streams", {}))
    chosen = [each for name, result in engines.items() for each in backends(jobs[name], result, name, work)]
    chosen += server_backends(servers, jobs.get("streams", {}), work)
    lines += chosen_lines(chosen)
    if text := log_of(work, "triton-sm70"):
        lines.append(f"Triton: {text.strip().splitlines()[-1]} (table in logs/triton-sm70.log)")
    for each in (each for each in bad if each.result != "not started"):
        tail = log_of(work, each.name).strip().splitlines()[-REASON_LINES:]
        lines += [f"--- the end of {each.name}'s log", *(line[:WIDTH] for line in tail)]
    is_wrong = any("WRONG" in line or "FAILED" in line for line in compared) or any(
        not each.is_right for each in chosen
    )
    return Table(lines, not bad and not is_wrong)


def log_of(work: Path, name: str) -> str:
    """What a step printed; nothing if it was not started."""
    path = work / "logs" / f"{name}.log"
    return path.read_text(errors="replace") if path.exists() else ""


def reason(log: str) -> str:
    """The last line of a log that names an error, but the ones that only say that an engine did not start."""
    found = "no error in its log"
    for line in log.splitlines():
        text = re.sub(r"^\(\w+[^)]*\) ", "", line).strip()
        is_error = re.match(r"(?:ERROR .*\] )?[\w.]*(?:Error|Exception|Interrupt)\b", text)
        if is_error and "Engine core initialization failed" not in text:
            found = text
    return found[:WIDTH]


def texts(name: str, job: Mapping[str, Any], engines: Mapping[str, Any], log: str) -> Iterator[str]:
    """A line for each engine of a step that has a reference, and for each that failed."""
    for kind, answers in engines[name].items():
        if "failed" in answers:
            yield f"{name} {kind}: FAILED {reason(log)}"
            continue
        start = f"start {answers['seconds']['start']:.0f} s"
        if kind not in job["references"]:
            continue
        step, other = job["references"][kind]
        expected = engines.get(step, {}).get(other)
        if expected is None or "failed" in expected:
            yield f"{name} {kind}: nothing to compare with ({step} {other}); {start}"
            continue
        parts = [f"{mode} {compare(*aligned(answers, expected, mode))}" for mode in MODES if mode in answers]
        more = [f"cached {answers['cached_tokens']['again']} tokens"] if "again" in answers else []
        if any(answers["speculated"]):
            drafted, accepted = answers["speculated"]
            more.append(f"accepted {accepted} of {drafted} drafted tokens")
        yield f"{name} {kind} = {step} {other}: {'; '.join([*parts, *more, start])}; {kernels(log)}"


def aligned(answers: Mapping[str, Any], expected: Mapping[str, Any], mode: str) -> tuple[list[Any], list[Any]]:
    """The answers of two engines to the prompts that both had; a reference without "again" has "together"."""
    others = expected.get(mode, expected["together"])
    place = {tuple(piece): index for index, piece in enumerate(expected["pieces"])}
    shared = [(index, place[tuple(piece)]) for index, piece in enumerate(answers["pieces"]) if tuple(piece) in place]
    return [answers[mode][left] for left, _ in shared], [others[right] for _, right in shared]


def kernels(log: str) -> str:
    """Which linear kernels a step's engines chose, by its log, and whether ours were there only as PyTorch."""
    chosen = sorted(set(re.findall(r"(?:Using|Selected) (\w+Kernel)\b", log)))
    return " ".join(chosen + (["WITHOUT COMPILED KERNELS: WRONG"] if "kernels are not there" in log else []))


def backends(job: Mapping[str, Any], result: Mapping[str, Any], name: str, work: Path) -> Iterator[Chosen]:
    """The attention backend of each engine of a step that started."""
    log = log_of(work, name)
    for kind, arguments in job["engines"].items():
        if kind in result and "failed" not in result[kind]:
            part = re.split(r"^=== ", log, flags=re.MULTILINE)
            own = next((each for each in part if each.startswith(f"{kind}\n")), "")
            yield Chosen(f"{name} {kind}", arguments["attention_backend"], named(own))


def server_backends(servers: Mapping[str, Any], job: Mapping[str, Any], work: Path) -> Iterator[Chosen]:
    """The attention backend of each server that answered."""
    for server in (each for lane in job.get("lanes", []) for each in lane):
        name = server["name"]
        if "failed" not in servers.get(name, {"failed": ""}):
            log = log_of(work, f"server-{name}")
            yield Chosen(f"server {name}", server["attention_backend"], named(log))


def named(log: str) -> tuple[str, ...]:
    """Attention backends that a log says are used, but those of vision towers."""
    return tuple(sorted(set(re.findall(r"Using (?:AttentionBackendEnum\.)?(\w+) backend\.", log))))


def chosen_lines(chosen: Sequence[Chosen]) -> list[str]:
    """How many engines have the backend that was asked for; each that has not."""
    right = Counter(each.asked for each in chosen if each.is_right)
    lines = ["attention backend by the log line of each engine, as asked for:"]
    lines.append("  " + (", ".join(f"{backend} in {count} engines" for backend, count in right.items()) or "none"))
    for each in chosen:
        if not each.is_right:
            lines.append(
                f"  WRONG: {each.name} was to use {each.asked}, its log names {', '.join(each.found) or 'none'}"
            )
    lines += [f"  {each.asked:12} {each.name}" for each in chosen if each.is_right]
    return lines


def throughput(servers: Mapping[str, Any], job: Mapping[str, Any]) -> Iterator[str]:
    """Tokens a second of each server, and whether its texts are those of its reference."""
    asked = {server["name"]: server for lane in job.get("lanes", []) for server in lane}
    for name, server in servers.items():
        if "failed" in server:
            yield f"server {name}: FAILED {server['failed'].strip().splitlines()[-1][:WIDTH]}"
            continue
        rates = ", ".join(
            f"{rate:.0f} tok/s at {streams}" for streams, rate in server.get("tokens_per_second", {}).items()
        )
        far = [f"{what} {value}" for what, value in server.get("long", {}).items()]
        reference = asked[name]["reference"]
        pairs = list(zip(server["texts"], servers.get(reference, {}).get("texts", []), strict=False))
        same = f"{sum(a == b for a, b in pairs)}/{len(pairs)} texts as {reference}"
        yield "; ".join(
            [f"server {name}: {rates or 'not measured'}", *far, same, f"healthy after {server['ready']:.0f} s"]
        )
