"""What is known of a host and its engines at one moment. What could not be learned is None, never zero."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Histogram:
    """A Prometheus histogram since the engine's start.

    bounds: upper bounds of the buckets, without infinity, rising. counts: observations up to each bound.
    count: all observations. total: their sum.
    """

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    count: float
    total: float


@dataclass(frozen=True)
class EngineSeries:
    """One engine of a server: a rank of data parallelism, or the only one.

    engine: the label of that name, "" before vLLM V1. running, waiting, swapped: requests now.
    kv_cache_usage: 0 to 1. kv_blocks: of the cache, of block_size tokens each. All others count since the start:
    requests (answered), tokens, preemptions, tokens looked up and found in the prefix cache, drafts of speculative
    decoding, their tokens, and those that were accepted. prefix_hit_rate, draft_acceptance: 0 to 1, told by engines
    before V1, which did not count them. Histograms are in seconds.
    """

    model: str = ""
    engine: str = ""
    running: float | None = None
    waiting: float | None = None
    swapped: float | None = None
    kv_cache_usage: float | None = None
    kv_blocks: int | None = None
    block_size: int | None = None
    preemptions: float | None = None
    prompt_tokens: float | None = None
    generation_tokens: float | None = None
    requests: float | None = None
    prefix_queries: float | None = None
    prefix_hits: float | None = None
    drafts: float | None = None
    draft_tokens: float | None = None
    accepted_tokens: float | None = None
    prefix_hit_rate: float | None = None
    draft_acceptance: float | None = None
    ttft: Histogram | None = None
    inter_token: Histogram | None = None
    end_to_end: Histogram | None = None
    queue: Histogram | None = None


@dataclass(frozen=True)
class EngineMetrics:
    """What a server's /metrics told.

    engines: none where the server keeps no statistics (--disable-log-stats).
    process_started: seconds since the epoch, where the server tells it: another one is another process.
    """

    engines: tuple[EngineSeries, ...] = ()
    process_started: float | None = None

    @property
    def running(self) -> float | None:
        """Requests that are being computed, in all engines."""
        return sum_of_known(each.running for each in self.engines)

    @property
    def waiting(self) -> float | None:
        """Requests that wait for their turn, in all engines."""
        return sum_of_known(each.waiting for each in self.engines)

    @property
    def kv_cache_usage(self) -> float | None:
        """Used share of all engines' KV caches, 0 to 1; engines that do not tell their size count alike."""
        known = [(each.kv_cache_usage, each.kv_blocks) for each in self.engines if each.kv_cache_usage is not None]
        if not known:
            return None
        sizes = [blocks for _, blocks in known if blocks]
        weights = sizes if len(sizes) == len(known) else [1] * len(known)
        return sum(usage * weight for (usage, _), weight in zip(known, weights, strict=True)) / sum(weights)

    @property
    def fullest_kv_cache(self) -> float | None:
        """The used share of the engine whose KV cache is fullest, 0 to 1: each engine preempts for itself."""
        return max((each.kv_cache_usage for each in self.engines if each.kv_cache_usage is not None), default=None)

    @property
    def kv_tokens(self) -> int | None:
        """How many tokens all KV caches hold; None where an engine does not tell."""
        sizes = [each.kv_blocks * each.block_size for each in self.engines if each.kv_blocks and each.block_size]
        return sum(sizes) if sizes and len(sizes) == len(self.engines) else None


@dataclass(frozen=True)
class Latency:
    """Observations of one histogram in a stretch of time, in seconds.

    Quantiles are interpolated within their bucket as Prometheus' histogram_quantile does, so they are as coarse as the
    engine's buckets; one beyond the last bound is told as that bound.
    """

    count: float
    mean: float
    p50: float
    p90: float
    p99: float


@dataclass(frozen=True)
class EngineRates:
    """What the engines of a server did in a stretch of time.

    seconds: how long. restarts: how often counters began anew meanwhile. Tokens and requests are per second;
    preemptions are a number. prefix_hit_rate: found tokens of those looked up, 0 to 1. draft_acceptance: accepted
    tokens of those drafted, 0 to 1; acceptance_length: tokens per draft, the bonus token included. A latency is None
    when nothing was observed.
    """

    seconds: float
    restarts: int = 0
    prompt_tokens: float | None = None
    generation_tokens: float | None = None
    requests: float | None = None
    preemptions: float | None = None
    prefix_hit_rate: float | None = None
    draft_acceptance: float | None = None
    acceptance_length: float | None = None
    ttft: Latency | None = None
    inter_token: Latency | None = None
    end_to_end: Latency | None = None
    queue: Latency | None = None


