"""Patch series and how they stand to a source: lines for people, documents for programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from onecat.patching import Patch, PatchState, Series, State
from onecat.patching.placing import Fit
from onecat.patching.report import conflict_lines
from onecat.render.columns import wrap

VERIFY = "onecat.patch/1"


def series_lines(series: Series) -> Iterator[str]:
    """A series in short: its pin, then each patch with its purpose."""
    upstream = series.upstream
    yield f"{series.name}: {len(series.patches)} patches, {len(series.added)} added files"
    yield f"  for {upstream.file}, {upstream.licence}"
    yield f"  sha256 {upstream.sha256}"
    width = max((len(patch.name) for patch in series.patches), default=0)
    for patch in series.patches:
        yield from wrap(patch.purpose, 80, f"  {patch.name:<{width}}  ", " " * (width + 4))


def patch_lines(patch: Patch) -> Iterator[str]:
    """All that a series says about one patch, then the diff."""
    applies = [f"profiles {', '.join(patch.applies_to.profiles)}"]
    if patch.applies_to.compute_capability:
        applies.append(f"compute capability {patch.applies_to.compute_capability}")
    fields = {
        "purpose": patch.purpose,
        "author": patch.author,
        "reference": patch.reference,
        "applies to": "; ".join(applies),
        "drop when": patch.drop_when,
    }
    yield patch.name
    for name, value in fields.items():
        yield from wrap(value, 80, f"  {name:<11} ", " " * 14)
    for when, guards in (("before", patch.before), ("after", patch.after)):
        for guard in guards:
            for word, texts in (("has", guard.contains), ("has not", guard.lacks)):
                for text in texts:
                    place, said = f"  guard       {when}: {guard.file}", f"{word} {text!r}"
                    yield from [f"{place} {said}"] if len(place) + len(said) < 80 else [place, f"{'':14}{said}"]
    yield ""
    yield from patch.text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace").splitlines()


def state_lines(states: Sequence[PatchState]) -> Iterator[str]:
    """How each patch stands, with what stands against it."""
    width = max((len(state.name) for state in states), default=0)
    for state in states:
        yield f"{state.name:<{width}}  {state_word(state)}"
        for path, fit in state.fits:
            if fit.line is not None and not fit.is_exact:
                yield f"  {path}: {_placed(fit)}"
        yield from (f"  {line}" for line in conflict_lines(state))


def state_word(state: PatchState) -> str:
    """A patch's state in words."""
    if state.state is State.OFFSET:
        fuzz = f", fuzz {state.fuzz}" if state.fuzz else ""
        return f"applies, offset {state.offset}{fuzz}"
    return str(state.state.value)


def _placed(fit: Fit) -> str:
    places = f", the nearest of {fit.places} places" if fit.places > 1 else ""
    fuzz = f", {fit.fuzz} lines of context differ" if fit.fuzz else ""
    return f"hunk {fit.hunk.header.split(' @@')[0]} @@ at line {fit.line}, offset {fit.offset:+d}{fuzz}{places}"


def series_document(series: Series) -> dict[str, Any]:
    """A series, with its patches but without their diffs."""
    return {
        "name": series.name,
        "digest": f"sha256:{series.digest}",
        "upstream": dict(vars(series.upstream)),
        "patches": [patch_document(patch) for patch in series.patches],
        "added": list(series.added),
    }


def patch_document(patch: Patch) -> dict[str, Any]:
    """What a series says about one patch."""
    guards = {"before": patch.before, "after": patch.after}
    return {
        "name": patch.name,
        "file": patch.file,
        "sha256": patch.sha256,
        "purpose": patch.purpose,
        "author": patch.author,
        "reference": patch.reference,
        "applies_to": {
            "profiles": list(patch.applies_to.profiles),
            "compute_capability": patch.applies_to.compute_capability,
        },
        "drop_when": patch.drop_when,
        "guards": {
            when: [{"file": each.file, "contains": list(each.contains), "lacks": list(each.lacks)} for each in rows]
            for when, rows in guards.items()
        },
        "files": [change.path for change in patch.changes],
    }


def state_document(state: PatchState) -> dict[str, Any]:
    """How one patch stands to a source."""
    return {
        "name": state.name,
        "purpose": state.purpose,
        "state": state.state.value,
        "offset": state.offset,
        "fuzz": state.fuzz,
        "problems": [change.problem for change in state.changes if change.problem is not None],
        "hunks": [_hunk(path, fit) for path, fit in state.fits if not fit.is_exact],
        "guards": [
            {"when": guard.when, "file": guard.file, "found": guard.found, "text": guard.text} for guard in state.guards
        ],
    }


def _hunk(path: str, fit: Fit) -> dict[str, Any]:
    return {
        "file": path,
        "header": fit.hunk.header,
        "line": fit.line,
        "offset": fit.offset,
        "fuzz": fit.fuzz,
        "places": fit.places,
        "hunk": _texts(tag.encode() + line for tag, line in fit.hunk.lines),
        "found_line": fit.found_line or None,
        "found": _texts(fit.found),
    }


def _texts(lines: Iterable[bytes]) -> list[str]:
    return [line.decode("utf-8", "backslashreplace").rstrip("\n") for line in lines]
