"""Plain data checked against the models of `schema`, each problem told at the place where it stands."""

from __future__ import annotations

import difflib
import re
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from onecat.config.source import KeyPath, Place, Problem, Source, Spot, reading_of

Model = TypeVar("Model", bound=BaseModel)

PATTERNS = {
    r"^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$": "1 to 40 lower-case letters, digits and inner hyphens, as `chat-7b`",
    r"^([^:\s]+|\[[0-9A-Fa-f:]+\]):\d{1,5}$": "an address and a port, as `127.0.0.1:8080`",
    r"^[a-z][a-z0-9-]*$": "a flag name in lower case without leading dashes, as `max-model-len`",
    r"^[A-Za-z0-9:][A-Za-z0-9.:_-]*$": "an address or host name, as `127.0.0.1`",
    r"^[A-Z_][A-Z0-9_]*$": "a variable name in upper case, as `VLLM_CPU_KVCACHE_SPACE`",
    r"^\d+\.\d+\.\d+(\.post\d+)?$": "a full version, as `0.27.1`",
    r"^/dev/[A-Za-z0-9._/-]+$": "a device node, as `/dev/davinci_manager`",
    r"^/[^,\x00]*$": "an absolute path",
    r"^[A-Za-z0-9._-]{1,15}$": "a network interface, as `eth0`",
    r"^\d+\.\d$": 'major and minor in quotes, as "7.0"',
}
"""What the patterns of the models mean, for people."""

TYPES = {
    "string": "text",
    "int": "a whole number without quotes",
    "float": "a number without quotes",
    "bool": "true or false without quotes",
    "tuple": "a list, as `[a, b]` or one `- item` per line",
    "dict": "nested keys with values",
    "model": "nested keys with values",
}
FLAG_VALUE = "text, a number, or true or false (JSON options as text in single quotes)"


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """The known name most like `name`; None when none is near.

    What begins with `name` is nearer than what resembles it, where it is one name or one with longer forms. Case,
    leading dashes and `_` for `-` do not count.
    """
    by_form = {each.lower().replace("_", "-"): each for each in known}
    form = name.lower().replace("_", "-").lstrip("-")
    begins = sorted((each for each in by_form if form and each.startswith(form)), key=len)
    if begins and all(each.startswith(begins[0]) for each in begins):
        return by_form[begins[0]]
    near = difflib.get_close_matches(form, by_form, n=1, cutoff=0.6)
    return by_form[near[0]] if near else None


def check_data(model: type[Model], source: Source, overridden: frozenset[KeyPath]) -> Model | list[Problem]:
    """`source.data` as a `model`, or all problems. Values are never converted from one type to another.

    overridden: paths whose values came from the command line and not from the file.
    """
    try:
        checked = model.model_validate(source.data, strict=True)
    except ValidationError as error:
        problems: dict[tuple[KeyPath, str], Problem] = {}
        for each in error.errors(include_url=False):
            problem_path, problem = _problem(model, source, overridden, each)
            # A union reports once for each of its types.
            problems.setdefault((problem_path, str(problem.place)), problem)
        return list(problems.values())
    return _misread_numbers(source) or checked


def _misread_numbers(source: Source) -> list[Problem]:
    """Whole numbers that YAML 1.1 took for octal (010000 is 4096) or for minutes and seconds (1:30 is 90)."""
    problems = []
    for path, spot in source.spots.items():
        if spot.quoted or spot.text is None or not _MISREAD.fullmatch(spot.text):
            continue
        value: Any = source.data
        for step in path:
            value = value[step]
        if type(value) is int:
            found = f"`{'.'.join(map(str, path))}` is the number {value} ({reading_of(spot.text, value)})"
            problems.append(Problem(spot.value, found, "digits without a zero in front, or text in quotes"))
    return problems


_MISREAD = re.compile(r"[-+]?(0[0-9_]+|[0-9_]+(:[0-9]+)+)")


