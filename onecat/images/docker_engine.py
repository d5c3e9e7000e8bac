"""The connection to a Docker engine, and its failures in plain words."""

from __future__ import annotations

import os
from typing import Any

from onecat.errors import ExitCode, OnecatError

DEFAULT_SOCKET = "unix:///var/run/docker.sock"
# The first whose statistics can be had at once (one-shot): https://docs.docker.com/reference/api/engine/version-history/
OLDEST_API_VERSION, OLDEST_VERSION = "1.41", "20.10"


def engine_address(docker_host: str | None) -> str:
    """The address that is used: the one given, else DOCKER_HOST, else the default socket."""
    return docker_host or os.environ.get("DOCKER_HOST") or DEFAULT_SOCKET


def connect(docker_host: str | None, timeout: int = 30) -> Any:
    """A low-level client (docker.APIClient) of the engine at `docker_host`, which has answered.

    Raises OnecatError (exit code 3) with the step that makes it reachable.
    """
    import docker
    from docker.errors import DockerException
    from requests.exceptions import RequestException

    try:
        client = docker.APIClient(**client_arguments(docker_host, timeout))
    except (DockerException, RequestException, OSError) as error:
        raise unreachable(engine_address(docker_host), str(error)) from error
    require_recent(client.api_version, engine_address(docker_host))
    return client


def client_arguments(docker_host: str | None, timeout: int = 30) -> dict[str, Any]:
    """The arguments of docker.APIClient and docker.DockerClient for an engine, the same wherever onecat talks to one.

    DOCKER_TLS_VERIFY and DOCKER_CERT_PATH belong to DOCKER_HOST: they count where the address is the environment's.
    """
    from docker.utils import kwargs_from_env

    address = engine_address(docker_host)
    of_environment = address == os.environ.get("DOCKER_HOST")
    tls = kwargs_from_env().get("tls", False) if of_environment else False
    return {"base_url": address, "version": "auto", "timeout": timeout, "tls": tls}


def require_recent(api_version: str, address: str) -> None:
    """Raises OnecatError (exit code 3) for an engine whose API is older than OLDEST_API_VERSION."""
    if version_numbers(api_version) < version_numbers(OLDEST_API_VERSION):
        raise OnecatError(
            f"this Docker engine is too old: it speaks API {api_version}",
            expected=f"Docker {OLDEST_VERSION} (API {OLDEST_API_VERSION}) or newer",
            where=address,
            next_steps=["update it: https://docs.docker.com/engine/install/"],
            code=ExitCode.UNREACHABLE,
        )


def version_numbers(version: str) -> tuple[int, ...]:
    """`1.41` as (1, 41), to compare."""
    return tuple(int(part) for part in version.split("."))


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
