"""Result files: what is written is read back, whatever happens on the way."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onecat.errors import ExitCode, OnecatError
from onecat.experiments.records import Arrivals, Block, Environment, Objectives, Request, Workload
from onecat.experiments.results import ResultFile, read_experiment, read_outline

ENVIRONMENT = Environment("0.1", "gpu1", {"name": "vllm bench serve", "version": "0.27.1"}, {"": {"model": "small"}})

seconds = st.integers(0, 10**11).map(lambda microseconds: microseconds / 10**6)
names = st.text(max_size=20).filter(lambda text: text.isprintable() or "\n" in text)
requests = st.builds(
    Request,
    index=st.integers(0, 10**6),
    start=seconds,
    input_tokens=st.integers(0, 10**6),
    output_tokens=st.integers(0, 10**6),
    ttft=st.none() | seconds,
    end_to_end=seconds,
    inter_token=st.lists(seconds, max_size=4).map(tuple),
    error=st.none() | st.sampled_from(["timeout", "http-503"]),
    message=names,
)
blocks = st.builds(
    Block,
    number=st.integers(0, 1000),
    endpoint=names,
    started_at=st.just("2026-07-28T10:00:00.000Z"),
    seconds=seconds,
    requests=st.lists(requests, max_size=5).map(tuple),
    arrivals=st.builds(Arrivals, concurrency=st.none() | st.integers(1, 512), rate=st.none() | st.floats(0.1, 100)),
    workload=st.builds(Workload, requests=st.integers(1, 100), seed=st.integers(0, 99), path=st.none() | names),
    arm=names,
    warm_up=st.booleans(),
)
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
documents = st.dictionaries(names, plain, max_size=3)


def a_block(number: int = 0, requests: int = 2) -> Block:
    sent = tuple(Request(each, each * 0.5, 512, 3, 0.125, 0.25, (0.05, 0.075)) for each in range(requests))
    return Block(number, "chat", "2026-07-28T10:00:00.000Z", 2.5, sent, Arrivals(8), Workload(requests=requests))


def written(path: Path, blocks: int = 2, *, finished: bool = False) -> Path:
    with ResultFile.create(path, "run", ENVIRONMENT, {"seed": 7}) as file:
        for number in range(blocks):
            file.add_block(a_block(number))
        if finished:
            file.finish({"said": "fine"})
    return path


@given(
    measured=st.lists(blocks, max_size=3), samples=st.lists(documents, max_size=3), asked=documents, verdict=documents
)
@settings(max_examples=60, deadline=None)
def test_what_is_written_is_read_back(tmp_path_factory, measured, samples, asked, verdict):
    path = tmp_path_factory.mktemp("results") / "a.jsonl"
    objectives = Objectives(ttft_ms=200)
    with ResultFile.create(path, "sweep", ENVIRONMENT, asked, objectives) as file:
        for block in measured:
            file.add_block(block)
        for sample in samples:
            file.add_sample(sample)
        file.finish(verdict)
    read = read_experiment(path)
    assert read.blocks == tuple(measured)
    assert read.samples == tuple(samples)
    assert (read.kind, read.environment, read.objectives) == ("sweep", ENVIRONMENT, objectives)
    assert (read.settings, read.verdict) == (asked, verdict)
    assert read.finished_at is not None
    assert read_outline(path).experiment == replace(read, blocks=(), samples=())


@given(cut=st.integers(1, 4000))
@settings(max_examples=60, deadline=None)
def test_a_file_that_was_cut_off_anywhere_is_read_and_resumed(tmp_path_factory, cut):
    path = written(tmp_path_factory.mktemp("results") / "a.jsonl", 3)
    whole = path.read_bytes()
    header = whole.index(b"\n")
    path.write_bytes(whole[: max(header, len(whole) - cut)])
    before = read_experiment(path)
    with ResultFile.open_to_resume(path) as file:
        assert file.experiment == before
        file.add_block(a_block(len(before.blocks)))
        file.finish(None)
    after = read_experiment(path)
    assert after.blocks == (*before.blocks, a_block(len(before.blocks)))
    assert len(after.resumed_at) == 1
    assert after.finished_at is not None


def test_times_are_kept_to_the_microsecond(tmp_path):
    block = replace(a_block(), requests=(Request(0, 0.1234567, 1, 1, 1 / 3, 2 / 3, (1 / 7,)),))
    path = tmp_path / "a.jsonl"
    with ResultFile.create(path, "run", ENVIRONMENT, {}) as file:
        file.add_block(block)
    assert read_experiment(path).blocks[0].requests == (Request(0, 0.123457, 1, 1, 0.333333, 0.666667, (0.142857,)),)


def test_numbers_that_json_lacks_are_null_in_samples_and_refused_in_times(tmp_path):
    path = tmp_path / "a.jsonl"
    with ResultFile.create(path, "run", ENVIRONMENT, {}) as file:
        file.add_sample({"time": 1.0, "kv": float("nan"), "all": [float("inf"), 2.0]})
        with pytest.raises(ValueError, match="Out of range"):
            file.add_block(replace(a_block(), seconds=float("nan")))
        file.add_block(a_block())
    assert read_experiment(path).samples == ({"time": 1.0, "kv": None, "all": [None, 2.0]},)
    assert read_experiment(path).blocks == (a_block(),)


def test_every_block_is_in_the_file_when_the_process_is_killed(tmp_path):
    path = tmp_path / "a.jsonl"
    program = (
        "import sys, time; from pathlib import Path; sys.path.insert(0, 'tests/unit/experiments');"
        "from test_results import *;"
        f"file = ResultFile.create(Path({str(path)!r}), 'soak', ENVIRONMENT, {{}});"
        "[file.add_block(a_block(number)) for number in range(5)]; print('written', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"written\n"
    assert read_outline(path).is_running
    with pytest.raises(OnecatError, match="another onecat is writing") as refused:
        ResultFile.open_to_resume(path)
    assert refused.value.code == ExitCode.ROLLED_BACK
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert not read_outline(path).is_running
    assert len(read_experiment(path).blocks) == 5
    with ResultFile.open_to_resume(path) as file:
        assert len(file.experiment.blocks) == 5


def test_what_is_there_is_never_written_over(tmp_path):
    path = written(tmp_path / "a.jsonl")
    before = path.read_bytes()
    with pytest.raises(OnecatError, match="never written over"):
        ResultFile.create(path, "run", ENVIRONMENT, {})
    assert path.read_bytes() == before


def test_a_finished_experiment_is_not_resumed(tmp_path):
    path = written(tmp_path / "a.jsonl", finished=True)
    before = path.read_bytes()
    with pytest.raises(OnecatError, match="is finished, since"):
        ResultFile.open_to_resume(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "no result file"),
        ("hello\n", "no result file"),
        ("[1]\n", "no result file"),
        ('{"schema": "onecat.doctor/1"}\n', "of schema onecat.doctor/1"),
        ('{"schema": "onecat.bench/2"}\n', "schema onecat.bench/2, which this onecat does not read"),
        ('{"schema": "onecat.bench/1"}\n', "line 1 of this result file is damaged: 'kind' is missing"),
        ('{"schema": "onecat.bench/1", "kind": "dance"}\n', "'dance' is none of run, burst, ab, sweep, soak"),
    ],
)
def test_a_file_of_something_else_is_told(tmp_path, text, found):
    path = tmp_path / "a.jsonl"
    path.write_text(text)
    for read in (read_experiment, read_outline, ResultFile.open_to_resume):
        with pytest.raises(OnecatError, match=found):
            read(path)


def test_a_file_that_is_not_there_is_told(tmp_path):
    for read in (read_experiment, read_outline, ResultFile.open_to_resume):
        with pytest.raises(OnecatError, match="no such result file"):
            read(tmp_path / "a.jsonl")


def test_damage_before_the_last_line_is_told_with_its_place(tmp_path):
    path = written(tmp_path / "a.jsonl", 3)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([lines[0], lines[1][:50] + "\n", *lines[2:]]))
    with pytest.raises(OnecatError, match="line 2 of this result file is damaged") as told:
        read_experiment(path)
    assert told.value.where == f"{path}:2"
    block = json.loads(lines[3])
    block["block"]["requests"]["start"].pop()
    path.write_text("".join([*lines[:3], json.dumps(block) + "\n"]))
    with pytest.raises(OnecatError, match="line 4 .* columns of 1, 2 requests"):
        read_experiment(path)


def test_what_a_later_version_adds_is_left_out(tmp_path):
    path = written(tmp_path / "a.jsonl", 1)
    header, block = map(json.loads, path.read_text().splitlines())
    header["environment"]["weather"] = header["colour"] = "grey"
    block["block"]["workload"]["shape"] = block["block"]["requests"]["queue"] = [0, 1]
    path.write_text("".join(f"{json.dumps(each)}\n" for each in (header, {"event": 1}, block)))
    assert read_experiment(path).blocks == (a_block(),)


def test_a_full_disk_leaves_whole_lines(tmp_path):
    """A limit on the size of files stands for the full disk: the same call fails in the same place."""
    path = tmp_path / "a.jsonl"
    program = (
        "import resource, signal, sys; from pathlib import Path; sys.path.insert(0, 'tests/unit/experiments');"
        "from test_results import *; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        f"file = ResultFile.create(Path({str(path)!r}), 'run', ENVIRONMENT, {{}}); file.add_block(a_block());"
        "size = file.path.stat().st_size; resource.setrlimit(resource.RLIMIT_FSIZE, (size + 90, size + 90))\n"
        "try: file.add_block(a_block(1))\n"
        "except OSError as error: print(error.filename)"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == str(path)
    assert path.read_bytes().endswith(b"\n")
    assert read_experiment(path).blocks == (a_block(),)


def test_a_hundred_thousand_requests_are_read_in_seconds(tmp_path):
    path = tmp_path / "a.jsonl"
    with ResultFile.create(path, "soak", ENVIRONMENT, {}) as file:
        file.add_block(a_block(requests=100_000))
    begun = time.process_time()
    assert len(read_experiment(path).blocks[0].requests) == 100_000
    assert time.process_time() - begun < 6
    assert path.stat().st_size < 100_000 * 120
