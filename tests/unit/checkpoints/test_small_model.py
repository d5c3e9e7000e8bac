"""The small real model that ships with onecat is whole, and shaped as quantisation and tensor parallelism need."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path

from onecat.checkpoints import inspect
from onecat.checkpoints.tiny import byte_alphabet
from onecat.resources import small_model
from tests.recognisable import Recognition, recognise
from tests.unit.cli.in_process import run_onecat

MODEL = small_model()


def test_its_manifest_lists_every_file_with_its_sum() -> None:
    lines = (MODEL / "SHA256SUMS").read_text(encoding="ascii").splitlines()
    listed = {name: digest for digest, name in (line.split("  ") for line in lines)}
    present = {path.name for path in MODEL.iterdir()} - {"SHA256SUMS"}
    assert set(listed) == present
    assert {name: hashlib.sha256((MODEL / name).read_bytes()).hexdigest() for name in present} == listed


def test_verify_reads_every_byte_of_it_and_finds_nothing(tmp_path: Path) -> None:
    arguments = ("model", "verify", str(MODEL), "--hash", "--weights", "--json")
    done = run_onecat(*arguments, environment={"ONECAT_HOME": str(tmp_path)})
    assert (done.returncode, json.loads(done.stdout)["problems"]) == (0, []), done.stderr


def test_its_shape_cuts_evenly_into_blocks_of_128_and_for_two_ranks() -> None:
    checkpoint = inspect(MODEL)
    assert checkpoint.problems == ()
    assert (checkpoint.parameters, checkpoint.weight_bytes) == (2_885_888, 2 * 2_885_888)
    assert not checkpoint.architecture.tied_embeddings
    linear = [weight for weight in checkpoint.architecture.weights if weight.kind == "linear"]
    assert len(linear) == 4 * 7
    assert all(size % 128 == 0 for weight in linear for size in weight.shape)
    assert checkpoint.architecture.key_value_heads % 2 == 0
    assert (MODEL / "model.safetensors").stat().st_size < 6_000_000


def test_its_tokenizer_has_a_token_for_each_byte_so_that_no_text_is_lost() -> None:
    tokenizer = json.loads((MODEL / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = tokenizer["model"]["vocab"]
    assert set(byte_alphabet()) <= set(vocabulary)
    assert sorted(vocabulary.values()) == list(range(inspect(MODEL).architecture.vocabulary_size))
    assert (tokenizer["normalizer"], tokenizer["model"]["unk_token"]) == (None, None)


def test_what_counts_as_language_is_neither_a_loop_nor_known_words_in_any_order() -> None:
    held_out = (MODEL / "held_out.txt").read_text(encoding="ascii")
    assert 20_000 <= len(held_out) <= 40_000
    assert recognise(held_out, MODEL) == Recognition(1, 1, recognise(held_out, MODEL).pairs)
    assert recognise(held_out, MODEL).is_language and recognise(held_out[5000:5200], MODEL).is_language
    words = held_out.split()
    random.Random(1).shuffle(words)
    assert not recognise(" ".join(words[:200]), MODEL).is_language
    assert not recognise("the LORD " * 30, MODEL).is_language
    assert not recognise("", MODEL).is_language
