"""Where result files lie, and how a person names one."""

from __future__ import annotations

from pathlib import Path

import pytest

from onecat.errors import OnecatError
from onecat.experiments.places import find_result, list_results, new_path, results_directory
from onecat.experiments.records import Environment
from onecat.experiments.results import ResultFile

ENVIRONMENT = Environment("0.9", "desk", {}, {"": {}})


def write(path: Path, *, finished: bool = True) -> str:
    with ResultFile.create(path, "run", ENVIRONMENT, {}) as file:
        if finished:
            file.finish({"sentence": "fine"})
    return file.experiment.id


def test_names_say_kind_deployment_and_time(tmp_path, monkeypatch):
    monkeypatch.setenv("ONECAT_HOME", str(tmp_path))
    path = new_path("burst", "chat")
    assert path.parent == results_directory() == tmp_path / "benchmarks"
    assert path.name.startswith("burst-chat-20")
    assert path.suffix == ".jsonl"


@pytest.mark.parametrize(
    ("deployment", "begin"),
    [
        ("http://127.0.0.1:8000/v1", "run-127.0.0.1-8000-v1-"),
        ("../../etc/passwd", "run-etc-passwd-"),
        ("模型", "run-2"),
        ("x" * 300, f"run-{'x' * 60}-2"),
    ],
)
def test_any_deployment_makes_a_plain_name(tmp_path, deployment, begin):
    path = new_path("run", deployment, tmp_path)
    assert path.parent == tmp_path
    assert path.name.startswith(begin)


def test_two_of_the_same_second_have_names_of_their_own(tmp_path):
    first = new_path("run", "chat", tmp_path)
    first.touch()
    second = new_path("run", "chat", tmp_path)
    assert first != second


def test_a_result_is_found_by_path_name_part_id_or_as_the_latest(tmp_path):
    one, other = tmp_path / "run-chat-1.jsonl", tmp_path / "ab-chat-2.jsonl"
    identity = write(one)
    write(other)
    assert find_result(str(one)) == one
    for name in ("run-chat-1.jsonl", "run-chat-1", "run", identity):
        assert find_result(name, tmp_path) == one
    assert find_result("latest", tmp_path) == other


@pytest.mark.parametrize(("name", "found"), [("chat", "several result files"), ("x", "no result file"), ("", "no")])
def test_a_name_of_none_or_of_several_is_told(tmp_path, name, found):
    write(tmp_path / "run-chat-1.jsonl")
    write(tmp_path / "ab-chat-2.jsonl")
    with pytest.raises(OnecatError, match=found) as told:
        find_result(name, tmp_path)
    assert told.value.next_steps


def test_the_list_tells_the_state_of_each_file(tmp_path):
    write(tmp_path / "b.jsonl")
    write(tmp_path / "a.jsonl", finished=False)
    (tmp_path / "c.jsonl").write_text("{}\n")
    with ResultFile.create(tmp_path / "d.jsonl", "run", ENVIRONMENT, {}):
        found = list_results(tmp_path)
    assert [(each.path.name, each.state) for each in found.files] == [
        ("b.jsonl", "finished"),
        ("a.jsonl", "cut off"),
        ("d.jsonl", "runs"),
    ]
    assert [path.name for path, _ in found.others] == ["c.jsonl"]


def test_no_directory_is_an_empty_list(tmp_path):
    assert list_results(tmp_path / "none").files == ()
