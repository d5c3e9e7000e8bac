"""Logging in on a connection: keys first, then a password or the host's own questions where a person can answer."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from onecat.errors import ExitCode, OnecatError
from onecat.hosts.asking import Desk
from onecat.hosts.identities import Identities

if TYPE_CHECKING:
    from paramiko import Transport as Connection

    from onecat.hosts.ssh_config import SshSettings
    from onecat.hosts.target import Target

ANSWER_SECONDS = 300.0
"""How long a person may think about the questions of one host; sshd itself waits 120 s (LoginGraceTime)."""


def log_in(
    connection: Connection,
    target: Target,
    settings: SshSettings,
    identities: Identities,
    desk: Desk,
    timeout: float,
) -> None:
    """Log in. Raises OnecatError (exit code 3) that says which ways were tried and what to do."""
    import paramiko

    connection.auth_timeout = timeout
    try:
        methods = _by_keys(connection, settings, identities)
        if methods and settings.password and desk.is_attended:
            methods = _by_person(connection, target, settings, desk, methods)
    except (paramiko.SSHException, EOFError, OSError) as error:
        raise refusal(target, settings, identities, (), f"the login failed: {error or 'no answer'}") from error
    if methods:
        raise refusal(target, settings, identities, methods, _what_failed(desk, settings, methods))


def _by_keys(connection: Connection, settings: SshSettings, identities: Identities) -> Collection[str]:
    """Try keys. Returns what the host still asks for: nothing when one is logged in."""
    from paramiko import AuthenticationException, BadAuthenticationType

    for key in identities.for_host(settings):
        try:
            return connection.auth_publickey(settings.user, key)
        except BadAuthenticationType as error:
            return error.allowed_types
        except AuthenticationException:
            if not connection.is_active():
                raise
    try:
        connection.auth_none(settings.user)
    except BadAuthenticationType as error:
        return error.allowed_types
    return ()


def _by_person(
    connection: Connection, target: Target, settings: SshSettings, desk: Desk, methods: Collection[str]
) -> Collection[str]:
    from paramiko import AuthenticationException

    connection.auth_timeout = ANSWER_SECONDS
    try:
        if "keyboard-interactive" in methods:

            def answer(title: str, instructions: str, questions: Sequence[tuple[str, bool]]) -> list[str]:
                return [desk.ask(f"({target.text}) {text}", echo=echo) or "" for text, echo in questions]

            return connection.auth_interactive(settings.user, answer)
        if "password" in methods:
            password = desk.ask(f"password of {settings.user} on {target.text}: ")
            return connection.auth_password(settings.user, password, fallback=False) if password else methods
    except AuthenticationException:
        if not connection.is_active():
            raise
    return methods


def _what_failed(desk: Desk, settings: SshSettings, methods: Collection[str]) -> str:
    asks = {"password", "keyboard-interactive"} & set(methods)
    if asks and not settings.password:
        return "the host took none of the keys, and the configuration of ssh forbids to ask for a password"
    if asks and not desk.is_attended:
        return "the host wants a password, and there is no terminal to ask for it"
    return "the host took neither key nor password" if asks else "the host took none of the keys"


def refusal(
    target: Target, settings: SshSettings, identities: Identities, methods: Collection[str], found: str
) -> OnecatError:
    """What is told when a host took neither key nor password: what is wrong with a key first, then what was tried."""
    tried = [file for file in settings.identities if file.exists()]
    keys = [f"key: {file}" + _problem(identities, file) for file in tried]
    if settings.are_identities_given:
        keys += [f"key: {file} (does not exist)" for file in settings.identities if file not in tried]
    # Of several lines people are shown the first.
    details = sorted([f"user: {settings.user}", *keys], key=lambda line: not line.endswith(")"))
    details += [] if keys else ["no key in a file"]
    details += [f"the host accepts: {', '.join(methods)}"] if methods else []
    steps = [f"ssh-add {file}" for file in tried if "encrypted" in identities.problems.get(file, "")]
    steps += [
        f"see that this works: ssh {target.ssh_words} true",
        f"install a key there: ssh-copy-id {target.ssh_words}",
    ]
    if {"password", "keyboard-interactive"} & set(methods):
        steps.append("or type the command in a terminal, where onecat asks for the password")
    return OnecatError(found, where=target.text, details=details, next_steps=steps, code=ExitCode.UNREACHABLE)


def _problem(identities: Identities, file: object) -> str:
    problem = identities.problems.get(file)  # type: ignore[call-overload]
    return f" ({problem})" if problem else ""
