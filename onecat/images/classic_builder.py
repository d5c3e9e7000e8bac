"""The Docker engine's classic builder, through its API: there on every engine that builds at all."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import Any

from onecat.images.build_request import BuildFailedError, BuildRequest, upload


def lines(client: Any, request: BuildRequest, report: Callable[[str], None]) -> Generator[str, None, None]:
    """Build, and yield what the builder prints, as it comes. Closing the iterator ends the build.

    Parameters:
        client: a docker.APIClient.
        report: called when a large context is on its way.

    Raises:
        BuildFailedError: a step failed.
        docker.errors.DockerException, requests.RequestException: the engine refused or could not be talked to.
    """
    messages = client.build(
        fileobj=upload(request.context, report),
        custom_context=True,
        tag=request.tag,
        labels=dict(request.labels),
        buildargs=dict(request.arguments),
        network_mode=None if request.context.network else "none",
        target=request.target,
        rm=True,
        forcerm=True,
        decode=True,
        timeout=None,
    )
    # Closing hangs up, and then the engine ends what it is at.
    with contextlib.closing(messages):
        for message in messages:
            if "error" in message:
                raise BuildFailedError(str(message["error"]))
            if message.get("stream"):
                yield str(message["stream"])
