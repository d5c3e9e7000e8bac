"""Images that a Docker engine has, and those that it must have before a build."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onecat.errors import ExitCode, OnecatError

Report = Callable[[str], None]


def inspect(client: Any, image: str) -> dict[str, Any]:
    """What the engine knows about an image; empty when it has none of that name.

    Raises OnecatError (exit code 2) for what cannot be a name.
    """
    from docker.errors import APIError, ImageNotFound

    try:
        found: dict[str, Any] = client.inspect_image(image)
    except ImageNotFound:
        return {}
    except APIError as error:
        if error.status_code != 400:
            raise
        raise OnecatError(
            f"{image!r} is no name of an image",
            expected="NAME[:TAG], NAME@DIGEST or an id, in lower-case letters and digits",
            next_steps=["docker images"],
        ) from error
    return found


def ensure_base(client: Any, base: str, address: str, report: Report, offline: bool = False) -> None:
    """Have the engine pull a base image that it lacks.

    Parameters:
        offline: no registry may be asked.

    Raises OnecatError: it cannot be had (exit code 3), or the engine's disk is full (4).
    """
    from docker.errors import APIError
    from requests.exceptions import RequestException

    if inspect(client, base):
        return
    problem = "no registry was asked: --offline" if offline else ""
    if not offline:
        report(f"image: pulling {base}")
        try:
            last = ""
            for message in client.pull(*repository_and_tag(base), stream=True, decode=True):
                problem = message.get("error", problem)
                if message.get("status") and message["status"] != last and not message.get("progress"):
                    last = message["status"]
        except (APIError, RequestException) as error:
            problem = getattr(error, "explanation", None) or str(error)
    if not inspect(client, base):
        if "no space left" in problem:
            raise disk_full(address, problem)
        raise OnecatError(
            f"the base image {base} is not on the Docker engine and cannot be pulled",
            where=address,
            details=[problem.strip()[:300]] if problem else [],
            next_steps=[
                f"make it available: docker pull {base} (behind a proxy: configure the engine's proxy)",
                "or load it from a machine that has it: docker save | docker load",
            ],
            code=ExitCode.UNREACHABLE,
        )


def repository_and_tag(image: str) -> tuple[str, str | None]:
    """An image's name as the engine's API takes it: repository, and tag or digest."""
    if "@" in image:
        repository, digest = image.split("@", 1)
        return repository, digest
    repository, colon, tag = image.rpartition(":")
    return (repository, tag) if colon and "/" not in tag else (image, "latest")


def disk_full(address: str, text: str) -> OnecatError:
    """What to tell when the engine's disk has filled up; `text` is its message."""
    return OnecatError(
        "the Docker engine's disk is full",
        where=address,
        details=[text.strip()[:300]],
        next_steps=[
            "see what takes the space: docker system df",
            "free some: docker image prune; docker builder prune",
            "or move the engine's data-root to a larger disk; then run this again",
        ],
        code=ExitCode.ROLLED_BACK,
    )
