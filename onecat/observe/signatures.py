"""Reads knowledge/signatures.yaml."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import onecat.knowledge
from onecat.observe.records import Passage, Signature, SignatureTable
from onecat.resources import parse_table

_FIELDS = {"id", "patterns", "excluded", "preceded_by", "cause", "fix", "source", "confidence", "priority", "unless"}
_REQUIRED = {"id", "patterns", "cause", "fix", "source", "confidence"}


@functools.cache
def load_signatures() -> SignatureTable:
    """onecat's own signatures."""
    return parse_signatures((Path(onecat.knowledge.__path__[0]) / "signatures.yaml").read_text(encoding="utf-8"))


def parse_signatures(text: str) -> SignatureTable:
    """The table in a YAML text (keys `benign`, `passages`, `signatures`). Raises ValueError naming the wrong row."""
    document = parse_table(text)
    signatures = tuple(_signature(row) for row in document["signatures"])
    ids = [signature.id for signature in signatures]
    for signature in signatures:
        if ids.count(signature.id) > 1:
            raise ValueError(f"signature {signature.id} stands twice")
        unknown = set(signature.unless) - set(ids) - {"*"}
        if unknown:
            raise ValueError(f"signature {signature.id}: unless names unknown signatures {sorted(unknown)}")
    return SignatureTable(
        signatures,
        tuple(_compile("benign", row["pattern"]) for row in document.get("benign", ())),
        tuple(
            Passage(_compile("passages", row["begins"]), _compile("passages", row["ends"]))
            for row in document.get("passages", ())
        ),
    )


def _signature(row: dict[str, Any]) -> Signature:
    name = row.get("id", row)
    if not set(row) <= _FIELDS or not set(row) >= _REQUIRED:
        wrong = sorted(set(row) - _FIELDS) or sorted(_REQUIRED - set(row))
        raise ValueError(f"signature {name}: unknown or missing fields {wrong}")
    if row["confidence"] not in ("high", "medium", "low"):
        raise ValueError(f"signature {name}: confidence is high, medium or low, not {row['confidence']}")
    return Signature(
        id=row["id"],
        patterns=tuple(_compile(row["id"], pattern) for pattern in row["patterns"]),
        excluded=tuple(_compile(row["id"], pattern) for pattern in row.get("excluded", ())),
        preceded_by=tuple(_compile(row["id"], pattern) for pattern in row.get("preceded_by", ())),
        cause=" ".join(row["cause"].split()),
        fix=tuple(row["fix"]),
        source=tuple(row["source"]),
        confidence=row["confidence"],
        priority=row.get("priority", 50),
        unless=tuple(row.get("unless", ())),
    )


def _compile(name: str, pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"signature {name}: pattern {pattern!r}: {error}") from error
