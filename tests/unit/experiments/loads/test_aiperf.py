"""What aiperf is asked, and what its records say: lines that aiperf 0.13.0 wrote, shortened."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from onecat.experiments.loads.aiperf import configuration, read_records, removing_after
from onecat.experiments.records import ApiKey, Arrivals, Endpoint, Workload

ENDPOINT = Endpoint("chat", "http://127.0.0.1:8080", "small", "/models/small", key=ApiKey("sk-1"))
ANSWERED = (
    '{"metadata":{"session_num":1,"x_request_id":"a8d1fd0f","turn_index":0,"credit_issued_ns":1796077249775816287,'
    '"request_start_ns":1796077249777238097,"request_ack_ns":1796077249820597048,"request_end_ns":1796077250216309247,'
    '"benchmark_phase":"profiling","was_cancelled":false},"metrics":{"output_sequence_length":{"value":4,'
    '"unit":"tokens"},"request_latency":{"value":439.07115,"unit":"ms"},"inter_chunk_latency":{"value":[0.0,27.926987,'
    '40.108197],"unit":"ms"},"time_to_first_token":{"value":371.035966,"unit":"ms"},"input_sequence_length":{"value":16,'
    '"unit":"tokens"}}}'
)
REFUSED = (
    '{"metadata":{"session_num":0,"request_start_ns":1796077425064467244,"request_end_ns":1796077425064467244,'
    '"benchmark_phase":"profiling","was_cancelled":false},"metrics":{},"error":{"code":401,"type":"Unauthorized",'
    '"message":"{\\"error\\": \\"Unauthorized\\"}"}}'
)


def test_records() -> None:
    (_, refused), (start, answered) = read_records(f"{ANSWERED}\n{REFUSED}\n{ANSWERED[:50]}")
    assert start == pytest.approx(1796077249.777238)
    assert (answered.index, answered.error, answered.input_tokens, answered.output_tokens) == (1, None, 16, 4)
    assert answered.ttft == pytest.approx(0.371035966)
    assert answered.end_to_end == pytest.approx(0.43907115)
    assert answered.inter_token == pytest.approx((0.0, 0.027926987, 0.040108197))
    assert (refused.index, refused.error, refused.ttft) == (0, "key", None)
    assert refused.message.startswith("Unauthorized: ")


def test_warm_ups_are_no_requests_of_the_block() -> None:
    assert read_records(ANSWERED.replace('"profiling"', '"warmup"')) == []


def made(workload: Workload, arrivals: Arrivals, stop_after: float | None = None) -> dict[str, Any]:
    document = configuration(ENDPOINT, workload, arrivals, 60.0, stop_after)
    assert json.loads(json.dumps(document)) == document
    return dict(document["benchmark"])


def test_what_it_is_asked() -> None:
    found = made(Workload(requests=9, input_tokens=16, output_tokens=4), Arrivals(concurrency=2))
    assert found["phases"] == {"type": "concurrency", "concurrency": 2, "requests": 9}
    assert found["dataset"]["prompts"] == {"isl": 16, "osl": 4}
    assert found["endpoint"]["extra"] == {"temperature": 0, "ignore_eos": True}
    assert (found["endpoint"]["apiKey"], found["endpoint"]["type"]) == ("sk-1", "completions")


def test_ways_of_arriving() -> None:
    assert made(Workload(requests=9), Arrivals(rate=2.0))["phases"] == {"type": "poisson", "rate": 2.0, "requests": 9}
    bursts = made(Workload(requests=9), Arrivals(concurrency=4, rate=2.0, burstiness=0.5), stop_after=30.0)["phases"]
    assert (bursts["type"], bursts["smoothness"], bursts["concurrency"]) == ("gamma", 0.5, 4)
    assert (bursts["duration"], bursts["gracePeriod"]) == (30.0, "inf")
    assert made(Workload(requests=9), Arrivals())["phases"]["concurrency"] == 9


@pytest.mark.parametrize(("end", "code"), [("exit 3", 3), ("kill -9 $$", 137), ("kill -13 $$", 141)])
def test_the_file_with_the_key_goes_when_the_program_ends_however_it_does(tmp_path: Path, end: str, code: int) -> None:
    file = tmp_path / "with a key.yaml"
    file.write_text("api_key: sk-1")
    script = f'test -s "$1" && {end}'
    ended = subprocess.run(removing_after(str(file), ["sh", "-c", script, "sh", str(file)]), check=False)
    assert (ended.returncode, file.exists()) == (code, False)


def test_it_goes_where_nobody_hears_the_program_any_more(tmp_path: Path) -> None:
    """As after a lost connection: the program's output has no reader, so it ends with its next line."""
    file = tmp_path / "aiperf.yaml"
    file.write_text("api_key: sk-1")
    with subprocess.Popen(removing_after(str(file), ["yes"]), stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"y\n" and file.exists()
        running.stdout.close()
        assert running.wait(10) == 141
    assert not file.exists()
