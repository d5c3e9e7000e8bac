"""Small servers, and sites before them, for the tests of nginx."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from onecat.deploy.client_keys import ClientKeys
from onecat.deploy.site import Site, SiteTls, Upstream, with_keys
from tests.testbed.ports import free_port

SERVER = Path(__file__).with_name("openai_server.py")
ALICE, BOB, SERVERS_OWN = "sk-alice-0123456789.Ab+c/d=", "sk-bob-0123456789", "sk-of-the-server-0123456789"
KEYS = ClientKeys((("alice", ALICE), ("bob", BOB)), SERVERS_OWN)


@contextlib.contextmanager
def running_server(key: str | None = None) -> Iterator[str]:
    """The small server, as ADDRESS:PORT. key: what it wants to hear."""
    port = free_port()
    environment = {**os.environ, **({} if key is None else {"VLLM_API_KEY": key})}
    process = subprocess.Popen(
        [sys.executable, "-I", str(SERVER), "tiny", "--port", str(port)], env=environment, stdout=subprocess.DEVNULL
    )
    try:
        wait_for(f"http://127.0.0.1:{port}/health")
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def wait_for(url: str, **options: Any) -> None:
    limit = time.monotonic() + 10
    while True:
        with contextlib.suppress(httpx.TransportError):
            httpx.get(url, trust_env=False, **options)
            return
        assert time.monotonic() < limit, url
        time.sleep(0.02)


def site(*addresses: str, port: int | None = None, keys: ClientKeys | None = None, **values: Any) -> Site:
    """A site on a free port before these servers."""
    upstreams = tuple(Upstream(address, 1, f"local/{number}") for number, address in enumerate(addresses, 1))
    made = Site("demo", f"127.0.0.1:{port or free_port()}", upstreams, **values)
    return with_keys(made, keys) if keys is not None else made


def certificate(directory: Path) -> SiteTls:
    """A certificate and key of a test's own."""
    paths = (directory / "certificate.pem", directory / "key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
        + ["-keyout", str(paths[1]), "-out", str(paths[0]), "-subj", "/CN=models.example"],
        check=True,
        capture_output=True,
    )
    return SiteTls(str(paths[0]), str(paths[1]))


def variants(tls: SiteTls) -> dict[str, Site]:
    """Every form that a site takes."""
    from onecat.deploy.site import SiteLimits

    server, other = Upstream("127.0.0.1:8000", 1, "local/3"), Upstream("[::1]:8001", 1, "gpu2/3")
    plain = Site("demo", "127.0.0.1:18080", (server,))
    limits = SiteLimits("address", 2.5, 20, 8)
    return {
        "plain": plain,
        "none": replace(plain, upstreams=()),
        "several": replace(plain, upstreams=(server, other)),
        "probed": replace(plain, upstreams=(server, other), probed=True),
        "canary": replace(plain, upstreams=(replace(server, weight=9), other)),
        "ipv6": replace(plain, listen="[::1]:18080"),
        "limits": replace(plain, limits=limits),
        "keys": with_keys(replace(plain, limits=replace(limits, per="key")), KEYS),
        "tls": replace(plain, tls=tls, server_name="models.example *.models.example"),
        "hsts": replace(plain, tls=replace(tls, hsts_seconds=31536000)),
        "longest-name": with_keys(replace(plain, deployment="a" * 40, limits=limits), KEYS),
        "everything": with_keys(
            replace(plain, upstreams=(server, other), tls=tls, limits=limits, open_paths=("/tokenize", "/v2/")), KEYS
        ),
        "everything-paused": with_keys(
            replace(plain, upstreams=(), tls=tls, limits=limits, open_paths=("/tokenize", "/v2/")), KEYS
        ),
    }
