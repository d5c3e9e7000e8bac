"""What keeps a model from being divided among ranks: heads, and blocks of scales. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from onecat.checkpoints import Checkpoint
from onecat.checkpoints.architectures import KeyValueLayers, StateLayers, Weight
from onecat.checkpoints.quantization import WeightScheme
from onecat.planner.questions import Question
from onecat.planner.records import Layout


@dataclass(frozen=True)
class Undivided:
    """Something that `ranks` cannot share. kind: `heads`, `state`, `blocks`, `groups`. text: what does not divide.

    experts: whether it is a weight of experts.
    """

    kind: str
    text: str
    source: str
    experts: bool = False


HEADS_SOURCE = "vllm/config/model.py (verify_with_parallel_config)"
BLOCK_SOURCE = "vllm/model_executor/layers/quantization/utils/fp8_utils.py (validate_fp8_block_shape)"
GROUP_SOURCE = "vllm/model_executor/layers/quantization/utils/marlin_utils.py (verify_group_size_divides_partition)"
"""Parts that are no whole tiles of Marlin (64 rows, 128 columns) are padded with zeros at 0.27.1 (marlin_padded_nk), or
go to other kernels (AWQ's own, Exllama, moe_wna16): they are not refused. A cut through a group is."""

ROW_PARALLEL = frozenset(("o_proj", "down_proj", "out_proj", "w2"))
"""Modules whose columns tensor parallelism divides, in the models of vLLM 0.27.1."""

COLUMN_PARALLEL = frozenset(
    (
        "q_proj",
        "k_proj",
        "v_proj",
        "gate_proj",
        "up_proj",
        "w1",
        "w3",
        "q_b_proj",
        "kv_b_proj",
        "in_proj_qkv",
        "in_proj_z",
    )
)
"""Modules whose rows it divides."""


def undivided(question: Question, layout: Layout) -> tuple[Undivided, ...]:
    """What of the checkpoint the ranks of a layout cannot share; empty when they can."""
    whole_experts = question.value("enable-expert-parallel") is True
    return undivided_checkpoint(question.checkpoint, layout.tensor_parallel, whole_experts, layout.replicas)


def undivided_checkpoint(
    checkpoint: Checkpoint, ranks: int, whole_experts: bool = False, copies: int = 1
) -> tuple[Undivided, ...]:
    """The same. whole_experts: expert parallelism deals experts out whole. copies: data-parallel ranks, which share
    each expert with the tensor-parallel ones (fused_moe/config.py, FusedMoEParallelConfig.make)."""
    found = [*_heads(checkpoint, ranks), *_states(checkpoint, ranks)] if ranks > 1 else []
    return tuple(found or _scales(checkpoint, ranks, whole_experts, copies))


def _heads(checkpoint: Checkpoint, ranks: int) -> list[Undivided]:
    heads = checkpoint.architecture.attention_heads
    if heads is not None and heads % ranks:
        text = f"the checkpoint's {heads} attention heads cannot be divided among {ranks} GPUs"
        return [Undivided("heads", text, HEADS_SOURCE)]
    kept = {each.key_value_heads for each in checkpoint.architecture.caches if hasattr(each, "key_value_heads")}
    for count in sorted(kept):
        # With fewer heads than ranks each is held several times, which must come out even too.
        if (count % ranks) if count >= ranks else (ranks % count):
            text = f"the checkpoint's {count} key-value heads cannot be divided among {ranks} GPUs"
            return [Undivided("heads", text, "vllm/model_executor/layers/linear.py (QKVParallelLinear)")]
    return []


def _states(checkpoint: Checkpoint, ranks: int) -> list[Undivided]:
    for layers in checkpoint.architecture.caches:
        if not isinstance(layers, StateLayers):
            continue
        for state in layers.states:
            if state.name == "recurrent" and state.shape[state.divided] % ranks:
                heads = state.shape[state.divided]
                text = f"the {heads} heads of its {layers.kind} layers cannot be divided among {ranks} GPUs"
                return [Undivided("state", text, "vllm/model_executor/layers/mamba/mamba_utils.py")]
    return []


def _scales(checkpoint: Checkpoint, ranks: int, whole_experts: bool, copies: int) -> list[Undivided]:
    """Parts of linear weights that cut through a block or group of scales, one example of each kind of module."""
    quantization = checkpoint.quantization
    if quantization is None or (ranks < 2 and copies < 2):
        return []
    found: dict[str, Undivided] = {}
    seen: set[tuple[str, tuple[int, ...]]] = set()
    for weight in checkpoint.architecture.weights:
        last = weight.module.rpartition(".")[2]
        if weight.kind != "linear" or len(weight.shape) != 2 or (last, weight.shape) in seen or last in found:
            continue
        seen.add((last, weight.shape))
        if whole_experts and weight.count > 1:
            continue
        scheme = quantization.scheme_of(weight.module.replace("*", "0"))
        among = ranks * copies if weight.count > 1 else ranks
        problem = _cut(checkpoint, weight, scheme, among) if scheme is not None and among > 1 else None
        if problem is not None:
            found[last] = replace(problem, experts=weight.count > 1)
    return list(found.values())


def _cut(checkpoint: Checkpoint, weight: Weight, scheme: WeightScheme, ranks: int) -> Undivided | None:
    rows, columns = weight.shape
    name = weight.module.rpartition(".")[2]
    if name in ROW_PARALLEL:
        unit = scheme.block[1] if scheme.block else scheme.group_size
        if columns % ranks:
            text = f"the {columns} columns of {name} cannot be divided among {ranks} GPUs"
            return Undivided("blocks", text, "vllm/model_executor/layers/linear.py (RowParallelLinear)")
        part = columns // ranks
        if unit and unit < columns and part % unit:
            text = f"{name} has {columns} columns, {part} on each of {ranks} GPUs, and its scales are for {unit} each"
            kind, source = ("blocks", BLOCK_SOURCE) if scheme.block else ("groups", GROUP_SOURCE)
            return Undivided(kind, text, source)
    # vLLM's own "fp8" method lets such parts of merged layers pass (linear.py, _maybe_allow_fp8_block_shape_mismatch),
    # and then ends while it loads their scales, of which each rank takes whole rows: measured, 0.27.1.
    if name in COLUMN_PARALLEL and scheme.block:
        part = _rows_of_rank(checkpoint, weight, name, ranks)
        if part % scheme.block[0]:
            unit = scheme.block[0]
            text = f"{name} has {rows} rows, {part} on each of {ranks} GPUs, and its scales are for {unit} each"
            return Undivided("blocks", text, BLOCK_SOURCE)
    return None


def _rows_of_rank(checkpoint: Checkpoint, weight: Weight, name: str, ranks: int) -> int:
    """Rows on one rank; key-value heads are held several times where there are more ranks than heads."""
    rows = weight.shape[0]
    if name in ("k_proj", "v_proj"):
        for layers in checkpoint.architecture.caches:
            if isinstance(layers, KeyValueLayers) and weight.layer in layers.layers:
                return rows // layers.key_value_heads * -(-layers.key_value_heads // ranks)
    return rows // ranks
