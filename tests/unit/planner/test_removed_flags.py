"""Flags of old guides: a plan refuses each of them and says what to write in its place."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from onecat.engines import flag_schema, removed_flags
from onecat.errors import OnecatError
from onecat.planner import Plan

GONE = sorted(removed_flags().keys() - flag_schema("vllm", "0.27.1").flags.keys())


@pytest.mark.parametrize("name", GONE)
def test_a_removed_flag_is_refused_with_its_replacement_and_a_source(planned: Callable[..., Plan], name: str) -> None:
    with pytest.raises(OnecatError, match=f"has no flag `{name}`") as caught:
        planned("cpu", {f"serve.{name}": 1})
    assert caught.value.expected == removed_flags()[name].instead
    assert caught.value.next_steps == (f"see {removed_flags()[name].source}",)


@pytest.mark.parametrize("name", ["swap-space", "num-scheduler-steps"])
def test_a_removed_flag_of_the_command_line_is_refused_too(planned: Callable[..., Plan], name: str) -> None:
    with pytest.raises(OnecatError, match=f"has no flag `{name}`"):
        planned("cpu", **{name: "4"})


def test_a_misspelt_flag_is_refused_with_the_one_that_was_meant(planned: Callable[..., Plan]) -> None:
    with pytest.raises(OnecatError, match="has no flag `max-modle-len`") as caught:
        planned("cpu", {"serve.max-modle-len": 2048})
    assert caught.value.next_steps == ("did you mean `max-model-len`?",)


def test_chunked_prefill_of_old_guides_is_a_flag_without_a_word_behind_it(planned: Callable[..., Plan]) -> None:
    with pytest.raises(OnecatError, match="`enable-chunked-prefill` is 'on'") as caught:
        planned("cpu", {"serve.enable-chunked-prefill": "on"})
    assert caught.value.expected == "true or false"
    assert "--no-enable-chunked-prefill" in planned("cpu", {"serve.enable-chunked-prefill": "False"}).server_args


def test_kv_cache_dtype_fp16_is_refused_with_the_reason(planned: Callable[..., Plan]) -> None:
    refusals = planned("cpu", {"serve.kv-cache-dtype": "fp16"}).refusals
    assert [each.code for each in refusals] == ["kv-cache-dtype-fp16"]
    assert any("float16" in step for step in refusals[0].fix)
