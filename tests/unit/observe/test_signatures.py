"""Every row of the table recognises its own texts, alone and first, and leaves those in peace that look alike."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onecat.knowledge.xids import xids
from onecat.observe import Diagnosis, Signature, diagnose, load_signatures
from onecat.observe.patterns import Pattern
from onecat.observe.words import required_words

EXAMPLES: dict[str, Any] = yaml.safe_load(
    (Path(__file__).parents[2] / "fixtures" / "logs" / "examples.yaml").read_text(encoding="utf-8")
)
SIGNATURES = load_signatures().signatures
SAYS = [(name, row) for name, rows in EXAMPLES["says"].items() for row in rows]
MATCHES = [(signature, text) for signature in SIGNATURES for text in signature.matches]
NOT_MATCHES = [(signature, text) for signature in SIGNATURES for text in signature.not_matches]
PATTERNS = [
    (signature.id, pattern)
    for signature in SIGNATURES
    for pattern in (*signature.patterns, *signature.sequence, *signature.preceded_by)
]
LOOKED_UP = {"xid": {"title", "why"}, "removed_flag": set()}
"""Values that a lookup adds."""
WELL = re.compile(r"(?:\(\w+ pid=\d+\) )?(?:INFO|DEBUG)\b")
"""How a line begins that a server writes of its own free will."""


def named(pair: object) -> str | None:
    return pair.id if isinstance(pair, Signature) else None


def told(text: str) -> list[Diagnosis]:
    return list(diagnose(text.splitlines(), every=True))


def test_every_row_has_texts_of_both_kinds_sources_and_something_to_do() -> None:
    for signature in SIGNATURES:
        for field in ("matches", "not_matches", "fix", "source"):
            assert getattr(signature, field), (signature.id, field)
        assert all(source.startswith("https://") for source in signature.source), signature.id
        assert signature.rule_out or signature.severity == "info", signature.id
        assert signature.cause.endswith((".", "}")), signature.id


def test_no_row_advises_to_take_protection_away_from_a_whole_machine() -> None:
    unsafe = re.compile(r"setenforce|--privileged|overcommit_memory=1|chmod (?:-R )?777|StrictHostKeyChecking=no")
    advice = [(each.id, step) for each in SIGNATURES for step in (*each.fix, *each.rule_out)]
    assert [(name, step) for name, step in advice if unsafe.search(step)] == []


@pytest.mark.parametrize(("signature", "text"), MATCHES, ids=named)
def test_a_text_of_a_row_is_told_as_that_row_and_as_no_other_cause(signature: Signature, text: str) -> None:
    diagnoses = told(text)
    assert [diagnosis.signature for diagnosis in diagnoses][:1] == [signature.id]
    assert [each.signature for each in diagnoses[1:] if each.standing == "cause"] == []


@pytest.mark.parametrize(("signature", "text"), MATCHES, ids=named)
def test_a_line_that_docker_keeps_as_json_is_recognised_too(signature: Signature, text: str) -> None:
    kept = [
        json.dumps(
            {"log": f"\x1b[31m{line}\x1b[0m\n", "stream": "stderr", "time": "2026-11-29T16:45:23.2Z"},
            separators=(",", ":"),
        )
        for line in text.splitlines()
    ]
    assert diagnose(kept, every=True)[0].signature == signature.id


@pytest.mark.parametrize(("signature", "text"), NOT_MATCHES, ids=named)
def test_a_text_that_looks_alike_is_not_told_as_that_row(signature: Signature, text: str) -> None:
    """It may be another fault, then it is told as that one alone; what servers say when they are well is none."""
    diagnoses = told(text)
    assert signature.id not in [diagnosis.signature for diagnosis in diagnoses]
    causes = [diagnosis.signature for diagnosis in diagnoses if diagnosis.standing == "cause"]
    assert len(causes) <= (0 if WELL.match(text) else 1)


@pytest.mark.parametrize(("name", "row"), SAYS, ids=lambda each: each if isinstance(each, str) else "")
def test_values_of_a_text_are_taken_over(name: str, row: Mapping[str, Any]) -> None:
    (diagnosis, *others) = told(row["text"])
    assert diagnosis.signature == name
    assert [each.signature for each in others if each.standing == "cause"] == []
    for words in row["says"]:
        assert words in diagnosis.cause


@pytest.mark.parametrize("line", EXAMPLES["silent"])
def test_a_line_that_only_looks_like_a_fault_is_none(line: str) -> None:
    assert diagnose([line]) == ()


@pytest.mark.parametrize("signature", SIGNATURES, ids=named)
def test_no_words_show_an_empty_place(signature: Signature) -> None:
    """Every {name} that is not within [[ ]] has a value whichever pattern matched, and every name is one that can."""
    groups = [
        {group.rstrip("0123456789") for group in pattern.groupindex}
        for pattern in (signature.patterns or signature.sequence)
    ]
    added = LOOKED_UP[signature.lookup] if signature.lookup else set()
    for text in (signature.cause, *signature.fix, *signature.rule_out):
        bare = set(re.findall(r"\{(\w+)\}", re.sub(r"\[\[.*?\]\]", "", text)))
        assert all(bare <= each | added for each in groups), text
        assert set(re.findall(r"\{(\w+)\}", text)) <= set().union(*groups) | added, text


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
    assert any(word in text for word in required_words(pattern))


def test_at_least_fifteen_harmless_messages_are_told_as_such() -> None:
    fine = [signature for signature in SIGNATURES if signature.id.startswith("fine.")]
    assert len(fine) >= 15
    for signature in fine:
        assert signature.severity == "info", signature.id
        assert diagnose(signature.matches[0].splitlines()) == (), signature.id
        assert told(signature.matches[0])[0].standing == "harmless", signature.id


def xid_line(number: int, text: str) -> str:
    return f"NVRM: Xid (PCI:0000:3b:00): {number}, changed from 0x0 (None) to 0x1 ({text})"


@pytest.mark.parametrize("row", xids(), ids=lambda row: f"{row.xid}-{row.text}")
def test_every_xid_of_the_table_is_told_with_what_it_says(row: Any) -> None:
    """Xid 31 and 79 have rows of their own, with more than the table."""
    (diagnosis, *_) = told(xid_line(row.xid, row.text or "something"))
    if row.xid in (31, 79):
        assert f"Xid {row.xid}" in diagnosis.cause or diagnosis.signature == "gpu.fallen-off-bus"
        return
    assert f"Xid {row.xid}" in diagnosis.cause
    if row.text or [each.xid for each in xids()].count(row.xid) == 1:
        assert row.title in diagnosis.cause
        assert set(row.fix) <= set(diagnosis.fix)
    if row.severity == "fail":
        assert diagnosis.severity == "fail"


def test_an_xid_with_two_meanings_is_told_by_the_rest_of_its_line() -> None:
    for text, title in (("Row Remapper: New row marked for remapping", "row"), ("Dynamic page retirement", "page")):
        (diagnosis,) = told(f"NVRM: Xid (PCI:0000:3b:00): 63, pid='<unknown>', name=<unknown>, {text}")
        assert f"A bad memory {title} was recorded" in diagnosis.cause


def test_a_removed_argument_is_told_with_what_to_do_instead() -> None:
    (diagnosis,) = told("vllm: error: unrecognized arguments: --swap-space 4 --rope-theta=1e6 --unknown")
    assert [step.partition(":")[0] for step in diagnosis.fix[1:]] == ["--swap-space", "--rope-theta"]
    assert "https://github.com/vllm-project/vllm/pull/36216" in diagnosis.source


def test_a_row_for_some_versions_is_not_told_of_others() -> None:
    version = "INFO Initializing a V1 LLM engine (v{}) with config: model='/models/tiny'"
    line = "NotImplementedError: VLLM_USE_V1=1 is not supported with Compute Capability < 8.0."
    assert [each.signature for each in diagnose([version.format("0.8.5"), line])] == ["attention.v1-needs-ampere"]
    assert diagnose([version.format("0.27.1"), line]) == ()


def test_the_largest_length_that_fits_is_in_what_to_do() -> None:
    (diagnosis,) = diagnose(["ValueError: The model's max seq len (29000) is larger than ... KV cache (23648)"])
    assert "max-model-len: 23648" in diagnosis.fix[0]


def test_a_long_log_is_read_in_blocks_and_numbered_throughout() -> None:
    def log() -> Iterator[str]:
        for number in range(9000):
            yield "\x1b[31mall is well\x1b[0m\n" if number != 8500 else "\x1b[31mBus er\x1b[0mror\n"

    (diagnosis,) = diagnose(log())
    assert [evidence.line for evidence in diagnosis.evidence] == [8501]


def test_what_must_stand_before_counts_only_within_reach() -> None:
    frame = 'File "loader.py", line 31, in read_safetensors_header'
    assert diagnose([frame, *[""] * 59, "MemoryError"])[0].signature == "model.lfs-pointer-memory"
    assert diagnose([frame, *[""] * 61, "MemoryError"]) == ()


def test_a_json_line_that_is_cut_off_or_holds_no_text_is_read_as_it_is() -> None:
    for line in ('{"log":"Bus error', '{"log":"Bus error"}', '{"log":"a","log":["Bus error"]}'):
        assert [diagnosis.signature for diagnosis in diagnose([line])] == ["memory.shm-too-small"]
