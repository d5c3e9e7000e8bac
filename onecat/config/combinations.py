"""Values that are right on their own and impossible together.

Each rule is a function that yields `Conflict`s; `DEPLOYMENT_RULES` and `PROFILE_RULES` list them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from onecat.config.layers import DROPPABLE
from onecat.config.schema import Deployment, Profile
from onecat.config.source import KeyPath

SET_BY_ONECAT = {
    "model": "model.path",
    "model-tag": "model.path",
    "served-model-name": "model.served_name",
    "host": "host",
    "port": "port",
    "api-key": "secrets.api_key",
    "uds": "host and port",
    "config": "the flags themselves under serve",
}
"""Flags that onecat writes itself, with the key of onecat.yaml that decides them."""

SECRET_VARIABLES = {"VLLM_API_KEY": "secrets.api_key"}
"""Variables whose value is a secret, with the key that takes it from a file or the environment."""

PARALLEL_FLAGS = ("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size")
"""Flags that a layout stands for."""

HIGHEST_RAY_PORT = 65535 - 599
"""A node takes 600 ports from `ray.port` on (onecat.planner.ray)."""

LOOKS_SECRET = re.compile(r"(^|_)(TOKEN|KEY|SECRET|PASSWORD|PASSPHRASE|CREDENTIALS?)$|PASSWORD", re.IGNORECASE)
"""Names of other variables that hold secrets: HF_TOKEN, AWS_SECRET_ACCESS_KEY, ..."""


@dataclass(frozen=True)
class Conflict:
    """One impossible combination; `at_key` points to the key and not to its value."""

    path: KeyPath
    found: str
    expected: str
    next_step: str | None = None
    at_key: bool = False


def _runtime(deployment: Deployment, profile: Profile) -> Iterator[Conflict]:
    allowed = profile.launch.runtimes
    if deployment.runtime is not None and deployment.runtime not in allowed:
        yield Conflict(
            ("runtime",),
            f"profile `{profile.name}` has no runtime `{deployment.runtime}`",
            f"one of: {', '.join(allowed)}",
            f"write `runtime: {allowed[0]}`, or leave the line out",
        )


def _ports(deployment: Deployment, profile: Profile) -> Iterator[Conflict]:
    proxy = deployment.proxy
    if proxy.kind == "none":
        return
    port = int(proxy.listen.rsplit(":", 1)[1])
    if not 1 <= port <= 65535:
        yield Conflict(("proxy", "listen"), f"`proxy.listen` names the port {port}", "a port from 1 to 65535")
    elif port == deployment.port:
        yield Conflict(
            ("proxy", "listen"),
            f"the proxy and the server both want port {port}",
            "two different ports: clients use the proxy's, the proxy uses the server's",
            f"write `port: {port + 1 if port < 65535 else port - 1}` for the server",
        )


def _secrets(deployment: Deployment, profile: Profile) -> Iterator[Conflict]:
    secret = deployment.secrets.api_key
    if secret is not None and (secret.file is None) == (secret.env is None):
        both = "both `file` and `env`" if secret.file is not None else "neither `file` nor `env`"
        yield Conflict(
            ("secrets", "api_key"),
            f"`secrets.api_key` has {both}",
            "exactly one: `file: PATH` or `env: VARIABLE`",
            at_key=True,
        )
    for name, instead in SECRET_VARIABLES.items():
        if name in deployment.env:
            yield Conflict(
                ("env", name),
                f"`env.{name}` would put a secret into onecat.yaml",
                f"the secret in a file or in the environment, named by `{instead}`",
                f"write `{instead}: {{file: PATH}}` and remove `env.{name}`",
                at_key=True,
            )
    for name in deployment.env:
        if name not in SECRET_VARIABLES and LOOKS_SECRET.search(name):
            yield Conflict(
                ("env", name),
                f"`env.{name}` looks like a secret, and everybody may read what stands under `env`: it is shown by "
                "`onecat plan` and written into the plan, the systemd unit and Docker's command line",
                "no secrets under `env`; this version of onecat keeps one secret, `secrets.api_key`",
                f"remove `env.{name}`: the model is served from a local directory and needs no token",
                at_key=True,
            )


def _environment(deployment: Deployment, profile: Profile) -> Iterator[Conflict]:
    for name, value in deployment.env.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            yield Conflict(
                ("env", name), f"`{name}` is no name of a variable", "letters, digits and underscores", at_key=True
            )
        elif "\0" in value:
            yield Conflict(("env", name), f"`env.{name}` holds a zero byte", "text: no variable can hold one")


def _serve(deployment: Deployment, profile: Profile) -> Iterator[Conflict]:
    for flag in deployment.serve:
        instead = SET_BY_ONECAT.get(flag.lstrip("-").replace("_", "-"))
        if instead is not None:
            yield Conflict(
                ("serve", flag),
                f"`serve.{flag}` is set by onecat itself",
                f"`{instead}` in its place",
                f"move the value to `{instead}`",
                at_key=True,
            )


def _smoke(deployment: Deployment, profile: Profile) -> Iterator[Conflict]:
    for index, prompt in enumerate(deployment.smoke):
        if not prompt.prompt.strip():
            yield Conflict(("smoke", index, "prompt"), "the smoke prompt is blank", "a text the model can answer")
        if any(not each for each in prompt.expect):
            yield Conflict(
                ("smoke", index, "expect"), "an expected substring is empty: every answer contains it", "some text"
            )


def _restart(deployment: Deployment, profile: Profile) -> Iterator[Conflict]:
    restart = deployment.restart
    if restart.backoff_max_seconds < restart.backoff_seconds:
        yield Conflict(
            ("restart", "backoff_max_seconds"),
            f"the longest wait ({restart.backoff_max_seconds:g} s) is below the first ({restart.backoff_seconds:g} s)",
            "backoff_max_seconds of at least backoff_seconds",
        )


def _hosts(deployment: Deployment, profile: Profile) -> Iterator[Conflict]:
    for name, count in Counter(deployment.hosts).items():
        if count > 1:
            index = len(deployment.hosts) - 1 - deployment.hosts[::-1].index(name)
            yield Conflict(("hosts", index), f"the host `{name}` is listed {count} times", "each host once")

    for name in deployment.addresses:
        if name not in deployment.hosts:
            yield Conflict(
                ("addresses", name),
                f"`addresses` names {name}, which is none of the hosts",
                f"one of: {', '.join(deployment.hosts)}",
                at_key=True,
            )
    for address, count in Counter(deployment.addresses.values()).items():
        if count > 1:
            last = [name for name in deployment.addresses if deployment.addresses[name] == address][-1]
            yield Conflict(
                ("addresses", last),
                f"{count} hosts have the address {address} in `addresses`: nginx would ask the same one for all",
                "for each host the address that nginx reaches it at",
            )
    if deployment.proxy.on is not None and deployment.proxy.on not in deployment.hosts:
        yield Conflict(
            ("proxy", "on"),
            f"`proxy.on` is {deployment.proxy.on}, which is none of the hosts",
            f"one of: {', '.join(deployment.hosts)}",
        )


def _gpus(deployment: Deployment, profile: Profile) -> Iterator[Conflict]:
    if deployment.gpus is None:
        return
    if profile.hardware.accelerator == "none":
        yield Conflict(
            ("gpus",),
            f"`gpus`, and profile `{profile.name}` uses none",
            "a profile for GPUs, or no such line",
            at_key=True,
        )
    for index, gpu in enumerate(deployment.gpus):
        if gpu in deployment.gpus[:index]:
            yield Conflict(("gpus", index), f"the GPU {gpu} is listed twice", "each GPU once")
        elif isinstance(gpu, int) and gpu < 0:
            yield Conflict(("gpus", index), f"no GPU has the index {gpu}", "an index from 0 on, or a UUID")


def _native(deployment: Deployment, profile: Profile) -> Iterator[Conflict]:
    """What only a container can have would be left out without a word."""
    if (deployment.runtime or profile.launch.runtime) != "native":
        return
    if deployment.service == "systemd":
        yield Conflict(
            ("service",),
            "`service: systemd` with the native runtime, which onecat looks after itself",
            "runtime: container",
        )
    for name, value in deployment.container:
        if value not in (None, False):
            yield Conflict(
                ("container", name), f"`container.{name}` with the native runtime", "runtime: container", at_key=True
            )


def _ray(deployment: Deployment, profile: Profile) -> Iterator[Conflict]:
    """One model across hosts: vLLM refuses Ray on a CPU, and runs on each host in a container of Docker."""
    ray = deployment.ray
    if ray is None:
        return
    if len(deployment.hosts) < 2:
        yield Conflict(
            ("ray",), "`ray` shares one model among hosts, and `hosts` names one", "two hosts or more", at_key=True
        )
    if profile.hardware.accelerator != "nvidia":
        yield Conflict(
            ("ray",), f"`ray`, and profile `{profile.name}` is not for NVIDIA GPUs", "a profile for them", at_key=True
        )
    if (deployment.runtime or profile.launch.runtime) != "container":
        yield Conflict(("ray",), "`ray` with the native runtime", "runtime: container", at_key=True)
    if deployment.service != "docker":
        yield Conflict(("service",), "`service: systemd` with `ray`", "service: docker")
    backend = deployment.serve.get("distributed-executor-backend", "ray")
    if backend != "ray":
        yield Conflict(
            ("serve", "distributed-executor-backend"), f"the backend {backend} with `ray`", "ray, or leave it out"
        )
    if ray.port > HIGHEST_RAY_PORT:
        yield Conflict(
            ("ray", "port"), f"ray.port {ray.port}: a node takes the ports after it", f"at most {HIGHEST_RAY_PORT}"
        )


def _profile_runtime(profile: Profile) -> Iterator[Conflict]:
    launch = profile.launch
    if launch.runtime not in launch.runtimes:
        yield Conflict(
            ("launch", "runtime"), f"the default runtime `{launch.runtime}` is not listed", "one of launch.runtimes"
        )
    if "native" in launch.runtimes and profile.engine.name != "vllm-cpu":
        yield Conflict(
            ("launch", "runtimes"),
            f"onecat has no native runtime for engine `{profile.engine.name}`",
            "native only with engine vllm-cpu",
        )


def _profile_arguments(profile: Profile) -> Iterator[Conflict]:
    seen: set[str] = set()
    layouts = profile.launch.layouts
    for index, each in enumerate(profile.launch.args):
        if each.arg in SET_BY_ONECAT:
            yield Conflict(("launch", "args", index, "arg"), f"`{each.arg}` is set by onecat itself", "another flag")
        if each.arg in seen:
            yield Conflict(("launch", "args", index, "arg"), f"`{each.arg}` is set twice", "each flag once")
        seen.add(each.arg)
        if layouts and each.arg in PARALLEL_FLAGS:
            yield Conflict(
                ("launch", "args", index, "arg"),
                f"`{each.arg}` is set beside launch.layouts",
                "the number in a layout alone",
            )
        elif each.arg == "tensor-parallel-size" and profile.hardware.count and each.value != profile.hardware.count:
            yield Conflict(
                ("launch", "args", index, "value"),
                f"tensor-parallel-size is {each.value} and hardware.count {profile.hardware.count}",
                "the same number",
            )


def _profile_layouts(profile: Profile) -> Iterator[Conflict]:
    count = profile.hardware.count
    seen: set[str] = set()
    for index, each in enumerate(profile.launch.layouts):
        if each.name in seen:
            yield Conflict(("launch", "layouts", index, "name"), f"two layouts are called `{each.name}`", "one")
        seen.add(each.name)
        if count and each.cards > count or (index == 0 and count and each.cards < count):
            yield Conflict(
                ("launch", "layouts", index, "name"),
                f"layout `{each.name}` uses {each.cards} card{'s' if each.cards > 1 else ''} and hardware.count is "
                f"{count}",
                "all of them: it is the default" if index == 0 else "at most as many",
            )


def _profile_drops(profile: Profile) -> Iterator[Conflict]:
    for index, each in enumerate(profile.drop):
        if each.row is None:
            yield Conflict(("drop", index), "a row of `drop` names none or several", f"one of: {', '.join(DROPPABLE)}")


def _profile_environment(profile: Profile) -> Iterator[Conflict]:
    names = Counter(each.name for each in profile.launch.env)
    for index, each in enumerate(profile.launch.env):
        if names[each.name] > 1:
            names[each.name] = 0
            yield Conflict(("launch", "env", index, "name"), f"`{each.name}` is set twice", "each variable once")


def _profile_hardware(profile: Profile) -> Iterator[Conflict]:
    hardware = profile.hardware
    if hardware.accelerator == "none" and (hardware.count or hardware.gpu_names):
        yield Conflict(("hardware", "accelerator"), "GPUs are listed and the accelerator is `none`", "nvidia or ascend")
    if hardware.accelerator != "none" and not (hardware.count and hardware.gpu_names):
        yield Conflict(
            ("hardware", "accelerator"),
            f"accelerator `{hardware.accelerator}` without GPUs",
            "gpu_names and a count of at least 1",
        )


DEPLOYMENT_RULES: tuple[Callable[[Deployment, Profile], Iterator[Conflict]], ...] = (
    _runtime,
    _ports,
    _secrets,
    _environment,
    _serve,
    _smoke,
    _restart,
    _hosts,
    _gpus,
    _native,
    _ray,
)
PROFILE_RULES: tuple[Callable[[Profile], Iterator[Conflict]], ...] = (
    _profile_runtime,
    _profile_arguments,
    _profile_layouts,
    _profile_environment,
    _profile_drops,
    _profile_hardware,
)
