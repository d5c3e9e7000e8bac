"""The main job as a newcomer meets it: one command on a clean checkout, and a real vLLM answers."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from onecat.resources import small_model
from tests.recognisable import recognise
from tests.testbed.command import Onecat

REPOSITORY = Path(__file__).parents[2]

pytestmark = pytest.mark.engine


def ask(endpoint: str) -> str:
    body = {"model": "small", "max_tokens": 8, "messages": [{"role": "user", "content": "hello"}]}
    answer = httpx.post(f"{endpoint}/v1/chat/completions", json=body, timeout=60, trust_env=False)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["message"]["content"])


@pytest.fixture
def quickstarted(onecat_with_engine: Onecat) -> Iterator[Onecat]:
    """The command with the kept engine; what it has started is stopped afterwards."""
    yield onecat_with_engine
    onecat_with_engine("down", "quickstart").expect(0)


def test_make_quickstart_on_a_clean_checkout_answers_through_nginx(
    quickstarted: Onecat, nginx: str, tmp_path: Path
) -> None:
    checkout = tmp_path / "checkout"
    subprocess.run(["git", "clone", "--quiet", str(REPOSITORY), str(checkout)], check=True)
    done = subprocess.run(
        ["make", "--no-print-directory", "quickstart"],
        cwd=checkout,
        env=quickstarted.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "answers no questions" in done.stderr
    assert "answer:" in done.stdout
    assert "from a real vLLM, through nginx" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 160

    status = quickstarted("status", "quickstart", "--json").expect(0).json()["deployments"][0]
    assert (status["state"], status["health"], status["runtime"]) == ("serving", "ok", "native")
    assert httpx.get(status["endpoint"] + "/health", trust_env=False).headers["server"].startswith("nginx")
    ask(status["endpoint"])

    started = time.monotonic()
    again = quickstarted("quickstart", "--json").expect(0).json()
    assert time.monotonic() - started < 20
    assert (again["endpoint"], again["release"]) == (status["endpoint"], 1)
    assert recognise(again["answer"], small_model()).is_language, again["answer"]


def test_an_interrupted_quickstart_leaves_nothing_running_and_goes_on_from_there(
    quickstarted: Onecat, nginx: str
) -> None:
    process = subprocess.Popen(
        quickstarted.argv("quickstart"),
        env=quickstarted.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        if "loading weights" in line or "reading the model" in line:
            os.killpg(process.pid, signal.SIGINT)
            break
    seen += process.stderr.readlines()
    assert process.wait(60) == 130, "".join(seen)
    assert "type the same command again" in seen[-1]
    status = quickstarted("status", "quickstart", "--json").expect(1).json()["deployments"][0]
    assert (status["state"], status["pid"], status["proxy_pid"]) == ("stopped", None, None)

    document = quickstarted("quickstart", "--json", timeout=600).expect(0).json()
    assert document["runtime"] == "native"
    ask(document["endpoint"])


def test_quickstart_in_a_container_of_the_built_image(
    onecat_with_docker: Onecat, cpu_image: str, docker_client: Any, nginx: str
) -> None:
    try:
        document = onecat_with_docker("quickstart", "--runtime", "container", "--json", timeout=900).expect(0).json()
        assert document["runtime"] == "container"
        ask(document["endpoint"])
        status = onecat_with_docker("status", "quickstart", "--json").expect(0).json()["deployments"][0]
        container = docker_client.containers.get(status["container"])
        assert container.attrs["Config"]["Image"] == cpu_image
        assert container.attrs["HostConfig"]["Privileged"] is False
    finally:
        onecat_with_docker("down", "quickstart").expect(0)
    assert docker_client.containers.list(all=True, filters={"label": "io.onecat.deployment=quickstart"}) == []
