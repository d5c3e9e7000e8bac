"""What onecat computes, held to what real engines logged: shared/cases/memory_truth.jsonl.

`python bench/memory_truth.py` prints all of it as a table; so does ONECAT_MEMORY_REPORT=FILE pytest on this file.
"""

from __future__ import annotations

import os
from pathlib import Path
from statistics import median

import pytest

from tests.unit.planner.memory.truth import TRUTH, Comparison, compared, comparisons, models, rows, table

pytestmark = pytest.mark.skipif(not TRUTH.is_file(), reason="shared/cases is not on this machine")

MEDIAN, WORST, LOAD = 0.03, 0.10, 0.03
MODELLED = sorted(key for key, model in models().items() if "excluded" not in model)


@pytest.mark.parametrize("key", MODELLED)
def test_each_number_of_a_row_is_met(key: str) -> None:
    for each in comparisons(key):
        if each.outside is None:
            assert each.error <= (LOAD if each.what == "load" else WORST), each


def test_half_of_all_sizes_of_the_kv_cache_are_met_within_three_percent() -> None:
    found, excluded = compared()
    report = os.environ.get("ONECAT_MEMORY_REPORT")
    if report:
        Path(report).write_text(table(found, excluded) + "\n", encoding="utf-8")
    sizes = [each.error for each in found if each.what in ("kv", "tokens", "largest") and each.outside is None]
    assert len(sizes) >= 15
    assert median(sizes) <= MEDIAN


def test_every_row_is_modelled_or_lacks_what_a_model_needs() -> None:
    assert set(models()) == set(rows())
    excluded = {key: model["excluded"] for key, model in models().items() if "excluded" in model}
    assert all(why.startswith(("lacks its config", "lacks its budget")) for why in excluded.values())
    held = {each.row.partition(" ")[0] for each in compared()[0] if each.outside is None}
    assert len(held) >= 20


def test_every_row_that_failed_for_memory_is_refused() -> None:
    failed = {key for key, row in rows().items() if row["kv_tokens"] == 0 or "OOM during" in row["notes"]}
    told = {each.row for each in compared()[0] if each.what == "refused" and each.computed is True}
    assert failed <= told


def test_a_report_names_each_number_and_each_exclusion() -> None:
    text = table([Comparison("a/1", "load", 10.0, 10.1), Comparison("a/2", "kv", 1.0, 2.0, "why")], {"a/3": "lacks"})
    assert "1.00%" in text and "a/2" in text and "outside: why" in text and "a/3" in text
