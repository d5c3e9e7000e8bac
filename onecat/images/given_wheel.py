"""A wheel of the engine that a person gives: built before, or made by others who state its hash."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from onecat.errors import OnecatError
from onecat.images.options import BuildOptions

if TYPE_CHECKING:
    from onecat.config.schema import Profile

VARIABLE = "wheel_sha256"
"""The variable of `image.variables` that holds the SHA-256 of the wheel, in hex."""


def refuse_any_wheel(profile: Profile, wheel: Path) -> None:
    """Raises OnecatError for a wheel that is given to an image which would not look at it."""
    raise OnecatError(
        f"the image of profile {profile.name} takes no wheel: {wheel.name} would not be in it",
        expected="a profile whose engine is compiled from source, or comes as a wheel of others",
        next_steps=["onecat profile list", f"or build without it: onecat build --profile {profile.reference}"],
    )


def refuse_other_wheel(wheel: Path, distribution: str, version: str) -> None:
    """Raises OnecatError for a wheel that is, by its name, not of this version; a local part of it is free."""
    wanted = f"a wheel of {distribution} {version}, as {distribution}-{version}+LOCAL-...whl"
    try:
        name, found, _, _ = parse_wheel_filename(wheel.name)
    except InvalidWheelFilename as error:
        raise OnecatError(f"{wheel.name} is not named as a wheel is", expected=f"{wanted}, unchanged") from error
    if name != canonicalize_name(distribution) or found.public != Version(version).public:
        raise OnecatError(f"{wheel.name} is a wheel of {name} {found}", expected=wanted)


def refusal_of_wheel(profile: Profile, options: BuildOptions, sha256: str | None) -> OnecatError | None:
    """Why the image of a profile cannot be built from the wheel that was given; None when it can.

    Parameters:
        sha256: of the file that was given, in hex; None without one.
    """
    stated = profile.image.variables.get(VARIABLE)
    what = f"{profile.engine.name} {profile.engine.version}"
    if stated is None:
        return OnecatError(
            f"it is not said which wheel of {what} is the right one: onecat ships neither it nor its hash",
            expected=f"image.variables.{VARIABLE} in a profile of your own, with the SHA-256 that its makers state",
            details=[
                "name: mine",
                f"extends: [{profile.name}]",
                "image:",
                "  variables:",
                f"    {VARIABLE}: ...",
            ],
            next_steps=["write these lines to mine.yaml", "onecat build --profile ./mine.yaml --wheel FILE"],
        )
    where = profile.origin("image", "variables", VARIABLE).where
    if not isinstance(stated, str) or not re.fullmatch(r"[0-9a-fA-F]{64}", stated):
        return OnecatError(
            f"image.variables.{VARIABLE} is no SHA-256: {stated}", expected="64 hexadecimal digits", where=where
        )
    if options.wheel is None:
        return OnecatError(
            f"the wheel of {what} was not given",
            expected=f"--wheel FILE, the file with SHA-256 {stated.lower()}",
            details=list(profile.sources[:2]),
            next_steps=["download it from its makers' release page", "onecat build ... --wheel FILE"],
        )
    if sha256 != stated.lower():
        return OnecatError(
            f"{options.wheel.name} has SHA-256 {sha256}",
            expected=f"{stated.lower()}, as image.variables.{VARIABLE} says",
            where=where,
            next_steps=["compare both with the release page: one of them is of another file"],
        )
    return None
