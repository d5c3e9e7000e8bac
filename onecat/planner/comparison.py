"""Several GPUs, layouts or flags at once: `--what-if` as cases, and their plans as rows. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from onecat.errors import OnecatError
from onecat.planner.flags import FlagValue
from onecat.planner.records import Plan

SHORT = {
    "tp": "tensor-parallel-size",
    "pp": "pipeline-parallel-size",
    "dp": "data-parallel-size",
    "len": "max-model-len",
    "kv": "kv-cache-dtype",
    "util": "gpu-memory-utilization",
    "seqs": "max-num-seqs",
}
"""Short words for flags; any flag of the engine may be named in full."""

CARDS = ("gpu", "gpus")
MOST_CASES = 48
EXPECTED = "a name and values, as gpu=h100,a100-80g, gpus=1,2, tp=1,2,4, len=8K,32K or any flag of the engine"


@dataclass(frozen=True)
class Case:
    """One of what is compared. gpu, gpus: None for those of the plan itself. flags: as typed, by their names."""

    name: str
    gpu: str | None
    gpus: int | None
    flags: tuple[tuple[str, FlagValue], ...]


def cases(stated: Sequence[str]) -> tuple[Case, ...]:
    """Every combination of what `--what-if` options state. Raises OnecatError (exit code 2)."""
    axes = [_axis(text) for text in stated]
    named = [name for name, _ in axes]
    if len(set(named)) != len(named):
        raise OnecatError("--what-if names the same twice", expected="all values of one name in one option")
    combinations = list(product(*([(name, value) for value in values] for name, values in axes)))
    if len(combinations) > MOST_CASES:
        raise OnecatError(
            f"--what-if comes to {len(combinations)} cases", expected=f"at most {MOST_CASES}: leave some values out"
        )
    return tuple(_case(each) for each in combinations)


def _axis(text: str) -> tuple[str, list[str]]:
    name, equals, rest = text.partition("=")
    values = [each.strip() for each in rest.split(",") if each.strip()]
    if not equals or not re.fullmatch(r"[a-z][a-z0-9-]*", name.strip()) or not values:
        raise OnecatError(f"--what-if {text}", expected=EXPECTED)
    return name.strip(), values


def _case(values: Sequence[tuple[str, str]]) -> Case:
    given = dict(values)
    gpus = given.get("gpus")
    if gpus is not None and not (gpus.isdecimal() and int(gpus) >= 1):
        raise OnecatError(f"--what-if gpus={gpus}", expected="a count of cards, as gpus=1,2,4")
    return Case(
        " ".join(f"{name}={value}" for name, value in values),
        given.get("gpu"),
        None if gpus is None else int(gpus),
        tuple((SHORT.get(name, name), value) for name, value in values if name not in CARDS),
    )


def compared(all_cases: Sequence[Case], plan_for: Callable[[Case], Plan]) -> list[dict[str, Any]]:
    """A row for each case. cost: of a token relative to the cheapest case that fits."""
    plans = [(case, plan_for(case)) for case in all_cases]
    fitting = [
        plan.rough_seconds_per_token
        for _, plan in plans
        if plan.fits and not plan.refusals and plan.rough_seconds_per_token
    ]
    cheapest = min(fitting, default=None)
    return [_row(case, plan, cheapest) for case, plan in plans]


def _row(case: Case, plan: Plan, cheapest: float | None) -> dict[str, Any]:
    from dataclasses import asdict

    cost = plan.rough_seconds_per_token
    row: Mapping[str, Any] = {
        "case": case.name,
        "gpu": next((each.get("name") for each in plan.per_gpu), None),
        "layout": asdict(plan.layout),
        "fits": plan.fits,
        "kv_tokens": plan.kv_tokens,
        "max_concurrency": plan.max_concurrency,
        "max_model_len": plan.max_model_len,
        "largest_max_model_len": plan.largest_max_model_len,
        "cost": None if not cost or not cheapest else round(cost / cheapest, 2),
        "refusals": [each.code for each in plan.refusals],
        "estimated": list(plan.estimated),
        "per_gpu": list(plan.per_gpu),
    }
    return dict(row)
