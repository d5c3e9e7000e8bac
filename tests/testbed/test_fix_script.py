"""The fix script, really run: its Docker part on a bare Debian, twice, and where it must refuse."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from onecat.config import load_profile
from onecat.doctor import Finding, HostReport, Settings
from onecat.doctor.fix import fix_script
from onecat.facts import Docker, Facts, Nvidia, OperatingSystem, PciDevice
from tests.testbed.command import Onecat, Result
from tests.testbed.operators import Operator
from tests.testbed.ssh_host import SshHost, running_ssh_host

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
def ssh_host(docker_client: Any, ssh_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHost]:
    """A fresh Debian without Docker, with sshd, that these tests change."""
    with running_ssh_host(docker_client, ssh_image, tmp_path_factory.mktemp("bare"), hostname="zeus17") as host:
        yield host


@pytest.fixture(scope="module")
def bare_host(docker_client: Any, ssh_host: SshHost) -> Any:
    """The container of that host."""
    return docker_client.containers.get(ssh_host.container)


@pytest.fixture
def onecat_as_operator(onecat: Onecat, ssh_host: SshHost, tmp_path: Path) -> Callable[..., Result]:
    """The real command, run by somebody whose ~/.ssh/config knows the host as bare."""
    person = Operator(tmp_path / "home")
    person.write(
        f"Host bare\n  HostName {ssh_host.address}\n  User {ssh_host.user}\n  IdentityFile {ssh_host.key}\n",
        f"{ssh_host.address} {ssh_host.host_key}",
    )
    return lambda *arguments: onecat(*arguments, environment=person.environment)


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


def test_a_report_of_a_host_names_nothing_of_it(
    onecat_as_operator: Callable[..., Result], ssh_host: SshHost, bare_host: Any, tmp_path: Path
) -> None:
    file = tmp_path / "report.md"
    onecat_as_operator("report", "--host", "bare", "--output", str(file)).expect(0)
    text = file.read_text()
    assert "Debian GNU/Linux 12" in text
    assert '"user":"user1"' in text
    names = ("zeus17", ssh_host.address, bare_host.id[:12], str(tmp_path))
    assert [name for name in names if re.search(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", text)] == []


def test_its_docker_part_installs_docker_once(
    onecat_as_operator: Callable[..., Result], bare_host: Any, run_script: Run, tmp_path: Path
) -> None:
    file = tmp_path / "fix.sh"
    arguments = ("--host", "bare", "--profile", "cpu", "--runtime", "container", "--only", "docker.*")
    onecat_as_operator("doctor", *arguments, "--fix-script", str(file)).expect(1)
    assert bare_host.exec_run(["sh", "-c", "command -v dockerd"])[0] != 0

    script = file.read_text()
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
