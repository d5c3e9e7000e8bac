"""The context and shares that flags ask for."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.engines import parse_size
from onecat.planner.records import Refusal
from onecat.planner.refusals.situation import Situation, longest_context


def length(at: Situation) -> Iterator[Refusal]:
    limit = longest_context(at.checkpoint)
    wanted = at.value("max-model-len")
    length = parse_size(wanted) if isinstance(wanted, (int, str)) else None
    allowed = at.environment.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN") == "1" or "hf-overrides" in at.settings
    if limit is not None and length is not None and length > limit and not allowed:
        yield Refusal(
            "max-model-len",
            f"max-model-len {wanted} is above the checkpoint's max_position_embeddings of {limit}",
            (f"max-model-len: {limit}",),
        )


def ranges(at: Situation) -> Iterator[Refusal]:
    share = at.value("gpu-memory-utilization")
    if isinstance(share, (int, float)) and not 0 < share <= 1:
        yield Refusal(
            "gpu-memory-utilization",
            f"gpu-memory-utilization is {share}; it is a share above 0 and at most 1 (vllm config/cache.py:68)",
            ("gpu-memory-utilization: 0.9",),
        )
    length = at.value("max-model-len")
    if isinstance(length, int) and (length < -1 or length == 0):
        yield Refusal(
            "max-model-len",
            f"max-model-len is {length}, and no context has that length",
            ("leave max-model-len out: the engine reads it from the checkpoint",),
        )
