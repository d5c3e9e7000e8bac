"""What a person and a program are told of a conversion."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onecat.checkpoints import TinyShape, write_tiny_checkpoint
from onecat.nvfp4.conversion import Outcome, Request, convert
from onecat.render.columns import width
from onecat.render.conversions import document, lines

SMALL = TinyShape(hidden_size=64, intermediate_size=96, layers=2, attention_heads=2, key_value_heads=1)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder = tmp_path_factory.mktemp("conversions")
    return convert(Request(write_tiny_checkpoint(folder / "plain", SMALL), folder / "made", jobs=1))


def test_the_ten_worst_modules_are_shown_in_80_columns_largest_error_first(outcome: Outcome) -> None:
    text = lines(outcome)
    assert all(width(line) <= 80 or str(outcome.request.target) in line for line in text)
    shown = [line.split() for line in text if line.startswith("model.layers")]
    errors = [float(words[1].rstrip("%")) for words in shown]
    assert len(errors) == 10 and errors == sorted(errors, reverse=True)
    assert errors[0] == pytest.approx(100 * max(each.relative_error for each in outcome.modules), abs=0.01)
    assert "left alone: lm_head: the output head" in text
    assert text[-1] == f"check it: onecat model verify {outcome.request.target} --against {outcome.request.source}"


def test_the_document_holds_every_module_and_why_others_stay(outcome: Outcome) -> None:
    told = json.loads(json.dumps(document(outcome)))
    assert told["schema"] == "onecat.model-convert/1"
    assert len(told["modules"]) == 14
    assert told["left_alone"] == [{"name": "lm_head", "why": "the output head"}]
    first = told["modules"][0]
    out, into = first["shape"]
    assert first["bytes_before"] == out * into * 4
    assert first["bytes_after"] == out * into // 2 + out * into // 16 + 4
    # -20 log10 of the relative error is the signal to noise ratio
    assert 10 ** (-first["sqnr_db"] / 20) == pytest.approx(first["relative_error"])
    assert told["ratio"] == pytest.approx(told["bytes_before"] / told["bytes_after"], abs=1e-4)
    assert told["quantization"]["config_groups"]["group_0"]["input_activations"] is None


def test_a_dry_run_tells_what_would_be_done_and_does_nothing(outcome: Outcome, tmp_path: Path) -> None:
    source, target = outcome.request.source, tmp_path / "made"
    dry = convert(Request(source, target, jobs=1, dry_run=True))
    assert not target.exists()
    assert lines(dry)[-1] == "nothing was written"
    assert all(width(line) <= 80 for line in lines(dry))
    told = document(dry)
    assert told["dry_run"] and told["free_bytes"] > 0 and told["peak_memory_bytes"] > 300_000_000
    assert [each["name"] for each in told["modules"]] == [each.name for each in outcome.modules]
    assert told["bytes_after"] == document(outcome)["bytes_after"]
