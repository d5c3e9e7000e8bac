"""The training loop: AdamW, warm-up and cosine, the best weights by held-out loss kept, going on after a kill."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tools.small_model.model import CONTEXT, held_out_loss, loss_of

STATE = "state.pt"
"""In the directory of a run: model, optimizer and best weights after the last examination."""


@dataclass(frozen=True)
class Settings:
    """What decides the result, besides the text and the shape."""

    seed: int = 20260101
    steps: int = 4000
    rows: int = 8
    """Windows of CONTEXT tokens in a step."""
    peak_rate: float = 2e-3
    final_rate: float = 1e-4
    warm_up: int = 150
    decay: float = 0.1
    """Weight decay of matrices; norms have none."""
    largest_gradient: float = 1.0
    examine_every: int = 250


@dataclass(frozen=True)
class Best:
    """The weights (FP32, by name) with the least held-out loss (nats a token) so far, and after which step."""

    step: int
    loss: float
    weights: dict[str, torch.Tensor]


def train(model: torch.nn.Module, learnt: torch.Tensor, held_out: torch.Tensor, settings: Settings, work: Path) -> Best:
    """Train `model` on the token row `learnt`; each examination is kept in `work`, from where a later call goes on."""
    optimizer = _optimizer(model, settings)
    state = work / STATE
    first, best = 0, Best(0, math.inf, {})
    if state.is_file():
        kept = torch.load(state, weights_only=True)
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        first, best = kept["step"], Best(**kept["best"])
        print(f"going on after step {first} of {settings.steps} from {state}", flush=True)
    model.train()
    started, seen = time.monotonic(), 0.0
    for step in range(first + 1, settings.steps + 1):
        seen += _step(model, optimizer, learnt, settings, step)
        if step % settings.examine_every and step != settings.steps:
            continue
        loss = held_out_loss(model, held_out)
        if loss < best.loss:
            best = Best(step, loss, {name: value.clone() for name, value in model.state_dict().items()})
        kept = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict(), "best": vars(best)}
        _save(kept, state)
        since = (step - 1) % settings.examine_every + 1
        print(
            f"step {step:5}/{settings.steps}  loss {seen / since:.4f}  held-out loss {loss:.4f}  "
            f"perplexity {math.exp(loss):.2f}  {time.monotonic() - started:.0f} s",
            flush=True,
        )
        seen = 0.0
    return best


def _optimizer(model: torch.nn.Module, settings: Settings) -> torch.optim.AdamW:
    matrices = [value for value in model.parameters() if value.dim() > 1]
    others = [value for value in model.parameters() if value.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": settings.decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=settings.peak_rate, betas=(0.9, 0.95), fused=True)


def _step(
    model: torch.nn.Module, optimizer: torch.optim.AdamW, learnt: torch.Tensor, settings: Settings, step: int
) -> float:
    # Seeded by the step: a run that goes on sees the same windows as one that was never stopped.
    draw = torch.Generator().manual_seed(settings.seed + step)
    starts = torch.randint(len(learnt) - CONTEXT, (settings.rows, 1), generator=draw)
    for group in optimizer.param_groups:
        group["lr"] = _rate(step, settings)
    optimizer.zero_grad(set_to_none=True)
    # The master weights stay FP32; products in BF16 take two thirds of the time on a CPU that has them.
    with torch.autocast("cpu", torch.bfloat16):
        loss = loss_of(model, learnt[starts + torch.arange(CONTEXT + 1)])
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), settings.largest_gradient)
    optimizer.step()
    return float(loss.detach())


def _rate(step: int, settings: Settings) -> float:
    if step < settings.warm_up:
        return settings.peak_rate * step / settings.warm_up
    done = (step - settings.warm_up) / (settings.steps - settings.warm_up)
    return settings.final_rate + (settings.peak_rate - settings.final_rate) * (1 + math.cos(math.pi * done)) / 2


def _save(state: dict[str, Any], path: Path) -> None:
    """Atomically: a kill leaves the old state whole."""
    partial = path.with_suffix(".partial")
    torch.save(state, partial)
    partial.replace(path)
