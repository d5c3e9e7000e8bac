"""HTTP as a pull needs it: redirects that never carry a token to another host, and failures in plain words."""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import httpx

from onecat import __version__
from onecat.errors import ExitCode, OnecatError
from onecat.pull.ranges import byte_count
from onecat.pull.retries import RETRIED_STATUS, retry_after
from onecat.pull.sources import Origin, checked_url, is_loopback, is_private, origin, shown
from onecat.pull.token import Token
from onecat.pull.transport import Transport

CONNECT_SECONDS = 15.0
MOST_REDIRECTS = 10
_REDIRECTS = (301, 302, 303, 307, 308)
_SMALL_BODY = 65536


class TransientError(Exception):
    """A failure that may be gone at the next try.

    asked: seconds that the server wants us to wait. is_refusal: it has too much to do (429, 503).
    """

    def __init__(self, found: str, asked: float | None = None, is_refusal: bool = False) -> None:
        super().__init__(found)
        self.found = found
        self.asked = asked
        self.is_refusal = is_refusal


def version_of(headers: Mapping[str, str]) -> str | None:
    """What tells a version of a file from another: its ETag, else its date; as both HEAD and GET have it."""
    return headers.get("etag") or headers.get("last-modified")


class Answer:
    """The last answer of a chain of redirects. first: headers of the chain's first answer, where a hub tells hashes."""

    def __init__(self, response: httpx.Response, first: Mapping[str, str]) -> None:
        self._response = response
        self.first = first
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self.url = str(response.url)

    @property
    def validator(self) -> str | None:
        """What tells this version of the file from another: its ETag, else its date."""
        return version_of(self.headers)

    @property
    def content_length(self) -> int | None:
        return byte_count(self.headers.get("content-length", ""))

    def chunks(self) -> Iterator[bytes]:
        """The body as it comes. Raises TransientError when it ends early or stalls."""
        with _told(self.url):
            yield from self._response.iter_raw()

    def body(self, limit: int) -> bytes:
        """The whole body. Raises OnecatError when it is longer than `limit` bytes, and TransientError."""
        content = bytearray()
        for chunk in self.chunks():
            content += chunk
            if len(content) > limit:
                raise OnecatError(
                    f"{shown(self.url)} answers with more than {limit} bytes", expected="a listing", code=ExitCode.NO
                )
        return bytes(content)


class Connection:
    """Connections to all hosts of one pull; safe for threads.

    Parameters:
        home: where the token belongs; it is sent nowhere else. stall_seconds: how long a connection may give nothing.
    """

    def __init__(self, home: Origin, token: Token | None, stall_seconds: float, jobs: int, insecure_http: bool) -> None:
        if token is not None and not is_private(home):
            raise OnecatError(
                f"the token would go to {home[1]} in plain HTTP, where everybody between could read it",
                expected="https://",
            )
        self._home, self._token, self._insecure_http = home, token, insecure_http
        self._client = httpx.Client(
            transport=Transport(_trusted(), jobs + 2),
            trust_env=False,  # the transport reads the proxies, `_trusted` the authorities; .netrc is for nobody here
            timeout=httpx.Timeout(stall_seconds, connect=min(CONNECT_SECONDS, stall_seconds), pool=None),
            headers={"User-Agent": f"onecat/{__version__}", "Accept-Encoding": "identity"},
        )

    def close(self) -> None:
        self._client.close()

    @contextlib.contextmanager
    def open(self, method: str, url: str, headers: Mapping[str, str] | None = None) -> Iterator[Answer]:
        """The answer to one request, after redirects; its body is still to be read.

        Raises TransientError for what may be gone at the next try, and OnecatError for what will not. A refusal of HEAD
        is an answer like another one: some servers know only GET, and an address may be signed for it alone.
        """
        response, first = self._last_of_chain(method, url, headers or {})
        try:
            answer = Answer(response, first)
            if method != "HEAD" or answer.status in RETRIED_STATUS:
                _refuse_status(answer, self._token is not None)
            yield answer
        finally:
            response.close()

    def _last_of_chain(self, method: str, url: str, headers: Mapping[str, str]) -> tuple[httpx.Response, Any]:
        first: Mapping[str, str] | None = None
        for _ in range(MOST_REDIRECTS):
            sent = dict(headers)
            if self._token is not None and origin(url) == self._home:
                sent["Authorization"] = self._token.header
            with _told(url):
                response = self._client.send(self._client.build_request(method, url, headers=sent), stream=True)
            first = response.headers if first is None else first
            if response.status_code not in _REDIRECTS:
                return response, first
            url = self._next(url, response)
        raise OnecatError(
            f"{shown(url)} redirects more than {MOST_REDIRECTS} times", expected="a file", code=ExitCode.UNREACHABLE
        )

    def _next(self, url: str, response: httpx.Response) -> str:
        location = response.headers.get("location", "")
        with _told(url):  # the body of a redirect is read, so that the connection can be used again
            if int(response.headers.get("content-length") or _SMALL_BODY) < _SMALL_BODY:
                response.read()
        response.close()
        try:
            following = str(httpx.URL(url).join(location)) if location else ""
        except httpx.InvalidURL:
            following = ""
        if not following:
            raise OnecatError(f"{shown(url)} redirects to nowhere", expected="an address", code=ExitCode.UNREACHABLE)
        if origin(url)[0] == "https" and origin(following)[0] != "https":
            raise OnecatError(
                f"{shown(url)} redirects to plain HTTP: {shown(following)}",
                expected="https:// all the way",
                next_steps=["name the final address yourself if you trust that network"],
                code=ExitCode.NO,
            )
        try:
            following = checked_url(following, self._insecure_http)
        except OnecatError as error:
            raise OnecatError(
                f"{shown(url)} redirects to an address that is not opened: {error.found}",
                expected="https:// all the way",
                next_steps=["ask who runs that server, or look for the file elsewhere"],
                code=ExitCode.NO,
            ) from error
        if is_loopback(following) and not is_loopback(url):
            raise OnecatError(
                f"{shown(url)} redirects to this machine itself: {shown(following)}",
                expected="an address of a server",
                next_steps=["do not use this source: no honest one sends requests to programs of yours"],
                code=ExitCode.NO,
            )
        return following


