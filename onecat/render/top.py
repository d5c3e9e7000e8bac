"""The view of `onecat top`, and its one line for each sample where there is no terminal.

Colours say only what words and numbers say too, and are those that show on a light and on a dark background alike: red,
green and magenta of the terminal's own palette, bold, and no colour; never yellow, white, or dim.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from onecat.live.top import HostView
from onecat.observe.metrics import EngineRates, GpuSample, NpuSample, Sample
from onecat.render import columns

if TYPE_CHECKING:
    from rich.text import Text

BAD, WATCH, GOOD, STRONG = "bold red", "magenta", "green", "bold"
BLOCKS = "▁▂▃▄▅▆▇█"
GIB = 1 << 30
_READING_STYLES = {"throttling": BAD, "kv-cache": BAD, "pcie": WATCH, "queue": WATCH, "server-cpu": WATCH}
_HOT, _FULL = 0.95, 0.97
"""Of the slowdown temperature, and of a memory: from here on it is marked."""
_REASONS = (
    (0x80, "power brake"),
    (0x40, "heat (hw)"),
    (0x20, "heat"),
    (0x8, "slowdown"),
    (0x4, "power cap"),
    (0x10, "sync boost"),
    (0x100, "display"),
    (0x2, "app clocks"),
    (0x1, "idle"),
)
"""NVML's bits why clocks are low, the gravest first:
https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html"""
_GRAVE = 0x8 | 0x20 | 0x40 | 0x80


@dataclass(frozen=True)
class Screen:
    """What is shown besides the hosts. blocks: whether the terminal shows block characters for sparklines."""

    title: str
    interval: float
    width: int
    height: int
    blocks: bool = True
    keys: bool = True


Piece = tuple[str, str]
Row = list[Piece]


def top_view(views: Sequence[HostView], missing: Sequence[str], screen: Screen, now: datetime) -> Text:
    """The whole screen: as much of each host as there is room for."""
    from rich.text import Text

    rows = _rows(views, missing, screen, now)
    text = Text(no_wrap=True, end="")
    for number, row in enumerate(rows[: screen.height]):
        if number:
            text.append("\n")
        used = 0
        for piece, style in row:
            shown = columns.harmless(piece)[: max(0, screen.width - used)]
            used += len(shown)
            text.append(shown, style or None)
    return text


def _rows(views: Sequence[HostView], missing: Sequence[str], screen: Screen, now: datetime) -> list[Row]:
    hosts = f"{len(views) + len(missing)} hosts, " if len(views) + len(missing) > 1 else ""
    right = "q quit" if screen.keys else ""
    left = f"{screen.title}  {hosts}every {screen.interval:g} s  {now.astimezone():%H:%M:%S}"
    head: Row = [(left.ljust(screen.width - len(right)), STRONG), (right, "")]
    waiting: list[Row] = [[(f"{name}: connecting ...", "")] for name in missing]
    for detail in (3, 2, 1, 0):
        rows = [head]
        for view in views:
            if detail > 0:
                rows.append([])
            rows += _host_rows(view, screen, detail)
        rows += waiting
        if len(rows) <= screen.height:
            return rows
    more = len(rows) - screen.height + 1
    return [*rows[: screen.height - 1], [(f"{more} more lines: a higher terminal shows them", STRONG)]]


def _host_rows(view: HostView, screen: Screen, detail: int) -> list[Row]:
    """One host. detail: 3 all, 2 without sparklines, 1 without evidence and advice, 0 two lines."""
    sample = view.latest
    if sample.error is not None:
        last = view.last_answer
        since = f" (last answer {_ago(sample.time - last.time)} ago)" if last else ""
        return [[(view.host, STRONG), (": no answer", BAD), (f"{since}: {sample.error}", "")]]
    rows = _reading_rows(view, screen.width, detail)
    if detail == 0:
        rows.append([("  " + one_line_numbers(view), "")])
        return rows
    if sample.gpus:
        rows += _gpu_rows(view, screen, detail)
    rows += [_npu_row(each) for each in sample.npus]
    rows += [[(line, "")] for line in _wrapped(_notes(sample), screen.width)]
    rows += _machine_rows(sample, screen.width)
    rows += _engine_rows(view, screen, detail)
    return rows


def _reading_rows(view: HostView, width: int, detail: int) -> list[Row]:
    reading = view.reading
    style = _READING_STYLES.get(reading.bottleneck, STRONG if reading.bottleneck != "idle" else "")
    lines = _wrap(reading.sentence, width - len(view.host) - 2, width)
    kind, _, rest = lines[0].partition(":")
    rows: list[Row] = [[(view.host, STRONG), ("  ", ""), (kind, style), (":" + rest if rest else "", "")]]
    rows += [[("  " + line, "")] for line in lines[1:]]
    if detail < 2:
        return rows
    is_found = reading.bottleneck not in ("idle", "not-clear")
    because = f"because ({reading.confidence} confidence): " if is_found else "seen: "
    rows += [[("  " + line, "")] for line in _items(because, reading.evidence, width - 2, 2)]
    if is_found:
        told = [f"try: {reading.advice[0]}"] if reading.advice else []
        told += [f"also: {sentence}" for _, sentence in reading.also[:1]]
        rows += [[(each, "")] for line in told for each in _wrapped([line], width)[:2]]
    return rows


def _items(begin: str, items: Sequence[str], width: int, most: int) -> list[str]:
    """Items with commas between them in at most so many lines; what does not fit is left out, never a part of one."""
    if not items:
        return []
    lines = [begin + items[0]]
    for item in items[1:]:
        if columns.width(f"{lines[-1]}, {item}") < width:
            lines[-1] += f", {item}"
        elif len(lines) < most:
            lines[-1] += ","
            lines.append(f"  {item}")
        else:
            break
    return lines


def _wrapped(texts: Sequence[str], width: int) -> list[str]:
    return [line for text in texts for line in columns.wrap(text, width, "  ", "    ")]


def _wrap(text: str, first: int, width: int) -> list[str]:
    """Lines of a text whose first line has less room."""
    words, lines, room = text.split(" "), [""], first
    for word in words:
        if lines[-1] and len(lines[-1]) + 1 + len(word) > room:
            lines.append("")
            room = width - 2
        lines[-1] += (" " if lines[-1] else "") + word
    return lines


def _gpu_rows(view: HostView, screen: Screen, detail: int) -> list[Row]:
    gpus = view.latest.gpus or ()
    wide = screen.width >= 110
    spark = (min(24, screen.width - 92) if wide else 0) if screen.blocks and detail >= 1 else 0
    head = "GPU use%" + (" " * (spark + 1) if spark else "") + " mem%  memory GiB   PCIe tx/rx GB/s  SM MHz   °C    W"
    rows: list[Row] = [[(head + ("/limit  clocks held by" if wide else "/lim  held by"), STRONG)]]
    for gpu in gpus:
        if gpu.error is not None:
            rows.append([(f"{gpu.index:>3} ", STRONG), (f"no answer: {gpu.error}", BAD)])
            continue
        rows.append(_gpu_row(view, gpu, spark, wide))
        if gpu.ecc_uncorrected:
            rows.append([(f"    {gpu.ecc_uncorrected} memory errors that ECC could not correct: onecat doctor", BAD)])
    names = " / ".join(dict.fromkeys(each.name for each in gpus if each.name))
    if sum(len(piece) for piece, _ in rows[0]) + 2 + len(names) <= screen.width:
        rows[0].append(("  " + names, ""))
    return rows


def _gpu_row(view: HostView, gpu: GpuSample, spark: int, wide: bool) -> Row:
    full = gpu.memory_used is not None and gpu.memory_total and gpu.memory_used / gpu.memory_total >= _FULL
    hot = (
        gpu.temperature_celsius is not None
        and gpu.temperature_slowdown_celsius
        and gpu.temperature_celsius >= _HOT * gpu.temperature_slowdown_celsius
    )
    grave = bool((gpu.event_reasons or 0) & _GRAVE)
    row: Row = [(f"{gpu.index:>3} ", STRONG), (f"{_number(gpu.utilization_percent):>4}", STRONG)]
    if spark:
        series = view.series(lambda each: _gpu_value(each, gpu.index), spark)
        row.append((" " + sparkline(series, spark, 100), GOOD))
    memory = f"{_gib(gpu.memory_used)}/{_gib(gpu.memory_total)}"
    link = f"{gpu.pcie_generation or '?'}.0x{gpu.pcie_width or '?'}"
    traffic = f"{_giga(gpu.pcie_tx)}/{_giga(gpu.pcie_rx)} {link}"
    power = f"{_number(gpu.power_watts)}/{_number(gpu.power_limit_watts)}"
    row += [
        (f" {_number(gpu.memory_utilization_percent):>4}", ""),
        (f" {memory:>11}", WATCH if full else ""),
        (f" {traffic:>17}", ""),
        (f" {_number(gpu.sm_clock_mhz):>7}", ""),
        (f" {_number(gpu.temperature_celsius):>4}", BAD if hot else ""),
        (f" {power:>8}", ""),
        (f"  {_reasons(gpu.event_reasons)}", BAD if grave else ""),
    ]
    return row


def _npu_row(npu: NpuSample) -> Row:
    told = f"NPU {npu.index} {npu.name or ''}  {_number(npu.utilization_percent)} %  "
    told += f"{_gib(npu.memory_used)}/{_gib(npu.memory_total)} GiB  {_number(npu.temperature_celsius)} °C  "
    told += f"{_number(npu.power_watts)} W  "
    return [(told, ""), (npu.health or "", GOOD if npu.health == "OK" else BAD)]


def _notes(sample: Sample) -> list[str]:
    """Why something is not shown."""
    told = [f"{'GPUs' if source == 'nvml' else source}: {why}" for source, why in sample.notes]
    unknown = {name: why for gpu in sample.gpus or () for name, why in gpu.unknown if name in _SHOWN}
    if unknown:
        told.append("not told by the driver (?): " + ", ".join(f"{name} ({why})" for name, why in unknown.items()))
    return told


_SHOWN = (
    "utilization_percent",
    "memory_used",
    "pcie_tx",
    "pcie_generation",
    "sm_clock_mhz",
    "event_reasons",
    "temperature_celsius",
    "power_watts",
)


def _machine_rows(sample: Sample, width: int) -> list[Row]:
    machine = sample.machine
    if machine is None:
        return []
    used = None
    if machine.memory_total is not None and machine.memory_available is not None:
        used = machine.memory_total - machine.memory_available
    pieces: Row = [("CPU ", STRONG), (f"{_number(machine.cpu_percent)} % of {machine.cores or '?'} cores", "")]
    pieces.append((f" (busiest {_number(machine.busiest_core_percent)} %)", ""))
    pieces.append(("  RAM ", STRONG))
    full = bool(used and machine.memory_total and used / machine.memory_total >= _FULL)
    pieces.append((f"{_gib(used)}/{_gib(machine.memory_total)} GiB", BAD if full else ""))
    if machine.swap_total:
        pieces += [("  swap ", STRONG), (_gib(machine.swap_used), WATCH if machine.swap_used else "")]
    if machine.shm_total:
        pieces += [("  shm ", STRONG), (f"{_gib(machine.shm_used)}/{_gib(machine.shm_total)}", "")]
    rows = [pieces]
    processes = [each for each in machine.processes or () if each.resident]
    if processes:
        top = max(processes, key=lambda each: each.cpu_percent or 0)
        resident = sum(each.resident or 0 for each in processes)
        thread = top.busiest_thread_percent
        rows.append(
            [
                ("server ", STRONG),
                (f"{sum(each.cpu_percent or 0 for each in processes):.0f} % CPU, {_gib(resident)} GiB", ""),
                (f", {len(processes)} processes; {top.name} {_number(top.cpu_percent)} %", ""),
                (f" (a thread {_number(thread)} %)" if thread is not None and thread != top.cpu_percent else "", ""),
            ]
        )
    return rows


def _engine_rows(view: HostView, screen: Screen, detail: int) -> list[Row]:
    sample, rates = view.latest, view.rates
    if sample.engine is None:
        return [] if sample.engine_error is None else [[("vLLM ", STRONG), (f"no metrics: {sample.engine_error}", BAD)]]
    engine = sample.engine
    usage = engine.fullest_kv_cache
    preempted = rates.preemptions if rates else None
    row: Row = [("vLLM ", STRONG), (f"running {_number(engine.running)}", "")]
    row.append((f"  waiting {_number(engine.waiting)}", WATCH if engine.waiting else ""))
    row.append((f"  KV {_percent(usage)}", BAD if usage is not None and usage >= _FULL else ""))
    if engine.kv_tokens:
        row.append((f" of {engine.kv_tokens:,} tokens".replace(",", " "), ""))
    row.append((f"  preempted {_number(preempted)}", BAD if preempted else ""))
    if len(engine.engines) > 1:
        row.append((f"  {len(engine.engines)} engines", ""))
    rows: list[Row] = [row]
    if rates is None:
        return [*rows, [("     rates come with the second sample", "")]]
    rows.append(_throughput_row(rates))
    rows += _latency_rows(rates, screen.width)
    if detail >= 3 and screen.blocks:
        rows += _sparkline_rows(view, screen.width)
    return rows


def _throughput_row(rates: EngineRates) -> Row:
    row: Row = [("     ", ""), (f"{_number(rates.generation_tokens)} tokens/s generated", STRONG)]
    row.append((f", {_number(rates.prompt_tokens)} prompt tokens/s, {_number(rates.requests, 1)} requests/s", ""))
    if rates.prefix_hit_rate is not None:
        row.append((f", prefix hits {_percent(rates.prefix_hit_rate)}", ""))
    if rates.draft_acceptance is not None:
        row.append((f", drafts accepted {_percent(rates.draft_acceptance)}", ""))
    if rates.restarts:
        row.append(("  restarted", BAD))
    return row


def _latency_rows(rates: EngineRates, width: int) -> list[Row]:
    told = [
        f"{name} {_seconds(latency.p50)} / {_seconds(latency.p99)}"
        for name, latency in (
            ("TTFT", rates.ttft),
            ("inter-token", rates.inter_token),
            ("end to end", rates.end_to_end),
            ("queue", rates.queue),
        )
        if latency is not None
    ]
    if not told:
        return []
    return [[("     " + line, "")] for line in _items("p50/p99: ", told, width - 5, 3)]


def _sparkline_rows(view: HostView, width: int) -> list[Row]:
    room = min(60, width - 32)
    rows: list[Row] = []
    tokens = view.rate_series(lambda each: each.generation_tokens, room)
    waiting = view.series(lambda each: each.engine.waiting if each.engine else None, room)
    usage = view.series(lambda each: each.engine.fullest_kv_cache if each.engine else None, room)
    for name, series, most, words in (
        ("tokens/s", tokens, None, _number),
        ("waiting", waiting, None, _number),
        ("KV cache", usage, 1.0, _percent),
    ):
        known = [each for each in series if each is not None]
        if known and max(known) > 0:
            line = sparkline(series, room, most or max(known))
            rows.append([(f"     {name:<9}", ""), (line, GOOD), (f"  {words(max(known))} at most", "")])
    return rows


def sparkline(values: Sequence[float | None], width: int, most: float) -> str:
    """Values as block characters, the newest on the right; what is not known is a gap."""
    shown = values[-width:]
    line = "".join(
        " "
        if value is None
        else BLOCKS[min(len(BLOCKS) - 1, int(max(0.0, value) / most * len(BLOCKS)))]
        if most > 0
        else BLOCKS[0]
        for value in shown
    )
    return line.rjust(width)


def sample_line(view: HostView) -> str:
    """One line about the newest sample of a host: where there is no terminal."""
    sample = view.latest
    moment = datetime.fromtimestamp(sample.time, timezone.utc).astimezone()
    begin = f"{moment:%Y-%m-%dT%H:%M:%S%z} {view.host} "
    if sample.error is not None:
        return columns.harmless(f"{begin}no answer: {sample.error}")
    return columns.harmless(f"{begin}{one_line_numbers(view)} | {view.reading.sentence}")


def one_line_numbers(view: HostView) -> str:
    """The most important numbers of the newest sample."""
    sample, rates = view.latest, view.rates
    told = []
    gpus = [each for each in sample.gpus or () if each.error is None]
    if gpus:
        told.append("GPU " + _joined(gpus, lambda each: each.utilization_percent) + " %")
        told.append("mem " + _joined(gpus, lambda each: each.memory_utilization_percent) + " %")
        told.append(_joined(gpus, lambda each: each.power_watts) + " W")
    lost = [each for each in sample.gpus or () if each.error is not None]
    if lost:
        told.append("GPU " + ",".join(str(each.index) for each in lost) + " does not answer")
    if sample.machine is not None and not gpus:
        told.append(f"CPU {_number(sample.machine.cpu_percent)} %")
    engine = sample.engine
    if engine is not None:
        told.append(f"running {_number(engine.running)} waiting {_number(engine.waiting)}")
        told.append(f"KV {_percent(engine.fullest_kv_cache)}")
    elif sample.engine_error is not None:
        told.append(f"no metrics ({sample.engine_error})")
    if rates is not None:
        told.append(f"{_number(rates.generation_tokens)} tok/s")
        if rates.ttft is not None:
            told.append(f"TTFT {_seconds(rates.ttft.p50)}/{_seconds(rates.ttft.p99)}")
    return "  ".join(told)


def _joined(gpus: Sequence[GpuSample], of: Callable[[GpuSample], float | None]) -> str:
    return "/".join(_number(of(each)) for each in gpus)


def _gpu_value(sample: Sample, index: int) -> float | None:
    return next((each.utilization_percent for each in sample.gpus or () if each.index == index), None)


def _reasons(bits: int | None) -> str:
    if bits is None:
        return "?"
    return next((word for bit, word in _REASONS if bits & bit), "-")


def _number(value: float | None, digits: int = 0) -> str:
    return "?" if value is None else f"{value:.{digits}f}"


def _percent(share: float | None) -> str:
    if share is None:
        return "?"
    return f"{share * 100:.1f} %" if 0 < share < 0.01 else f"{share * 100:.0f} %"


def _gib(size: int | None) -> str:
    if size is None:
        return "?"
    return f"{size / GIB:.1f}" if size < 100 * GIB else f"{size / GIB:.0f}"


def _giga(rate: float | None) -> str:
    return "?" if rate is None else f"{rate / 1e9:.1f}"


def _seconds(value: float) -> str:
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"


def _ago(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
