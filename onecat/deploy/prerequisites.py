"""What can be known to be wrong before anything is changed."""

from __future__ import annotations

import errno
import os
import posixpath
import shlex
import socket
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from onecat.config.schema import Deployment
from onecat.deploy.host_network import has_address, is_taken, listeners, local_addresses
from onecat.deploy.model_files import inspect_on
from onecat.deploy.server import Secret
from onecat.deploy.store import deployments_directory
from onecat.errors import ExitCode, OnecatError
from onecat.planner.records import ContainerPlan, Plan

if TYPE_CHECKING:
    from onecat.checkpoints import Checkpoint
    from onecat.hosts import FileStatus, Machine

# Logs of one release (onecat.deploy.native: 4 pieces of 16 MiB) and some room for state.
LEAST_FREE_BYTES = 96 * 1024 * 1024


def check_plan(plan: Plan) -> None:
    """Raises OnecatError when the engine is known to refuse this plan; what may turn out otherwise is tried."""
    certain = [each for each in plan.refusals if each.certain]
    if certain:
        first = certain[0]
        raise OnecatError(
            f"the engine would refuse this: {first.why}",
            next_steps=[step for refusal in certain for step in refusal.fix],
            details=[f"{refusal.code}: {refusal.why}" for refusal in certain[1:]],
            code=ExitCode.NO,
        )


def check_model(machine: Machine, directory: str) -> None:
    """Raises OnecatError when the model directory is missing or a file in it is unfit."""
    check_checkpoint(machine, inspect_on(machine, directory))


def check_checkpoint(machine: Machine, checkpoint: Checkpoint) -> None:
    """Raises OnecatError when a file of a checkpoint on a host is unfit."""
    problems = checkpoint.problems
    if problems:
        first = problems[0]
        raise OnecatError(
            f"the model cannot be served: {Path(first.where).name} {first.text}",
            where=on_host(machine, first.where),
            details=[f"{problem.where} {problem.text}" for problem in problems[1:]],
            next_steps=list(dict.fromkeys(problem.fix for problem in problems)),
            code=ExitCode.USAGE,
        )


def check_accelerator_files(machine: Machine, profile: str, container: ContainerPlan) -> None:
    """Raises OnecatError when device nodes or files that the container gets are missing, or root's alone."""
    paths = [*container.devices, *(each.source for each in container.mounts)]
    missing = [path for path in paths if machine.status(path) is None]
    if missing:
        raise OnecatError(
            f"the accelerator's driver is not all here: {missing[0]} does not exist",
            details=[f"also missing: {path}" for path in missing[1:]],
            expected="the device nodes and files that `onecat profile show` lists for the container",
            next_steps=[f"onecat doctor --profile {profile}"],
            code=ExitCode.ROLLED_BACK,
        )
    closed = [path for path in container.devices if (node := machine.status(path)) and not _is_open(node)]
    if closed:
        raise OnecatError(
            f"only root may use {closed[0]}, and the server does not run as root",
            details=[f"also: {path}" for path in closed[1:]],
            expected="a group other than root that may read and write the device nodes",
            next_steps=[f"ls -l {closed[0]}", "install the driver for a group, or for all users"],
            code=ExitCode.ROLLED_BACK,
        )


def groups_of(machine: Machine, devices: Sequence[str]) -> tuple[int, ...]:
    """The groups that may use these device nodes, never root's."""
    nodes = (machine.status(path) for path in devices)
    return tuple(sorted({node.gid for node in nodes if node is not None} - {0}))


def _is_open(node: FileStatus) -> bool:
    """Whether others than root may read and write a device node."""
    group, others = stat.S_IRGRP | stat.S_IWGRP, stat.S_IROTH | stat.S_IWOTH
    return node.mode & others == others or (node.gid != 0 and node.mode & group == group)


def check_runtime(profile: str, launcher: object | None, argv: Sequence[str]) -> None:
    """Raises OnecatError when there is no native runtime, or its program is not there."""
    program = Path(argv[0])
    if launcher is None:
        found, where = f"there is no native runtime for profile {profile}", None
    elif program.is_absolute() and not os.access(program, os.X_OK):
        found, where = "the native runtime is incomplete", str(program)
    else:
        return
    step = f"onecat build --profile {profile} --runtime native"
    raise OnecatError(found, where=where, next_steps=[step], code=ExitCode.ROLLED_BACK)


