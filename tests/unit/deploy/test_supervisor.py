"""The supervisor's decisions, and its behaviour with real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from onecat.deploy import processes
from onecat.deploy.supervisor import RotatingLog, backoff, describe_exit, server_environment, timestamp
from onecat.files import read_json, write_json

# A server with an engine process that leaves its session and ignores SIGTERM, like the worst left-over of a real one.
SERVER = """
import os, signal, sys, time
engine = os.fork()
if engine == 0:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True: time.sleep(60)
print("engine", engine, flush=True)
print("\\rloading 50%\\rloading 100%", flush=True)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
while True: time.sleep(60)
"""


@pytest.mark.parametrize(
    ("code", "text"),
    [(0, "exited with status 0"), (137, "exited with status 137"), (-9, "killed by signal 9 (SIGKILL)")],
)
def test_an_exit_code_in_words(code: int, text: str) -> None:
    assert describe_exit(code) == text


def test_the_pause_doubles_up_to_its_limit() -> None:
    assert [backoff(crashes, 1.0, 30.0) for crashes in range(1, 8)] == [1, 2, 4, 8, 16, 30, 30]
    assert backoff(10_000, 1.0, 30.0) == 30.0


def test_a_timestamp_has_milliseconds_and_says_utc() -> None:
    assert timestamp(1795971923.124) == "2026-11-29T17:05:23.124Z"


def test_the_log_is_cut_by_size_and_keeps_the_newest_pieces(tmp_path: Path) -> None:
    log = RotatingLog(tmp_path / "server.log", max_bytes=200, keep=2)
    for number in range(20):
        log.write(f"line {number} " + "x" * 40)
    pieces = sorted(path.name for path in tmp_path.iterdir())
    assert pieces == ["server.log", "server.log.1", "server.log.2"]
    assert all((tmp_path / name).stat().st_size <= 200 for name in pieces)
    assert "line 19" in (tmp_path / "server.log").read_text()


def test_lines_that_cannot_be_written_are_counted(tmp_path: Path) -> None:
    directory = tmp_path / "gone"
    log = RotatingLog(directory / "server.log", max_bytes=1000, keep=1)
    log.write("one")
    log.write("two")
    directory.mkdir()
    log.write("three")
    lines = (directory / "server.log").read_text().splitlines()
    assert [line.split(" ", 1)[1] for line in lines] == [
        "onecat: 2 lines were lost: the log could not be written",
        "three",
    ]


def test_the_server_inherits_nothing_that_changes_the_plan_unseen(tmp_path: Path) -> None:
    launch = {"argv": ["/opt/vllm/bin/vllm"], "env": {"A": "plan"}, "secret": None}
    inherited = {"A": "mine", "B": "b", "VLLM_LOGGING_LEVEL": "DEBUG", "PYTHONPATH": "/x", "PATH": "/bin"}
    assert server_environment(launch, inherited) == {"A": "plan", "B": "b", "PATH": "/opt/vllm/bin:/bin"}


def test_the_secret_reaches_the_server_under_its_own_name_only(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("from-file\n")
    launch: dict[str, Any] = {"argv": ["vllm"], "env": {}}
    launch["secret"] = {"variable": "VLLM_API_KEY", "file": str(key), "env": None}
    assert server_environment(launch, {}) == {"VLLM_API_KEY": "from-file"}
    launch["secret"] = {"variable": "VLLM_API_KEY", "file": None, "env": "MY_KEY"}
    assert server_environment(launch, {"MY_KEY": "from-env"}) == {"VLLM_API_KEY": "from-env"}


def test_it_imports_nothing_but_the_standard_library_and_stays_small() -> None:
    program = (
        "import onecat.deploy.supervisor, sys, json;"
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules if not name.startswith('_')})))"
    )
    loaded = set(
        json.loads(subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, check=True).stdout)
    )
    assert loaded <= set(sys.stdlib_module_names) | {"onecat"}


# --- with real processes ----------------------------------------------------------------------------------------------


class Supervised:
    """A started supervisor."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def state(self) -> dict[str, Any]:
        document = read_json(self.directory / "state.json")
        assert document is not None
        return dict(document)

    def wait_for(self, condition: Callable[[dict[str, Any]], bool], seconds: float = 20.0) -> dict[str, Any]:
        limit = time.monotonic() + seconds
        while not condition(self.state()):
            assert time.monotonic() < limit, f"not in time: {self.state()}\n{self.log()}"
            time.sleep(0.02)
        return self.state()

    def log(self) -> str:
        path = self.directory / "server.log"
        return path.read_text() if path.exists() else ""

    def running(self) -> int:
        """The server's pid once it has printed its first line in this run."""
        found = self.wait_for(lambda state: state["state"] == "running" and state["server"] is not None)
        return int(found["server"]["pid"])

    def engine(self, run: int) -> int:
        """The pid of the engine of the given run (from 1) once it is in the log."""
        self.wait_for(lambda _: self.log().count(" engine ") >= run)
        return int([line for line in self.log().splitlines() if " engine " in line][run - 1].split()[-1])

    def accept(self) -> None:
        (self.directory / "accepted").touch()

    def gone(self, pid: int) -> bool:
        found = processes.entry(pid)
        return found is None or found.state in "ZX"


