"""What benchmarks come to, as figures that people read: the same in a terminal, in Markdown and in HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from onecat.experiments.comparability import arrivals_text, objectives_text, prompts_text
from onecat.experiments.records import Experiment, Kind, Objectives, Workload
from onecat.experiments.report import Report, Series, alike_in_first, moment
from onecat.experiments.speed import METRICS
from onecat.experiments.summary import Summary
from onecat.observe.statistics import LEAST_BLOCKS, Estimate, Latencies, least_for_percentile

NOTHING = "-"
PERCENTILES = ("mean", "p50", "p90", "p95", "p99")
_SECONDS_FROM = 100.0


@dataclass(frozen=True)
class Cell:
    """A figure and its 95 % interval. interval: empty where there is none; note: why. value: as a number, in the row's
    unit."""

    text: str
    interval: str = ""
    value: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Row:
    label: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    """head: over the cells. notes: what is to be known of them, below."""

    title: str
    head: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measured:
    """A latency of a summary. name: of at most 19 columns. title: in full."""

    name: str
    title: str
    read: Callable[[Summary], Latencies]


LATENCIES = (
    Measured("first token", "Time to first token", lambda each: each.ttft),
    Measured("between chunks", "Time between chunks of tokens", lambda each: each.inter_token),
    Measured("per output token", "Time per output token after the first", lambda each: each.per_token),
    Measured("end to end", "End-to-end time", lambda each: each.end_to_end),
)


def figure(value: float | None) -> str:
    """A number with four digits that count, or fewer: `4.123`, `41.23`, `1234`, `0.412`."""
    if value is None:
        return NOTHING
    size = abs(float(f"{value:.4g}"))
    if size == 0:
        return "0"
    digits = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 10 else 3
    return f"{value:.{digits}f}"


def cell(estimate: Estimate | None, factor: float = 1.0) -> Cell:
    """An estimate in a unit that is `factor` times finer."""
    if estimate is None or estimate.value is None:
        return Cell(NOTHING)
    scaled = estimate.scaled(factor)
    interval = f"{figure(scaled.low)}-{figure(scaled.high)}" if scaled.has_interval else ""
    return Cell(figure(scaled.value), interval, scaled.value, estimate.note)


def percent(value: float, digits: int = 1) -> str:
    """A signed difference: `+4.2 %`."""
    return f"{value:+.{digits}f} %"


def unit_of(found: Sequence[Latencies]) -> tuple[str, float]:
    """The unit in which latencies are told together, and how many of it make a second."""
    slowest = max((each.p50.value for each in found if each.p50.value is not None), default=0.0)
    return ("s", 1.0) if slowest >= _SECONDS_FROM else ("ms", 1000.0)


def latency_tables(series: Sequence[Series]) -> tuple[Table, ...]:
    """Of one series one table with a row for each latency; of several a table for each latency with all of them."""
    if len(series) == 1:
        rows = []
        for each in LATENCIES:
            found = each.read(series[0].summary)
            if found.n:
                unit, factor = unit_of([found])
                rows.append(Row(each.name if unit == "ms" else f"{each.name}, {unit}", _cells(found, factor)))
        tables = [Table("Latency, ms", PERCENTILES, tuple(rows))] if rows else []
    else:
        tables = []
        for each in LATENCIES:
            found_in = [(one, each.read(one.summary)) for one in series]
            if any(found.n for _, found in found_in):
                unit, factor = unit_of([found for _, found in found_in])
                shown = [Row(one.label, _cells(found, factor)) for one, found in found_in]
                tables.append(Table(f"{each.title}, {unit}", PERCENTILES, tuple(shown)))
    lacks = any(
        each.value is not None and not each.interval for one in tables for row in one.rows for each in row.cells
    )
    notes = [*([_why_no_interval(series)] if lacks else []), *_left_out(series)]
    if tables:
        tables[-1] = replace(tables[-1], notes=tuple(notes))
    return tuple(tables)


def _left_out(series: Sequence[Series]) -> Iterator[str]:
    """Requests that timed out are the slowest of all, and have no latency: whoever reads a P99 must know of them."""
    number = sum(each.summary.errors.get("timed-out", 0) for each in series)
    sent = sum(each.summary.requests for each in series)
    if number:
        told = "1 request" if number == 1 else f"{number} requests"
        yield f"Of answered requests only: {told} of {sent} timed out, so the slowest took longer than is told here."


def _why_no_interval(series: Sequence[Series]) -> str:
    """In one sentence for all figures; each has its own reason in HTML and JSON."""
    least = least_for_percentile(99)
    few = f"too few requests (p99 needs {least})" if min(each.summary.answered for each in series) < least else ""
    numbers = {each.summary.blocks for each in series}
    short = f"2 repetitions (percentiles need {LEAST_BLOCKS})" if 2 in numbers else ""
    spread = "repetitions that differ too much" if any(each >= LEAST_BLOCKS for each in numbers) else ""
    return f"Without an interval: {', or '.join(filter(None, (few, short, spread))) or 'too few requests'}."


def _cells(found: Latencies, factor: float) -> tuple[Cell, ...]:
    return tuple(cell(each, factor) for each in (found.mean, found.p50, found.p90, found.p95, found.p99))


def all_tables(report: Report) -> tuple[Table, ...]:
    """All tables of a report in their order."""
    paired = [paired_table(run.experiment) for run in report.runs]
    are_paired = len(report.runs) == 1 and paired[0] is not None
    changed = None if are_paired else change_table(report)
    found = (*paired, *rate_tables(report.series), *latency_tables(report.series), changed)
    return tuple(each for each in found if each is not None)


def rate_tables(series: Sequence[Series]) -> tuple[Table, ...]:
    """Throughput with how many requests failed and, where there are objectives, how many requests kept them."""
    rows = []
    for each in series:
        found = each.summary
        failed = Cell(f"{found.failed} of {found.requests}", value=float(found.failed))
        rates = (cell(found.requests_rate), cell(found.output_rate), cell(found.input_rate))
        rows.append(Row(each.label, (*rates, failed)))
    unknown = {each.label: each.summary.requests_rate.note for each in series if each.summary.requests_rate.note}
    reasons = (
        set(unknown.values()) if len(unknown) == len(series) else {f"{one}: {why}" for one, why in unknown.items()}
    )
    head = ("requests/s", "out tok/s", "in tok/s", "failed")
    throughput = Table("Throughput", head, tuple(rows), tuple(map(_sentence, sorted(reasons))))
    good = [
        Row(each.label, (cell(each.summary.goodput), cell(each.summary.good_share, 100)))
        for each in series
        if each.summary.goodput is not None
    ]
    if not good:
        return (throughput,)
    return (throughput, Table("Kept the objectives", ("requests/s", "% of all"), tuple(good)))


_CHANGES: tuple[tuple[str, Callable[[Summary], Estimate]], ...] = (
    ("out tok/s", lambda each: each.output_rate),
    ("first p50", lambda each: each.ttft.p50),
    ("first p99", lambda each: each.ttft.p99),
    ("end p50", lambda each: each.end_to_end.p50),
    ("end p99", lambda each: each.end_to_end.p99),
)


def change_table(report: Report) -> Table | None:
    """By how much figures differ, in percent: those of later runs from the first run's for the same load, or those of
    the arms of one run from its first. None where nothing is alike."""
    if len(report.runs) > 1:
        pairs = alike_in_first(report)
        whom = report.runs[0].name
        note = (
            "Measured at different times, these may differ by more than by what was changed; "
            "onecat bench ab measures in pairs and tests the difference."
        )
    else:
        first = report.series[:1]
        pairs = tuple((first[0], each) for each in report.series[1:] if each.arrivals == first[0].arrivals)
        whom, note = first[0].label if first else "", ""
    rows = []
    for one, other in pairs:
        texts = (difference_text(read(other.summary).value, read(one.summary).value) for _, read in _CHANGES)
        rows.append(Row(other.label, tuple(Cell(text or NOTHING) for text in texts)))
    if not rows:
        return None
    return Table(f"Compared with {whom}", tuple(name for name, _ in _CHANGES), tuple(rows), (note,) if note else ())


def paired_verdict(experiment: Experiment) -> Mapping[str, Any]:
    """The verdict over pairs of blocks: of a comparison of A with B, also the one that a sweep ends in; or empty."""
    verdict = experiment.verdict or {}
    found = verdict if experiment.kind == "ab" else verdict.get("confirmation")
    return found if isinstance(found, dict) else {}


def paired_table(experiment: Experiment) -> Table | None:
    """By each metric how much faster B is, over pairs of blocks; None of what is no comparison of A with B."""
    verdict = paired_verdict(experiment)
    found = verdict.get("comparisons")
    if not isinstance(found, dict):
        return None
    rows = []
    for name, each in found.items():
        if name in METRICS and isinstance(each, dict):
            better = 1 if METRICS[name].higher_is_better else -1
            value, low, high = (each.get(key) for key in ("percent", "low", "high"))
            bounds = [] if low is None or high is None else sorted((better * low, better * high))
            shown = NOTHING if value is None else percent(better * value)
            interval = f"{bounds[0]:+.1f} to {bounds[1]:+.1f}" if bounds else ""
            word = {"lower": -better, "higher": better}.get(str(each.get("word")))
            told = {1: "faster", -1: "slower"}[word] if word else str(each.get("word", "")).replace("-", " ")
            most, smallest = each.get("most_percent"), verdict.get("smallest_percent")
            if most is not None and smallest is not None and most <= smallest:
                told = "the same"
            rows.append(Row(METRICS[name].title, (Cell(shown, interval, value), Cell(told))))
    decides = METRICS.get(str(verdict.get("metric")))
    note = (f"The verdict is by {decides.title}.",) if decides else ()
    return Table("B compared with A", ("faster by", "shown"), tuple(rows), note) if rows else None


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") or not text else ".")


def error_lines(series: Sequence[Series]) -> Iterator[str]:
    """Kinds of errors with what one of each said."""
    for each in series:
        for kind, number in each.summary.errors.items():
            said = next(
                (one.message for block in each.blocks for one in block.requests if one.error == kind and one.message),
                "",
            )
            where = f"{each.label}: " if len(series) > 1 else ""
            yield f"{where}{number} {kind}" + (f": {' '.join(said.split())}" if said else "")


def headline(series: Series) -> str:
    """The most important figures in a sentence."""
    found = series.summary
    if not found.answered:
        return f"None of {found.requests} requests was answered."
    parts = [f"{found.answered} of {found.requests} requests were answered"]
    if found.requests_rate.value is not None:
        parts.append(f"{figure(found.requests_rate.value)} a second with {figure(found.output_rate.value)} tokens/s")
    parts += [_typical("the first token came", found.ttft), _typical("the last", found.end_to_end)]
    return "; ".join(filter(None, parts)) + "."


def _typical(what: str, found: Latencies) -> str:
    if found.p50.value is None:
        return ""
    unit, factor = unit_of([found])
    slow = f" (p99 {figure(found.p99.value * factor)})" if found.p99.value is not None else ""
    return f"{what} after {figure(found.p50.value * factor)} {unit}{slow}"


def _workload_texts(series: Sequence[Series]) -> Iterator[str]:
    """Which requests were sent, those that differ only in their number together."""
    alike: dict[Workload, list[Series]] = {}
    for each in series:
        alike.setdefault(replace(each.workload, requests=0), []).append(each)
    for workload, found in alike.items():
        numbers = sorted({each.workload.requests for each in found})
        repetitions = {len(each.blocks) for each in found}
        number = str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
        again = f", {min(repetitions)} times" if len(repetitions) == 1 and min(repetitions) > 1 else ""
        yield f"{number} requests of {workload_text(workload)}{again}"


def workload_text(workload: Workload) -> str:
    """What is sent: `random tokens, 512 in, 128 out`."""
    lengths = []
    if workload.source == "random":
        spread = f" ±{workload.range_ratio:.0%}" if workload.range_ratio else ""
        lengths.append(f"{workload.input_tokens}{spread} in")
    if workload.output_tokens is not None:
        most = "" if workload.source == "random" and workload.ignore_eos else "at most "
        lengths.append(f"{most}{workload.output_tokens} out")
    return ", ".join([prompts_text(workload), *lengths])


def conditions(experiment: Experiment, series: Sequence[Series]) -> Iterator[tuple[str, str]]:
    """The server and what was asked of it, as rows of (name, text)."""
    for arm, known in experiment.environment.arms.items():
        text = server_text(known)
        if text:
            yield f"server {arm}".strip(), text
    yield from (("requests", text) for text in _workload_texts(series))
    yield "arrivals", "; ".join(dict.fromkeys(arrivals_text(each.arrivals) for each in series)) or NOTHING
    warmed = sum(len(block.requests) for block in experiment.blocks if block.warm_up)
    yield "warm-up", f"{warmed} requests, not counted" if warmed else "none"
    if experiment.objectives != Objectives():
        yield "objectives", objectives_text(experiment.objectives)


def report_title(report: Report) -> str:
    """`Run of chat`, `3 runs compared`."""
    if len(report.runs) > 1:
        return f"{len(report.runs)} runs compared"
    return experiment_title(report.runs[0].experiment)


_TITLES: dict[Kind, str] = {
    "run": "Run of {}",
    "burst": "Burst on {}",
    "ab": "A/B comparison of {}",
    "sweep": "Sweep of {}",
    "soak": "Soak of {}",
}


def experiment_title(experiment: Experiment) -> str:
    """`Burst on chat`."""
    whom = " and ".join(dict.fromkeys(each.endpoint for each in experiment.blocks))
    return _TITLES[experiment.kind].format(whom or "nothing yet")


def common_conditions(report: Report) -> Iterator[tuple[str, str]]:
    """The conditions of all runs as rows of (name, text); what is only of some runs names them."""
    several = len(report.runs) > 1
    told: dict[tuple[str, str], list[str]] = {}
    for place, run in enumerate(report.runs):
        if several:
            yield run.name, f"{experiment_title(run.experiment)}, {span_text(run.experiment)}"
        for row in conditions(run.experiment, [each for each in report.series if each.run == place]):
            told.setdefault(row, []).append(run.name)
    for (name, text), runs in told.items():
        yield name + (f" ({', '.join(runs)})" if len(runs) < len(report.runs) else ""), text


def server_text(known: Mapping[str, Any]) -> str:
    """What is most asked of a server: `vllm 0.27.1, qwen3-8b, 2x Tesla V100-PCIE-32GB, release 3`."""
    engine = " ".join(str(known[name]) for name in ("engine", "engine_version") if known.get(name))
    release = f"release {known['release']}" if known.get("release") else ""
    gpus = known.get("gpus")
    counted = (
        ", ".join(f"{gpus.count(each)}x {each}" for each in dict.fromkeys(gpus))
        if isinstance(gpus, list | tuple) and all(isinstance(each, str) for each in gpus)
        else ""
    )
    return ", ".join(filter(None, (engine, str(known.get("model") or ""), counted, release)))


def environment_rows(report: Report) -> Iterator[tuple[str, str, str]]:
    """What is known of the conditions: (whose, name, text)."""
    for run in report.runs:
        found = run.experiment.environment
        whose = run.name if len(report.runs) > 1 else ""
        for arm, known in found.arms.items():
            for name, value in known.items():
                yield " ".join(filter(None, (whose, arm))), name.replace("_", " "), plain_text(value)
        for name, value in found.driver.items():
            yield whose, f"load driver: {name.replace('_', ' ')}", plain_text(value)
        yield whose, "onecat", f"{found.onecat} on {found.host}"
        yield whose, "result file", run.file
        yield whose, "experiment", f"{run.experiment.id}, {span_text(run.experiment)}"


def plain_text(value: Any) -> str:
    """Plain data in a line."""
    if value is None or value == "":
        return NOTHING
    if isinstance(value, dict):
        return ", ".join(f"{name}: {plain_text(each)}" for name, each in value.items()) or NOTHING
    if isinstance(value, list | tuple):
        are_arguments = any(isinstance(each, str) and each.startswith("--") for each in value)
        return (" " if are_arguments else ", ").join(map(plain_text, value)) or NOTHING
    return str(value)


def span_text(experiment: Experiment) -> str:
    """When it was and how long it took: `2026-07-28 10:15:02 UTC, 62 s`."""
    begun = experiment.started_at.replace("T", " ").partition(".")[0].removesuffix("Z") + " UTC"
    if experiment.finished_at is not None:
        took = moment(experiment.finished_at) - moment(experiment.started_at)
        text = f"{begun}, {duration_text(took)}"
    else:
        text = f"{begun}, not finished"
    if experiment.resumed_at:
        text += f", resumed {len(experiment.resumed_at)} times" if len(experiment.resumed_at) > 1 else ", resumed once"
    return text


def duration_text(seconds: float) -> str:
    """`4.1 s`, `62 s`, `12 min 5 s`, `3 h 12 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def difference_text(value: float | None, reference: float | None) -> str:
    """How much a figure differs from that of the first series, in percent; empty where that says nothing."""
    if value is None or not reference:
        return ""
    return percent((value / reference - 1) * 100)


def verdict_lines(verdict: dict[str, Any] | None) -> Iterator[str]:
    """What an experiment of its kind found, in sentences: the verdict's `sentence`, then what it names besides."""
    if not verdict:
        return
    sentence = verdict.get("sentence") or verdict.get("verdict")
    if sentence:
        yield str(sentence)
    for name in ("problem", "reasons", "notes", "sentences"):
        value = verdict.get(name)
        for each in [value] if isinstance(value, str) else value or ():
            if each and str(each) not in str(sentence):
                yield str(each)