def check_readable_in_container(machine: Machine, place: str, user: tuple[int, int]) -> None:
    """Raises OnecatError when the container, which sees this directory only, could not read a file of the model."""
    links = machine.run(["find", place, "-maxdepth", "1", "-type", "l"]).stdout.decode(errors="surrogateescape")
    for link in sorted(links.splitlines()):
        target = machine.link_target(link)
        if link != place and _leaves(target):
            raise OnecatError(
                f"{posixpath.basename(link)} is a link to {target}, which the container does not see",
                where=on_host(machine, link),
                expected="a directory that holds its files itself (a snapshot of the Hugging Face cache does not)",
                next_steps=[
                    f"cp -rL {shlex.quote(place)} DIRECTORY, then model.path: DIRECTORY in onecat.yaml",
                    "or write runtime: native, where the profile has it",
                ],
                code=ExitCode.USAGE,
            )
    for name, found in {"": _followed(machine, place), **machine.entries(place)}.items():
        needed = 0o5 if found.kind == "directory" else 0o4
        shift = 6 if found.uid == user[0] else 3 if found.gid == user[1] else 0
        if (found.mode >> shift) & needed != needed:
            raise OnecatError(
                f"the server in the container runs as user {user[0]} and could not read "
                f"{name or posixpath.basename(place)}",
                where=on_host(machine, f"{place}/{name}" if name else place),
                expected="files that this user may read",
                next_steps=[f"chmod -R a+rX {shlex.quote(place)}"],
                code=ExitCode.USAGE,
            )


def _leaves(target: str) -> bool:
    """Whether a link means something else, or nothing, where its directory is mounted elsewhere and all there is."""
    return posixpath.isabs(target) or posixpath.normpath(target).split("/")[0] == ".."


def _followed(machine: Machine, directory: str) -> FileStatus:
    parent, name = posixpath.split(posixpath.normpath(directory))
    found = machine.status(directory)
    return machine.entries(parent)[name] if found is None or found.kind == "link" else found


def on_host(machine: Machine, place: str) -> str:
    """A path of a host for a person."""
    return place if machine.is_local else f"{place} on {machine.name}"


def check_docker_host(address: str) -> None:
    """Raises OnecatError for a Docker daemon that may be on another machine: the model's directory, the published port
    and /health are those of this one."""
    if not address.startswith(("unix://", "http+unix://")):
        raise OnecatError(
            f"the Docker daemon at {address} may be on another machine",
            expected="a socket of this machine, as unix:///var/run/docker.sock: model and port are of this machine",
            where="DOCKER_HOST",
            next_steps=["unset DOCKER_HOST", "or run onecat up on the machine of that daemon"],
            code=ExitCode.USAGE,
        )


def check_port(machine: Machine, host: str, port: int, key: str) -> None:
    """Raises OnecatError when host:port cannot be listened on. key: the setting to change, as in onecat.yaml."""
    if not machine.is_local:
        _check_remote_port(machine, host, port, key)
        return
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except socket.gaierror as error:
        raise OnecatError(f"the address {host} is unknown: {error.strerror}", where=key) from error
    except OSError as error:
        raise _port_error(error.errno or 0, host, port, key, "this machine") from error


_SOCKETS = "cat /proc/net/tcp; echo; cat /proc/net/tcp6 2>/dev/null; echo"
_ADDRESSES = "cat /proc/net/fib_trie 2>/dev/null; echo; cat /proc/net/if_inet6 2>/dev/null"


def _check_remote_port(machine: Machine, host: str, port: int, key: str) -> None:
    told = machine.run(["sh", "-c", f"{_SOCKETS}; {_ADDRESSES}"]).stdout.decode(errors="replace")
    four, six, addresses, addresses6 = (*told.split("\n\n"), "", "", "")[:4]
    if is_taken(host, port, listeners(four) | listeners(six)):
        raise _port_error(errno.EADDRINUSE, host, port, key, machine.name)
    if addresses and not has_address(host, local_addresses(addresses, addresses6)):
        raise _port_error(errno.EADDRNOTAVAIL, host, port, key, machine.name)


