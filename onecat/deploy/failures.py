"""What to tell about a start that failed: the cause read from the log, else what was seen last."""

from __future__ import annotations

import errno

from onecat.deploy.readiness import NotReady
from onecat.deploy.releases import Release
from onecat.deploy.server import Server
from onecat.deploy.smoke import SmokeFailure
from onecat.errors import ExitCode, OnecatError
from onecat.observe import diagnose
from onecat.observe.diagnosis import plain

DIAGNOSED_LINES = 2000


def failure_of(release: Release, server: Server, failure: Exception) -> OnecatError:
    """A failed start as an error with code ROLLED_BACK."""
    if isinstance(failure, OnecatError):
        # Whatever else it meant where it came from: here something was changed and is changed back.
        return failure.told_as(
            code=ExitCode.NEEDS_PERSON if failure.code == ExitCode.NEEDS_PERSON else ExitCode.ROLLED_BACK
        )
    if isinstance(failure, OSError):
        return failure_of_host(failure)
    if not isinstance(failure, NotReady | SmokeFailure):
        return OnecatError(
            f"onecat has a fault: {type(failure).__name__}: {failure}",
            next_steps=["type the same command with --debug and report what it prints"],
            code=ExitCode.ROLLED_BACK,
        )
    reason = failure.reason
    try:
        lines = told_lines(server)
    except (OnecatError, OSError) as unreadable:
        lines = [f"its log cannot be read: {unreadable}"]
    diagnoses = diagnose(lines)
    fixes = tuple(step for diagnosis in diagnoses[:1] for step in diagnosis.fix)
    evidence = [evidence.text[:300] for diagnosis in diagnoses[:1] for evidence in diagnosis.evidence[:2]]
    if isinstance(failure, SmokeFailure):
        found, details = f"the server does not answer well: {reason}", [diagnosis.cause for diagnosis in diagnoses]
    elif diagnoses:
        found, details = f"the server did not start: {diagnoses[0].cause}", [reason, *evidence]
    else:
        found, details = f"the server did not start: {reason}", [line[:300] for line in lines[-5:]]
    return OnecatError(
        found,
        where=release.place,
        details=details,
        next_steps=[*fixes, f"read its log: onecat logs {release.deployment} --release {release.number}"],
        code=ExitCode.ROLLED_BACK,
    )


def failure_of_host(failure: OSError) -> OnecatError:
    """What the host refused, as an error with code ROLLED_BACK."""
    full = failure.errno in (errno.ENOSPC, errno.EDQUOT)
    return OnecatError(
        failure.strerror or str(failure),
        where=str(failure.filename) if failure.filename else None,
        next_steps=["see what is full: df -h", "free some space, then the same command again"] if full else (),
        code=ExitCode.ROLLED_BACK,
    )


def told_lines(server: Server) -> list[str]:
    """What a diagnosis is made from: the log of the server's last run, and how it ended."""
    lines = [plain(line) for line in server.last_lines(DIAGNOSED_LINES)]
    # The supervisor closes each run with such a line; what stands before the last but one belongs to older runs.
    ends = [number for number, line in enumerate(lines) if line.startswith("onecat: server ")]
    older = [number for number in ends if number != len(lines) - 1]
    lines = lines[older[-1] + 1 :] if older else lines
    last_exit = server.state().last_exit
    return lines if last_exit is None or ends else [*lines, f"onecat: server {last_exit}"]
