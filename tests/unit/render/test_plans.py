"""A plan on a terminal: bars in proportion, ASCII where nothing else can be shown, 80 columns."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onecat.planner import Plan
from onecat.render.plans import ASCII, BAR, BLOCKS, memory_lines, plan_text, short_path
from tests.unit.planner.examples import LLAMA
from tests.unit.planner.test_layouts import LARGE, for_cards


@pytest.fixture(scope="module")
def plan() -> Plan:
    return for_cards("h100", 2, LARGE, max_model_len=8192)


def bars(lines: list[str]) -> list[str]:
    return [line.partition("[")[2].rpartition("]")[0] for line in lines if line.startswith("GPU ")]


def test_each_gpu_has_a_bar_in_proportion(plan: Plan) -> None:
    found = bars(memory_lines(plan))
    assert len(found) == 2 and all(len(each) == BAR for each in found)
    used = plan.per_gpu[0]
    assert found[0].count(ASCII[0]) == pytest.approx(BAR * used["weights_gib"] / used["memory_gib"], abs=1)
    assert found[0].count(ASCII[1]) == pytest.approx(BAR * used["kv_cache_gib"] / used["memory_gib"], abs=1)
    assert found[0].endswith(" ")


def test_bars_are_ascii_unless_block_elements_can_be_shown(plan: Plan) -> None:
    assert plan_text(plan).isascii()
    drawn = plan_text(plan, unicode=True)
    assert BLOCKS[0] in drawn and "\x1b" not in drawn


def test_the_text_has_80_columns_and_the_longest_context(plan: Plan) -> None:
    text = plan_text(plan)
    assert max(map(len, text.splitlines())) <= 80
    assert f"The longest context that fits: {plan.largest_max_model_len:,} tokens." in " ".join(text.split())
    assert text.startswith("chat: vllm 0.27.1 on 2 x NVIDIA H100 80GB HBM3\n")
    assert "it fits" in text and "vllm serve /srv/models/other" in text


def test_what_does_not_fit_is_said_with_its_size_and_overflows_no_bar() -> None:
    plan = for_cards("t4", 1, LARGE)
    lines = memory_lines(plan)
    assert f"IT DOES NOT FIT: {plan.short_of_gib:.2f} GiB are missing" in lines[1]
    assert bars(lines) == [ASCII[0] * BAR]
    assert any("Nothing is left for a KV cache." in each for each in lines)
    assert plan.per_gpu[0]["kv_cache_gib"] < 0 and any("= KV cache 0.00  " in each for each in lines)


def test_cards_that_were_not_looked_at_are_not_counted(plan: Plan) -> None:
    assert plan_text(replace(plan, per_gpu=())).startswith("chat: vllm 0.27.1\n")


def test_copies_are_counted_and_layouts_compared() -> None:
    text = plan_text(for_cards("h100", 2, LLAMA))
    assert "of each of 2 copies" in text
    assert "*TP1 x2" in text and "LATENCY" in text


def test_a_long_path_of_a_model_keeps_its_row_and_is_whole_in_the_command() -> None:
    path = "/srv/models/of/several/teams/on/a/shared/disk/Some-Model-70B-Instruct"
    lines = plan_text(for_cards("h100", 1, replace(LLAMA, directory=path))).splitlines()
    row = next(each for each in lines if each.startswith("MODEL "))
    assert row.endswith("  command line") and " .../shared/disk/Some-Model-70B-Instruct " in row and len(row) <= 80
    assert path in " ".join(lines[next(at for at, each in enumerate(lines) if each.startswith("vllm serve")) :])


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/srv/chat", "/srv/chat"),
        ("/srv/models/llama/8b", ".../llama/8b"),
        ("/srv/a-name-that-is-longer", "...is-longer"),
        ("/srv/a-long-name/", "...ong-name/"),
    ],
)
def test_the_end_of_a_path_tells_most(path: str, shown: str) -> None:
    assert short_path(path, 12) == shown
