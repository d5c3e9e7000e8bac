"""`onecat up` with a real vLLM on the CPU, natively and in a container."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from onecat.errors import ExitCode
from tests.testbed.command import Onecat
from tests.testbed.load import Load

pytestmark = pytest.mark.engine

CONFIGURATION = """\
name: demo
profile: cpu
model:
  path: {model}
  served_name: tiny
port: {port}
proxy:
  listen: 127.0.0.1:{proxy_port}
start:
  # Each start takes several times as long: what counts is that it never is silent for so long.
  silence_seconds: 60
  allow_repeated_token: true
restart:
  backoff_seconds: 0.1
serve:
  max-model-len: {length}
  enforce-eager: true
"""


@pytest.fixture
def configuration(tmp_path: Path, tiny_model: Path, free_port: Callable[[], int]) -> Path:
    path = tmp_path / "onecat.yaml"
    values = {"model": tiny_model, "port": free_port(), "proxy_port": free_port(), "length": 1024}
    path.write_text(CONFIGURATION.format(**values))
    return path


@pytest.fixture
def with_engine(onecat_with_engine: Onecat, configuration: Path) -> Iterator[Onecat]:
    yield onecat_with_engine
    if (onecat_with_engine.home / "deployments").exists():
        onecat_with_engine("down", "--config", configuration).expect(0)


def status(onecat: Onecat, configuration: Path) -> dict[str, Any]:
    document = onecat("status", "--config", configuration, "--json").json()
    assert document["schema"] == "onecat.status/1"
    return dict(document["deployments"][0])


def wait_for(onecat: Onecat, configuration: Path, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    limit = time.monotonic() + 240
    while not condition(found := status(onecat, configuration)):
        assert time.monotonic() < limit, found
        time.sleep(1)
    return found


def ask(endpoint: str) -> None:
    body = {"model": "tiny", "max_tokens": 4, "messages": [{"role": "user", "content": "hello"}]}
    answer = httpx.post(f"{endpoint}/v1/chat/completions", json=body, timeout=60, trust_env=False)
    assert answer.status_code == 200, answer.text


def vllm_processes(port: int) -> set[int]:
    """The server on `port` and all that it has started."""
    from onecat.deploy import processes

    found = set()
    for pid in processes.table():
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if b"serve" in line and f"\0{port}\0".encode() in line:
            found |= {pid, *processes.descendants(pid)}
    return found


def test_a_native_vllm_starts_is_replaced_under_load_comes_back_and_stops(
    with_engine: Onecat, nginx: str, configuration: Path
) -> None:
    from onecat.deploy import processes

    up = with_engine("up", "--config", configuration, "--runtime", "native", "--json", timeout=300).expect(0)
    document = up.json()
    assert (document["schema"], document["changed"], document["model"]) == ("onecat.up/1", True, "tiny")
    for phase in ("starting the engine process", "ready after", "it answered", "nginx sends requests to"):
        assert phase in up.stderr
    ask(document["endpoint"])

    again = with_engine("up", "--config", configuration, "--runtime", "native", "--json").expect(0).json()
    assert (again["changed"], again["release"]) == (False, 1)

    # Two real engines side by side, and no client notices.
    with Load(document["endpoint"], clients=8, tokens=(4, 24), pause=2) as load:
        load.wait_for(20)
        changed = ("--set", "max-num-seqs=8", "--runtime", "native", "--json")
        document = with_engine("up", "--config", configuration, *changed, timeout=400).expect(0).json()
        load.wait_for(max(100, load.tally.answered + 20))
    print(f"{load.tally.answered} answers of vLLM, {load.tally.asked_again} kept connections renewed")
    assert (load.tally.lost, load.tally.refused) == ([], [])
    listed = with_engine("releases", "demo", "--json").expect(0).json()["deployments"][0]["releases"]
    assert [(each["release"], each["outcome"], each["strategy"]) for each in listed] == [
        (2, "serving", "blue-green"),
        (1, "stopped", "first"),
    ]

    found = status(with_engine, configuration)
    assert (found["state"], found["health"], found["runtime"], found["model"]) == ("serving", "ok", "native", "tiny")
    engine = found["engine"]
    assert (engine["version"], engine["device"], engine["dtype"], engine["execution"]) == (
        "0.27.1", "cpu", "float32", "eager",
    )  # fmt: skip
    assert engine["kv_tokens"] > 1024
    assert (engine["attention"], engine["surprises"]) == (["CPU_ATTN"], [])
    old = {found["pid"], *processes.descendants(found["pid"])}
    assert len(old) >= 3  # API server, engine, worker
    os.kill(found["pid"], signal.SIGKILL)
    wait_for(
        with_engine, configuration, lambda now: now["state"] == "serving" and now["pid"] not in (None, found["pid"])
    )
    assert not [pid for pid in old if (entry := processes.entry(pid)) is not None and entry.state not in "ZX"]
    ask(document["endpoint"])
    assert with_engine("diagnose", "-", stdin=with_engine("logs", "demo").expect(0).stdout).expect(0).stdout

    with_engine("down", "demo").expect(0)
    assert vllm_processes(int(document["server"].rpartition(":")[2])) == set()
    assert status(with_engine, configuration)["state"] == "stopped"


def test_a_start_that_vllm_refuses_tells_why_and_leaves_nothing(
    with_engine: Onecat, nginx: str, configuration: Path, tmp_path: Path
) -> None:
    (tmp_path / "no-tokenizer").mkdir()
    (tmp_path / "no-tokenizer" / "config.json").write_text('{"model_type": "llama"}')
    configuration.write_text(f"{configuration.read_text()}  tokenizer: {tmp_path / 'no-tokenizer'}\n")
    port = yaml.safe_load(configuration.read_text())["port"]
    failed = with_engine("up", "--config", configuration, "--runtime", "native", timeout=300).expect(
        ExitCode.ROLLED_BACK
    )
    assert "The model directory has no tokenizer that this engine can read" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert vllm_processes(port) == set()
    assert status(with_engine, configuration)["state"] == "failed"


def test_a_vllm_in_the_built_container(
    onecat_with_docker: Onecat, cpu_image: str, nginx: str, configuration: Path, docker_client: Any
) -> None:
    onecat = onecat_with_docker
    try:
        up = onecat("up", "--config", configuration, "--runtime", "container", "--json", timeout=400).expect(0)
        document = up.json()
        assert (document["runtime"], document["container"]) == ("container", "onecat-demo-0001")
        ask(document["endpoint"])
        found = status(onecat, configuration)
        assert (found["state"], found["health"], found["model"]) == ("serving", "ok", "tiny")
        os.kill(found["pid"], signal.SIGKILL)
        wait_for(onecat, configuration, lambda now: now["state"] == "serving" and now["pid"] != found["pid"])
        ask(document["endpoint"])
    finally:
        onecat("down", "--config", configuration).expect(0)
    assert docker_client.containers.list(all=True, filters={"label": "io.onecat.deployment=demo"}) == []
