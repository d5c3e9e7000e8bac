"""Profiles in layers: what a profile extends, put below what it says itself.

Each value keeps the place of the layer that it came from. Rules, from the first of `extends` to the profile's own:
groups of keys are joined key by key; rows of a keyed list (`launch.args` by flag, `launch.env` by variable, ...) take
the place of an earlier row with the same key; lists of remarks (`notes`, `sources`) are joined; all other values are
replaced. `drop` takes inherited rows away, with the reason.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from onecat.config.source import KeyPath, Problem, Source, Spot, problems_error, read_source
from onecat.config.validate import nearest_name

ROWS_BY: Mapping[tuple[str, ...], str] = {
    ("launch", "args"): "arg",
    ("launch", "env"): "name",
    ("launch", "layouts"): "name",
    ("launch", "container", "devices"): "path",
    ("launch", "container", "mounts"): "path",
}
"""Lists of rows, with the key that makes two rows the same."""

JOINED = (("notes",), ("sources",), ("drop",))
"""Lists that grow with each layer; what stands in an earlier one is not repeated."""

OWN = ("name", "extends", "alternative")
"""Keys that say something of one file alone and are not inherited."""

DROPPABLE: Mapping[str, tuple[str, ...]] = {
    "arg": ("launch", "args"),
    "env": ("launch", "env"),
    "layout": ("launch", "layouts"),
    "device": ("launch", "container", "devices"),
    "mount": ("launch", "container", "mounts"),
}
"""What `drop` can take away, with the list it stands in."""

DEEPEST = 8
"""Layers below one another; a deeper tree is a mistake."""


@dataclass(frozen=True)
class _Tree:
    """A value with its place; `value` is a dict of trees, a tuple of trees, or a scalar."""

    spot: Spot
    value: Any


def read_layers(path: Path, shown: str | None, shipped: Path, known: Callable[[], Iterable[str]]) -> Source:
    """Read a profile and all that it extends, as one source.

    Parameters:
        path: the profile's file. shown: its name in messages, None for the path itself.
        shipped: directory of the profiles and parts that ship with onecat. known: names that `extends` may take.

    Raises OnecatError (exit code 2) with file, line and column: parts that are not there with the nearest name,
    circles, and rows to drop that no layer below has.
    """
    return _Reading(shipped, known).all_of(path, shown)


class _Reading:
    def __init__(self, shipped: Path, known: Callable[[], Iterable[str]]) -> None:
        self._shipped = shipped
        self._known = known
        self._texts: dict[str, tuple[str, ...]] = {}

    def all_of(self, path: Path, shown: str | None) -> Source:
        top = read_source(path, shown, shipped=self._shipped in path.parents)
        data, spots = _plain(self._with_layers(top, path, ()))
        return replace(top, data=data, spots=spots, others=self._texts)

    def _with_layers(self, source: Source, path: Path, above: tuple[tuple[Path, str], ...]) -> _Tree:
        """The tree of one file over those of all that it extends; `above` is the way that led here."""
        self._texts[source.file] = source.lines
        way = (*above, (path.resolve(), source.file))
        own = _tree(source)
        below = _Tree(own.spot, {})
        for name, spot in self._extended(source):
            layer = self._layer(name, spot, path, way)
            heritable = {key: each for key, each in layer.value.items() if key not in OWN}
            below = _over(below, _Tree(layer.spot, heritable), ())
        return _over(self._without_dropped(below, own), own, ())

    def _extended(self, source: Source) -> Iterator[tuple[str, Spot]]:
        """The words of `extends` with their places. A wrong form is told by the validation of the whole."""
        wanted = source.data.get("extends", ())
        if not isinstance(wanted, tuple):
            return
        for index, name in enumerate(wanted):
            if isinstance(name, str):
                yield name, source.spots[("extends", index)]

    def _layer(self, name: str, spot: Spot, path: Path, way: tuple[tuple[Path, str], ...]) -> _Tree:
        file, shown = self._file(name, path)
        problem = None
        passed = [each for each, _ in way]
        if not file.is_file():
            problem = self._unknown(name, spot, file)
        elif file.resolve() in passed:
            circle = " -> ".join([*(each for _, each in way[passed.index(file.resolve()) :]), shown])
            problem = Problem(spot.value, f"`extends` goes round in a circle: {circle}", "layers that end somewhere")
        elif len(way) >= DEEPEST:
            problem = Problem(spot.value, "`extends` is nested too deeply", f"at most {DEEPEST} layers")
        if problem is not None:
            raise problems_error(self._texts, [problem])
        read = _shipped_source if self._shipped in file.parents else read_source
        return self._with_layers(read(file, shown), file, way)

    def _file(self, name: str, path: Path) -> tuple[Path, str]:
        """The file that a word of `extends` means, and its name in messages.

        A name means a profile or a part that ships with onecat; a text that ends in .yaml a file of one's own, told
        from the file that extends it.
        """
        if name.endswith((".yaml", ".yml")):
            file = path.parent / Path(name).expanduser()
            return file, str(file)
        return self._shipped / f"{name}.yaml", f"profiles/{name}.yaml"

    def _unknown(self, name: str, spot: Spot, file: Path) -> Problem:
        if name.endswith((".yaml", ".yml")):
            return Problem(spot.value, f"`extends` names {name}, and there is no such file", str(file.absolute()))
        known = sorted(self._known())
        near = nearest_name(name, known) or next(
            (each for each in known if each.rpartition("/")[2] == name.rpartition("/")[2]), None
        )
        return Problem(
            spot.value,
            f"`extends` names `{name}`, and there is no such profile or part",
            f"one of: {', '.join(known)}; or a file of your own, as ./mine.yaml",
            f"did you mean `{near}`?" if near else None,
        )

    def _without_dropped(self, below: _Tree, own: _Tree) -> _Tree:
        rows = own.value.get("drop")
        if rows is None or not isinstance(rows.value, tuple):
            return below
        problems = []
        for row in rows.value:
            for kind, tree in row.value.items() if isinstance(row.value, dict) else ():
                if kind not in DROPPABLE or not isinstance(tree.value, str):
                    continue
                fewer = _dropped(below, DROPPABLE[kind], tree.value)
                if fewer is not None:
                    below = fewer
                    continue
                names = _names(below, DROPPABLE[kind])
                near = nearest_name(tree.value, names)
                problems.append(
                    Problem(
                        tree.spot.value,
                        f"there is no {kind} `{tree.value}` below to drop",
                        f"one of: {', '.join(names)}" if names else f"nothing: no layer below has any {kind}",
                        f"did you mean `{near}`?" if near else None,
                    )
                )
        if problems:
            raise problems_error(self._texts, problems)
        return below


@functools.cache
def _shipped_source(file: Path, shown: str) -> Source:
    """A part that ships with onecat: many profiles share it, and it does not change under a running program."""
    return read_source(file, shown, shipped=True)


def layer_name(where: str) -> str:
    """What people call the file of a place `file:line:column`: a shipped one as in `extends`, others by their path."""
    file = where.rsplit(":", 2)[0]
    return file.removeprefix("profiles/").removesuffix(".yaml") if file.startswith("profiles/") else file


def _tree(source: Source) -> _Tree:
    def node(value: Any, path: KeyPath) -> _Tree:
        spot = source.spots[path]
        if isinstance(value, dict):
            return _Tree(spot, {key: node(each, (*path, key)) for key, each in value.items()})
        if isinstance(value, tuple):
            return _Tree(spot, tuple(node(each, (*path, index)) for index, each in enumerate(value)))
        return _Tree(spot, value)

    return node(source.data, ())


def _plain(tree: _Tree) -> tuple[Any, dict[KeyPath, Spot]]:
    spots: dict[KeyPath, Spot] = {}

    def data(tree: _Tree, path: KeyPath) -> Any:
        spots[path] = tree.spot
        if isinstance(tree.value, dict):
            return {key: data(each, (*path, key)) for key, each in tree.value.items()}
        if isinstance(tree.value, tuple):
            return tuple(data(each, (*path, index)) for index, each in enumerate(tree.value))
        return tree.value

    return data(tree, ()), spots


def _over(below: _Tree, above: _Tree, path: tuple[str, ...]) -> _Tree:
    """`above` put over `below`, both at `path`."""
    if isinstance(below.value, dict) and isinstance(above.value, dict):
        joined = dict(below.value)
        for key, tree in above.value.items():
            joined[key] = _over(joined[key], tree, (*path, key)) if key in joined else tree
        return _Tree(above.spot, joined)
    if isinstance(below.value, tuple) and isinstance(above.value, tuple):
        if path in ROWS_BY:
            return _Tree(above.spot, _rows(below.value, above.value, ROWS_BY[path]))
        if path in JOINED:
            there = [_plain(each)[0] for each in below.value]
            return _Tree(above.spot, (*below.value, *(each for each in above.value if _plain(each)[0] not in there)))
    return above


def _rows(below: tuple[_Tree, ...], above: tuple[_Tree, ...], key: str) -> tuple[_Tree, ...]:
    """Rows of both. The first of `above` with a key takes the place of that of `below`; rows that stand twice stay."""
    waiting = list(above)
    kept = []
    for row in below:
        name = _name(row, key)
        taker = next((each for each in waiting if name is not None and _name(each, key) == name), None)
        if taker is not None:
            waiting.remove(taker)
        kept.append(taker or row)
    return (*kept, *waiting)


def _name(row: _Tree, key: str) -> Any:
    tree = row.value.get(key) if isinstance(row.value, dict) else None
    return tree.value if tree is not None and isinstance(tree.value, str) else None


def _names(tree: _Tree, path: tuple[str, ...]) -> list[str]:
    rows = _at(tree, path)
    found = [_name(each, ROWS_BY[path]) for each in rows.value] if rows and isinstance(rows.value, tuple) else []
    return [each for each in found if each is not None]


def _at(tree: _Tree, path: tuple[str, ...]) -> _Tree | None:
    for key in path:
        if not isinstance(tree.value, dict) or key not in tree.value:
            return None
        tree = tree.value[key]
    return tree


def _dropped(tree: _Tree, path: tuple[str, ...], name: str) -> _Tree | None:
    """`tree` without the row `name` of the list at `path`; None when there is no such row."""
    if name not in _names(tree, path):
        return None

    def without(tree: _Tree, rest: tuple[str, ...]) -> _Tree:
        if rest:
            return _Tree(tree.spot, {**tree.value, rest[0]: without(tree.value[rest[0]], rest[1:])})
        return _Tree(tree.spot, tuple(each for each in tree.value if _name(each, ROWS_BY[path]) != name))

    return without(tree, path)
