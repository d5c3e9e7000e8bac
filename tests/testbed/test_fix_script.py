"""The fix script, really run: its Docker part on a bare Debian, twice, and where it must refuse."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from onecat.config import load_profile
from onecat.doctor import Finding, HostReport, Settings
from onecat.doctor.fix import fix_script
from onecat.facts import Docker, Facts, Nvidia, OperatingSystem, PciDevice

FACTS = Facts(
    "bare",
    operating_system=OperatingSystem(id="debian", version_id="12"),
    docker=Docker(state="absent", error="there is no socket"),
)
REPORT = HostReport("bare", True, 0.1, (Finding("docker.daemon", "fail", "Docker is not installed"),))

Run = Callable[..., tuple[int, str]]


def script_for(facts: Facts) -> str:
    return fix_script(REPORT, facts, load_profile("cpu"), Settings(runtime="container"))


@pytest.fixture(scope="module")
def bare_host(docker_client: Any, base_image: str) -> Iterator[Any]:
    """A fresh Debian without Docker; as a host's, its package sources can be reached."""
    container = docker_client.containers.run(base_image, ["sleep", "infinity"], detach=True, network_mode="host")
    yield container
    container.remove(force=True)


@pytest.fixture
def run_script(bare_host: Any) -> Run:
    """Runs a script in that Debian: exit code and output."""

    def run(text: str, user: str = "root") -> tuple[int, str]:
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as files:
            entry = tarfile.TarInfo("fix.sh")
            entry.size, entry.mode = len(text.encode()), 0o644
            files.addfile(entry, io.BytesIO(text.encode()))
        bare_host.put_archive("/", archive.getvalue())
        code, output = bare_host.exec_run(["sh", "/fix.sh"], user=user)
        return code, output.decode(errors="replace")

    return run


def test_it_refuses_other_users_systems_and_hosts_and_changes_nothing(bare_host: Any, run_script: Run) -> None:
    script = script_for(FACTS)
    code, output = run_script(script, user="nobody")
    assert (code, "needs root" in output) == (1, True), output
    code, output = run_script(script_for(replace(FACTS, operating_system=OperatingSystem(id="ubuntu"))))
    assert (code, "written for ubuntu, and here is debian" in output) == (1, True), output
    elsewhere = replace(FACTS, nvidia=Nvidia(pci_devices=(PciDevice("ffff:ff:1f.7", "10de", "1db6"),)))
    code, output = run_script(script_for(elsewhere))
    assert (code, "the script is for another host" in output) == (1, True), output
    assert bare_host.exec_run(["sh", "-c", "command -v dockerd"])[0] != 0


def test_its_docker_part_installs_docker_once(bare_host: Any, run_script: Run) -> None:
    script = script_for(FACTS)
    code, output = run_script(script)
    assert code == 0, output[-3000:]
    assert "==> installing docker.io" in output
    assert "1 changes made" in output
    assert "onecat doctor --host bare --profile cpu --runtime container" in output.splitlines()[-1]
    assert bare_host.exec_run(["dockerd", "--version"])[0] == 0
    packages = bare_host.exec_run(["dpkg-query", "-W"])[1]

    code, output = run_script(script)
    assert (code, "there was nothing to change" in output) == (0, True), output[-3000:]
    assert "Docker is installed already: Docker version" in output
    assert bare_host.exec_run(["dpkg-query", "-W"])[1] == packages


def test_a_package_that_no_source_has_is_told_with_what_to_add(run_script: Run) -> None:
    facts = replace(FACTS, docker=Docker(state="reachable"), nvidia=Nvidia(kernel_module_version="580.95.05"))
    code, output = run_script(fix_script(REPORT, facts, load_profile("h200"), Settings(runtime="container")))
    assert code == 1, output[-3000:]
    assert "no configured package source has nvidia-container-toolkit (see: apt-cache policy" in output
    assert "https://docs.nvidia.com/" in output


def test_the_driver_part_blacklists_nouveau_once_and_stops_where_packages_are_missing(
    bare_host: Any, run_script: Run
) -> None:
    script = fix_script(REPORT, replace(FACTS, nvidia=Nvidia(library_found=False)), load_profile("v100x2-pcie"))
    code, output = run_script(script)
    assert (code, "no configured package source has linux-headers-" in output) == (1, True), output[-3000:]
    blacklist = ["stat", "-c", "%y", "/etc/modprobe.d/onecat-nouveau.conf"]
    written = bare_host.exec_run(blacklist)
    assert written[0] == 0
    assert b"blacklist nouveau" in bare_host.exec_run(["cat", blacklist[-1]])[1]
    run_script(script)
    assert bare_host.exec_run(blacklist) == written
