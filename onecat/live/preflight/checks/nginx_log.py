"""nginx's access log."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import Verdict, check
from onecat.live.preflight.look import Look, needs
from onecat.live.preflight.observing.nginx import Access

_SHOWN = 3


@check(
    "preflight.nginx-log",
    title="nginx has answered no request with an error of the server's",
    why="Clients have seen each of these, although the server's log may not tell of it.",
    fix=("read nginx's error log; it lies beside its access log", "onecat diagnose FILE tells what such lines mean"),
    source=("https://nginx.org/en/docs/http/ngx_http_log_module.html",),
    requires=needs(Access),
    group="log",
    place=2,
)
def nginx_log(look: Look) -> Iterator[Verdict]:
    """The last requests in the site's access log since the release serves: those with status 5xx, but for 503 of nginx
    itself while onecat changed the route."""
    seen = look.of(Access)
    total = sum(seen.statuses.values())
    if not seen.failures:
        yield Verdict("pass", f"No 5xx in the last {total:,} requests of its access log")
        return
    kinds = ", ".join(f"{count} x {status}" for status, count in sorted(seen.statuses.items()) if status >= 500)
    yield Verdict(
        "warn",
        f"{len(seen.failures)} of the last {total:,} requests failed: {kinds}",
        evidence=seen.failures[-_SHOWN:],
        fix=(f"onecat logs {look.name}{look.host_option} --lines 1000", "read nginx's error log beside its access log"),
    )