@dataclass(frozen=True)
class GpuProcessSample:
    """A program that uses a GPU. memory: bytes of that GPU."""

    pid: int
    name: str | None = None
    memory: int | None = None


@dataclass(frozen=True)
class GpuSample:
    """A GPU at one moment, as NVML tells it.

    utilization_percent: of the last sampling period (1/6 s to 1 s), the part in which any kernel ran.
    memory_utilization_percent: of the same period, the part in which memory was read or written. Neither says how
    much of the arithmetic units or of the bandwidth was used.
    pcie_tx, pcie_rx: bytes per second that the GPU sent and received, over 20 ms.
    event_reasons: NVML's bits why the clocks are low. temperatures: degrees Celsius. memory: bytes.
    ecc_*: errors since the driver was loaded. error: the driver lists the GPU and it does not answer.
    unknown: names of fields that this card or driver does not tell, and NVML's reason.
    """

    index: int
    name: str | None = None
    uuid: str | None = None
    pci_address: str | None = None
    error: str | None = None
    utilization_percent: float | None = None
    memory_utilization_percent: float | None = None
    memory_used: int | None = None
    memory_total: int | None = None
    pcie_tx: float | None = None
    pcie_rx: float | None = None
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    sm_clock_mhz: int | None = None
    sm_clock_max_mhz: int | None = None
    memory_clock_mhz: int | None = None
    memory_clock_max_mhz: int | None = None
    event_reasons: int | None = None
    temperature_celsius: int | None = None
    temperature_memory_celsius: int | None = None
    temperature_slowdown_celsius: int | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    power_limit_default_watts: float | None = None
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    processes: tuple[GpuProcessSample, ...] | None = None
    unknown: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class NpuSample:
    """An Ascend NPU at one moment, as npu-smi tells it. memory: bytes; utilization: of the AI cores."""

    index: int
    name: str | None = None
    health: str | None = None
    utilization_percent: float | None = None
    memory_used: int | None = None
    memory_total: int | None = None
    temperature_celsius: float | None = None
    power_watts: float | None = None


@dataclass(frozen=True)
class ProcessSample:
    """A process of the server. resident: bytes. cpu_percent: 100 is one core.

    busiest_thread_percent: of its thread that used most; 100 is a core that one thread has to itself.
    """

    pid: int
    name: str
    resident: int | None = None
    cpu_percent: float | None = None
    busiest_thread_percent: float | None = None
    threads: int | None = None


@dataclass(frozen=True)
class HostSample:
    """A host at one moment. Sizes are bytes.

    cpu_percent: of all cores, 100 at most; busiest_core_percent: of the one that worked most. Both since the last
    sample. pressure_percent: time in which something waited for a core (PSI, ten seconds).
    agent_percent: what sampling itself costs, of one core. processes: of the server, None where it is not known.
    """

    cores: int | None = None
    cpu_percent: float | None = None
    busiest_core_percent: float | None = None
    pressure_percent: float | None = None
    agent_percent: float | None = None
    memory_total: int | None = None
    memory_available: int | None = None
    swap_total: int | None = None
    swap_used: int | None = None
    shm_total: int | None = None
    shm_used: int | None = None
    processes: tuple[ProcessSample, ...] | None = None


@dataclass(frozen=True)
class Sample:
    """One host at one moment.

    time: seconds since the epoch, by the clock of the machine that asked. error: why the host told nothing. gpus: None
    where they are not known. engine: None where no server was asked or it did not answer; engine_error says why.
    notes: what else could not be learned, and why, by its source.
    """

    time: float
    host: str
    error: str | None = None
    gpus: tuple[GpuSample, ...] | None = None
    npus: tuple[NpuSample, ...] = ()
    machine: HostSample | None = None
    engine: EngineMetrics | None = None
    engine_error: str | None = None
    notes: tuple[tuple[str, str], ...] = ()


def sum_of_known(values: Iterable[float | None]) -> float | None:
    """The sum of what is known; None where nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None