def _port_error(number: int, host: str, port: int, key: str, machine: str) -> OnecatError:
    if number == errno.EACCES:
        found, steps = f"port {port} needs root", [f"set {key} in onecat.yaml to a port above 1023"]
    elif number in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
        # The server's address has a setting of its own; that of nginx stands before its port.
        setting = "host" if key == "port" else key
        return OnecatError(
            f"{machine} has no address {host}",
            expected="an address of one of its interfaces, as `ip address` lists them",
            where=f"{host} ({setting})",
            next_steps=[f"set {setting} in onecat.yaml to one it has"],
            code=ExitCode.ROLLED_BACK,
        )
    else:
        found = f"port {port} is in use" + ("" if machine == "this machine" else f" on {machine}")
        steps = [f"find who listens there: ss -ltnp 'sport = :{port}'", f"stop it, or set another {key} in onecat.yaml"]
    return OnecatError(
        found, expected="a free port", where=f"{host}:{port} ({key})", next_steps=steps, code=ExitCode.ROLLED_BACK
    )


def check_disk(machine: Machine) -> None:
    """Raises OnecatError when there is no room on the host for a release and its logs."""
    directory = machine.data_directory
    free = machine.free_bytes(directory)
    if free < LEAST_FREE_BYTES:
        raise OnecatError(
            f"the disk is full: {free // 2**20} MiB are free",
            expected=f"{LEAST_FREE_BYTES // 2**20} MiB for the release and its logs",
            where=directory if machine.is_local else f"{directory} on {machine.name}",
            next_steps=["free some space", "or set ONECAT_HOME to a directory on a larger disk"],
            code=ExitCode.ROLLED_BACK,
        )
    existing = deployments_directory(machine)
    while machine.status(existing) is None:
        existing = existing.rpartition("/")[0] or "/"
    if machine.run(["test", "-w", existing]).exit_code != 0:
        raise OnecatError(
            "onecat may not write to its own directory",
            where=directory if machine.is_local else f"{directory} on {machine.name}",
            next_steps=["check its owner and mode, or set ONECAT_HOME to a directory of yours"],
            code=ExitCode.USAGE,
        )


def check_tls(machine: Machine, deployment: Deployment) -> None:
    """Raises OnecatError where a file of proxy.tls is not on the host that nginx runs on.

    What only root may look at is left to nginx's own check.
    """
    tls = deployment.proxy.tls
    for name, path in () if tls is None else (("certificate", tls.certificate), ("key", tls.key)):
        try:
            there = machine.status(path) is not None
        except PermissionError:
            continue
        if not there:
            raise OnecatError(
                f"{path} does not exist on {'this machine' if machine.is_local else machine.name}",
                expected=f"the PEM file of nginx's {name}",
                where=f"proxy.tls.{name}",
                next_steps=[f"correct proxy.tls.{name} in onecat.yaml"],
            )


def secret_of(deployment: Deployment) -> Secret | None:
    """Where the deployment's API key comes from, its file as an absolute path; None when none is configured."""
    configured = deployment.secrets.api_key
    if configured is None:
        return None
    file = None if configured.file is None else str(Path(configured.file).expanduser().absolute())
    return Secret(file=file, env=configured.env)


def read_secret(secret: Secret | None) -> str | None:
    """The API key, or None when none is configured. Raises OnecatError when it cannot be had or is empty."""
    if secret is None:
        return None
    if secret.env is not None:
        value = os.environ.get(secret.env, "").strip()
        where, step = f"environment variable {secret.env}", f"export {secret.env}=..., then the same command again"
    else:
        assert secret.file is not None
        where, step = secret.file, f"write the key into {secret.file} and make it readable for you alone: chmod 600"
        try:
            value = Path(secret.file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise OnecatError(f"the API key cannot be read: {reason}", where=where, next_steps=[step]) from error
    if not value:
        raise OnecatError("the API key is empty", where=where, next_steps=[step])
    return value
