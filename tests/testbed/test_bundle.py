"""An offline bundle is complete: a machine that has Python and the file, and no network at all, serves a model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onecat.paths import Home
from tests.testbed.command import Onecat

# What doctor tells people to install and a bundle cannot bring: a shared library of the system.
SYSTEM_LIBRARIES = sorted(Path("/usr/lib").glob("*-linux-gnu/libnuma.so.1"))
INSTALL = """\
set -e
cd /work
tar -xf /bundle.tar onecat
python3 -m venv env
env/bin/pip install --quiet --no-index --require-hashes --find-links onecat --requirement onecat/requirements.txt
"""


@pytest.fixture(scope="module")
def bundle(engine_home: Home, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of the cpu profile without images; its wheels are kept between runs."""
    home = tmp_path_factory.mktemp("bundle")
    onecat = Onecat(home=home, cache=engine_home.cache)
    path = home / "cpu.tar"
    onecat("bundle", "create", "-p", "cpu", "--no-images", "--output", path, timeout=900).expect(0)
    return path


@pytest.fixture
def lonely_machine(docker_client: Any, base_image: str, bundle: Path) -> Iterator[Any]:
    """A container with Python, the bundle, and no network but its own loopback."""
    container = docker_client.containers.run(
        base_image,
        ["sleep", "infinity"],
        detach=True,
        init=True,
        network_mode="none",
        shm_size=256 << 20,
        tmpfs={"/work": "rw,exec"},
        environment={"ONECAT_HOME": "/work/home", "PIP_CONFIG_FILE": "/dev/null", "COLUMNS": "80"},
        volumes={
            str(bundle): {"bind": "/bundle.tar", "mode": "ro"},
            **{str(path.resolve()): {"bind": str(path), "mode": "ro"} for path in SYSTEM_LIBRARIES},
        },
    )
    yield container
    container.remove(force=True, v=True)


def run(container: Any, *argv: str) -> str:
    """What a program prints on standard output in the container; fails the test with all it says when it fails."""
    code, (out, err) = container.exec_run(list(argv), demux=True)
    assert code == 0, f"{argv}: exit code {code}\n{(out or b'')[-3000:].decode()}\n{(err or b'')[-6000:].decode()}"
    return (out or b"").decode()


@pytest.mark.engine
def test_a_machine_without_network_installs_onecat_builds_the_engine_and_answers(lonely_machine: Any) -> None:
    onecat = "/work/env/bin/onecat"
    assert run(lonely_machine, "ls", "/sys/class/net").split() == ["lo"]
    run(lonely_machine, "sh", "-c", INSTALL)
    assert run(lonely_machine, "/work/env/bin/pip", "check").startswith("No broken requirements")
    loaded = json.loads(run(lonely_machine, onecat, "bundle", "load", "/bundle.tar", "--json"))
    assert loaded["profile_to_use"] == "cpu" and len(loaded["stored"]) > 100
    assert loaded["next"] == "onecat build --profile cpu --offline"
    built = json.loads(run(lonely_machine, onecat, "build", "--profile", "cpu", "--offline", "--json"))
    assert built["built"] is True and built["result"] == "native"
    answered = json.loads(run(lonely_machine, onecat, "quickstart", "--json"))
    assert answered["answer"]
    again = json.loads(run(lonely_machine, onecat, "bundle", "load", "/bundle.tar", "--json"))
    assert again["stored"] == []
    run(lonely_machine, onecat, "down", "quickstart")
