"""The profile run's last step: logits of as many sequences as there may be, and choosing a token for each."""

from __future__ import annotations

from onecat.checkpoints import Architecture
from onecat.planner.memory.batches import Batch
from onecat.planner.memory.records import MemorySettings
from onecat.planner.memory.runners import ModelRunner
from onecat.planner.memory.versions import Behaviour

SEGMENTED = 128
"""Rows from which torch sorts all rows at once and not one by one (aten/src/ATen/native/cuda/SortStable.cu)."""

SORTED_AT_ONCE = 9
"""float32 logits; sorted values (1) and indices (2, int64); torch's reversed indices (2) and the buffers of CUB's
segmented radix sort (1 + 2)."""

SORTED_ONE_BY_ONE = 6
"""float32 logits, sorted values (1), indices (2), probabilities (1) and their sum or the result (1)."""

IN_PLACE = 3
"""float32 logits, probabilities, and the noise that chooses among them (vllm/v1/sample/ops/topk_topp_sampler.py:
forward_native, random_sample)."""


TRITON_SEQUENCES = 8
"""Rows from which the triton kernel is used (topk_topp_sampler.py, apply_top_k_top_p)."""


def peak_bytes(
    architecture: Architecture, batch: Batch, settings: MemorySettings, runner: ModelRunner, behaviour: Behaviour
) -> int:
    """The most that is alive while tokens are chosen, with the decoder's output that it starts from.

    Runner v2 chooses from the logits as they are: its dummy requests are greedy.
    """
    vocabulary = architecture.vocabulary_size or 0
    logits = batch.sequences * vocabulary
    # With tensor parallelism the own part is alive with all parts, one after the other and put together.
    own = logits * batch.size
    gathered = own if settings.tensor_parallel == 1 else 2 * own + own // settings.tensor_parallel
    chosen_from = batch.sequences * batch.hidden
    if runner == "v2":
        return batch.states + chosen_from + gathered
    return batch.states + chosen_from + own + 4 * logits * _copies(batch.sequences, settings, behaviour)


def _copies(sequences: int, settings: MemorySettings, behaviour: Behaviour) -> int:
    in_place = behaviour.sampler == "triton" and sequences >= TRITON_SEQUENCES
    if in_place or (settings.flashinfer and behaviour.engine == "v1"):
        return IN_PLACE
    return SORTED_AT_ONCE if sequences >= SEGMENTED else SORTED_ONE_BY_ONE
