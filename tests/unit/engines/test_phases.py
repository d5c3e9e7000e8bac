"""Which phase of a start a log line tells of, shown on complete logs of real starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onecat.engines import phase_of

LOGS = Path(__file__).parents[2] / "fixtures" / "logs"


def phases(log: Path) -> list[str]:
    """The titles of the phases of a log, repetitions left out."""
    titles: list[str] = []
    for line in log.read_text(encoding="utf-8").splitlines():
        phase = phase_of(line)
        if phase is not None and titles[-1:] != [phase.title]:
            titles.append(phase.title)
    return titles


def test_a_start_without_compilation_goes_through_its_phases_in_order() -> None:
    assert phases(LOGS / "healthy-start-and-stop-eager.log") == [
        "starting",
        "reading the model's configuration",
        "starting the engine process",
        "loading weights",
        "loading weights 0 %",
        "loading weights 100 %",
        "weights loaded",
        "allocating the KV cache",
        "warmed up",
        "opening its port",
        "ready",
        "stopping",
    ]


def test_a_start_with_compilation_says_that_it_compiles() -> None:
    titles = phases(LOGS / "healthy-start-and-stop-compiled.log")
    assert titles[6:10] == ["weights loaded", "compiling the model", "warming up", "allocating the KV cache"]


@pytest.mark.parametrize(
    ("line", "title"),
    [
        (
            "(Worker_TP0 pid=9) Loading safetensors checkpoint shards:  25% Completed | 1/4 [00:01<00:03]",
            "loading weights 25 %",
        ),
        ("Multi-thread loading shards:  50% Completed | 2/4", "loading weights 50 %"),
        ("Loading safetensors using Runai Model Streamer:  10% Completed | 1/10", "loading weights 10 %"),
        (
            "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  36%|###6      | 24/67",
            "capturing CUDA graphs 36 %",
        ),
        ("Capturing prefill CUDA graphs:   0%|          | 0/3", "capturing CUDA graphs 0 %"),
        ("INFO [gpu_model_runner.py:6914] Graph capturing finished in 4 secs, took 0.35 GiB", "capturing CUDA graphs"),
        ("INFO [gpu_worker.py:564] Available KV cache memory: 61.2 GiB", "allocating the KV cache"),
        ("INFO [backends.py:1156] Dynamo bytecode transform time: 3.20 s", "compiling the model"),
        ("INFO [backends.py:394] Compiling a graph for compile range (1, 2048) takes 9.41 s", "compiling the model"),
        ("DeepGEMM warmup:  80%|########  | 8/10", "warming up kernels 80 %"),
    ],
)
def test_lines_of_gpu_servers_are_known_too(line: str, title: str) -> None:
    phase = phase_of(line)
    assert phase is not None
    assert phase.title == title


@pytest.mark.parametrize(
    "line",
    [
        "",
        '(APIServer pid=3149) INFO:     127.0.0.1:43260 - "GET /health HTTP/1.1" 200 OK',
        "INFO 11-29 16:27:19 [launcher.py:46] Route: /health, Methods: GET",
        "WARNING 11-29 16:26:52 [importing.py:65] Triton is installed, but doesn't include CPU backend.",
        "nanobind: leaked 4 instances!",
    ],
)
def test_other_lines_tell_of_no_phase(line: str) -> None:
    assert phase_of(line) is None


@given(st.text())
def test_any_line_is_a_phase_or_none(line: str) -> None:
    phase = phase_of(line)
    assert phase is None or phase.percent is None or 0 <= phase.percent <= 100
