"""Which ports onecat's own deployments take."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from onecat.deploy import own_ports, processes
from onecat.deploy.releases import Release
from onecat.deploy.store import DeploymentStore
from onecat.files import write_json
from onecat.hosts import LocalMachine


@pytest.fixture
def machine(tmp_path: Path) -> LocalMachine:
    return LocalMachine(tmp_path)


def deployed(machine: LocalMachine, runtime: str, port: int, docker_host: str | None = None) -> Release:
    """A deployment with one current release."""
    store = DeploymentStore(machine, f"{runtime}-{port}")
    number, directory = store.new_directory()
    release = Release(
        deployment=store.name,
        number=number,
        directory=directory,
        runtime=runtime,  # type: ignore[arg-type]
        profile="cpu",
        model="tiny",
        host="127.0.0.1",
        port=port,
        endpoint=f"http://127.0.0.1:{port + 80}",
        proxy_kind="own",
        service="supervisor" if runtime == "native" else "docker",
        protected=False,
        fingerprint="abc",
        created_at="2026-11-29T16:00:00.000Z",
        docker_host=docker_host,
        outcome="serving",
    )
    store.save(release)
    store.set_current(number)
    return release


def supervised_by(release: Release, pid: int, state: str = "running") -> None:
    """What a supervisor with this process id writes about its server."""
    identity = processes.identify(pid)
    assert identity is not None
    document = {
        "state": state,
        "supervisor": identity._asdict(),
        "server": identity._asdict(),
        "started_at": "2026-11-29T16:00:00.000Z",
        "restarts": 0,
        "crashes_in_a_row": 0,
        "last_exit": None,
        "next_start_at": None,
    }
    write_json(Path(release.directory, "state.json"), document)


def test_where_nothing_was_deployed_no_port_is_taken(machine: LocalMachine) -> None:
    assert own_ports(machine) == ()


def test_a_server_that_runs_takes_its_port_and_one_that_ended_does_not(machine: LocalMachine) -> None:
    supervised_by(deployed(machine, "native", 18000), os.getpid())
    supervised_by(deployed(machine, "native", 18001), os.getpid(), "stopped")
    deployed(machine, "native", 18002)
    assert own_ports(machine) == (18000,)


def test_a_container_whose_docker_daemon_is_away_takes_no_port(machine: LocalMachine, tmp_path: Path) -> None:
    deployed(machine, "container", 18003, f"unix://{tmp_path}/docker.sock")
    assert own_ports(machine) == ()
