"""The small real model writes words, and is worth on its held-out text what its card says, by Transformers alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from onecat.images import NativeRuntime
from onecat.resources import small_model
from tests.recognisable import recognise

PROGRAM = Path(__file__).with_name("small_model_program.py")

pytestmark = pytest.mark.engine


def test_it_goes_on_in_recognisable_words_and_has_the_perplexity_of_its_card(engine_runtime: NativeRuntime) -> None:
    model = small_model()
    held_out = (model / "held_out.txt").read_text(encoding="ascii")
    samples = [held_out, "  Zwölf – 十二\t\n\n\x00 \U0001f600 "]
    told = {"model": str(model), "prompt": "And it came to pass", "tokens": 60, "samples": samples}
    argv = [str(engine_runtime.python), str(PROGRAM), json.dumps(told)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    answer = json.loads(done.stdout)

    assert answer["decoded"] == samples
    assert answer["chat"] == "First.\nSecond"
    recognised = recognise(answer["text"], model)
    assert recognised.is_language and recognised.words_share >= 0.9, answer["text"]
    assert recognise(answer["random_text"], model).pairs_share < 0.1, answer["random_text"]
    card = re.search(r"held_out\.txt.*Perplexity: \*\*([\d.]+)\*\*", (model / "README.md").read_text())
    assert card is not None
    assert answer["perplexity"] == pytest.approx(float(card[1]), rel=0.002)
    assert answer["perplexity"] < 13


def test_its_training_gives_the_same_weights_again_also_after_a_kill(
    engine_runtime: NativeRuntime, tmp_path: Path
) -> None:
    program = [str(engine_runtime.python), "-B", str(PROGRAM.with_name("small_training_program.py")), str(tmp_path)]
    repository = PROGRAM.parents[2]
    environment = {**os.environ, "PYTHONPATH": str(repository)}
    done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["whole"] == answer["again"] == answer["resumed"]
    assert "going on after step 3 of 6" in done.stdout
    assert answer["loss"] < answer["first_loss"]
