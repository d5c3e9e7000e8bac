"""Arguments that the planner chooses where nobody set them, each with its reason. Pure.

Each proposal takes the question with the flags that are settled so far: `TYPES` before layouts are compared, whose
memory they decide about, and `SIZES` for the layout that is chosen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from onecat.engines import BFLOAT16_CAPABILITY
from onecat.planner.flags import FlagValue, Setting, shown
from onecat.planner.hardware import GIB
from onecat.planner.memory import Device
from onecat.planner.memory.settings import resolved_dtype
from onecat.planner.prompts import Prompts
from onecat.planner.records import Layout
from onecat.planner.sizing import AUTO_LENGTHS, SHORTEST, Question, held_at_once, size, with_flags

FP8_KV_CAPABILITY = 89
FLASH_ATTENTION_CAPABILITY = 80
"""As in refusals/kv_cache.py: vllm/v1/attention/backends/triton_attn.py, flash_attn.py, flashinfer.py."""

SAFETY = 0.97
"""Of the longest context that fits: the engine measures a few percent more or less than the estimate says."""

EAGER_TIMES = 2
"""How many times longer a context must get for CUDA graphs to be given up: they matter for speed."""

BLOCK = 16
MOST_SEQS = 1024
TUNING_SOURCE = "https://docs.vllm.ai/en/latest/configuration/optimization/"


@dataclass(frozen=True)
class Asked:
    """What a proposal looks at. is_open: nobody but the planner chooses, as for cards alone without a profile.
    none_holds: words for that no layout holds the whole context, where several were compared."""

    question: Question
    layout: Layout
    prompts: Prompts | None
    is_open: bool
    none_holds: str = ""


@dataclass(frozen=True)
class Proposal:
    name: str
    value: FlagValue
    why: str
    source: str | None = None


Propose = Callable[[Asked], Proposal | None]


def with_types(question: Question, *, is_open: bool = False) -> Question:
    """The question with the data types that the planner chooses."""
    return _with(question, TYPES, Asked(question, Layout(), None, is_open))


def with_sizes(
    question: Question,
    layout: Layout,
    prompts: Prompts | None = None,
    *,
    is_open: bool = False,
    none_holds: bool = False,
) -> Question:
    """The question with the lengths and batches that the planner chooses for a layout.

    Parameters:
        none_holds: layouts were compared, and none holds the checkpoint's whole context.
    """
    told = ", and no layout of these cards holds it" if none_holds else ""
    return _with(question, SIZES, Asked(question, layout, prompts, is_open, told))


def _with(question: Question, proposals: Sequence[Propose], asked: Asked) -> Question:
    for propose in proposals:
        found = propose(replace(asked, question=question))
        flag = question.schema.flag(found.name, found.value) if found is not None else None
        if found is None or flag is None:
            continue
        below = question.settings.get(found.name)
        over = f"; the profile's {shown(below.value)} gives way" if below is not None else ""
        setting = Setting(flag, found.value, "planner", found.why + over, None, found.source)
        question = replace(question, settings={**question.settings, found.name: setting})
    return question


def _dtype(asked: Asked) -> Proposal | None:
    """Where the card lacks the checkpoint's type, the type that the engine falls back to, written out."""
    question = asked.question
    capability, stored = question.capability, question.checkpoint.architecture.dtype
    if "dtype" in question.settings or not asked.is_open or capability is None or stored != "bfloat16":
        return None
    if capability >= BFLOAT16_CAPABILITY:
        return None
    chosen = resolved_dtype("auto", question.checkpoint.architecture, Device(None, 0, capability=capability))
    why = f"the checkpoint is in bfloat16, which needs compute capability 8.0; the card has {_told(capability)}"
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
    if "kv-cache-dtype" in question.settings or not wants or capability is None or capability >= FP8_KV_CAPABILITY:
        return None
    if question.hardware.platform != "cuda" or question.schema.unknown is not None:
        return None
    if capability >= FLASH_ATTENTION_CAPABILITY and question.value("attention-backend") != "TRITON_ATTN":
        return None
    held = "bfloat16" if capability >= BFLOAT16_CAPABILITY else "float16"
    why = (
        "the checkpoint asks for an FP8 KV cache, which needs compute capability 8.9 here; "
        f"the card has {_told(capability)}"
    )
    return Proposal("kv-cache-dtype", held, why)


