"""The data files of this room as records, each read once when it is first needed."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

from onecat.engines.records import Engine, Flag, FlagSchema, Reach, RemovedFlag
from onecat.errors import ExitCode, OnecatError
from onecat.resources import read_table

ROOM = Path(__file__).resolve().parent
"""The directory of the data files."""


def engine(name: str) -> Engine:
    """The engine with this name. Raises OnecatError when there is none."""
    known = _engines()
    if name not in known:
        raise OnecatError(f"there is no engine `{name}`", expected=f"one of: {', '.join(known)}")
    return known[name]


@cache
def flag_schema(name: str, version: str, patches: str | None = None) -> FlagSchema:
    """The flags that engine `name` accepts at `version`; a schema that says it is unknown for engines without any.

    patches: the series that a profile puts into the engine, None for an engine as it is released.

    Raises OnecatError when that version has no schema and others have: guessing flags would fail at start, minutes
    later.
    """
    family, unknown = engine(name).family, engine(name).flags_unknown
    path = ROOM / "schemas" / f"{family}-{version}.yaml"
    if not path.is_file() and unknown is not None:
        return FlagSchema(family, version, {}, {}, (), unknown)
    if not path.is_file():
        versions = sorted(each.stem.removeprefix(f"{family}-") for each in path.parent.glob(f"{family}-*.yaml"))
        raise OnecatError(
            f"the flags of {name} {version} are not known to this onecat",
            expected=f"one of the versions {', '.join(versions)}",
            next_steps=[
                f"write its schema: python tools/flag_schema.py > onecat/engines/schemas/{path.name}, with the Python "
                "of an environment that holds that engine"
            ],
            code=ExitCode.USAGE,
        )
    document = read_table(path)
    reach = (engine(name).patched if patches is not None else None) or engine(name).reach
    return FlagSchema(
        family=document["family"],
        version=document["version"],
        flags={flag: _flag(flag, row) for flag, row in document["flags"].items()},
        quantization={**document["quantization"], **reach.opened},
        float16_refused=tuple(document["float16_refused"]),
        lacks=reach.lacks,
    )


def flag_schema_digest(name: str, version: str) -> str | None:
    """SHA-256 (hex) of the flag schema of an engine's version; None where onecat has none."""
    path = ROOM / "schemas" / f"{engine(name).family}-{version}.yaml"
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


@cache
def removed_flags() -> dict[str, RemovedFlag]:
    """Flags that guides name and current engines refuse, by name."""
    return {str(row["flag"]): RemovedFlag(**row) for row in read_table(ROOM / "removed_flags.yaml")}


@cache
def _engines() -> dict[str, Engine]:
    return {str(row["name"]): _engine(dict(row)) for row in read_table(ROOM / "engines.yaml")}


def _engine(row: dict[str, Any]) -> Engine:
    reach = _reach({key: row.pop(key) for key in ("opened", "lacks") if key in row})
    patched = _reach(row.pop("patched")) if "patched" in row else None
    return Engine(**{**row, "serve": tuple(row["serve"])}, reach=reach, patched=patched)


def _reach(row: dict[str, Any]) -> Reach:
    return Reach(row.get("opened", {}), tuple(row.get("lacks", ())))


def _flag(name: str, row: dict[str, Any]) -> Flag:
    lists: dict[str, Any] = {key: tuple(row[key]) for key in ("aliases", "choices") if key in row}
    return Flag(name, **{**row, **lists})
