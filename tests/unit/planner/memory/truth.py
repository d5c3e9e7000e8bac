"""Rows of shared/cases/memory_truth.jsonl, numbers that real engines logged, next to what onecat computes."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from onecat.checkpoints import Checkpoint, describe, read_quantization
from onecat.planner.memory import Device, estimate, resolved_settings
from onecat.planner.memory.kv_cache import kv_capacity, needed_for
from onecat.planner.memory.stages import stage_layers

ROOT = Path(__file__).parents[4]
SHARED = ROOT.parent / "shared"
TRUTH = SHARED / "cases" / "memory_truth.jsonl"
FIXTURES = ROOT / "tests" / "fixtures" / "memory"
GIB = 2**30


@dataclass(frozen=True)
class Comparison:
    """One number of a row. outside: why it is not held to the limits, None when it is."""

    row: str
    what: str
    logged: float | bool
    computed: float | bool
    outside: str | None = None

    @property
    def error(self) -> float:
        """Relative; 0 or 1 for yes and no."""
        if isinstance(self.logged, bool):
            return float(self.logged != self.computed)
        return abs(float(self.computed) / self.logged - 1)


@functools.cache
def rows() -> dict[str, dict[str, Any]]:
    """All rows by the end of their url."""
    lines = TRUTH.read_text(encoding="utf-8").splitlines()
    read = [json.loads(line) for line in lines if line.strip()]
    return {each["url"].removeprefix("https://github.com/").partition("/")[2]: each for each in read}


@functools.cache
def models() -> dict[str, dict[str, Any]]:
    """How each row is modelled, by the same key."""
    return dict(yaml.safe_load((FIXTURES / "truth.yaml").read_text(encoding="utf-8")))


@functools.cache
def comparisons(key: str) -> tuple[Comparison, ...]:
    """Everything that a row and its notes let be compared."""
    return tuple(_comparisons(key, rows()[key], models()[key]))


def _comparisons(key: str, row: Mapping[str, Any], model: Mapping[str, Any]) -> Iterator[Comparison]:
    yield from _situation(key, row, model, model.get("compare", ()))
    for what, why in model.get("outside", {}).items():
        for each in _situation(key, row, model, (what,)):
            yield replace(each, outside=why)
    for more in model.get("more", ()):
        other = {"kv_cache_gib": None, "kv_tokens": None, **more}
        given = ["kv"] if more.get("kv_cache_gib") and more.get("largest") else ["load"]
        asked = [what for what, field in (("tokens", "kv_tokens"), ("largest", "largest")) if more.get(field)]
        asked += ["refused"] if more.get("refused") else []
        of_row = {**model, **{name: more[name] for name in ("flags", "version") if name in more}, "from": given}
        label = f"{key} ({more['flags'].get('max-model-len')} {more.get('version', '')})"
        yield from _situation(label, {**row, **other}, of_row, asked)


def _situation(key: str, row: Mapping[str, Any], model: Mapping[str, Any], asked: Any) -> Iterator[Comparison]:
    checkpoint = _checkpoint(model)
    gpu = model["gpu"]
    device = Device(gpu["name"], int(gpu["gib"] * GIB), 0, gpu["capability"])
    settings = resolved_settings(
        model["flags"], checkpoint.architecture, device, str(model["version"]), flashinfer=bool(model.get("flashinfer"))
    )
    found = estimate(checkpoint, [device] * settings.tensor_parallel, settings)
    given = model.get("from", ())
    load = found.per_gpu[0].weights
    left = found.per_gpu[0].kv_cache
    if "load" in given and row["model_load_gib"]:
        left += load - int(row["model_load_gib"] * GIB)
    computed_left = left
    if "kv" in given and row["kv_cache_gib"]:
        left = int(row["kv_cache_gib"] * GIB)
    stages = stage_layers(checkpoint.architecture, 1)
    if "tokens" in given:
        left = needed_for(checkpoint.architecture, settings, stages, row["kv_tokens"])[0]
    capacity = kv_capacity(checkpoint.architecture, settings, stages, [left])
    refused = needed_for(checkpoint.architecture, settings, stages, settings.max_model_len)[0] > left
    computed: dict[str, tuple[Any, float | bool]] = {
        "load": (row["model_load_gib"], load / GIB),
        "kv": (row["kv_cache_gib"], computed_left / GIB),
        "tokens": (row["kv_tokens"], capacity.tokens if capacity else 0),
        "largest": (row.get("largest") or row["kv_tokens"], capacity.largest_max_model_len if capacity else 0),
        "refused": (True, refused),
    }
    for what in asked:
        logged, value = computed[what]
        assert logged is not None, f"{key} has no {what}"
        yield Comparison(key, what, logged, value)


def _checkpoint(model: Mapping[str, Any]) -> Checkpoint:
    name = model["configuration"]
    if name.endswith(".json"):
        config = json.loads((SHARED / "fixtures" / "config" / name).read_text(encoding="utf-8"))
    else:
        config = _configurations()[name]["config"]
    if "quantization" in model:
        config = {**config, "quantization_config": model["quantization"]}
    return Checkpoint(name, describe(config), read_quantization({"config.json": config}))


@functools.cache
def _configurations() -> dict[str, Any]:
    return dict(yaml.safe_load((FIXTURES / "configurations.yaml").read_text(encoding="utf-8")))


def table(found: list[Comparison], excluded: Mapping[str, str]) -> str:
    """The report: every prediction next to the truth."""
    lines = [f"{'row':58} {'what':8} {'logged':>12} {'computed':>12} {'error':>8}"]
    for each in found:
        logged, computed = (
            f"{value:12,.3f}" if isinstance(value, float) else f"{value!s:>12}"
            for value in (each.logged, each.computed)
        )
        mark = "  (outside)" if each.outside else ""
        lines.append(f"{each.row:58} {each.what:8} {logged} {computed} {each.error:8.2%}{mark}")
    lines += [f"{key:58} excluded: {why}" for key, why in excluded.items()]
    lines += [f"{each.row:58} {each.what} outside: {each.outside}" for each in found if each.outside]
    return "\n".join(lines)


def compared() -> tuple[list[Comparison], dict[str, str]]:
    """All comparisons, and why which rows are excluded."""
    excluded = {key: model["excluded"] for key, model in models().items() if "excluded" in model}
    return [each for key in models() if key not in excluded for each in comparisons(key)], excluded
