"""YAML text as plain data that remembers where each key and each value stands.

PyYAML's composer gives nodes with positions; its safe resolver gives the values. Everything that is not plain data
(several documents, duplicate keys, keys that are no text, tags, merge keys, anchors that multiply) is refused here,
with its position, so that validation works on a tree of known shape.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from yaml.reader import ReaderError

from onecat.errors import OnecatError

KeyPath = tuple[str | int, ...]
"""Way to a value: keys of mappings and indices of lists, from the top."""

LARGEST_FILE = 128 * 1024
MOST_VALUES = 20_000
DEEPEST_NESTING = 40
"""Limits of a file that a person wrote: bytes, values after anchors are followed, nested levels."""

MOST_PROBLEMS = 20
"""As many are told at once; the others are counted."""


@dataclass(frozen=True)
class Place:
    """A character in a file; line and column count from 1. Prints as `file:line:column`.

    Line 0 stands for something that is no file: the command line.
    """

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


@dataclass(frozen=True)
class Spot:
    """Where a value stands: its key (None for list items and the top), itself, and its text if it is a scalar.

    quoted: the scalar stands in quotes, so YAML did not guess its type.
    """

    key: Place | None
    value: Place
    text: str | None = None
    quoted: bool = False


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, at one place."""

    place: Place
    found: str
    expected: str | None = None
    next_step: str | None = None


@dataclass(frozen=True)
class Source:
    """One YAML file: its name as shown to people, its lines, its data (lists as tuples), where everything stands.

    others: lines of the files it was put together from, by their names.
    """

    file: str
    lines: tuple[str, ...]
    data: dict[str, Any]
    spots: Mapping[KeyPath, Spot] = field(default_factory=dict)
    others: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def texts(self) -> Mapping[str, tuple[str, ...]]:
        """The lines of every file that values stand in, by the file's shown name."""
        return {**self.others, self.file: self.lines}

    def nearest(self, path: KeyPath) -> tuple[KeyPath, Spot]:
        """The longest beginning of `path` that stands in the file; the top of the file if nothing of it does."""
        while path not in self.spots and path:
            path = path[:-1]
        return path, self.spots.get(path, Spot(None, Place(self.file, 1, 1)))


def read_source(path: Path, name: str | None = None, *, shipped: bool = False) -> Source:
    """Read and parse a YAML file. `name` replaces the path in messages. shipped: as `parse_source` has it.

    Raises OnecatError when it cannot be read or is not one YAML mapping.
    """
    shown = name or str(path)
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        steps = ["onecat init", "or name another one: --config FILE"] if path.name == "onecat.yaml" else []
        raise OnecatError(f"{shown} does not exist", where=str(path.absolute()), next_steps=steps) from None
    except OSError as error:
        raise OnecatError(f"{shown} cannot be read: {error.strerror}", where=str(path.absolute())) from error
    if len(content) > LARGEST_FILE:
        raise OnecatError(
            f"{shown} is too large",
            expected=f"a configuration of at most {LARGEST_FILE} bytes",
            where=str(path.absolute()),
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8", "replace")
        place = _place_after(shown, before)
        raise OnecatError(
            f"byte 0x{content[error.start]:02x} is not UTF-8", expected="a text file in UTF-8", where=str(place)
        ) from None
    return parse_source(text, shown, shipped=shipped)


def parse_source(text: str, file: str, *, shipped: bool = False) -> Source:
    """Parse YAML text; `file` is the name shown in messages.

    Parameters:
        shipped: the text comes with onecat. It goes through libyaml then, which reads the same in a tenth of the time
            and differs in what it forgives and says of text that is broken.

    Raises OnecatError with all structural problems (exit code 2).
    """
    lines = tuple(text.splitlines())
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader) if shipped else yaml.SafeLoader
    node = _compose(text, file, lines, loader)
    reader = _Reader(file)
    try:
        data = reader.value(node, (), None)
    finally:
        reader.close()
    if reader.problems:
        raise problems_error({file: lines}, reader.problems)
    return Source(file, lines, data, reader.spots)


def problems_error(texts: Mapping[str, Sequence[str]], problems: Sequence[Problem]) -> OnecatError:
    """All problems of one configuration as one error: the first in full, with its line, the others each on a line.

    `texts` are the lines of its files, by the names that places have.
    """
    first, *others = sorted(problems, key=lambda each: (each.place.file, each.place.line, each.place.column))
    details = [*_excerpt(texts.get(first.place.file, ()), first.place)]
    for other in others[: MOST_PROBLEMS - 1]:
        expected = f" (expected {other.expected})" if other.expected else ""
        details.append(f"also at {other.place}: {other.found}{expected}")
    if len(others) >= MOST_PROBLEMS:
        details.append(f"and {len(others) - MOST_PROBLEMS + 1} more")
    steps = dict.fromkeys(each.next_step for each in (first, *others[: MOST_PROBLEMS - 1]) if each.next_step)
    return OnecatError(
        first.found,
        expected=first.expected,
        where=str(first.place),
        details=details,
        next_steps=[step for step in steps if step],
    )


def _excerpt(lines: Sequence[str], place: Place) -> Iterator[str]:
    if not 1 <= place.line <= len(lines):
        return
    line = "".join(" " if unicodedata.category(each) == "Cc" else each for each in lines[place.line - 1])
    start = max(0, place.column - 61)
    yield line[start : start + 100]
    yield " " * (place.column - 1 - start) + "^"


def _place_after(file: str, before: str) -> Place:
    return Place(file, before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)


def _place(file: str, mark: Any) -> Place:
    return Place(file, mark.line + 1, mark.column + 1)


