"""The peak of the engine's profile run: what it needs above the weights while it works on the largest batch.

The run goes through the encoders, the decoder and the sampler one after the other; the largest of the three counts.
Sizes follow from which tensors are alive together. Source: vllm/v1/worker/gpu_model_runner.py (profile_run,
_dummy_sampler_run) and vllm/v1/worker/gpu/model_runner.py at 0.27.1, vllm/worker/model_runner.py at 0.7.3.
"""

from __future__ import annotations

from onecat.checkpoints import Checkpoint
from onecat.planner.memory import decoder, encoders, sampling
from onecat.planner.memory.batches import Batch, batch_of
from onecat.planner.memory.records import Device, MemorySettings
from onecat.planner.memory.runners import ModelRunner, runner_of
from onecat.planner.memory.stages import Stage
from onecat.planner.memory.versions import behaviour_of


def activation_bytes(checkpoint: Checkpoint, settings: MemorySettings, stage: Stage, device: Device) -> int:
    """The peak of the profile run above the weights, and what the model runner keeps where that is counted.

    On a CPU the engine does not measure it: 0.
    """
    if settings.platform == "cpu":
        return 0
    behaviour = behaviour_of(settings.engine_version)
    architecture, batch = checkpoint.architecture, batch_of(checkpoint.architecture, settings)
    runner = runner_of(architecture, behaviour, device)
    encoding = encoders.peak_bytes(architecture, batch, settings) if stage.first else 0
    # What encoders put out stays while the decoder runs.
    embedded = encoders.output_bytes(architecture, batch, settings) if stage.first and runner != "v0" else 0
    decoding = decoder.peak_bytes(checkpoint, batch, settings, stage, device, behaviour, runner)
    sampled = sampling.peak_bytes(architecture, batch, settings, runner, behaviour) if stage.last else 0
    workspace = decoder.workspace_bytes(checkpoint, batch, settings, stage, behaviour)
    peak = max(encoding, embedded + workspace + decoding, embedded + workspace + sampled)
    if not behaviour.persistent_inside:
        return peak
    return peak + _kept_bytes(architecture.vocabulary_size or 0, batch, settings, runner, stage)


def _kept_bytes(vocabulary: int, batch: Batch, settings: MemorySettings, runner: ModelRunner, stage: Stage) -> int:
    """What the model runner holds all the time.

    v2 counts every token that a request has put out, for penalties: 32 bits for each word of the vocabulary, and a bit
    for each word of the prompt (vllm/v1/worker/gpu/sample/penalties.py). v1 keeps a table of blocks for each request
    (vllm/v1/worker/block_table.py).
    """
    if runner == "v2":
        return batch.sequences * 4 * (vocabulary + -(-vocabulary // 32)) if stage.last else 0
    return batch.sequences * -(-settings.max_model_len // (settings.block_size or 16)) * 4
