"""What the guard in a container does with crashes, and with what it finds of the container's last life."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from onecat.deploy.container_guard import SCHEMA, archive
from onecat.deploy.processes import boot_id

LIMITS = ("--max-crashes=3", "--stable-seconds=60", "--backoff-seconds=0.05", "--backoff-max-seconds=0.1", "--")
# The guard with the directories of a test in the place of those that a container mounts.
DRIVER = """
import sys
from pathlib import Path
from onecat.deploy import container_guard as guard
guard.GUARD_DIRECTORY, guard.STATE_PATH = Path(sys.argv[1]), Path(sys.argv[1], "state.json")
sys.exit(guard.main(sys.argv[2:]))
"""


def start(folder: Path, *program: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", DRIVER, str(folder), *LIMITS, *program]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3])


def state(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / "state.json").read_text())
    return document


def before(folder: Path, condition: str, boot: str, crashes: int = 1, started: float = 5.0) -> None:
    """What the guard of an earlier life of the container has left."""
    document = {
        "schema": SCHEMA,
        "state": condition,
        "started_at_seconds": time.time() - started,
        "restarts": crashes,
        "crashes_in_a_row": crashes,
        "last_exit": None,
        "next_start_seconds": time.time() - 1,
        "boot_id": boot,
    }
    (folder / "state.json").write_text(json.dumps(document))


def wait_for(folder: Path, condition: str) -> dict[str, Any]:
    limit = time.monotonic() + 20
    while not (folder / "state.json").exists() or state(folder)["state"] != condition:
        assert time.monotonic() < limit, "not in time"
        time.sleep(0.02)
    return state(folder)


def ended(guard: subprocess.Popen[str]) -> tuple[int, str]:
    guard.send_signal(signal.SIGTERM)
    said, _ = guard.communicate(timeout=20)
    return guard.returncode, said


def test_before_the_release_is_accepted_the_end_of_the_server_is_the_end(tmp_path: Path) -> None:
    guard = start(tmp_path, "sh", "-c", "exit 7")
    said, _ = guard.communicate(timeout=20)
    assert guard.returncode == 7 and state(tmp_path)["state"] == "exited"
    assert said.startswith("onecat: server exited with status 7 after ") and "before it was ready" in said


def test_it_is_given_up_after_the_crashes_of_onecat_yaml_and_waits(tmp_path: Path) -> None:
    (tmp_path / "accepted").touch()
    guard = start(tmp_path, "sh", "-c", "exit 1")
    found = wait_for(tmp_path, "keeps-crashing")
    assert (found["crashes_in_a_row"], found["restarts"]) == (3, 2)
    assert guard.poll() is None, "a container that ended would be started again"
    assert ended(guard)[0] == 0 and state(tmp_path)["state"] == "keeps-crashing"


def test_a_configuration_that_cannot_work_is_tried_once(tmp_path: Path) -> None:
    (tmp_path / "accepted").touch()
    guard = start(tmp_path, "sh", "-c", "exit 78")
    assert wait_for(tmp_path, "keeps-crashing")["crashes_in_a_row"] == 1
    assert "which another start would not change" in ended(guard)[1]


@pytest.mark.parametrize(
    ("condition", "boot", "crashes"),
    [
        ("running", "another boot", 1),  # a reboot
        ("stopping", None, 1),  # dockerd, or docker stop, that did not wait for the end
        ("stopped", None, 1),
        ("backing-off", None, 1),  # counted already
        ("running", None, 2),  # killed with its container
    ],
)
def test_what_an_earlier_life_was_ended_by(tmp_path: Path, condition: str, boot: str | None, crashes: int) -> None:
    (tmp_path / "accepted").touch()
    before(tmp_path, condition, boot or boot_id())
    (tmp_path / "marker").touch()
    guard = start(tmp_path, "sh", "-c", f"rm {tmp_path}/marker; exec sleep 60")
    limit = time.monotonic() + 20
    while (tmp_path / "marker").exists():
        assert time.monotonic() < limit, "not started"
        time.sleep(0.02)
    assert wait_for(tmp_path, "running")["crashes_in_a_row"] == crashes
    assert ended(guard)[0] == 0 and state(tmp_path)["state"] == "stopped"


def test_a_server_that_was_given_up_is_not_started_again(tmp_path: Path) -> None:
    before(tmp_path, "keeps-crashing", "another boot", crashes=3)
    (tmp_path / "accepted").touch()
    guard = start(tmp_path, "touch", str(tmp_path / "started"))
    time.sleep(0.5)
    assert guard.poll() is None
    assert "the server was given up" in ended(guard)[1]
    assert not (tmp_path / "started").exists()


def test_a_state_that_is_none_is_no_reason_not_to_start(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text("{")
    guard = start(tmp_path, "sh", "-c", "exit 0")
    said, _ = guard.communicate(timeout=20)
    assert guard.returncode == 0 and "cannot be read" in said


def test_it_travels_as_one_file_that_needs_nothing_of_onecat(tmp_path: Path) -> None:
    assert archive() == archive()
    (tmp_path / "guard.pyz").write_bytes(archive())
    assert "__main__.py" in zipfile.ZipFile(io.BytesIO(archive())).namelist()
    argv = [sys.executable, "-S", "-E", "-s", str(tmp_path / "guard.pyz"), "--help"]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0 and "--max-crashes" in done.stdout, done.stderr
