"""Every capture below tests/fixtures/captures: NAME.txt is what programs printed, NAME.json what it tells."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from onecat.probe.importers import Capture, parse_capture
from onecat.probe.importers.text import decode
from onecat.probe.merging import facts_from_parts

CAPTURES = Path(__file__).parents[3] / "fixtures" / "captures"
TEXTS = sorted(CAPTURES.glob("*/*.txt"))


def told(text: str, name: str = "capture.txt") -> Any:
    """What a text tells: the facts of its host as JSON, without what is not known."""
    return json.loads(json.dumps(known(facts_from_parts("host", parse_capture(Capture(name, text))))))


def known(value: Any) -> Any:
    """A record without the fields that have their default."""
    if not dataclasses.is_dataclass(value):
        return [known(each) for each in value] if isinstance(value, tuple) else value
    fields = ((field, getattr(value, field.name)) for field in dataclasses.fields(value))
    return {field.name: known(each) for field, each in fields if each != field.default}


@pytest.mark.parametrize("file", TEXTS, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_a_capture_tells_exactly_this(file: Path) -> None:
    expected = json.loads(file.with_suffix(".json").read_text(encoding="utf-8"))
    assert told(decode(file.read_bytes()), file.name) == expected


def test_every_form_has_a_capture_and_every_expectation_its_text() -> None:
    assert {file.stem for file in CAPTURES.glob("*/*.json")} == {file.stem for file in TEXTS}
