"""How nginx passes requests on: how soon it answers, whether answers come through in pieces, its certificate."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onecat.live.preflight.look import Unknown
from onecat.live.preflight.observing.registry import observer
from onecat.live.preflight.subject import Subject

if TYPE_CHECKING:
    from onecat.deploy.site import Site

HEALTH_REQUESTS = 20
HEALTH_TIMEOUT_SECONDS = 10.0
STREAMS, STREAMS_SECONDS = 3, 20.0
"""So many answers each way; fewer where those that came have taken so long."""
STREAMED_TOKENS = 16
STREAM_SECONDS = 120.0
ACCESS_LINES = 2000
# curl writes one line for each URL it was given; a new connection for each would measure that.
_CURL_FORMAT = "%{http_code} %{time_total}\\n"


@dataclass(frozen=True)
class NginxHealth:
    """statuses, seconds: of GET /health through nginx, one after the other. on_host: whether they were sent on the host
    itself; else they came over SSH. failed: why one had no answer."""

    url: str
    statuses: tuple[int, ...]
    seconds: tuple[float, ...]
    on_host: bool
    failed: str = ""


@dataclass(frozen=True)
class Stream:
    """An answer in pieces. first, last: seconds until the first and the last piece of text; pieces: how many."""

    first: float
    last: float
    pieces: int

    @property
    def spread(self) -> float:
        """Seconds between the first piece and the last one."""
        return self.last - self.first


@dataclass(frozen=True)
class Streams:
    """The same answers, from the server itself and through nginx, in turn."""

    direct: tuple[Stream, ...]
    through: tuple[Stream, ...]
    failed: str = ""


@dataclass(frozen=True)
class Certificate:
    """What openssl says of the certificate that nginx shows. expires: as it writes it; days: until then."""

    path: str
    expires: str
    days: float


@dataclass(frozen=True)
class Asked:
    """One request in nginx's access log. moment: seconds since 1970. failed: the line of one with status 5xx; empty for
    others, and for answers of nginx itself while onecat changed the route (503)."""

    moment: float
    status: int
    failed: str = ""


@dataclass(frozen=True)
class Access:
    """The last requests in nginx's access log since the release serves, oldest first.

    looked_at: when that was, in seconds since 1970.
    """

    requests: tuple[Asked, ...]
    looked_at: float


def _no_nginx(subject: Subject) -> Unknown:
    front = subject.look.release.front
    if front is not None:
        return Unknown(f"nginx runs on {front}, where it is looked at")
    return Unknown("no nginx stands before this deployment")


@observer(NginxHealth, place=50)
def observe_nginx_health(subject: Subject) -> NginxHealth | Unknown:
    """GET /health, on nginx's host itself where that can be."""
    if subject.site is None or subject.endpoint_url is None:
        return _no_nginx(subject)
    if subject.machine.is_local:
        return _asked_from_here(subject.endpoint_url, subject.site, on_host=True)
    return _asked_on_host(subject, subject.site) or _asked_from_here(subject.endpoint_url, subject.site, on_host=False)


def _asked_on_host(subject: Subject, site: Site) -> NginxHealth | None:
    """By curl on the host; None where it is not there."""
    name = _named(site)
    url = f"{site.endpoint}/health"
    words = ["curl", "--silent", "--insecure", "--noproxy", "*", "--max-time", "10", "--write-out", _CURL_FORMAT]
    words += [] if name is None else ["--header", f"Host: {name}"]
    for _ in range(HEALTH_REQUESTS + 1):
        words += ["--output", "/dev/null", url]
    done = subject.machine.run(words)
    rows = [line.split() for line in done.stdout.decode("utf-8", "replace").splitlines()]
    pairs = [(int(row[0]), float(row[1])) for row in rows if len(row) == 2][1:]  # the first one connects
    if done.exit_code != 0 and not pairs:
        return None
    return NginxHealth(url, tuple(status for status, _ in pairs), tuple(each for _, each in pairs), on_host=True)


def _asked_from_here(url: str, site: Site, *, on_host: bool) -> NginxHealth:
    import httpx

    statuses, seconds = [], []
    with _client(url, site, HEALTH_TIMEOUT_SECONDS) as client:
        try:
            for number in range(HEALTH_REQUESTS + 1):
                begin = time.monotonic()
                status = client.get("/health", **_extensions(site)).status_code
                if number:  # the first one connects
                    statuses.append(status)
                    seconds.append(time.monotonic() - begin)
        except httpx.HTTPError as error:
            told = str(error) or type(error).__name__
            return NginxHealth(f"{site.endpoint}/health", tuple(statuses), tuple(seconds), on_host, told)
    return NginxHealth(f"{site.endpoint}/health", tuple(statuses), tuple(seconds), on_host)


def _named(site: Site) -> str | None:
    return next((each for each in site.server_name.split() if each != "_" and "*" not in each), None)


