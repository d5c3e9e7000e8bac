"""What `onecat plan` is about: a deployment or cards alone, a checkpoint, flags and facts."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from onecat.errors import OnecatError

if TYPE_CHECKING:
    from onecat.checkpoints import Checkpoint
    from onecat.config import Deployment, Profile
    from onecat.facts import Facts
    from onecat.planner import Plan
    from onecat.planner.comparison import Case
    from onecat.planner.flags import FlagValue
    from onecat.planner.prompts import Prompts

NO_CARDS = "--gpu NAME, --profile NAME, or --what-if gpu=NAME,NAME"


@dataclass(frozen=True)
class Cards:
    """Cards without a profile. name: as typed; memory_gib: of one, None for what the table says."""

    name: str | None
    count: int
    memory_gib: float | None = None
    engine: str | None = None
    version: str | None = None

    def profile(self) -> Profile:
        """What such cards need. Raises OnecatError (exit code 2)."""
        from onecat.planner.bare import named_gpu, profile_for

        if self.name is None:
            raise OnecatError("no card is named", expected=NO_CARDS)
        model = named_gpu(self.name, self.memory_gib)
        return profile_for(model, self.count, _shipped_profiles(), self.engine, self.version)


@functools.cache
def _shipped_profiles() -> tuple[Profile, ...]:
    """Each case of a comparison asks for them, and they do not change under a running program."""
    from onecat.config import list_profiles, load_profile

    return tuple(load_profile(name) for name in list_profiles())


@dataclass(frozen=True)
class Subject:
    """What is planned. cards: in place of the deployment's profile, which is None then."""

    deployment: Deployment
    profile: Profile | None
    checkpoint: Checkpoint
    flags: Mapping[str, FlagValue]
    cards: Cards | None = None
    facts: Facts | None = None
    prompts: Prompts | None = None

    def here(self, facts: Facts) -> Subject:
        """The same on this machine, where it has cards, if the profile is for cards: else the plan is for another."""
        cards = facts.nvidia is not None and facts.nvidia.gpus
        fits = self.profile is not None and (self.profile.hardware.accelerator != "nvidia" or cards)
        return replace(self, facts=facts) if fits else self

    def varied(self, case: Case) -> Subject:
        """The same with what a case says otherwise; other cards than the host's leave its facts behind."""
        flags = {**self.flags, **dict(case.flags)}
        if case.gpu is None and case.gpus is None:
            return replace(self, flags=flags)
        base = self.cards or _cards_of(self.profile)
        name, count = case.gpu or base.name, case.gpus or base.count
        cards = replace(base, name=name, count=count, memory_gib=base.memory_gib if case.gpu is None else None)
        return replace(self, flags=flags, cards=cards, facts=None)

    def plan(self) -> Plan:
        """The plan. Raises OnecatError for flags that the engine does not have."""
        from onecat.planner import make_plan

        profile = self.cards.profile() if self.cards is not None else self.profile
        assert profile is not None
        return make_plan(self.deployment, profile, self.checkpoint, self.facts, dict(self.flags), self.prompts)


def _cards_of(profile: Profile | None) -> Cards:
    if profile is None or profile.hardware.accelerator != "nvidia":
        return Cards(None, 1)
    name = next(iter(profile.hardware.gpu_names), None)
    return Cards(name, profile.hardware.count, None, profile.engine.name, profile.engine.version)


