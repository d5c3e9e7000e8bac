"""A host without Python tells nearly the same facts: the collector's and the agent's, of this machine."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from onecat.facts import SCHEMA, Facts
from onecat.hosts import LocalTransport
from onecat.probe import ProbeOptions, collect
from onecat.probe.agent import core
from onecat.probe.merging import facts_from_document

COLLECTOR = Path(core.__file__).parent / "collector.sh"


@pytest.fixture(scope="module")
def from_agent() -> Facts:
    return collect(LocalTransport(), ProbeOptions(paths={"model": "/usr"}))


@pytest.fixture(scope="module")
def from_collector() -> Facts:
    done = subprocess.run(
        ["sh", str(COLLECTOR), "--timeout", "10", "--path", "model=/usr"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        timeout=60,
    )
    text = done.stdout.decode(errors="replace")
    return facts_from_document({"schema": SCHEMA, "host": "h", "captures": [{"name": "collector", "text": text}]})


@pytest.mark.parametrize(
    "path",
    [
        "user",
        "is_root",
        "operating_system.id",
        "operating_system.version_id",
        "operating_system.pretty_name",
        "operating_system.kernel",
        "operating_system.kernel_command_line",
        "operating_system.architecture",
        "cpu.model",
        "cpu.logical_cores",
        "cpu.sockets",
        "cpu.flags",
        "memory.total",
        "memory.swap_total",
        "docker.state",
        "docker.server_version",
        "docker.storage_driver",
        "docker.root_directory",
        "docker.runtimes",
        "docker.security_options",
        "nvidia.nouveau_loaded",
        "nvidia.kernel_module_version",
        "nvidia.pci_devices",
    ],
)
def test_both_say_the_same(path: str, from_agent: Facts, from_collector: Facts) -> None:
    def value(facts: Facts) -> object:
        at: object = facts
        for name in path.split("."):
            at = getattr(at, name) if at is not None else None
        return at or None

    assert value(from_collector) == value(from_agent)


@pytest.mark.parametrize("purpose", ["tmp", "shm", "model"])
def test_both_measure_the_same_space(purpose: str, from_agent: Facts, from_collector: Facts) -> None:
    agents, collectors = (facts.filesystem(purpose) for facts in (from_agent, from_collector))
    assert (agents is None) == (collectors is None)
    if agents is not None and collectors is not None:
        assert collectors.path == agents.path
        assert abs(collectors.total - agents.total) <= 1024
        assert collectors.available == pytest.approx(agents.available, rel=0.1)


def test_both_know_the_limits_and_the_ports(from_agent: Facts, from_collector: Facts) -> None:
    limits = {limit.name: limit for limit in from_agent.limits}
    assert from_collector.limits
    assert all(limits[limit.name] == limit for limit in from_collector.limits)
    assert from_agent.listeners is not None and from_collector.listeners is not None
    # Other tests open ports of their own meanwhile.
    mine = {each.port for each in from_agent.listeners if each.port < 32768}
    assert {each.port for each in from_collector.listeners} & mine == mine or not mine


def test_both_read_the_kernel_log(from_agent: Facts, from_collector: Facts) -> None:
    if from_agent.kernel_events is None:
        pytest.skip("the kernel log cannot be read here")
    assert from_collector.kernel_events is not None
    assert {each.kind for each in from_collector.kernel_events} == {each.kind for each in from_agent.kernel_events}
