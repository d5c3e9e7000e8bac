"""What a flat file holds and how, as a document: nothing in the file itself says so.

A layout file is YAML or JSON (`flat_layout.yaml`, `.yml` or `.json` beside the weights, or named on the command line):

    schema: onecat.flat-layout/1
    group_size: 128       # weights along in_features that share a scale; left out, the lengths tell it
    codes: unsigned       # what four bits mean: unsigned (0 to 15), signed (two's complement), e2m1 (as in NVFP4)
    zero_point: 8         # subtracted from unsigned codes before they are multiplied with the scale
    order: low-first      # a word's first code lies in its lowest four bits, or in its highest: high-first
    tensors:              # as they lie in the file, one after the other, each row by row; left out, config.json tells
      - {name: model.layers.0.self_attn.q_proj.weight, shape: [4096, 4096]}

The scales of all tensors lie before all codes, in the same order, without padding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, get_args

from onecat.errors import OnecatError

SCHEMA = "onecat.flat-layout/1"
NAMES = ("flat_layout.yaml", "flat_layout.yml", "flat_layout.json")
CODES_IN_WORD = 8

CodeMeaning = Literal["unsigned", "signed", "e2m1"]
Order = Literal["low-first", "high-first"]


class FlatTensor(NamedTuple):
    """shape: [out_features, in_features]."""

    name: str
    shape: tuple[int, int]

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Layout:
    """See the module. tensors: empty where the table is not known. group_size: None where it is not stated.

    left_out: further matrices of the model, which may be what a file has too much.
    """

    tensors: tuple[FlatTensor, ...] = ()
    group_size: int | None = None
    codes: CodeMeaning = "unsigned"
    zero_point: float = 8
    order: Order = "low-first"
    left_out: tuple[FlatTensor, ...] = ()

    @property
    def elements(self) -> int:
        """Weights of all tensors."""
        return sum(each.elements for each in self.tensors)

    def document(self) -> dict[str, Any]:
        """The same as a layout file says it."""
        return {
            "schema": SCHEMA,
            **({} if self.group_size is None else {"group_size": self.group_size}),
            "codes": self.codes,
            **({"zero_point": self.zero_point} if self.codes == "unsigned" else {}),
            "order": self.order,
            **({"tensors": [{"name": name, "shape": list(shape)} for name, shape in self.tensors]} if self.tensors
               else {}),
        }  # fmt: skip


def read_layout(path: Path) -> Layout:
    """The layout that a file states. Raises OnecatError, naming the field, when it states none; OSError."""
    import yaml

    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise _wrong(path, f"is neither YAML nor JSON: {' '.join(str(error).split())}") from error
    if not isinstance(document, Mapping):
        raise _wrong(path, "holds no fields")
    known = {"schema", "group_size", "codes", "zero_point", "order", "tensors"}
    if unknown := sorted(str(name) for name in document if name not in known):
        raise _wrong(path, f"has unknown fields: {', '.join(unknown)}")
    if document.get("schema", SCHEMA) != SCHEMA:
        raise _wrong(path, f"has another schema: {document['schema']!r}")
    size = document.get("group_size")
    if size is not None and (type(size) is not int or size < 1 or size % CODES_IN_WORD):
        raise _wrong(path, f"has {size!r} as group_size, which is no multiple of {CODES_IN_WORD} above 0")
    zero = document.get("zero_point", 8)
    if type(zero) not in (int, float) or not math.isfinite(zero):
        raise _wrong(path, f"has {zero!r} as zero_point, which is no number")
    return Layout(
        _tensors(path, document.get("tensors", [])),
        size,
        cast(CodeMeaning, _one_of(path, document, "codes", get_args(CodeMeaning))),
        zero,
        cast(Order, _one_of(path, document, "order", get_args(Order))),
    )


def _one_of(path: Path, document: Mapping[Any, Any], name: str, words: tuple[str, ...]) -> str:
    stated = document.get(name, words[0])
    if stated not in words:
        raise _wrong(path, f"has {stated!r} as {name}, which is none of {', '.join(words)}")
    return str(stated)


def _tensors(path: Path, stated: Any) -> tuple[FlatTensor, ...]:
    if not isinstance(stated, list):
        raise _wrong(path, "has tensors that are no list")
    found: dict[str, FlatTensor] = {}
    for place, each in enumerate(stated):
        where = f"tensors[{place}]"
        if not isinstance(each, Mapping) or set(each) != {"name", "shape"} or not isinstance(each["name"], str):
            raise _wrong(path, f"has {where} without a name and a shape, or with more")
        shape = each["shape"]
        if not (isinstance(shape, list) and len(shape) == 2 and all(type(n) is int and n > 0 for n in shape)):
            raise _wrong(path, f"has {shape!r} as shape of {where}, which is not [out_features, in_features]")
        if each["name"] in found:
            raise _wrong(path, f"has {each['name']} twice")
        found[each["name"]] = FlatTensor(each["name"], (shape[0], shape[1]))
    return tuple(found.values())


def _wrong(path: Path, what: str) -> OnecatError:
    return OnecatError(
        f"{path.name} {what}",
        expected="group_size, codes, zero_point, order and tensors, as the manual shows them",
        where=str(path),
        next_steps=["see what a layout looks like: onecat model import-bin SRC --dry-run --json"],
    )
