"""nginx: the deployment's one file for the conf.d directory of a host's nginx."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from onecat.deploy.client_keys import ClientKeys, render_keys
from onecat.deploy.export.marking import marked, without_heading
from onecat.deploy.export.records import ExportedFile, Form
from onecat.deploy.releases import reachable
from onecat.deploy.site import Site, Upstream, render_site, site_of

if TYPE_CHECKING:
    from onecat.deploy.export.records import Request

NAME = "nginx"


def render(request: Request) -> tuple[ExportedFile, ...]:
    plan = request.plan
    address = f"{reachable(plan.host)}:{plan.port}"
    site = replace(site_of(request.deployment), upstreams=(Upstream(address),))
    access_log = f"/var/log/nginx/{request.name}.access.log"
    keys_file = f"/etc/nginx/{request.name}.keys.conf"
    text = without_heading(render_site(site, access_log, keys_file=keys_file))
    files = [ExportedFile(site.file_name, marked(NAME, _notes(site, address, keys_file), text))]
    if site.checks_keys:
        has_key = request.deployment.secrets.api_key is not None
        placeholders = ClientKeys((("NAME", "KEY"),), "KEY-OF-THE-SERVER" if has_key else None)
        form = without_heading(render_keys(site.identifier, placeholders))
        notes = (f"A form to fill in, for {keys_file}: one line for each client.",)
        files.append(ExportedFile(f"{request.name}.keys.conf.example", marked(NAME, notes, form)))
    return tuple(files)


FORM = Form(NAME, "one file for the conf.d of a host's nginx", False, render)


def _notes(site: Site, address: str, keys_file: str) -> list[str]:
    notes = [
        "",
        f"Passes requests to {site.endpoint} on to the server at {address}. What to do first:",
        f"- copy this file to /etc/nginx/conf.d/{site.file_name}, for nginx 1.18 or later",
        "- where getenforce says Enforcing: sudo setsebool -P httpd_can_network_connect on",
    ]
    if site.checks_keys:
        notes.append(f"- fill in the form beside it; sudo install -o root -m 0600 IT {keys_file}")
    return [*notes, "Then: sudo nginx -t && sudo nginx -s reload", ""]
