"""`onecat up` on a machine where something is wrong: one clear message, the right exit code, nothing changed."""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from onecat.errors import ExitCode
from tests.testbed.command import Onecat, Result
from tests.testbed.docker_daemon import DockerDaemon

CONFIGURATION = """\
name: demo
profile: {profile}
model:
  path: {model}
  served_name: tiny
port: {port}
proxy:
  listen: 127.0.0.1:{proxy_port}
"""


@pytest.fixture
def write_configuration(tmp_path: Path, tiny_model: Path, free_port: Callable[[], int]) -> Callable[..., Path]:
    def write(**changes: object) -> Path:
        values = {"profile": "cpu", "model": tiny_model, "port": free_port(), "proxy_port": free_port(), **changes}
        path = tmp_path / "onecat.yaml"
        path.write_text(CONFIGURATION.format(**values))
        return path

    return write


def told(result: Result, code: int, *parts: str) -> None:
    """The command failed with `code` and one message that holds all `parts`."""
    result.expect(code)
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert result.stderr.count("onecat: ") == 1, result.stderr
    for part in parts:
        assert part in result.stderr, result.stderr


def unchanged(onecat: Onecat) -> bool:
    return not onecat.home.exists() or not any(path.is_file() for path in onecat.home.rglob("*"))


@pytest.mark.parametrize("key", ["port", "proxy_port"])
def test_a_port_in_use(onecat: Onecat, nginx: str, write_configuration: Callable[..., Path], key: str) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        result = onecat("up", "--config", write_configuration(**{key: port}), "--runtime", "native")
    told(result, ExitCode.ROLLED_BACK, f"port {port} is in use", "ss -ltnp")
    assert unchanged(onecat)


def test_a_missing_model_directory(onecat: Onecat, write_configuration: Callable[..., Path], tmp_path: Path) -> None:
    missing = tmp_path / "nothing"
    told(onecat("up", "--config", write_configuration(model=missing)), ExitCode.USAGE, str(missing))
    assert unchanged(onecat)


def test_a_truncated_safetensors_file(
    onecat: Onecat, write_configuration: Callable[..., Path], tmp_path: Path, tiny_model: Path
) -> None:
    model = tmp_path / "truncated"
    shutil.copytree(tiny_model, model)
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100_000])
    told(onecat("up", "--config", write_configuration(model=model)), ExitCode.USAGE, "model.safetensors", "download")
    assert unchanged(onecat)


def test_an_unknown_profile(onecat: Onecat, write_configuration: Callable[..., Path]) -> None:
    told(onecat("up", "--config", write_configuration(profile="cpuu")), ExitCode.USAGE, "cpuu", "cpu")
    assert unchanged(onecat)


def test_a_broken_yaml_file(onecat: Onecat, tmp_path: Path) -> None:
    path = tmp_path / "onecat.yaml"
    path.write_text("name: demo\nmodel: [unclosed\n")
    told(onecat("up", "--config", path), ExitCode.USAGE, "onecat.yaml:")
    assert unchanged(onecat)


def test_a_docker_that_does_not_run(onecat: Onecat, write_configuration: Callable[..., Path]) -> None:
    result = onecat("up", "--config", write_configuration(), "--runtime", "container")
    told(result, ExitCode.UNREACHABLE, "there is no Docker engine at this socket")
    assert unchanged(onecat)


def test_a_docker_socket_without_permission(
    onecat_with_docker: Onecat, docker_daemon: DockerDaemon, write_configuration: Callable[..., Path], tiny_model: Path
) -> None:
    # Another user cannot enter pytest's own directories, and that would be the first thing in the way.
    with tempfile.TemporaryDirectory(prefix="onecat-test-public-") as name:
        public = Path(name)
        shutil.copytree(tiny_model, public / "model")
        shutil.copy(write_configuration(model=public / "model"), public)
        theirs = Onecat(public / "home", onecat_with_docker.cache, onecat_with_docker.docker_host)
        for path in (public, *public.rglob("*")):
            path.chmod(0o777)
        arguments = ("up", "--config", public / "onecat.yaml", "--runtime", "container")
        told(
            theirs(*arguments, unprivileged=True),
            ExitCode.UNREACHABLE,
            "this user may not talk to the Docker engine",
            str(docker_daemon.socket),
        )
        assert unchanged(theirs)


def test_a_runtime_that_is_not_built(onecat: Onecat, write_configuration: Callable[..., Path]) -> None:
    result = onecat("up", "--config", write_configuration(), "--runtime", "native")
    told(result, ExitCode.ROLLED_BACK, "onecat build --profile cpu --runtime native")
    assert unchanged(onecat)


def test_a_full_disk(
    onecat: Onecat, write_configuration: Callable[..., Path], small_disk: Callable[[int], Path]
) -> None:
    full = Onecat(home=small_disk(4) / "home", cache=onecat.cache, docker_host=onecat.docker_host)
    result = full("up", "--config", write_configuration(), "--runtime", "native")
    told(result, ExitCode.ROLLED_BACK, "the disk is full", "ONECAT_HOME")
    assert unchanged(full)


def test_commands_about_a_deployment_that_is_not_there(onecat: Onecat, tmp_path: Path) -> None:
    for command in ("status", "logs", "down"):
        told(onecat(command, "nothing", cwd=tmp_path), ExitCode.USAGE, "there is no deployment nothing")
    assert unchanged(onecat)


def test_diagnose_reads_a_file_and_standard_input(onecat: Onecat) -> None:
    log = Path(__file__).parents[1] / "fixtures" / "logs" / "port-in-use.log"
    from_file = onecat("diagnose", log, "--json").expect(0).json()
    from_input = onecat("diagnose", "-", "--json", stdin=log.read_text()).expect(0).json()
    assert from_file == from_input
    assert [found["signature"] for found in from_file["diagnoses"]] == ["network.port-in-use"]
    told(onecat("diagnose", "nothing.log"), ExitCode.USAGE, "the log cannot be read")