def _max_num_seqs(asked: Asked) -> Proposal | None:
    """As many requests as the KV cache holds of those that are to come."""
    question, prompts = asked.question, asked.prompts
    if prompts is None or _is_set(question, "max-num-seqs"):
        return None
    found = size(question, asked.layout)
    capacity = found.estimate.capacity if found is not None else None
    if found is None or capacity is None or not capacity.tokens:
        return None
    holds = held_at_once(found, prompts.mean + BLOCK / 2)
    count = _round_down(max(1, min(MOST_SEQS, int(holds))))
    why = (
        f"{prompts.stated}: a request takes {prompts.mean:.0f} tokens on average, and the KV cache of "
        f"{capacity.tokens:,} tokens holds {holds:.0f} of them; more would be put off and begun again"
    )
    return Proposal("max-num-seqs", count, why, TUNING_SOURCE)


def _max_num_batched_tokens(asked: Asked) -> Proposal | None:
    """A step long enough that most prompts are read at once, beside the answers that go on."""
    question, prompts = asked.question, asked.prompts
    if prompts is None or _is_set(question, "max-num-batched-tokens"):
        return None
    usual = prompts.prompt_at(0.9)
    seqs = question.count("max-num-seqs") or 256
    wanted = usual + seqs
    tokens = min(16384, max(2048, 1 << math.ceil(math.log2(wanted))))
    why = (
        f"{prompts.stated}: nine of ten prompts have at most {usual:,} tokens and are read in one step beside up to "
        f"{seqs} answers; longer ones are read in pieces (chunked prefill), so that answers under way go on"
    )
    return Proposal("max-num-batched-tokens", tokens, why, TUNING_SOURCE)


def _enforce_eager(asked: Asked) -> Proposal | None:
    """Without CUDA graphs where their memory is most of what the KV cache could have."""
    question = asked.question
    if not asked.is_open or "enforce-eager" in question.settings:
        return None
    found = size(question, asked.layout)
    if found is None or found.fits or found.estimate.estimated or not found.settings.graphs:
        return None
    without = size(with_flags(question, enforce_eager=True), asked.layout)
    if without is None or without.largest < SHORTEST or found.largest * EAGER_TIMES > without.largest:
        return None
    graphs = max(each.graphs for each in found.estimate.per_gpu)
    why = (
        f"CUDA graphs would take {graphs / GIB:.2f} GiB, and leave a context of {found.largest} tokens in place of "
        f"{without.largest}; without them few requests at once are answered more slowly"
    )
    return Proposal("enforce-eager", True, why)


def _max_model_len(asked: Asked) -> Proposal | None:
    """For cards alone: the longest context that fits, where the checkpoint's own does not."""
    question = asked.question
    if not asked.is_open or _is_set(question, "max-model-len") or question.value("max-model-len") in AUTO_LENGTHS:
        return None
    found = size(question, asked.layout)
    if found is None or found.fits or found.largest < SHORTEST or found.estimate.estimated:
        return None
    length = max(BLOCK, int(found.largest * SAFETY) // BLOCK * BLOCK)
    short = found.short_of / GIB
    why = (
        f"the checkpoint allows {found.possible}, for which {short:.1f} GiB are missing{asked.none_holds}; the longest "
        f"that fits is {found.largest}, less 3 % for what the engine measures otherwise"
    )
    return Proposal("max-model-len", length, why)


def _is_set(question: Question, name: str) -> bool:
    """Whether a person set it; what a profile says of batches gives way to known prompts."""
    setting = question.settings.get(name)
    return setting is not None and setting.layer != "profile"


def _round_down(count: int) -> int:
    """To a size that a person would write, so that small differences change no argument."""
    step = 1 if count < 16 else 8 if count < 128 else 32
    return count // step * step


def _told(capability: int) -> str:
    return f"{capability // 10}.{capability % 10}"


TYPES: tuple[Propose, ...] = (_dtype, _kv_cache_dtype)
SIZES: tuple[Propose, ...] = (_enforce_eager, _max_model_len, _max_num_seqs, _max_num_batched_tokens)
