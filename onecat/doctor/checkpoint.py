"""What the checks of the checkpoint ask again and again."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from onecat.doctor.context import Context
from onecat.doctor.cuda_code import capability_of
from onecat.doctor.hardware import compute_capability, meant
from onecat.doctor.registry import Verdict
from onecat.errors import OnecatError

if TYPE_CHECKING:
    from onecat.checkpoints import Checkpoint
    from onecat.checkpoints.integrity import Fault
    from onecat.engines import FlagSchema

MOST = 8
"""Findings of one check about one checkpoint; the rest are counted."""


def read(context: Context) -> str | None:
    """The checkpoint was read: a requirement of checks, with the reason where it was not."""
    settings = context.settings
    if settings.model is None:
        return "no checkpoint was named (--model PATH)"
    place = shlex.quote(settings.model)
    if settings.assessment is None:
        return f"the checkpoint lies on another machine; type there: onecat doctor --model {place}"
    if settings.assessment.checkpoint is None and is_hub_name(settings.model):
        return f"{settings.model} names a model of a hub; fetch it first: onecat model pull {place} DIRECTORY"
    if settings.assessment.checkpoint is None:
        return f"the checkpoint could not be read: {settings.assessment.error}"
    return None


def is_hub_name(model: str) -> bool:
    """Whether a text may name a model of a hub, as ORG/NAME, in place of a path."""
    return re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", model) is not None


def whole_directory(context: Context) -> str | None:
    """The checkpoint was read from a directory of its own."""
    if (reason := read(context)) is not None:
        return reason
    assert context.settings.assessment is not None
    return None if context.settings.assessment.faults is not None else "only a config.json was named, no directory"


def checkpoint_of(context: Context) -> Checkpoint:
    """The checkpoint; only for checks that require `read`."""
    assert context.settings.assessment is not None and context.settings.assessment.checkpoint is not None
    return context.settings.assessment.checkpoint


def faults_of(context: Context) -> tuple[Fault, ...]:
    """What is wrong with the directory, nothing where there is none; only for checks that require `read`."""
    assert context.settings.assessment is not None
    return context.settings.assessment.faults or ()


def untold_of(context: Context) -> tuple[Fault, ...]:
    """What `model inspect` says beside `faults_of`, as `model verify` tells it; only for checks that require `read`."""
    from pathlib import Path

    from onecat.checkpoints.integrity import untold

    seen = checkpoint_of(context)
    return tuple(untold(seen, Path(seen.directory), {fault.code for fault in faults_of(context)}))


def verdicts(faults: Iterable[Fault], fine: str, model: str) -> Iterator[Verdict]:
    """One finding for each fault, the worst first, or one that all is fine."""
    found = sorted(faults, key=lambda fault: ("fail", "warn", "info").index(fault.severity))
    command = f"onecat model verify {shlex.quote(model)}"
    for fault in found[:MOST]:
        yield Verdict(
            fault.severity,
            f"{fault.where} {fault.text}",
            fault.where,
            (f"{fault.where}: {fault.text}",),
            (fault.fix or command,),
            fault.why,
            (fault.source,),
        )
    if len(found) > MOST:
        rest = found[MOST:]
        told = f"{len(rest)} more findings about this checkpoint"
        yield Verdict(rest[0].severity, told, "", (f"listed by: {command}",), (command,))
    if not any(fault.severity in ("fail", "warn") for fault in found):
        yield Verdict("pass", fine, model)


def schema_of(context: Context) -> FlagSchema | None:
    """What the engine of the profile accepts, None where onecat does not know it."""
    from onecat.engines import flag_schema

    if context.profile is None:
        return None
    engine, patches = context.profile.engine, context.profile.image.patches
    try:
        schema = flag_schema(engine.name, engine.version, patches)
    except OnecatError:  # a version whose parser was not read, while others of the engine were
        return None
    return schema if schema.unknown is None else None


def weakest_capability(context: Context) -> int | None:
    """The least compute capability, ten times, of the GPUs that the server is to use, else of the profile's."""
    if context.profile is not None and context.profile.hardware.accelerator != "nvidia":
        return None
    known = [capability_of(compute_capability(gpu)) for gpu in meant(context)]
    if context.profile is not None and not known:
        known = [capability_of(context.profile.hardware.compute_capability)]
    pairs = [each for each in known if each is not None]
    return min(major * 10 + minor for major, minor in pairs) if pairs else None


def told_capability(capability: int) -> str:
    """A compute capability as people write it: 7.0."""
    return f"{capability // 10}.{capability % 10}"


def flag(context: Context, name: str) -> bool | int | float | str | None:
    """A flag of the server as onecat.yaml, else the profile, sets it; None when neither does."""
    for key, value in context.settings.serve or ():
        if key == name:
            return value
    arguments = context.profile.launch.args if context.profile is not None else ()
    return next((each.value for each in arguments if each.arg == name), None)


def divisions(context: Context) -> tuple[int, int]:
    """Tensor and pipeline parallel sizes, by onecat.yaml or by the profile's first layout; 1 and 1 without either."""
    layouts = context.profile.launch.layouts if context.profile is not None else ()
    default = (layouts[0].tensor_parallel, layouts[0].pipeline_parallel) if layouts else (1, 1)
    asked = (flag(context, "tensor-parallel-size"), flag(context, "pipeline-parallel-size"))
    if not any(type(each) is int and each > 0 for each in asked):
        return default
    return tuple(each if type(each) is int and each > 0 else 1 for each in asked)  # type: ignore[return-value]
