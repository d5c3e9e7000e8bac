"""From deployment, profile, checkpoint and facts to a plan: the question is asked, decided and told. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath

from onecat.checkpoints import Checkpoint
from onecat.config import Deployment, Profile
from onecat.facts import Facts
from onecat.planner.asking import question_of
from onecat.planner.bare import NAME
from onecat.planner.command import arguments_of, environment_reasons
from onecat.planner.containers import container_of
from onecat.planner.deciding import Decision, decide, rough_seconds
from onecat.planner.flags import FlagValue
from onecat.planner.prompts import Prompts
from onecat.planner.records import Layout, LayoutOption, Plan
from onecat.planner.refusals import IMPOSSIBLE, Situation, refusals
from onecat.planner.resolved import resolved_reasons, shared_memory_reason
from onecat.planner.sizing import why_unknown
from onecat.planner.told import memory_of, told_candidates
from onecat.planner.warnings import warnings_of


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
    return _plan(deployment, profile, facts, decide(question, profile, prompts), prompts)


def _plan(
    deployment: Deployment, profile: Profile, facts: Facts | None, made: Decision, prompts: Prompts | None
) -> Plan:
    question, layout = made.question, made.layout
    runtime = deployment.runtime or profile.launch.runtime
    served_name = deployment.model.served_name or PurePosixPath(deployment.model.path).name
    hosts = len(deployment.hosts) if deployment.ray is not None else 1
    gpus = -(-layout.cards // hosts)
    container = container_of(profile, served_name, gpus) if runtime == "container" else None
    situation = Situation(
        question=question,
        profile=profile,
        layout=layout,
        gpus=_gpus(facts),
        npus=_npus(facts) if profile.hardware.accelerator == "ascend" else None,
        hosts=hosts,
        sizing=made.sizing,
    )
    arguments, reasons = arguments_of(deployment, question.settings, container, served_name)
    given = None if container is None else container.shm_bytes // 2**20
    reasons += resolved_reasons(question, made.sizing, prompts)
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
        reasons=reasons + environment_reasons(deployment, profile, question.derived),
        refusals=refusals(situation),
        warnings=warnings_of(situation, facts, made.compared),
        candidates=told_candidates(made.compared),
    )
    if made.sizing is None:
        return replace(plan, unknown=why_unknown(question, layout))
    possible = not any(each.code in IMPOSSIBLE for each in plan.refusals)
    sized = memory_of(plan, made.sizing)
    return replace(sized, fits=sized.fits and possible, rough_seconds_per_token=rough_seconds(made, prompts))


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


def _gpus(facts: Facts | None) -> int | None:
    nvidia = facts.nvidia if facts is not None else None
    if nvidia is None or nvidia.nvml_error is not None or nvidia.library_found is None:
        return None
    return len(nvidia.gpus)


def _npus(facts: Facts | None) -> int | None:
    ascend = facts.ascend if facts is not None else None
    return len(ascend.npus) if ascend is not None and ascend.npus else None
