"""nginx's site, as far as it runs on this host."""

from __future__ import annotations

from dataclasses import dataclass

from onecat.live.preflight.observing.registry import observer
from onecat.live.preflight.subject import Subject


@dataclass(frozen=True)
class SiteSeen:
    """listen: address and port; None where no nginx of the deployment runs on this host. checks_keys: whether it lets
    in only who sends a key."""

    listen: str | None
    checks_keys: bool = False


@observer(SiteSeen, place=15)
def observe_site(subject: Subject) -> SiteSeen:
    """The site that was written last."""
    site = subject.site
    return SiteSeen(None) if site is None else SiteSeen(site.listen, site.checks_keys)
