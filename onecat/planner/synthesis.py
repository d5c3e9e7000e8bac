"""From deployment, profile, checkpoint and facts to a plan."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Literal

from onecat.checkpoints import Checkpoint
from onecat.config import Deployment, Profile
from onecat.engines import FlagSchema, flag_schema, parse_size, words
from onecat.facts import Facts
from onecat.planner.flags import FlagValue, Setting, layered, shown
from onecat.planner.records import ContainerPlan, HostMount, Layout, LayoutOption, Plan, Reason
from onecat.planner.refusals import Situation, longest_context, refusals

CONTAINER_PORT = 8000
"""Port of the server inside its container; the published port is the deployment's."""

RAY_SOURCE = "https://docs.vllm.ai/en/stable/serving/parallelism_scaling/"
GIB = 2**30


def make_plan(
    deployment: Deployment,
    profile: Profile,
    checkpoint: Checkpoint,
    facts: Facts | None = None,
    command_line: Mapping[str, FlagValue] | None = None,
) -> Plan:
    """Decide how the server is started, with a reason for each argument. Pure.

    Parameters:
        facts: of the host; without them the profile's hardware is assumed.
        command_line: `vllm serve` flags typed with the command; they win over all files. Text is converted to the
            flag's type.

    What the engine would refuse is in the plan's `refusals`. Raises OnecatError (exit code 2) for flags that the
    engine version does not have, or values that are none for their flag.
    """
    schema = flag_schema(profile.engine.name, profile.engine.version)
    settings = layered(schema, profile, deployment, command_line or {})
    settings = _within_checkpoint(settings, checkpoint)
    if deployment.ray is not None:
        settings = _through_ray(settings, schema)
    runtime = deployment.runtime or profile.launch.runtime
    served_name = deployment.model.served_name or PurePosixPath(deployment.model.path).name
    layout = Layout(
        tensor_parallel=_count(settings, schema, "tensor-parallel-size"),
        pipeline_parallel=_count(settings, schema, "pipeline-parallel-size"),
        replicas=_count(settings, schema, "data-parallel-size"),
    )
    hosts = len(deployment.hosts) if deployment.ray is not None else 1
    gpus = -(-layout.tensor_parallel * layout.pipeline_parallel * layout.replicas // hosts)
    container = None
    if runtime == "container":
        container = ContainerPlan(
            image=profile.image.tag,
            model_mount=f"/models/{_file_name(served_name)}",
            shm_bytes=profile.launch.container.shm_size_mib * 2**20,
            gpus=gpus if profile.hardware.accelerator == "nvidia" else 0,
            devices=_devices(profile, gpus),
            mounts=tuple(HostMount(each.path, each.target or each.path) for each in profile.launch.container.mounts),
        )
    environment = {each.name: each.value for each in profile.launch.env} | deployment.env
    situation = Situation(
        schema=schema,
        settings=settings,
        environment=environment,
        profile=profile,
        checkpoint=checkpoint,
        layout=layout,
        capability=_capability(profile, facts),
        gpus=_gpus(facts),
        npus=_npus(facts) if profile.hardware.accelerator == "ascend" else None,
        hosts=hosts,
    )
    arguments, reasons = _arguments(deployment, settings, container, served_name)
    return Plan(
        deployment=deployment.name,
        profile=profile.name,
        engine=profile.engine.name,
        engine_version=profile.engine.version,
        runtime=runtime,
        model_directory=deployment.model.path,
        served_name=served_name,
        host=deployment.host,
        port=deployment.port,
        server_args=arguments,
        env=tuple(sorted(environment.items())),
        layout=layout,
        layouts=_layouts(profile, layout),
        container=container,
        reasons=reasons + _environment_reasons(deployment, profile),
        refusals=refusals(situation),
        warnings=_warnings(situation, facts),
    )


def _through_ray(settings: dict[str, Setting], schema: FlagSchema) -> dict[str, Setting]:
    """Of several hosts the engine's workers are started by Ray."""
    name, value = "distributed-executor-backend", "ray"
    flag = schema.flag(name, value)
    if name in settings or flag is None:
        return settings
    why = "ray in onecat.yaml: the workers are on several hosts"
    return {**settings, name: Setting(flag, value, "planner", why, None, RAY_SOURCE)}


def _devices(profile: Profile, cards: int) -> tuple[str, ...]:
    """The device nodes that a container gets for its first `cards` accelerators."""
    nodes: list[str] = []
    for each in profile.launch.container.devices:
        nodes += [f"{each.path}{number}" for number in range(cards)] if each.per_accelerator else [each.path]
    return tuple(nodes)


def _layouts(profile: Profile, layout: Layout) -> tuple[LayoutOption, ...]:
    """The profile's layouts, the one that the flags came to marked."""
    return tuple(
        LayoutOption(
            each.name,
            each.when,
            each.why,
            tuple(_selecting(profile, index).items()),
            selected=layout == Layout(each.tensor_parallel, each.pipeline_parallel, each.replicas),
        )
        for index, each in enumerate(profile.launch.layouts)
    )


def _selecting(profile: Profile, index: int) -> dict[str, int]:
    """The flags under serve that choose a layout: its own, and those that take the default's back."""
    layouts = profile.launch.layouts
    if index == 0:
        return {}
    undone = {name: 1 for name in layouts[0].flags if name not in layouts[index].flags}
    return {**layouts[index].flags, **undone}


def _within_checkpoint(settings: dict[str, Setting], checkpoint: Checkpoint) -> dict[str, Setting]:
    """A profile's context length is for all checkpoints of its class; one with a shorter context gets its own."""
    setting, limit = settings.get("max-model-len"), longest_context(checkpoint)
    if setting is None or setting.layer != "profile" or limit is None or not isinstance(setting.value, (int, str)):
        return settings
    length = parse_size(setting.value)
    if length is None or length <= limit:
        return settings
    why = f"the checkpoint's max_position_embeddings; the profile's {shown(setting.value)} is longer than that"
    lowered = replace(setting, value=limit, layer="planner", why=why, source=None, instead_of=setting.value)
    return {**settings, "max-model-len": lowered}


def _arguments(
    deployment: Deployment, settings: Mapping[str, Setting], container: ContainerPlan | None, served_name: str
) -> tuple[tuple[str, ...], tuple[Reason, ...]]:
    """The words after `vllm serve` and their reasons: the model, then what onecat sets, then flags by name."""
    model = deployment.model.path if container is None else container.model_mount
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
    arguments = [model, "--served-model-name", served_name, "--host", host, "--port", str(port)]
    for name, setting in sorted(settings.items()):
        flag_words = words(setting.flag, setting.value)
        if flag_words:
            arguments += flag_words
        reasons.append(Reason(f"--{name}", shown(setting.value), setting.why, setting.layer, setting.source))
    return tuple(arguments), tuple(reasons)


def _layer(deployment: Deployment, *path: str) -> Literal["onecat.yaml", "command line", "planner"]:
    layer = deployment.origin(*path).layer
    return layer if layer == "command line" else "planner" if layer == "default" else "onecat.yaml"


def _environment_reasons(deployment: Deployment, profile: Profile) -> tuple[Reason, ...]:
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
    return tuple(reasons)


def _count(settings: Mapping[str, Setting], schema: FlagSchema, name: str) -> int:
    value = settings[name].value if name in settings else schema.default(name)
    return max(1, value) if isinstance(value, int) else 1


def _file_name(text: str) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")
    return name or "model"


def _capability(profile: Profile, facts: Facts | None) -> int | None:
    """Ten times the compute capability of the weakest GPU seen, or else of the profile's."""
    gpus = facts.nvidia.gpus if facts is not None and facts.nvidia is not None else ()
    seen = [each.compute_capability for each in gpus if each.compute_capability]
    known = seen or [each for each in (profile.hardware.compute_capability,) if each]
    told = [each.partition(".") for each in known]
    return min((10 * int(a) + int(b) for a, _, b in told if a.isdecimal() and b.isdecimal()), default=None)


def _gpus(facts: Facts | None) -> int | None:
    nvidia = facts.nvidia if facts is not None else None
    if nvidia is None or nvidia.nvml_error is not None or nvidia.library_found is None:
        return None
    return len(nvidia.gpus)


def _npus(facts: Facts | None) -> int | None:
    ascend = facts.ascend if facts is not None else None
    return len(ascend.npus) if ascend is not None and ascend.npus else None


def _size(count: int) -> str:
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / 2**20:.1f} MiB"


