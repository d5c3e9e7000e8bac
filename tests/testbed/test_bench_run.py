"""`onecat bench run`, `burst` and `soak` on a real vLLM, as people type them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from onecat.deploy import processes
from onecat.experiments.results import read_experiment
from tests.processes import runs, within
from tests.testbed.served import Served

pytestmark = pytest.mark.engine
SHORT = ("--input-tokens", "8", "--output-tokens", "3")
PROGRAM = b"vllm.benchmarks.serve"


def senders(served: Served) -> set[int]:
    """The processes that send load for onecat's commands on this deployment."""
    found = set()
    for pid in processes.with_variable("ONECAT_HOME", str(served.onecat.home)):
        try:
            if PROGRAM in Path(f"/proc/{pid}/cmdline").read_bytes() and runs(pid):
                found.add(pid)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def start(served: Served, *arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        served.onecat.argv("bench", *arguments),
        env=served.onecat.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def is_unharmed(served: Served) -> bool:
    body = {"model": served.model, "max_tokens": 2, "prompt": "In the beginning"}
    answer = httpx.post(f"{served.endpoint}/v1/completions", json=body, timeout=60, trust_env=False)
    return answer.status_code == 200


def test_a_run_tells_its_figures_and_keeps_them(served: Served, tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    arguments = ("bench", "run", served.name, "-n", "6", "--concurrency", "1,3", "--repetitions", "2", *SHORT)
    done = served.onecat(*arguments, "--goodput", "e2e:60s", "--output", file, "--json").expect(0)
    document: dict[str, Any] = done.json()
    assert (document["schema"], document["kind"], document["file"]) == ("onecat.bench/1", "run", str(file))
    assert document["environment"]["driver"]["name"] == "vllm bench serve"
    assert document["environment"]["arms"][""]["release"] == 1
    assert [each["arrivals"]["concurrency"] for each in document["series"]] == [1, 3]
    for each in document["series"]:
        summary = each["summary"]
        assert (summary["blocks"], summary["requests"], summary["answered"], summary["errors"]) == (2, 12, 12, {})
        assert summary["output_tokens"] == 36
        assert 0 < summary["ttft"]["p50"]["value"] <= summary["end_to_end"]["p50"]["value"]
        assert summary["good_share"]["value"] == 1.0
    assert "block 6 of 6" in done.stderr
    experiment = read_experiment(file)
    assert experiment.finished_at is not None
    assert [each.warm_up for each in experiment.blocks] == [True, False, True, False, False, False]
    assert file.stat().st_mode & 0o077 == 0
    assert senders(served) == set()


def test_what_cannot_be_is_told_before_anything_is_started(served: Served, tmp_path: Path) -> None:
    def refused(*arguments: str | Path) -> str:
        return served.onecat("bench", *arguments).expect(2).stderr

    assert "--max-model-len" in refused("run", served.name, "--input-tokens", "600")
    assert "no deployment nothing" in refused("run", "nothing")
    assert "--goodput ttft:fast" in refused("run", "--goodput", "ttft:fast")
    assert "--concurrency 0" in refused("run", "--concurrency", "0")
    assert "--for soon" in refused("soak", "--for", "soon")
    assert "--model and --tokenizer" in refused("run", "--endpoint", served.server)
    foreign = ("--endpoint", "http://192.0.2.1:8000", "--model", "small", "--tokenizer", served.directory)
    assert "--load-foreign-server" in refused("burst", *foreign)
    assert "no such result file" in refused("soak", "--resume", tmp_path / "nothing.jsonl")


def test_a_run_that_is_killed_leaves_no_load_behind(served: Served, tmp_path: Path) -> None:
    run = start(served, "run", served.name, "-n", "5000", "--concurrency", "2", *SHORT, "-o", tmp_path / "run.jsonl")
    assert run.stderr is not None
    assert any(line.startswith("block 2") for line in run.stderr)  # it sends
    (sender,) = senders(served)
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    assert within(10, lambda: not runs(sender))
    assert is_unharmed(served)
    assert len(read_experiment(tmp_path / "run.jsonl").blocks) == 1  # the warm-up


@pytest.mark.measures
def test_a_server_by_its_address_and_a_burst_of_load(served: Served, tmp_path: Path) -> None:
    address = ("--endpoint", f"{served.server}/v1", "--model", served.model, "--tokenizer", served.directory)
    file = tmp_path / "burst.jsonl"
    parts = ("--concurrency", "12", "--for", "3s", "--calm-requests", "5", "--recovery", "60s")
    done = served.onecat("bench", "burst", *address, *parts, *SHORT, "--output", file, "--json").expect(0)
    verdict = done.json()["verdict"]
    assert verdict["verdict"] == "recovered"
    assert verdict["sent"] >= 12 and verdict["answered"] == verdict["sent"]
    assert verdict["calm"]["n"] == 5
    assert 0 < verdict["calm"]["low"] <= verdict["calm"]["high"]
    assert 0 <= verdict["recovery_seconds"] <= verdict["waited_seconds"] < 60
    blocks = {each.arm: each for each in read_experiment(file).blocks if not each.warm_up}
    assert list(blocks) == ["calm", "burst", "recovery"]
    burst = blocks["burst"].requests
    assert max(each.start for each in burst) < 3
    assert sum(each.start < 0.5 for each in burst) >= 12
    last = blocks["recovery"].requests[-1]
    assert last.start == pytest.approx(verdict["recovery_seconds"], abs=1e-6)
    assert last.end_to_end <= verdict["calm"]["high"]


def test_a_soak_goes_on_where_it_was_cut_off(served: Served, tmp_path: Path) -> None:
    file = tmp_path / "soak.jsonl"
    arguments = ("--for", "8s", "--rate", "4", "--sample", "1s", *SHORT, "--output", file)
    begun = start(served, "soak", served.name, *arguments)
    assert begun.stderr is not None and begun.stdout is not None
    assert any(line.startswith("0:00:") for line in begun.stderr)  # a block is on the disk
    (sender,) = senders(served)
    begun.send_signal(signal.SIGINT)
    told = begun.stdout.read()
    assert begun.wait(60) == 130
    assert "unfinished after" in told and f"--resume {file}" in " ".join(told.split())
    assert not runs(sender)
    before = read_experiment(file)
    assert before.finished_at is None and before.blocks

    resumed = served.onecat("bench", "soak", "--resume", file, "--json", timeout=180).expect(0)
    verdict = resumed.json()["verdict"]
    assert verdict["verdict"] == "too-short"
    assert verdict["seconds"] >= 8
    demands = {each["name"]: each for each in verdict["demands"]}
    assert (demands["time"]["kept"], demands["errors"]["kept"], demands["restarts"]["kept"]) == (True, True, True)
    assert "MiB" in demands["memory"]["text"] and demands["memory"]["kept"] is None
    after = read_experiment(file)
    assert after.finished_at is not None and len(after.resumed_at) == 1
    assert after.blocks[: len(before.blocks)] == before.blocks
    numbers = [each.number for each in after.blocks]
    assert numbers == sorted(set(numbers))
    samples = [each for each in after.samples if "cut_short" not in each]
    assert all(each["state"] == "running" and each["private_bytes"] > 0 for each in samples)
    assert {each["restarts"] for each in samples} == {0}
    again = served.onecat("bench", "soak", "--resume", file).expect(2)
    assert "finished" in again.stderr
    assert is_unharmed(served)
    json.dumps(verdict)
