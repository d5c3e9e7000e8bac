"""`onecat model inspect`: what a checkpoint is made of, from its headers and configuration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onecat.cli import console
from onecat.errors import ExitCode

if TYPE_CHECKING:
    from onecat.checkpoints import Checkpoint
    from onecat.render.models import Inspection


def add_to(group: typer.Typer) -> None:
    group.command(
        "inspect",
        help="Show what a checkpoint is made of.",
        epilog="Reads headers and configuration, no weights. Exit code 1 when an engine would refuse it.",
    )(inspect_model)


def inspect_model(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH",
            help="Directory (whole, or of headers alone), config.json, index, or a listing of a remote directory.",
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON (onecat.model/1).")] = False,
) -> None:
    from onecat.checkpoints import inspect
    from onecat.render.models import model_document, model_text

    seen = inspect(path)
    told = inspection_of(seen)
    if as_json:
        console.print_json(model_document(told))
    else:
        print(model_text(told))
    if any(problem.severity == "fail" for problem in seen.problems):
        raise typer.Exit(ExitCode.NO)


def inspection_of(seen: Checkpoint) -> Inspection:
    """What is told of a checkpoint."""
    from onecat.checkpoints.measuring import active_parameters, shares_of
    from onecat.planner.memory.kept import kept
    from onecat.render.models import Inspection

    described = seen.architecture
    known = bool(described.caches)
    dtype = described.dtype if described.dtype in ("float32", "float16", "bfloat16") else "bfloat16"
    return Inspection(
        seen=seen,
        shares=shares_of(seen),
        active=active_parameters(described),
        kept=kept(described, dtype) if known else None,
        kept_fp8=kept(described, dtype, "fp8") if known else None,
    )
