"""The nginx in a container that stands before an exported server."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from onecat.deploy.export.marking import marked
from onecat.deploy.export.records import ExportedFile
from onecat.deploy.export.server import check_pinned
from onecat.deploy.site import Upstream, render_site, site_of
from onecat.resources import render_template

if TYPE_CHECKING:
    from onecat.deploy.export.records import Request

MAIN_FILE = "/etc/onecat/nginx.conf"
SITE_FILE = "/etc/onecat/site.conf"
_TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


@dataclass(frozen=True)
class Gateway:
    """nginx as a container.

    host, port: where clients reach it; mounts: (path in the export, path in the container) of its files.
    """

    image: str
    command: tuple[str, ...]
    host: str
    port: int
    mounts: tuple[tuple[str, str], ...]
    files: tuple[ExportedFile, ...]


def gateway(request: Request, form: str, listen: str | None, server: str) -> Gateway | None:
    """nginx for this deployment; None where none is wanted.

    Parameters:
        listen: ADDRESS:PORT inside the container; None: the deployment's own, for one in the host's network.
        server: ADDRESS:PORT of the server as nginx reaches it.

    Raises OnecatError for what has no place in nginx's configuration.
    """
    proxy = request.deployment.proxy
    if proxy.kind != "nginx":
        return None
    check_pinned(proxy.image)
    site = replace(site_of(request.deployment), upstreams=(Upstream(server),))
    if listen is not None:
        site = replace(site, listen=listen)
    host, _, port = proxy.listen.rpartition(":")
    notes = ("nginx's own configuration; it runs without root in a container.",)
    main = render_template(
        "export/nginx.conf.j2",
        site_file=SITE_FILE,
        temporary_paths=[(f"{each}_temp_path", f"/tmp/{each}") for each in _TEMPORARY],  # noqa: S108 - a tmpfs
    )
    files = (
        ExportedFile("nginx/nginx.conf", marked(form, notes, main)),
        ExportedFile("nginx/site.conf", marked(form, ("What nginx does with requests.",), render_site(site, "/dev/stdout"))),
    )
    mounts = (("nginx/nginx.conf", MAIN_FILE), ("nginx/site.conf", SITE_FILE))
    return Gateway(proxy.image, ("nginx", "-c", MAIN_FILE), host.strip("[]"), int(port), mounts, files)
