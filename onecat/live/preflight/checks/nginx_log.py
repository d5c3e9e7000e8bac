"""nginx's access log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from onecat.doctor import Verdict, check
from onecat.live.preflight.look import Look, needs
from onecat.live.preflight.observing.nginx import Access

_SHOWN = 3


@check(
    "preflight.nginx-log",
    title="nginx answers no requests with an error of the server's",
    why="Clients have seen each of these, although the server's log may not tell of it. One alone may have come in a "
    "bad moment; a share of them is the state of the deployment.",
    fix=("read nginx's error log; it lies beside its access log", "onecat diagnose FILE tells what such lines mean"),
    source=("https://nginx.org/en/docs/http/ngx_http_log_module.html",),
    requires=needs(Access),
    group="log",
    place=2,
)
def nginx_log(look: Look) -> Iterator[Verdict]:
    """The requests in the site's access log since the release serves, the last 2000 of them: the share with status 5xx
    in the last minutes, but for 503 of nginx itself while onecat changed the route. Limits: preflight.nginx_minutes,
    preflight.nginx_failed_percent. Fewer of them, down to one, are a warning; earlier ones are told."""
    seen, limits = look.of(Access), look.limits
    begin = seen.looked_at - 60 * limits.nginx_minutes
    recent = [each for each in seen.requests if each.moment >= begin]
    failed = [each for each in recent if each.failed]
    earlier = [each for each in seen.requests if each.failed and each.moment < begin]
    last = f"in the last {limits.nginx_minutes} min"
    if not failed:
        told = f"No 5xx {last}, {len(recent):,} requests" if recent else f"No request {last}"
        before = f"{len(earlier)} failed before that, the last one: {earlier[-1].failed}" if earlier else ""
        yield Verdict("pass", told, evidence=(before,) if before else ())
        return
    share = 100 * len(failed) / len(recent)
    kinds = ", ".join(
        f"{number} x {status}" for status, number in sorted(Counter(each.status for each in failed).items())
    )
    is_too_much = share > limits.nginx_failed_percent and len(failed) > 1
    measured = f"{share:.2g} %; limit {limits.nginx_failed_percent:g} %"
    yield Verdict(
        "fail" if is_too_much else "warn",
        f"{len(failed)} of {len(recent):,} requests {last} failed ({measured}): {kinds}",
        evidence=tuple(each.failed for each in failed[-_SHOWN:]),
        fix=(f"onecat logs {look.name}{look.host_option} --nginx --since {limits.nginx_minutes}m",),
    )
