"""A profile for cards alone, where a person names GPUs and no profile: a plan for them has no deployment. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import replace

from pydantic import ValidationError

from onecat.config import Profile
from onecat.config.schema import EnginePin, ImageRecipe, Launch
from onecat.config.schema import Hardware as ProfileHardware
from onecat.engines import FlagSchema, flag_schema
from onecat.engines import engine as engine_of
from onecat.errors import OnecatError
from onecat.knowledge.hardware import GpuModel, find_gpu, gpu_names

NAME = "gpu"
"""What stands in place of a profile's name."""

NEAREST = 5
"""Names that are offered first in place of one that is not known."""

DETAIL_WIDTH = 76
"""Characters of one line of details, which are indented by 4."""

UNSET = ("max-model-len", "max-num-seqs", "max-num-batched-tokens", "dtype")
"""Flags of profiles that the planner chooses itself for cards alone."""


def named_gpu(text: str, memory_gib: float | None = None) -> GpuModel:
    """The product that a person names; one that is not in the table needs its memory told.

    Parameters:
        memory_gib: of one card, over what the table says.

    Raises OnecatError (exit code 2).
    """
    model = find_gpu(text)
    told = None if memory_gib is None else int(memory_gib * 1024)
    if told is not None and told <= 0:
        raise OnecatError(f"--gpu-memory {memory_gib:g}", expected="GiB of one card, as --gpu-memory 24")
    if model is None and told is None:
        raise OnecatError(
            f"onecat knows no GPU `{text}`",
            expected=f"a name as nvidia-smi prints it; the nearest are {', '.join(_nearest_names(text))}",
            next_steps=["tell its memory: --gpu-memory GIB"],
            details=textwrap.wrap(f"known: {', '.join(gpu_names())}", DETAIL_WIDTH, break_on_hyphens=False),
        )
    if model is None:
        return GpuModel(text, "", (), memory_mib=told)
    if told is None and model.memory_mib is None:
        raise OnecatError(
            f"the memory of {model.name} is not known to onecat",
            expected="its memory, as nvidia-smi shows it",
            next_steps=["tell it: --gpu-memory GIB"],
        )
    return model if told is None else replace(model, memory_mib=told)


def _nearest_names(text: str) -> list[str]:
    """The names in the table that are most like what was typed, case aside."""
    import difflib

    asked = text.casefold()

    def likeness(name: str) -> tuple[bool, float]:
        known = name.casefold()
        return asked in known or known in asked, difflib.SequenceMatcher(None, asked, known).ratio()

    return sorted(gpu_names(), key=likeness, reverse=True)[:NEAREST]


def schema_for(profile: Profile) -> FlagSchema:
    """The flags of a profile's engine. For cards alone also a version of which none are known can be asked about: they
    pass unchecked then, and the plan says so.

    Raises OnecatError (exit code 2) for other profiles and for text that is no version.
    """
    name, version = profile.engine.name, profile.engine.version
    try:
        return flag_schema(name, version, profile.image.patches)
    except OnecatError:
        if profile.name != NAME:
            raise
    family = engine_of(name).family
    return FlagSchema(family, version, {}, {}, (), "its parser was not read")


def profile_for(
    model: GpuModel, count: int, profiles: Sequence[Profile], engine: str | None = None, version: str | None = None
) -> Profile:
    """A profile of `count` such cards with nothing but what the engine needs there.

    The engine, its arguments and variables are those of the shipped profile for this card, or else of the one for the
    highest compute capability that is not above the card's; its layouts and limits are left to the planner.

    Raises OnecatError (exit code 2) for an engine or version that onecat does not know.
    """
    base = _nearest(model, profiles, engine)
    name = engine or base.engine.name
    engine_of(name)
    wanted = version or (base.engine.version if name == base.engine.name else _newest(name, profiles))
    same_engine = name == base.engine.name
    launch = base.launch
    kept = tuple(each for each in launch.args if each.arg not in UNSET) if same_engine else ()
    return Profile(
        name=NAME,
        summary=f"{count} x {model.name}",
        hardware=ProfileHardware(
            accelerator="nvidia",
            gpu_names=(model.name,),
            count=count,
            compute_capability=model.compute_capability or None,
            memory_gib=(model.memory_mib or 0) / 1024 or None,
            interconnect="none",
        ),
        engine=_pin(name, wanted),
        image=ImageRecipe(recipe="none", base="none", tag="none"),
        launch=Launch(
            runtime="native",
            runtimes=("native",),
            args=kept,
            env=tuple(each for each in launch.env if same_engine and each.name.startswith("VLLM_USE")),
        ),
        doctor=base.doctor,
        sources=base.sources,
    )


def _pin(name: str, version: str) -> EnginePin:
    """Raises OnecatError (exit code 2) for text that is no version."""
    try:
        return EnginePin.model_validate({"name": name, "version": version})
    except ValidationError:
        raise OnecatError(f"--engine-version {version}", expected="a version of the engine, as 0.27.1") from None


def _nearest(model: GpuModel, profiles: Sequence[Profile], engine: str | None) -> Profile:
    usual = [each for each in profiles if each.hardware.accelerator == "nvidia" and each.alternative is None]
    same = [each for each in usual if model.name in each.hardware.gpu_names]
    if same:
        return min(same, key=lambda each: (engine is not None and each.engine.name != engine, each.hardware.count))
    capability = model.capability if model.compute_capability else None

    def below(profile: Profile) -> int:
        stated = (profile.hardware.compute_capability or "0.0").replace(".", "")
        return (capability or 1000) - int(stated)

    able = [each for each in usual if below(each) >= 0]
    return min(able or usual, key=lambda each: (abs(below(each)), each.hardware.count, each.name))


def _newest(engine: str, profiles: Sequence[Profile]) -> str:
    versions = [each.engine.version for each in profiles if each.engine.name == engine]
    return versions[0] if versions else "0.27.1"
