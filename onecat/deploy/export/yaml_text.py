"""YAML that every parser reads alike: whatever could be taken for something else than text is in double quotes."""

from __future__ import annotations

import re
from typing import Any

import yaml

_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*")
# What YAML 1.1 or 1.2 read as a boolean or null: https://yaml.org/type/bool.html, https://yaml.org/type/null.html.
_WORDS = frozenset(["y", "yes", "n", "no", "on", "off", "true", "false", "null"])


class Block(str):
    """A text of several lines that is easier to read as a literal block."""


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    plain = _PLAIN.fullmatch(value) and value.lower() not in _WORDS
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=None if plain else '"')


def _block(dumper: _Dumper, value: Block) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(value), style="|")


_Dumper.add_representer(str, _text)
_Dumper.add_representer(Block, _block)


def dump(*documents: Any) -> str:
    """Documents of plain data as YAML, in the order of their keys."""
    return str(
        yaml.dump_all(
            documents,
            Dumper=_Dumper,
            sort_keys=False,
            default_flow_style=False,
            allow_unicode=True,
            width=10**9,
            explicit_start=len(documents) > 1,
        )
    )
