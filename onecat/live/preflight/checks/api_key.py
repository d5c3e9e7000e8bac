"""Who may ask."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from onecat.doctor import Verdict, check
from onecat.live.preflight.look import Look, needs
from onecat.live.preflight.observing.site import SiteSeen


@check(
    "preflight.api-key",
    title="Nobody outside the host can ask without a key",
    why="Whoever reaches an open server uses the GPUs, reads what others cached, and may load files by URL.",
    fix=("secrets.api_key in onecat.yaml, then onecat up", "or listen on 127.0.0.1"),
    source=("https://docs.vllm.ai/en/latest/usage/security.html",),
    requires=needs(SiteSeen),
    group="server",
    place=6,
)
def api_key(look: Look) -> Iterator[Verdict]:
    """The addresses on which the server and its nginx listen, and whether each demands a key there."""
    site = look.of(SiteSeen)
    guarded = look.release.protected
    doors = [(f"the server at {look.release.host}:{look.release.port}", look.release.host, guarded)]
    if site.listen is not None:
        host = site.listen.rpartition(":")[0].strip("[]")
        doors.append((f"nginx at {site.listen}", host, guarded or site.checks_keys))
    if look.release.runtime == "container":
        doors[0] = (f"the container's port at {look.release.host}:{look.release.port}", look.release.host, guarded)
    open_doors = [name for name, host, keyed in doors if not keyed and not _is_loopback(host)]
    evidence = tuple(f"{name}: {'a key' if keyed else 'no key'}" for name, _, keyed in doors)
    if open_doors:
        yield Verdict(
            "fail",
            f"Anybody who reaches it may ask: {' and '.join(open_doors)} without a key",
            evidence=evidence,
            fix=(
                "openssl rand -hex 32 > api-key.txt && chmod 600 api-key.txt",
                "in onecat.yaml: secrets: {api_key: {file: api-key.txt}}",
                "onecat up",
            ),
        )
    elif all(keyed for _, _, keyed in doors):
        yield Verdict("pass", "A key is demanded", evidence=evidence)
    else:
        yield Verdict("pass", "Without a key it listens on this host's loopback only", evidence=evidence)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
