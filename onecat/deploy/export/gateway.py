"""The nginx in a container that stands before an exported server."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from onecat.deploy.client_keys import ClientKeys, render_keys
from onecat.deploy.export.marking import marked, without_heading
from onecat.deploy.export.records import ExportedFile
from onecat.deploy.export.server import ExportedServer, check_pinned
from onecat.deploy.site import Upstream, render_site, site_of
from onecat.resources import render_template

if TYPE_CHECKING:
    from onecat.deploy.export.records import Request

MAIN_FILE = "/etc/onecat/nginx.conf"
SITE_FILE = "/etc/onecat/site.conf"
_PLACE = "/etc/onecat/secrets"
_TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


@dataclass(frozen=True)
class Gateway:
    """nginx as a container.

    host, port: where clients reach it; address: the same as they write it. mounts: (path in the export, path in the
    container) of its files. steps: what a person must do first.
    """

    image: str
    command: tuple[str, ...]
    host: str
    port: int
    address: str
    mounts: tuple[tuple[str, str], ...]
    files: tuple[ExportedFile, ...]
    steps: tuple[str, ...]


def gateway(request: Request, server: ExportedServer, form: str, listen: str | None, upstream: str) -> Gateway | None:
    """nginx for this deployment; None where none is wanted.

    Parameters:
        listen: ADDRESS:PORT inside the container; None: the deployment's own, for one in the host's network.
        upstream: ADDRESS:PORT of the server as nginx reaches it.

    Raises OnecatError for what has no place in nginx's configuration.
    """
    proxy = request.deployment.proxy
    if proxy.kind != "nginx":
        return None
    check_pinned(proxy.image, "proxy.image in onecat.yaml: nginx:1.28")
    outside = site_of(request.deployment)
    inside = replace(outside, upstreams=(Upstream(upstream),), listen=listen or outside.listen)
    mounts = {"nginx/nginx.conf": MAIN_FILE, "nginx/site.conf": SITE_FILE}
    files, steps = [], []
    owner = f"-o {server.user[0]} -g {server.user[1]} -m 0400"
    if outside.tls is not None:
        inside = replace(
            inside, tls=replace(outside.tls, certificate=f"{_PLACE}/certificate.pem", key=f"{_PLACE}/key.pem")
        )
        for name, path in (("certificate.pem", outside.tls.certificate), ("key.pem", outside.tls.key)):
            mounts[f"secrets/{name}"] = f"{_PLACE}/{name}"
            steps.append(f"TLS: sudo install -D {owner} {path} secrets/{name}")
    if outside.checks_keys:
        mounts["secrets/keys.conf"] = f"{_PLACE}/keys.conf"
        placeholders = ClientKeys((("NAME", "KEY"),), "KEY-OF-THE-SERVER" if server.has_key else None)
        files.append(
            ExportedFile(
                "nginx/keys.conf.example",
                marked(
                    form,
                    ("A form to fill in: one line for each client.",),
                    without_heading(render_keys(inside.identifier, placeholders)),
                ),
            )
        )
        steps.append(f"clients' keys: fill in nginx/keys.conf.example; sudo install -D {owner} IT secrets/keys.conf")
    main = render_template(
        "export/nginx.conf.j2",
        site_file=SITE_FILE,
        temporary_paths=[(f"{each}_temp_path", f"/tmp/{each}") for each in _TEMPORARY],  # noqa: S108 - a tmpfs
    )
    site = render_site(inside, "/dev/stdout", keys_file=f"{_PLACE}/keys.conf")
    files = [
        ExportedFile("nginx/nginx.conf", marked(form, ("It runs without root in a container.",), main)),
        ExportedFile("nginx/site.conf", marked(form, ("What nginx does with requests.",), without_heading(site))),
        *files,
    ]
    host, _, port = proxy.listen.rpartition(":")
    return Gateway(
        image=proxy.image,
        command=("nginx", "-c", MAIN_FILE),
        host=host.strip("[]"),
        port=int(port),
        address=outside.endpoint,
        mounts=tuple(mounts.items()),
        files=tuple(files),
        steps=tuple(steps),
    )
