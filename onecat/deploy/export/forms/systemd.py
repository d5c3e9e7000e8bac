"""systemd: the unit of a server, in a container or native, for a host that onecat never sees."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from onecat.deploy import health_gate, with_secret
from onecat.deploy.export.marking import marked, without_heading
from onecat.deploy.export.records import ExportedFile, Form
from onecat.deploy.export.server import describe, first_steps
from onecat.deploy.native import STOP_SECONDS
from onecat.deploy.releases import reachable
from onecat.deploy.units import container_unit, gate_script, native_unit
from onecat.errors import OnecatError

if TYPE_CHECKING:
    from onecat.deploy.export.records import Request

NAME = "systemd"
_DOCKER = "/usr/bin/docker"
_PYTHON = "/usr/bin/python3"
_HELPERS = "/usr/local/lib/onecat"


def render(request: Request) -> tuple[ExportedFile, ...]:
    return _container(request) if request.plan.container is not None else _native(request)


FORM = Form(NAME, "a unit for a host that onecat never sees", False, render)


def _container(request: Request) -> tuple[ExportedFile, ...]:
    name, deployment = request.name, request.deployment
    server = describe(request)
    key = _key_file(request)
    spec = replace(server.spec, secret_file=key, cache_volume=f"{name}-cache")
    gate = f"{_HELPERS}/{name}-ready"
    unit = container_unit(None, deployment.name, spec, deployment.restart, None, docker=_DOCKER, gate=gate)
    steps = [
        f"the image must be there, because the unit pulls none: {spec.image}",
        f"sudo install -D -m 0755 {name}-ready {gate}",
        *_key_step(key),
        *first_steps(request, server),
    ]
    script = gate_script(spec, _DOCKER)
    notes = ("Tells systemd when the server is ready.",)
    return (
        ExportedFile(f"{name}.service", marked(NAME, _notes(request, steps), without_heading(unit))),
        ExportedFile(f"{name}-ready", marked(NAME, notes, script), 0o755),
    )


def _native(request: Request) -> tuple[ExportedFile, ...]:
    name, plan, deployment, options = request.name, request.plan, request.deployment, request.options
    if options.program is None or not options.program.startswith("/"):
        raise OnecatError(
            "where vllm lies on the other host is not known",
            expected="the absolute path of its program there",
            next_steps=[
                "onecat export systemd --program /opt/vllm/bin/vllm",
                "or write runtime: container in onecat.yaml",
            ],
        )
    key, home = _key_file(request), f"/var/lib/{name}"
    uid, gid = options.user
    unit = native_unit(
        deployment.name,
        None,
        [options.program, "serve", *plan.server_args],
        dict(plan.env),
        key,
        f"http://{reachable(plan.host)}:{plan.port}",
        deployment.start.silence_seconds,
        deployment.restart,
        STOP_SECONDS,
        home,
        user=options.user,
        python=_PYTHON,
        helpers=_HELPERS,
    )
    modules = (health_gate, *((with_secret,) if key is not None else ()))
    helpers = {f"{each.__name__.rpartition('.')[2]}.py": Path(str(each.__file__)) for each in modules}
    steps = [
        f"{options.program} must be there: {plan.engine} {plan.engine_version}; so must {_PYTHON}, 3.10 or later",
        f"sudo install -D -m 0644 -t {_HELPERS} {' '.join(helpers)}",
        f"sudo install -d -o {uid} -g {gid} -m 0700 {home}",
        f"user {uid} must be able to read the model: chmod -R a+rX {plan.model_directory}",
        *_key_step(key, f"-o {uid} -g {gid} "),
    ]
    return (
        ExportedFile(f"{name}.service", marked(NAME, _notes(request, steps), without_heading(unit))),
        *(
            ExportedFile(file, marked(NAME, ("Belongs to the unit beside it.",), path.read_text(encoding="utf-8")))
            for file, path in helpers.items()
        ),
    )


def _key_file(request: Request) -> str | None:
    """Where the API key lies on the other host."""
    return f"/etc/onecat/{request.deployment.name}/api_key" if request.deployment.secrets.api_key is not None else None


def _key_step(key: str | None, owner: str = "") -> list[str]:
    return [] if key is None else [f"the API key: sudo install -D {owner}-m 0400 KEYFILE {key}"]


def _notes(request: Request, steps: list[str]) -> list[str]:
    plan, name = request.plan, request.name
    address = f"{reachable(plan.host)}:{plan.port}"
    return [
        "",
        f"Serves {plan.served_name} at http://{address}/v1. For nginx before it: onecat export nginx.",
        "What to do first:",
        *(f"- {each}" for each in steps),
        f"Then: sudo install -m 0644 {name}.service /etc/systemd/system/; sudo systemctl daemon-reload",
        f"      sudo systemctl enable --now {name}",
        "",
    ]
