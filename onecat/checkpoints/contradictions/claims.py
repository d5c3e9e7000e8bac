"""What a configuration says of quantisation that cannot be right, whatever the tensors are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from onecat.checkpoints.contradictions.situation import Situation
from onecat.checkpoints.quantization import read_quantization
from onecat.checkpoints.quantization.reading import stated_claim
from onecat.checkpoints.records import Problem
from onecat.checkpoints.sources import CONFIG

HF_QUANT_CONFIG = "hf_quant_config.json"
BASE_GENERATES = frozenset({"llama", "mistral"})
"""Values of model_type whose base class generates text in vLLM 0.27.1."""
TRANSFORMERS_ALONE = frozenset({"gemma"})


def unknown_method(at: Situation) -> Iterator[Problem]:
    found = at.checkpoint.quantization
    if found is not None and found.scheme == "unknown":
        yield Problem(
            "unknown-quantization",
            f"claims the quantisation {found.method}, which onecat does not know",
            at.config,
            "correct quant_method, or take a checkpoint in a known format: onecat explain quantization",
        )


def packed_by_mlx(at: Situation) -> Iterator[Problem]:
    """Apple's MLX states bits and group size under `quantization`, and no method.

    Source: https://github.com/ml-explore/mlx-lm/blob/main/mlx_lm/utils.py (save_config); vLLM 0.27.1 has no such
    method.
    """
    config = at.source.documents.get(CONFIG, {})
    stated, beside = config.get("quantization"), config.get("quantization_config")
    if not isinstance(stated, Mapping) or (isinstance(beside, Mapping) and "quant_method" in beside):
        return
    bits, group = stated.get("bits"), stated.get("group_size")
    if type(bits) is int and type(group) is int and not stated.keys() & {"quant_method", "quant_algo"}:
        yield Problem(
            "mlx",
            f"says {bits} bits in groups of {group} as MLX packs them, which vLLM does not load",
            at.config,
            "serve it with mlx_lm.server on a Mac, or take the model in another format",
        )


def without_engine(at: Situation) -> Iterator[Problem]:
    """Methods that transformers has and vLLM has not.

    Source: QUANTIZATION_METHODS of vllm 0.27.1 and 0.33.0, vllm/model_executor/layers/quantization/__init__.py.
    """
    found = at.checkpoint.quantization
    if found is not None and found.method in TRANSFORMERS_ALONE:
        yield Problem(
            "quantization-without-engine",
            f"claims the quantisation {found.method}, which transformers reads and vLLM (0.27.1, 0.33.0) does not",
            at.config,
            "serve it with transformers, or take the model unquantised or in compressed-tensors",
        )


def missing_architectures(at: Situation) -> Iterator[Problem]:
    """Without `architectures` vLLM takes the base class of `model_type`, which for most models makes embeddings.

    Source: vllm 0.27.1, vllm/transformers_utils/config.py (get_config: MODEL_MAPPING_NAMES of transformers), and what
    its ModelConfig then says: LlamaModel and MistralModel generate text, Qwen3Model is a pooling model.
    """
    config = at.source.documents.get(CONFIG, {})
    if not config.keys() - {"quantization_config", "compression_config"} or config.get("architectures"):
        return
    kind = config.get("model_type")
    fix = 'add "architectures": ["..."] as the publisher\'s config.json has it, or --hf-overrides with that'
    if isinstance(kind, str) and kind:
        text = f"names no architectures: vLLM takes the base class for model_type {kind}"
        if kind not in BASE_GENERATES:
            text += ", which for most models gives embeddings and no text"
        yield Problem("missing-architectures", text, at.config, fix, "warn")
    else:
        text = "names neither architectures nor a model_type: engines cannot tell what model it is"
        yield Problem("missing-architectures", text, at.config, fix)


def missing_method(at: Situation) -> Iterator[Problem]:
    """Seen in the wild in what ModelOpt exported; the engine then looks for hf_quant_config.json."""
    stated = stated_claim(at.source.documents)
    found = at.checkpoint.quantization
    if stated is None or found is None or stated.where != CONFIG or found.scheme == "unknown":
        return
    if not stated.has("quant_method"):
        yield Problem(
            "missing-quant-method",
            f"has a quantization_config without quant_method; it is read as {found.container}",
            at.config,
            f'add "quant_method": "{found.container}" to quantization_config',
            "warn",
        )


def missing_layers(at: Situation) -> Iterator[Problem]:
    """Mixed precision without the algorithm of each module, which older exports write to hf_quant_config.json alone.

    Source: vllm 0.27.1, vllm/model_executor/model_loader/weight_utils.py (get_quant_config) and
    layers/quantization/modelopt.py (ModelOptMixedPrecisionConfig).
    """
    found = at.checkpoint.quantization
    if found is not None and found.method == "modelopt_mixed" and not found.schemes:
        yield Problem(
            "missing-quantized-layers",
            "claims MIXED_PRECISION and has no quantized_layers; the engine refuses that",
            at.config,
            f"download {HF_QUANT_CONFIG} too: it has the algorithm of each module",
        )


def files_differ(at: Situation) -> Iterator[Problem]:
    """config.json is what engines read when both are there."""
    documents: Mapping[str, Mapping[str, Any]] = at.source.documents
    beside = documents.get(HF_QUANT_CONFIG)
    found = at.checkpoint.quantization
    if not beside or found is None or documents.get(CONFIG, {}).get("quantization_config") is None:
        return
    other = read_quantization({HF_QUANT_CONFIG: beside})
    if other is None or (other.scheme, other.group_size) == (found.scheme, found.group_size):
        return
    yield Problem(
        "quantization-files-differ",
        f"says {_told(other.scheme, other.group_size)} where config.json says {_told(found.scheme, found.group_size)}",
        str(Path(at.place) / HF_QUANT_CONFIG),
        "keep the file that the tensors agree with; engines read config.json",
        "warn",
    )


def _told(scheme: str, group: int | None) -> str:
    return scheme if group is None else f"{scheme} in groups of {group}"


RULES: tuple[Callable[[Situation], Iterator[Problem]], ...] = (
    unknown_method,
    packed_by_mlx,
    without_engine,
    missing_architectures,
    missing_method,
    missing_layers,
    files_differ,
)
