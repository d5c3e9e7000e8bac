"""`onecat model import-bin`: flat 4-bit weight files turned into a plain checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onecat.cli.flat_importing import import_into
from onecat.cli.model_dequantize import DtypeOption, ShardSizeOption
from onecat.cli.rewriting_options import DryRunOption, ReplaceOption, RestartOption, byte_count
from onecat.errors import OnecatError


def add_to(group: typer.Typer) -> None:
    group.command(
        "import-bin",
        help="Read a flat model.bin (4-bit codes, FP16 scales) into a plain checkpoint.",
        short_help="Read a flat 4-bit model.bin into a plain one.",
        epilog="The file says nothing of its tensors: flat_layout.yaml beside it does, or config.json with what is "
        "assumed told. --dry-run --json prints the layout as such a file holds it. A length that does not add up is "
        "refused. The same command goes on after a break.",
    )(import_flat)


def import_flat(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="The directory with model.bin, or the file itself.")],
    target: Annotated[
        Path | None, typer.Argument(metavar="DST", help="Directory that is made; not needed with --dry-run.")
    ] = None,
    layout: Annotated[
        Path | None, typer.Option("--layout", metavar="FILE", help="What the file holds, as YAML or JSON.")
    ] = None,
    rest: Annotated[
        Path | None,
        typer.Option("--rest", metavar="DIR", help="Checkpoint with embeddings, norms and all else in safetensors."),
    ] = None,
    dtype: DtypeOption = None,
    shard_size: ShardSizeOption = "5GB",
    restart: RestartOption = False,
    replace: ReplaceOption = False,
    dry_run: DryRunOption = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON (onecat.model-import-bin/1).")
    ] = False,
) -> None:
    from onecat.nvfp4.dequantisation import Target
    from onecat.nvfp4.flat_files import open_flat

    if target is None and not dry_run:
        raise OnecatError(
            "DST is missing: where the plain checkpoint goes",
            expected="onecat model import-bin SRC DST",
            next_steps=[f"only look at the file: onecat model import-bin {source} --dry-run"],
        )
    wanted = Target(
        target or source / "plain",
        dtype.value if dtype else None,
        byte_count(shard_size, "--shard-size"),
        restart,
        replace,
    )
    flat = open_flat(source, layout, rest)
    import_into(flat, wanted, dry_run=dry_run, as_json=as_json, named=target is not None)
