"""Sends the agent to a host and reads its answer."""

from __future__ import annotations

import base64
import functools
import importlib.util
import json
import time
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

from onecat import paths as onecat_paths
from onecat.errors import ExitCode, OnecatError
from onecat.facts import Facts, from_json
from onecat.hosts import LocalTransport, Transport

GRACE_SECONDS = 5.0
"""Time beyond the sources' own limit for starting Python and sending the answer."""


@functools.cache
def program() -> bytes:
    """The agent with pynvml packed into it: one Python program that needs only the standard library.

    Raises OnecatError when nvidia-ml-py is not installed beside onecat.
    """
    found = importlib.util.find_spec("pynvml")
    if found is None or found.origin is None:
        raise OnecatError(
            "the package nvidia-ml-py is missing beside onecat",
            next_steps=["reinstall onecat with its dependencies"],
            code=ExitCode.NEEDS_PERSON,
        )
    packed = base64.b85encode(zlib.compress(Path(found.origin).read_bytes(), 6))
    agent = (Path(__file__).parent / "agent" / "agent.py").read_bytes()
    return b"PYNVML_PACKED = %r\n" % packed + agent


def collect(
    transport: Transport, *, root: str = "/", timeout: float = 10.0, paths: Mapping[str, str] | None = None
) -> Facts:
    """Observe one host.

    Parameters:
        transport: the host.
        root: directory on the host below which /proc, /sys and /etc are read.
        timeout: seconds that each fact source may take; all run at the same time.
        paths: directories whose free space matters, by purpose.

    Raises OnecatError (exit code 3) when the agent cannot run there.
    """
    # -I -S: neither the user's environment nor installed packages can change what the agent is.
    argv = [transport.python, "-I", "-S", "-", "--host", transport.name, "--root", root, "--timeout", str(timeout)]
    for purpose, path in (paths or {}).items():
        argv += ["--path", f"{purpose}={path}"]
    completed = transport.run(argv, stdin=program(), timeout=timeout + GRACE_SECONDS)
    try:
        return from_json(json.loads(completed.stdout))
    except ValueError as error:
        raise OnecatError(
            f"the probe gave no facts (exit code {completed.exit_code}): {error}",
            where=transport.name,
            details=completed.stderr.decode(errors="replace").splitlines()[-5:],
            code=ExitCode.UNREACHABLE,
        ) from error


def start_local(root: str = "/", timeout: float = 10.0) -> Callable[[], tuple[Facts, float]]:
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
            facts = collect_local(root, timeout)
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that asks
            answer.set_exception(error)
        else:
            answer.set_result((facts, time.monotonic() - started))

    threading.Thread(target=observe, daemon=True).start()
    return answer.result


def collect_local(root: str = "/", timeout: float = 10.0, paths: Mapping[str, str] | None = None) -> Facts:
    """Observe this machine; see collect. The space that matters by default is where onecat keeps its data."""
    if paths is None:
        paths = {"data": str(onecat_paths.home().data)}
    return collect(LocalTransport(), root=root, timeout=timeout, paths=paths)
