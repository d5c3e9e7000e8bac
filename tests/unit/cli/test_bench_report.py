"""`onecat bench report` as a person types it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from onecat.errors import ExitCode
from onecat.experiments.records import Experiment
from onecat.experiments.results import ResultFile
from tests.measured import a_block, a_run
from tests.unit.cli.in_process import run_onecat


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An ONECAT_HOME with the result files run-chat-1 (finished), run-chat-2 (cut off), and other-1 (another model)."""
    folder = tmp_path / "home" / "benchmarks"
    run = a_run(requests=12)
    keep(folder / "run-chat-1.jsonl", run, finished=True)
    keep(folder / "run-chat-2.jsonl", released(run, release=4))
    keep(folder / "other-1.jsonl", released(run, model="<b>other</b>"), finished=True)
    return tmp_path / "home"


def released(experiment: Experiment, **arm: object) -> Experiment:
    arms = {name: {**known, **arm} for name, known in experiment.environment.arms.items()}
    return replace(experiment, environment=replace(experiment.environment, arms=arms))


def keep(path: Path, experiment: Experiment, *, finished: bool = False) -> None:
    with ResultFile.create(path, experiment.kind, experiment.environment, {}) as file:
        for block in experiment.blocks:
            file.add_block(block)
        if finished:
            file.finish(None)


def report(home: Path, *arguments: str, directory: Path | None = None, expect: int = 0) -> tuple[str, str]:
    found = run_onecat("bench", "report", *arguments, directory=directory, environment={"ONECAT_HOME": str(home)})
    assert found.returncode == expect, found.stderr
    return found.stdout, found.stderr


def test_without_a_file_it_lists_what_there_is(home):
    out, _ = report(home)
    lines = out.splitlines()
    assert "finished  run-chat-1" in lines
    assert "cut off   run-chat-2" in lines
    document = json.loads(report(home, "--json")[0])
    assert document["schema"] == "onecat.bench-list/1"
    assert {each["name"]: each["state"] for each in document["files"]} == {
        "run-chat-1": "finished", "run-chat-2": "cut off", "other-1": "finished",
    }  # fmt: skip


def test_no_results_yet_tells_how_to_measure(tmp_path):
    out, _ = report(tmp_path)
    assert out.splitlines()[-1] == "Measure a deployment: onecat bench run NAME"


def test_one_run_is_told_in_text_without_control_codes(home):
    out, err = report(home, "run-chat-1")
    assert err == ""
    assert out.startswith("Run of chat, ")
    assert "\x1b" not in out
    assert all(len(line) <= 80 for line in out.splitlines() if "results: " not in line)


def test_runs_that_are_comparable_are_compared(home):
    document = json.loads(report(home, "run-chat-1", "run-chat-2", "--json", "--label", "a", "--label", "b")[0])
    assert document["schema"] == "onecat.bench-report/1"
    assert document["comparable"] is True
    assert [(each["what"], each["role"], each["values"]) for each in document["differences"]] == [
        ("release", "compared", ["3", "4"])
    ]
    assert [each["name"] for each in document["runs"]] == ["a", "b"]
    assert document["runs"][0]["series"][0]["summary"]["requests"] == 36


def test_runs_that_are_not_comparable_are_refused_saying_what_differs(home):
    out, err = report(home, "run-chat-1", "other-1", expect=ExitCode.NO)
    assert out == ""
    assert "they differ in model" in err
    assert "run 1  qwen3-8b" in err
    assert "run 2  <b>other</b>" in err
    assert "--anyway" in err
    out, _ = report(home, "run-chat-1", "other-1", "--anyway")
    assert out.startswith("not comparable: these runs differ in model\n")
    assert json.loads(report(home, "run-chat-1", "other-1", "--anyway", "--json")[0])["comparable"] is False


@pytest.mark.parametrize(
    ("name", "begin"), [("x.html", "<!DOCTYPE html>"), ("x.md", "# Run of chat"), ("x.json", "{"), ("x.txt", "Run of")]
)
def test_the_end_of_the_files_name_says_the_form(home, tmp_path, name, begin):
    out, _ = report(home, "run-chat-1", "--output", name, directory=tmp_path)
    assert out.strip() == name
    assert (tmp_path / name).read_text().startswith(begin)


def test_a_file_that_is_there_stays_without_force(home, tmp_path):
    (tmp_path / "x.html").write_text("mine")
    _, err = report(home, "run-chat-1", "-o", "x.html", directory=tmp_path, expect=ExitCode.USAGE)
    assert "exists and was left as it is" in err
    report(home, "run-chat-1", "-o", "x.html", "--force", directory=tmp_path)
    assert (tmp_path / "x.html.old").read_text() == "mine"


def test_a_page_is_printed_where_it_goes_into_a_pipe(home):
    assert report(home, "run-chat-1", "--format", "html")[0].startswith("<!DOCTYPE html>")
    assert report(home, "run-chat-1", "--format", "markdown", "--output", "-")[0].startswith("# Run of chat")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("nothing",), "there is no result file 'nothing'"),
        (("./nothing.jsonl",), "there is no such result file"),
        (("run-chat",), "several result files"),
        (("run-chat-1", "--format", "pdf"), "there is no form 'pdf'"),
        (("run-chat-1", "--format", "text", "--json"), "--json and --format text are both given"),
        (("run-chat-1", "--label", "a", "--label", "b"), "2 labels for 1 files"),
        (("run-chat-1", "run-chat-2", "--label", "a", "--label", "a"), "called the same"),
        (("run-chat-1", "--output", "/nowhere/x.html"), "is no directory"),
        (("--format", "html"), "no result file is named"),
    ],
)
def test_wrong_input_is_answered_with_what_to_type(home, arguments, told):
    out, err = report(home, *arguments, expect=ExitCode.USAGE)
    assert out == "" or json.loads(out)["schema"] == "onecat.error/1"
    assert told in err
    assert "next:" in err or "expected:" in err
    assert "Traceback" not in err


def test_a_damaged_file_is_told_with_its_line(home):
    path = home / "benchmarks" / "run-chat-1.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([lines[0], "damage\n", *lines[2:]]))
    _, err = report(home, "run-chat-1", expect=ExitCode.USAGE)
    assert "line 2 of this result file is damaged" in err


def test_a_run_that_goes_on_is_shown_as_far_as_it_is(home):
    with ResultFile.open_to_resume(home / "benchmarks" / "run-chat-2.jsonl") as file:
        file.add_block(a_block(9, requests=12))
        assert "runs      run-chat-2" in report(home)[0]
        out, _ = report(home, "run-chat-2")
    assert "not finished, resumed once" in out
