"""What other tables know of a value that a signature captured, so that no row has to say it again.

A new lookup is a function here and its name in `LOOKUPS`; a row names it as `lookup`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from onecat.engines import removed_flags
from onecat.knowledge.xids import xid_meaning

_REPLACES_ROWS = "Ampere"
"""The first architecture whose memory replaces rows, where those before it retire pages."""


@dataclass(frozen=True)
class Known:
    """What a table adds to a diagnosis: values for {name} places, steps of the fix and sources."""

    values: Mapping[str, str]
    fix: tuple[str, ...] = ()
    source: tuple[str, ...] = ()


def xid(values: Mapping[str, str]) -> Known:
    """What an Xid means: `title` and `why` by knowledge/xids.yaml.

    Parameters:
        values: `xid`, the number, and `text`, the rest of its line where the meaning depends on it.
    """
    text = values.get("text", "")
    meaning = xid_meaning(int(values["xid"]), text, _REPLACES_ROWS if "Row Remapper" in text else None)
    if meaning is None:
        return Known({"title": "a number without an entry", "why": "See NVIDIA's catalogue."})
    return Known({"title": meaning.title, "why": meaning.why}, meaning.fix, meaning.source)


def removed_flag(values: Mapping[str, str]) -> Known:
    """What to do instead of arguments that newer engines refuse, by engines/removed_flags.yaml.

    Parameters:
        values: `arguments`, as the command line had them.
    """
    names = (word.partition("=")[0].removeprefix("--") for word in values["arguments"].split() if word[:2] == "--")
    known = [removed_flags()[name] for name in dict.fromkeys(names) if name in removed_flags()]
    return Known(
        {},
        tuple(f"--{flag.flag}: {flag.instead}" for flag in known),
        tuple(flag.source for flag in known),
    )


LOOKUPS: Mapping[str, Callable[[Mapping[str, str]], Known]] = {"xid": xid, "removed_flag": removed_flag}
"""By name. The values that a function needs must be captured by every pattern of a row that names it."""
