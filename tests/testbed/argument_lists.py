"""Every kind of argument list that plans have, for the engine's own parser to read."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from onecat.checkpoints import Checkpoint
from onecat.cli.planning import Cards
from onecat.config import Profile, deployment_from, list_profiles, load_profile
from onecat.engines import Flag, FlagSchema, words, wrong_value
from onecat.planner import Plan, make_plan
from onecat.planner.prompts import parse_distribution
from onecat.planner.ray import server_args
from tests.unit.planner.examples import LLAMA, checkpoint_of, llama

VERSION = "0.27.1"
CHECKPOINTS = (
    LLAMA,
    llama("compressed-tensors", "nvfp4-pack-quantized", small=True),
    llama("fp8", kv="fp8"),
    checkpoint_of(num_hidden_layers=80, hidden_size=8192, num_attention_heads=64, intermediate_size=28672),
)
SETTINGS: tuple[dict[str, Any], ...] = (
    {"tensor-parallel-size": 2, "max-model-len": 4096, "max-num-seqs": 16, "max-num-batched-tokens": 8192},
    {"pipeline-parallel-size": 2, "max-model-len": "32K", "kv-cache-memory-bytes": "2G", "middleware": "a.b c.d"},
    {"data-parallel-size": 2, "max-model-len": "auto", "gpu-memory-utilization": 0.5, "seed": -1},
    {"max-model-len": -1, "gpu-memory-utilization": 1, "dtype": "half", "kv-cache-dtype": "fp8_e5m2"},
    {"enforce-eager": False, "enable-chunked-prefill": False, "cudagraph-capture-sizes": "1 2 4 8"},
    {"compilation-config": '{"cudagraph_mode": "PIECEWISE"}', "override-generation-config": '{"top_p": 0.9}'},
    {"speculative-config": '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}'},
    {"hf-overrides": '{"rope_parameters": {"rope_theta": 1000000.0}}', "limit-mm-per-prompt": '{"image": 2}'},
    {"chat-template": "--not-a-flag.jinja", "allowed-origins": '["*"]', "moe-backend": "flashinfer-cutlass"},
)
SET_ON = ("cpu", "h200", "v100x2-pcie-longctx")
NAMES = ("llama-8b", "org/chat 8B", "模型", "it's", "-x", 'a"b')
PROMPTS = ("100%:128", "30%:128,50%:512:64,20%:2048:1024", "100%:100000:8000")


def lists(folder: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Argument lists, each with what it is of.

    Parameters:
        folder: for profiles that are written to be planned with.
    """
    profiles = [each for each in map(load_profile, list_profiles()) if each.engine.version == VERSION]
    for profile, checkpoint in itertools.product(profiles, CHECKPOINTS):
        yield from _plan(profile, checkpoint)
    for profile in _workloads(folder, profiles):
        yield from _plan(profile, LLAMA)
    for profile in map(load_profile, SET_ON):
        for prompts in PROMPTS:
            yield from _plan(profile, LLAMA, prompts=prompts)
        for settings in SETTINGS:
            yield from _plan(profile, LLAMA, settings)
    for name, runtime in itertools.product(NAMES, ("native", "container")):
        yield from _plan(load_profile("cpu"), LLAMA, values={"model.served_name": name, "runtime": runtime})
    for gpu, count in (("t4", 1), ("v100-32g", 4), ("h200", 8)):
        for prompts, checkpoint in itertools.product((None, PROMPTS[1]), CHECKPOINTS[2:]):
            yield from _plan(Cards(gpu, count).profile(), checkpoint, prompts=prompts)


def _workloads(folder: Path, profiles: list[Profile]) -> Iterator[Profile]:
    for profile in profiles:
        path = folder / f"{profile.name}-long.yaml"
        path.write_text(f"name: {profile.name}-long\nextends: [{profile.name}, workloads/long-context]\n")
        yield load_profile(str(path))


def _plan(
    profile: Profile,
    checkpoint: Checkpoint,
    settings: dict[str, Any] | None = None,
    prompts: str | None = None,
    values: dict[str, Any] | None = None,
) -> Iterator[tuple[str, tuple[str, ...]]]:
    given = {"name": "chat", "profile": "cpu", "model.path": checkpoint.directory, **(values or {})}
    distribution = parse_distribution(prompts) if prompts else None
    plan: Plan = make_plan(deployment_from(given), profile, checkpoint, None, settings, distribution)
    told = f"{profile.name} {settings or ''} {prompts or ''} {values or ''}"
    yield told, plan.server_args
    if plan.container is not None:
        yield f"{told} through Ray", server_args(plan)


_TEXTS = {"lora-modules": "name=/srv/lora"}
"""Flags that want a certain form of text."""
OPENED = ("config",)
"""Flags whose file the parser opens at once."""


def each_flag(schema: FlagSchema) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Argument lists of one flag, with values that the schema accepts: every choice, both sides of a boolean."""
    for flag in schema.flags.values():
        for value in _values(flag) if flag.name not in OPENED else []:
            assert wrong_value(flag, value) is None, (flag, value)
            yield f"{flag.name}: {value!r}", ("/models/m", *words(flag, value))


def _values(flag: Flag) -> list[Any]:
    if flag.positional or flag.kind in ("json", "json-or-text", "unchecked"):
        return []
    if flag.kind in ("boolean", "switch"):
        return [True, False]
    if flag.choices:
        return [int(each) if flag.kind == "integer" else each for each in flag.choices]
    return {
        "integer": [1],
        "number": [0.5],
        "size": [4096, "4K", "25.6k"],
        "size-or-auto": [4096, "4K", "auto", -1],
        "text": [_TEXTS.get(flag.name, "text")],
    }[flag.kind]
