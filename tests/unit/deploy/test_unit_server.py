"""How the words of systemctl and journalctl are read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from onecat.deploy import unit_server
from onecat.deploy.container_spec import ContainerSpec, to_document
from onecat.deploy.server import ServerState
from onecat.deploy.unit_server import Condition, UnitServer, parse_journal, parse_show, state_of
from onecat.errors import OnecatError
from onecat.hosts import Completed, LocalMachine

STARTED = "Mon 2026-11-30 02:25:24 UTC"
ENDED = "Mon 2026-11-30 02:25:26 UTC"


def shown(**changes: Any) -> Condition:
    """A unit that runs, but for `changes`; as `systemctl show` of systemd 252 tells it."""
    properties = {
        "LoadState": "loaded",
        "ActiveState": "active",
        "SubState": "running",
        "Result": "success",
        "MainPID": "84",
        "NRestarts": "0",
        "NeedDaemonReload": "no",
        "ExecMainCode": "0",
        "ExecMainStatus": "0",
        "ExecMainStartTimestamp": STARTED,
        "ExecMainExitTimestamp": "",
    }
    text = "\n".join(f"{name}={value}" for name, value in {**properties, **changes}.items())
    return parse_show(f"{text}\n")


CRASHED = {"MainPID": "0", "Result": "exit-code", "ExecMainCode": "1", "ExecMainStatus": "137"}
CRASHED["ExecMainExitTimestamp"] = ENDED


@pytest.mark.parametrize(
    ("changes", "accepted", "condition"),
    [
        ({"LoadState": "not-found", "ActiveState": "inactive", "MainPID": "0"}, False, "absent"),
        ({"ActiveState": "inactive", "SubState": "dead", "MainPID": "0", "Job": "83"}, False, "starting"),
        ({"ActiveState": "activating", "SubState": "start-pre", "MainPID": "0"}, False, "starting"),
        ({"ActiveState": "activating", "SubState": "start-post"}, False, "running"),
        ({}, True, "running"),
        ({"ActiveState": "deactivating", "SubState": "stop-sigterm"}, True, "running"),
        ({"ActiveState": "deactivating", "SubState": "stop-post", "Result": "exit-code", "Job": "7"}, False, "exited"),
        ({"ActiveState": "activating", "SubState": "auto-restart", **CRASHED}, True, "backing-off"),
        ({"ActiveState": "activating", "SubState": "auto-restart", **CRASHED}, False, "exited"),
        ({"ActiveState": "inactive", "SubState": "dead", "MainPID": "0"}, False, "exited"),
        ({"ActiveState": "inactive", "SubState": "dead", "MainPID": "0"}, True, "stopped"),
        ({"ActiveState": "failed", "SubState": "failed", **CRASHED}, False, "exited"),
        ({"ActiveState": "failed", "SubState": "failed", **CRASHED}, True, "keeps-crashing"),
    ],
)
def test_a_units_state_in_our_words(changes: dict[str, str], accepted: bool, condition: str) -> None:
    assert state_of(shown(**changes), accepted).condition == condition


def test_a_crash_is_told_with_its_time_and_counted() -> None:
    found = state_of(shown(ActiveState="activating", SubState="auto-restart", NRestarts="2", **CRASHED), accepted=True)
    assert (found.restarts, found.crashes_in_a_row) == (2, 3)
    assert found.last_exit == "exited with status 137 at 2026-11-30T02:25:26Z"
    killed = state_of(shown(**{**CRASHED, "ExecMainCode": "2", "ExecMainStatus": "9"}), accepted=True)
    assert killed.last_exit == "was killed by signal 9 at 2026-11-30T02:25:26Z"


def test_a_running_server_tells_since_when() -> None:
    found = state_of(shown(), accepted=True)
    assert (found.pid, found.started_at, found.last_exit) == (84, "2026-11-30T02:25:24Z", None)


def test_lines_of_the_journal_have_their_time_before_them() -> None:
    rows: list[dict[str, object]] = [
        {"MESSAGE": "INFO loading", "__CURSOR": "s=1", "__REALTIME_TIMESTAMP": "1796005524674130"},
        {"MESSAGE": list("é 10%\r20%".encode()), "__CURSOR": "s=2", "__REALTIME_TIMESTAMP": "1796005525000000"},
        {"MESSAGE": None, "__CURSOR": "s=3", "__REALTIME_TIMESTAMP": "1796005526000000"},
    ]
    entries = parse_journal("".join(f"{json.dumps(row)}\n" for row in rows))
    assert [(entry.text, entry.cursor) for entry in entries] == [
        ("2026-11-30T02:25:24.674130Z INFO loading", "s=1"),
        ("2026-11-30T02:25:25.000000Z é 10%", "s=2"),
        ("2026-11-30T02:25:25.000000Z 20%", "s=2"),
    ]


def test_a_unit_of_another_home_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Host(LocalMachine):
        def root(self) -> Host:
            return self

        def run(self, argv: Sequence[str], **options: Any) -> Completed:
            raise AssertionError(f"nothing may be asked or changed: {argv}")

    monkeypatch.setattr(unit_server, "UNIT_DIRECTORY", str(tmp_path))
    name = "onecat-demo-0001"
    spec = ContainerSpec(name, "image", (), {}, "/m", "/m", "127.0.0.1", 8000, 2**26, 0, "1:1")
    release = tmp_path / "release"
    (release / "systemd").mkdir(parents=True)
    (release / "container.json").write_text(json.dumps(to_document(spec)))
    (release / "systemd/unit.json").write_text('{"identity": "mine", "allow_daemon_reload": false}')
    unit = tmp_path / f"{name}.service"
    unit.write_text("LogExtraFields=ONECAT_RELEASE=theirs\n")
    server = UnitServer(Host(tmp_path), str(release), None)
    assert server.state() == ServerState("absent")
    server.stop()
    with pytest.raises(OnecatError, match="not from this deployment"):
        server.start()
    assert unit.read_text() == "LogExtraFields=ONECAT_RELEASE=theirs\n"
