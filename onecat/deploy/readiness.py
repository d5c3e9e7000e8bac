"""Waiting for a server to be ready, with no fixed limit: only silence ends the wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from onecat.deploy.health_gate import SilenceWatch
from onecat.deploy.server import Server
from onecat.observe.diagnosis import plain

if TYPE_CHECKING:
    from onecat.engines import Phase

# Between two looks: short at first, for a server that is ready at once; a big model is not looked at more often.
_FIRST_POLL_SECONDS, _POLL_SECONDS = 0.05, 0.5
_LINES_LOOKED_AT = 400
# /health decides what is ready; and a stopping server is about to be told as ended.
_NOT_TOLD = ("ready", "stopping")


class NotReady(Exception):
    """The server did not become ready. reason: one sentence."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def healthy(url: str, timeout: float = 2.0, server_name: str = "_") -> bool:
    """Whether GET {url}/health answers 200.

    Parameters:
        server_name: the names of nginx's site where it shares its address with others; `_` where it does not.
    """
    import httpx

    name = next((each for each in server_name.split() if each != "_" and "*" not in each), None)
    try:
        if name is not None or url.startswith("https:"):
            return _site_is_healthy(url, timeout, name)
        # trust_env=False: a proxy configured for the internet must not stand between us and our own server.
        return httpx.get(f"{url}/health", timeout=timeout, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def _site_is_healthy(url: str, timeout: float, name: str | None) -> bool:
    import httpx

    # verify=False: the certificate is for a name, and we ask an address of our own host; no secret is sent.
    with httpx.Client(timeout=timeout, trust_env=False, verify=False) as client:  # noqa: S501
        headers, extensions = ({}, {}) if name is None else ({"Host": name}, {"sni_hostname": name})
        return client.get(f"{url}/health", headers=headers, extensions=extensions).status_code == 200


def wait_until_ready(server: Server, url: str, silence_seconds: float, report: Callable[[str], None]) -> float:
    """Wait until {url}/health answers 200 while telling the phases read from the log.

    Returns the seconds it took. Raises NotReady when the server ended or was silent for `silence_seconds`.
    """
    began = time.monotonic()
    watch = SilenceWatch(silence_seconds)
    last: str | None = None
    pause = _FIRST_POLL_SECONDS
    while True:
        state = server.state()
        if state.condition not in ("starting", "running"):
            raise NotReady(f"the server {_told_exit(state.last_exit)}")
        # Our own questions for /health show in the access log and are no sign of life.
        lines = [line for line in server.last_lines(_LINES_LOOKED_AT) if "/health" not in line]
        phase = current_phase(lines)
        if phase is not None and phase.name not in _NOT_TOLD and told(phase, 0) != last:
            last = told(phase, 0)
            report(told(phase, time.monotonic() - began))
        if healthy(url):
            return time.monotonic() - began
        if watch.silent(time.monotonic(), server.activity(), hash(tuple(lines))):
            raise NotReady(f"no log line, no disk read and no CPU use for {silence_seconds:.0f} s: it hangs")
        time.sleep(pause)
        pause = min(_POLL_SECONDS, pause * 1.5)


def current_phase(lines: list[str]) -> Phase | None:
    """The phase that the last telling log line stands for."""
    from onecat.engines import phase_of

    phases = (phase_of(plain(line)) for line in reversed(lines))
    return next((phase for phase in phases if phase is not None), None)


def told(phase: Phase, seconds: float) -> str:
    """A phase in words; a percentage in steps of ten, so that a long load is not a thousand lines."""
    progress = "" if phase.percent is None else f" {phase.percent // 10 * 10} %"
    return f"{phase.text}{progress} ({seconds:.0f} s)"


def _told_exit(last_exit: str | None) -> str:
    return last_exit or "is not running"
