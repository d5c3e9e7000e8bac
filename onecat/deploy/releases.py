"""What is known about one release, and the words for what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

RELEASE_SCHEMA = "onecat.release/1"

# starting: not accepted yet. serving: accepted, gets requests or is about to lose them. canary: gets a share beside
# the current one. failed: its start failed. stopped: ended by `down` or a newer release.
Outcome = Literal["starting", "serving", "canary", "failed", "interrupted", "stopped"]
LIVE: tuple[Outcome, ...] = ("starting", "serving", "canary")
"""Outcomes of a release that may still run."""

# supervisor: onecat's own, for a native server. docker: Docker's restart policy. systemd: a unit. ray: Docker's, on
# each node of a Ray cluster.
Service = Literal["supervisor", "docker", "systemd", "ray"]
ProxyKind = Literal["host", "own", "container"]
StrategyName = Literal["first", "blue-green", "recreate"]
Purpose = Literal["up", "rollback", "restart", "bench"]
"""Commands that make a release. bench: for an experiment alone, which puts back what served before it."""


@dataclass(frozen=True)
class Release:
    """One rendered and started deployment.

    directory: on the host it runs on. host_name: that host, as the operator named it.
    fingerprint: hash of everything that decides how the server runs; equal means nothing would change.
    host, port: where the server itself answers; endpoint: the address for clients, without /v1.
    proxy_kind: whose nginx passes requests on; None: clients reach the server itself. server_name: of nginx's site.
    front: the host that nginx runs on, where that is another one.
    container: the container's name, or None for a native server; docker_host: the daemon it runs on, as its host
    names it (None: default). image_id: what the image's name meant then. gpus: UUIDs, or indices where there are none.
    protected: whether clients must send an API key. strategy: how it took over. cause: why it failed.
    purpose: the command that made it, created_by: who typed it (USER@MACHINE); origin: the release that it repeats.
    start_seconds: from its start until it had answered well; gap_seconds: for so long requests were refused for it.
    served_at: when it became the one that serves; None: it never did.
    """

    deployment: str
    number: int
    directory: str
    runtime: Literal["native", "container"]
    profile: str
    model: str
    host: str
    port: int
    endpoint: str
    protected: bool
    fingerprint: str
    created_at: str
    host_name: str = "local"
    service: Service = "supervisor"
    proxy_kind: ProxyKind | None = None
    front: str | None = None
    server_name: str = "_"
    container: str | None = None
    docker_host: str | None = None
    image_id: str | None = None
    gpus: tuple[str, ...] = ()
    strategy: StrategyName = "first"
    outcome: Outcome = "starting"
    cause: str | None = None
    purpose: Purpose = "up"
    created_by: str = ""
    origin: int | None = None
    start_seconds: float | None = None
    gap_seconds: float | None = None
    served_at: str | None = None

    @property
    def proxied(self) -> bool:
        """Whether nginx stands before it."""
        return self.proxy_kind is not None

    @property
    def own_proxy_kind(self) -> ProxyKind | None:
        """Whose nginx passes requests on, where it runs on the release's own host."""
        return self.proxy_kind if self.front is None else None

    @property
    def place(self) -> str:
        """Where its directory lies, as a person is told: with the host, unless it is this machine."""
        return self.directory if self.host_name == "local" else f"{self.directory} on {self.host_name}"

    @property
    def live(self) -> bool:
        """Whether it may still run."""
        return self.outcome in LIVE

    @property
    def server_url(self) -> str:
        """The server's own address as its host reaches it."""
        return f"http://{self.address}"

    @property
    def address(self) -> str:
        """ADDRESS:PORT of the server as its host reaches it."""
        return f"{reachable(self.host)}:{self.port}"

    @property
    def endpoint_port(self) -> int:
        """The port of the address for clients."""
        return int(self.endpoint.rpartition(":")[2])


def reachable(host: str) -> str:
    """The address to connect to for a server that listens on `host`; IPv6 in brackets."""
    address = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)  # noqa: S104 - compared, not bound
    return f"[{address}]" if ":" in address else address


def to_document(release: Release) -> dict[str, Any]:
    """A release as the content of its release.json (onecat.release/1)."""
    document = {"schema": RELEASE_SCHEMA, **asdict(release)}
    del document["directory"]
    return document


def from_document(document: Mapping[str, Any], directory: str) -> Release:
    """The release that a release.json tells of; what only a later onecat knows of it is left out.

    Raises TypeError or KeyError for one that is damaged.
    """
    told = {**_of_first_form(document), **document}
    known = {each.name: told[each.name] for each in fields(Release) if each.name in told}
    return Release(**{**known, "directory": directory, "gpus": tuple(told.get("gpus", ()))})


def _of_first_form(document: Mapping[str, Any]) -> dict[str, Any]:
    """What the first form of release.json says by `proxied` and `container`: nginx was onecat's own, and there were no
    units and no Ray."""
    if "proxied" not in document:
        return {}
    return {
        "proxy_kind": "own" if document["proxied"] else None,
        "service": "supervisor" if document.get("container") is None else "docker",
    }
