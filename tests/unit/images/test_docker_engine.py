"""A Docker engine that cannot be used is one clear sentence and the step that helps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import requests
from docker.errors import APIError

from onecat.errors import ExitCode, OnecatError
from onecat.images.docker_engine import client_arguments, connect, engine_address, require_recent, unreachable
from onecat.images.engine_images import inspect, repository_and_tag


def test_the_address_given_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://10.0.0.1:2376")
    assert engine_address("unix:///x") == "unix:///x"
    assert engine_address(None) == "tcp://10.0.0.1:2376"
    monkeypatch.delenv("DOCKER_HOST")
    assert engine_address(None) == "unix:///var/run/docker.sock"


def test_the_environments_tls_counts_for_the_environments_engine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("ca.pem", "cert.pem", "key.pem"):
        (tmp_path / name).touch()
    monkeypatch.setenv("DOCKER_HOST", "tcp://10.0.0.1:2376")
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    monkeypatch.setenv("DOCKER_CERT_PATH", str(tmp_path))
    tls = client_arguments(None)["tls"]
    assert (tls.verify, tls.cert) == (True, (str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")))
    assert client_arguments("tcp://10.0.0.1:2376")["tls"]
    assert client_arguments("unix:///x") == {"base_url": "unix:///x", "version": "auto", "timeout": 30, "tls": False}


@pytest.mark.parametrize("version", ["1.40", "1.9", "1.24"])
def test_an_engine_that_is_too_old_is_told_which_one_is_needed(version: str) -> None:
    with pytest.raises(OnecatError, match=f"too old: it speaks API {version}") as raised:
        require_recent(version, "unix:///x")
    assert raised.value.expected == "Docker 20.10 (API 1.41) or newer"


@pytest.mark.parametrize("version", ["1.41", "1.50", "2.0"])
def test_a_recent_engine_is_taken(version: str) -> None:
    require_recent(version, "unix:///x")


def test_no_socket_means_no_engine(tmp_path: Path) -> None:
    with pytest.raises(OnecatError, match="no Docker engine at this socket") as raised:
        connect(f"unix://{tmp_path}/docker.sock")
    assert raised.value.code is ExitCode.UNREACHABLE
    assert any("--docker-host" in step for step in raised.value.next_steps)


def test_an_address_that_makes_no_sense_is_told() -> None:
    with pytest.raises(OnecatError, match="does not answer") as raised:
        connect("nonsense://x")
    assert raised.value.code is ExitCode.UNREACHABLE


def test_a_forbidden_socket_names_the_group() -> None:
    error = unreachable("unix:///var/run/docker.sock", "PermissionError(13, 'Permission denied')")
    assert "may not talk" in error.found and "usermod -aG docker" in error.next_steps[0]


@pytest.mark.parametrize(
    ("image", "parts"),
    [
        ("python:3.11", ("python", "3.11")),
        ("python", ("python", "latest")),
        ("host:5000/a/b", ("host:5000/a/b", "latest")),
        ("host:5000/a/b:1", ("host:5000/a/b", "1")),
        ("a@sha256:00", ("a", "sha256:00")),
    ],
)
def test_image_names_split_as_docker_reads_them(image: str, parts: tuple[str, str]) -> None:
    assert repository_and_tag(image) == parts


class Engine:
    """An engine that answers every question about an image with an error."""

    def __init__(self, status: int) -> None:
        self.status = status

    def inspect_image(self, image: str) -> dict[str, Any]:
        response = requests.Response()
        response.status_code = self.status
        raise APIError("no", response=response, explanation="no such image: invalid reference format")


def test_what_cannot_be_an_images_name_is_a_usage_error() -> None:
    with pytest.raises(OnecatError, match="'a=b' is no name of an image") as raised:
        inspect(Engine(400), "a=b")
    assert raised.value.code is ExitCode.USAGE
    with pytest.raises(APIError):
        inspect(Engine(500), "a")
