"""systemd units for people who want systemd to look after the server: rendered and verified, never installed."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from onecat.config.schema import Restart
from onecat.deploy import health_gate, with_secret
from onecat.deploy.container_spec import STOP_SECONDS, ContainerSpec, run_argv
from onecat.resources import render_template

if TYPE_CHECKING:
    from onecat.hosts import Machine

# `docker stop` waits STOP_SECONDS before it kills; systemd waits a little longer than that.
_STOP_MARGIN_SECONDS = 15
LONGEST_LOADING_SECONDS = 600
# What the image's entry point ends with when it cannot have its API key: starting again would not help.
UNUSABLE_CONFIGURATION = 78


def quote(word: str) -> str:
    """One word of an Exec line (systemd.service(5), COMMAND LINES): no specifier, variable or escape is expanded."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    escaped = escaped.replace("\n", "\\n").replace("\t", "\\t")
    plain = word and all(letter.isalnum() or letter in "_@%+=:,./-" for letter in word)
    return escaped if plain else f'"{escaped}"'


def command_line(argv: Sequence[str]) -> str:
    """An argv as the value of ExecStart and its relatives."""
    return " ".join(quote(word) for word in argv)


def assignment(name: str, value: str) -> str:
    """One Environment= value (systemd.exec(5)); `$` has no meaning there."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("\n", "\\n")
    return f'"{name}={escaped}"'


def start_limit_seconds(restart: Restart) -> int:
    """A window wide enough for `max_crashes` crashes in a row, each after up to LONGEST_LOADING_SECONDS of loading."""
    return int(restart.max_crashes * (restart.backoff_max_seconds + LONGEST_LOADING_SECONDS))


def _gate(url: str) -> str:
    return command_line([sys.executable, "-I", str(Path(health_gate.__file__)), f"{url}/health"])


def native_unit(
    deployment: str,
    number: int,
    argv: Sequence[str],
    env: Mapping[str, str],
    secret_file: str | None,
    url: str,
    restart: Restart,
    stop_seconds: float,
    writable: str,
    user: tuple[int, int] | None = None,
) -> str:
    """The unit of a native server.

    Parameters:
        secret_file: file with the API key, or None; the unit holds its path only.
        writable: directory the server may write to (its home and caches).
        user: (uid, gid) it runs as; None for those of this process. Numbers, because not every user has a name here.
    """
    uid, gid = (os.getuid(), os.getgid()) if user is None else user
    start = [*argv]
    if secret_file is not None:
        helper = str(Path(with_secret.__file__))
        start = [sys.executable, "-I", helper, "VLLM_API_KEY", secret_file, "--", *argv]
    path = f"{Path(argv[0]).parent}:/usr/local/bin:/usr/bin:/bin"
    return render_template(
        "systemd/native.service.j2",
        deployment=deployment,
        number=number,
        user=uid,
        group=gid,
        environment=[assignment(*item) for item in {"HOME": str(writable), "PATH": path, **env}.items()],
        exec_start=command_line(start),
        health_gate=_gate(url),
        stop_seconds=int(stop_seconds) + _STOP_MARGIN_SECONDS,
        max_crashes=restart.max_crashes,
        start_limit_seconds=start_limit_seconds(restart),
        restart_seconds=max(1, int(restart.backoff_seconds)),
        writable=str(writable).replace("%", "%%"),
    )


def container_unit(
    number: int, deployment: str, spec: ContainerSpec, url: str, restart: Restart, docker_host: str | None
) -> str:
    """The unit of a server in a container: docker run in the foreground.

    spec.secret_file is the operator's own file, which the container's user often may not read. The unit copies it at
    each start into its runtime directory, which systemd keeps as long as the unit runs (systemd.exec(5),
    RuntimeDirectory=), for that user alone.
    """
    runtime_directory = f"onecat-{deployment}"
    install_key = None
    if spec.secret_file is not None:
        uid, _, gid = spec.user.partition(":")
        copy = f"/run/{runtime_directory}/api_key"
        argv = ["/usr/bin/install", "-o", uid, "-g", gid, "-m", "0400", spec.secret_file, copy]
        install_key = command_line(argv)
        spec = replace(spec, secret_file=copy)
    docker = shutil.which("docker") or "/usr/bin/docker"
    return render_template(
        "systemd/container.service.j2",
        deployment=deployment,
        number=number,
        environment=[assignment("DOCKER_HOST", docker_host)] if docker_host else [],
        runtime_directory=runtime_directory,
        install_key=install_key,
        remove_old=command_line([docker, "rm", "--force", spec.name]),
        unusable_configuration=UNUSABLE_CONFIGURATION,
        exec_start=command_line(run_argv(spec, docker)),
        health_gate=_gate(url),
        stop=command_line([docker, "stop", "--time", str(STOP_SECONDS), spec.name]),
        stop_seconds=STOP_SECONDS + _STOP_MARGIN_SECONDS,
        max_crashes=restart.max_crashes,
        start_limit_seconds=start_limit_seconds(restart),
        restart_seconds=max(1, int(restart.backoff_seconds)),
    )


def verify(machine: Machine, path: str) -> tuple[str, ...] | None:
    """What `systemd-analyze verify` objects to in the unit at `path` of a host; None where it is not installed."""
    if machine.run(["sh", "-c", "command -v systemd-analyze"]).exit_code != 0:
        return None
    done = machine.run(["systemd-analyze", "verify", path])
    name = path.rpartition("/")[2]
    return tuple(line for line in done.stderr.decode(errors="replace").splitlines() if name in line)
