"""Sends the agent to a host and reads its answer."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace

from onecat import paths as onecat_paths
from onecat.errors import ExitCode, OnecatError
from onecat.facts import Facts, from_json
from onecat.hosts import LocalTransport, Transport
from onecat.probe.options import ProbeOptions
from onecat.probe.program import program

GRACE_SECONDS = 5.0
"""Time beyond the sources' own limit for starting Python and sending the answer."""


def collect(transport: Transport, options: ProbeOptions | None = None) -> Facts:
    """Observe one host.

    Raises OnecatError (exit code 3) when the agent cannot run there.
    """
    chosen = options or ProbeOptions()
    # -I -S: neither the user's environment nor installed packages can change what the agent is.
    argv = [transport.python, "-I", "-S", "-", "--host", transport.name]
    argv += ["--root", chosen.root, "--timeout", str(chosen.timeout)]
    for purpose, path in chosen.paths.items():
        argv += ["--path", f"{purpose}={path}"]
    completed = transport.run(argv, stdin=program(), timeout=chosen.timeout + GRACE_SECONDS)
    try:
        return from_json(json.loads(completed.stdout))
    except ValueError as error:
        raise OnecatError(
            f"the probe gave no facts (exit code {completed.exit_code}): {error}",
            where=transport.name,
            details=completed.stderr.decode(errors="replace").splitlines()[-5:],
            code=ExitCode.UNREACHABLE,
        ) from error


def start_local(options: ProbeOptions | None = None) -> Callable[[], tuple[Facts, float]]:
    """Begin to observe this machine while the caller goes on, which mostly has modules to load.

    Returns a function that waits for the facts and gives them with the seconds they took; it raises what collect does.
    A caller that ends without asking does not wait: the agent ends at its own time limit.
    """
    import threading
    from concurrent.futures import Future

    answer: Future[tuple[Facts, float]] = Future()

    def observe() -> None:
        started = time.monotonic()
        try:
            facts = collect_local(options)
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that asks
            answer.set_exception(error)
        else:
            answer.set_result((facts, time.monotonic() - started))

    threading.Thread(target=observe, daemon=True).start()
    return answer.result


def collect_local(options: ProbeOptions | None = None) -> Facts:
    """Observe this machine; see collect. The space that always matters is where onecat keeps its data."""
    chosen = options or ProbeOptions()
    paths = {"data": str(onecat_paths.home().data), **chosen.paths}
    return collect(LocalTransport(), replace(chosen, paths=paths))
