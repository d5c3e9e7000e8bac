"""Sizes that the planner chooses for a layout where nobody set them, each with its reason. Pure.

The batch comes first, then whether CUDA graphs are worth their memory, then the context: it gets what the others leave,
and is shortened only where they leave too little. Each decision sees those before it, and the batch is asked again
until it is one that the KV cache holds with all that follows from it; so every reason tells the numbers of the plan.
"""

from __future__ import annotations

import math
from dataclasses import replace

from onecat.planner.hardware import GIB
from onecat.planner.prompts import Prompts
from onecat.planner.proposals import Asked, Proposal, Propose, is_set, proposed, with_proposal
from onecat.planner.questions import Question, with_flags
from onecat.planner.records import Layout
from onecat.planner.sizing import AUTO_LENGTHS, SHORTEST, Sizing, held_at_once, size

SAFETY = 0.97
"""Of the longest context that fits: the engine measures a few percent more or less than the estimate says."""

EAGER_TIMES = 2
"""How many times longer a context must get for CUDA graphs to be given up: they matter for speed."""

BLOCK = 16
MOST_SEQS = 1024
MOST_ROUNDS = 8
"""In which a batch is lowered until the KV cache holds it: two or three do, since a smaller one leaves more room."""

SEQS, LENGTH = "max-num-seqs", "max-model-len"
TUNING_SOURCE = "https://docs.vllm.ai/en/latest/configuration/optimization/"


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
        is_open: nobody but the planner chooses, as for cards alone without a profile.
        none_holds: layouts were compared, and none holds the checkpoint's whole context.
    """
    told = ", and no layout of these cards holds it" if none_holds else ""
    asked = Asked(question, layout, prompts, is_open, told)
    count = _most_held(asked)
    found = _with_batch(asked, count)
    if count is None or prompts is None:
        return found
    told_seqs = _why_held(prompts, size(found, layout), count)
    return found if told_seqs is None else _with_batch(asked, count, told_seqs)


def with_batch(
    question: Question, layout: Layout, prompts: Prompts | None = None, *, is_open: bool = False
) -> Question:
    """As `with_sizes`, with the context left as long as it was asked for: as layouts are compared."""
    found = with_sizes(question, layout, prompts, is_open=is_open)
    settings = {name: setting for name, setting in found.settings.items() if name != LENGTH}
    if LENGTH in question.settings:
        settings[LENGTH] = question.settings[LENGTH]
    return replace(found, settings=settings)


def _most_held(asked: Asked) -> int | None:
    """The most requests of those to come that the KV cache holds, once it has what so many leave of the memory.

    None where they are not to be chosen, or not even one leaves anything for the KV cache.
    """
    if asked.prompts is None or is_set(asked.question, SEQS):
        return None
    count = holds = _held(asked, 1)
    for _ in range(MOST_ROUNDS):
        if not count:
            return None
        holds = _held(asked, count)
        if holds >= count:
            break
        count = holds or _round_down(count // 2)
    return holds if holds > count and _held(asked, holds) >= holds else count


def _held(asked: Asked, count: int) -> int:
    """How many requests of those to come the KV cache holds with a batch of `count`; 0 where there is no room."""
    found = size(_with_batch(asked, count), asked.layout)
    capacity = None if found is None else found.estimate.capacity
    if found is None or capacity is None or not capacity.tokens or asked.prompts is None:
        return 0
    return _round_down(max(1, min(MOST_SEQS, int(held_at_once(found, _usual(asked.prompts))))))


def _with_batch(asked: Asked, count: int | None, why: str = "") -> Question:
    """The question with a batch, None for what is there, and with all that follows from it."""
    question = asked.question
    if count is not None:
        question = with_proposal(question, Proposal(SEQS, count, why, TUNING_SOURCE))
    return proposed(replace(asked, question=question), FOLLOWING)


def _usual(prompts: Prompts) -> float:
    """Tokens that a request takes on average, its last block half full."""
    return prompts.mean + BLOCK / 2


def _why_held(prompts: Prompts, found: Sizing | None, count: int) -> str | None:
    """Why a batch is as large as it is, in the numbers of the final sizes."""
    capacity = None if found is None else found.estimate.capacity
    if found is None or capacity is None:
        return None
    holds = held_at_once(found, _usual(prompts))
    return (
        f"{prompts.stated}: a request takes {prompts.mean:.0f} tokens on average, and the KV cache of "
        f"{capacity.tokens:,} tokens holds {holds:.0f} of them; more would be put off and begun again"
    )


def _max_num_batched_tokens(asked: Asked) -> Proposal | None:
    """A step long enough that most prompts are read at once, beside the answers that go on."""
    question, prompts = asked.question, asked.prompts
    if prompts is None or is_set(question, "max-num-batched-tokens"):
        return None
    usual = prompts.prompt_at(0.9)
    found = size(question, asked.layout)
    seqs = question.count(SEQS) or (256 if found is None else found.settings.max_num_seqs)
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
    if not asked.is_open or is_set(question, LENGTH) or question.value(LENGTH) in AUTO_LENGTHS:
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
    return Proposal(LENGTH, length, why)


def _round_down(count: int) -> int:
    """To a size that a person would write, so that small differences change no argument."""
    step = 1 if count < 16 else 8 if count < 128 else 32
    return count // step * step


FOLLOWING: tuple[Propose, ...] = (_max_num_batched_tokens, _enforce_eager, _max_model_len)