def subject_of(
    *,
    config: Path | None,
    model: Path | None,
    profile: str | None,
    runtime: str | None,
    gpu: str | None,
    gpus: int | None,
    gpu_memory: float | None,
    engine: str | None,
    engine_version: str | None,
    flags: Mapping[str, FlagValue],
    prompts: str | None,
    what_if: list[str],
) -> Subject:
    """What the options mean. Raises OnecatError (exit code 2) for options that do not go together."""
    from onecat.config import load_profile

    if gpu is not None and profile is not None:
        raise OnecatError("--gpu and --profile are both given", expected="one of them: a profile names its cards")
    is_bare = gpu is not None or (
        profile is None and config is None and model is not None and any(each.startswith("gpu=") for each in what_if)
    )
    told = {"--gpus": gpus, "--gpu-memory": gpu_memory, "--engine": engine, "--engine-version": engine_version}
    given = [name for name, value in told.items() if value is not None]
    if given and not is_bare and gpu_memory is None:
        raise OnecatError(f"{given[0]} without --gpu", expected=NO_CARDS)
    lengths = None if prompts is None else read_prompts(prompts)
    if is_bare or gpu_memory is not None:
        cards = Cards(
            gpu or ("a card" if gpu_memory is not None else None), gpus or 1, gpu_memory, engine, engine_version
        )
        deployment = bare_deployment(config, model)
        checkpoint = checkpoint_to_plan(Path(deployment.model.path))
        return Subject(deployment, None, checkpoint, flags, cards, prompts=lengths)
    deployment = planned_deployment(config, model, profile, runtime)
    checkpoint = checkpoint_to_plan(Path(deployment.model.path))
    return Subject(deployment, load_profile(deployment.profile), checkpoint, flags, prompts=lengths)


def planned_deployment(config: Path | None, model: Path | None, profile: str | None, runtime: str | None) -> Deployment:
    """The deployment that the options mean: of a file, or of --model and --profile alone."""
    from onecat.cli.up import config_file
    from onecat.config import deployment_from, deployment_name, load_deployment

    options = {"model.path": str(model) if model else None, "profile": profile, "runtime": runtime}
    overrides = {name: value for name, value in options.items() if value is not None}
    file = config_file(config or Path("onecat.yaml"))
    if config is None and model is not None and profile is not None:
        return deployment_from({"name": deployment_name(_name_of(model)), **overrides})
    if config is None and not file.exists():
        raise OnecatError(
            "there is no onecat.yaml here",
            expected="--config FILE, or --model PATH with --profile NAME or --gpu NAME",
            where=str(file.absolute()),
            next_steps=[
                "onecat init",
                "onecat plan --model DIRECTORY --profile cpu",
                "onecat plan --model DIRECTORY --gpu h100 --gpus 2",
            ],
        )
    return load_deployment(file, overrides)


def _name_of(model: Path) -> str:
    """A model's name from its path: that of the directory also where its config.json is named."""
    path = model.absolute()
    return path.parent.name if path.name == "config.json" and path.parent.name else path.stem or path.name


def bare_deployment(config: Path | None, model: Path | None) -> Deployment:
    """A deployment of a model alone; its profile means nothing. Raises OnecatError without a model."""
    from onecat.planner.bare import NAME

    if model is None and config is None and not Path("onecat.yaml").exists():
        raise OnecatError(
            "no model is named", expected="--model PATH", next_steps=["onecat plan --model PATH --gpu h100"]
        )
    found = planned_deployment(config, model, "cpu" if model is not None else None, None)
    path = Path(found.model.path)
    if path.name == "config.json":
        found = found.model_copy(update={"model": found.model.model_copy(update={"path": str(path.parent)})})
    return found.model_copy(update={"profile": NAME, "runtime": "native", "serve": {}, "env": {}, "ray": None})


def checkpoint_to_plan(path: Path) -> Checkpoint:
    """A checkpoint; while its weights are still to be downloaded their absence is no problem."""
    from onecat.checkpoints import inspect
    from onecat.planner.download import without_absent_files

    found = inspect(path)
    return found if found.files else without_absent_files(found)


def read_prompts(text: str) -> Prompts:
    """Lengths as typed, or of the file that is named. Raises OnecatError (exit code 2)."""
    from onecat.planner.prompts import parse_distribution, parse_lines

    path = Path(text)
    if "%" in text or not path.is_file():
        return parse_distribution(text)
    return parse_lines(path.read_text(encoding="utf-8-sig", errors="replace").splitlines(), text)


def facts_here() -> Facts:
    """Facts of this machine."""
    from onecat.cli.machines import facts_of, local_machine

    return facts_of(local_machine())