@pytest.fixture
def supervise(tmp_path: Path) -> Iterator[Callable[..., Supervised]]:
    started: list[Supervised] = []

    def start(program: str = SERVER, **restart: float) -> Supervised:
        launch = {
            "argv": [sys.executable, "-c", program],
            "env": {},
            "secret": None,
            "restart": {
                "max_crashes": 3,
                "backoff_seconds": 0.05,
                "backoff_max_seconds": 0.1,
                "stable_seconds": 600,
                **restart,
            },
            "stop_seconds": 5,
            "log": {"max_bytes": 1_000_000, "keep": 2},
        }
        write_json(tmp_path / "launch.json", launch)
        argv = [sys.executable, "-m", "onecat.deploy.supervisor", str(tmp_path)]
        subprocess.run(argv, check=True, cwd=Path(__file__).parents[3])
        supervised = Supervised(tmp_path)
        started.append(supervised)
        return supervised

    yield start
    for supervised in started:
        identity = processes.ProcessIdentity(**supervised.state()["supervisor"])
        if processes.alive(identity):
            os.kill(identity.pid, signal.SIGKILL)
            for pid in processes.descendants(identity.pid):
                os.kill(pid, signal.SIGKILL)


def test_it_leaves_the_terminal_and_the_caller(supervise: Callable[..., Supervised]) -> None:
    supervised = supervise()
    found = processes.entry(supervised.state()["supervisor"]["pid"])
    assert found is not None
    assert found.session not in (os.getsid(0), found.pid)
    assert found.parent != os.getpid()


def test_a_killed_server_comes_back_and_its_old_engine_is_gone(supervise: Callable[..., Supervised]) -> None:
    supervised = supervise()
    first = supervised.running()
    engine = supervised.engine(1)
    supervised.accept()
    os.kill(first, signal.SIGKILL)
    state = supervised.wait_for(lambda state: state["restarts"] == 1 and state["state"] == "running")
    assert state["server"]["pid"] != first
    assert state["last_exit"]["text"].startswith("killed by signal 9 (SIGKILL)")
    assert supervised.gone(engine)
    assert "crash 1 of 3 in a row; next start in" in supervised.log()


def test_too_many_crashes_in_a_row_are_given_up(supervise: Callable[..., Supervised]) -> None:
    supervised = supervise(max_crashes=10)
    supervised.accept()
    for run in range(1, 11):
        supervised.engine(run)
        os.kill(supervised.running(), signal.SIGKILL)
        supervised.wait_for(lambda state, run=run: state["crashes_in_a_row"] == run)  # type: ignore[misc]
    state = supervised.wait_for(lambda state: state["state"] == "keeps-crashing")
    assert state["restarts"] == 9
    assert supervised.log().rstrip().endswith("crash 10 of 10 in a row; given up")
    assert all(supervised.gone(supervised.engine(run)) for run in range(1, 11))


