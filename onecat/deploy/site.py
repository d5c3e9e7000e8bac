"""nginx's files for one deployment: pure functions of what the site is."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from onecat.deploy.releases import reachable
from onecat.errors import OnecatError
from onecat.resources import render_template

if TYPE_CHECKING:
    from onecat.config import Deployment

_MODULES_WITH_TEMPORARY_FILES = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


@dataclass(frozen=True)
class Upstream:
    """One server behind nginx. address: ADDRESS:PORT as nginx reaches it; weight: its share among all of a site."""

    address: str
    weight: int = 1


@dataclass(frozen=True)
class Site:
    """One server block. listen: ADDRESS:PORT; read_timeout_seconds: longest silence of the server.

    upstreams: where requests go; none: every request is answered 503, with Retry-After retry_after_seconds.
    """

    deployment: str
    listen: str
    upstreams: tuple[Upstream, ...]
    server_name: str = "_"
    max_body_mib: int = 64
    read_timeout_seconds: int = 3600
    retry_after_seconds: int = 15

    @property
    def identifier(self) -> str:
        """Name of upstream and log format, unique among the sites of one nginx."""
        return "onecat_" + self.deployment.replace("-", "_")

    @property
    def file_name(self) -> str:
        return f"onecat-{self.deployment}.conf"

    @property
    def endpoint(self) -> str:
        """The address for clients, without /v1."""
        host, _, port = self.listen.rpartition(":")
        return f"http://{reachable(host.strip('[]'))}:{port}"

    @property
    def errors(self) -> tuple[tuple[str, int, str, str, str, tuple[tuple[str, str], ...]], ...]:
        """Answers of nginx itself: (location, status, OpenAI's type, its code, message, headers)."""
        retry = (("Retry-After", str(self.retry_after_seconds)),)
        soon = (("Retry-After", "5"),)
        return (
            ("@forbidden", 403, "permission_error", "forbidden", "This address is closed to you.", ()),
            ("@not_found", 404, "invalid_request_error", "not_found", "There is nothing at this address.", ()),
            ("@too_large", 413, "invalid_request_error", "request_too_large", "The request body is too large.", ()),
            ("@bad_gateway", 502, "server_error", "bad_gateway", "The model server does not answer.", soon),
            ("@unavailable", 503, "server_error", "unavailable", "The model is being changed. Try again soon.", retry),
            ("@gateway_timeout", 504, "server_error", "timeout", "The model server did not answer in time.", ()),
        )


def to_document(site: Site) -> dict[str, Any]:
    """A site as JSON, without its servers."""
    document = asdict(site)
    del document["upstreams"]
    return document


def from_document(document: dict[str, Any]) -> Site:
    """The site that `to_document` made this from, without servers."""
    return Site(upstreams=(), **document)


def site_of(deployment: Deployment) -> Site:
    """The deployment's site, without a server behind it yet.

    Raises OnecatError for a name that has no place in nginx's configuration.
    """
    proxy = deployment.proxy
    for key, value in (("proxy.listen", proxy.listen), ("proxy.server_name", proxy.server_name)):
        if not re.fullmatch(r"[A-Za-z0-9._*:\[\] -]+", value):
            raise OnecatError(
                f"{key} is {value!r}",
                expected="letters, digits and . _ * : - only",
                next_steps=[f"correct {key} in onecat.yaml"],
            )
    return Site(
        deployment=deployment.name,
        listen=proxy.listen,
        upstreams=(),
        server_name=proxy.server_name,
        max_body_mib=proxy.max_body_mib,
        read_timeout_seconds=proxy.read_timeout_seconds,
        retry_after_seconds=proxy.retry_after_seconds,
    )


def render_site(site: Site, access_log: str) -> str:
    """The server block with its upstream, for nginx's http context."""
    return render_template("nginx/site.conf.j2", site=site, access_log=access_log)


def render_main(site: Site, worker_user: str | None, build_options: str) -> str:
    """The nginx.conf of an instance of our own.

    Parameters:
        worker_user: `user group` of the worker processes when nginx is started by root, else None.
        build_options: what `nginx -V` prints; a module that was left out has no directive for its directory.
    """
    paths = tuple(
        (f"{module}_temp_path", f"temporary/{module}")
        for module in _MODULES_WITH_TEMPORARY_FILES
        if f"--without-http_{module}_module" not in build_options
    )
    return render_template("nginx/nginx.conf.j2", site=site, worker_user=worker_user, temporary_paths=paths)
