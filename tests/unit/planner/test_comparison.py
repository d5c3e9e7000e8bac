"""`--what-if`: cases from words, and their plans side by side."""

from __future__ import annotations

from typing import Any

import pytest

from onecat.errors import OnecatError
from onecat.planner import Plan
from onecat.planner.comparison import Case, cases, compared
from onecat.render.plans import what_if_lines
from tests.unit.planner.examples import LLAMA
from tests.unit.planner.test_layouts import for_cards


def plan_for(case: Case) -> Plan:
    flags: dict[str, Any] = {name.replace("-", "_"): value for name, value in case.flags}
    return for_cards(case.gpu or "h100", case.gpus or 1, LLAMA, **flags)


def test_values_are_crossed_and_short_words_are_flags() -> None:
    found = cases(["gpu=h100,l4", "len=8K,32K"])
    assert [each.name for each in found] == [
        "gpu=h100 len=8K",
        "gpu=h100 len=32K",
        "gpu=l4 len=8K",
        "gpu=l4 len=32K",
    ]
    assert found[0] == Case("gpu=h100 len=8K", "h100", None, (("max-model-len", "8K"),))
    assert cases(["tp=1,2", "gpus=2"])[1] == Case("tp=2 gpus=2", None, 2, (("tensor-parallel-size", "2"),))


@pytest.mark.parametrize(
    "stated", [["gpu"], ["gpu="], ["=h100"], ["gpus=0"], ["gpus=two"], ["gpu=a", "gpu=b"], ["x=" + ",".join("a" * 50)]]
)
def test_what_is_no_case_is_told(stated: list[str]) -> None:
    with pytest.raises(OnecatError, match="--what-if"):
        cases(stated)


def test_rows_tell_what_fits_and_cost_is_against_the_cheapest_that_does() -> None:
    rows = compared(cases(["gpu=h100,l4,t4"]), plan_for)
    assert [each["fits"] for each in rows] == [True, True, False]
    assert [each["refusals"] for each in rows] == [[], [], ["memory-weights"]]
    assert rows[0]["cost"] == 1.0 < rows[1]["cost"]
    assert rows[2]["cost"] is None
    assert rows[0]["kv_tokens"] > rows[1]["kv_tokens"]


def test_the_table_has_80_columns() -> None:
    lines = what_if_lines(compared(cases(["gpu=h100,t4", "kv=auto,fp8"]), plan_for))
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["CASE", "LAYOUT", "FITS", "KV", "TOKENS", "AT", "ONCE", "LONGEST", "COST"]
    assert any("refused: memory-weights" in each for each in lines)
