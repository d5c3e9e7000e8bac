"""What the commands of `onecat patch` share: their options, which series is meant, how lines are printed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onecat.cli import console

if TYPE_CHECKING:
    from onecat.patching import Series

SeriesOption = Annotated[
    str | None, typer.Option("--series", "-s", help="Series, by name or folder [that of the profile or the source].")
]
SourceOption = Annotated[
    Path | None,
    typer.Option("--source", help="The source archive, or a folder that has it [the store, then pip's indexes]."),
]


def choose_series(series: str | None, profile: str | None = None, root: Path | None = None) -> Series:
    """The series that a person named, or that of the profile's image, of the source's record or release."""
    from onecat.config import load_profile
    from onecat.errors import OnecatError
    from onecat.patching import list_series, load_series, read_record, source_release

    if root is not None:
        console.existing_directory(str(root))
    loaded = load_profile(profile) if profile is not None else None
    name = series
    if name is None and loaded is not None:
        name = loaded.image.patches
        if name is None:
            raise OnecatError(
                f"profile {loaded.name} runs {loaded.engine.name} {loaded.engine.version}, which is not patched",
                expected="a profile with image.patches",
                next_steps=["onecat profile list", "onecat patch list"],
            )
    if name is None and root is not None:
        record = read_record(root)
        name = record.series if record is not None else source_release(root)
    if name is None:
        shipped = list_series()
        if root is not None or len(shipped) != 1:
            raise OnecatError(
                "it is not said which series" if root is None else f"{root} does not say which release it is",
                expected=f"--series {' or '.join(shipped)}",
                next_steps=["onecat patch list"],
            )
        name = shipped[0]
    found = load_series(name)
    return found if loaded is None else found.for_profile(loaded)


def print_lines(lines: Iterable[str]) -> None:
    """Print lines of which parts may be somebody else's text."""
    from onecat.render.columns import harmless

    for line in lines:
        print(harmless(line.replace("\t", "    ")))
