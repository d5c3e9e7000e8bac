"""`onecat init`: write a commented onecat.yaml."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from onecat.cli import console

FILE = "onecat.yaml"
PLACEHOLDER = "models/your-model"


def register(app: typer.Typer) -> None:
    app.command("init", help="Write a commented onecat.yaml to start from.")(init)


def init(
    directory: Annotated[Path, typer.Argument(metavar="[DIR]", help="Where onecat.yaml is written.")] = Path(),
    profile: Annotated[
        str | None,
        typer.Option("--profile", "-p", metavar="PROFILE", help="Profile; by default the one for this machine's GPUs."),
    ] = None,
    model: Annotated[
        Path | None, typer.Option("--model", "-m", metavar="DIR", help="Directory of the checkpoint.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace an onecat.yaml that is there; it is kept as onecat.yaml.old.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON (onecat.init/1).")] = False,
) -> None:
    from onecat.config import deployment_name, is_file_name, load_deployment, load_profile, starter_text
    from onecat.errors import OnecatError

    path = directory / FILE
    there = os.path.lexists(path)  # a link that leads nowhere is somebody's too
    if there and not force:
        raise OnecatError(
            f"{path} exists and was left as it is",
            where=str(path.absolute()),
            next_steps=["onecat plan, to see what it means", "onecat init --force, to replace it"],
        )
    name, why = (profile, "asked for") if profile is not None else detected()
    chosen = load_profile(name)
    shown_model = PLACEHOLDER if model is None else _as_written(model, directory)
    subject = model.absolute().name if model is not None else directory.absolute().name
    own_file = _as_written(Path(name), directory) if is_file_name(name) else None
    text = starter_text(deployment_name(subject), chosen, shown_model, own_file)
    kept = path.with_name(f"{FILE}.old") if there else None
    new = path.with_name(f"{FILE}.new")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        new.write_text(text, encoding="utf-8")
        try:
            load_deployment(new)
        except OnecatError:
            new.unlink()
            raise
        if kept is not None:
            path.replace(kept)
        new.replace(path)
    except OSError as error:
        raise OnecatError(
            f"{path} cannot be written: {error.strerror}",
            expected="a directory of yours, which is made where it is missing",
            where=str(error.filename or path.absolute()),
            next_steps=["onecat init DIR"],
        ) from error
    if as_json:
        console.print_json(
            {"schema": "onecat.init/1", "file": str(path.absolute()), "profile": chosen.name, "why": why}
            | {"kept": str(kept.absolute()) if kept else None}
        )
        return
    print(f"{path} is written, for profile {chosen.name} ({why})")
    if kept is not None:
        print(f"  the old one is kept as {kept}")
    if model is None:
        print(f"  next:    write your model's directory in place of {PLACEHOLDER}, then onecat plan")
    else:
        print("  next:    onecat plan; onecat build; onecat up")


def detected() -> tuple[str, str]:
    """The profile for this machine, and why. Raises OnecatError (exit code 1) when none fits it."""
    from onecat.config import list_profiles, load_profile
    from onecat.errors import ExitCode, OnecatError
    from onecat.planner import detect_profile
    from onecat.probe import collect_local

    found = detect_profile(collect_local(), [load_profile(each) for each in list_profiles()])
    if found.profile is None:
        others = [each.profile for each in found.runners_up] + ([found.nearest] if found.nearest else [])
        raise OnecatError(
            "no profile fits this machine",
            details=list(found.reasons),
            next_steps=[
                "onecat profile detect, for the reasons",
                *(f"onecat init --profile {each}" for each in others),
            ],
            code=ExitCode.NO,
        )
    return found.profile, f"this machine has {found.seen}" if found.seen[0].isdigit() else found.seen


def _as_written(path: Path, directory: Path) -> str:
    """A path for the file in `directory`: absolute stays absolute, relative is told from that directory."""
    if path.is_absolute() or str(path).startswith("~"):
        return str(path)
    return os.path.relpath(path.absolute(), directory.absolute())
