"""`onecat model repack`: merge a LoRA adapter into a checkpoint, which keeps its scheme."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from onecat.cli import console
from onecat.cli.progress_line import ProgressLine

if TYPE_CHECKING:
    from onecat.nvfp4.rewriting import Progress

SearchName = Literal["minmax", "mse"]
RoundingName = Literal["nearest", "dithered"]


def add_to(group: typer.Typer) -> None:
    group.command(
        "repack",
        help="Merge a LoRA adapter into a checkpoint.",
        epilog="NVFP4, FP8 in blocks and plain weights keep their scheme, names and scales for activations; what the "
        "adapter does not change stays byte for byte. After a break the same command goes on.",
    )(repack_model)


def repack_model(
    base: Annotated[Path, typer.Argument(metavar="BASE", help="Directory of the checkpoint.")],
    adapter: Annotated[Path, typer.Argument(metavar="ADAPTER", help="Directory that PEFT's save_pretrained wrote.")],
    target: Annotated[Path, typer.Argument(metavar="DST", help="Directory to be made.")],
    search: Annotated[
        SearchName, typer.Option("--search", help="Scales from the largest weights, or those of least squared error.")
    ] = "minmax",
    rounding: Annotated[
        RoundingName,
        typer.Option("--rounding", help="To the nearest code, which erases small updates, or at random up or down."),
    ] = "dithered",
    jobs: Annotated[
        int, typer.Option("--jobs", min=0, max=256, help="Threads; 0: one for each processor it may use.")
    ] = 0,
    restart: Annotated[bool, typer.Option("--restart", help="Throw away what an unfinished run has made.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace files of the same names in DST.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON (onecat.model-repack/1).")] = False,
) -> None:
    from onecat.nvfp4.adapters import Request, repack
    from onecat.render import repacks
    from onecat.render.rewriting import progress_line

    request = Request(base, adapter, target, search, rounding, jobs or None, restart, replace, dry_run)
    console.end_like_ctrl_c()
    with ProgressLine() as line:

        def show(progress: Progress) -> None:
            line.show(lambda: progress_line(progress))

        outcome = repack(request, show, line.say)
    if as_json:
        console.print_json(repacks.document(outcome))
    else:
        print("\n".join(repacks.lines(outcome)))
