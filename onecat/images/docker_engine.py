"""The connection to a Docker engine, and its failures in plain words."""

from __future__ import annotations

import os
from typing import Any

from onecat.errors import ExitCode, OnecatError

DEFAULT_SOCKET = "unix:///var/run/docker.sock"


def engine_address(docker_host: str | None) -> str:
    """The address that is used: the one given, else DOCKER_HOST, else the default socket."""
    return docker_host or os.environ.get("DOCKER_HOST") or DEFAULT_SOCKET


def connect(docker_host: str | None, timeout: int = 30) -> Any:
    """A low-level client (docker.APIClient) of the engine at `docker_host`, which has answered.

    Raises OnecatError (exit code 3) with the step that makes it reachable.
    """
    import docker
    from docker.errors import DockerException
    from docker.utils import kwargs_from_env
    from requests.exceptions import RequestException

    address = engine_address(docker_host)
    try:
        # Without an address given, DOCKER_TLS_VERIFY and DOCKER_CERT_PATH count, too.
        tls = False if docker_host else kwargs_from_env().get("tls", False)
        return docker.APIClient(base_url=address, version="auto", timeout=timeout, tls=tls)
    except (DockerException, RequestException, OSError) as error:
        raise unreachable(address, str(error)) from error


def unreachable(address: str, text: str) -> OnecatError:
    """What to tell when the engine at `address` could not be talked to; `text` is the SDK's message."""
    path = address.removeprefix("unix://") if address.startswith("unix://") else None
    if "Permission denied" in text or "PermissionError" in text:
        return OnecatError(
            "this user may not talk to the Docker engine",
            expected="read and write permission on its socket, which members of its group (docker) have",
            where=address,
            next_steps=["sudo usermod -aG docker $USER, then log out and in again", "or run with sudo"],
            code=ExitCode.UNREACHABLE,
        )
    if path and not os.path.exists(path):  # noqa: PTH110 - a string from an address
        return OnecatError(
            "there is no Docker engine at this socket",
            where=address,
            next_steps=[
                "install and start it: apt-get install docker.io && systemctl start docker",
                "or name another one: --docker-host URL, or DOCKER_HOST",
                "or do without a container where the profile allows: --runtime native",
            ],
            code=ExitCode.UNREACHABLE,
        )
    return OnecatError(
        "the Docker engine does not answer",
        where=address,
        details=[text[:300]],
        next_steps=["systemctl status docker", "or name another engine: --docker-host URL, or DOCKER_HOST"],
        code=ExitCode.UNREACHABLE,
    )
