"""`onecat model convert`: make an NVFP4 or FP8 checkpoint of a plain one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from onecat.cli import console
from onecat.cli.outputs import Output
from onecat.cli.progress_line import ProgressLine
from onecat.cli.rewriting_options import DryRunOption, JobsOption, ReplaceOption, RestartOption

if TYPE_CHECKING:
    from onecat.nvfp4.rewriting import Progress

SchemeName = Literal["nvfp4", "fp8-block"]
NamingName = Literal["compressed-tensors", "modelopt", "deepseek"]
SearchName = Literal["minmax", "mse"]


def add_to(group: typer.Typer) -> None:
    group.command(
        "convert",
        help="Convert a plain checkpoint to NVFP4 or FP8.",
        epilog="Linear layers of the language model are converted; the output head, embeddings, norms, routers and "
        "towers stay as they are. After a break the same command goes on.",
    )(convert_model)


def convert_model(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="Directory of the checkpoint: BF16, FP16 or FP32.")],
    target: Annotated[Path, typer.Argument(metavar="DST", help="Directory to be made.")],
    scheme: Annotated[
        SchemeName, typer.Option("--scheme", help="4-bit floats for weights alone, or FP8 in blocks of 128 x 128.")
    ] = "nvfp4",
    naming: Annotated[
        NamingName, typer.Option("--naming", help="Whose names: modelopt goes with nvfp4, deepseek with fp8-block.")
    ] = "compressed-tensors",
    search: Annotated[
        SearchName, typer.Option("--search", help="Scales from the largest weights, or those of least squared error.")
    ] = "minmax",
    include: Annotated[
        list[str] | None,
        typer.Option("--include", metavar="PATTERN", help="Convert only these modules: name, glob, re:...; repeat."),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option("--ignore", metavar="PATTERN", help="Leave these modules alone: name, glob, re:...; repeat."),
    ] = None,
    jobs: JobsOption = 0,
    restart: RestartOption = False,
    replace: ReplaceOption = False,
    dry_run: DryRunOption = False,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Write errors and sizes of all modules as JSON.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON (onecat.model-convert/1).")] = False,
) -> None:
    from onecat.nvfp4.conversion import Request, convert
    from onecat.render import conversions
    from onecat.render.rewriting import progress_line

    output = Output(str(report), "onecat model convert SRC DST --report", force=True) if report is not None else None
    if output is not None:
        output.check()
    request = Request(
        source=source,
        target=target,
        scheme=scheme,
        naming=naming,
        search=search,
        include=tuple(include or ()),
        ignore=tuple(ignore or ()),
        jobs=jobs or None,
        restart=restart,
        replace=replace,
        dry_run=dry_run,
    )
    console.end_like_ctrl_c()
    with ProgressLine() as line:

        def show(progress: Progress) -> None:
            line.show(lambda: progress_line(progress))

        outcome = convert(request, show, line.say)
    if output is not None:
        output.write(conversions.text(outcome), 0o644)
    if as_json:
        console.print_json(conversions.document(outcome))
    else:
        print("\n".join(conversions.lines(outcome)))
