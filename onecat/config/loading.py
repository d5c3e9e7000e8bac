"""Files as checked records: `onecat.yaml` with its command-line overrides, and profiles."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from onecat.config.combinations import DEPLOYMENT_RULES, PROFILE_RULES, Conflict
from onecat.config.layers import read_layers
from onecat.config.schema import Deployment, Document, Origin, Profile
from onecat.config.source import KeyPath, Place, Problem, Source, Spot, problems_error, read_source
from onecat.config.validate import check_data, nearest_name
from onecat.errors import OnecatError
from onecat.resources import resource_directory

COMMAND_LINE = "command line"
AnyDocument = TypeVar("AnyDocument", bound=Document)


def load_deployment(path: Path, overrides: Mapping[str, Any] | None = None) -> Deployment:
    """Read `onecat.yaml`, put the command line's values over it, and check all of it.

    Parameters:
        path: the file.
        overrides: values by dotted path (`port`, `model.path`, `serve.max-model-len`), already typed.

    The result has an absolute `model.path`, and absolute paths of secret files and of a profile of one's own (relative
    ones count from the file's directory, those of the command line from the working directory), and knows the origin of
    each value. Raises OnecatError (exit code 2) that tells all problems with file, line and column.
    """
    return _deployment(read_source(path), path.absolute().parent, overrides or {})


def deployment_from(values: Mapping[str, Any]) -> Deployment:
    """A deployment from dotted paths alone, without a file, as commands make one from their options."""
    return _deployment(Source(COMMAND_LINE, (), {}), Path.cwd(), values)


def list_profiles() -> tuple[str, ...]:
    """The names of the profiles that ship with onecat, sorted."""
    return tuple(sorted(path.stem for path in resource_directory("profiles").glob("*.yaml")))


def load_profile(name_or_path: str) -> Profile:
    """A profile by its name, or from a file when the text ends in .yaml or .yml or has a slash.

    Raises OnecatError (exit code 2): an unknown name with the nearest one, or all problems of the file.
    """
    shipped = resource_directory("profiles")
    if "/" in name_or_path and name_or_path in _layer_names() and not Path(name_or_path).exists():
        raise OnecatError(
            f"`{name_or_path}` is a part that profiles are made of, and no profile",
            expected="the name of a profile, or a file of one's own that extends the part",
            next_steps=["onecat profile list"],
        )
    if is_file_name(name_or_path):
        profile = _profile(read_layers(Path(name_or_path), None, shipped, _layer_names))
        profile._file = name_or_path
        return profile
    known = list_profiles()
    if name_or_path not in known:
        raise _unknown_profile(name_or_path, known)
    return _profile(
        read_layers(shipped / f"{name_or_path}.yaml", f"profiles/{name_or_path}.yaml", shipped, _layer_names)
    )


def is_file_name(profile: str) -> bool:
    """Whether the name of a profile means a file."""
    return "/" in profile or profile.endswith((".yaml", ".yml"))


def _layer_names() -> list[str]:
    """What `extends` may name: the profiles and parts that ship with onecat."""
    root = resource_directory("profiles")
    return sorted(path.relative_to(root).with_suffix("").as_posix() for path in root.rglob("*.yaml"))


def _unknown_profile(name: str, known: Sequence[str], where: str | None = None) -> OnecatError:
    near = nearest_name(name, known)
    return OnecatError(
        f"there is no profile `{name}`",
        expected=f"one of: {', '.join(known)}",
        where=where,
        next_steps=[*([f"did you mean `{near}`?"] if near else []), "onecat profile list"],
    )


def _deployment(source: Source, base: Path, overrides: Mapping[str, Any]) -> Deployment:
    source, overridden = _override(source, overrides)
    checked = check_data(Deployment, source, overridden)
    if isinstance(checked, list):
        raise problems_error(source.texts, checked)
    origins = _origins(source, "onecat.yaml", overridden)
    checked = _with_profile_path(_with_origins(checked, origins), base, overridden)
    profile = _profile_of(checked, source, origins)
    conflicts = [each for rule in DEPLOYMENT_RULES for each in rule(checked, profile)]
    if conflicts:
        raise problems_error(source.texts, _located(conflicts, source, overridden))
    return _with_origins(_absolute(_with_origins(checked, origins), base, overridden), origins)


def _profile(source: Source) -> Profile:
    checked = check_data(Profile, source, frozenset())
    if isinstance(checked, list):
        raise problems_error(source.texts, checked)
    conflicts = [each for rule in PROFILE_RULES for each in rule(checked)]
    if conflicts:
        raise problems_error(source.texts, _located(conflicts, source, frozenset()))
    return _with_origins(checked, _origins(source, "profile", frozenset()))


def _profile_of(deployment: Deployment, source: Source, origins: Mapping[KeyPath, Origin]) -> Profile:
    known = list_profiles()
    if deployment.profile in known or is_file_name(deployment.profile):
        return load_profile(deployment.profile)
    where = origins[("profile",)].where
    error = _unknown_profile(deployment.profile, known, where)
    spot = source.spots.get(("profile",))
    if spot is None or where != str(spot.value):
        raise error
    raise problems_error(source.texts, [Problem(spot.value, error.found, error.expected, error.next_steps[0])])


def _override(source: Source, overrides: Mapping[str, Any]) -> tuple[Source, frozenset[KeyPath]]:
    data = dict(source.data)
    paths: set[KeyPath] = set()
    for dotted, value in overrides.items():
        keys = dotted.split(".")
        group = data
        for key in keys[:-1]:
            inner = group.get(key)
            group[key] = dict(inner) if isinstance(inner, Mapping) else {}
            group = group[key]
        group[keys[-1]] = value
        paths.add(tuple(keys))
    spots: dict[KeyPath, Spot] = {
        path: spot for path, spot in source.spots.items() if not any(path[: len(each)] == each for each in paths)
    }
    return Source(source.file, source.lines, data, spots), frozenset(paths)


def _origins(
    source: Source, layer: Literal["profile", "onecat.yaml"], overridden: Iterable[KeyPath]
) -> dict[KeyPath, Origin]:
    origins = {path: Origin(layer, str(spot.value), str(spot.key or spot.value)) for path, spot in source.spots.items()}
    return origins | {path: Origin("command line", COMMAND_LINE, COMMAND_LINE) for path in overridden}


def _with_origins(document: AnyDocument, origins: Mapping[KeyPath, Origin]) -> AnyDocument:
    document._origins = origins
    return document


def _located(conflicts: Iterable[Conflict], source: Source, overridden: frozenset[KeyPath]) -> list[Problem]:
    problems = []
    for each in conflicts:
        if each.path in overridden:
            place = Place(COMMAND_LINE)
        else:
            spot = source.nearest(each.path)[1]
            place = (spot.key if each.at_key else None) or spot.value
        problems.append(Problem(place, each.found, each.expected, each.next_step))
    return problems


def _resolved(deployment: Deployment, text: str, path: KeyPath, base: Path, overridden: frozenset[KeyPath]) -> str:
    """A path of the deployment, told from the file or, for one of the command line, from the working directory."""
    start = Path.cwd() if path in overridden else base
    try:
        return _without_detours(str(start / Path(text).expanduser()))
    except RuntimeError:
        raise OnecatError(
            f"`{'.'.join(map(str, path))}` is {text}, and there is no such home directory",
            expected="a path, best an absolute one",
            where=deployment.origin(*path).where,
        ) from None


def _without_detours(path: str) -> str:
    """The path without `..`, unless a link before one makes that another place."""
    plain = os.path.normpath(path)
    return plain if os.path.realpath(plain) == os.path.realpath(path) else path


def _with_profile_path(deployment: Deployment, base: Path, overridden: frozenset[KeyPath]) -> Deployment:
    """The deployment with an absolute path to a profile of one's own; a name stays."""
    if not is_file_name(deployment.profile):
        return deployment
    path = _resolved(deployment, deployment.profile, ("profile",), base, overridden)
    return deployment.model_copy(update={"profile": path})


def _absolute(deployment: Deployment, base: Path, overridden: frozenset[KeyPath]) -> Deployment:
    def resolve(text: str, path: KeyPath) -> str:
        return _resolved(deployment, text, path, base, overridden)

    model = deployment.model.model_copy(update={"path": resolve(deployment.model.path, ("model", "path"))})
    secret = deployment.secrets.api_key
    secrets = deployment.secrets
    if secret is not None and secret.file is not None:
        file = resolve(secret.file, ("secrets", "api_key", "file"))
        secrets = secrets.model_copy(update={"api_key": secret.model_copy(update={"file": file})})
    proxy = deployment.proxy
    if proxy.keys_file is not None:
        proxy = proxy.model_copy(update={"keys_file": resolve(proxy.keys_file, ("proxy", "keys_file"))})
    return deployment.model_copy(update={"model": model, "secrets": secrets, "proxy": proxy})
