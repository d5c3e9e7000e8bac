"""nginx passes pieces on as they come."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from onecat.doctor import Verdict, check
from onecat.live.preflight.look import Look, needs
from onecat.live.preflight.observing.nginx import Streams

SHARE_WHEN_BUFFERED = 0.25
"""A buffered answer comes nearly at once at its end: of the time between first and last piece little is left."""
LEAST_SPREAD_SECONDS = 0.03
"""An answer whose pieces come within less cannot be told from a buffered one."""


@check(
    "preflight.nginx-streaming",
    title="Streamed answers come through nginx piece by piece",
    why="A proxy that collects the answer before it passes it on makes people wait for its last word, and its "
    "time-outs strike in the middle.",
    fix=("proxy_buffering off; gzip off; in nginx's site, as onecat writes it", "onecat up writes the site anew"),
    source=(
        "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_buffering",
        "https://nginx.org/en/docs/http/ngx_http_gzip_module.html",
    ),
    requires=needs(Streams),
    group="nginx",
    place=2,
)
def nginx_streaming(look: Look) -> Iterator[Verdict]:
    """The same streamed answer from the server itself and through nginx, in turn: when its first and its last piece
    come. Limit of what nginx adds until the first: preflight.health_ms."""
    seen = look.of(Streams)
    fix = (f"onecat diff {look.name}{look.host_option}", "onecat up, which writes nginx's site anew")
    if seen.failed or not seen.through or not seen.direct:
        yield Verdict("fail", f"A streamed answer failed: {seen.failed or 'none came'}", evidence=_told(seen), fix=fix)
        return
    direct = statistics.median(each.spread for each in seen.direct)
    through = statistics.median(each.spread for each in seen.through)
    first = min(each.first for each in seen.through)  # what others do on the machine only ever adds
    added = (first - min(each.first for each in seen.direct)) * 1000
    if direct < LEAST_SPREAD_SECONDS:
        told = f"the server's own pieces come within {direct * 1000:.0f} ms, too fast to tell"
        yield Verdict("skip", f"Not checked: {told}", evidence=_told(seen))
    elif through < SHARE_WHEN_BUFFERED * direct:
        yield Verdict(
            "fail",
            f"nginx collects the answer: its first piece comes after {first:.2f} s, with the last one",
            evidence=_told(seen),
            fix=fix,
        )
    elif added > look.limits.health_ms:
        told = f"The first piece comes {added:.0f} ms later through nginx; limit {look.limits.health_ms:g} ms"
        yield Verdict("warn", told, evidence=_told(seen), fix=fix)
    else:
        yield Verdict(
            "pass", f"First piece after {first * 1000:.0f} ms through nginx ({added:+.0f} ms)", evidence=_told(seen)
        )


def _told(seen: Streams) -> tuple[str, ...]:
    """First and last piece of each answer."""
    return tuple(
        f"{name}: "
        + ", ".join(f"first {each.first:.2f} s, last {each.last:.2f} s, {each.pieces} pieces" for each in streams[:1])
        for name, streams in (("the server itself", seen.direct), ("through nginx", seen.through))
        if streams
    )