def _client(url: str, site: Site, timeout: float, key: str | None = None) -> Any:
    import httpx

    name = _named(site)
    headers = {} if name is None else {"Host": name}
    headers |= {} if key is None else {"Authorization": f"Bearer {key}"}
    # verify=False: the certificate is for a name, and an address of our own host is asked; no secret goes over TLS so.
    return httpx.Client(base_url=url, timeout=timeout, trust_env=False, headers=headers, verify=False)  # noqa: S501


def _extensions(site: Site) -> dict[str, Any]:
    name = _named(site)
    return {} if name is None or site.tls is None else {"extensions": {"sni_hostname": name}}


@observer(Streams, place=55)
def observe_streams(subject: Subject) -> Streams | Unknown:
    """The same question, streamed, in turn from the server itself and through nginx; the first of each is not counted,
    since it fills the prefix cache."""
    import httpx

    site = subject.site
    if site is None or subject.endpoint_url is None:
        return _no_nginx(subject)
    if not subject.is_alone:
        return Unknown("nginx passes requests on to several hosts, and which one answers cannot be chosen")
    if site.tls is not None and (site.checks_keys or subject.api_key is not None):
        return Unknown("nginx speaks TLS for a name, and the key is not sent to an address that is not proved")
    direct: list[Stream] = []
    through: list[Stream] = []
    begin = time.monotonic()
    try:
        with (
            _client(subject.server_url, site, STREAM_SECONDS, subject.api_key) as server,
            _client(subject.endpoint_url, site, STREAM_SECONDS, subject.client_key) as nginx,
        ):
            for number in range(STREAMS + 1):
                if through and time.monotonic() - begin > STREAMS_SECONDS:
                    break
                for client, found in ((server, direct), (nginx, through)):
                    stream = _streamed(client, subject.look.plan.served_name, _extensions(site))
                    if number:
                        found.append(stream)
    except httpx.HTTPError as error:
        return Streams(tuple(direct), tuple(through), str(error) or type(error).__name__)
    except ValueError as error:
        return Streams(tuple(direct), tuple(through), str(error))
    return Streams(tuple(direct), tuple(through))


def _streamed(client: Any, model: str, extensions: Mapping[str, Any]) -> Stream:
    """Raises httpx.HTTPError, or ValueError for an answer in another form."""
    question = {
        "model": model,
        "prompt": "one two three",
        "max_tokens": STREAMED_TOKENS,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
    }
    begin = time.monotonic()
    times: list[float] = []
    with client.stream("POST", "/v1/completions", json=question, **extensions) as answer:
        if answer.status_code != 200:
            text = answer.read().decode("utf-8", "replace").strip()
            raise ValueError(f"a streamed request is answered {answer.status_code}: {text[:200]}")
        for line in answer.iter_lines():
            if line.startswith("data:") and '"choices"' in line:
                times.append(time.monotonic() - begin)
    if not times:
        raise ValueError("a streamed answer had no pieces")
    return Stream(times[0], times[-1], len(times))


@observer(Certificate, place=60)
def observe_certificate(subject: Subject) -> Certificate | Unknown:
    """Read by openssl on nginx's host."""
    site = subject.site
    if site is None:
        return _no_nginx(subject)
    if site.tls is None:
        return Unknown("nginx speaks plain HTTP here")
    path = site.tls.certificate
    machine = subject.machine.root() or subject.machine
    done = machine.run(["openssl", "x509", "-in", path, "-noout", "-enddate"])
    found = re.search(r"notAfter=(.+)", done.stdout.decode("utf-8", "replace"))
    if done.exit_code != 0 or found is None:
        told = done.stderr.decode("utf-8", "replace").strip().splitlines()
        return Unknown(f"openssl could not read {path} on the host", tuple(told[:2]))
    from email.utils import parsedate_to_datetime

    # As `Nov 30 21:12:00 2026 GMT`: RFC 5322 wants the day first.
    month, day, clock, year, zone = found[1].split()
    end = parsedate_to_datetime(f"{day} {month} {year} {clock} {zone}")
    return Certificate(path, found[1].strip(), (end.timestamp() - time.time()) / 86400)


@observer(Access, place=90)
def observe_access(subject: Subject) -> Access | Unknown:
    """The last lines of the site's access log, those since the release took over."""
    if subject.proxy is None:
        return _no_nginx(subject)
    from datetime import datetime

    since = datetime.fromisoformat((subject.look.release.served_at or "1970-01-01T00:00:00Z").replace("Z", "+00:00"))
    requests = []
    for line in subject.proxy.access_lines(ACCESS_LINES):
        try:
            row = json.loads(line)
            moment, status = datetime.fromisoformat(row["time"]), int(row["status"])
        except (ValueError, KeyError, TypeError):  # a line that is cut off by the rotation of the log
            continue
        if moment < since:
            continue
        is_failure = status >= 500 and not (status == 503 and not row.get("upstream"))
        failed = f"{row['time']} {row.get('method')} {row.get('path')}: {status}" if is_failure else ""
        requests.append(Asked(moment.timestamp(), status, failed))
    return Access(tuple(requests), time.time())
