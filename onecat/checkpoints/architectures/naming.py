"""What the name of a tensor tells of it, in checkpoints of any family."""

from __future__ import annotations

import re
from dataclasses import dataclass

from onecat.checkpoints.architectures.records import Part, WeightKind

_LAYER = re.compile(r"(?:^|\.)(?:layers?|h|blocks?)\.(\d+)\.")
_VISION = re.compile(
    r"(?:^|\.)(?:visual|vision\w*|vit|image\w*|multi_modal_projector|mm_projector|mlp1|aligner|embed_vision|vpm|resampler)\."
)
_AUDIO = re.compile(r"(?:^|\.)(?:audio\w*|speech\w*|embed_audio|apm)\.")
_DRAFT = re.compile(r"(?:^|\.)(?:mtp|nextn|eagle)\w*\.")
_EMBEDDING = re.compile(
    r"(?:^|\.)(?:embed_tokens\w*|wte|word_embeddings|tok_embeddings|embed_in|embeddings?|embed)\.weight$"
)
_HEAD = re.compile(r"(?:^|\.)(?:lm_head|embed_out)\.weight$|^(?:output|head)\.weight$")
_ROUTER = re.compile(r"(?:^|\.)(?:router|gate)(?:\.\w+)?\.weight$")
_POSITIONS = re.compile(r"(?:^|\.)(?:wpe\.|pos(?:ition)?_?emb)|position_embedding")
_STATE = re.compile(r"(?:^|\.)(?:A_log|dt_bias|D)$")
_NORM = re.compile(r"norm|(?:^|\.)ln_\w+\.|layrnorm", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Named:
    """kind: of the parameter; part: of the model; layer: of that part, None outside of its layers."""

    kind: WeightKind
    part: Part
    layer: int | None


def named(name: str, shape: tuple[int, ...]) -> Named:
    """What a tensor is, by its name and shape alone. Layers are those of its part: a tower has its own layer 0."""
    found = _LAYER.search(name)
    return Named(_kind(name, shape), _part(name), int(found[1]) if found and len(found[1]) < 6 else None)


def _part(name: str) -> Part:
    if _DRAFT.search(name):
        return "draft"
    if _AUDIO.search(name):
        return "audio"
    return "vision" if _VISION.search(name) else "language"


def _kind(name: str, shape: tuple[int, ...]) -> WeightKind:
    if _STATE.search(name):
        return "state"
    if _POSITIONS.search(name):
        return "other"
    if _EMBEDDING.search(name):
        return "embedding"
    if _HEAD.search(name):
        return "head"
    if name.endswith("bias"):
        return "bias"
    if _NORM.search(name) and len(shape) < 2:
        return "norm"
    if len(shape) > 3 or ("conv" in name and len(shape) > 2):
        return "convolution"
    if _ROUTER.search(name):
        return "router"
    return "linear" if len(shape) >= 2 else "other"
