"""Builds a context into an image with a Docker engine (its classic builder: works from Docker 20.10 on)."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onecat.errors import ExitCode, OnecatError
from onecat.images.context import Context, tar_stream
from onecat.images.disk import megabytes
from onecat.images.docker_engine import connect, engine_address, unreachable

Report = Callable[[str], None]
_Message = dict[str, Any]

CONTEXT_LABEL = "io.onecat.context"
BASE_LABEL = "io.onecat.base-image"
_STEP = re.compile(r"^Step (\d+)/(\d+) : (.*)$")
SILENCE_SECONDS = 15
CLEANING_SECONDS = 60
_UPLOAD_STEP_BYTES = 100_000_000


@dataclass(frozen=True)
class BuiltImage:
    """An image made from a context.

    tag: its name. image_id: `sha256:...`. size: in bytes, all layers. context: digest of the context.
    built: False when an equal image was there already.
    """

    tag: str
    image_id: str
    size: int
    context: str
    built: bool


def find_image(context: Context, docker_host: str | None) -> BuiltImage | None:
    """The image of a context, if the engine has it, made from this very context and the base image it has now.

    Raises OnecatError (exit code 3) when the engine cannot be reached.
    """
    client = connect(docker_host)
    present = _inspect(client, context.tag)
    base = _inspect(client, context.base)
    labels = {CONTEXT_LABEL: context.digest, BASE_LABEL: base.get("Id")}
    if present and labels.items() <= (present["Config"].get("Labels") or {}).items():
        return BuiltImage(context.tag, present["Id"], present["Size"], context.digest, built=False)
    return None


def build_image(
    context: Context,
    docker_host: str | None,
    report: Report,
    log: Path,
    build_arguments: Mapping[str, str] | None = None,
) -> BuiltImage:
    """Build a context's image. Its stored files have been fetched and verified.

    Parameters:
        docker_host: engine's address; None for DOCKER_HOST or the default socket.
        report: called with one line per step.
        log: file that gets the builder's whole output.
        build_arguments: values for the context's build arguments.

    Raises:
        OnecatError: the context must not be built yet (exit code 1), a build argument is missing (2), the engine or the
            registry of the base image cannot be reached (3), a build step failed or the disk is full (4): then nothing
            is left behind.
    """
    given = dict(build_arguments or {})
    check_buildable(context, given)
    client = connect(docker_host)
    address = engine_address(docker_host)
    for base in context.bases:
        _ensure_base(client, base, address, report)
    labels = {CONTEXT_LABEL: context.digest, BASE_LABEL: _inspect(client, context.base)["Id"]}
    report(f"image: building {context.tag} from {context.base} with the engine at {address}")
    try:
        _build(client, context, labels, given, report, log, address)
    finally:
        _remove_stages(client, context.digest)
    made = _inspect(client, context.tag)
    report(f"image: {context.tag} is built ({megabytes(made['Size'])})")
    return BuiltImage(context.tag, made["Id"], made["Size"], context.digest, built=True)


def check_buildable(context: Context, build_arguments: Mapping[str, str]) -> None:
    """Raises OnecatError when the context must not be built yet (exit code 1) or a build argument is missing (2)."""
    if context.refusal is not None:
        raise context.refusal
    for name, what in context.build_arguments.items():
        if not (build_arguments.get(name) or context.arguments.get(name)):
            raise OnecatError(
                f"the build argument {name} is missing", expected=what, next_steps=[f"--build-arg {name}=ADDRESS"]
            )


def _inspect(client: Any, image: str) -> dict[str, Any]:
    from docker.errors import ImageNotFound

    try:
        found: dict[str, Any] = client.inspect_image(image)
    except ImageNotFound:
        return {}
    return found


def _ensure_base(client: Any, base: str, address: str, report: Report) -> None:
    from docker.errors import APIError
    from requests.exceptions import RequestException

    if _inspect(client, base):
        return
    report(f"image: pulling {base}")
    problem = ""
    try:
        last = ""
        for message in client.pull(*_repository_and_tag(base), stream=True, decode=True):
            problem = message.get("error", problem)
            if message.get("status") and message["status"] != last and not message.get("progress"):
                last = message["status"]
    except (APIError, RequestException) as error:
        problem = getattr(error, "explanation", None) or str(error)
    if not _inspect(client, base):
        if "no space left" in problem:
            raise _disk_full(address, problem)
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


def _repository_and_tag(image: str) -> tuple[str, str | None]:
    if "@" in image:
        repository, digest = image.split("@", 1)
        return repository, digest
    repository, colon, tag = image.rpartition(":")
    return (repository, tag) if colon and "/" not in tag else (image, "latest")


def _upload(context: Context, report: Report) -> Iterator[bytes]:
    total, sent, told = context.size, 0, 0
    for piece in tar_stream(context):
        sent += len(piece)
        if sent - told >= _UPLOAD_STEP_BYTES:
            told = sent
            report(f"image: context {megabytes(sent)} of {megabytes(max(total, sent))}")
        yield piece


def _build(
    client: Any,
    context: Context,
    labels: Mapping[str, str],
    build_arguments: Mapping[str, str],
    report: Report,
    log: Path,
    address: str,
) -> None:
    from docker.errors import APIError
    from requests.exceptions import RequestException

    log.parent.mkdir(parents=True, exist_ok=True)
    step = ""
    output: list[str] = []
    try:
        messages = client.build(
            fileobj=_upload(context, report),
            custom_context=True,
            tag=context.tag,
            labels=dict(labels),
            buildargs={**context.arguments, **build_arguments, "ONECAT_CONTEXT": context.digest},
            network_mode=None if context.network else "none",
            rm=True,
            forcerm=True,
            decode=True,
            timeout=None,
        )
        # Closing hangs up, and then the engine ends what it is at.
        with contextlib.closing(messages), log.open("w", encoding="utf-8") as stream:
            for message in _with_signs_of_life(
                messages, lambda seconds: report(f"image: ... {seconds} s in this step")
            ):
                text = str(message.get("stream") or message.get("error") or "")
                stream.write(text)
                if "error" in message:
                    raise _step_failed(step, str(message["error"]), output, address, log)
                for line in filter(None, map(str.strip, text.splitlines())):
                    output.append(line)
                    if found := _STEP.match(line):
                        step = found.group(3)
                        report(f"image: step {found.group(1)} of {found.group(2)}: {shortened(step)}")
    except (APIError, RequestException, OSError) as error:
        text = str(getattr(error, "explanation", None) or error)
        if "no space left" in text.lower():
            raise _disk_full(address, text) from error
        if isinstance(error, APIError):
            raise _step_failed(step, text, output, address, log) from error
        raise unreachable(address, text) from error


def _with_signs_of_life(messages: Iterator[_Message], still: Callable[[int], None]) -> Iterator[_Message]:
    """The builder's messages; calls `still` with the seconds of silence every SILENCE_SECONDS that there are none."""
    received = time.monotonic()
    over = threading.Event()

    def watch() -> None:
        told = received
        while not over.wait(1):
            now = time.monotonic()
            if now - max(told, received) >= SILENCE_SECONDS:
                told = now
                still(round(now - received))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        for message in messages:
            received = time.monotonic()
            yield message
    finally:
        over.set()
        watcher.join()


