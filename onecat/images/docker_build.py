"""Builds a context into an image with a Docker engine: by BuildKit where the docker command has it, else by the classic
builder of the engine. The context goes as one stream, and both make the same image: labels, tag, result."""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from onecat.errors import ExitCode, OnecatError
from onecat.images import buildkit, classic_builder
from onecat.images.build_progress import BuildkitProgress, ClassicProgress, Progress, Step, shortened
from onecat.images.build_request import BuildFailedError, BuildRequest
from onecat.images.buildkit import Buildkit, find_buildkit
from onecat.images.context import Context
from onecat.images.disk import megabytes, out_of_space_told
from onecat.images.docker_engine import connect, engine_address, unreachable
from onecat.images.engine_images import disk_full, ensure_base, inspect
from onecat.images.known_failures import explain

Report = Callable[[str], None]
BuilderChoice = Literal["auto", "buildkit", "classic"]

CONTEXT_LABEL = "io.onecat.context"
BASE_LABEL = "io.onecat.base-image"
STAGE_LABEL = "io.onecat.build"
"""Of every stage in our Dockerfiles: the tag of the image that the stage is for. It is the same from one context to the
next, so that it spoils no cache; stages without it would be nobody's."""

TIDY_SECONDS = 600
SILENCE_SECONDS = 15
CLEANING_SECONDS = 60
TOLD_LINES = 8
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class BuiltImage:
    """An image made from a context.

    tag: its name. image_id: `sha256:...`. size: in bytes, all layers. context: digest of the context.
    built: False when an equal image was there already. builder: what built it. steps: what was done, in order.
    log: the builder's whole output.
    """

    tag: str
    image_id: str
    size: int
    context: str
    built: bool
    builder: str | None = None
    steps: tuple[Step, ...] = ()
    log: Path | None = None


@dataclass(frozen=True)
class Builder:
    """What builds. buildkit: the docker command with BuildKit; None: the engine's classic builder. why: this one."""

    buildkit: Buildkit | None
    why: str

    @property
    def name(self) -> str:
        return "classic" if self.buildkit is None else "buildkit"


def choose_builder(choice: BuilderChoice, address: str) -> Builder:
    """The builder for the engine at `address`. Raises OnecatError (exit code 2) when it is asked for and absent."""
    if choice == "classic":
        return Builder(None, "as asked")
    found = find_buildkit(address, os.environ)
    if isinstance(found, Buildkit):
        return Builder(found, f"docker {found.version}{' with buildx' if found.buildx else ''}")
    if choice == "buildkit":
        raise OnecatError(
            f"BuildKit cannot be used: {found}",
            expected=f"a docker command before {buildkit.NEEDS_BUILDX}.0, or one with its buildx component",
            next_steps=["install it: https://docs.docker.com/go/buildx/", "or do without: --builder classic"],
        )
    return Builder(None, f"no BuildKit: {found}")


def find_image(context: Context, docker_host: str | None) -> BuiltImage | None:
    """The image of a context, if the engine has it, made from this very context and the base image it has now.

    Raises OnecatError (exit code 3) when the engine cannot be reached.
    """
    with contextlib.closing(connect(docker_host)) as client:
        present = inspect(client, context.tag)
        labels = {CONTEXT_LABEL: context.digest, BASE_LABEL: inspect(client, context.base).get("Id")}
    if present and labels.items() <= (present["Config"].get("Labels") or {}).items():
        return BuiltImage(context.tag, present["Id"], present["Size"], context.digest, built=False)
    return None


def build_image(
    context: Context,
    docker_host: str | None,
    report: Report,
    log: Path,
    choice: BuilderChoice = "auto",
    *,
    offline: bool = False,
) -> BuiltImage:
    """Build a context's image. Its stored files have been fetched and verified.

    Parameters:
        docker_host: engine's address; None for DOCKER_HOST or the default socket.
        report: called with one line per step.
        log: file that gets the builder's whole output.
        choice: which builder; `auto` takes BuildKit where it can be had. offline: no registry may be asked.

    Raises:
        OnecatError: the context must not be built yet (exit code 1), BuildKit is asked for and absent (2), the engine
            or the registry of the base image cannot be reached (3), a build step failed or the disk is full (4). Steps
            that are done stay in the engine's cache then, and the same command goes on behind them.
    """
    client, address, builder = _prepared(context, docker_host, report, choice, offline)
    labels = {CONTEXT_LABEL: context.digest, BASE_LABEL: inspect(client, context.base)["Id"]}
    request = BuildRequest(context, context.tag, labels, context.arguments)
    report(f"image: building {context.tag} from {context.base} with the engine at {address}")
    steps = _build(client, address, builder, request, report, log)
    if builder.buildkit is None:
        _tidy(client, context, report)
    made = inspect(client, context.tag)
    report(f"image: {context.tag} is built ({megabytes(made['Size'])})")
    return BuiltImage(context.tag, made["Id"], made["Size"], context.digest, True, builder.name, steps, log)


