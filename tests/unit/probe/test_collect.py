"""Collecting facts through a transport, and reading saved ones back."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from onecat.errors import ExitCode, OnecatError
from onecat.facts import Facts, to_json
from onecat.hosts import LocalTransport, parse_target
from onecat.probe import Observing, ProbeOptions, collect, collect_local, read_facts
from onecat.probe.collect import clock_offset
from tests.processes import runs, within


def test_this_machine_is_observed_in_half_a_second() -> None:
    started = time.monotonic()
    facts = collect_local()
    assert time.monotonic() - started < 0.5 * 4, "four times the target: the machine that runs the tests is shared"
    assert facts.host == "local"
    assert facts.cpu is not None and facts.cpu.usable_cores
    assert facts.memory is not None and facts.memory.total
    assert facts.filesystem("data") is not None
    assert facts.operating_system is not None and facts.operating_system.python == ".".join(
        map(str, sys.version_info[:3])
    )


def test_nothing_is_written_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    collect_local()
    assert list(tmp_path.iterdir()) == []


def test_an_observation_goes_on_beside_the_caller_and_is_waited_for_only_when_asked(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    started = time.monotonic()
    observing = Observing([parse_target("local")], ProbeOptions(str(tmp_path)))
    assert time.monotonic() - started < 0.1
    (observation,) = observing.observations()
    assert observation.facts is not None and observation.facts.host == observation.name == "local"
    assert 0 < observation.seconds <= time.monotonic() - started


class OtherPython(LocalTransport):
    """This machine, where the interpreter is another program."""

    def __init__(self, python: str) -> None:
        self.python = python


def test_a_host_without_the_named_python_cannot_be_reached() -> None:
    with pytest.raises(OnecatError, match="/nowhere/python3 cannot be started") as caught:
        collect(OtherPython("/nowhere/python3"))
    assert caught.value.code is ExitCode.UNREACHABLE


def test_a_program_that_is_no_python_gives_no_facts() -> None:
    with pytest.raises(OnecatError, match="the probe gave no facts") as caught:
        collect(OtherPython("/bin/false"))
    assert caught.value.code is ExitCode.UNREACHABLE


def test_a_local_program_that_runs_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    started = tmp_path / "pid"
    script = f"sleep 60 & echo $! > {started}; wait"
    with pytest.raises(OnecatError, match="did not end within 0.5 s") as caught:
        LocalTransport().run(["sh", "-c", script], timeout=0.5)
    assert caught.value.code is ExitCode.UNREACHABLE
    assert within(5, lambda: not runs(int(started.read_text())))


@pytest.mark.parametrize(
    ("collected_at", "offset"),
    [
        ("1970-01-01T00:16:40Z", 0.0),  # 1000 s: within the second and the way
        ("1970-01-01T00:16:39Z", 0.0),
        ("1970-01-01T00:16:50Z", 9.0),  # 1010 s: at least 9 ahead of an answer at 1001
        ("1970-01-01T00:16:30Z", -9.0),
        (None, None),
        ("yesterday", None),
    ],
)
def test_a_clock_is_as_far_off_as_the_times_of_question_and_answer_prove(
    collected_at: str | None, offset: float | None
) -> None:
    assert clock_offset(collected_at, sent=1000.0, received=1001.0) == offset


def test_a_local_program_gets_its_input_and_gives_its_output() -> None:
    done = LocalTransport().run(["sh", "-c", "cat; echo oops >&2; exit 3"], stdin=b"hello", timeout=10)
    assert (done.exit_code, done.stdout, done.stderr) == (3, b"hello", b"oops\n")


def test_saved_facts_are_read_back(tmp_path: Path) -> None:
    facts = collect_local()
    file = tmp_path / "facts.json"
    file.write_text(json.dumps(to_json(facts)))
    assert read_facts(file) == facts


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "NVIDIA-SMI 580.95.05", json.dumps({"schema": "onecat.plan/1"}), "\ufeff"]
)
def test_a_file_that_holds_no_facts_is_refused_with_what_is_read(text: str, tmp_path: Path) -> None:
    file = tmp_path / "capture.txt"
    file.write_text(text)
    with pytest.raises(OnecatError, match="not a file of saved facts") as caught:
        read_facts(file)
    assert "onecat facts --json" in str(caught.value.expected)
    assert caught.value.code is ExitCode.USAGE


def test_bytes_that_are_no_text_are_refused_too(tmp_path: Path) -> None:
    file = tmp_path / "capture.bin"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(OnecatError, match="not a file of saved facts"):
        read_facts(file)


def test_a_form_of_another_version_is_told_how_to_come_together(tmp_path: Path) -> None:
    (tmp_path / "f.json").write_text('{"schema": "onecat.facts/2", "host": "gpu1"}')
    with pytest.raises(OnecatError, match="onecat.facts/2") as caught:
        read_facts(tmp_path / "f.json")
    assert caught.value.next_steps[0] == "update onecat on this machine"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_facts_that_powershell_saved_are_read_too(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "f.json").write_text(json.dumps(to_json(Facts("gpu1"))), encoding=encoding)
    assert read_facts(tmp_path / "f.json") == Facts("gpu1")


@pytest.mark.parametrize("text", ["[" * 100_000, "[1]", "null"])
def test_json_of_any_other_form_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "f.json").write_text(text)
    with pytest.raises(OnecatError, match="this is not a file of saved facts") as caught:
        read_facts(tmp_path / "f.json")
    assert "attribute" not in caught.value.found


def test_a_directory_in_place_of_the_file_is_a_mistake_of_usage(tmp_path: Path) -> None:
    with pytest.raises(OnecatError, match="Is a directory") as caught:
        read_facts(tmp_path)
    assert caught.value.code is ExitCode.USAGE


def test_a_missing_file_is_told_apart(tmp_path: Path) -> None:
    with pytest.raises(OnecatError, match="does not exist"):
        read_facts(tmp_path / "absent.json")


def test_facts_of_a_named_host_keep_their_name(tmp_path: Path) -> None:
    file = tmp_path / "facts.json"
    file.write_text(json.dumps(to_json(Facts(host="gpu7"))))
    assert read_facts(file).host == "gpu7"