def shortened(instruction: str, limit: int = 70) -> str:
    """A Dockerfile instruction in one short line."""
    line = re.sub(r"\s+", " ", instruction)
    return line if len(line) <= limit else line[: limit - 3] + "..."


def _step_failed(step: str, error: str, output: list[str], address: str, log: Path) -> OnecatError:
    if any("no space left on device" in text.lower() for text in (error, *output[-20:])):
        return _disk_full(address, error)
    return OnecatError(
        f"the image could not be built: {shortened(step)}" if step else "the image could not be built",
        where=f"{address}, builder's log {log}",
        details=[*[line for line in output[-4:] if not line.startswith(("--->", "Step"))], error.strip()[:300]],
        next_steps=["read the builder's log, then run the same command again"],
        code=ExitCode.ROLLED_BACK,
    )


def _disk_full(address: str, text: str) -> OnecatError:
    return OnecatError(
        "the Docker engine's disk is full",
        where=address,
        details=[text.strip()[:300]],
        next_steps=[
            "see what takes the space: docker system df",
            "free some: docker image prune, or move the engine's data-root to a larger disk; then run this again",
        ],
        code=ExitCode.ROLLED_BACK,
    )


def _remove_stages(client: Any, digest: str) -> None:
    """Remove the untagged images of earlier stages and of failed steps: only ours, known by the context's digest."""
    label = f"{CONTEXT_LABEL}={digest}"
    ours = {"dangling": True, "label": label}
    deadline = time.monotonic() + CLEANING_SECONDS
    stages: set[str] = set()
    while True:
        stages |= {image["Id"] for image in client.images(filters=ours)}
        client.prune_images(filters=ours)
        # The container of an interrupted step holds its image until the engine has removed it.
        steps = client.containers(all=True, filters={"label": label})
        left = bool(client.images(filters=ours)) or any(step["ImageID"] in stages for step in steps)
        if not left or time.monotonic() > deadline:
            return
        time.sleep(0.5)
