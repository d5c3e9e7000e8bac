"""Reads the rows of knowledge/signatures/*.yaml, one file for each area."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

import onecat.knowledge
from onecat.observe.lookups import LOOKUPS
from onecat.observe.patterns import Pattern, compile_pattern
from onecat.observe.records import Confidence, Passage, Severity, Signature, SignatureTable
from onecat.resources import parse_table

_REQUIRED = {"id", "cause", "fix", "source", "confidence"}
_PATTERNS = ("patterns", "sequence", "excluded", "preceded_by")
_TEXTS = ("fix", "source", "unless", "rule_out", "matches", "not_matches")
_FIELDS = _REQUIRED | {*_PATTERNS, *_TEXTS, "severity", "priority", "within", "engines", "lookup"}
_KEYS = {"benign", "passages", "signatures"}


@functools.cache
def load_signatures() -> SignatureTable:
    """onecat's own signatures."""
    room = Path(onecat.knowledge.__path__[0])
    files = sorted((room / "signatures").glob("*.yaml"))
    return parse_tables((path.name, path.read_text(encoding="utf-8")) for path in files)


def parse_signatures(text: str, name: str = "signatures.yaml") -> SignatureTable:
    """The table in one YAML text. Raises ValueError naming file and row."""
    return parse_tables([(name, text)])


def parse_tables(files: Iterable[tuple[str, str]]) -> SignatureTable:
    """The table in several YAML texts (keys `benign`, `passages`, `signatures`; each may be missing).

    Parameters:
        files: pairs of a file's name and its text.

    Raises ValueError naming file and row.
    """
    signatures: dict[str, Signature] = {}
    file_of: dict[str, str] = {}
    benign: list[Pattern] = []
    passages: list[Passage] = []
    for name, text in files:
        document = parse_table(text) or {}
        if set(document) - _KEYS:
            raise ValueError(f"{name}: unknown keys {sorted(set(document) - _KEYS)}; there are {sorted(_KEYS)}")
        for row in document.get("signatures") or ():
            signature = _signature(name, row)
            if signature.id in signatures:
                raise ValueError(f"{name}: signature {signature.id} stands twice, also in {file_of[signature.id]}")
            signatures[signature.id] = signature
            file_of[signature.id] = name
        benign += [_compile(name, "benign", row["pattern"]) for row in document.get("benign") or ()]
        passages += [
            Passage(_compile(name, "passages", row["begins"]), _compile(name, "passages", row["ends"]))
            for row in document.get("passages") or ()
        ]
    for signature in signatures.values():
        unknown = set(signature.unless) - set(signatures) - {"*"}
        if unknown:
            raise ValueError(
                f"{file_of[signature.id]}: signature {signature.id}: unless names unknown signatures {sorted(unknown)}"
            )
    return SignatureTable(tuple(signatures.values()), tuple(benign), tuple(passages))


def _signature(file: str, row: Mapping[str, Any]) -> Signature:
    where = f"{file}: signature {row.get('id', row)}"
    if not set(row) <= _FIELDS or not set(row) >= _REQUIRED:
        wrong = sorted(set(row) - _FIELDS) or sorted(_REQUIRED - set(row))
        raise ValueError(f"{where}: unknown or missing fields {wrong}")
    if bool(row.get("patterns")) == bool(row.get("sequence")):
        raise ValueError(f"{where}: needs either patterns or a sequence")
    if ("within" in row) != ("sequence" in row) or len(row.get("sequence", "12")) < 2:
        raise ValueError(f"{where}: a sequence needs two patterns or more and within, in lines")
    if row.get("lookup") not in (None, *LOOKUPS):
        raise ValueError(f"{where}: lookup is one of {', '.join(LOOKUPS)}, not {row['lookup']}")
    for field, values in (("confidence", Confidence), ("severity", Severity)):
        if row.get(field, "fail") not in get_args(values):
            raise ValueError(f"{where}: {field} is one of {', '.join(get_args(values))}, not {row[field]}")
    patterns: dict[str, Any] = {
        field: tuple(_compile(file, row["id"], each) for each in row.get(field, ())) for field in _PATTERNS
    }
    texts: dict[str, Any] = {field: tuple(row.get(field, ())) for field in _TEXTS}
    return Signature(
        id=row["id"],
        cause=" ".join(row["cause"].split()),
        confidence=row["confidence"],
        severity=row.get("severity", "fail"),
        priority=row.get("priority", 50),
        within=row.get("within", 0),
        engines=_engines(where, row.get("engines")),
        lookup=row.get("lookup"),
        **patterns,
        **texts,
    )


def _engines(where: str, text: str | None) -> Any:
    if text is None:
        return None
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        return SpecifierSet(text)
    except InvalidSpecifier as error:
        raise ValueError(f"{where}: engines is a range of versions as >=0.8,<0.12, not {text}") from error


def _compile(file: str, name: str, pattern: str) -> Pattern:
    try:
        return compile_pattern(pattern)
    except ValueError as error:
        raise ValueError(f"{file}: signature {name}: pattern {pattern!r}: {error} (RE2's syntax)") from error
