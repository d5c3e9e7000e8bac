"""What vLLM's cache of compiled code has to tell apart beside what vLLM itself knows of.

vLLM keys the cache, which outlives the engine, by its configuration, its source files and the environment variables of
`vllm.envs`. Compiled code also holds what layers of vllm_volta pass to their operators beside tensors: the kind of
fragments, the global scales. Another checkpoint in the same folder has others, and so does another choice by variables
of vllm_volta.
"""

from __future__ import annotations

import functools
import hashlib
import os
import weakref
from collections.abc import Iterable

import torch
from vllm import envs

# Stands among vLLM's environment variables; nobody sets it.
CONSTANTS = "VLLM_VOLTA_CONSTANTS"

_constants: weakref.WeakKeyDictionary[torch.nn.Module, str] = weakref.WeakKeyDictionary()


def add_variables(names: Iterable[str]) -> None:
    """Make environment variables known to vLLM: a part of the key, as they are when it is made."""
    for name in names:
        envs.environment_variables[name] = functools.partial(os.environ.get, name)


def add_constants(layer: torch.nn.Module, *constants: object) -> None:
    """Make a part of the key what a layer passes to its operators, instead of what it passed before."""
    _constants[layer] = repr((getattr(layer, "prefix", ""), constants))
    envs.environment_variables[CONSTANTS] = _digest


def _digest() -> str:
    return hashlib.sha256(repr(sorted(_constants.values())).encode()).hexdigest()