def build_stage(
    context: Context,
    stage: str,
    tag: str,
    docker_host: str | None,
    report: Report,
    log: Path,
    choice: BuilderChoice,
    *,
    offline: bool = False,
) -> BuiltImage:
    """Build one stage of a context, as an image of its own called `tag`. Raises OnecatError as `build_image` does."""
    client, address, builder = _prepared(context, docker_host, report, choice, offline)
    request = BuildRequest(context, tag, {}, context.arguments, stage)
    report(f"image: building stage {stage} of {context.tag} with the engine at {address}")
    steps = _build(client, address, builder, request, report, log)
    made = inspect(client, tag)
    return BuiltImage(tag, made["Id"], made["Size"], context.digest, True, builder.name, steps, log)


def check_buildable(context: Context) -> None:
    """Raises OnecatError (exit code 1) when the context must not be built yet."""
    if context.refusal is not None:
        raise context.refusal


def _prepared(
    context: Context, docker_host: str | None, report: Report, choice: BuilderChoice, offline: bool
) -> tuple[Any, str, Builder]:
    """The engine, its address, the builder; the base images are there."""
    check_buildable(context)
    # On a busy disk the engine takes minutes to remove the stages of a large image.
    client = connect(docker_host, timeout=TIDY_SECONDS)
    address = engine_address(docker_host)
    builder = choose_builder(choice, address)
    report(f"image: builder {builder.name} ({builder.why})")
    for base in context.bases:
        ensure_base(client, base, address, report, offline)
    return client, address, builder


def _build(
    client: Any, address: str, builder: Builder, request: BuildRequest, report: Report, log: Path
) -> tuple[Step, ...]:
    from docker.errors import APIError, DockerException
    from requests.exceptions import RequestException

    def tell(text: str) -> None:
        report(f"image: {text}")

    tell(f"log {log}")
    progress: Progress
    if builder.buildkit is None:
        progress = ClassicProgress(tell)
        output = classic_builder.lines(client, request, tell)
    else:
        progress = BuildkitProgress(tell)
        output = buildkit.lines(builder.buildkit, address, request, tell, os.environ)
    try:
        with out_of_space_told(log.parent):
            _follow(output, progress, tell, log)
    except BuildFailedError as error:
        raise _step_failed(progress, str(error), request, address, log) from error
    except (APIError, RequestException, ConnectionError, TimeoutError) as error:
        text = str(getattr(error, "explanation", None) or error)
        if "no space left" in text.lower():
            raise disk_full(address, text) from error
        if isinstance(error, APIError):
            raise _step_failed(progress, text, request, address, log) from error
        raise unreachable(address, text) from error
    except KeyboardInterrupt:
        if builder.buildkit is None:
            # An engine that is gone as well must not hide that the person has ended this.
            with contextlib.suppress(DockerException, RequestException):
                _wait_for_steps(client, request.context)
        tell("interrupted: the step that ran is ended, finished steps stay in the engine's cache")
        raise
    return progress.steps


def _follow(output: Generator[str, None, None], progress: Progress, tell: Report, log: Path) -> None:
    """Read the builder's output to its end, into the log and the progress."""
    log.parent.mkdir(parents=True, exist_ok=True)

    def still(seconds: int) -> None:
        place = f" in {progress.current.place}" if progress.current else ""
        tell(f"... nothing new for {seconds} s{place}")

    with contextlib.closing(output), log.open("w", buffering=1, encoding="utf-8") as stream:
        try:
            for line in _lines(_with_signs_of_life(output, still)):
                stream.write(f"{line}\n")
                progress.read(line, time.monotonic())
            progress.finish(time.monotonic())
        except BuildFailedError as error:
            stream.write(f"{error}\n")
            raise


