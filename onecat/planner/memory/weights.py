"""The weights of one rank, as the engine holds them after loading."""

from __future__ import annotations

import functools
import math
from dataclasses import replace

from onecat.checkpoints import Architecture, Checkpoint
from onecat.checkpoints.architectures import KeyValueLayers, LatentLayers, Weight
from onecat.planner.memory.dtypes import DTYPE_BYTES
from onecat.planner.memory.itself import Itself
from onecat.planner.memory.layouts import kept_bytes
from onecat.planner.memory.online import online_bytes, online_scheme
from onecat.planner.memory.parameters import Parameter, absorbed, parameters_alike, stem_of
from onecat.planner.memory.records import Device, MemorySettings
from onecat.planner.memory.sharding import division_of, heads_of, rank_shape
from onecat.planner.memory.stages import Stage
from onecat.planner.memory.versions import behaviour_of

_TRANSPOSED = (".qweight", ".qzeros", ".scales")
SECTIONED = 4
_ALONG_COLUMNS = (".g_idx", ".weight_g_idx")


def weight_bytes(checkpoint: Checkpoint, settings: MemorySettings, stage: Stage, device: Device) -> int:
    """Bytes of the weights of one rank of a stage: what the engine logs as model loading.

    From the headers where there are weight files, else from the architecture and its quantisation. With the tables of
    sines that models keep, and the second form of kv_b_proj that latent attention calculates with.
    """
    # What is compared for a plan mostly differs in these alone, and they decide nothing here.
    of_weights = replace(settings, max_model_len=0, max_num_seqs=0, max_num_batched_tokens=0, utilization=0.0)
    return _weight_bytes(Itself(checkpoint), of_weights, stage, replace(device, memory=0, used=0))


@functools.lru_cache(maxsize=64)
def _weight_bytes(key: Itself[Checkpoint], settings: MemorySettings, stage: Stage, device: Device) -> int:
    checkpoint, architecture = key.of, key.of.architecture
    total = 0
    for each, layers in parameters_alike(checkpoint):
        if each.weight.layer is None or each.weight.part != "language":
            count = len(layers) if _held(each.weight, architecture, stage, settings) else 0
        else:
            count = sum(map(stage.layers.__contains__, layers))
        if count:
            total += count * _bytes(each, architecture, settings, device)
    return total + rotary_bytes(architecture, settings) + _absorbed_bytes(checkpoint, settings, stage)


def _held(weight: Weight, architecture: Architecture, stage: Stage, settings: MemorySettings) -> bool:
    """Whether ranks of the stage hold it. Source: vllm/model_executor/models (is_first_rank, is_last_rank)."""
    if weight.part == "draft":
        return settings.draft_layers > 0 and stage.last
    if weight.part != "language":
        return stage.first and not settings.text_only
    if weight.layer is not None:
        return weight.layer in stage.layers
    if weight.kind == "embedding":
        return stage.first or (stage.last and (architecture.tied_embeddings or settings.draft_layers > 0))
    return stage.last


def _bytes(parameter: Parameter, architecture: Architecture, settings: MemorySettings, device: Device) -> int:
    row, weight = parameter.row, parameter.weight
    whole = weight.part in ("vision", "audio") and settings.encoders_whole
    ranks, copies = 1 if whole else settings.tensor_parallel, row.count
    shape = row.shape
    if weight.count > 1:
        # Data-parallel ranks share experts, whole ones with expert parallelism and parts of each without:
        # vllm/model_executor/layers/fused_moe/config.py (FusedMoEParallelConfig.make).
        ranks *= settings.data_parallel
    outer = 1 if weight.count > 1 and row.count == 1 and len(shape) > 1 and shape[0] == weight.count else 0
    if settings.expert_parallel and weight.count > 1:
        held = -(-weight.count // ranks)
        ranks, copies = 1, held if copies > 1 else copies
        shape = (held, *shape[1:]) if outer else shape
    on_rank = rank_shape(
        shape,
        division_of(stem_of(weight.name)),
        ranks,
        heads=heads_of(architecture, weight),
        outer=outer,
        transposed=parameter.suffix in _TRANSPOSED,
        one_axis_is_in=parameter.suffix in _ALONG_COLUMNS,
    )
    scheme = online_scheme(settings.quantization, weight) if parameter.scheme is None else None
    if scheme is not None and parameter.suffix in ("", ".weight") and len(on_rank) >= 2:
        return copies * online_bytes(scheme, math.prod(on_rank), math.prod(on_rank[:-1]))
    return copies * kept_bytes(parameter, on_rank, settings, device, behaviour_of(settings.engine_version))


def rotary_bytes(architecture: Architecture, settings: MemorySettings) -> int:
    """The tables of sines and cosines, one for each kind of attention that turns positions in its own way.

    [max_position_embeddings, rotary size] in the model's dtype; as many times longer as linear scaling stretches it,
    and four times when positions have sections, which a model without towers has not.
    Source: vllm/model_executor/layers/rotary_embedding/base.py, linear_scaling_rope.py, mrope.py, __init__.py
    (_ROPE_DICT); vllm/model_executor/models/config.py (mrope_section).
    """
    own_tables = architecture.rotary_windows or architecture.rope_type == "several"
    sizes = {
        (each.window is not None and own_tables, each.head_size)
        for each in architecture.caches
        if isinstance(each, KeyValueLayers) and not each.cross
    }
    elements = sum(
        int(size * architecture.rotary_share) * (1 if windowed else architecture.rotary_stretch)
        for windowed, size in sizes
    )
    elements += sum({each.rope_size for each in architecture.caches if isinstance(each, LatentLayers)})
    sectioned = architecture.rotary_sections and architecture.encoders
    positions = (architecture.max_position_embeddings or 0) * (SECTIONED if sectioned else 1)
    return int(positions * elements) * DTYPE_BYTES[settings.dtype]


def _absorbed_bytes(checkpoint: Checkpoint, settings: MemorySettings, stage: Stage) -> int:
    """Keys and values of kv_b_proj once more, in the form that latent attention calculates with.

    Where that weight is not quantised, the part for values stays a view of it.
    Source: vllm/model_executor/layers/attention/mla_attention.py (process_weights_after_loading: W_UV, W_UK_T).
    """
    architecture, quantization = checkpoint.architecture, checkpoint.quantization
    elements = 0
    for each in absorbed(checkpoint):
        if _held(each, architecture, stage, settings):
            is_plain = quantization is None or quantization.scheme_for(each) is None
            elements += each.elements // 2 if is_plain else each.elements
    return elements // settings.tensor_parallel * DTYPE_BYTES[settings.dtype]
