"""The way back."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import Verdict, check
from onecat.live.preflight.look import Look, needs
from onecat.live.preflight.observing.service import WayBack


@check(
    "preflight.way-back",
    title="There is a release to go back to",
    why="When clients meet what no check has found, the way back must take seconds, not a build.",
    fix=("onecat rollback needs an earlier release that has served", "onecat bundle create keeps image and model"),
    source=("https://sre.google/sre-book/release-engineering/",),
    requires=needs(WayBack),
    group="server",
    place=5,
)
def way_back(look: Look) -> Iterator[Verdict]:
    """The releases that the host keeps and that have served, other than the current one."""
    seen = look.of(WayBack)
    if seen.earlier:
        numbers = ", ".join(map(str, seen.earlier))
        yield Verdict("pass", f"Back to release {seen.earlier[-1]} by: onecat rollback", evidence=(f"kept: {numbers}",))
        return
    yield Verdict(
        "info",
        "No earlier release has served to roll back to",
        evidence=(f"kept: {seen.kept} release{'' if seen.kept == 1 else 's'}, the current one among them",),
        fix=("keep what serves now as a bundle: onecat bundle create",),
    )
