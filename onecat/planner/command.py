"""The words after `vllm serve` and the variables of the server, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from onecat.config import Deployment, Profile
from onecat.engines import words
from onecat.planner.bare import NAME
from onecat.planner.flags import Setting, shown
from onecat.planner.records import ContainerPlan, Reason

CONTAINER_PORT = 8000
"""Port of the server inside its container; the published port is the deployment's."""


def arguments_of(
    deployment: Deployment, settings: Mapping[str, Setting], container: ContainerPlan | None, served_name: str
) -> tuple[tuple[str, ...], tuple[Reason, ...]]:
    """The words after `vllm serve` and their reasons: the model, then what onecat sets, then flags by name.

    For cards alone there is no deployment, and so neither address nor name.
    """
    model = deployment.model.path if container is None else container.model_mount
    if deployment.profile == NAME:
        reasons = [Reason("MODEL", model, "--model", "command line")]
        return _with_flags([model], reasons, settings)
    host = deployment.host if container is None else "0.0.0.0"
    port = deployment.port if container is None else CONTAINER_PORT
    published = f"{deployment.host}:{deployment.port}"
    reasons = [
        Reason(
            "MODEL",
            model,
            "model.path" if container is None else f"{deployment.model.path}, mounted there read-only",
            _layer(deployment, "model", "path"),
        ),
        Reason(
            "--served-model-name",
            served_name,
            "model.served_name" if deployment.model.served_name else "the name of the model's directory",
            _layer(deployment, "model", "served_name"),
        ),
        Reason(
            "--host",
            host,
            _why_host(deployment)
            if container is None
            else f"all addresses inside the container; only {published} of the host is published",
            "planner" if container is not None else _layer(deployment, "host"),
        ),
        Reason(
            "--port",
            str(port),
            "the port of onecat.yaml" if container is None else f"inside the container; published as {published}",
            "planner" if container is not None else _layer(deployment, "port"),
        ),
    ]
    # A name that begins with a dash would be read as a flag.
    named = (
        [f"--served-model-name={served_name}"] if served_name.startswith("-") else ["--served-model-name", served_name]
    )
    found = [model, *named, "--host", host, "--port", str(port)]
    return _with_flags(found, reasons, settings)


def _with_flags(
    found: list[str], reasons: list[Reason], settings: Mapping[str, Setting]
) -> tuple[tuple[str, ...], tuple[Reason, ...]]:
    for name, setting in sorted(settings.items()):
        flag_words = words(setting.flag, setting.value)
        if flag_words:
            found += flag_words
        reasons.append(Reason(f"--{name}", shown(setting.value), setting.why, setting.layer, setting.source))
    return tuple(found), tuple(reasons)


def environment_reasons(deployment: Deployment, profile: Profile, derived: Sequence[Reason] = ()) -> tuple[Reason, ...]:
    """Why each variable is what it is; derived: of those that the planner has set."""
    by_profile = {each.name: each for each in profile.launch.env}
    reasons = []
    for name in sorted(by_profile.keys() | deployment.env.keys()):
        below = by_profile.get(name)
        if name in deployment.env:
            origin = deployment.origin("env", name)
            over = f", over the profile's {below.value}" if below is not None else ""
            layer = _layer(deployment, "env", name)
            reasons.append(Reason(name, deployment.env[name], f"set in {origin.where or layer}{over}", layer))
        elif below is not None:
            reasons.append(Reason(name, below.value, below.why, "profile", below.source))
    return (*reasons, *derived)


def _layer(deployment: Deployment, *path: str) -> Literal["onecat.yaml", "command line", "planner"]:
    layer = deployment.origin(*path).layer
    return layer if layer == "command line" else "planner" if layer == "default" else "onecat.yaml"


def _why_host(deployment: Deployment) -> str:
    """Who reaches a native server at the address it listens on."""
    behind = (
        "; nginx passes requests on to it" if deployment.proxy.kind == "nginx" else "; nothing stands in front of it"
    )
    if deployment.host in ("127.0.0.1", "::1", "localhost"):
        return "only this machine reaches the server itself" + behind
    return "the server itself can be reached from the network" + behind