def _lines(pieces: Iterable[str]) -> Iterator[str]:
    """Pieces of text as lines without their ends and colours; the returns of a progress bar end lines, too."""
    rest = ""
    try:
        for piece in pieces:
            *done, rest = (rest + _COLOUR.sub("", piece)).replace("\r", "\n").split("\n")
            yield from done
    except BuildFailedError:
        yield from filter(None, [rest])  # the last words before it
        raise
    yield from filter(None, [rest])


def _with_signs_of_life(pieces: Iterator[str], still: Callable[[int], None]) -> Iterator[str]:
    """The builder's output; calls `still` with the seconds of silence every SILENCE_SECONDS that there is none."""
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
        for piece in pieces:
            received = time.monotonic()
            yield piece
    finally:
        over.set()
        watcher.join()


def _step_failed(progress: Progress, error: str, request: BuildRequest, address: str, log: Path) -> OnecatError:
    step, output = progress.current, progress.output
    error = without_command(error)
    known = explain([*output, error], _values(request))
    if known is not None and known.failure == "disk.full":
        return disk_full(address, known.evidence[0])
    where = f": {shortened(step.instruction, 70)}" if step else ""
    last = [line for line in output[-TOLD_LINES:] if line.strip()]
    evidence = [] if known is None else [line for line in known.evidence if line not in map(str.strip, last)]
    own = _own_words(output)
    found = known.cause if known else own["found"][-1] if own["found"] else None
    steps = [*(known.fix if known else ()), *own["next"]]
    return OnecatError(
        f"the image could not be built{where}" if found is None else f"the image could not be built: {found}",
        expected=own["expected"][-1] if own["expected"] and known is None else None,
        where=f"{f'{step.place}, ' if step else ''}{address}, builder's log {log}",
        details=[*evidence, *last, error[:300]],
        next_steps=steps or ["read the builder's log, then run the same command again"],
        code=ExitCode.ROLLED_BACK,
    )


def _own_words(output: Iterable[str]) -> dict[str, list[str]]:
    """What the scripts of our recipes say when they give up: lines `onecat: found: ...`, `expected`, `next`."""
    words: dict[str, list[str]] = {"found": [], "expected": [], "next": []}
    for line in output:
        kind, colon, text = line.strip().removeprefix("onecat: ").partition(": ")
        if line.strip().startswith("onecat: ") and colon and kind in words:
            words[kind].append(text)
    return words


_COMMAND = re.compile(
    r"\[/bin/sh -c .*\](?=: )|(?<=The command )'/bin/sh -c .*'(?= returned)|(?<=process )\".*\"(?= did not)", re.S
)


def without_command(error: str) -> str:
    """The builder's last word without the step's own text, in which anything may stand, even what it looks for."""
    return re.sub(r"\s+", " ", _COMMAND.sub("...", error)).strip()


def _values(request: BuildRequest) -> dict[str, str]:
    """What the texts of known failures may name."""
    profile = request.context.reference or request.context.profile
    jobs = request.arguments.get("MAX_JOBS", "")
    fewer = max(1, int(jobs) // 2) if jobs.isdigit() else 1
    command = f"onecat build --profile {profile}"
    return {"profile": profile, "build": command, "jobs": jobs or "the", "max_jobs": str(fewer)}


def _steps_of(client: Any, context: Context) -> list[dict[str, Any]]:
    """The containers in which steps of this image run: a server that was started from the image has its base label."""
    found = client.containers(all=True, filters={"label": f"{STAGE_LABEL}={context.tag}"})
    return [container for container in found if BASE_LABEL not in (container.get("Labels") or {})]


def _wait_for_steps(client: Any, context: Context) -> None:
    """The engine removes the container of an interrupted step; that takes it a moment."""
    deadline = time.monotonic() + CLEANING_SECONDS
    while _steps_of(client, context) and time.monotonic() < deadline:
        time.sleep(0.2)


def _tidy(client: Any, context: Context, report: Report) -> None:
    """Remove the untagged images of stages: only those for this image, and never an earlier image itself.

    The stages of an engine that was compiled are kept: they are hours of work, and a build after a small change of the
    recipe goes on from them.
    """
    label = f"{STAGE_LABEL}={context.tag}"
    if context.wheel_stage is not None:
        report(f"image: stages stay as a cache; to remove them: docker image prune --filter label={label}")
        return
    client.prune_images(filters={"dangling": True, "label": label, "label!": BASE_LABEL})
