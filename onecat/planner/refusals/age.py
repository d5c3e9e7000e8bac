"""Models and ways to store weights that a release of the engine does not know yet, or no longer."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import InvalidVersion, Version

from onecat.engines import added_after, removed_after
from onecat.knowledge.releases import FirstRelease, first_releases
from onecat.planner.records import Refusal
from onecat.planner.refusals.situation import Situation

FAMILY = "vllm"


def engine_age(at: Situation) -> Iterator[Refusal]:
    """The engine is too old for the architecture or for the scheme of its weights."""
    version = _version(at)
    if version is None:
        return
    architecture = at.checkpoint.architecture.name
    for row in first_releases():
        what = _concerns(row, at)
        if what is not None and version < Version(row.not_before):
            yield Refusal(
                "engine-too-old",
                f"{at.profile.engine.name} {version} cannot serve {what}: no release before {row.not_before} does "
                f"({row.source})",
                (f"take vLLM {row.not_before} or later",),
            )
            return
    later = None if architecture is None else added_after(FAMILY, str(version), architecture)
    if later is not None:
        # Transformers' own implementation may stand in for one that is missing.
        yield Refusal(
            "engine-too-old",
            f"{at.profile.engine.name} {version} does not know the architecture {architecture}; {later} does",
            (f"take vLLM {later}",),
            certain=False,
        )


def removed(at: Situation) -> Iterator[Refusal]:
    """The engine has dropped the architecture."""
    version, architecture = _version(at), at.checkpoint.architecture.name
    last = None if version is None or architecture is None else removed_after(FAMILY, str(version), architecture)
    if last is not None:
        yield Refusal(
            "architecture-removed",
            f"{at.profile.engine.name} {version} no longer serves {architecture}: the last release that did is {last} "
            "(_PREVIOUSLY_SUPPORTED_MODELS in vllm/model_executor/models/registry.py)",
            (f"take vLLM {last}, or another model",),
        )


def _version(at: Situation) -> Version | None:
    """Of vLLM itself; None for engines that count otherwise."""
    if at.schema.family != FAMILY:
        return None
    try:
        return Version(at.schema.version)
    except InvalidVersion:
        return None


def _concerns(row: FirstRelease, at: Situation) -> str | None:
    """What of the checkpoint a row is about, in words; None where it is about none of it."""
    architecture = at.checkpoint.architecture.name
    if architecture is not None and architecture in row.architectures:
        return f"the architecture {architecture}"
    found = at.checkpoint.quantization
    if found is None or found.scheme not in row.schemes or row.container not in (None, found.container):
        return None
    return f"{found.scheme} weights in {found.container}"
