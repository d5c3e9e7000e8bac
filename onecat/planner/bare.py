"""A profile for cards alone, where a person names GPUs and no profile: a plan for them has no deployment. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from onecat.config import Profile
from onecat.config.schema import Hardware as ProfileHardware
from onecat.config.schema import ImageRecipe, Launch
from onecat.engines import flag_schema
from onecat.errors import OnecatError
from onecat.knowledge.hardware import GpuModel, find_gpu, gpu_names

NAME = "gpu"
"""What stands in place of a profile's name."""

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
            expected=f"a name as nvidia-smi prints it, or one of: {', '.join(gpu_names())}",
            next_steps=["tell its memory: --gpu-memory GIB"],
        )
    if model is None:
        return GpuModel(text, "", (), memory_mib=told)
    if told is None and model.memory_mib is None:
        raise OnecatError(
            f"the memory of {model.name} is not known to onecat",
            expected="its memory, as nvidia-smi shows it",
            next_steps=["tell it: --gpu-memory GIB"],
        )
    from dataclasses import replace

    return model if told is None else replace(model, memory_mib=told)


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
    wanted = version or (base.engine.version if name == base.engine.name else _newest(name, profiles))
    flag_schema(name, wanted)
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
        engine=base.engine.model_copy(update={"name": name, "version": wanted}),
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
