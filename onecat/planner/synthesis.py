"""From deployment, profile, checkpoint and facts to a plan."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from onecat.checkpoints import Checkpoint
from onecat.config import Deployment, Profile
from onecat.engines import FlagSchema, parse_size
from onecat.facts import Facts
from onecat.planner.arguments import with_batch, with_sizes
from onecat.planner.bare import NAME, schema_for
from onecat.planner.command import arguments_of, environment_reasons
from onecat.planner.cost import cost_of, load_of
from onecat.planner.data_types import with_types
from onecat.planner.flags import FIELDS, FlagValue, Setting, layered, shown
from onecat.planner.hardware import hardware_of
from onecat.planner.layouts import EXPERT_PARALLEL, Candidate, candidate, ranked
from onecat.planner.prompts import Prompts
from onecat.planner.records import ContainerPlan, HostMount, Layout, LayoutOption, Plan
from onecat.planner.refusals import IMPOSSIBLE, Situation, longest_context, refusals
from onecat.planner.resolved import resolved_reasons, shared_memory_reason
from onecat.planner.sizing import Question, Sizing, size, why_unknown
from onecat.planner.told import memory_of, told_candidates
from onecat.planner.topology import arranged
from onecat.planner.warnings import warnings_of

RAY_SOURCE = "https://docs.vllm.ai/en/stable/serving/parallelism_scaling/"
EXPERT_SOURCE = "https://docs.vllm.ai/en/latest/serving/expert_parallel_deployment/"
LAYOUT_SOURCE = "https://docs.vllm.ai/en/latest/serving/parallelism_scaling/"


def make_plan(
    deployment: Deployment,
    profile: Profile,
    checkpoint: Checkpoint,
    facts: Facts | None = None,
    command_line: Mapping[str, FlagValue] | None = None,
    prompts: Prompts | None = None,
) -> Plan:
    """Decide how the server is started, with a reason for each argument. Pure.

    Parameters:
        facts: of the host; without them the profile's hardware is assumed.
        command_line: `vllm serve` flags typed with the command; they win over all files. Text is converted to the
            flag's type.
        prompts: lengths of the requests to come, for the sizes of a batch.

    A profile without layouts leaves the layout to the planner, which takes the best of all that the cards allow.
    What the engine would refuse is in the plan's `refusals`. Raises OnecatError (exit code 2) for flags that the
    engine version does not have, or values that are none for their flag.
    """
    question = question_of(deployment, profile, checkpoint, facts, command_line)
    return _plan(deployment, profile, facts, _decide(question, profile, prompts), prompts)


def question_of(
    deployment: Deployment,
    profile: Profile,
    checkpoint: Checkpoint,
    facts: Facts | None = None,
    command_line: Mapping[str, FlagValue] | None = None,
) -> Question:
    """What the memory model and the comparison of layouts are asked: flags of all layers, variables, hardware.

    Raises OnecatError (exit code 2) as `make_plan`.
    """
    schema = schema_for(profile)
    settings = layered(schema, profile, deployment, command_line or {})
    settings = _within_checkpoint(settings, checkpoint)
    if deployment.ray is not None:
        settings = _through_ray(settings, schema)
    hardware = hardware_of(profile, facts, deployment.gpus)
    environment = {each.name: each.value for each in profile.launch.env} | deployment.env
    return Question(
        schema,
        profile.engine.version,
        settings,
        environment,
        checkpoint,
        hardware,
        _capability(profile, facts),
        profile.engine.name,
    )


@dataclass(frozen=True)
class Decision:
    """What a plan comes to. question: with all flags, those of the planner among them. compared: layouts by rank."""

    question: Question
    layout: Layout
    sizing: Sizing | None
    compared: tuple[Candidate, ...]


def _decide(question: Question, profile: Profile, prompts: Prompts | None) -> Decision:
    """The layout, then the arguments for it, then the memory that they take."""
    open_layout = not profile.launch.layouts and not any(name in question.settings for name in FIELDS)
    is_open = not profile.launch.layouts
    question = with_types(question, is_open=is_open)

    def with_own(asked: Question, layout: Layout) -> Question:
        return with_batch(asked, layout, prompts, is_open=is_open)

    compared = ranked(question, prompts=prompts, settled=with_own) if len(question.hardware.cards) > 1 else ()
    if open_layout and compared:
        question = _with_layout(question, compared[0])
    layout = layout_of(question.settings, question.schema)
    none_holds = bool(compared) and all(each.sizing.largest < (each.sizing.possible or 0) for each in compared)
    if compared and all(each.layout != layout for each in compared):
        own = candidate(with_own(question, layout), layout, prompts)
        compared = compared if own is None else (*compared, own)
    question = with_sizes(question, layout, prompts, is_open=is_open, none_holds=none_holds)
    sizing = size(question, layout)
    return Decision(question, layout, sizing, compared)


def _with_layout(question: Question, best: Candidate) -> Question:
    settings = dict(question.settings)
    layout = best.layout
    counts = {
        "tensor-parallel-size": layout.tensor_parallel,
        "pipeline-parallel-size": layout.pipeline_parallel,
        "data-parallel-size": layout.replicas,
    }
    for name, count in counts.items():
        flag = question.schema.flag(name, count)
        if flag is not None and count != question.schema.default(name):
            why = f"the best of the layouts that were compared: {best.why}"
            settings[name] = Setting(flag, count, "planner", why, None, LAYOUT_SOURCE)
    flag = question.schema.flag(EXPERT_PARALLEL, True)
    if best.experts_whole and flag is not None and EXPERT_PARALLEL not in settings:
        why = "the ranks of this layout cannot each have a part of every expert: they get whole ones"
        settings[EXPERT_PARALLEL] = Setting(flag, True, "planner", why, None, EXPERT_SOURCE)
    return replace(question, settings=settings)


def _plan(
    deployment: Deployment, profile: Profile, facts: Facts | None, made: Decision, prompts: Prompts | None
) -> Plan:
    question, layout = made.question, made.layout
    settings, schema = question.settings, question.schema
    runtime = deployment.runtime or profile.launch.runtime
    served_name = deployment.model.served_name or PurePosixPath(deployment.model.path).name
    hosts = len(deployment.hosts) if deployment.ray is not None else 1
    gpus = -(-layout.tensor_parallel * layout.pipeline_parallel * layout.replicas // hosts)
    container = _container(profile, served_name, gpus) if runtime == "container" else None
    situation = Situation(
        schema=schema,
        settings=settings,
        environment=question.environment,
        profile=profile,
        checkpoint=question.checkpoint,
        layout=layout,
        capability=question.capability,
        gpus=_gpus(facts),
        npus=_npus(facts) if profile.hardware.accelerator == "ascend" else None,
        hosts=hosts,
        question=question,
        sizing=made.sizing,
    )
    arguments, reasons = arguments_of(deployment, settings, container, served_name)
    given = None if container is None else container.shm_bytes // 2**20
    reasons += resolved_reasons(question, made.sizing)
    if profile.hardware.accelerator == "nvidia" and (profile.name == NAME or given):
        shared = shared_memory_reason(layout, given)
        reasons += () if shared is None else (shared,)
    plan = Plan(
        deployment=deployment.name,
        profile=None if profile.name == NAME else profile.name,
        engine=profile.engine.name,
        engine_version=profile.engine.version,
        runtime=runtime,
        model_directory=deployment.model.path,
        served_name=served_name,
        host=deployment.host,
        port=deployment.port,
        server_args=arguments,
        env=tuple(sorted(question.environment.items())),
        layout=layout,
        layouts=_layouts(profile, layout),
        container=container,
        reasons=reasons + environment_reasons(deployment, profile),
        refusals=refusals(situation),
        warnings=warnings_of(situation, facts, made.compared),
        candidates=told_candidates(made.compared),
    )
    if made.sizing is None:
        return replace(plan, unknown=why_unknown(question, layout))
    possible = not any(each.code in IMPOSSIBLE for each in plan.refusals)
    sized = memory_of(plan, made.sizing)
    return replace(sized, fits=sized.fits and possible, rough_seconds_per_token=_rough_seconds(made, prompts))


def _rough_seconds(made: Decision, prompts: Prompts | None) -> float | None:
    """Of a token when the machine is busy; None where nothing is known of the cards' speed."""
    found, layout = made.sizing, made.layout
    if found is None or made.question.hardware.platform != "cuda" or not found.fits:
        return None
    architecture, hardware = made.question.checkpoint.architecture, made.question.hardware
    cards = arranged(hardware, layout.tensor_parallel, len(found.cards) * layout.replicas)
    if len(cards) < len(found.cards) * layout.replicas:
        cards = found.cards * layout.replicas
    return cost_of(architecture, hardware, cards, layout, found, load_of(prompts, hardware.speeds)).token


def _container(profile: Profile, served_name: str, gpus: int) -> ContainerPlan:
    return ContainerPlan(
        image=profile.image.tag,
        model_mount=f"/models/{_file_name(served_name)}",
        shm_bytes=profile.launch.container.shm_size_mib * 2**20,
        gpus=gpus if profile.hardware.accelerator == "nvidia" else 0,
        devices=_devices(profile, gpus),
        mounts=tuple(HostMount(each.path, each.target or each.path) for each in profile.launch.container.mounts),
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


def layout_of(settings: Mapping[str, Setting], schema: FlagSchema) -> Layout:
    """The layout that the flags come to."""
    return Layout(
        tensor_parallel=_count(settings, schema, "tensor-parallel-size"),
        pipeline_parallel=_count(settings, schema, "pipeline-parallel-size"),
        replicas=_count(settings, schema, "data-parallel-size"),
    )


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
