"""Samples as JSON, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from onecat.facts import record_from_json
from onecat.observe.metrics.records import Sample


def sample_to_json(sample: Sample) -> dict[str, Any]:
    """A sample as a JSON object, without what is not known."""
    found = _without_unknown(dataclasses.asdict(sample))
    assert isinstance(found, dict)
    return found


def sample_from_json(document: Mapping[str, Any]) -> Sample:
    """Read back what `sample_to_json` wrote; unknown keys of a newer onecat are ignored.

    Raises ValueError with the path of the offending value when the document is not of this form.
    """
    return record_from_json(Sample, document, "sample")


def _without_unknown(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_unknown(each) for key, each in value.items() if each is not None}
    return [_without_unknown(each) for each in value] if isinstance(value, (list, tuple)) else value
