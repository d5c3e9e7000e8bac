"""What happens after a crash."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import Verdict, check
from onecat.live.preflight.look import Look, needs
from onecat.live.preflight.observing.service import Keeper


@check(
    "preflight.restart",
    title="A server that crashes is started again",
    why="Engines crash: a bad request, a driver error, memory. Without somebody who starts it again the service is "
    "down until a person comes.",
    fix=("onecat up", "where the host may start anew: runtime: container, or a systemd unit"),
    source=("https://docs.docker.com/engine/containers/start-containers-automatically/",),
    requires=needs(Keeper),
    group="server",
    place=4,
)
def restart(look: Look) -> Iterator[Verdict]:
    """Docker's restart policy of the container, Restart= of the unit, or whether onecat's supervisor lives; and how
    often it has crashed since it serves."""
    seen = look.of(Keeper)
    crashes = seen.state.restarts
    if seen.policy is None:
        yield Verdict(
            "fail",
            "Nothing starts it again after a crash",
            evidence=(f"its server is {seen.state.condition}, kept by {look.release.service}",),
            fix=("onecat up", f"onecat status {look.name}{look.host_option}"),
        )
        return
    if crashes:
        yield Verdict(
            "warn",
            f"It has crashed {crashes} times since it was started",
            evidence=(f"the server {seen.state.last_exit}" if seen.state.last_exit else f"kept by {seen.policy}",),
            fix=(f"onecat logs {look.name}{look.host_option} --lines 500",),
        )
        return
    after = " (not after a reboot)" if look.release.service == "supervisor" else ""
    since = f"running since {seen.state.started_at}"
    yield Verdict("pass", f"By {seen.policy}{after}; no crash", evidence=(since,))
