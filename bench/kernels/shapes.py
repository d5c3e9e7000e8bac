"""Linear layers of public models: what the harness times and the model of the V100 predicts.

Layers are as vLLM fuses them: q, k and v (with Qwen's output gate in q), gate and up; of gated delta net layers the
projection to q, k, v and z.
"""

from __future__ import annotations

from dataclasses import dataclass

TOKENS = (1, 2, 4, 8, 16, 32, 64, 256, 1024, 2048)
CROSSOVER_TOKENS = (64, 96, 128, 192, 256, 512)


@dataclass(frozen=True)
class Layer:
    """A weight [n, k] and how often the model has it."""

    model: str
    name: str
    n: int
    k: int
    count: int

    @property
    def weights(self) -> int:
        return self.n * self.k


# https://huggingface.co/meta-llama/Llama-3.1-8B: hidden 4096, intermediate 14336, 32 heads of 128, 8 for keys.
LLAMA_8B = (
    Layer("Llama-3.1-8B", "qkv", 6144, 4096, 32),
    Layer("Llama-3.1-8B", "o", 4096, 4096, 32),
    Layer("Llama-3.1-8B", "gate_up", 28672, 4096, 32),
    Layer("Llama-3.1-8B", "down", 4096, 14336, 32),
)
# https://huggingface.co/meta-llama/Llama-3.1-70B: hidden 8192, intermediate 28672, 64 heads of 128, 8 for keys.
LLAMA_70B = (
    Layer("Llama-3.1-70B", "qkv", 10240, 8192, 80),
    Layer("Llama-3.1-70B", "o", 8192, 8192, 80),
    Layer("Llama-3.1-70B", "up", 28672, 8192, 80),  # alone, as in a half of gate_up under TP2
    Layer("Llama-3.1-70B", "gate_up", 57344, 8192, 80),
    Layer("Llama-3.1-70B", "down", 8192, 28672, 80),
)
# config.json of https://huggingface.co/nvidia/Qwen3.6-27B-NVFP4 (Qwen3.8-27B has the same sizes): hidden 5120,
# intermediate 17408; 16 attention layers with 24 heads of 256 and a gate, 4 for keys; 48 gated delta net layers with
# 16 key heads and 48 value heads of 128.
QWEN_27B = (
    Layer("Qwen-27B", "qkv+gate", 14336, 5120, 16),
    Layer("Qwen-27B", "gdn qkvz", 16384, 5120, 48),
    Layer("Qwen-27B", "o, gdn out", 5120, 6144, 64),
    Layer("Qwen-27B", "gate_up", 34816, 5120, 64),
    Layer("Qwen-27B", "down", 5120, 17408, 64),
)
QWEN_27B_TP2 = (
    Layer("Qwen-27B TP2", "qkv+gate", 7168, 5120, 16),
    Layer("Qwen-27B TP2", "gdn qkvz", 8192, 5120, 48),
    Layer("Qwen-27B TP2", "o, gdn out", 5120, 3072, 64),
    Layer("Qwen-27B TP2", "gate_up", 17408, 5120, 64),
    Layer("Qwen-27B TP2", "down", 5120, 8704, 64),
)
# https://huggingface.co/mlboydaisuke/Gemma-4-31B-CoreAI and https://apxml.com/models/gemma-4-31b: hidden 5376,
# intermediate 21504, 60 layers, every sixth global; 32 heads of 256 (global: 512), 16 for keys and values (global: 4,
# whose values are the keys).
GEMMA_31B = (
    Layer("Gemma-4-31B", "qkv", 16384, 5376, 50),
    Layer("Gemma-4-31B", "o", 5376, 8192, 50),
    Layer("Gemma-4-31B", "global qk", 18432, 5376, 10),
    Layer("Gemma-4-31B", "global o", 5376, 16384, 10),
    Layer("Gemma-4-31B", "gate_up", 43008, 5376, 60),
    Layer("Gemma-4-31B", "down", 5376, 21504, 60),
)
LAYERS = LLAMA_8B + LLAMA_70B + QWEN_27B + QWEN_27B_TP2 + GEMMA_31B
QUICK_LAYERS = (LLAMA_8B[0], LLAMA_70B[2], *QWEN_27B_TP2)
CROSSOVER_LAYERS = (LLAMA_8B[2], LLAMA_70B[4], QWEN_27B_TP2[3])


def matching(layers: tuple[Layer, ...], text: str) -> tuple[Layer, ...]:
    """Those whose model and name contain the text."""
    return tuple(layer for layer in layers if text.lower() in f"{layer.model} {layer.name}".lower())