def _problem(
    model: type[BaseModel], source: Source, overridden: frozenset[KeyPath], error: Mapping[str, Any]
) -> tuple[KeyPath, Problem]:
    location: KeyPath = tuple(error["loc"])
    kind: str = error["type"]
    path, spot = _spot(source, overridden, location)
    name = ".".join(map(str, path)) or "the file"
    if kind == "missing":
        missing = str(location[-1])
        field = _fields(model, location[:-1]).get(missing)
        parent, parent_spot = _spot(source, overridden, location[:-1])
        inside = f" in `{'.'.join(map(str, parent))}`" if parent else ""
        wanted = (field.description if field is not None else None) or f"a value for `{missing}`"
        return location, Problem(
            parent_spot.key or parent_spot.value,
            f"the key `{missing}` is missing{inside}",
            wanted[0].lower() + wanted[1:],
            f"add a line `{'.'.join(map(str, location))}: ...`" if not inside else f"add `{missing}`{inside}",
        )
    if kind == "extra_forbidden":
        unknown = str(location[-1])
        known = list(_fields(model, location[:-1]))
        near = nearest_name(unknown, known)
        step = f"did you mean `{near}`?" if near else None
        return path, Problem(
            spot.key or spot.value,
            f"unknown key `{unknown}`" + (f" in `{'.'.join(map(str, path[:-1]))}`" if path[:-1] else ""),
            f"one of: {', '.join(known)}",
            step,
        )
    value = error["input"]
    shown = _shown(value, spot)
    if kind == "literal_error":
        choices = re.findall(r"'([^']*)'", error["ctx"]["expected"])
        near = nearest_name(value, choices) if isinstance(value, str) else None
        found = f"`{name}` is {shown}{_trap(value, spot)}"
        step = f"did you mean `{near}`?" if near else None
        return path, Problem(spot.value, found, f"one of: {', '.join(choices)}", step)
    if kind == "string_pattern_mismatch":
        pattern = error["ctx"]["pattern"]
        return path, Problem(spot.value, f"`{name}` is {shown}", PATTERNS.get(pattern, f"text like {pattern}"))
    if kind.endswith("_type"):
        wanted = TYPES.get(kind.removesuffix("_type"), error["msg"])
        if len(location) > len(path) and location[len(path) :][0] in ("bool", "int", "float", "str"):
            wanted = FLAG_VALUE
        nested = _fields(model, path) if kind in ("model_type", "model_attributes_type") else {}
        if nested:
            wanted = f"nested keys: {', '.join(nested)}"
        step = None
        if kind == "string_type" and spot.text and not spot.quoted and wanted != FLAG_VALUE:
            step = f'put it in quotes: "{spot.text}"'
        elif kind in ("int_type", "float_type") and isinstance(value, str):
            step = _as_number(value, spot.quoted)
        return path, Problem(spot.value, f"`{name}` is {shown}{_trap(value, spot)}", wanted, step)
    if kind in ("too_short", "string_too_short"):
        return path, Problem(spot.value, f"`{name}` is empty", "at least one" if kind == "too_short" else "some text")
    if kind == "string_unicode":
        return path, Problem(spot.value, f"`{name}` is {shown}", "text that UTF-8 can hold: rename the file")
    message = str(error["msg"]).removeprefix("Input should be ").removeprefix("Value error, ")
    return path, Problem(spot.value, f"`{name}` is {shown}", message)


def _as_number(text: str, quoted: bool) -> str | None:
    """How to write the number that a text looks like, for a key that wants one."""
    try:
        number = float(text)
    except ValueError:
        return None
    if not number.is_integer():
        return f"take the quotes away: {text}" if quoted and re.fullmatch(r"[0-9]+\.[0-9]+", text) else None
    plain = str(int(number))
    return f"take the quotes away: {plain}" if quoted and text == plain else f"write it with digits alone: {plain}"


def _spot(source: Source, overridden: frozenset[KeyPath], location: KeyPath) -> tuple[KeyPath, Spot]:
    for length in range(len(location), 0, -1):
        if location[:length] in overridden:
            return location[:length], Spot(None, Place("command line"))
    return source.nearest(location)


def _shown(value: Any, spot: Spot) -> str:
    if value is None:
        return "empty"
    if isinstance(value, str):
        return f'the text "{value if len(value) <= 60 else value[:57] + "..."}"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "a group of nested keys"
    if isinstance(value, (list, tuple)):
        return "a list"
    if isinstance(value, (int, float)):
        return f"the number {value}"
    return f"{spot.text or value}"


def _trap(value: Any, spot: Spot) -> str:
    """YAML's own reading, where it differs from what the text looks like."""
    if isinstance(value, (str, list, tuple, Mapping)) or value is None or not spot.text:
        return ""
    as_it_looks = spot.text == str(value) and type(value) in (int, float)
    return "" if as_it_looks else f" ({reading_of(spot.text, value)})"


def _fields(model: type[BaseModel], path: Sequence[str | int]) -> dict[str, Any]:
    """The fields of the record at `path` inside `model`; empty when it is no record."""
    kind: Any = model
    for step in path:
        kind = _inner(kind, step)
    kind = _without_none(kind)
    return dict(kind.model_fields) if isinstance(kind, type) and issubclass(kind, BaseModel) else {}


def _inner(kind: Any, step: str | int) -> Any:
    kind = _without_none(kind)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        field = kind.model_fields.get(str(step))
        return field.annotation if field is not None else None
    if typing.get_origin(kind) is tuple:
        return typing.get_args(kind)[0]
    return None


def _without_none(kind: Any) -> Any:
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return next(each for each in typing.get_args(kind) if each is not type(None))
    return kind
