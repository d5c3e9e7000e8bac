"""A release that fails on its way: the one before serves, nothing of the new one is left, and the cause is told."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from onecat import deploy
from onecat.config.schema import Restart
from onecat.deploy import processes, supervisor
from onecat.deploy.native import NativeServer, launch_document
from onecat.errors import ExitCode, OnecatError
from tests.testbed.command import Onecat
from tests.testbed.deployments import SmallDeployment, SmallServer
from tests.testbed.load import Load


def fails(small: SmallDeployment, *words: str, **changes: object) -> OnecatError:
    """The error of an `up` that fails while the release before serves four clients, who notice nothing."""
    before = len(small.processes())
    with Load(f"http://127.0.0.1:{small.proxy_port}", clients=4) as load:
        load.wait_for(4)
        with pytest.raises(OnecatError) as raised:
            small.up(*words, **changes)
        load.wait_for(load.tally.answered + 8)
    assert (load.tally.lost, load.tally.refused) == ([], [])
    assert raised.value.code == ExitCode.ROLLED_BACK
    assert (small.status().state, small.status().release) == ("serving", 1)
    assert len(small.processes()) == before
    return raised.value


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--fail-with", "torch.OutOfMemoryError: CUDA out of memory."), "The GPU's memory does not hold"),
        (("--die-when-asked",), "the request failed"),
        (("--served-model-name", "another"), "serves another, not tiny"),
    ],
)
def test_a_server_that_crashes_dies_or_is_another(small: SmallDeployment, words: tuple[str, ...], told: str) -> None:
    small.up()
    error = fails(small, *words)
    assert told in error.found
    failed = small.store.releases()[-1]
    assert (failed.outcome, failed.cause) == ("failed", error.found)


def test_a_server_that_hangs(small: SmallDeployment) -> None:
    small.up()
    assert "it hangs" in fails(small, "--hang", start={"silence_seconds": 5}).found


def test_a_port_that_somebody_takes_meanwhile(small: SmallDeployment) -> None:
    small.up()
    with socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)

        def take() -> None:
            thief.bind(("127.0.0.1", small.port + 1))
            thief.listen()

        small.reactions["starting release 2"] = take
        assert "Another program listens on the port" in fails(small, "--max-num-seqs", "8").found
        assert small.up("--max-num-seqs", "8").port == small.port + 2  # the next one looks again


@pytest.mark.parametrize("strategy", ["blue-green", "recreate"])
def test_a_fault_of_onecats_own_leaves_the_release_before_serving(small: SmallDeployment, strategy: str) -> None:
    small.up()

    def fault() -> None:
        raise LookupError("nobody has thought of this")

    small.reactions["ready after"] = fault
    with pytest.raises(OnecatError, match="onecat has a fault: LookupError: nobody has thought") as raised:
        small.up("--max-num-seqs", "8", rollout={"strategy": strategy})
    assert raised.value.code == ExitCode.ROLLED_BACK
    assert (small.status().state, small.status().release) == ("serving", 1)
    assert [each.outcome for each in small.store.releases()] == ["serving", "failed"]


@pytest.mark.parametrize("line", ["blue-green", "starting release 2", "it answered"])
def test_a_disk_that_fills_up_meanwhile(small: SmallDeployment, small_disk: Callable[[int], Path], line: str) -> None:
    disk = small_disk(112)
    small = small.with_home(disk / "home")
    small.up()

    def fill() -> None:
        with pytest.raises(OSError, match="No space left"), (disk / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(bytes(4096))

    small.reactions[line] = fill
    try:
        error = fails(small, "--max-num-seqs", "8")
        assert "No space left" in error.found
        (disk / "filler").unlink()
        assert small.up("--max-num-seqs", "8").strategy == "blue-green"
        live = [each.outcome for each in small.store.releases() if each.live]
        assert live == ["serving"]
    finally:
        (disk / "filler").unlink(missing_ok=True)
        deploy.down(small.store)


def ctrl_c() -> None:
    raise KeyboardInterrupt


def test_ctrl_c_before_the_switch_ends_the_new_one_and_after_it_the_new_one_stays(small: SmallDeployment) -> None:
    small.up()
    with Load(f"http://127.0.0.1:{small.proxy_port}", clients=4) as load:
        for line in ("blue-green", "starting release", "ready after", "it answered"):
            small.reactions[line] = ctrl_c
            with pytest.raises(KeyboardInterrupt):
                small.up("--max-num-seqs", "8")
            assert (small.status().state, small.status().release) == ("serving", 1), line
        small.reactions["stopping release 1"] = ctrl_c
        with pytest.raises(KeyboardInterrupt):
            small.up("--max-num-seqs", "8")
        assert small.reported[-1] == "interrupted; the new release already serves and stays"
        serving = small.status().release
        assert small.up("--max-num-seqs", "8").number == serving
        load.wait_for(load.tally.answered + 8)
    assert (load.tally.lost, load.tally.refused) == ([], [])
    assert [each.number for each in small.store.releases() if each.live] == [serving]


def test_recreate_starts_the_old_release_again_when_the_new_one_fails(small: SmallDeployment) -> None:
    rollout = {"strategy": "recreate"}
    small.up(rollout=rollout)
    with Load(f"http://127.0.0.1:{small.proxy_port}", clients=4) as load:
        load.wait_for(4)
        with pytest.raises(OnecatError, match="one token 8 times") as raised:
            small.up("--answer", "repeated", rollout=rollout)
        load.wait_for(load.tally.answered + 8)
    assert raised.value.code == ExitCode.ROLLED_BACK
    assert load.tally.lost == []
    assert load.tally.refused != []
    assert (small.status().state, small.status().release) == ("serving", 1)
    assert small.reported[-1] == "release 1 serves again"


def test_a_rollback_needs_no_onecat_yaml_and_says_which_key_is_missing(
    small: SmallDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEMO_KEY", "sk-Xq7")
    secrets = {"api_key": {"env": "DEMO_KEY"}}
    small.up(secrets=secrets)
    small.up("--max-num-seqs", "8", secrets=secrets)
    monkeypatch.delenv("DEMO_KEY")
    with pytest.raises(OnecatError, match="the API key is empty") as raised:
        deploy.rollback(small.store)
    assert raised.value.next_steps == ("export DEMO_KEY=..., then the same command again",)
    assert (small.status().state, small.status().release) == ("serving", 2)
    monkeypatch.setenv("DEMO_KEY", "sk-Xq7")
    back = deploy.rollback(small.store)
    assert (back.number, back.origin, back.fingerprint) == (3, 1, small.store.releases()[0].fingerprint)
    assert deploy.rollback(small.store).origin == 2  # and back again
    headers = {"Authorization": "Bearer sk-Xq7"}
    assert httpx.get(f"{back.endpoint}/v1/models", headers=headers, trust_env=False).status_code == 200


def test_the_commands_need_nothing_but_the_releases(small: SmallDeployment, onecat: Onecat, tmp_path: Path) -> None:
    small.up()
    small.up("--max-num-seqs", "8")
    foreseen = onecat("rollback", "demo", "--dry-run", "--json", cwd=tmp_path).expect(0).json()
    assert [foreseen[name] for name in ("schema", "changed", "strategy", "replaces", "origin", "proxy", "gap")] == [
        "onecat.rollback/1", False, "blue-green", 2, 1, "own", False,
    ]  # fmt: skip
    assert small.status().release == 2
    done = onecat("rollback", "demo", "--json", cwd=tmp_path).expect(0).json()
    assert (done["schema"], done["changed"], done["release"], done["origin"]) == ("onecat.rollback/1", True, 3, 1)
    assert httpx.get(f"{done['base_url']}/models", trust_env=False).status_code == 200
    restarted = onecat("restart", "demo", cwd=tmp_path).expect(0)
    assert restarted.stdout.startswith("demo release 4 serves tiny at ")
    table = onecat("releases", "demo", cwd=tmp_path).expect(0).stdout.splitlines()
    assert [line.replace("*", "").split()[:2] for line in table[1:]] == [
        ["4", "serving"], ["3", "stopped"], ["2", "stopped"], ["1", "stopped"],
    ]  # fmt: skip
    assert "would stop release 4" in onecat("down", "demo", "--dry-run", cwd=tmp_path).expect(0).stdout
    assert small.status().state == "serving"
    with small.store.lock("onecat up"):
        held = onecat("restart", "demo", cwd=tmp_path).expect(ExitCode.ROLLED_BACK)
    assert "runs `onecat up` since 20" in held.stderr and f"kill {os.getpid()}" in held.stderr
    missing = onecat("rollback", "demo", "--to", "9", cwd=tmp_path).expect(ExitCode.USAGE)
    assert "there is no release 9 of deployment demo" in missing.stderr


# --- the process that looks after a native server ---------------------------------------------------------------------


def prepared(directory: Path, port: int) -> NativeServer:
    argv = SmallServer().serve_argv(["/models/none", "--port", str(port)])
    return NativeServer.prepare(str(directory), launch_document(argv, {}, Restart(), None))


def left(directory: Path) -> list[int]:
    return [pid for pid in processes.with_variable(supervisor.MARK, str(directory)) if processes.told([pid])]


@pytest.mark.parametrize("delay", [0.01, 0.05, 0.15])
def test_ctrl_c_while_the_supervisor_starts_leaves_nobody(
    tmp_path: Path, free_port: Callable[[], int], delay: float
) -> None:
    server = prepared(tmp_path, free_port())
    program = (
        "import os, signal, sys, threading\nfrom onecat.deploy.native import NativeServer\n"
        f"threading.Timer({delay}, lambda: os.kill(os.getpid(), signal.SIGINT)).start()\n"
        "try:\n    NativeServer(sys.argv[1]).start()\n    import time; time.sleep(5)\n"
        "except KeyboardInterrupt:\n    NativeServer(sys.argv[1]).stop()\n    sys.exit(130)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False, timeout=60)
    assert done.returncode == 130
    assert server.state().condition == "stopped"
    assert left(tmp_path) == []


def test_a_supervisor_that_comes_after_the_end_starts_nothing(tmp_path: Path, free_port: Callable[[], int]) -> None:
    server = prepared(tmp_path, free_port())
    server.stop()
    subprocess.run([sys.executable, "-m", "onecat.deploy.supervisor", str(tmp_path)], check=True, timeout=30)
    limit = time.monotonic() + 10
    while server.state().condition != "stopped":
        assert time.monotonic() < limit
        time.sleep(0.05)
    assert not (tmp_path / "server.log").exists()
    assert left(tmp_path) == []


def test_a_server_that_the_kernel_does_not_end_needs_a_person(
    freezer: Path, tmp_path: Path, free_port: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "KILL_SECONDS", 0.5)
    server = prepared(tmp_path, free_port())
    server.start()
    limit = time.monotonic() + 20
    while (pid := server.state().pid) is None:
        assert time.monotonic() < limit
        time.sleep(0.05)
    guardian = processes.entry(pid)
    assert guardian is not None
    (freezer / "cgroup.procs").write_text(str(pid))
    (freezer / "freezer.state").write_text("FROZEN")
    os.kill(guardian.parent, signal.SIGKILL)
    with pytest.raises(OnecatError, match=rf"the kernel does not end python\S* \(pid {pid}, state ") as raised:
        server.stop()
    assert raised.value.code == ExitCode.NEEDS_PERSON
    (freezer / "freezer.state").write_text("THAWED")
    server.stop()
    assert left(tmp_path) == []
