"""nginx's files for one deployment: pure functions of what the site is."""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from onecat.deploy.client_keys import ClientKeys, mark_of
from onecat.deploy.nginx_build import OLDEST, NginxBuild
from onecat.deploy.releases import reachable
from onecat.errors import OnecatError
from onecat.resources import render_template

if TYPE_CHECKING:
    from onecat.config import Deployment

_MODULES_WITH_TEMPORARY_FILES = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
KEYS_FILE = "keys.conf"
SERVERS_FILE = "servers.conf"
# http2 became a directive of its own, and its place in `listen` deprecated: nginx 1.25.1.
_HTTP2_DIRECTIVE = (1, 25, 1)
_LONGEST_NAME = 24
DOWN = " down"
_HEADING = (
    "# Written by onecat, which marks here those that do not answer: for a change of them, and each few seconds.\n"
)


@dataclass(frozen=True)
class Upstream:
    """One server behind nginx. address: ADDRESS:PORT as nginx reaches it; weight: its share among all of a site.

    name: what the access log calls it, as `gpu1/3`.
    """

    address: str
    weight: int = 1
    name: str = ""

    @property
    def pattern(self) -> str:
        """A regular expression for its address."""
        return re.sub(r"[.\[\]]", lambda found: f"\\{found[0]}", self.address)


@dataclass(frozen=True)
class SiteTls:
    """Files on the host that nginx runs on. hsts_seconds: how long browsers insist on TLS; 0: they are not told to."""

    certificate: str
    key: str
    hsts_seconds: int = 0


@dataclass(frozen=True)
class SiteLimits:
    """What one client may ask; see `onecat.config.schema.Limits`."""

    per: Literal["address", "key"] = "address"
    requests_per_second: float | None = None
    burst: int = 0
    connections: int | None = None


@dataclass(frozen=True)
class ErrorAnswer:
    """An answer of nginx itself. statuses: what nginx calls it; status: what the client reads; type, code: OpenAI's."""

    status: int
    type: str
    code: str
    message: str
    statuses: tuple[int, ...] = ()

    @property
    def location(self) -> str:
        return f"@{self.code}"