def _compose(text: str, file: str, lines: Sequence[str], loader: Any) -> yaml.Node:
    try:
        nodes = list(yaml.compose_all(text, Loader=loader))
    except ReaderError as error:
        place = _place_after(file, text[: error.position])
        raise problems_error(
            {file: lines},
            [Problem(place, f"the character {chr(error.character)!r} is not allowed in YAML", "plain text")],
        ) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = _place(file, mark) if mark else Place(file, 1, 1)
        raise problems_error({file: lines}, [_syntax_problem(error, place, lines)]) from None
    except RecursionError:
        raise OnecatError("the values are nested too deeply", where=file, expected="a plain configuration") from None
    except (yaml.YAMLError, ValueError) as error:
        # PyYAML lets ValueError through for numbers in escapes and directives that no character or version has.
        raise OnecatError(f"this is not YAML: {error}", where=file) from None
    if not nodes:
        raise OnecatError(f"{file} is empty", expected="keys and values, as `onecat init` writes them", where=file)
    if len(nodes) > 1:
        place = _place(file, nodes[1].start_mark)
        raise problems_error(
            {file: lines}, [Problem(place, "a second YAML document begins", "one document: no line `---`")]
        )
    node = nodes[0]
    if not isinstance(node, yaml.MappingNode):
        kind = "a list" if isinstance(node, yaml.SequenceNode) else "a single value"
        place = _place(file, node.start_mark)
        raise problems_error(
            {file: lines}, [Problem(place, f"the file holds {kind}", "keys with values, as `name: chat`")]
        )
    return node


def _syntax_problem(error: yaml.MarkedYAMLError, place: Place, lines: Sequence[str]) -> Problem:
    line = lines[place.line - 1] if place.line <= len(lines) else ""
    if line[place.column - 1 : place.column] == "\t" or line[: len(line) - len(line.lstrip())].count("\t"):
        return Problem(
            Place(place.file, place.line, line.index("\t") + 1),
            "a tab is used as indentation",
            "spaces: YAML forbids tabs",
        )
    text = ", ".join(each for each in (error.context, error.problem) if each)
    return Problem(place, f"broken YAML: {text}", "one `key: value` per line, nested keys indented by spaces")


class _Reader:
    """Turns nodes into data and collects positions and problems."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.spots: dict[KeyPath, Spot] = {}
        self.problems: list[Problem] = []
        self._count = 0
        self._constructor = yaml.SafeLoader("")

    def close(self) -> None:
        self._constructor.dispose()

    def value(self, node: yaml.Node, path: KeyPath, key: Place | None) -> Any:
        place = _place(self.file, node.start_mark)
        self._count += 1
        if self._count > MOST_VALUES or len(path) > DEEPEST_NESTING:
            raise OnecatError(
                "the file grows beyond all bounds when its anchors are followed",
                expected=f"at most {MOST_VALUES} values, nested at most {DEEPEST_NESTING} levels",
                where=str(place),
            )
        if isinstance(node, yaml.ScalarNode):
            self.spots[path] = Spot(key, place, node.value, bool(node.style))
            return self._scalar(node, place)
        self.spots[path] = Spot(key, place)
        if not node.tag.startswith("tag:yaml.org,2002:") or node.tag.rsplit(":", 1)[1] not in ("map", "seq"):
            self.problems.append(Problem(place, f"the tag {node.tag} is not understood", "plain values without tags"))
        if isinstance(node, yaml.SequenceNode):
            return tuple(self.value(item, (*path, index), None) for index, item in enumerate(node.value))
        assert isinstance(node, yaml.MappingNode)
        return self._mapping(node, path)

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key_node, value_node in node.value:
            place = _place(self.file, key_node.start_mark)
            name = self._key(key_node, place)
            if name is None:
                continue
            way: KeyPath = (*path, name)
            if name in data:
                first = self.spots[way].key
                self.problems.append(
                    Problem(
                        place, f"the key `{name}` stands here for the second time", f"one `{name}` (first: {first})"
                    )
                )
                continue
            data[name] = self.value(value_node, way, place)
        return data

    def _key(self, node: yaml.Node, place: Place) -> str | None:
        if not isinstance(node, yaml.ScalarNode):
            self.problems.append(Problem(place, "a list or mapping is used as a key", "a name as key"))
            return None
        if node.tag == "tag:yaml.org,2002:merge":
            self.problems.append(Problem(place, "merge keys (<<) are not supported", "the keys written out"))
            return None
        # `on:` is a boolean in YAML 1.1; no key of ours is one, so whoever writes it means the word.
        if node.tag not in ("tag:yaml.org,2002:str", "tag:yaml.org,2002:bool"):
            reading = reading_of(node.value, self._scalar(node, place))
            found = f"the key {node.value or '(nothing)'} is not text: {reading}"
            self.problems.append(Problem(place, found, f'a name in quotes: "{node.value}"'))
            return None
        return str(node.value)

    def _scalar(self, node: yaml.ScalarNode, place: Place) -> Any:
        try:
            return self._constructor.construct_object(node)
        except (ValueError, OverflowError, LookupError, TypeError, AttributeError, yaml.YAMLError):
            # Texts that match YAML's pattern of a number or date and are none, and tags that are not plain data.
            self.problems.append(
                Problem(place, f"{node.value[:60]!r} cannot be read as {node.tag.rsplit(':', 1)[-1]}", "text in quotes")
            )
            return None


def reading_of(text: str | None, value: Any) -> str:
    """How YAML 1.1 understood an unquoted scalar, for a person who meant text."""
    if isinstance(value, bool):
        return f"YAML 1.1 reads {text} as {'true' if value else 'false'}"
    if isinstance(value, (int, float)):
        return f"YAML reads {text} as the number {value}"
    if value is None:
        return "YAML reads it as no value"
    return f"YAML reads {text} as a {type(value).__name__}"
