"""What a maintainer does with a patch series: new patches, patches written anew, another release."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onecat.cli import console
from onecat.cli.console import JsonOption
from onecat.cli.patch_options import SeriesOption, SourceOption, choose_series, print_lines

if TYPE_CHECKING:
    from onecat.patching import Patch, Series
    from onecat.patching.authoring import Edits

FromOption = Annotated[Path, typer.Option("--from", help="A source that the series is applied to, with your edits.")]


def new(
    name: Annotated[str, typer.Argument(help="Its name, as attention; the next number is put in front.")],
    tree: FromOption,
    purpose: Annotated[str, typer.Option("--purpose", help="What the patch is for, in a sentence.")],
    drop_when: Annotated[str, typer.Option("--drop-when", help="What makes the patch superfluous.")],
    author: Annotated[str, typer.Option("--author", help="Who wrote it.")] = "onecat",
    reference: Annotated[str, typer.Option("--reference", help="Where upstream speaks of it.")] = "not sent",
    profiles: Annotated[
        list[str] | None, typer.Option("--applies-to", help="Pattern of profiles that need it; may be repeated [*].")
    ] = None,
    series: SeriesOption = None,
    source: SourceOption = None,
    as_json: JsonOption = False,
) -> None:
    from onecat.patching.authoring import new_patch

    chosen = choose_series(series, None, tree)
    edits = _edits(chosen, tree, source)
    fields = {
        "purpose": purpose,
        "author": author,
        "reference": reference,
        "applies_to": {"profiles": profiles or ["*"]},
        "drop_when": drop_when,
    }
    file = new_patch(chosen, edits, name, fields)
    written = [file, "series.yaml"]
    _tell("onecat.patch-new/1", chosen, written, sorted(set(edits.files) - set(chosen.added)), as_json)


def refresh(
    name: Annotated[
        str | None, typer.Argument(help="The patch that takes the edits [the last one that changes each file].")
    ] = None,
    tree: Annotated[
        Path | None,
        typer.Option(
            "--from", help="A source that the series is applied to, with your edits [none: only offsets are taken out]."
        ),
    ] = None,
    series: SeriesOption = None,
    source: SourceOption = None,
    as_json: JsonOption = False,
) -> None:
    from onecat.patching.authoring import refreshed, write_refreshed

    chosen = choose_series(series, None, tree)
    edits = _edits(chosen, tree, source)
    texts = refreshed(chosen, edits, patch_named(chosen, name).file if name else None)
    written = write_refreshed(chosen, edits, texts)
    _tell("onecat.patch-refresh/1", chosen, written, sorted(edits.files), as_json)


def rebase(
    to: Annotated[str, typer.Option("--to", metavar="VERSION", help="The other release.")],
    series: SeriesOption = None,
    source: SourceOption = None,
    other: Annotated[
        Path | None, typer.Option("--to-source", help="The other release's archive, or a folder that has it.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="New folder for a series of what fits the other release.")
    ] = None,
    fuzz: Annotated[
        int, typer.Option("--fuzz", min=0, max=3, help="Lines of context at a hunk's ends that may differ there.")
    ] = 0,
    as_json: JsonOption = False,
) -> None:
    from onecat.images.sources import fetch_release, fetch_source
    from onecat.patching import list_series, load_series
    from onecat.patching.rebase import try_rebase, write_rebased
    from onecat.paths import home
    from onecat.render.rebases import rebase_document, rebase_lines

    chosen = choose_series(series)
    old = fetch_source(chosen.upstream, home(), console.progress, source)
    name = f"{chosen.upstream.distribution}-{to}"
    if name in list_series():
        upstream = load_series(name).upstream
        new_archive = fetch_source(upstream, home(), console.progress, other)
    else:
        new_archive, upstream = fetch_release(chosen.upstream.distribution, to, home(), console.progress, other)
    result = try_rebase(chosen, old, new_archive, upstream, fuzz=fuzz)
    written = write_rebased(result, output) if output is not None else ()
    if as_json:
        console.print_json({**rebase_document(result), "written": list(written)})
    else:
        print_lines(rebase_lines(result))
        if output is not None:
            print(f"wrote {len(written)} files of a series for {upstream.distribution} {upstream.version}: {output}")
    raise typer.Exit(0 if result.is_whole else 1)


def patch_named(series: Series, name: str) -> Patch:
    """The patch of that name, file or number. Raises OnecatError (exit code 2) when the series has none."""
    from onecat.config import nearest_name
    from onecat.errors import OnecatError

    for patch in series.patches:
        if name in (patch.name, patch.file) or (name.isdigit() and patch.file.startswith(f"{int(name):04d}-")):
            return patch
    names = [patch.name for patch in series.patches]
    by_word = {each.partition("-")[2]: each for each in names}
    near = nearest_name(name, names) or by_word.get(nearest_name(name, by_word) or "")
    raise OnecatError(
        f"{series.name} has no patch {name}",
        expected=f"one of: {', '.join(names)}",
        next_steps=[*([f"did you mean `{near}`?"] if near else []), "onecat patch list"],
    )


def _edits(series: Series, tree: Path | None, source: Path | None) -> Edits:
    from onecat.images.sources import fetch_source
    from onecat.patching.authoring import find_edits
    from onecat.paths import home

    if tree is not None:
        console.existing_directory(str(tree))
    archive = fetch_source(series.upstream, home(), console.progress, source)
    return find_edits(series, archive, tree)


def _tell(schema: str, series: Series, written: Iterable[str], edited: Iterable[str], as_json: bool) -> None:
    written, edited = list(written), list(edited)
    if as_json:
        document = {"schema": schema, "series": series.name, "directory": str(series.directory)}
        console.print_json({**document, "written": written, "edited": edited})
        return
    for path in edited:
        console.progress(f"edited: {path}")
    for path in written:
        print(f"wrote {series.directory / path}")
    if not written:
        print(f"{series.name}: nothing to write, every patch reads as it should")
