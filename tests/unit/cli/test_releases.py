"""What is shown of releases and of what a command would do, in 80 columns."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from onecat.cli.changes import forecast_lines
from onecat.cli.releases import lines
from onecat.deploy import Forecast, Release
from onecat.deploy.operations import releases_document
from onecat.deploy.store import DeploymentStore
from onecat.hosts import LocalMachine

FORECAST = Forecast(
    strategy="recreate",
    why="the new release needs 2 GPUs and 0 are free",
    replaces=3,
    gap=True,
    gap_seconds=95.4,
    proxy="own",
    endpoint="http://127.0.0.1:8080",
    origin=2,
    argv=("vllm",),
    plan={},
    site=None,
    obstacle="the disk is full: 3 MiB are free",
    next_steps=("free some space",),
)


@pytest.fixture
def store(tmp_path: Path) -> DeploymentStore:
    store = DeploymentStore(LocalMachine(tmp_path), "demo")
    for outcome in ("stopped", "interrupted", "serving"):
        number, directory = store.new_directory()
        store.save(
            Release(
                deployment="demo",
                number=number,
                directory=directory,
                runtime="native",
                profile="cpu",
                model="tiny",
                host="127.0.0.1",
                port=8000,
                endpoint="http://127.0.0.1:8080",
                protected=False,
                fingerprint="abc",
                created_at="2026-11-29T16:00:00.000Z",
                outcome=outcome,  # type: ignore[arg-type]
                strategy="blue-green",
                purpose="rollback",
                origin=1,
                created_by="somebody-with-a-long-name@a-machine-with-a-long-name.example",
                start_seconds=1234.5,
                gap_seconds=1300.4,
            )
        )
    store.set_current(3)
    return store


def test_releases_are_a_table_of_80_columns_with_the_newest_first(store: DeploymentStore) -> None:
    shown = lines(store)
    assert max(map(len, shown)) <= 80
    assert [line.split()[:2] for line in shown] == [
        ["NO", "OUTCOME"], ["*", "3"], ["2", "interrupted"], ["1", "stopped"],
    ]  # fmt: skip
    assert "2026-11-29 16:00  rollback to 1  1234 s  1300 s  somebody" in shown[1]


def test_programs_get_all_of_it(store: DeploymentStore) -> None:
    document = json.loads(json.dumps(releases_document(store)))
    assert (document["current"], [each["release"] for each in document["releases"]]) == (3, [3, 2, 1])
    assert document["releases"][0]["created_by"].endswith("a-machine-with-a-long-name.example")


def test_what_would_be_done_is_told_in_80_columns() -> None:
    shown = forecast_lines(FORECAST)
    assert max(map(len, shown)) <= 80
    text = "\n".join(shown)
    for part in ("release 3", "recreate, since the new release needs 2 GPUs", "about 95 s", "503", "the disk is full"):
        assert part in text


def test_a_canary_replaces_nothing() -> None:
    shown = forecast_lines(replace(FORECAST, canary_percent=10))
    assert "canary:     10 % of the requests; release 3 keeps the others" in shown
    assert not any(line.startswith("replaces:") for line in shown)


def test_a_gap_that_was_never_measured_is_not_made_up() -> None:
    text = "\n".join(forecast_lines(replace(FORECAST, gap_seconds=None)))
    assert "not measured yet" in " ".join(text.split())
    assert "the one before" not in text
