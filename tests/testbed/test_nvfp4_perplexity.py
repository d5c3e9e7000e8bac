"""`onecat model verify --perplexity` in the engine's own Python: what NVFP4 costs the small real model."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from onecat.resources import small_model
from tests.testbed import command
from tests.unit.nvfp4.comparison.variants import swap_nibbles, variant

pytestmark = pytest.mark.engine

LIMIT = 5.0
"""Percent: what issue 7 allows."""


def test_nvfp4_keeps_the_small_model_s_perplexity_and_swapped_nibbles_do_not(
    onecat_with_engine: command.Onecat, tmp_path: Path
) -> None:
    model = small_model()
    text = str(model / "held_out.txt")
    quantised = tmp_path / "nvfp4"
    onecat_with_engine("model", "convert", str(model), str(quantised)).expect(0)
    measuring = ("--against", str(model), "--perplexity", text, "--window", "256", "--jobs", "1", "--json")
    document = onecat_with_engine("model", "verify", str(quantised), *measuring, "--limit", f"{LIMIT}").expect(0).json()
    found = document["perplexity"]
    assert (document["fine"], document["problems"]) == (True, [])
    assert (found["tokens"], found["scored"], found["window"], found["stride"]) == (8603, 8602, 256, 128)
    card = re.search(r"held_out\.txt.*Perplexity: \*\*([\d.]+)\*\*", (model / "README.md").read_text())
    assert card is not None
    # The card's windows do not overlap: tokens have 128 before them here, and 128 on the average there.
    assert 0.95 * float(card[1]) < found["original"] < float(card[1])
    assert 0 < found["percent"] < 2
    assert found["percent"] == pytest.approx(100 * (found["perplexity"] / found["original"] - 1))

    swapped = variant(quantised, tmp_path / "swapped", swap_nibbles)
    short = tmp_path / "short.txt"
    short.write_text("\n".join(Path(text).read_text().splitlines()[:40]))
    measuring = ("--against", str(model), "--perplexity", str(short), "--window", "256", "--jobs", "1", "--json")
    document = onecat_with_engine("model", "verify", str(swapped), *measuring).expect(1).json()
    assert document["perplexity"]["percent"] > 1000
    codes = {fault["code"] for fault in document["problems"] if fault["severity"] == "fail"}
    assert codes == {"perplexity", "nibbles-swapped", "far-from-original"}


def test_a_model_that_transformers_cannot_load_is_told_in_a_sentence(
    onecat_with_engine: command.Onecat, tiny_model: Path, tmp_path: Path
) -> None:
    less = variant(
        tiny_model, tmp_path / "less", lambda name, values: None if name.endswith("1.mlp.down_proj.weight") else values
    )
    text = tmp_path / "text.txt"
    text.write_text("In the beginning")
    done = onecat_with_engine("model", "verify", str(less), "--perplexity", str(text), "--jobs", "1").expect(1)
    assert "transformers finds no model.layers.1.mlp.down_proj.weight (1 tensors)" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
