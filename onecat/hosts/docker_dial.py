"""The Docker engine of a host, asked through the docker command there."""

from __future__ import annotations

from onecat.errors import ExitCode, OnecatError
from onecat.hosts.transport import Completed

DIAL = ("docker", "system", "dial-stdio")
"""The docker command's own way to its engine: https://docs.docker.com/engine/security/protect-access/ (SSH)"""
PING = b"GET /_ping HTTP/1.1\r\nHost: docker\r\nConnection: close\r\n\r\n"
ASK_SECONDS = 30.0


def dial_argv(address: str | None) -> tuple[str, ...]:
    """The program whose standard input and output are a connection to the engine. address: None for the usual one."""
    return DIAL if address is None else (DIAL[0], "--host", address, *DIAL[1:])


def endpoint_argv() -> tuple[str, ...]:
    """The program that tells the address of the engine that the docker command there uses."""
    return ("docker", "context", "inspect", "--format", "{{.Endpoints.docker.Host}}")


def check_answer(done: Completed, host: str) -> None:
    """Raises OnecatError (exit code 3) unless the engine has answered the ping."""
    if done.stdout.startswith(b"HTTP/1.1 200"):
        return
    said = done.stderr.decode(errors="replace").strip()
    if done.exit_code in (126, 127) or "not found" in said:
        found, steps = "there is no docker command on the host", ["install Docker there: apt-get install docker.io"]
    elif "permission denied" in said.lower():
        found = "this user may not talk to the Docker engine on the host"
        steps = ["there: sudo usermod -aG docker $USER, then log in again", "or log in as another user: USER@HOST"]
    else:
        found, steps = "the Docker engine on the host does not answer", ["there: systemctl status docker"]
    raise OnecatError(found, where=host, details=said.splitlines()[-3:], next_steps=steps, code=ExitCode.UNREACHABLE)
