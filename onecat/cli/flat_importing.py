"""Carrying the import of a flat file out, for the two commands that do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from onecat.cli import console
from onecat.cli.progress_line import ProgressLine
from onecat.errors import ExitCode, OnecatError

if TYPE_CHECKING:
    from onecat.nvfp4.dequantisation import Target
    from onecat.nvfp4.flat_files import FlatSource


def import_into(flat: FlatSource, target: Target, *, dry_run: bool, as_json: bool, named: bool = True) -> None:
    """Write the plain checkpoint of a flat file, or only say what would be written.

    named: whether a person named the target; where not, it is not looked at.

    Ends with exit code 1 when tensors of the model are missing.
    """
    from onecat.nvfp4.flat_files import plan_import
    from onecat.nvfp4.rewriting import check_target, rewrite
    from onecat.render import imports
    from onecat.render.rewriting import progress_line

    try:
        plan = plan_import(flat, target)
    except OnecatError:
        if not as_json:
            print("\n".join(imports.seen_lines(flat)))
        raise
    done = None
    if dry_run and named:
        check_target(plan.rewrite, plan.source)
    if not dry_run:
        plan.require_whole()
        console.end_like_ctrl_c()
        with ProgressLine() as line:
            done = rewrite(
                plan.rewrite, plan.source, lambda progress: line.show(lambda: progress_line(progress)), line.say
            )
    if as_json:
        console.print_json(imports.document(flat, plan, done))
    else:
        print("\n".join(imports.lines(flat, plan, done)))
    if plan.missing:
        raise typer.Exit(ExitCode.NO)
