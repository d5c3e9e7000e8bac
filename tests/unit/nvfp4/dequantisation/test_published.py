"""Published quantised models become the weights that their architecture has when it is not quantised."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from onecat.checkpoints import describe, read_quantization
from onecat.checkpoints.architectures.records import Weight
from onecat.checkpoints.inspection import described
from onecat.checkpoints.quantization.storage import stored_tensors
from onecat.checkpoints.safetensors_header import BITS
from onecat.checkpoints.sources import Source
from onecat.errors import OnecatError
from onecat.nvfp4.codec import choose
from onecat.nvfp4.dequantisation import Original, Target, plan_dequantisation
from onecat.nvfp4.rewriting import SourceFiles, SourceTensor
from tests.unit.checkpoints.test_published_checkpoints import NAMES, documents

pytestmark = pytest.mark.skipif(not NAMES, reason="the shared fixtures are not here")

EXPERTS = 2
"""Of each layer with a tensor for each: they are all alike."""


def published(name: str) -> tuple[Original, tuple[Weight, ...]] | None:
    """The checkpoint as its configuration describes it, with two experts a layer; None for one that is plain."""
    read = documents(name)
    architecture, claim = describe(read["config.json"]), read_quantization(read)
    if claim is None:
        return None
    rows = [
        row for weight in architecture.weights
        for row in stored_tensors(weight, claim.scheme_for(weight), claim.container, architecture.dtype)
    ]  # fmt: skip
    tensors = {
        row.name.replace("*", str(number)): SourceTensor(
            "model.safetensors", row.dtype, row.shape, 0, math.prod(row.shape) * BITS[row.dtype] // 8
        )
        for row in rows for number in range(EXPERTS if "*" in row.name else 1)
    }  # fmt: skip
    seen = described(Source(name, read, tuple(rows), ("model.safetensors",)))
    place = Path("/nonexistent")
    return Original(place, seen, SourceFiles(place, tensors, {}), read["config.json"], ()), architecture.weights


def plain(weights: tuple[Weight, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
    for weight in weights:
        outer = (weight.count,) if "*" not in weight.name and weight.count > 1 else ()
        for number in range(EXPERTS if "*" in weight.name else 1):
            yield weight.name.replace("*", str(number)), (*outer, *weight.shape)


@pytest.mark.parametrize("name", [name for name in NAMES if read_quantization(documents(name)) is not None])
def test_names_and_shapes_are_those_of_the_plain_model(name: str) -> None:
    found = published(name)
    assert found is not None
    original, weights = found
    claim = original.checkpoint.quantization
    assert claim is not None
    if any(scheme.name.startswith("mx") for scheme in claim.schemes):
        with pytest.raises(OnecatError, match=claim.scheme):
            plan_dequantisation(original, Target(Path("/new")), choose(1))
        return
    plan = plan_dequantisation(original, Target(Path("/new")), choose(1))
    steps = [step for shard in plan.rewrite.shards for step in shard.steps]
    assert {made.name: made.shape for step in steps for made in step.outputs} == dict(plain(weights))
    assert set(plan.modules) <= {scheme.name for scheme in claim.schemes}
    assert "quantization_config" not in plan.rewrite.documents["config.json"]
