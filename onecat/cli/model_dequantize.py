"""`onecat model dequantize`: a quantised checkpoint turned back into a plain one."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from onecat.cli import console
from onecat.cli.flat_importing import import_into
from onecat.cli.progress_line import ProgressLine
from onecat.cli.rewriting_options import DryRunOption, JobsOption, ReplaceOption, RestartOption, byte_count


class PlainDtype(str, Enum):
    """Types of plain weights."""

    float16 = "float16"
    bfloat16 = "bfloat16"
    float32 = "float32"


DtypeOption = Annotated[
    PlainDtype | None,
    typer.Option("--dtype", help="Of the plain weights.  [default: the dtype that config.json states]"),
]
ShardSizeOption = Annotated[
    str, typer.Option("--shard-size", metavar="SIZE", help="What a weight file holds at most, as 5GB or 500MB.")
]


def add_to(group: typer.Typer) -> None:
    group.command(
        "dequantize",
        help="Turn an NVFP4 or FP8 checkpoint into plain FP16 or BF16, which loads anywhere.",
        short_help="Turn an NVFP4 or FP8 checkpoint into a plain one.",
        epilog="A flat model.bin is read too, as import-bin does and with its output. SRC is never changed. The same "
        "command goes on after a break.",
    )(dequantize_model)


def dequantize_model(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="Directory of the quantised checkpoint.")],
    target: Annotated[Path, typer.Argument(metavar="DST", help="Directory that is made.")],
    dtype: DtypeOption = None,
    shard_size: ShardSizeOption = "5GB",
    jobs: JobsOption = 0,
    restart: RestartOption = False,
    replace: ReplaceOption = False,
    dry_run: DryRunOption = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON (onecat.model-dequantize/1).")
    ] = False,
) -> None:
    from onecat.nvfp4.codec import choose
    from onecat.nvfp4.dequantisation import Target, open_original, plan_dequantisation
    from onecat.nvfp4.flat_files import is_flat, open_flat
    from onecat.nvfp4.rewriting import check_target, rewrite
    from onecat.render import dequantisations
    from onecat.render.rewriting import progress_line

    wanted = Target(target, dtype.value if dtype else None, byte_count(shard_size, "--shard-size"), restart, replace)
    if is_flat(source):
        import_into(open_flat(source), wanted, dry_run=dry_run, as_json=as_json)
        return
    original = open_original(source)
    plan = plan_dequantisation(original, wanted, choose(jobs or None, 2 * original.checkpoint.parameters))
    done = None
    if dry_run:
        check_target(plan.rewrite, original.source)
    else:
        console.end_like_ctrl_c()
        with ProgressLine() as line:
            done = rewrite(
                plan.rewrite,
                original.source,
                lambda progress: line.show(lambda: progress_line(progress)),
                line.say,
            )
    if as_json:
        console.print_json(dequantisations.document(plan, done))
    else:
        print("\n".join(dequantisations.lines(plan, done)))
