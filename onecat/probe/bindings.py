"""pynvml as the agent carries it: without the functions, structures and constants that no source can reach.

All of pynvml takes 70 ms of a host's processor to compile and a third of what goes over the wire; what the agent calls
takes a tenth of that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_STATEMENT_END = re.compile(r"\n(?=\S)")
_DEFINITION = re.compile(r"(?:def|class) (\w+)|(\w+) *=(?!.* = )")
_WORD = re.compile(r"\w+")


def reachable(module: str, callers: Iterable[str]) -> str:
    """A module's text without the definitions that its callers cannot reach.

    A definition, of a constant too, stays when its name is a word anywhere in the callers, in a statement at the
    module's top level, or in a definition that stays: names in strings count, so that getattr with a written name
    works. A word that ends in an underscore stands for all names that begin with it.

    Parameters:
        module: text of a Python module. callers: texts of the modules that use it.

    Returns the whole text when it is written in a way that cannot be taken apart line by line.
    """
    statements: list[tuple[str | None, str]] = []
    decorators = ""
    for line in _STATEMENT_END.split(module):
        piece = line + "\n"
        definition = _DEFINITION.match(piece)
        if piece.startswith("@"):
            decorators += piece
        elif piece.startswith("#"):
            continue
        elif definition:
            statements.append((definition.group(1) or definition.group(2), decorators + piece))
            decorators = ""
        elif piece.startswith((")", "]", "}")) and statements:
            name, begun = statements.pop()
            statements.append((name, begun + piece))
        else:
            statements.append((None, decorators + piece))
            decorators = ""
    definitions: dict[str, list[str]] = {}
    for name, text in statements:
        if name is not None:
            definitions.setdefault(name, []).append(text)
            if text.count('"""') % 2 or text.count("'''") % 2:
                return module
    unread = "".join([*callers, *(text for name, text in statements if name is None)])
    needed: set[str] = set()
    while unread:
        words = set(_WORD.findall(unread))
        beginnings = tuple(word for word in words if word.endswith("_") and len(word) > 1)
        found = {name for name in definitions if name in words or name.startswith(beginnings)} - needed
        needed |= found
        unread = "".join(text for name in found for text in definitions[name])
    return "".join(text for name, text in statements if name is None or name in needed)
