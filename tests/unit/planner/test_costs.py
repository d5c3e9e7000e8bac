"""Rough costs of layouts: rules that hold whatever the assumed constants are, and orders that people measured."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from onecat.checkpoints import Checkpoint, Quantization
from onecat.checkpoints.quantization.reading import read_quantization
from onecat.config import Deployment
from onecat.config.schema import Model
from onecat.facts import Facts
from onecat.planner.asking import question_of
from onecat.planner.bare import NAME, named_gpu, profile_for
from onecat.planner.layouts import Candidate, candidate, ranked
from onecat.planner.prompts import parse_distribution
from onecat.planner.questions import Question
from onecat.planner.records import Layout
from onecat.planner.speeds import Speeds, usual_speeds
from onecat.resources import read_table
from tests.unit.planner.examples import LLAMA, checkpoint_of
from tests.unit.planner.test_layouts import GIB, LARGE, PROFILES, cards

MEASURED: Any = read_table(Path(__file__).parents[2] / "fixtures" / "layouts" / "measured.yaml")
MIDDLE = {"num_hidden_layers": 64, "hidden_size": 5120, "intermediate_size": 17408, "num_attention_heads": 40}
"""27 to 30 billion parameters."""


def asked(
    gpu: str, count: int, checkpoint: Checkpoint, facts: Facts | None = None, speeds: Speeds | None = None, **flags: Any
) -> Question:
    """What is asked of cards alone."""
    deployment = Deployment(name="chat", profile=NAME, model=Model(path=checkpoint.directory))
    named = {name.replace("_", "-"): value for name, value in flags.items()}
    question = question_of(deployment, profile_for(named_gpu(gpu), count, PROFILES), checkpoint, facts, named)
    return replace(question, hardware=replace(question.hardware, speeds=speeds or usual_speeds()))


def cost(question: Question, layout: Layout, prompts: str | None = None) -> Candidate:
    found = candidate(question, layout, None if prompts is None else parse_distribution(prompts))
    assert found is not None
    return found


PAIRS = cards("Tesla V100-SXM2-32GB", 4, (0, 1, "NV2"), (2, 3, "NV2"))
MESH = cards("Tesla V100-SXM2-32GB", 4, *((a, b, "NV2") for a in range(4) for b in range(a + 1, 4)))
BRIDGED = cards(
    "NVIDIA A100 80GB PCIe", 8, *((a, a + 1, "NV12") for a in (0, 2, 4, 6)), memory=80 * GIB, capability="8.0"
)
SOCKETS = cards(
    "Tesla V100-PCIE-32GB", 4, *((a, b, "SYS") for a in (0, 1) for b in (2, 3)), (0, 1, "PIX"), (2, 3, "PIX")
)
HUGE = checkpoint_of(num_hidden_layers=100, hidden_size=12288, intermediate_size=36864, num_attention_heads=96)
"""About 340 GiB of weights: for eight cards with 80 GB."""

RULES: dict[str, tuple[str, int, Facts | None, Checkpoint, Layout, Layout]] = {
    "copies, no tensor parallelism over PCIe": ("v100-32g", 2, None, LLAMA, Layout(1, 1, 2), Layout(2)),
    "copies, no larger groups over PCIe": ("v100-32g", 4, None, LLAMA, Layout(1, 1, 4), Layout(4)),
    "pairs with NVLink, stages across": ("v100-sxm2", 4, PAIRS, LARGE, Layout(2, 2), Layout(4)),
    "pairs with bridges, stages across": ("a100-80g", 8, BRIDGED, HUGE, Layout(2, 4), Layout(8)),
    "tensor parallelism inside a socket, stages across": ("v100-32g", 4, SOCKETS, LARGE, Layout(2, 2), Layout(4)),
}
"""What the first layout costs less than the second."""

ASSUMED = tuple(each.name for each in fields(Speeds) if each.name not in ("close", "unknown_gb_s", "unknown_tflops"))


def varied(name: str, factor: float) -> Speeds:
    speeds = usual_speeds()
    value = getattr(speeds, name)
    if isinstance(value, (int, float)):
        return replace(speeds, **{name: min(value * factor, 1.0) if name.endswith("_share") else value * factor})
    scaled = {kind: min(1.0, each * factor) if name == "link_share" else each * factor for kind, each in value.items()}
    return replace(speeds, **{name: scaled})


@pytest.mark.parametrize("name", ASSUMED)
@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_the_rules_hold_when_a_constant_is_half_or_twice_as_large(name: str, factor: float) -> None:
    for rule, (gpu, count, facts, checkpoint, less, more) in RULES.items():
        question = asked(gpu, count, checkpoint, facts, varied(name, factor), max_model_len=4096)
        assert cost(question, less).cost.token < cost(question, more).cost.token, rule


def test_inside_nvlink_tensor_parallelism_costs_less_than_stages() -> None:
    mesh = asked("v100-sxm2", 4, LARGE, MESH, max_model_len=4096)
    assert cost(mesh, Layout(4)).cost.token < cost(mesh, Layout(2, 2)).cost.token
    switched = asked("h100", 8, HUGE, max_model_len=4096)
    assert cost(switched, Layout(8)).cost.token < cost(switched, Layout(1, 8)).cost.token
    for question, ranks in ((mesh, 4), (switched, 8)):
        assert cost(question, Layout(ranks)).cost.single < cost(question, Layout(1, ranks)).cost.single


def test_a_single_request_is_answered_no_faster_by_stages() -> None:
    question = asked("h100", 2, LLAMA, max_model_len=4096)
    one, stages, ranks = (cost(question, each).cost.single for each in (Layout(1), Layout(1, 2), Layout(2)))
    assert ranks < one <= stages * 1.01


def facts_of(row: Any, connection: str) -> Facts | None:
    if "connection" not in row:
        return None
    count = row["count"]
    joined = row.get("pairs") or [(a, b) for a in range(count) for b in range(a + 1, count)]
    peer = "ok" if row.get("peer_access", True) else "chipset not supported"
    links = [(a, b, connection) for a, b in joined]
    name = named_gpu(row["gpu"]).name
    memory = (named_gpu(row["gpu"]).memory_mib or 0) * 2**20
    return cards(name, count, *links, memory=memory, capability="8.6", peer_read=peer)


@pytest.mark.parametrize("row", MEASURED, ids=lambda row: row["what"][:60])
def test_costs_are_ordered_as_people_measured(row: Any) -> None:
    model = checkpoint_of(**(row.get("model") or MIDDLE))
    if row.get("weights") != 16:
        config = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
        model = replace(model, quantization=quantized(config))
    less = asked(row["gpu"], row["count"], model, facts_of(row, row.get("connection", "")), max_model_len=4096)
    other = row.get("against") or row.get("connection", "")
    more = asked(row["gpu"], row["count"], model, facts_of(row, other), max_model_len=4096)
    found = [
        getattr(cost(question, Layout(**row[name]), row.get("prompts")).cost, row["compare"])
        for question, name in ((less, "less"), (more, "more"))
    ]
    assert row["least"] <= found[1] / found[0] <= row["most"], found


def quantized(config: dict[str, Any]) -> Quantization | None:
    return read_quantization({"config.json": {"quantization_config": config}})


def test_a_share_of_the_cost_is_what_cards_exchange() -> None:
    question = asked("v100-32g", 2, LLAMA, max_model_len=4096)
    assert cost(question, Layout(1, 1, 2)).cost.exchange == 0
    assert 0.05 < cost(question, Layout(2)).cost.exchange < 0.9


def test_longer_answers_make_reading_weights_count_for_more() -> None:
    question = asked("v100-32g", 2, LLAMA, max_model_len=4096)
    prompts, answers = (
        cost(question, Layout(2), text).cost.token / cost(question, Layout(1, 1, 2), text).cost.token
        for text in ("100%:2000:10", "100%:10:2000")
    )
    assert prompts != pytest.approx(answers, rel=0.01)


def test_every_layout_has_its_reason() -> None:
    for each in ranked(asked("h100", 4, LARGE)):
        assert each.why.startswith(("holds", "does not fit"))
        assert "cards share" in each.why or "stages" in each.why or "copies" in each.why or "one card" in each.why
