"""What the prefill kernels of gated delta nets compute with our variants: `python gdn_numbers.py`, JSON on stdout.

Triton's interpreter executes vLLM's own kernels on the CPU, block by block, as a device of compute capability 7.0 would
launch them. Answers: theirs (of vLLM's first variant of each kernel), ours (a list that covers all tiles of ours): the
errors by norm of the outputs and of the last states against the recurrence in float64, token by token.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

os.environ["TRITON_INTERPRET"] = "1"
sys.path.append(str(Path(__file__).parents[1] / "volta"))

import fake_cuda  # type: ignore[import-not-found]  # noqa: E402

HEADS, KEY_HEADS, SIZE = 2, 1, 128
LENGTHS = (70, 5)
"""Two prompts: more than a chunk of 64 tokens, and less than the blocks of 16 that the kernels invert."""


def main() -> None:
    """Write the errors."""
    output, sys.stdout = sys.stdout, sys.stderr
    fake_cuda.install(fake_cuda.DEVICES[7, 0], flash_attention=False)
    import torch
    from vllm.logger import init_logger
    from vllm_volta import gdn

    tuners = {path: autotuner(path) for path in gdn.VARIANTS}
    theirs = {path: tuner.configs for path, tuner in tuners.items()}
    gdn.register(init_logger("vllm.gdn"))
    ours = {path: by_tiles(tuner.configs) for path, tuner in tuners.items()}
    make_interpretable(path.rpartition(".")[0] for path in gdn.VARIANTS)
    cumulative = autotuner("vllm.third_party.flash_linear_attention.ops.cumsum.chunk_local_cumsum_scalar_kernel")
    cumulative.configs = cumulative.configs[:1]

    torch.manual_seed(1)
    problem = some_problem()
    expected = recurrence(**problem)

    def errors(configs: dict[str, list[Any]], index: int) -> list[float]:
        for path, tuner in tuners.items():
            tuner.configs = [configs[path][index % len(configs[path])]]
        return [error(*pair) for pair in zip(prefill(**problem), expected, strict=True)]

    count = max(map(len, ours.values()))
    json.dump({"theirs": errors(theirs, 0), "ours": [errors(ours, index) for index in range(count)]}, output)


def by_tiles(configs: list[Any]) -> list[Any]:
    """One variant for each choice of tiles: the interpreter has no warps."""
    return list({tuple(config.kwargs.items()): config for config in configs}.values())


def autotuner(path: str) -> Any:
    """That of a kernel, by the kernel's module and name."""
    from triton.runtime.autotuner import Autotuner

    module, _, name = path.rpartition(".")
    kernel = getattr(importlib.import_module(module), name)
    while not isinstance(kernel, Autotuner):
        kernel = kernel.fn
    return kernel


def make_interpretable(modules: Iterable[str]) -> None:
    """Give the kernels what the interpreter lacks beside the compiler.

    It puts its own functions into triton.language, while these modules keep Triton's `exp` by a name of theirs; and the
    numbers that a loop counts are plain ones there, without the methods of Triton's.
    """
    import triton.language as tl

    for module in map(importlib.import_module, modules):
        if hasattr(module, "exp"):
            module.exp = lambda x: tl.exp(x)  # type: ignore[attr-defined]
        module.range = lambda *bounds: map(tl.to_tensor, range(*bounds))  # type: ignore[attr-defined]


def some_problem() -> dict[str, Any]:
    """Inputs as a layer makes them: keys and queries of length 1, decays below 1, rates from 0 to 1, states to begin
    with."""
    import torch

    tokens = sum(LENGTHS)
    unit = torch.nn.functional.normalize
    return {
        "query": unit(torch.randn(1, tokens, KEY_HEADS, SIZE), dim=-1).half(),
        "key": unit(torch.randn(1, tokens, KEY_HEADS, SIZE), dim=-1).half(),
        "value": torch.randn(1, tokens, HEADS, SIZE).half(),
        "log_decay": -torch.rand(1, tokens, HEADS),
        "rate": torch.rand(1, tokens, HEADS),
        "state": torch.randn(len(LENGTHS), HEADS, SIZE, SIZE),
    }


def prefill(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    log_decay: torch.Tensor,
    rate: torch.Tensor,
    state: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """vLLM's kernels: outputs [1, tokens, heads, size] and last states [prompts, heads, value size, key size]."""
    import torch
    from vllm.third_party.flash_linear_attention.ops.chunk import chunk_gated_delta_rule_fwd

    starts = torch.tensor([0, *LENGTHS]).cumsum(0).int()
    answer = chunk_gated_delta_rule_fwd(
        query, key, value, log_decay, rate, SIZE**-0.5, state.clone(), True, cu_seqlens=starts
    )
    return answer[1], answer[3]


def recurrence(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    log_decay: torch.Tensor,
    rate: torch.Tensor,
    state: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The gated delta rule (https://arxiv.org/abs/2412.06464, equation 10), in float64.

    A state decays; what it holds for the key moves towards the value, by the rate; the query reads it.
    """
    import torch

    query, key = (each[0].double().repeat_interleave(HEADS // KEY_HEADS, dim=1) for each in (query, key))
    value, decay, rate, states = value[0].double(), log_decay[0].double().exp(), rate[0].double(), state.double()
    outputs = torch.zeros_like(value)
    first = 0
    for prompt, length in enumerate(LENGTHS):
        for token in range(first, first + length):
            held = states[prompt] * decay[token, :, None, None]
            wrong = value[token] - (held @ key[token, :, :, None])[..., 0]
            held = held + rate[token, :, None, None] * wrong[..., None] * key[token, :, None, :]
            states[prompt] = held
            outputs[token] = (held @ query[token, :, :, None])[..., 0] * SIZE**-0.5
        first += length
    return outputs[None], states


def error(found: torch.Tensor, expected: torch.Tensor) -> float:
    """By norm, relative."""
    return float((found.double() - expected).norm() / expected.norm())


if __name__ == "__main__":
    main()
