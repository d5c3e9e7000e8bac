"""`onecat model verify`: whether a checkpoint is whole, and whether its weights are those that it was made of."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onecat.cli import console
from onecat.cli.outputs import ForceOption, Output
from onecat.cli.progress_line import ProgressLine
from onecat.cli.weight_checks import Wanted, check_weights
from onecat.errors import ExitCode, OnecatError

if TYPE_CHECKING:
    from onecat.checkpoints.integrity import Verification


def add_to(group: typer.Typer) -> None:
    group.command(
        "verify",
        help="Verify that a checkpoint is whole.",
        epilog="Looks at headers, index, scales, order of nibbles, tokenizer and checksums. Exit code 1 when something "
        "stops or spoils serving. Ctrl-C keeps the checksums of finished files: the same command goes on from there.",
    )(verify_model)


def verify_model(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The checkpoint's directory.")],
    manifest: Annotated[
        list[Path] | None,
        typer.Option("--manifest", metavar="FILE", help="Checksums: SHA256SUMS, or a hub's listing as JSON (repeat)."),
    ] = None,
    write: Annotated[
        str | None,
        typer.Option("--write-manifest", metavar="FILE", help="Hash all files, write SHA256SUMS; - prints it."),
    ] = None,
    force: ForceOption = False,
    hashing: Annotated[bool, typer.Option("--hash", help="Hash the files and compare them with checksums.")] = False,
    weights: Annotated[bool, typer.Option("--weights", help="Read all weights for NaN and infinities.")] = False,
    against: Annotated[
        Path | None,
        typer.Option("--against", metavar="ORIGINAL", help="Compare all weights with the checkpoint it was made of."),
    ] = None,
    perplexity: Annotated[
        Path | None,
        typer.Option("--perplexity", metavar="FILE", help="Measure perplexity on a text, of ORIGINAL too."),
    ] = None,
    window: Annotated[
        int | None,
        typer.Option("--window", min=2, metavar="TOKENS", help="Seen at once.  [default: what it takes, up to 2048]"),
    ] = None,
    limit: Annotated[
        float | None,
        typer.Option("--limit", min=0, metavar="PERCENT", help="More perplexity is a failure.  [default: 5 is told]"),
    ] = None,
    python: Annotated[
        Path | None,
        typer.Option("--python", metavar="FILE", help="Has torch and transformers.  [default: onecat's own engine]"),
    ] = None,
    jobs: Annotated[
        int, typer.Option("--jobs", min=0, max=256, help="Files read at once; 0: one for each processor, up to 8.")
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON (onecat.model-verify/1).")] = False,
) -> None:
    import os

    from onecat.checkpoints.integrity import Progress, Request, verify
    from onecat.paths import home
    from onecat.render import verifications

    wanted = Wanted(directory, against, perplexity, window, limit, python, jobs or None)
    output = Output(write, f"onecat model verify {directory} --write-manifest", force) if write is not None else None
    if output is not None:
        if output.is_printed and as_json:
            raise OnecatError("--json and --write-manifest - both print", expected="a file for the manifest")
        output.check()
    wanted.check()
    request = Request(
        directory=directory,
        manifests=tuple(manifest or ()),
        hash=hashing,
        hash_all=output is not None,
        weights=weights,
        jobs=jobs or min(len(os.sched_getaffinity(0)), 8),
        cache=home().cache,
    )
    console.end_like_ctrl_c()
    with ProgressLine() as line:

        def show(progress: Progress) -> None:
            line.show(lambda: verifications.progress_line(progress))
            if progress.done >= progress.total:
                line.clear()

        checked = check_weights(verify(request, show), wanted, line)
    found = checked.found
    if output is not None:
        _write(output, found)
    if as_json:
        console.print_json(verifications.verification_document(found, checked.comparison, checked.perplexity))
    elif output is None or not output.is_printed:
        print("\n".join(verifications.verification_lines(found, checked.comparison, checked.perplexity)))
    raise typer.Exit(ExitCode.FINE if found.is_fine else ExitCode.NO)


def _write(output: Output, found: Verification) -> None:
    from onecat.checkpoints.integrity import is_content, text_of

    if not found.is_fine:
        console.progress("no manifest was written: it would call files right that are not")
        return
    own = Path(output.file).absolute()
    text = text_of(
        {
            name: digest
            for name, digest in found.digests.items()
            if is_content(name) and Path(found.directory, name).absolute() != own
        }
    )
    kept = output.write(text, 0o644)
    if kept is not None:
        console.progress(f"the old manifest is kept as {kept}")
