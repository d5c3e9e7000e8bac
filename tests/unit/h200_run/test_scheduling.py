"""Steps of the engine runs: order, what is left out after a failure, limits of time, and nothing left running."""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools" / "h200_run"))

from scheduling import Step, run_all  # noqa: E402


def shell(command: str) -> list[str]:
    return ["sh", "-c", command]


def is_running(process: int) -> bool:
    """Whether there is such a process that is not a zombie: who reaps orphans is the machine's business."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


def test_a_step_that_fails_stops_only_what_needs_it(tmp_path: Path) -> None:
    steps = [
        Step("made", shell("exit 3")),
        Step("needs it", shell("touch needed"), needs=["made"]),
        Step("comes after it", shell(f"touch {tmp_path}/after"), after=["made"]),
        Step("needs an earlier call", shell("exit 0"), needs=["nothing of this name"]),
    ]
    ended = {each.name: each.result for each in run_all(steps, tmp_path / "logs", 8, time.monotonic() + 30)}
    assert ended == {
        "made": "exit code 3",
        "needs it": "not started",
        "comes after it": "ok",
        "needs an earlier call": "ok",
    }
    assert (tmp_path / "after").exists()


def test_what_a_step_started_ends_with_its_time(tmp_path: Path) -> None:
    started = tmp_path / "pid"
    steps = [
        Step("long", shell(f"sleep 600 & echo $! >{started}; wait"), limit=1.0),
        Step("short", shell("echo done")),
    ]
    ended = {each.name: each.result for each in run_all(steps, tmp_path / "logs", 8, time.monotonic() + 30)}
    assert ended == {"long": "out of time", "short": "ok"}
    assert (tmp_path / "logs" / "short.log").read_text() == "done\n"
    until = time.monotonic() + 5
    while is_running(int(started.read_text())) and time.monotonic() < until:
        time.sleep(0.05)
    assert not is_running(int(started.read_text()))


def test_at_the_deadline_all_is_ended_and_the_rest_not_started(tmp_path: Path) -> None:
    steps = [Step("first", shell("sleep 600"), load=5), Step("second", shell("true"), load=5)]
    began = time.monotonic()
    ended = {each.name: each.result for each in run_all(steps, tmp_path / "logs", 8, began + 1)}
    assert ended == {"first": "out of time", "second": "not started"}
    assert time.monotonic() - began < 20
