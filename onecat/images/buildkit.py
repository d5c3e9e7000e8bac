"""BuildKit, through the docker command: the builder that runs stages at once and keeps a cache of its own."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import IO

from onecat.errors import OnecatError
from onecat.images.build_request import BuildFailedError, BuildRequest, upload
from onecat.images.disk import die_with_parent

NEEDS_BUILDX = 23
"""From this version on the docker command has no BuildKit client in itself:
https://docs.docker.com/engine/release-notes/23.0/"""
ASK_SECONDS = 20.0
CANCEL_SECONDS = 5.0
"""How long the docker command may take to end a build when it is told to. It hangs when a step is just being started
(20.10); killed, its connection breaks, and the engine ends the step then."""
_OF_ENGINE = ("DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", "DOCKER_TLS")
_NOT_OURS = ("DOCKER_CONTEXT", "DOCKER_DEFAULT_PLATFORM", "BUILDKIT_PROGRESS", "BUILDX_BUILDER", "BUILDKIT_HOST")


@dataclass(frozen=True)
class Buildkit:
    """A docker command that can build with BuildKit.

    command: its path. version: of the docker command. buildx: it builds through its plugin of that name.
    """

    command: str
    version: str
    buildx: bool


def find_buildkit(address: str, environment: Mapping[str, str]) -> Buildkit | str:
    """The docker command of PATH, if it can build with BuildKit on the engine at `address`; else why it cannot."""
    command = shutil.which("docker", path=environment.get("PATH"))
    if command is None:
        return "there is no docker command"
    environment = engine_environment(address, environment)
    said = _ask([command, "version", "--format", "{{.Client.Version}}"], environment)
    number = re.match(r"(\d+)\.", said or "")
    if said is None or number is None:
        return f"{command} does not tell its version"
    if int(number[1]) < NEEDS_BUILDX:
        return Buildkit(command, said, buildx=False)
    if _ask([command, "buildx", "version"], environment) is None:
        return f"docker {said} has no buildx component"
    return Buildkit(command, said, buildx=True)


def _ask(argv: list[str], environment: Mapping[str, str]) -> str | None:
    """What a command prints, in one line; None when it fails."""
    try:
        done = subprocess.run(
            argv, env=dict(environment), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=ASK_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def engine_environment(address: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The docker command's environment for one engine: no other context, builder or platform than this engine's.

    The variables of TLS belong to DOCKER_HOST: they stay where `address` is the environment's own.
    """
    dropped = set(_NOT_OURS) | (set(_OF_ENGINE) if environment.get("DOCKER_HOST") != address else set())
    kept = {name: value for name, value in environment.items() if name not in dropped}
    # Attestations would make a list of manifests out of one image, with another id each time.
    return {**kept, "DOCKER_HOST": address, "DOCKER_BUILDKIT": "1", "BUILDX_NO_DEFAULT_ATTESTATIONS": "1"}


def build_argv(buildkit: Buildkit, request: BuildRequest) -> list[str]:
    """The command that builds the context on its standard input. Build arguments get their values from the environment,
    so that no list of processes shows a proxy's password."""
    argv = [buildkit.command]
    argv += ["buildx", "build", "--builder", "default", "--load"] if buildkit.buildx else ["build"]
    argv += ["--progress", "plain", "--tag", request.tag]
    if not request.context.network:
        argv += ["--network", "none"]
    if request.target is not None:
        argv += ["--target", request.target]
    for name, value in sorted(request.labels.items()):
        argv += ["--label", f"{name}={value}"]
    for name in sorted(request.arguments):
        argv += ["--build-arg", name]
    return [*argv, "-"]


def lines(
    buildkit: Buildkit,
    address: str,
    request: BuildRequest,
    report: Callable[[str], None],
    environment: Mapping[str, str],
) -> Generator[str, None, None]:
    """Build, and yield what the builder prints, line by line. Closing the iterator ends the build.

    Parameters:
        address: of the engine. environment: of the docker command, before the engine and the arguments are put into it.
        report: called when a large context is on its way.

    Raises:
        BuildFailedError: the command ended with another exit code than 0.
        OSError, OnecatError: a file of the context could not be read, or has changed.
    """
    process = subprocess.Popen(
        build_argv(buildkit, request),
        env={**engine_environment(address, environment), **request.arguments},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # Ctrl-C comes to us; we end it
        preexec_fn=die_with_parent,  # noqa: PLW1509 - one C call, nothing that a fork could have left locked
    )
    assert process.stdin and process.stdout
    trouble: list[OSError | OnecatError] = []
    feeder = threading.Thread(target=_feed, args=(process.stdin, upload(request.context, report), trouble), daemon=True)
    feeder.start()
    last: deque[str] = deque(maxlen=5)
    try:
        for raw in process.stdout:
            line = raw.decode("utf-8", "replace")
            if line.strip():
                last.append(line.strip())
            yield line
        code = process.wait()
    finally:
        _end(process)
        feeder.join(CANCEL_SECONDS)
    if trouble:
        raise trouble[0]
    if code != 0:
        raise BuildFailedError(last[-1] if last else f"the docker command ended with exit code {code}")


def _feed(stream: IO[bytes], pieces: Iterator[bytes], trouble: list[OSError | OnecatError]) -> None:
    """Write the context; a builder that hangs up says why itself, a file that cannot be read is ours to tell."""
    try:
        for piece in pieces:
            try:
                stream.write(piece)
            except (BrokenPipeError, ValueError):
                return
    except (OSError, OnecatError) as error:
        trouble.append(error)
    finally:
        with contextlib.suppress(OSError, ValueError):
            stream.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Let the docker command cancel the build, which it does when it is told to end; kill it when it does not.

    Not by SIGINT: a shell that runs onecat in the background has it ignored, in all that onecat starts as well.
    """
    if process.poll() is None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            try:
                process.wait(CANCEL_SECONDS)
                break
            except subprocess.TimeoutExpired:
                continue
    if process.stdout:
        process.stdout.close()
