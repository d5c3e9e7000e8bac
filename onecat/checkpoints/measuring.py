"""How many parameters a checkpoint has, and how many bytes each way of storing them takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from onecat.checkpoints.architectures import Architecture, Weight
from onecat.checkpoints.modules import modules_of
from onecat.checkpoints.observation import observe
from onecat.checkpoints.quantization import Quantization
from onecat.checkpoints.quantization.storage import safetensors_name, stored_tensors
from onecat.checkpoints.records import Checkpoint
from onecat.checkpoints.tensors import StoredTensors


@dataclass(frozen=True)
class Share:
    """Weights that are stored alike. scheme: `nvfp4`, `fp8-block`, ..., or the dtype of those as they were."""

    scheme: str
    parameters: int
    bytes: int


def measured_shares(
    rows: Iterable[StoredTensors], quantization: Quantization | None, draft: Iterable[str] = ()
) -> tuple[Share, ...]:
    """What headers hold, largest share first. Scales and such count as bytes of their weight, not as parameters.

    Parameters:
        draft: modules of draft layers: their bytes count, their parameters do not, as publishers count.
    """
    rows = tuple(rows)
    modules = modules_of(rows)
    unpublished = set(draft)
    totals: dict[str, list[int]] = {}
    owned: set[str] = set()
    for stem, module in modules.items():
        owned.update(part.name for part in module.parts.values())
        data, claimed = module.data, quantization.scheme_of(stem) if quantization else None
        seen = observe(module, claimed)
        name = "other" if data is None else (seen.name if seen and seen.name else data.dtype)
        total = totals.setdefault(name, [0, 0])
        total[1] += sum(part.bytes for part in module.parts.values())
        if seen is not None and data is not None and stem not in unpublished:
            total[0] += seen.elements * data.count
    for row in rows:
        if row.name not in owned:
            total = totals.setdefault(row.dtype, [0, 0])
            total[0] += 0 if row.name.rpartition(".")[0] in unpublished else row.elements
            total[1] += row.bytes
    return _shares(totals)


def computed_shares(architecture: Architecture, quantization: Quantization | None) -> tuple[Share, ...]:
    """What the architecture and the claim come to, largest share first."""
    totals: dict[str, list[int]] = {}
    for weight in architecture.weights:
        scheme = quantization.scheme_for(weight) if quantization else None
        container = quantization.container if quantization else None
        stored = stored_tensors(weight, scheme, container, architecture.dtype)
        total = totals.setdefault(scheme.name if scheme else safetensors_name(architecture.dtype), [0, 0])
        total[0] += weight.elements if weight.part != "draft" else 0
        total[1] += sum(each.bytes for each in stored)
    return _shares(totals)


def shares_of(seen: Checkpoint) -> tuple[Share, ...]:
    """How the weights of a checkpoint are stored: by its headers, else as its configuration claims."""
    if seen.tensors:
        return measured_shares(seen.tensors, seen.quantization, draft_modules(seen.architecture))
    return computed_shares(seen.architecture, seen.quantization)


def active_parameters(architecture: Architecture) -> int:
    """Parameters of the language model that one token uses, 0 where the architecture is not known."""
    experts = architecture.experts

    def used(weight: Weight) -> int:
        routed = experts is not None and weight.count == experts.count and weight.count > 1
        return weight.elements * experts.per_token // experts.count if routed and experts else weight.elements

    return sum(used(weight) for weight in architecture.weights if weight.part == "language")


def draft_modules(architecture: Architecture) -> frozenset[str]:
    """Modules of layers that only speculative decoding loads."""
    return frozenset(
        name
        for weight in architecture.weights
        if weight.part == "draft"
        for name in (weight.name.removesuffix(".weight"), weight.module)
    )


def _shares(totals: Mapping[str, list[int]]) -> tuple[Share, ...]:
    shares = (Share(name, parameters, size) for name, (parameters, size) in totals.items())
    return tuple(sorted(shares, key=lambda share: -share.bytes))
