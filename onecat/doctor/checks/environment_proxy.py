"""Proxy variables."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import requirements
from onecat.doctor.checks.environment import variables
from onecat.doctor.context import Context
from onecat.doctor.registry import Verdict, check

LOOPBACK = ("localhost", "127.0.0.1", "127.0.0.0/8")
EXCEPT = "export no_proxy=localhost,127.0.0.1,::1 NO_PROXY=localhost,127.0.0.1,::1"


@check(
    "environment.proxy",
    title="Requests to this host itself go past the proxy",
    why="Where http_proxy is set and no_proxy does not name localhost, curl and Python ask the proxy for 127.0.0.1: a "
    "health check of a server on this host then fails although the server is well.",
    fix=(EXCEPT,),
    source=("https://everything.curl.dev/usingcurl/proxies/env",),
    requires=(requirements.environment,),
)
def environment_proxy(context: Context) -> Iterator[Verdict]:
    """http_proxy, ALL_PROXY and no_proxy, in both spellings, in the environment of the user who probes."""
    found = variables(context)
    proxies = [name for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY") if found.get(name)]
    if not proxies:
        yield Verdict("pass", "No proxy stands between programs and this host")
        return
    exceptions = {
        word.strip().lower() for name in ("no_proxy", "NO_PROXY") for word in found.get(name, "").split(",") if word
    }
    evidence = tuple(f"{name}={found[name]}" for name in (*proxies, "no_proxy", "NO_PROXY") if found.get(name))
    if "*" in exceptions or ("localhost" in exceptions and exceptions.intersection(LOOPBACK[1:])):
        yield Verdict("pass", "Requests to this host go past the proxy", evidence=evidence)
    elif exceptions.intersection(LOOPBACK):
        yield Verdict(
            "info",
            "Some requests to this host go to the proxy: no_proxy names only one of localhost and 127.0.0.1",
            evidence=evidence,
            fix=(EXCEPT,),
        )
    else:
        yield Verdict(
            "warn",
            "Requests to this host go to the proxy: health checks of a server here will fail",
            evidence=evidence,
            fix=(EXCEPT,),
        )
