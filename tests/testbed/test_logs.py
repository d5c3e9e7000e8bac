"""`onecat logs` on deployments that run: merged, filtered, followed, with diagnoses as they happen."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from onecat import deploy
from onecat.errors import ExitCode
from onecat.paths import Home
from tests.processes import ended_after
from tests.testbed.deployments import SmallDeployment
from tests.testbed.ports import free_port

pytestmark = pytest.mark.testbed

ONECAT = str(Path(sys.executable).with_name("onecat"))
TRACEBACK = """INFO 11-30 12:00:00 [core.py:1] begun
Traceback (most recent call last):
  File "core.py", line 9, in load
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
INFO 11-30 12:00:01 [core.py:2] after
"""


def environment(small: SmallDeployment, **changes: str) -> dict[str, str]:
    left_out = ("NO_COLOR", "FORCE_COLOR")
    ours = {"ONECAT_HOME": str(small.home.data), "COLUMNS": "80", "PYTHONUNBUFFERED": "1"}
    return {**{name: value for name, value in os.environ.items() if name not in left_out}, **ours, **changes}


def logs(small: SmallDeployment, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ONECAT, "logs", "demo", *words],
        env=environment(small),
        cwd=small.home.data,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@contextlib.contextmanager
def followed(small: SmallDeployment, *words: str) -> Iterator[subprocess.Popen[str]]:
    argv = [ONECAT, "logs", "demo", "-f", *words]
    with (
        subprocess.Popen(
            argv, env=environment(small), cwd=small.home.data, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process,
        ended_after(process, 30),
    ):
        yield process


def until(process: subprocess.Popen[str], text: str) -> list[str]:
    """The lines up to the first one with a text; fails where they end before."""
    assert process.stdout is not None
    seen: list[str] = []
    for line in process.stdout:
        seen.append(line.rstrip("\n"))
        if text in line:
            return seen
    raise AssertionError(f"{text!r} never came: {seen}")


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path, nginx: str) -> Iterator[SmallDeployment]:
    """A deployment whose server has printed a failure that it got over; tests read it, and change nothing."""
    folder = tmp_path_factory.mktemp("failing")
    said = folder / "said.log"
    said.write_text(TRACEBACK)
    model = Path(shutil.copytree(tiny_model, folder / "tiny"))  # by which its processes are told from those of others
    made = SmallDeployment(Home(folder / "data", folder / "cache"), model, free_port(), free_port())
    made.up("--say-file", str(said))
    yield made
    deploy.down(made.store)
    assert made.processes() == []


def test_lines_with_what_they_mean(failing: SmallDeployment) -> None:
    found = logs(failing).stdout.splitlines()
    (index,) = [index for index, line in enumerate(found) if line.startswith("onecat: cause: ")]
    assert "OutOfMemoryError" in found[index - 1] and found[index + 1].endswith("after")
    assert " -> next: " in found[index]
    assert not any(line.startswith("onecat: ") for line in logs(failing, "--no-diagnose").stdout.splitlines())
    assert len(logs(failing, "-n", "2", "--no-diagnose").stdout.splitlines()) == 2

    (line,) = logs(failing, "--grep", "^.* info .*after$", "-i", "--no-diagnose").stdout.splitlines()
    assert line.endswith("after")
    assert logs(failing, "--since", "1s", "--grep", "begun", "--no-diagnose").stdout == ""
    assert len(logs(failing, "--since", "1h", "--grep", "begun", "--no-diagnose").stdout.splitlines()) == 1

    document = json.loads(logs(failing, "--json").stdout)
    assert (document["schema"], document["deployment"]) == ("onecat.logs/1", "demo")
    (told,) = document["diagnoses"]
    assert "OutOfMemoryError" in document["lines"][told["after"] - 1]
    assert document["entries"][0]["release"] == 1


def test_wrong_words_are_answered_with_what_to_type(failing: SmallDeployment) -> None:
    for words, found in (
        (("--grep", r"(a)\1"), "invalid escape"),
        (("--since", "soon"), "--since soon: no time"),
        (("--release", "7"), "has no release 7"),
    ):
        refused = logs(failing, *words)
        assert refused.returncode == ExitCode.USAGE
        assert found in refused.stderr and "Traceback" not in refused.stderr


def test_nginx_and_the_server_are_merged_and_followed_and_ctrl_c_ends_it(small: SmallDeployment) -> None:
    small.up(restart={"backoff_seconds": 20, "backoff_max_seconds": 20})
    with followed(small, "--nginx", "-n", "5") as process:
        until(process, "server ")
        server = small.status().pid
        assert server is not None
        os.kill(server, signal.SIGKILL)
        small.wait_for(lambda status: status.state == "restarting")
        address = f"http://127.0.0.1:{small.proxy_port}/v1/completions"
        httpx.post(address, json={"model": "tiny", "prompt": "a", "max_tokens": 1}, timeout=10)
        seen = until(process, "nginx error")
        assert "connect() failed" in seen[-1]
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        assert process.wait(10) == 130
        assert time.monotonic() - began < 5
        assert process.stderr is not None and "Traceback" not in process.stderr.read()


def test_a_failure_is_diagnosed_while_it_happens_in_json_too(small: SmallDeployment) -> None:
    small.up()
    log = Path(small.store.current().directory) / "server.log"  # type: ignore[union-attr]
    with followed(small, "--json", "-n", "1") as process:
        until(process, '"lines"')
        with log.open("a") as stream:  # as the supervisor does
            for line in TRACEBACK.splitlines():
                stream.write(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {line}\n")
        documents = [json.loads(line) for line in until(process, '"diagnosis"')]
        assert documents[-1]["lines"] == [] and documents[-1]["diagnosis"]["severity"] == "fail"
        assert "OutOfMemoryError" in documents[-2]["lines"][0]
        deploy.down(small.store)
        assert process.wait(20) == 0, "it ends with the server"


def test_it_goes_on_with_the_next_release_and_says_so(small: SmallDeployment) -> None:
    small.up()
    with followed(small, "-n", "1") as process:
        until(process, " ")
        small.up("--max-num-seqs", "3")
        seen = until(process, "the log of release 1 has ended")
        assert any(line.startswith("onecat: server 2: release 2 ") for line in seen)
        if not any(line.startswith("server 2 | ") for line in seen):
            until(process, "server 2 | ")
        small.up("--max-num-seqs", "4", rollout={"strategy": "recreate"})
        until(process, "server 3 | ")
        deploy.down(small.store)
        assert until(process, "release 3 has ended")[-1] == "onecat: server 3: the log of release 3 has ended"
        assert process.wait(20) == 0


def test_a_host_that_cannot_be_reached_is_told_and_the_others_go_on(
    failing: SmallDeployment, small: SmallDeployment
) -> None:
    hosts = ("--host", "local,nobody@127.0.0.1:1")
    found = logs(failing, *hosts)
    assert found.returncode == ExitCode.UNREACHABLE
    assert "local | 20" in found.stdout and "onecat: local: cause: " in found.stdout
    small.up()
    with followed(small, *hosts) as process:
        until(process, "local | ")
        deploy.down(small.store)
        assert process.wait(20) == ExitCode.UNREACHABLE
        assert process.stderr is not None
        live = process.stderr.read()
    for told in (found.stderr, live):
        assert "no more logs from this host" in told and "1 of 2 hosts gave no logs to the end" in told
        assert "Traceback" not in told


def test_colours_are_for_terminals_only(failing: SmallDeployment) -> None:
    assert "\x1b[" not in logs(failing).stdout
    for variables, has_colours in (({"TERM": "xterm-256color"}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False)):
        reading, writing = pty.openpty()
        subprocess.run(
            [ONECAT, "logs", "demo"],
            env=environment(failing, **variables),
            cwd=failing.home.data,
            stdout=writing,
            stdin=subprocess.DEVNULL,
            check=True,
            timeout=30,
        )
        os.close(writing)
        shown = b""
        with contextlib.suppress(OSError):
            while data := os.read(reading, 1 << 16):
                shown += data
        os.close(reading)
        assert (b"\x1b[1;7monecat: cause:" in shown) == has_colours
        assert (b"\x1b[" in shown) == has_colours
