"""Scales of whole tensors that an engine joins into one."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from onecat.checkpoints.integrity.contents import Contents
from onecat.checkpoints.integrity.records import Fault
from onecat.checkpoints.integrity.registry import rule
from onecat.checkpoints.numbering import first_of
from onecat.checkpoints.quantization.matching import FUSED
from onecat.checkpoints.safetensors_header import Tensor

SCALES = ("weight_global_scale", "weight_scale_2")
SOURCE = (
    "https://github.com/vllm-project/vllm/blob/v0.27.1/vllm/model_executor/layers/quantization/compressed_tensors/"
    "schemes/compressed_tensors_w4a16_nvfp4.py"
)
_PARENT = {shard: fused for fused, shards in FUSED.items() for shard in shards}


@rule
def one_scale_for_what_is_fused(contents: Contents) -> Iterator[Fault]:
    """q, k and v, and gate and up, have the same scale of the whole tensor."""
    groups: dict[tuple[str, str, str], list[tuple[str, Tensor]]] = {}
    for file, tensor in contents.tensors():
        if tensor.name.endswith(SCALES) and tensor.dtype == "F32" and tensor.end - tensor.begin == 4:
            module, _, scale = tensor.name.rpartition(".")
            outer, _, shard = module.rpartition(".")
            if shard in _PARENT:
                groups.setdefault((outer, _PARENT[shard], scale), []).append((file, tensor))
    if not groups:
        return
    values = _values(contents, [each for those in groups.values() if len(those) > 1 for each in those])
    different: dict[tuple[str, str], list[tuple[str, float]]] = {}
    for (outer, fused, scale), those in groups.items():
        seen = [values[tensor.name] for _, tensor in those if len(those) > 1]
        if len(set(seen)) > 1 and min(seen) > 0:
            different.setdefault((fused, scale), []).append((f"{outer}.{fused}", max(seen) / min(seen)))
    for (fused, scale), found in different.items():
        names = first_of([name for name, _ in found])
        worst = max(ratio for _, ratio in found)
        yield Fault(
            "fused-scales-differ",
            "warn",
            f"the {scale} of what is joined into {fused} differs by up to {worst:.3g} times: {names}",
            groups[(found[0][0].removesuffix(f".{fused}"), fused, scale)][0][0],
            "take a checkpoint whose quantiser gave joined layers one scale, and compare answers before you trust it",
            "vLLM joins these layers and keeps one scale of the whole tensor for all: accuracy suffers.",
            SOURCE,
        )


def _values(contents: Contents, wanted: list[tuple[str, Tensor]]) -> dict[str, float]:
    by_file: dict[str, list[Tensor]] = {}
    for file, tensor in wanted:
        by_file.setdefault(file, []).append(tensor)
    found = {}
    for file, tensors in by_file.items():
        start = contents.headers[file].data_start
        with (contents.directory / file).open("rb", buffering=0) as stream:
            for tensor in tensors:
                stream.seek(start + tensor.begin)
                (found[tensor.name],) = struct.unpack("<f", stream.read(4))
    return found
