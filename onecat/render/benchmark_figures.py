"""What benchmarks come to, as figures that people read: the same in a terminal, in Markdown and in HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from onecat.experiments.comparability import arrivals_text, objectives_text, prompts_text
from onecat.experiments.records import Experiment, Objectives, Workload
from onecat.experiments.report import Report, Series, moment
from onecat.experiments.summary import Summary
from onecat.observe.statistics import Estimate, Latencies, least_for_percentile

NOTHING = "-"
PERCENTILES = ("mean", "p50", "p90", "p95", "p99")
_SECONDS_FROM = 100.0


@dataclass(frozen=True)
class Cell:
    """A figure and its 95 % interval. interval: empty where there is none. value: as a number, in the row's unit."""

    text: str
    interval: str = ""
    value: float | None = None


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
    return Cell(figure(scaled.value), interval, scaled.value)


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
    if lacks:
        tables[-1] = replace(tables[-1], notes=(_why_no_interval(series),))
    return tuple(tables)


def _why_no_interval(series: Sequence[Series]) -> str:
    """In one sentence for all figures; each has its own reason in HTML and JSON."""
    least = least_for_percentile(99)
    few = f"too few requests (p99 needs {least})" if min(each.summary.answered for each in series) < least else ""
    spread = "repetitions that differ too much" if any(each.summary.blocks > 1 for each in series) else ""
    return f"Without an interval: {', or '.join(filter(None, (few, spread))) or 'too few requests'}."


def _cells(found: Latencies, factor: float) -> tuple[Cell, ...]:
    return tuple(cell(each, factor) for each in (found.mean, found.p50, found.p90, found.p95, found.p99))


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


def change_table(series: Sequence[Series]) -> Table | None:
    """How much the other series differ from the first, in percent of it; None where there is nothing to compare."""
    if len(series) < 2:
        return None
    reads: tuple[tuple[str, Callable[[Summary], Estimate]], ...] = (
        ("out tok/s", lambda each: each.output_rate),
        ("first p50", lambda each: each.ttft.p50),
        ("first p99", lambda each: each.ttft.p99),
        ("end p50", lambda each: each.end_to_end.p50),
        ("end p99", lambda each: each.end_to_end.p99),
    )
    first = series[0].summary
    rows = []
    for each in series[1:]:
        cells = [
            Cell(
                difference_text(read(each.summary).value, read(first).value) or NOTHING, value=read(each.summary).value
            )
            for _, read in reads
        ]
        rows.append(Row(each.label, tuple(cells)))
    note = (
        ""
        if len({each.run for each in series}) == 1
        else (
            "Measured at different times, these may differ by more than by what was changed; "
            "onecat bench ab measures in pairs and tests the difference."
        )
    )
    head = tuple(name for name, _ in reads)
    return Table(f"Compared with {series[0].label}", head, tuple(rows), (note,) if note else ())


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


def workload_text(workload: Workload) -> str:
    """Which requests were sent: `100 requests of random tokens, 512 in, 128 out`."""
    lengths = []
    if workload.source == "random":
        spread = f" ±{workload.range_ratio:.0%}" if workload.range_ratio else ""
        lengths.append(f"{workload.input_tokens}{spread} in")
    if workload.output_tokens is not None:
        most = "" if workload.source == "random" and workload.ignore_eos else "at most "
        lengths.append(f"{most}{workload.output_tokens} out")
    return ", ".join([f"{workload.requests} requests of {prompts_text(workload)}", *lengths])


def conditions(experiment: Experiment, series: Sequence[Series]) -> Iterator[tuple[str, str]]:
    """The server and what was asked of it, as rows of (name, text)."""
    own = list(series)
    for arm, known in experiment.environment.arms.items():
        text = server_text(known)
        if text:
            yield f"server {arm}".strip(), text
    repetitions = {len(each.blocks) for each in own}
    each_time = f", {min(repetitions)} times" if len(repetitions) == 1 and min(repetitions) > 1 else ""
    for text in dict.fromkeys(workload_text(each.workload) for each in own):
        yield "requests", text + each_time
    yield "arrivals", "; ".join(dict.fromkeys(arrivals_text(each.arrivals) for each in own)) or NOTHING
    warmed = sum(len(block.requests) for block in experiment.blocks if block.warm_up)
    yield "warm-up", f"{warmed} requests, not counted" if warmed else "none"
    if experiment.objectives != Objectives():
        yield "objectives", objectives_text(experiment.objectives)


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
