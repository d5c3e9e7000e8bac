"""Experts and latent attention, for which old cards have no kernels."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.checkpoints.architectures import LatentLayers
from onecat.planner.capabilities import told
from onecat.planner.records import Refusal
from onecat.planner.refusals.situation import Situation

PATCHED = "vllm-patched"
PROCESSORS = "vllm-cpu"
EXPERT_CAPABILITY = 75
"""Least compute capability, ten times, of a kernel for experts in FP8 or FP4 (Marlin); onecat's own kernels for 7.0 are
for dense layers (patches/vllm-0.27.1: 0003 and 0005)."""

FLOATING = ("nvfp4", "mxfp4", "mxfp8", "fp8-block", "fp8-channel", "fp8-tensor")
LATENT_CAPABILITY = 80
"""Least compute capability, ten times, of Triton's MLA with the patches (0003: supports_combination)."""


SPARSE_CAPABILITY = 90
"""Least compute capability, ten times, of attention that an indexer chooses keys for, in vLLM itself
(vllm/v1/attention/backends/mla: flashmla_sparse.py, flashattn_mla_sparse.py, flashinfer_mla_sparse.py at 0.27.1)."""


def experts(at: Situation) -> Iterator[Refusal]:
    """Experts in FP8 or FP4 below compute capability 7.5."""
    if at.capability is None or at.capability >= EXPERT_CAPABILITY or at.profile.engine.name != PATCHED:
        return
    unserved = sorted(_stored(at) & set(FLOATING))
    if unserved:
        yield Refusal(
            "experts-capability",
            f"the experts are stored as {', '.join(unserved)}, for which there is no kernel below compute capability "
            f"7.5; the card has {told(at.capability)}",
            ("take a checkpoint whose experts are float16, or 4-bit integers of GPTQ or AWQ",),
        )


def experts_on_processors(at: Situation) -> Iterator[Refusal]:
    """Experts in NVFP4 on a CPU: the patches have kernels for dense layers alone (vllm fused_moe/oracle/nvfp4.py)."""
    if at.profile.engine.name == PROCESSORS and "nvfp4" in _stored(at):
        yield Refusal(
            "experts-no-kernel",
            "the experts are stored as nvfp4, for which there is no kernel on a CPU",
            ("turn it into a plain checkpoint: onecat model dequantize", "or take a profile with a GPU"),
        )


def _stored(at: Situation) -> set[str]:
    """The schemes in which experts are stored."""
    found = at.checkpoint.quantization
    if found is None or at.checkpoint.architecture.experts is None:
        return set()
    return {
        scheme.name
        for each in at.checkpoint.architecture.weights
        if each.count > 1 and (scheme := found.scheme_of(each.module.replace("*", "0"))) is not None
    }


def sparse_attention(at: Situation) -> Iterator[Refusal]:
    """Sparse latent attention (DeepSeek V3.2, GLM-5) below compute capability 9.0."""
    if at.capability is None or at.capability >= SPARSE_CAPABILITY or at.schema.family != "vllm":
        return
    if at.schema.unknown is not None:
        return
    caches = at.checkpoint.architecture.caches
    if any(isinstance(each, LatentLayers) and each.index_head_size for each in caches):
        yield Refusal(
            "sparse-attention-capability",
            "no kernel of this engine for sparse latent attention runs below compute capability 9.0; the card has "
            f"{told(at.capability)}",
            ("take H100, H200 or newer cards, or a model without an indexer, as DeepSeek V3.1",),
        )


def latent_attention(at: Situation) -> Iterator[Refusal]:
    """Multi-head latent attention below compute capability 8.0, unless it is switched off."""
    if at.capability is None or at.capability >= LATENT_CAPABILITY or at.profile.engine.name != PATCHED:
        return
    has_latent = any(isinstance(each, LatentLayers) for each in at.checkpoint.architecture.caches)
    if has_latent and at.environment.get("VLLM_MLA_DISABLE", "0") in ("", "0"):
        yield Refusal(
            "mla-capability",
            "no kernel for multi-head latent attention runs below compute capability 8.0; the card has "
            f"{told(at.capability)}",
            ('env: {VLLM_MLA_DISABLE: "1"}, with which the KV cache is several times larger',),
        )
