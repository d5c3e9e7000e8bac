"""nginx answers soon."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import Verdict, check
from onecat.live.preflight.look import Look, needs
from onecat.live.preflight.observing.nginx import NginxHealth
from onecat.observe.statistics import percentile


@check(
    "preflight.nginx-health",
    title="nginx answers for the server at once",
    why="Load balancers and orchestrators ask /health every few seconds and take a server out that is late; and what "
    "nginx adds here, it adds to each request.",
    fix=("onecat diff tells what was changed by hand", "read nginx's error log"),
    source=("https://nginx.org/en/docs/http/ngx_http_proxy_module.html",),
    requires=needs(NginxHealth),
    group="nginx",
    place=1,
)
def nginx_health(look: Look) -> Iterator[Verdict]:
    """Twenty times GET /health through nginx over one connection, on the host itself where curl is there. Limit of the
    P95: preflight.health_ms."""
    seen = look.of(NginxHealth)
    wrong = [status for status in seen.statuses if status != 200]
    fix = (f"onecat diff {look.name}{look.host_option}", f"onecat status {look.name}{look.host_option}")
    if seen.failed or wrong or not seen.seconds:
        told = seen.failed or (f"it answers {wrong[0]}" if wrong else "no answer came")
        yield Verdict("fail", f"/health does not come through nginx: {told}", evidence=(seen.url,), fix=fix)
        return
    slow, limit = (percentile(seen.seconds, 95) or 0) * 1000, look.limits.health_ms
    median = (percentile(seen.seconds, 50) or 0) * 1000
    where = "" if seen.on_host else ", over SSH"
    told = f"/health in {median:.1f} ms, P95 {slow:.1f} ms of {len(seen.seconds)}{where}; limit {limit:g} ms"
    evidence = (seen.url, f"longest: {max(seen.seconds) * 1000:.1f} ms")
    if slow <= limit:
        yield Verdict("pass", told, evidence=evidence)
    elif not seen.on_host:
        told = f"Not decided: {told}; what SSH adds is not known"
        yield Verdict("warn", told, evidence=evidence, fix=(f"install curl on {look.host}, and it is asked there",))
    else:
        yield Verdict("fail", told, evidence=evidence, fix=fix)
