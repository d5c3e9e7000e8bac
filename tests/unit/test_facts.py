"""Facts survive the way through JSON, and a document that is none is refused with the place of the fault."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onecat.facts import SCHEMA, Docker, Facts, Filesystem, Gpu, Note, Nvidia, from_json, to_json

JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
FIELDS = sorted(to_json(Facts(host="gpu1")))


def is_json(facts: Facts) -> bool:
    """JSON has no NaN and no infinity."""
    text = json.dumps(to_json(facts))
    return "NaN" not in text and "Infinity" not in text


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.from_type(Facts).filter(is_json))
def test_what_is_written_is_read_back_the_same(facts: Facts) -> None:
    document = json.loads(json.dumps(to_json(facts)))
    assert from_json({**document, "schema": SCHEMA}) == Facts(**{**vars(facts), "schema": SCHEMA})


@given(st.dictionaries(st.sampled_from(FIELDS), JSON_VALUES))
def test_any_document_gives_facts_or_a_value_error(document: dict[str, Any]) -> None:
    try:
        facts = from_json({"schema": SCHEMA, "host": "gpu1", **document})
    except ValueError:
        return
    assert isinstance(facts, Facts)


def test_keys_of_a_newer_onecat_are_ignored() -> None:
    document = {**to_json(Facts(host="gpu1")), "quantum_links": 3}
    assert from_json(document) == Facts(host="gpu1")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": "onecat.facts/9"}, "schema is 'onecat.facts/9', expected 'onecat.facts/1'"),
        ({"host": None}, "facts.host: expected str, found None"),
        ({"cpu": {"logical_cores": "8"}}, "facts.cpu.logical_cores: expected int, found '8'"),
        ({"cpu": {"logical_cores": True}}, "facts.cpu.logical_cores: expected int, found True"),
        ({"selinux": {"mode": "off"}}, "facts.selinux.mode: expected one of 'enforcing', 'permissive', 'disabled'"),
        ({"nvidia": {"gpus": [{"index": 0}]}}, r"facts.nvidia.gpus\[0\]: .*'name'"),
        ({"filesystems": {}}, "facts.filesystems: expected a list"),
        (
            {"nvidia": {"gpus": [{"index": 0, "name": "x", "power_limit_watts": float("nan")}]}},
            "expected a finite number",
        ),
        ({"nvidia": {"gpus": [{"index": 0, "name": "x", "power_limit_watts": 10**400}]}}, "expected a finite number"),
        ({"memory": [1]}, r"facts.memory: expected an object, found \[1\]"),
    ],
)
def test_a_wrong_value_is_named_with_its_place(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_json({**to_json(Facts(host="gpu1")), **changes})


def test_a_whole_number_of_watts_is_a_number_of_watts() -> None:
    gpus = (Gpu(index=0, name="Tesla V100-PCIE-32GB", power_limit_watts=250.0),)
    document = to_json(Facts(host="gpu1", nvidia=Nvidia(gpus=gpus)))
    document["nvidia"]["gpus"][0]["power_limit_watts"] = 250
    assert from_json(document) == Facts(host="gpu1", nvidia=Nvidia(gpus=gpus))


def test_notes_and_filesystems_are_found_by_name() -> None:
    note = Note(source="nvml", kind="absent", text="libnvidia-ml.so.1 is not installed")
    data = Filesystem(purpose="data", path="/data", total=10, available=4)
    facts = Facts(host="gpu1", docker=Docker(state="absent"), filesystems=(data,), notes=(note,))
    assert (facts.note("nvml"), facts.note("os")) == (note, None)
    assert (facts.filesystem("data"), facts.filesystem("tmp")) == (data, None)