def _refuse_status(answer: Answer, has_token: bool) -> None:
    status, where = answer.status, shown(answer.url)
    if status in (200, 206, 416):
        return
    if status in RETRIED_STATUS:
        asked = retry_after(answer.headers, datetime.now(timezone.utc))
        raise TransientError(f"{where} answers {status}", asked, is_refusal=status in (429, 503))
    if status in (401, 403):
        raise OnecatError(
            f"{where} answers {status}: it wants {'a token with more rights' if has_token else 'a token'}",
            expected="a token whose owner may read that model, where the model needs one",
            next_steps=[
                "open the model's page in a browser: its licence may have to be accepted there first",
                "set HF_TOKEN to a token with the right to read, or add --token-file FILE of mode 0600 that holds one",
            ],
            code=ExitCode.NO,
        )
    if status == 404:
        raise OnecatError(
            f"{where} answers 404: there is no such file, model or revision",
            expected="a name that is there; some hubs answer 404 also where a token is missing",
            next_steps=["check the spelling, capitals included"],
            code=ExitCode.NO,
        )
    raise OnecatError(f"{where} answers {status}", expected="200 or 206", code=ExitCode.UNREACHABLE)


@contextlib.contextmanager
def _told(url: str) -> Iterator[None]:
    """Turns the failures of httpx into ours. Texts of httpx may hold whole addresses: they are not shown."""
    try:
        yield
    except httpx.TransportError as error:
        host = origin(url)[1]
        refused = _certificate_error(error)
        if refused is not None:
            raise _tls(host, refused) from error
        if isinstance(error, httpx.ProxyError):
            raise OnecatError(
                f"no way to {host}: {error}",
                expected="a proxy that lets us through, or none",
                next_steps=["see HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY"],
                code=ExitCode.UNREACHABLE,
            ) from error
        if isinstance(error, httpx.UnsupportedProtocol):
            raise OnecatError(f"{shown(url)} cannot be opened", expected="an address with https://") from error
        raise TransientError(f"{host}: {_words(error)}") from error


def _words(error: httpx.TransportError) -> str:
    if isinstance(error, httpx.ConnectTimeout):
        return "no connection within the time limit"
    if isinstance(error, httpx.TimeoutException):
        return "the connection stalled"
    if isinstance(error, httpx.RemoteProtocolError):
        return "the connection was cut" if "closed" in str(error) or "disconnected" in str(error) else str(error)
    return str(error) or "the connection was cut"


def _certificate_error(error: BaseException | None) -> ssl.SSLError | None:
    while error is not None:
        if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
            return error
        error = error.__cause__ or error.__context__
    return None


def _tls(host: str, error: ssl.SSLError) -> OnecatError:
    reason = getattr(error, "verify_message", None) or error.reason or str(error)
    named = os.environ.get("SSL_CERT_FILE")
    steps = ["if your company signs with its own authority: set SSL_CERT_FILE=/path/of/its/certificate.pem"]
    if named and not Path(named).is_file():
        steps.insert(0, f"SSL_CERT_FILE names {named}, which is not there: correct it")
    return OnecatError(
        f"{host} cannot be trusted: {str(reason).replace('_', ' ').lower()}",
        expected="a certificate that this machine's authorities signed for that name",
        next_steps=[*steps, "check the clock of this machine: date"],
        code=ExitCode.UNREACHABLE,
    )


def _trusted() -> ssl.SSLContext:
    """The authorities that this machine trusts, or SSL_CERT_FILE and SSL_CERT_DIR; else those that httpx brings."""
    paths = ssl.get_default_verify_paths()
    if paths.cafile is not None or (paths.capath is not None and any(Path(paths.capath).iterdir())):
        return ssl.create_default_context()
    return httpx.create_ssl_context()