@dataclass(frozen=True)
class Site:
    """One server block. listen: ADDRESS:PORT; read_timeout_seconds: longest silence of the server.

    upstreams: where requests go; none: every request is answered 503, with Retry-After retry_after_seconds.
    open_paths: what clients may ask outside /v1. metrics_from: addresses and networks that may read /metrics.
    checks_keys: whether nginx lets in only who sends a key it knows. keys: those; None: the ones that it has already.
    keys_mark: a hash of them that is slow to compute, so that a change of them shows.
    image, docker_host: of an nginx in a container.
    """

    deployment: str
    listen: str
    upstreams: tuple[Upstream, ...]
    server_name: str = "_"
    max_body_mib: int = 64
    read_timeout_seconds: int = 3600
    retry_after_seconds: int = 15
    tls: SiteTls | None = None
    limits: SiteLimits = SiteLimits()
    metrics_from: tuple[str, ...] = ("127.0.0.1", "::1")
    open_paths: tuple[str, ...] = ()
    checks_keys: bool = False
    keys_mark: str = ""
    probed: bool = False
    image: str | None = None
    docker_host: str | None = None
    keys: ClientKeys | None = field(default=None, repr=False, compare=False)

    @property
    def identifier(self) -> str:
        """Begins all names of the site in nginx's configuration: unique among the sites of one nginx.

        It is kept short: a variable's name must fit into a bucket of 64 bytes of nginx's hash tables.
        """
        name = self.deployment
        if len(name) > _LONGEST_NAME:
            name = f"{name[: _LONGEST_NAME - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
        return "onecat_" + name.replace("-", "_")

    @property
    def file_name(self) -> str:
        return f"onecat-{self.deployment}.conf"

    @property
    def endpoint(self) -> str:
        """The address for clients, without /v1."""
        host, _, port = self.listen.rpartition(":")
        return f"http{'s' if self.tls else ''}://{reachable(host.strip('[]'))}:{port}"

    @property
    def is_balanced(self) -> bool:
        """Whether all servers have equal standing, so that the least busy one may get each request."""
        return len({each.weight for each in self.upstreams}) == 1

    @property
    def is_probed(self) -> bool:
        """Whether the servers stand in a file of their own, in which `onecat.deploy.probing` marks those that fail."""
        return self.probed and len(self.upstreams) > 1

    @property
    def caller_variable(self) -> str:
        """nginx's variable that tells clients apart where limits hold."""
        return f"${self.identifier}_client" if self.limits.per == "key" else "$binary_remote_addr"

    @property
    def rate(self) -> str:
        """limits.requests_per_second in nginx's whole numbers, at least one a minute."""
        per_second = self.limits.requests_per_second or 0.0
        return f"{per_second:.0f}r/s" if per_second.is_integer() else f"{max(1, round(per_second * 60))}r/m"

    def listen_options(self, build: NginxBuild) -> tuple[str, ...]:
        """The directives that say where the site listens, for this nginx."""
        if self.tls is None:
            return (f"listen {self.listen}",)
        if not build.has("http_v2"):
            return (f"listen {self.listen} ssl",)
        if build.version < _HTTP2_DIRECTIVE:
            return (f"listen {self.listen} ssl http2",)
        return (f"listen {self.listen} ssl", "http2 on")

    def passed_headers(self, connection: str) -> tuple[tuple[str, str], ...]:
        """The headers that the server receives besides the client's own; connection: the first one's value."""
        headers = (
            ("Connection", connection),
            ("Host", "$host"),
            ("X-Request-Id", f"${self.identifier}_request_id"),
            ("X-Forwarded-For", "$proxy_add_x_forwarded_for"),
            ("X-Forwarded-Proto", "$scheme"),
        )
        return (*headers, ("Authorization", f"${self.identifier}_authorization")) if self.checks_keys else headers

    def missing_modules(self, build: NginxBuild) -> tuple[str, ...]:
        """What this nginx was built without and the site needs, as `http_limit_req`."""
        limits = self.limits
        needed = {
            "http_map": True,
            "http_upstream_keepalive": True,
            "http_upstream_zone": len(self.upstreams) > 1,
            "http_upstream_least_conn": len(self.upstreams) > 1 and self.is_balanced,
            "http_limit_req": limits.requests_per_second is not None,
            "http_limit_conn": limits.connections is not None,
        }
        missing = [name for name, is_needed in needed.items() if is_needed and build.lacks(name)]
        return (*missing, *(["http_ssl"] if self.tls and not build.has("http_ssl") else []))

    @property
    def errors(self) -> tuple[ErrorAnswer, ...]:
        """Answers of nginx itself."""
        invalid = "invalid_request_error"
        found = (
            ErrorAnswer(400, invalid, "bad_request", "The request is not well-formed.", (400, 495, 496)),
            ErrorAnswer(401, invalid, "invalid_api_key", "Incorrect API key provided."),
            ErrorAnswer(403, "permission_error", "forbidden", "This address is closed to you."),
            ErrorAnswer(404, invalid, "not_found", "There is nothing at this address."),
            ErrorAnswer(413, invalid, "request_too_large", "The request body is too large."),
            ErrorAnswer(429, "rate_limit_error", "rate_limit_exceeded", "Too many requests. Try again soon."),
            ErrorAnswer(500, "server_error", "internal_error", "The proxy before the model server has failed."),
            ErrorAnswer(502, "server_error", "bad_gateway", "The model server does not answer."),
            ErrorAnswer(503, "server_error", "unavailable", "The model is being changed. Try again soon."),
            ErrorAnswer(504, "server_error", "timeout", "The model server did not answer in time."),
        )
        tls = (ErrorAnswer(400, invalid, "https_required", "This port speaks HTTPS only.", (497,)),)
        return (*found, *(tls if self.tls else ()))


def to_document(site: Site) -> dict[str, Any]:
    """A site as JSON, without its servers and its keys."""
    document = asdict(site)
    del document["upstreams"], document["keys"]
    return document


def from_document(document: Mapping[str, Any]) -> Site:
    """The site that `to_document` made this from, without servers."""
    values = dict(document)
    tls = values.pop("tls", None)
    limits = SiteLimits(**values.pop("limits", {}))
    plain: dict[str, Any] = {name: tuple(each) if isinstance(each, list) else each for name, each in values.items()}
    return Site(upstreams=(), tls=None if tls is None else SiteTls(**tls), limits=limits, **plain)