def test_a_long_run_clears_the_count(supervise: Callable[..., Supervised]) -> None:
    supervised = supervise(max_crashes=2, stable_seconds=0)
    supervised.accept()
    for run in range(1, 5):
        supervised.engine(run)
        os.kill(supervised.running(), signal.SIGKILL)
        supervised.wait_for(lambda state, run=run: state["restarts"] == run)  # type: ignore[misc]
    assert supervised.state()["crashes_in_a_row"] == 1


def test_a_server_that_ends_with_status_0_counts_as_crashed(supervise: Callable[..., Supervised]) -> None:
    supervised = supervise("import time; time.sleep(0.3)")
    supervised.accept()
    state = supervised.wait_for(lambda state: state["state"] == "keeps-crashing")
    assert state["last_exit"]["code"] == 0


def test_before_it_is_accepted_a_server_is_not_started_again(supervise: Callable[..., Supervised]) -> None:
    supervised = supervise("import sys; print('no good'); sys.exit(3)")
    state = supervised.wait_for(lambda state: state["state"] == "exited")
    assert (state["restarts"], state["last_exit"]["code"]) == (0, 3)
    assert "no good" in supervised.log()


def test_a_program_that_is_not_there_is_told_in_the_log(supervise: Callable[..., Supervised], tmp_path: Path) -> None:
    launch = {
        "argv": ["/nonexistent/vllm"],
        "env": {},
        "secret": None,
        "restart": {"max_crashes": 1, "backoff_seconds": 0, "backoff_max_seconds": 0, "stable_seconds": 1},
        "stop_seconds": 1,
        "log": {"max_bytes": 1000, "keep": 1},
    }
    write_json(tmp_path / "launch.json", launch)
    argv = [sys.executable, "-m", "onecat.deploy.supervisor", str(tmp_path)]
    subprocess.run(argv, check=True, cwd=Path(__file__).parents[3])
    supervised = Supervised(tmp_path)
    assert supervised.wait_for(lambda state: state["state"] == "exited")["last_exit"]["code"] == 127
    assert "onecat: cannot start /nonexistent/vllm" in supervised.log()


def test_a_stop_ends_server_and_engine(supervise: Callable[..., Supervised]) -> None:
    supervised = supervise()
    engine, server = supervised.engine(1), supervised.running()
    identity = processes.ProcessIdentity(**supervised.state()["supervisor"])
    os.kill(identity.pid, signal.SIGTERM)
    state = supervised.wait_for(lambda state: state["state"] == "stopped")
    assert state["last_exit"]["code"] == 0
    assert supervised.gone(server)
    assert supervised.gone(engine)
    limit = time.monotonic() + 5
    while processes.alive(identity) and time.monotonic() < limit:
        time.sleep(0.02)
    assert not processes.alive(identity)


def test_a_stop_during_the_pause_ends_at_once(supervise: Callable[..., Supervised]) -> None:
    supervised = supervise(backoff_seconds=60, backoff_max_seconds=60)
    supervised.accept()
    supervised.engine(1)
    os.kill(supervised.running(), signal.SIGKILL)
    state = supervised.wait_for(lambda state: state["state"] == "backing-off")
    assert state["next_start_at"] is not None
    os.kill(state["supervisor"]["pid"], signal.SIGTERM)
    supervised.wait_for(lambda state: state["state"] == "stopped", seconds=5)


def test_progress_bars_become_lines(supervise: Callable[..., Supervised]) -> None:
    supervised = supervise()
    supervised.wait_for(lambda _: "loading 100%" in supervised.log())
    assert [line.split(" ", 1)[1] for line in supervised.log().splitlines()][1:] == ["loading 50%", "loading 100%"]


def test_files_are_for_the_owner_only(supervise: Callable[..., Supervised]) -> None:
    supervised = supervise()
    supervised.engine(1)
    for name in ("launch.json", "state.json", "server.log", "supervisor.log"):
        assert (supervised.directory / name).stat().st_mode & 0o077 == 0, name