def _warnings(at: Situation, facts: Facts | None) -> tuple[str, ...]:
    weights = at.checkpoint.weight_bytes
    warnings = [
        "Whether the model fits is not computed: this onecat has no memory model yet (fits is null). "
        f"The weights are {_size(weights)} on disk."
    ]
    if at.schema.unknown is not None:
        warnings.append(
            f"The flags of {at.schema.family} {at.schema.version} are not known to this onecat and were not checked: "
            f"{at.schema.unknown}."
        )
    statistics = at.settings.get("disable-log-stats")
    if statistics is not None and statistics.value is True:
        warnings.append(
            f"disable-log-stats ({statistics.where}) stops the engine's statistics, which canary, top and preflight "
            "read. Leave it out; explained in: onecat explain serving.statistics"
        )
    stored, used = at.checkpoint.architecture.dtype, at.value("dtype")
    if stored in ("bfloat16", "float16") and used in ("float32", "float"):
        warnings.append(
            f"In float32 the {stored} weights take {_size(2 * weights)} of memory, twice their size on disk."
        )
    hardware = at.profile.hardware
    names = {each.name for each in facts.nvidia.gpus} if facts is not None and facts.nvidia else set()
    others = sorted(names - set(hardware.gpu_names))
    if hardware.accelerator == "nvidia" and others:
        warnings.append(
            f"Profile {at.profile.name} is for {', '.join(hardware.gpu_names)}; the host has {', '.join(others)}."
        )
    needed = at.layout.tensor_parallel * at.layout.pipeline_parallel * at.layout.replicas
    if at.gpus is None and hardware.count and needed > hardware.count:
        warnings.append(
            f"The layout needs {needed} GPUs; profile {at.profile.name} is for hosts with {hardware.count}."
        )
    if hardware.accelerator == "none" and at.layout.tensor_parallel > 1:
        warnings.append("tensor-parallel-size above 1 on a CPU means one worker per NUMA node.")
    return tuple(warnings)


def _why_host(deployment: Deployment) -> str:
    """Who reaches a native server at the address it listens on."""
    behind = (
        "; nginx passes requests on to it" if deployment.proxy.kind == "nginx" else "; nothing stands in front of it"
    )
    if deployment.host in ("127.0.0.1", "::1", "localhost"):
        return "only this machine reaches the server itself" + behind
    return "the server itself can be reached from the network" + behind
