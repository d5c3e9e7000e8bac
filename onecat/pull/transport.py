"""The network under httpx: reads of many bytes at once, and proxies whose failures are told as theirs.

httpcore reads 64 KiB at a time (httpcore/_sync/http11.py, READ_NUM_BYTES), and TLS gives a record of 16 KiB
(RFC 8446, 5.1); what a read costs in Python beside its bytes is then most of the time of a pull.
"""

from __future__ import annotations

import contextlib
import os
import ssl
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import httpcore
import httpx

from onecat.pull.proxies import Proxy, proxy_of

READ_BYTES = 2**19
_RECORD_BYTES = 2**12
"""From a TLS stream, a shorter read is the end of what has come so far."""


class Transport(httpx.BaseTransport):
    """Connections to all hosts, directly or through the proxies that the environment names; safe for threads."""

    def __init__(self, trusted: ssl.SSLContext, connections: int) -> None:
        self._options: dict[str, Any] = {
            "ssl_context": trusted,
            "max_connections": connections,
            "max_keepalive_connections": connections,
            "keepalive_expiry": 30.0,
            "network_backend": _Backend(),
        }
        self._pools: dict[Proxy | None, httpcore.ConnectionPool] = {}
        self._lock = threading.Lock()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """The answer to a request. Raises httpx.TransportError, and OnecatError for a proxy that cannot be one."""
        proxy = proxy_of(str(request.url), os.environ)
        url = httpcore.URL(
            scheme=request.url.raw_scheme,
            host=request.url.raw_host,
            port=request.url.port,
            target=request.url.raw_path,
        )
        assert isinstance(request.stream, httpx.SyncByteStream)
        asked = httpcore.Request(
            request.method, url, headers=request.headers.raw, content=request.stream, extensions=request.extensions
        )
        with _as_httpx(proxy):
            answer = self._pool(proxy).handle_request(asked)
        assert isinstance(answer.stream, Iterable)
        body = _Body(answer.stream, proxy)
        return httpx.Response(answer.status, headers=answer.headers, stream=body, extensions=answer.extensions)

    def _pool(self, proxy: Proxy | None) -> httpcore.ConnectionPool:
        with self._lock:
            if proxy not in self._pools:
                self._pools[proxy] = (
                    httpcore.ConnectionPool(**self._options)
                    if proxy is None
                    else httpcore.HTTPProxy(
                        proxy.url,
                        proxy_auth=proxy.login,
                        proxy_ssl_context=self._options["ssl_context"] if proxy.url.startswith("https") else None,
                        **self._options,
                    )
                )
            return self._pools[proxy]

    def close(self) -> None:
        """End all connections."""
        with self._lock:
            for pool in self._pools.values():
                pool.close()


class _Body(httpx.SyncByteStream):
    def __init__(self, stream: Iterable[bytes], proxy: Proxy | None) -> None:
        self._stream, self._proxy = stream, proxy

    def __iter__(self) -> Iterator[bytes]:
        with _as_httpx(self._proxy):
            yield from self._stream

    def close(self) -> None:
        close = getattr(self._stream, "close", None)
        if close is not None:
            close()


@contextlib.contextmanager
def _as_httpx(proxy: Proxy | None) -> Iterator[None]:
    """Turns failures of httpcore into those of httpx, which have the same names."""
    try:
        yield
    except httpcore.UnsupportedProtocol as error:
        raise httpx.UnsupportedProtocol(str(error)) from error
    except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
        if proxy is not None and not isinstance(error.__cause__ or error.__context__, ssl.SSLError):
            told = str(error) or "no connection within the time limit"
            raise httpx.ConnectError(f"the proxy {proxy.url} ({proxy.variable}) cannot be reached: {told}") from error
        raise getattr(httpx, type(error).__name__)(str(error)) from error
    except httpcore.ProxyError as error:
        named = f"{proxy.url} ({proxy.variable})" if proxy is not None else "?"
        raise httpx.ProxyError(f"the proxy {named} answers {error}") from error
    except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError) as error:
        raise getattr(httpx, type(error).__name__)(str(error)) from error


class _Backend(httpcore.SyncBackend):
    def connect_tcp(self, *arguments: Any, **named: Any) -> httpcore.NetworkStream:
        return LargeReads(super().connect_tcp(*arguments, **named))


class LargeReads(httpcore.NetworkStream):
    """A stream that reads as much as has come, however little is asked for."""

    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream
        self._is_tls = stream.get_extra_info("ssl_object") is not None

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """At least one byte, or none at the end. Raises what the stream raises."""
        content = self._stream.read(READ_BYTES, timeout)
        if not self._is_tls or len(content) < _RECORD_BYTES:
            return content
        pieces, count = [content], len(content)
        while count < READ_BYTES and len(pieces[-1]) >= _RECORD_BYTES:
            try:
                content = self._stream.read(READ_BYTES, 0.0)
            except httpcore.ReadError:
                break  # nothing more has come; a failure shows at the next read
            if not content:
                break
            pieces.append(content)
            count += len(content)
        return b"".join(pieces)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, timeout)

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return LargeReads(self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
