"""The server that is several containers: one state, one log, one end."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from onecat.deploy import ray_cluster, ray_node
from onecat.deploy.ray_machines import itself, node_machine, with_nodes
from onecat.deploy.ray_server import IDLE_CPU_SHARE, _IdleFilter, in_order, remove_unused, state_of
from onecat.deploy.server import Activity, ServerState
from onecat.deploy.strategy import Room, choose
from onecat.errors import OnecatError
from onecat.hosts import LocalMachine

RUNNING = ServerState("running", 7, "2026-01-01T00:00:00Z")
PROGRAM = [sys.executable, str(ray_node.__file__)]


def test_the_logs_of_all_nodes_are_one_in_the_order_of_time() -> None:
    head = [f"2026-11-30T12:00:0{second}Z head {second}" for second in (1, 4, 5)]
    other = iter([f"2026-11-30T12:00:0{second}Z [other] {second}" for second in (2, 3, 9)])
    assert [line[-1] for line in in_order([head, other])] == ["1", "2", "3", "4", "5", "9"]


def test_while_all_nodes_run_the_state_is_the_heads() -> None:
    assert state_of(["a", "b"], [RUNNING, ServerState("running", 9)]) == RUNNING


def test_a_node_that_has_ended_is_the_end_of_the_server_and_is_named() -> None:
    ended = ServerState("exited", last_exit="exited with status 1 at 10:00")
    found = state_of(["a", "b", "c"], [RUNNING, RUNNING, ended])
    assert (found.condition, found.last_exit) == ("exited", "has lost node c, which exited with status 1 at 10:00")
    assert state_of(["a", "b"], [ended, ServerState("absent")]) == ended


def test_two_clusters_are_never_at_once_even_where_blue_green_is_wanted() -> None:
    room = Room(proxied=True, gpus_needed=1, gpus_free=8, is_cluster=True)
    found = choose("blue-green", True, room, None)
    assert (found.name, found.gap) == ("recreate", True)


def test_what_idle_nodes_use_is_no_sign_of_life() -> None:
    told = _IdleFilter(nodes=2)
    assert told(0.0, Activity(5.0, 10)) == Activity(0.0, 10)
    assert told(10.0, Activity(5.0 + 20 * IDLE_CPU_SHARE, 10)).cpu_seconds == pytest.approx(0.0)
    assert told(20.0, Activity(9.0 + 20 * IDLE_CPU_SHARE, 11)) == Activity(4.0 - 20 * IDLE_CPU_SHARE, 11)


def test_only_nodes_of_releases_that_are_kept_keep_their_directories(tmp_path: Path) -> None:
    for name in ("0001-b", "0002-b", "notes"):
        (tmp_path / name).mkdir()
    remove_unused(LocalMachine(tmp_path), str(tmp_path), [2, 3])
    assert sorted(each.name for each in tmp_path.iterdir()) == ["0002-b", "notes"]


def test_the_heads_machine_knows_the_way_to_the_other_nodes(tmp_path: Path) -> None:
    head, other = LocalMachine(tmp_path / "a"), LocalMachine(tmp_path / "b")
    machine = with_nodes(head, {"b": other}.__getitem__)
    assert machine.data_directory == head.data_directory
    assert node_machine(machine, "b") is other
    assert (node_machine(machine, "local"), itself(machine), itself(other)) == (head, head, other)
    with pytest.raises(OnecatError, match="runs on gpu9 too"):
        node_machine(head, "gpu9")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, timeout=30)


def test_a_worker_tells_a_head_that_does_not_answer() -> None:
    found = run("worker", "--address", "127.0.0.1:1", "--silence", "0.2", "--", "true")
    assert (found.returncode, found.stdout.splitlines()[-1]) == (
        ray_node.INCOMPLETE,
        "onecat: the head at 127.0.0.1:1 has not answered for 0 s: is its port open to this host?",
    )


def test_a_worker_that_comes_too_early_joins_once_more(tmp_path: Path) -> None:
    tries = tmp_path / "tries"
    with socket.socket() as head:
        head.bind(("127.0.0.1", 0))
        head.listen()
        address = f"127.0.0.1:{head.getsockname()[1]}"
        found = run("worker", "--address", address, "--silence", "5", "--", "sh", "-c", f"echo >> {tries}; exit 1")
    assert (found.returncode, tries.read_text().count("\n")) == (ray_node.INCOMPLETE, ray_node.JOIN_TRIES)


def test_a_head_tells_which_node_has_not_come() -> None:
    waits = ("--address", "127.0.0.1:1", "--silence", "0.2", "--nodes", "10.0.0.2,10.0.0.3", "--gpus", "2")
    found = run("head", *waits, "--", "sleep", "30", "--", "true")
    assert found.returncode == ray_node.INCOMPLETE
    assert found.stdout.splitlines()[-1].endswith("no node has come for 0 s; missing: 10.0.0.2, 10.0.0.3")


def test_an_image_without_ray_is_told() -> None:
    waits = ("--address", "127.0.0.1:1", "--silence", "5", "--nodes", "10.0.0.2", "--gpus", "1")
    found = run("head", *waits, "--", "no-such-ray", "start", "--", "true")
    assert (found.returncode, found.stdout) == (
        ray_node.UNUSABLE,
        "onecat: there is no program no-such-ray in this image\n",
    )


def test_a_head_whose_ray_ends_does_not_wait_for_others() -> None:
    waits = ("--address", "127.0.0.1:1", "--silence", "20", "--nodes", "10.0.0.2", "--gpus", "1")
    found = run("head", *waits, "--", "false", "--", "true")
    assert (found.returncode, found.stdout.splitlines()[-1]) == (ray_node.INCOMPLETE, "onecat: Ray ended with status 1")


def test_a_ray_that_gives_up_by_its_own_clock_is_started_again_within_the_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_node, "RAYS_OWN_LIMIT_SECONDS", 0.1)
    tries = tmp_path / "tries"
    start = ["sh", "-c", f'[ "$0" = stop ] && exit; echo >> {tries}; sleep 0.15; exit 1']
    ray = ray_node._Ray(start, 1.0, [])
    began = time.monotonic()
    while not ray.over():
        time.sleep(0.01)
    assert tries.read_text().count("\n") > ray_node.JOIN_TRIES
    assert 1.0 < time.monotonic() - began < 5.0


def test_a_ray_that_has_lost_a_part_waits_for_nothing(tmp_path: Path) -> None:
    part = tmp_path / "raylet"
    part.symlink_to(shutil.which("sleep") or "")
    ray = ray_node._Ray(["sh", "-c", f"{part} 0.5; sleep 30"], 60, [])
    began = time.monotonic()
    while not ray.ended():
        time.sleep(0.05)
    assert time.monotonic() - began < 15


def test_a_port_that_somebody_else_has_is_named_at_once() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        waits = ("--address", "127.0.0.1:1", "--silence", "20", "--nodes", "10.0.0.2", "--gpus", "1")
        found = run("head", *waits, "--", "true", f"--metrics-export-port={port}", "--", "true")
    assert (found.returncode, found.stdout) == (
        ray_node.INCOMPLETE,
        f"onecat: somebody else listens on ports that Ray needs on this host: --metrics-export-port={port}\n",
    )


def test_a_server_that_has_lost_a_node_ends_so_that_it_can_start_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also when the node has come back: it is another one for Ray, without the server's worker."""
    member = ray_node._Member
    whole = {"10.0.0.2": member(1, "a"), "10.0.0.3": member(1, "b")}
    seen = iter([{"10.0.0.2": whole["10.0.0.2"]}, whole, None, whole, {**whole, "10.0.0.3": member(1, "c")}])

    class Watch:
        def __init__(self, address: str, processes: object) -> None: ...

        def latest(self) -> object:
            return next(seen)

    monkeypatch.setattr(ray_node, "_Watch", Watch)
    monkeypatch.setattr(ray_node, "POLL_SECONDS", 0.01)
    options = {"address": "10.0.0.2:1", "silence": "20", "nodes": "10.0.0.2,10.0.0.3", "gpus": "2"}
    handlers = [(each, signal.getsignal(each)) for each in (signal.SIGTERM, signal.SIGINT)]
    try:
        code = ray_node.head(options, ["sleep", "30"], ["sleep", "30"])
    finally:
        for number, handler in handlers:
            signal.signal(number, handler)
    assert code == ray_node.INCOMPLETE
    assert capsys.readouterr().out.splitlines()[-1] == "onecat: node 10.0.0.3 left: the server cannot go on"


def test_a_node_without_the_heads_model_is_told_beforehand_with_the_command(tmp_path: Path) -> None:
    host = LocalMachine(tmp_path)
    files = {"model.safetensors": SimpleNamespace(size=7)}
    here = SimpleNamespace(name="a", is_local=False, entries=lambda place: files)
    there = SimpleNamespace(name="b", is_local=False, entries=lambda place: {}, status=host.status)
    run = SimpleNamespace(plan=SimpleNamespace(model_directory="/nowhere/my model"), machine=here)
    with pytest.raises(OnecatError, match="b has no model there") as raised:
        ray_cluster._check_model(run, there)  # type: ignore[arg-type]
    assert raised.value.next_steps == ("ssh a rsync -a '/nowhere/my model/' b:'/nowhere/my model/'",)
    same = SimpleNamespace(name="b", entries=here.entries, status=lambda place: here)
    ray_cluster._check_model(run, same)  # type: ignore[arg-type]
