"""The flags of a plan: which layer sets each, whether the engine version knows it, and why it has its value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from onecat.config import SET_BY_ONECAT, Deployment, Profile, nearest_name
from onecat.engines import Flag, FlagSchema, removed_flags, typed, wrong_value
from onecat.errors import OnecatError

FlagValue = bool | int | float | str
FIELDS = {
    "tensor-parallel-size": "tensor_parallel",
    "pipeline-parallel-size": "pipeline_parallel",
    "data-parallel-size": "replicas",
}
"""The flags of a layout, with what profiles and plans call them."""
Layer = Literal["engine", "profile", "onecat.yaml", "command line", "planner"]


@dataclass(frozen=True)
class Setting:
    """One flag with its value. `where` is the place that set it; `instead_of` the value of the layer below."""

    flag: Flag
    value: FlagValue
    layer: Layer
    why: str
    where: str | None = None
    source: str | None = None
    instead_of: FlagValue | None = None


@dataclass(frozen=True)
class _Fault:
    where: str
    found: str
    expected: str
    next_step: str | None = None


def layered(
    schema: FlagSchema, profile: Profile, deployment: Deployment, command_line: Mapping[str, FlagValue]
) -> dict[str, Setting]:
    """All flags by name: profile < onecat.yaml < command line.

    `command_line` values may be text as a person typed it. Raises OnecatError (exit code 2) with all flags that the
    engine does not know and all values it would not accept.
    """
    settings: dict[str, Setting] = {}
    faults: list[_Fault] = []
    for each in _profile(profile):
        _add(settings, faults, schema, each)
    for each in _deployment(deployment):
        _add(settings, faults, schema, each)
    for name, value in command_line.items():
        _add(settings, faults, schema, _Raw(name, value, "command line", "command line", "set on the command line"))
    if faults:
        raise _error(faults)
    return settings


def check_profile_flags(schema: FlagSchema, profile: Profile) -> None:
    """Raises OnecatError with all launch arguments of a profile that its engine version would not accept."""
    settings: dict[str, Setting] = {}
    faults: list[_Fault] = []
    for each in _profile(profile):
        _add(settings, faults, schema, each)
    if faults:
        raise _error(faults)


@dataclass(frozen=True)
class _Raw:
    name: str
    value: FlagValue
    layer: Layer
    where: str
    why: str
    value_where: str | None = None
    source: str | None = None


def _profile(profile: Profile) -> Iterator[_Raw]:
    for layout in profile.launch.layouts[:1]:
        for name, value in layout.flags.items():
            place = profile.origin("launch", "layouts", 0, FIELDS[name]).where
            where = place or profile.origin("launch", "layouts", 0, "name").where or profile.name
            yield _Raw(name, value, "profile", where, layout.why, where, layout.source)
    for index, each in enumerate(profile.launch.args):
        path = ("launch", "args", index)
        yield _Raw(
            each.arg,
            each.value,
            "profile",
            profile.origin(*path, "arg").where or profile.name,
            each.why,
            profile.origin(*path, "value").where,
            each.source,
        )


def _deployment(deployment: Deployment) -> Iterator[_Raw]:
    for name, value in deployment.serve.items():
        origin = deployment.origin("serve", name)
        layer: Layer = "command line" if origin.layer == "command line" else "onecat.yaml"
        where = origin.where or layer
        why = "set on the command line" if layer == "command line" else f"set in {where}"
        yield _Raw(name, value, layer, origin.key or layer, why, where)


def _add(settings: dict[str, Setting], faults: list[_Fault], schema: FlagSchema, raw: _Raw) -> None:
    name = raw.name.lstrip("-").replace("_", "-")
    flag = schema.flag(name, raw.value)
    if name in SET_BY_ONECAT:
        instead = SET_BY_ONECAT[name]
        faults.append(
            _Fault(raw.where, f"`{name}` is set by onecat itself", f"`{instead}` of onecat.yaml in its place")
        )
        return
    if flag is None or (raw.layer != "command line" and name != raw.name):
        faults.append(_unknown(raw, schema))
        return
    value = typed(flag, raw.value) if raw.layer == "command line" and isinstance(raw.value, str) else raw.value
    expected = wrong_value(flag, value)
    if expected is not None and not _told_by_a_rule(name, value):
        near = nearest_name(value, flag.choices) if isinstance(value, str) and flag.choices else None
        faults.append(
            _Fault(
                raw.value_where or raw.where,
                f"`{name}` is {value!r}, which {schema.family} {schema.version} does not accept",
                expected,
                f"did you mean `{near}`?" if near else None,
            )
        )
        return
    below = settings.get(name)
    why, instead_of = raw.why, None
    if below is not None:
        instead_of = below.value
        whose = "the profile's" if below.layer == "profile" else f"{below.layer}'s"
        why = f"{why}, over {whose} {shown(below.value)}"
    settings[name] = Setting(flag, value, raw.layer, why, raw.where, raw.source, instead_of)


def _told_by_a_rule(name: str, value: FlagValue) -> bool:
    """Wrong values that guides spread have a refusal of their own, with the reason."""
    return name == "kv-cache-dtype" and value == "fp16"


def _unknown(raw: _Raw, schema: FlagSchema) -> _Fault:
    name = raw.name.lstrip("-").replace("_", "-")
    removed = removed_flags().get(name)
    found = f"{schema.family} {schema.version} has no flag `{raw.name}`"
    if removed is not None:
        return _Fault(raw.where, found, removed.instead, f"see {removed.source}")
    near = name if name in schema.flags else nearest_name(name, schema.flags)
    negated = next((flag.name for flag in schema.flags.values() if flag.negation == name), None)
    if negated:
        return _Fault(raw.where, found, "the flag without `no-`", f"write `{negated}: false`")
    expected = f"a flag of `vllm serve` {schema.version}, without dashes in front"
    return _Fault(raw.where, found, expected, f"did you mean `{near}`?" if near else None)


def _error(faults: Iterable[_Fault]) -> OnecatError:
    first, *others = faults
    return OnecatError(
        first.found,
        expected=first.expected,
        where=first.where,
        details=[f"also at {each.where}: {each.found} (expected {each.expected})" for each in others],
        next_steps=list(dict.fromkeys(each.next_step for each in (first, *others) if each.next_step)),
    )


def shown(value: FlagValue) -> str:
    """A value as it stands in YAML."""
    return str(value).lower() if isinstance(value, bool) else str(value)
