"""Data types that the planner chooses where nobody set them and the card lacks the checkpoint's own. Pure."""

from __future__ import annotations

from onecat.engines import BFLOAT16_CAPABILITY
from onecat.planner.capabilities import refuses_fp8_cache, told
from onecat.planner.memory import Device
from onecat.planner.memory.settings import resolved_dtype
from onecat.planner.proposals import Asked, Proposal, Propose, proposed
from onecat.planner.questions import Question
from onecat.planner.records import Layout


def with_types(question: Question, *, is_open: bool = False) -> Question:
    """The question with the data types that the planner chooses, before layouts are compared: they decide about memory.

    Parameters:
        is_open: nobody but the planner chooses, as for cards alone without a profile.
    """
    return proposed(Asked(question, Layout(), None, is_open), TYPES)


def _dtype(asked: Asked) -> Proposal | None:
    """Where the card lacks the checkpoint's type, the type that the engine falls back to, written out."""
    question = asked.question
    capability, stored = question.capability, question.checkpoint.architecture.dtype
    if "dtype" in question.settings or not asked.is_open or capability is None or stored != "bfloat16":
        return None
    if capability >= BFLOAT16_CAPABILITY:
        return None
    chosen = resolved_dtype("auto", question.checkpoint.architecture, Device(None, 0, capability=capability))
    why = f"the checkpoint is in bfloat16, which needs compute capability 8.0; the card has {told(capability)}"
    if chosen == "float32":
        kind = question.checkpoint.architecture.model_type
        why += f", and the engine refuses float16 for model type {kind}: float32 takes twice the memory"
    return Proposal("dtype", chosen, why, "https://docs.vllm.ai/en/latest/configuration/engine_args/")


def _kv_cache_dtype(asked: Asked) -> Proposal | None:
    """A checkpoint that asks for an FP8 KV cache, on a card that cannot have one."""
    question = asked.question
    claimed = question.checkpoint.quantization
    wants = claimed is not None and claimed.kv_cache is not None and claimed.kv_cache.startswith("fp8")
    capability = question.capability
    if "kv-cache-dtype" in question.settings or not wants or capability is None:
        return None
    if question.hardware.platform != "cuda" or question.schema.unknown is not None:
        return None
    if not refuses_fp8_cache(capability, question.value("attention-backend")):
        return None
    held = "bfloat16" if capability >= BFLOAT16_CAPABILITY else "float16"
    why = (
        "the checkpoint asks for an FP8 KV cache, which needs compute capability 8.9 here; "
        f"the card has {told(capability)}"
    )
    return Proposal("kv-cache-dtype", held, why)


TYPES: tuple[Propose, ...] = (_dtype, _kv_cache_dtype)
