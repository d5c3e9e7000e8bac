"""Attention layers of public models, and the batches that the harness times and the model of the V100 predicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

BLOCK_SIZE = 16
"""Tokens of a block of vLLM's cache, unless a model asks for another."""
HYBRID_BLOCK_SIZE = 784
"""What vLLM 0.27.1 chooses for Qwen3.6-27B, whose gated delta net layers share pages with attention."""
TABLE_COLUMNS = 16
"""Block tables have a multiple of so many columns: Triton compiles for whether a stride is a multiple of 16."""


@dataclass(frozen=True)
class Heads:
    """The heads of one attention layer on one GPU. window: keys that a token sees, its own included; 0: all."""

    model: str
    heads: int
    kv_heads: int
    head_size: int
    window: int = 0
    block_size: int = BLOCK_SIZE

    @property
    def group(self) -> int:
        """Query heads of a KV head."""
        return self.heads // self.kv_heads

    @property
    def token_bytes(self) -> int:
        """Of a token's keys and values in the cache, fp16."""
        return 2 * 2 * self.kv_heads * self.head_size

    @property
    def name(self) -> str:
        return f"{self.model} {self.heads}/{self.kv_heads} D{self.head_size}"


# https://huggingface.co/meta-llama/Llama-3.1-8B and -70B: 32 and 64 heads of 128, 8 for keys and values.
LLAMA_8B = Heads("Llama-8B", 32, 8, 128)
LLAMA_70B = Heads("Llama-70B", 64, 8, 128)
LLAMA_70B_TP2 = Heads("Llama-70B TP2", 32, 4, 128)
LLAMA_70B_TP8 = Heads("Llama-70B TP8", 8, 1, 128)
# config.json of https://huggingface.co/nvidia/Qwen3.6-27B-NVFP4: 24 heads of 256, 4 for keys and values.
QWEN_27B = Heads("Qwen-27B", 24, 4, 256, block_size=HYBRID_BLOCK_SIZE)
QWEN_27B_TP2 = Heads("Qwen-27B TP2", 12, 2, 256, block_size=HYBRID_BLOCK_SIZE)
# https://huggingface.co/mlboydaisuke/Gemma-4-31B-CoreAI and https://apxml.com/models/gemma-4-31b: 32 heads of 256 with
# 16 for keys and values and a window of 1024; every sixth layer global, heads of 512, 4 for keys and values.
GEMMA_31B = Heads("Gemma-31B", 32, 16, 256, window=1024)
GEMMA_31B_GLOBAL = Heads("Gemma-31B global", 32, 4, 512)
# A small model's: heads of 64 (https://huggingface.co/meta-llama/Llama-3.2-1B).
LLAMA_1B = Heads("Llama-1B", 32, 8, 64)

ALL = (
    LLAMA_70B,
    QWEN_27B,
    LLAMA_8B,
    GEMMA_31B,
    GEMMA_31B_GLOBAL,
    QWEN_27B_TP2,
    LLAMA_70B_TP2,
    LLAMA_70B_TP8,
    LLAMA_1B,
)
"""Those that targets speak of come first, so that they are there when time runs out."""
QUICK = ALL[:2] + (GEMMA_31B, GEMMA_31B_GLOBAL)


@dataclass(frozen=True)
class Batch:
    """`requests` requests, each with `queries` new tokens after which its cache holds `length` tokens."""

    heads: Heads
    requests: int
    queries: int
    length: int

    @property
    def decodes(self) -> bool:
        return self.queries == 1

    @property
    def seen_keys(self) -> int:
        """Keys in the cache that some query of a request sees."""
        if not self.heads.window:
            return self.length
        return min(self.length, self.queries + self.heads.window - 1)

    @property
    def pairs(self) -> int:
        """Pairs of a query and a key that it sees, of one head and request."""
        first = self.length - self.queries
        window = self.heads.window
        if not window:
            return self.queries * first + self.queries * (self.queries + 1) // 2
        short = min(self.queries, max(0, window - first))  # queries that see fewer keys than the window has
        return short * first + short * (short + 1) // 2 + (self.queries - short) * window

    @property
    def operations(self) -> int:
        """Multiplications and additions of both products, masked ones left out."""
        return 4 * self.requests * self.heads.heads * self.heads.head_size * self.pairs

    @property
    def cache_bytes(self) -> int:
        """What the cache holds for the requests."""
        return self.requests * self.length * self.heads.token_bytes

    @property
    def moved_bytes(self) -> int:
        """What has to be read and written at least: keys and values that are seen, queries, results."""
        rows = 2 * 2 * self.requests * self.queries * self.heads.heads * self.heads.head_size
        return self.requests * self.seen_keys * self.heads.token_bytes + rows

    @property
    def name(self) -> str:
        if self.decodes:
            return f"{short_count(self.length)} x{self.requests}"
        context = self.length - self.queries
        return short_count(self.queries) + (f" @{short_count(context)}" if context else "")


def short_count(tokens: int) -> str:
    """1536 as 1536, 2048 as 2k."""
    return f"{tokens // 1024}k" if tokens % 1024 == 0 and tokens else str(tokens)


CONTEXTS = (512, 2048, 8192, 32768, 131072)
REQUESTS = (1, 8, 64)
PROMPTS = ((512, 0), (2048, 0), (4096, 0), (16384, 0), (2048, 32768), (2048, 131072))
"""New tokens, and tokens that are in the cache already."""
QUICK_CONTEXTS, QUICK_REQUESTS = (2048, 8192, 32768), (8,)
QUICK_PROMPTS = ((2048, 0), (8192, 0), (2048, 32768))


def decode_batches(
    heads: Sequence[Heads], contexts: Sequence[int], requests: Sequence[int], most_bytes: int
) -> Iterator[Batch]:
    """One new token each; batches whose cache is larger than `most_bytes` are left out, as are contexts that a sliding
    window makes the same as shorter ones."""
    for each in heads:
        for count in requests:
            seen = set()
            for length in contexts:
                batch = Batch(each, count, 1, length)
                if batch.cache_bytes <= most_bytes and batch.seen_keys not in seen:
                    seen.add(batch.seen_keys)
                    yield batch


def prefill_batches(heads: Sequence[Heads], prompts: Sequence[tuple[int, int]]) -> Iterator[Batch]:
    """One request with so many new tokens and so many before; of a sliding window the nearest context only."""
    for each in heads:
        seen = set()
        for queries, context in prompts:
            batch = Batch(each, 1, queries, queries + context)
            if (queries, batch.pairs) not in seen:
                seen.add((queries, batch.pairs))
                yield batch
