"""Whether a layer's weights become panels, and why: what vLLM's kernel classes ask when they have loaded a layer."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch
from vllm import envs
from vllm.config import get_current_vllm_config_or_none

from vllm_volta import extension, ops, panels
from vllm_volta.plugin import FRAGMENTS, PANELS

FRAGMENT_NAMES = {"quad-pairs": panels.QUAD_PAIRS, "octets": panels.OCTETS}
# Formats in which vLLM loads tensors as another engine has left them, after the layer was asked how it keeps them.
FORMATS_OF_ENGINES = ("sharded_state", "runai_streamer_sharded", "tensorizer")


@dataclass(frozen=True)
class Layout:
    """fragments: of the panels; None for weights that stay as checkpoints have them. reason: for the log."""

    fragments: int | None
    reason: str


def layout_for(weight: torch.Tensor, dtype: torch.dtype, operator: str) -> Layout:
    """How to keep a layer's quantised weight, given the type of the model and the compiled operator for panels.

    Raises ValueError when VLLM_VOLTA_PANELS or VLLM_VOLTA_FRAGMENTS has a value that means nothing.
    """
    wanted = os.environ.get(PANELS, "")
    if wanted not in ("", "0", "1"):
        raise ValueError(f"{PANELS}={wanted}: it may be 0, 1 or unset")
    if wanted == "0":
        return Layout(None, f"{PANELS}=0")
    if envs.VLLM_BATCH_INVARIANT:
        return Layout(None, "VLLM_BATCH_INVARIANT=1, and sums over panels depend on the number of tokens")
    config = get_current_vllm_config_or_none()
    if config is not None and config.load_config.load_format in FORMATS_OF_ENGINES:
        return Layout(None, f"--load-format {config.load_config.load_format} has no room for panels")
    missing = _missing(weight, dtype, operator)
    if missing is None:
        fragments = torch.ops.vllm_volta.panel_fragments(weight)
        how = f"compiled kernels multiply up to {ops.MAX_PANEL_TOKENS} tokens, cuBLAS with tiles in float16 more"
        return Layout(fragments, f"panels of {_name(fragments)}: {how}")
    if wanted == "1":
        fragments = _asked_fragments()
        return Layout(fragments, f"panels of {_name(fragments)}, which PyTorch undoes: {PANELS}=1, but {missing}")
    return Layout(None, missing)


def is_eager() -> bool:
    """Whether vLLM says that no CUDA graph and no compiled code holds what a layer passes to its operator."""
    config = get_current_vllm_config_or_none()
    return config is not None and config.model_config is not None and config.model_config.enforce_eager


def new_arrivals(codes: torch.Tensor) -> torch.Tensor:
    """The zeros that the kernels for these panels count in: int32, one for each group of rows, more than any needs."""
    return torch.zeros(codes.shape[0], dtype=torch.int32, device=codes.device)


def _missing(weight: torch.Tensor, dtype: torch.dtype, operator: str) -> str | None:
    """What the compiled kernels lack to serve this weight; None for nothing."""
    if not weight.is_cuda:
        return f"there are no compiled kernels for {weight.device.type}"
    if not hasattr(torch.ops.vllm_volta, operator):
        return f"{extension.EXTENSION} has no {operator}"
    if dtype != torch.float16:
        return f"the compiled kernels serve float16, not {dtype}"
    return None


def _asked_fragments() -> int:
    name = os.environ.get(FRAGMENTS, "") or "quad-pairs"
    if name not in FRAGMENT_NAMES:
        raise ValueError(f"{FRAGMENTS}={name}: it may be {', '.join(FRAGMENT_NAMES)} or unset")
    return FRAGMENT_NAMES[name]


def _name(fragments: int) -> str:
    return next(name.replace("-", " ") for name, number in FRAGMENT_NAMES.items() if number == fragments)
