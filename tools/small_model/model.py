"""The model's shape, the loss over windows of text, and the held-out perplexity."""

from __future__ import annotations

import math

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

CONTEXT = 256
"""Tokens of a window in training; the model's limit (1024) is above, so that a server has room for a question."""


def make_model(vocabulary: int, end: int, seed: int) -> LlamaForCausalLM:
    """The untrained model in FP32. Its widths are multiples of 128, so that FP8 blocks of 128x128 cut evenly, also
    when two ranks share them; `end` is the token that ends a text."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=1024,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
        bos_token_id=end,
        eos_token_id=end,
        pad_token_id=None,
        attn_implementation="sdpa",
        use_cache=False,
    )
    return LlamaForCausalLM(config)


def loss_of(model: nn.Module, windows: torch.Tensor) -> torch.Tensor:
    """The mean cross entropy (nats a token) of each window's tokens [rows, CONTEXT + 1] given those before."""
    logits = model(input_ids=windows[:, :-1]).logits
    return nn.functional.cross_entropy(logits.flatten(0, 1).float(), windows[:, 1:].flatten())


@torch.no_grad()
def held_out_loss(model: nn.Module, tokens: torch.Tensor, rows: int = 32) -> float:
    """The mean cross entropy (nats a token) over all of `tokens` in windows that do not overlap."""
    model.eval()
    count = (len(tokens) - 1) // CONTEXT
    starts = torch.arange(count)[:, None] * CONTEXT
    windows = tokens[starts + torch.arange(CONTEXT + 1)]
    total = math.fsum(float(loss_of(model, part)) * len(part) for part in windows.split(rows))
    model.train()
    return total / count
