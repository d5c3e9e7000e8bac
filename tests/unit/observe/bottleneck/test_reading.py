"""Readings of samples as real machines give them, and of those that look like a bottleneck and are none.

V100 PCIe: 250 W, 1380 MHz, PCIe 3.0 x16 with 12 to 13 GB/s in copies; H200: 700 W, 1980 MHz. What they show under these
loads is reckoned from what each load does, and was not measured; the server on the CPU is as this testbed's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from onecat.observe.bottleneck import BOTTLENECKS, Bottleneck, Reading, read_bottleneck
from onecat.observe.bottleneck.reading import rules
from onecat.observe.metrics import EngineMetrics, EngineSeries, GpuSample, HostSample, ProcessSample, Sample

V100 = GpuSample(
    0,
    "Tesla V100-PCIE-32GB",
    utilization_percent=0,
    memory_utilization_percent=0,
    memory_used=29 << 30,
    memory_total=32 << 30,
    pcie_tx=0.0,
    pcie_rx=0.0,
    pcie_generation=3,
    pcie_generation_max=3,
    pcie_width=16,
    pcie_width_max=16,
    sm_clock_mhz=1380,
    sm_clock_max_mhz=1380,
    event_reasons=0,
    temperature_celsius=62,
    power_watts=40.0,
    power_limit_watts=250.0,
    power_limit_default_watts=250.0,
)
H200 = replace(
    V100,
    name="NVIDIA H200",
    memory_total=141 << 30,
    pcie_generation=5,
    pcie_generation_max=5,
    sm_clock_mhz=1980,
    sm_clock_max_mhz=1980,
    power_limit_watts=700.0,
    power_limit_default_watts=700.0,
)


@dataclass(frozen=True)
class Load:
    """What a server does: requests now, and tokens per second."""

    running: float = 0
    waiting: float = 0
    kv: float | None = 0.3
    prompt: float = 0
    generated: float = 0
    preempted: float = 0
    requests: float = 0


def samples(
    *gpus: GpuSample, load: Load | None = None, machine: HostSample | None = None, count: int = 8, **changes: Any
) -> list[Sample]:
    """A steady stretch, two seconds between each two samples."""
    found = []
    for number in range(count):
        seconds = 2.0 * number
        engine = None
        if load is not None:
            series = EngineSeries(
                "m",
                "0",
                running=load.running,
                waiting=load.waiting,
                kv_cache_usage=load.kv,
                prompt_tokens=1e6 + load.prompt * seconds,
                generation_tokens=1e6 + load.generated * seconds,
                preemptions=load.preempted * seconds,
                requests=load.requests * seconds,
            )
            engine = EngineMetrics((series,), 1.0)
        found.append(Sample(1000.0 + seconds, "gpu1", gpus=gpus or None, engine=engine, machine=machine, **changes))
    return found


def busy(gpu: GpuSample, utilization: float, memory: float, power: float, **changes: Any) -> GpuSample:
    return replace(
        gpu,
        utilization_percent=utilization,
        memory_utilization_percent=memory,
        power_watts=power * (gpu.power_limit_watts or 0),
        **changes,
    )


def second(gpu: GpuSample) -> GpuSample:
    return replace(gpu, index=1)


def cpu(percent: float, *processes: ProcessSample, cores: int = 16, busiest: float = 30) -> HostSample:
    return HostSample(cores=cores, cpu_percent=percent, busiest_core_percent=busiest, processes=processes)


DECODE = Load(running=24, prompt=300, generated=900, requests=2)
PREFILL = Load(running=6, prompt=9000, generated=80, requests=4)
LINK = {"pcie_tx": 7.6e9, "pcie_rx": 8.1e9}

CASES: list[tuple[str, list[Sample], Bottleneck, str]] = [
    # Two V100s over PCIe without P2P, tensor parallel: kernels of NCCL keep the GPUs "busy" at little power.
    (
        "tensor parallel over PCIe, prompts",
        samples(busy(V100, 99, 24, 0.42, **LINK), second(busy(V100, 99, 23, 0.41, **LINK)), load=PREFILL),
        "pcie",
        "high",
    ),
    (
        "tensor parallel over PCIe, half of the time on the link",
        samples(
            busy(V100, 98, 38, 0.55, pcie_tx=5.6e9, pcie_rx=5.9e9),
            second(busy(V100, 98, 37, 0.54, pcie_tx=5.9e9, pcie_rx=5.5e9)),
            load=PREFILL,
        ),
        "pcie",
        "medium",
    ),
    (
        "a link of four lanes",
        samples(busy(V100, 92, 30, 0.5, pcie_width=4, pcie_tx=2.4e9, pcie_rx=2.6e9), load=DECODE),
        "pcie",
        "high",
    ),
    ("decoding on a V100", samples(busy(V100, 98, 76, 0.58), load=DECODE), "memory-bandwidth", "high"),
    ("decoding on an H200", samples(busy(H200, 96, 57, 0.5), load=DECODE), "memory-bandwidth", "medium"),
    ("prompts on a V100", samples(busy(V100, 100, 34, 0.93), load=PREFILL), "compute", "high"),
    ("prompts on an H200", samples(busy(H200, 100, 30, 0.97), load=PREFILL), "compute", "high"),
    (
        "dense computing at the power limit with clocks a little lower is no throttling",
        samples(busy(H200, 100, 30, 0.99, event_reasons=0x4, sm_clock_mhz=1755), load=PREFILL),
        "compute",
        "high",
    ),
    (
        "clocks that the default power limit holds low are how a card computes",
        samples(busy(H200, 100, 30, 1.0, event_reasons=0x4, sm_clock_mhz=1400), load=PREFILL),
        "compute",
        "high",
    ),
    (
        "a power limit that somebody has lowered",
        samples(
            busy(replace(V100, power_limit_watts=120.0), 100, 34, 1.0, event_reasons=0x4, sm_clock_mhz=900),
            load=PREFILL,
        ),
        "throttling",
        "high",
    ),
    (
        "heat",
        samples(busy(V100, 99, 60, 0.8, event_reasons=0x20, sm_clock_mhz=900, temperature_celsius=85), load=DECODE),
        "throttling",
        "high",
    ),
    (
        "hardware slowdown of one card of two",
        samples(
            busy(V100, 99, 70, 0.6),
            second(busy(V100, 99, 70, 0.6, event_reasons=0x48, sm_clock_mhz=600)),
            load=DECODE,
        ),
        "throttling",
        "high",
    ),
    (
        "a cache that is too small",
        samples(
            busy(V100, 97, 60, 0.6),
            load=Load(running=30, waiting=12, kv=0.99, preempted=0.4, prompt=500, generated=600),
        ),
        "kv-cache",
        "high",
    ),
    (
        "requests that find no room, none preempted",
        samples(busy(V100, 97, 60, 0.6), load=Load(running=30, waiting=12, kv=0.98, prompt=500, generated=600)),
        "kv-cache",
        "high",
    ),
    (
        "more requests than --max-num-seqs lets run",
        samples(busy(H200, 95, 52, 0.5), load=Load(running=16, waiting=84, kv=0.12, prompt=400, generated=1500)),
        "queue",
        "high",
    ),
    (
        "one thread of the server",
        samples(
            busy(H200, 41, 18, 0.3),
            load=DECODE,
            machine=cpu(9, ProcessSample(77, "VLLM::EngineCore", 9 << 30, 104.0, 99.4, 80)),
        ),
        "server-cpu",
        "high",
    ),
    ("a host with no core left", samples(busy(V100, 55, 30, 0.4), load=DECODE, machine=cpu(99)), "server-cpu", "high"),
    (
        "a server on the CPU",
        samples(load=Load(running=4, generated=20), machine=cpu(97, ProcessSample(5, "vllm", 2 << 30, 190.0), cores=2)),
        "compute",
        "medium",
    ),
    ("nobody asks", samples(busy(V100, 0, 0, 0.15, event_reasons=0x1, sm_clock_mhz=135), load=Load()), "idle", "high"),
    ("GPUs alone, at rest", samples(busy(V100, 0, 0, 0.15)), "idle", "medium"),
]

NOT_SO: list[tuple[str, list[Sample], Bottleneck]] = [
    # At rest the link is at generation 1 and clocks are low: neither says anything.
    (
        "the link and the clocks of a card at rest",
        samples(
            busy(V100, 0, 0, 0.1, pcie_generation=1, sm_clock_mhz=135, event_reasons=0x1, pcie_tx=1e5, pcie_rx=2e5),
            load=Load(),
        ),
        "idle",
    ),
    (
        "a cache that is full of prefixes while nobody waits",
        samples(busy(V100, 96, 75, 0.6), load=replace(DECODE, kv=0.99)),
        "memory-bandwidth",
    ),
    ("a card that is busy for another program", samples(busy(V100, 99, 80, 0.6), load=Load()), "not-clear"),
    ("a moderate load", samples(busy(V100, 60, 25, 0.4), load=replace(DECODE, running=3)), "not-clear"),
    (
        "application clocks and sync boost are settings",
        samples(busy(V100, 98, 76, 0.58, event_reasons=0x12, sm_clock_mhz=1230), load=DECODE),
        "memory-bandwidth",
    ),
    (
        "a busy thread beside busy GPUs waits for them",
        samples(
            busy(V100, 98, 76, 0.58), load=DECODE, machine=cpu(10, ProcessSample(7, "VLLM::EngineCore", 1, 100.0, 99.0))
        ),
        "memory-bandwidth",
    ),
    (
        "long computing without a sign of what it is",
        samples(busy(V100, 95, 35, 0.45), load=replace(DECODE, prompt=0)),
        "not-clear",
    ),
    (
        "a card that tells no utilisation",
        samples(replace(V100, utilization_percent=None, memory_utilization_percent=None), load=DECODE),
        "not-clear",
    ),
    ("nothing is known", samples(), "not-clear"),
]


@pytest.mark.parametrize(("what", "stretch", "expected", "confidence"), CASES, ids=[each[0] for each in CASES])
def test_a_bottleneck_is_found(what: str, stretch: list[Sample], expected: Bottleneck, confidence: str) -> None:
    reading = read_bottleneck(stretch)
    assert (reading.bottleneck, reading.confidence) == (expected, confidence), reading
    assert reading.evidence and any(any(letter.isdigit() for letter in each) for each in reading.evidence)
    assert len(reading.sentence) <= 110 and "\n" not in reading.sentence
    if expected != "idle":
        assert reading.advice and reading.source and reading.seconds == 14.0


@pytest.mark.parametrize(("what", "stretch", "expected"), NOT_SO, ids=[each[0] for each in NOT_SO])
def test_what_looks_like_a_bottleneck_and_is_none(what: str, stretch: list[Sample], expected: Bottleneck) -> None:
    assert read_bottleneck(stretch).bottleneck == expected


def test_the_default_power_limit_is_told_when_nothing_surer_is_known() -> None:
    held = busy(V100, 97, 45, 0.6, event_reasons=0x4, sm_clock_mhz=900)
    reading = read_bottleneck(samples(held, load=replace(DECODE, prompt=0)))
    assert reading.bottleneck == "throttling" and "power limit" in reading.sentence and "65 %" in reading.sentence


def test_bits_in_one_sample_of_ten_are_no_throttling() -> None:
    stretch = samples(busy(V100, 98, 76, 0.58), load=DECODE, count=10)
    stretch[4] = replace(stretch[4], gpus=(busy(V100, 98, 76, 0.58, event_reasons=0x8),))
    assert read_bottleneck(stretch).bottleneck == "memory-bandwidth"


def test_a_burst_that_is_gone_at_once_is_no_queue() -> None:
    stretch = samples(busy(V100, 98, 76, 0.58), load=DECODE)
    burst = samples(busy(V100, 98, 76, 0.58), load=replace(DECODE, waiting=50))
    assert read_bottleneck([*stretch[:5], *burst[5:6], *stretch[6:]]).bottleneck == "memory-bandwidth"


def test_what_else_was_seen_is_told_too() -> None:
    heat = busy(V100, 99, 76, 0.8, event_reasons=0x40, sm_clock_mhz=900)
    reading = read_bottleneck(samples(heat, load=Load(running=16, waiting=50, kv=0.1, generated=500)))
    assert reading.bottleneck == "throttling"
    assert [kind for kind, _ in reading.also] == ["queue", "memory-bandwidth"]


def test_a_host_that_does_not_answer_and_a_first_sample_are_not_read() -> None:
    lost = [replace(each, error="the connection was lost", gpus=None) for each in samples(count=3)]
    assert read_bottleneck(lost).sentence == "not clear: the host does not answer"
    assert read_bottleneck(samples(busy(V100, 98, 76, 0.5), count=1)).sentence.startswith("not clear yet")
    assert read_bottleneck([]).bottleneck == "not-clear"


def test_samples_in_which_the_host_was_lost_are_left_out() -> None:
    stretch = samples(busy(V100, 98, 76, 0.58), load=DECODE)
    lost = replace(stretch[3], error="lost", gpus=None, engine=None)
    assert read_bottleneck([*stretch[:3], lost, *stretch[4:]]).bottleneck == "memory-bandwidth"


def test_a_card_that_fell_off_the_bus_does_not_hide_the_other() -> None:
    gone = GpuSample(1, error="GPU is lost")
    assert read_bottleneck(samples(busy(V100, 98, 76, 0.58), gone, load=DECODE)).bottleneck == "memory-bandwidth"


def test_every_rule_can_win() -> None:
    found = {each[2] for each in CASES} | {"not-clear"}
    assert found == set(BOTTLENECKS)
    assert len({rule.__module__ for rule in rules()}) == len(rules())
    assert isinstance(read_bottleneck(CASES[0][1]), Reading)
