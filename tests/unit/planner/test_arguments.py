"""Arguments that the planner chooses where nobody set them, and why."""

from __future__ import annotations

from typing import Any

import pytest

from onecat.errors import OnecatError
from onecat.planner import Plan, Reason
from onecat.planner.prompts import Kind, Prompts, parse_distribution, parse_lines
from tests.unit.planner.examples import checkpoint_of, llama
from tests.unit.planner.test_layouts import for_cards

SHORT = parse_distribution("30%:128,50%:512,20%:2048")


def asked(gpu: str, prompts: Prompts | None, **flags: Any) -> Plan:
    return for_cards(gpu, 1, prompts=prompts, **flags)


def reason(plan: Plan, name: str) -> Reason | None:
    return next((each for each in plan.reasons if each.arg == f"--{name}"), None)


def test_a_distribution_is_read_with_and_without_answers() -> None:
    assert SHORT.kinds == (Kind(0.3, 128, 256), Kind(0.5, 512, 256), Kind(0.2, 2048, 256))
    assert parse_distribution("100%:64:8").kinds == (Kind(1.0, 64, 8),)
    assert (SHORT.prompt_at(0.8), SHORT.prompt_at(0.9), SHORT.longest) == (512, 2048, 2304)
    assert SHORT.mean == pytest.approx(0.3 * 128 + 0.5 * 512 + 0.2 * 2048 + 256)


@pytest.mark.parametrize("text", ["30%:128", "half:128,50%:9", "", "50%:0,50%:5", "100%", "60%:5,60%:5", "100%:1:2:3"])
def test_what_is_no_distribution_is_told(text: str) -> None:
    with pytest.raises(OnecatError, match="--prompts"):
        parse_distribution(text)


def test_a_file_of_lengths_has_numbers_or_objects() -> None:
    found = parse_lines(["128", '{"prompt_tokens": 128}', '{"input_len": 512, "output_len": 8}', ""], "lengths.jsonl")
    assert [(round(each.share, 2), each.prompt, each.output) for each in found.kinds] == [
        (0.67, 128, 256),
        (0.33, 512, 8),
    ]


@pytest.mark.parametrize("lines", [[], ["text"], ["-4"], ["true"], ['{"text": "hello"}'], ["[1]"], ["1e999"]])
def test_a_line_without_a_length_is_told_with_its_place(lines: list[str]) -> None:
    with pytest.raises(OnecatError) as caught:
        parse_lines(lines, "lengths.jsonl")
    assert caught.value.where is not None and caught.value.where.startswith("lengths.jsonl")


def test_known_prompts_set_the_sizes_of_a_batch() -> None:
    plan = asked("l4", SHORT, max_model_len=4096)
    seqs, tokens = reason(plan, "max-num-seqs"), reason(plan, "max-num-batched-tokens")
    assert seqs is not None and tokens is not None
    assert (seqs.origin, tokens.origin) == ("planner", "planner")
    assert plan.kv_tokens is not None
    assert 0 <= plan.kv_tokens / SHORT.mean - int(seqs.value) < 8, "as many as are held, in steps of 8"
    assert int(tokens.value) >= 2048 + int(seqs.value)
    assert SHORT.stated in seqs.why and "chunked prefill" in tokens.why


def test_without_prompts_the_engines_own_sizes_stand() -> None:
    plan = asked("l4", None, max_model_len=4096)
    for name in ("max-num-seqs", "max-num-batched-tokens"):
        told = reason(plan, name)
        assert told is not None and told.origin == "engine" and f"--{name}" not in plan.server_args
    assert (plan.assumed["max_num_seqs"], plan.assumed["max_num_batched_tokens"]) == (256, 2048)


def test_what_a_person_set_stands() -> None:
    plan = asked("l4", SHORT, max_model_len=4096, max_num_seqs=7)
    seqs = reason(plan, "max-num-seqs")
    assert seqs is not None and (seqs.value, seqs.origin) == ("7", "command line")


def test_longer_prompts_leave_room_for_fewer_requests() -> None:
    short, long = asked("l4", SHORT), asked("l4", parse_distribution("100%:8000"))
    counts = [reason(each, "max-num-seqs") for each in (short, long)]
    assert counts[0] is not None and counts[1] is not None
    assert int(counts[0].value) > int(counts[1].value) >= 1


def test_bfloat16_becomes_float16_on_volta_and_float32_where_the_model_refuses_that() -> None:
    plan = for_cards("v100-32g", 1)
    chosen = reason(plan, "dtype")
    assert chosen is not None and (chosen.value, chosen.origin) == ("float16", "planner")
    gemma = for_cards("v100-32g", 1, llama(model_type="gemma3_text", small=True))
    chosen = reason(gemma, "dtype")
    assert chosen is not None and chosen.value == "float32" and "twice the memory" in chosen.why
    assert gemma.per_gpu[0]["weights_gib"] == pytest.approx(
        2 * for_cards("v100-32g", 1, llama(small=True)).per_gpu[0]["weights_gib"], rel=0.02
    )
    assert reason(for_cards("h100", 1), "dtype") is None


def test_a_context_that_does_not_fit_is_cut_to_what_does_with_a_little_less() -> None:
    plan = for_cards("rtx-3090", 1)
    length = reason(plan, "max-model-len")
    assert length is not None and plan.largest_max_model_len is not None
    assert (plan.fits, length.origin) == (True, "planner")
    assert 0.95 * plan.largest_max_model_len < int(length.value) < plan.largest_max_model_len
    assert reason(for_cards("h100", 1), "max-model-len") is None


def test_estimated_sizes_cut_no_context() -> None:
    guessed = llama(estimated="an unknown architecture")
    assert reason(for_cards("rtx-3090", 1, guessed), "max-model-len") is None


def test_cards_alone_have_neither_address_nor_name() -> None:
    plan = for_cards("h100", 1, checkpoint_of())
    assert plan.server_args[0] == "/srv/models/other"
    assert not {"--host", "--port", "--served-model-name"} & set(plan.server_args)