def site_of(deployment: Deployment) -> Site:
    """The deployment's site, without a server behind it and without the clients' keys.

    Raises OnecatError for what has no place in nginx's configuration.
    """
    proxy = deployment.proxy
    _require("proxy.listen", proxy.listen, r"[A-Za-z0-9._*:\[\]-]+", "letters, digits and . _ * : -")
    _require("proxy.server_name", proxy.server_name, r"[A-Za-z0-9._* -]+", "letters, digits and . _ * -")
    for each in proxy.metrics_from:
        try:
            ipaddress.ip_network(each, strict=False)
        except ValueError as error:
            raise _refused("proxy.metrics_from", each, "addresses and networks, as 10.0.0.0/8") from error
    if proxy.limits.per == "key" and proxy.keys_file is None:
        raise _refused("proxy.limits.per", "key", "proxy.keys_file, too: nothing else tells one key from another")
    tls = None
    if proxy.tls is not None:
        for key, path in (("proxy.tls.certificate", proxy.tls.certificate), ("proxy.tls.key", proxy.tls.key)):
            _require(key, path, r"/[A-Za-z0-9._/@+-]+", "an absolute path of letters, digits and . _ @ + -")
        tls = SiteTls(proxy.tls.certificate, proxy.tls.key, proxy.tls.hsts_seconds)
    limits = proxy.limits
    return Site(
        deployment=deployment.name,
        listen=proxy.listen,
        upstreams=(),
        server_name=proxy.server_name,
        max_body_mib=proxy.max_body_mib,
        read_timeout_seconds=proxy.read_timeout_seconds,
        retry_after_seconds=proxy.retry_after_seconds,
        tls=tls,
        limits=SiteLimits(limits.per, limits.requests_per_second, limits.burst, limits.connections),
        metrics_from=proxy.metrics_from,
        open_paths=proxy.open_paths,
        checks_keys=proxy.keys_file is not None,
    )


def with_keys(site: Site, keys: ClientKeys | None) -> Site:
    """The site that lets in who sends one of these keys; None: everybody."""
    if keys is None:
        return replace(site, checks_keys=False, keys=None, keys_mark="")
    return replace(site, checks_keys=True, keys=keys, keys_mark=mark_of(keys, site.deployment))


def render_site(
    site: Site,
    access_log: str,
    build: NginxBuild = OLDEST,
    keys_file: str = KEYS_FILE,
    servers_file: str = SERVERS_FILE,
) -> str:
    """The server block with its upstream, for nginx's http context.

    Parameters:
        build: the nginx that will read it. keys_file: where the clients' keys lie; see `onecat.deploy.client_keys`.
        servers_file: where the servers of a site that is probed stand; see `render_servers`.
    """
    return render_template(
        "nginx/site.conf.j2",
        site=site,
        access_log=access_log,
        build=build,
        keys_file=keys_file,
        servers_file=servers_file,
    )


def render_servers(site: Site, before: str = "") -> str:
    """The servers of a site that is probed, one a line, for its upstream block.

    Parameters:
        before: the file as it is. A server of the same release that is marked as down there stays so, unless none
            would be left.
    """
    lines = [
        f"server {each.address} weight={each.weight} max_fails=1 fail_timeout=10s{{}}; # {each.name}\n"
        for each in site.upstreams
    ]
    marked = set(before.splitlines(keepends=True))
    down = {line for line in lines if line.format(DOWN) in marked}
    if len(down) == len(lines):
        down = set()
    return _HEADING + "".join(line.format(DOWN if line in down else "") for line in lines)


def without_marks(servers: str) -> str:
    """What `render_servers` wrote, without what probing has made of it."""
    return servers.replace(f"{DOWN};", ";")


def render_main(site: Site, worker_user: str | None, build: NginxBuild = OLDEST, pid_file: str = "nginx.pid") -> str:
    """The nginx.conf of an instance of our own.

    Parameters:
        worker_user: `user group` of the worker processes when nginx is started by root, else None.
        build: a module that was left out of it has no directive for its directory.
        pid_file: where it writes its process id, relative to its directory.
    """
    paths = tuple(
        (f"{module}_temp_path", f"temporary/{module}")
        for module in _MODULES_WITH_TEMPORARY_FILES
        if not build.lacks(f"http_{module}")
    )
    return render_template(
        "nginx/nginx.conf.j2", site=site, worker_user=worker_user, temporary_paths=paths, pid_file=pid_file
    )


def _require(key: str, value: str, pattern: str, expected: str) -> None:
    if not re.fullmatch(pattern, value):
        raise _refused(key, value, f"{expected} only")


def _refused(key: str, value: str, expected: str) -> OnecatError:
    return OnecatError(
        f"{key} is {value!r}", expected=expected, where=key, next_steps=[f"correct {key} in onecat.yaml"]
    )
