"""The question of a plan: from deployment, profile, checkpoint and facts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from onecat.checkpoints import Checkpoint
from onecat.config import Deployment, Profile
from onecat.engines import FlagSchema, parse_size
from onecat.facts import Facts
from onecat.planner.bare import schema_for
from onecat.planner.capabilities import tenfold
from onecat.planner.flags import FlagValue, Setting, layered, shown
from onecat.planner.hardware import hardware_of
from onecat.planner.processors import with_binding
from onecat.planner.questions import Question
from onecat.planner.refusals import longest_context

RAY_SOURCE = "https://docs.vllm.ai/en/stable/serving/parallelism_scaling/"


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
    question = Question(
        schema,
        profile.engine.version,
        settings,
        environment,
        checkpoint,
        hardware,
        _capability(profile, facts),
        profile.engine.name,
    )
    return with_binding(question, facts)


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


def _through_ray(settings: dict[str, Setting], schema: FlagSchema) -> dict[str, Setting]:
    """Of several hosts the engine's workers are started by Ray."""
    name, value = "distributed-executor-backend", "ray"
    flag = schema.flag(name, value)
    if name in settings or flag is None:
        return settings
    why = "ray in onecat.yaml: the workers are on several hosts"
    return {**settings, name: Setting(flag, value, "planner", why, None, RAY_SOURCE)}


def _capability(profile: Profile, facts: Facts | None) -> int | None:
    """Ten times the compute capability of the weakest GPU seen, or else of the profile's."""
    gpus = facts.nvidia.gpus if facts is not None and facts.nvidia is not None else ()
    seen: list[str | None] = [each.compute_capability for each in gpus if each.compute_capability]
    known = map(tenfold, seen or [profile.hardware.compute_capability])
    return min((each for each in known if each is not None), default=None)
