"""Which matrices are converted, and why the others are not."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set

from onecat.checkpoints.quantization.matching import FUSED
from onecat.nvfp4.conversion import patterns
from onecat.nvfp4.conversion.formats import Format
from onecat.nvfp4.conversion.records import Group, LeftAlone, Matrix, Selection
from onecat.nvfp4.tensor_types import FLOATS

KINDS = {
    "head": "the output head",
    "router": "the router of a mixture of experts",
    "convolution": "a convolution",
    "state": "of a state space",
    "other": "no linear layer of a known kind",
}
PARTS = {"vision": "of the vision tower", "audio": "of the audio tower", "draft": "of the draft layers"}

UNQUANTISED: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\.(?:in_proj_(?:a|b|ba)|linear_attn\.[ab]_proj)$"), "the small gates of linear attention"),
    (re.compile(r"\.(?:indexer|compressor)\."), "of the indexer of sparse attention"),
    (re.compile(r"\.(?:x_proj|dt_proj)$"), "small projections of a state space"),
    (re.compile(r"\.(?:altup|laurel|per_layer_\w+)(?:\.|$)"), "small projections beside the layer"),
)
"""Linear modules inside of layers that vLLM 0.27.1 holds without quantisation, or that are too narrow for it.

Sources: vllm/model_executor/layers/mamba/gdn/qwen_gdn_linear_attn.py (create_ba_proj), mamba_mixer.py, and
vllm/model_executor/models/deepseek_v2.py (Indexer), gemma3n.py. The gates in olmo_gdn_linear_attn.py could be
quantised; it keeps them apart for their precision.
"""

LINEAR_ATTENTION = {
    "f_a_proj": ("q_proj", "k_proj", "v_proj", "g_proj", "b_proj", "f_a_proj"),
    "a_proj": ("q_proj", "k_proj", "v_proj", "g_proj"),
}
"""What an engine joins beyond FUSED, by the module that tells that a layer's attention is linear.

Sources: vllm 0.27.1, vllm/models/kimi_k3/nvidia/model.py (in_proj_qkvgfab), and
vllm/model_executor/models/olmo_hybrid.py (in_proj_qkvg).
"""

_PARENTS = {part: joint for joint, parts in FUSED.items() for part in parts}
_EXPERTS = re.compile(r"^(.*\.experts)\.[0-9]+\.")


def select(found: Iterable[Matrix], form: Format, include: Sequence[str] = (), ignore: Sequence[str] = ()) -> Selection:
    """Sort matrices into groups that are converted and those that are left alone.

    What an engine joins into one module (FUSED), and all experts of a layer, are converted together or not at all.
    Embeddings and such are not mentioned: no engine takes them for linear layers.

    Raises OnecatError for a pattern that covers nothing.
    """
    linear = [each for each in found if each.kind not in ("embedding", "norm", "bias")]
    names = [each.module for each in linear]
    wanted = patterns.meant(include, names, "--include") if include else None
    unwanted = patterns.meant(ignore, names, "--ignore")
    why = {each.module: _reason(each, form, wanted, unwanted) for each in linear}
    groups = _groups(linear)
    for group in groups:
        _hold_together(group.members, why, form.unfit_group(group))
    for those in _experts(linear).values():
        _hold_together(those, why, None)
    return Selection(
        tuple(group for group in groups if why[group.members[0].module] is None),
        tuple(LeftAlone(each, reason) for each in linear if (reason := why[each.module]) is not None),
    )


def _reason(each: Matrix, form: Format, wanted: frozenset[str] | None, unwanted: frozenset[str]) -> str | None:
    if each.part in PARTS:
        return PARTS[each.part]
    if each.kind != "linear":
        return KINDS.get(each.kind, each.kind)
    for pattern, what in UNQUANTISED:
        if pattern.search(each.module):
            return what
    if each.layer is None:
        return "outside of the decoder's layers"
    if not each.is_matrix:
        return "experts of a layer in one tensor, which no engine reads quantised in this family"
    if each.dtype not in FLOATS:
        return f"stored as {each.dtype}"
    if each.module in unwanted:
        return "named by --ignore"
    if wanted is not None and each.module not in wanted:
        return "not named by --include"
    return form.unfit(each)


def _groups(linear: Iterable[Matrix]) -> list[Group]:
    """Matrices by the module that an engine makes of them, in the order of their first members."""
    inside: dict[str, list[Matrix]] = defaultdict(list)
    for each in linear:
        inside[each.module.rpartition(".")[0]].append(each)
    gathered: dict[str, list[Matrix]] = defaultdict(list)
    for outer, those in inside.items():
        joints = _joints({_last(each) for each in those})
        for each in those:
            gathered[f"{outer}.{joints.get(_last(each), _last(each))}".removeprefix(".")].append(each)
    return [Group(name, tuple(sorted(those, key=_position))) for name, those in gathered.items()]


def _last(each: Matrix) -> str:
    return each.module.rpartition(".")[2]


def _joints(names: Set[str]) -> dict[str, str]:
    """The joint module's name for each part, among modules of these names in one place."""
    linear = next((parts for sign, parts in LINEAR_ATTENTION.items() if sign in names), ())
    return _PARENTS | dict.fromkeys(linear, "qkv_proj") if linear else _PARENTS


def _position(member: Matrix) -> int:
    orders = (*LINEAR_ATTENTION.values(), *FUSED.values())
    return next((order.index(_last(member)) for order in orders if _last(member) in order), 0)


def _experts(linear: Iterable[Matrix]) -> Mapping[str, list[Matrix]]:
    gathered: dict[str, list[Matrix]] = defaultdict(list)
    for each in linear:
        if inside := _EXPERTS.match(each.module):
            gathered[inside[1]].append(each)
    return gathered


def _hold_together(members: Sequence[Matrix], why: dict[str, str | None], reason: str | None) -> None:
    """Leave all alone when one is. reason: why they cannot be converted together."""
    left = next((each for each in members if why[each.module] is not None), None)
    for each in members:
        if why[each.module] is not None:
            continue
        if left is not None:
            why[each.module] = f"joined with {left.module.rpartition('.')[2]}, which is left alone"
        elif reason is not None:
            why[each.module] = reason
