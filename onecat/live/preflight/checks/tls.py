"""nginx's certificate."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from onecat.doctor import Verdict, check
from onecat.live.preflight.look import Look, needs
from onecat.live.preflight.observing.nginx import Certificate


@check(
    "preflight.tls",
    title="nginx's certificate is valid for some time yet",
    why="With an expired certificate every client refuses the connection, all at the same moment.",
    fix=("renew it, then: nginx -s reload",),
    source=("https://nginx.org/en/docs/http/configuring_https_servers.html",),
    requires=needs(Certificate),
    group="nginx",
    place=3,
)
def tls(look: Look) -> Iterator[Verdict]:
    """The end of the certificate's validity, by openssl on the host. Limit: preflight.certificate_days."""
    seen = look.of(Certificate)
    evidence = (f"{seen.path}: valid until {seen.expires}",)
    fix = (f"openssl x509 -noout -dates -in {shlex.quote(seen.path)}", "renew it, then: nginx -s reload")
    if seen.days <= 0:
        yield Verdict("fail", f"The certificate has expired {-seen.days:.0f} days ago", evidence=evidence, fix=fix)
    elif seen.days < look.limits.certificate_days:
        told = f"The certificate expires in {seen.days:.0f} days; limit {look.limits.certificate_days} days"
        yield Verdict("warn", told, evidence=evidence, fix=fix)
    else:
        yield Verdict("pass", f"The certificate is valid for {seen.days:.0f} days", evidence=evidence)
