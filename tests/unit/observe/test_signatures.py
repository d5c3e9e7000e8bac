"""Every signature has texts that it recognises, and lines that only look like one are left in peace."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onecat.observe import Signature, diagnose, load_signatures
from onecat.observe.patterns import Pattern
from onecat.observe.words import required_words

EXAMPLES: dict[str, Any] = yaml.safe_load(
    (Path(__file__).parents[2] / "fixtures" / "logs" / "examples.yaml").read_text(encoding="utf-8")
)
TEXTS = [(name, row) for name, rows in EXAMPLES["recognised"].items() for row in rows]
PATTERNS = [
    (signature.id, pattern)
    for signature in load_signatures().signatures
    for pattern in (*signature.patterns, *signature.preceded_by)
]


def test_every_signature_has_a_text_that_it_recognises() -> None:
    assert sorted(EXAMPLES["recognised"]) == sorted(signature.id for signature in load_signatures().signatures)


@pytest.mark.parametrize(("name", "row"), TEXTS)
def test_a_text_is_recognised_and_its_values_are_taken_over(name: str, row: dict[str, Any]) -> None:
    diagnoses = diagnose(row["text"].splitlines())
    assert [diagnosis.signature for diagnosis in diagnoses] == [name]
    for words in row.get("says", ()):
        assert words in diagnoses[0].cause


@pytest.mark.parametrize("line", EXAMPLES["silent"])
def test_a_line_that_only_looks_like_a_fault_is_none(line: str) -> None:
    assert diagnose([line]) == ()


@pytest.mark.parametrize("signature", load_signatures().signatures, ids=lambda signature: signature.id)
def test_no_cause_shows_an_empty_place(signature: Signature) -> None:
    """Every {name} that is not within [[ ]] has a value whichever pattern matched."""
    bare = re.sub(r"\[\[.*?\]\]", "", signature.cause)
    for pattern in signature.patterns:
        assert set(re.findall(r"\{(\w+)\}", bare)) <= {group.rstrip("0123456789") for group in pattern.groupindex}


@pytest.mark.parametrize(("name", "pattern"), PATTERNS)
def test_every_pattern_has_words_to_look_for(name: str, pattern: Pattern) -> None:
    """Else it would be tried on every line of a log."""
    assert required_words(pattern)


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(PATTERNS).flatmap(lambda each: st.tuples(st.just(each), st.from_regex(re.compile(each[1].pattern))))
)
def test_whatever_a_pattern_matches_holds_one_of_its_words(drawn: tuple[tuple[str, Pattern], str]) -> None:
    (_, pattern), text = drawn
    assert any(word.text in (text.lower() if word.ignore_case else text) for word in required_words(pattern))


def test_a_long_log_is_read_in_blocks_and_numbered_throughout() -> None:
    def log() -> Iterator[str]:
        for number in range(9000):
            yield "\x1b[31mall is well\x1b[0m\n" if number != 8500 else "\x1b[31mBus er\x1b[0mror\n"

    (diagnosis,) = diagnose(log())
    assert [evidence.line for evidence in diagnosis.evidence] == [8501]


def test_what_must_stand_before_counts_only_within_reach() -> None:
    frame = 'File "loader.py", line 31, in read_safetensors_header'
    assert diagnose([frame, *[""] * 59, "MemoryError"])[0].signature == "model.lfs-pointer"
    assert diagnose([frame, *[""] * 61, "MemoryError"]) == ()


@pytest.mark.parametrize(("name", "row"), TEXTS)
def test_a_line_that_docker_keeps_as_json_is_recognised_too(name: str, row: dict[str, Any]) -> None:
    kept = [
        json.dumps(
            {"log": f"\x1b[31m{line}\x1b[0m\n", "stream": "stderr", "time": "2026-11-29T16:45:23.2Z"},
            separators=(",", ":"),
        )
        for line in row["text"].splitlines()
    ]
    assert [diagnosis.signature for diagnosis in diagnose(kept)] == [name]


def test_a_json_line_that_is_cut_off_or_holds_no_text_is_read_as_it_is() -> None:
    for line in ('{"log":"Bus error', '{"log":"Bus error"}', '{"log":"a","log":["Bus error"]}'):
        assert [diagnosis.signature for diagnosis in diagnose([line])] == ["memory.shm-too-small"]
