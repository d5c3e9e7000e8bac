"""Mistral's own copy of the weights: consolidated*.safetensors, beside files with the names of transformers.

vLLM 0.27.1 loads that copy alone where there is one (load format auto: vllm/model_executor/model_loader/
default_loader.py, _prepare_weights), and its class for Mistral gives the tensors the other names
(vllm/model_executor/models/mistral.py, mistral_mapping). With params.json too it reads that in place of config.json
(vllm/transformers_utils/config.py, get_config).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from fnmatch import fnmatchcase

from onecat.checkpoints.numbering import counted
from onecat.checkpoints.records import Problem
from onecat.checkpoints.tensors import StoredTensors

INDEX = "consolidated.safetensors.index.json"
PARAMETERS = "params.json"

RENAMES = frozenset({"MistralForCausalLM", "Ministral3ForCausalLM"})
"""Architectures whose class renames tensors, by the registry of vLLM 0.27.1."""

_FIRST = {
    "layers": "model.layers", "tok_embeddings": "model.embed_tokens", "output": "lm_head", "norm": "model.norm",
    "vision_encoder": "vision_tower", "vision_language_adapter": "multi_modal_projector",
    "patch_merger": "multi_modal_projector.patch_merger", "pre_mm_projector_norm": "multi_modal_projector.norm",
}  # fmt: skip
_OTHERS = {
    "attention": "self_attn", "wq": "q_proj", "wk": "k_proj", "wv": "v_proj", "wo": "o_proj",
    "attention_norm": "input_layernorm", "feed_forward": "mlp", "w1": "gate_proj", "w2": "down_proj", "w3": "up_proj",
    "ffn_norm": "post_attention_layernorm", "qscale_weight": "weight_scale", "qscale_act": "input_scale",
}  # fmt: skip


def consolidated(names: Iterable[str]) -> list[str]:
    """The files of Mistral's copy, in order."""
    return sorted(name for name in names if fnmatchcase(name, "consolidated*.safetensors"))


def renamed(rows: Iterable[StoredTensors]) -> tuple[StoredTensors, ...]:
    """Tensors of that copy by the names that transformers has for them; what has none keeps its own."""
    return tuple(replace(row, name=_name(row.name)) for row in rows)


def _name(name: str) -> str:
    first, *others = name.split(".")
    return ".".join((_FIRST.get(first, first), *(_OTHERS.get(each, each) for each in others)))


def told(place: str, names: Collection[str], files: Collection[str], architecture: str | None) -> Problem | None:
    """What is said of both copies side by side; None where there is one.

    Parameters:
        names: of the safetensors files. files: all names in the directory. architecture: as config.json names it.
    """
    own = consolidated(names)
    others = len(names) - len(own)
    if not own or not others:
        return None
    text = f"holds {counted(len(own), 'file')} of Mistral's format (consolidated) beside {counted(others, 'other')}"
    if PARAMETERS in files or architecture in RENAMES:
        by = PARAMETERS if PARAMETERS in files else "config.json"
        text += f": vLLM 0.27.1 loads the consolidated copy alone, by {by}; transformers loads the other"
        fix = "nothing, or serve the other copy: --load-format safetensors --config-format hf"
        return Problem("two-copies", text, place, fix, "info")
    text += f" and no {PARAMETERS}: vLLM 0.27.1 loads that copy alone, whose names {architecture or 'it'} does not have"
    fix = "serve with --load-format safetensors, or move the consolidated files away"
    return Problem("two-copies", text, place, fix, "warn")
