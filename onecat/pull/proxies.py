"""Which proxy the environment names for an address: HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY. Pure.

The names, and that lower case comes first, are those of curl (https://everything.curl.dev/usingcurl/proxies/env.html),
of Python's urllib and of httpx (https://www.python-httpx.org/environment_variables/).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from onecat.errors import OnecatError
from onecat.pull.sources import is_loopback


@dataclass(frozen=True)
class Proxy:
    """A proxy. variable: that names it. url: without user and password; login: both, and never shown."""

    variable: str
    url: str
    login: tuple[str, str] | None = field(default=None, repr=False)


def proxy_of(url: str, environment: Mapping[str, str]) -> Proxy | None:
    """The proxy for an address; None for a direct connection, which an address of this machine always gets.

    Raises OnecatError for a variable that holds no address of an HTTP proxy.
    """
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    if is_loopback(url) or _is_excepted(host, parts.port, _value(environment, "no_proxy")[1]):
        return None
    for name in (f"{parts.scheme}_proxy", "all_proxy"):
        variable, value = _value(environment, name)
        if value:
            return _parse(variable, value)
    return None


def _value(environment: Mapping[str, str], name: str) -> tuple[str, str]:
    """The variable that counts, and what it holds."""
    variable = name if name in environment else name.upper()
    return variable, environment.get(variable, "").strip()


def _is_excepted(host: str, port: int | None, text: str) -> bool:
    return any(_matches(host, port, each.strip().lower()) for each in text.split(",") if each.strip())


def _matches(host: str, port: int | None, entry: str) -> bool:
    if entry == "*":
        return True
    entry = entry.rpartition("://")[2]
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        pass  # one of the two is a name
    name, colon, number = entry.rpartition(":")
    if colon and number.isdigit():
        if port != int(number):
            return False
        entry = name
    entry = entry.removeprefix("*").removeprefix(".")
    return host == entry or host.endswith(f".{entry}")


def _parse(variable: str, value: str) -> Proxy:
    try:
        parts = urlsplit(value if "://" in value else f"http://{value}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https"):
        what = f"a proxy with {parts.scheme}://" if host else "no address of a proxy"
        raise OnecatError(
            f"{variable} names {what}",
            expected="an HTTP proxy, as http://proxy.example:3128",
            next_steps=[
                f"set {variable} to one, or unset it",
                "or go around it: NO_PROXY=HOST",
            ],
        )
    shown = f"[{host}]" if ":" in host else host
    login = (unquote(parts.username), unquote(parts.password or "")) if parts.username is not None else None
    return Proxy(variable, f"{parts.scheme}://{shown}:{port or {'https': 443}.get(parts.scheme, 80)}", login)
