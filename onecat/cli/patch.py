"""`onecat patch`: the patch series, whether they fit a source, putting them on and taking them off."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onecat.cli import console, patch_making
from onecat.cli.console import JsonOption
from onecat.cli.groups import command_group
from onecat.cli.patch_options import SeriesOption, SourceOption, choose_series, print_lines

if TYPE_CHECKING:
    from onecat.patching import Outcome, PatchState, Series
    from onecat.patching.source import Source

ProfileOption = Annotated[
    str | None, typer.Option("--profile", "-p", help="Only the patches that builds of this profile need.")
]


def register(app: typer.Typer) -> None:
    group = command_group("Show, verify, apply, reverse and maintain the patches of an engine's source.")
    group.command("list", help="List the series that ship with onecat, and their patches.")(list_all)
    group.command("show", help="Show what is said about a patch, and its diff.")(show)
    group.command("verify", help="Check that each patch fits the source; exit code 1 if not.")(verify)
    group.command("apply", help="Put a series on a source, unpacked first where there is none.")(apply)
    group.command("reverse", help="Take a series off a source again, byte for byte.")(reverse)
    group.command("status", help="Tell what of a series is on a source; exit code 1 unless all.")(status)
    group.command("new", help="Make a new patch of the edits in a patched source.")(patch_making.new)
    group.command("refresh", help="Write patches anew, with the edits of a patched source.")(patch_making.refresh)
    group.command("rebase", help="Try a series on another release; tell what upstream changed.")(patch_making.rebase)
    app.add_typer(group, name="patch")


def list_all(as_json: JsonOption = False) -> None:
    from onecat.patching import list_series, load_series
    from onecat.render.patches import series_document, series_lines

    loaded = [load_series(name) for name in list_series()]
    if as_json:
        console.print_json({"schema": "onecat.patch-list/1", "series": [series_document(each) for each in loaded]})
        return
    print_lines(line for each in loaded for line in series_lines(each))


def show(
    name: Annotated[str, typer.Argument(help="Patch, by its name or its number, as 0001-build or 1.")],
    series: SeriesOption = None,
    as_json: JsonOption = False,
) -> None:
    from onecat.render.patches import patch_document, patch_lines

    patch = patch_making.patch_named(choose_series(series), name)
    if as_json:
        console.print_json({"schema": "onecat.patch-show/1", **patch_document(patch), "diff": _plain(patch.text)})
        return
    print_lines(patch_lines(patch))


def verify(
    series: SeriesOption = None,
    profile: ProfileOption = None,
    source: Annotated[
        Path | None,
        typer.Option("--source", help="Source archive, a folder that has it, or an unpacked source."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    from onecat.patching import verify as verify_series

    root = source if source is not None and is_tree(source) else None
    chosen = choose_series(series, profile, root)
    states = verify_series(chosen, root or _archive(chosen, source))
    where = str(root or chosen.upstream.file)
    _report(chosen, states, where, as_json)
    raise typer.Exit(0 if all(state.is_clean for state in states) else 1)


def apply(
    to: Annotated[Path, typer.Option("--to", help="Unpacked source; where there is none, it is unpacked first.")],
    series: SeriesOption = None,
    profile: ProfileOption = None,
    source: SourceOption = None,
    fuzz: Annotated[
        int, typer.Option("--fuzz", min=0, max=3, help="Lines of context at a hunk's ends that may differ.")
    ] = 0,
    as_json: JsonOption = False,
) -> None:
    from onecat.images.sources import fetch_source
    from onecat.patching import apply as apply_series
    from onecat.patching import unpack_as
    from onecat.paths import home

    is_empty = not to.exists() or (to.is_dir() and not any(to.iterdir()))
    chosen = choose_series(series, profile, None if is_empty else to)
    if is_empty:
        archive = fetch_source(chosen.upstream, home(), console.progress, source)
        unpack_as(archive, chosen.upstream, to)
        console.progress(f"source: {chosen.upstream.file} unpacked in {to}")
    _done(chosen, apply_series(chosen, to, fuzz=fuzz), "applied", as_json)


def reverse(
    to: Annotated[Path, typer.Option("--to", help="The source that the series is applied to.")],
    series: SeriesOption = None,
    profile: ProfileOption = None,
    as_json: JsonOption = False,
) -> None:
    from onecat.patching import reverse as reverse_series

    chosen = choose_series(series, profile, to)
    _done(chosen, reverse_series(chosen, to), "reversed", as_json)


def status(
    directory: Annotated[Path, typer.Argument(help="An unpacked source.")],
    series: SeriesOption = None,
    profile: ProfileOption = None,
    as_json: JsonOption = False,
) -> None:
    from onecat.patching import tree_status
    from onecat.render.patches import state_document, state_lines

    chosen = choose_series(series, profile, directory)
    found = tree_status(chosen, directory)
    record = found.record
    if as_json:
        document = {
            "schema": "onecat.patch-status/1",
            "series": chosen.name,
            "directory": str(directory.absolute()),
            "applied": found.is_applied,
            "interrupted": found.interrupted,
            "recorded": None if record is None else {"digest": f"sha256:{record.digest}", "fuzz": record.fuzz},
            "edited": list(found.edited),
            "patches": [state_document(state) for state in found.states],
        }
        console.print_json(document)
    elif found.interrupted:
        print(f"a change of {directory} was cut off in the middle")
        print(f"to go on from there: onecat patch apply --to {directory}, or reverse")
    else:
        written = "" if record is None else ", as recorded there"
        print(f"{chosen.name} in {directory}: {'applied' if found.is_applied else 'not applied as a whole'}{written}")
        print_lines(state_lines(found.states))
        if record is not None and record.digest != chosen.digest:
            print("the series has changed since it was applied")
        print_lines(f"edited since: {path}" for path in found.edited)
    raise typer.Exit(0 if found.is_applied else 1)


def is_tree(source: Path) -> bool:
    """Whether a path is an unpacked source, not a folder of archives."""
    return source.is_dir() and ((source / "PKG-INFO").is_file() or not any(source.glob("*.tar.gz")))


def _archive(series: Series, source: Path | None) -> Source:
    from onecat.images.sources import fetch_source
    from onecat.patching import read_members, touched_paths
    from onecat.paths import home

    archive = fetch_source(series.upstream, home(), console.progress, source)
    return read_members(archive, series.upstream, touched_paths(series))


def _report(series: Series, states: Iterable[PatchState], where: str, as_json: bool) -> None:
    from onecat.render.patches import VERIFY, state_document, state_lines

    states = tuple(states)
    clean = all(state.is_clean for state in states)
    if as_json:
        rows = [state_document(state) for state in states]
        document = {"schema": VERIFY, "series": series.name, "source": where, "clean": clean, "patches": rows}
        console.print_json(document)
        return
    print(f"{series.name} on {where}: {'every patch fits' if clean else 'not every patch fits'}")
    print_lines(state_lines(states))


def _done(series: Series, outcome: Outcome, word: str, as_json: bool) -> None:
    from onecat.patching import State
    from onecat.render.patches import state_document, state_lines

    if outcome.recovered:
        console.progress(f"an earlier change of {outcome.root} was cut off; it was finished first")
    if as_json:
        document: dict[str, Any] = {
            "schema": f"onecat.patch-{'apply' if word == 'applied' else 'reverse'}/1",
            "series": series.name,
            "directory": str(outcome.root),
            "changed": list(outcome.changed),
            "patches": [state_document(state) for state in outcome.states],
        }
        console.print_json(document)
        return
    if not outcome.changed:
        why = "applied already" if word == "applied" else "not applied"
        print(f"{series.name} in {outcome.root}: {why}, no change")
        return
    print(f"{series.name} in {outcome.root}: {word}, {len(outcome.changed)} files changed")
    print_lines(state_lines([state for state in outcome.states if state.state is State.OFFSET]))


def _plain(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
