"""What the memory model is asked, and what it answers. All sizes in bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Device:
    """One accelerator. memory: as programs see it (`seen_by_engine`); used: by others before the engine starts.

    name: as NVML tells it, None for a CPU. capability: compute capability, ten times, None when there is none.
    """

    name: str | None
    memory: int
    used: int = 0
    capability: int | None = None


@dataclass(frozen=True)
class MemorySettings:
    """The flags that decide about memory, resolved: what `None` or `auto` stood for is in them as the engine would.

    max_model_len: tokens. utilization: share of the device. kv_cache_dtype: as the flag (`auto`, `fp8`, ...).
    dtype: of the model (`float16`). block_size: tokens, None for the engine's own. kv_cache_bytes: per GPU, when it is
    given and not computed. draft_layers: layers of speculative decoding that are loaded; speculative_tokens: of each
    step. graphs: whether CUDA graphs are captured. text_only: no pictures or sound are let in.
    quantization: what `--quantization` asks for, None for the checkpoint's own. capability: of the devices, ten times,
    None when there is none or it is not known. hybrid_manager: sliding windows keep only what they need, as they do
    unless --disable-hybrid-kv-cache-manager is given. flashinfer: whether the engine chooses tokens with it, as its
    images do and a bare `pip install` does not; from 0.18 on it chooses in place anyhow. encoders_whole: every rank has
    the towers whole (`--mm-encoder-tp-mode data`). data_parallel: ranks of `--data-parallel-size`, which share the
    experts of a mixture. blocks: of the KV cache on each GPU, when they are given (`--num-gpu-blocks-override`) and not
    computed from memory.
    """

    engine_version: str
    tensor_parallel: int
    pipeline_parallel: int
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    utilization: float
    dtype: str
    kv_cache_dtype: str = "auto"
    block_size: int | None = None
    kv_cache_bytes: int | None = None
    prefix_caching: bool = True
    graphs: bool = True
    async_scheduling: bool = True
    draft_layers: int = 0
    speculative_tokens: int = 0
    text_only: bool = False
    quantization: str | None = None
    attention_backend: str | None = None
    expert_parallel: bool = False
    platform: Literal["cuda", "cpu", "ascend"] = "cuda"
    capability: int | None = None
    hybrid_manager: bool = True
    flashinfer: bool = False
    encoders_whole: bool = False
    data_parallel: int = 1
    blocks: int | None = None


@dataclass(frozen=True)
class KeyValueCapacity:
    """What the memory for the KV cache comes to.

    tokens: as the engine logs its size; blocks: of the pool that all groups share, on each GPU; block_size: tokens of a
    block of layers that keep every token; groups: how many tables of blocks a sequence has. bytes_per_token: on the
    GPU that has most, of layers that keep every token; bytes_per_sequence: of the others (states, windows), for a
    sequence of any length, with what a step has in flight. max_concurrency: requests of max_model_len.
    largest_max_model_len: that one request could have, no more than the model has positions for or max_model_len is.
    """

    tokens: int
    blocks: int
    block_size: int
    groups: int
    bytes_per_token: int
    bytes_per_sequence: int
    max_concurrency: float
    largest_max_model_len: int


@dataclass(frozen=True)
class GpuMemory:
    """How the memory of one GPU is used.

    memory: of the device. budget: what the engine may use of it. other: of other processes. weights, activations,
    graphs: of the engine. overhead: libraries and communication, as far as the engine counts them against its budget;
    outside: the context and what else it takes before it counts. kv_cache: what is left of the budget; negative when
    the rest does not fit. free: of the device beyond all that.
    """

    rank: int
    memory: int
    budget: int
    weights: int
    activations: int
    graphs: int
    overhead: int
    other: int
    kv_cache: int
    outside: int = 0

    @property
    def free(self) -> int:
        counted = self.weights + self.activations + self.graphs + self.overhead + max(0, self.kv_cache)
        return self.memory - counted - self.other - self.outside

    @property
    def beyond_free(self) -> int:
        """Bytes of the budget that the device has not free when the engine starts, for which the engine refuses."""
        return max(0, self.budget - (self.memory - self.other - self.outside))


@dataclass(frozen=True)
class Estimate:
    """Whether a model fits, and what is left for its KV cache.

    per_gpu: of one replica, by rank (pipeline stage major). capacity: None when nothing is left for a KV cache.
    short_of: bytes per GPU that are missing for one request of max_model_len, 0 when it fits. estimated: what of this
    is no more than an estimate, and why.
    """

    per_gpu: tuple[GpuMemory, ...]
    capacity: KeyValueCapacity | None
    short_of: int
    estimated: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        return self.short_of == 0
