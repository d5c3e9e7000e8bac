"""The list of modules that are left alone, as short as engines understand it.

vLLM maps plain names of such a list to its own names of modules, and no expressions: those are written so that they
hold for both, from the part of a name on that all libraries share. It compares q_proj, k_proj and v_proj in place of
the qkv_proj that they become, which is why names and expressions always cover all of them.

Source: vllm 0.27.1, vllm/model_executor/layers/quantization/compressed_tensors/compressed_tensors.py
(apply_vllm_mapper), .../utils.py (should_ignore_layer); modelopt.py (is_layer_excluded); utils/quant_utils.py
(is_layer_skipped).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from onecat.checkpoints.quantization.matching import FUSED
from onecat.nvfp4.conversion.matrices import WRAPPERS
from onecat.nvfp4.conversion.records import LeftAlone, Matrix

HEAD = "lm_head"
"""Listed also where the embedding takes its place: libraries make a linear module of it."""

_PARENTS = {shard: fused for fused, shards in FUSED.items() for shard in shards}
_NUMBER = re.compile(r"(?<=\.)[0-9]+(?=\.|$)")
_UP_TO_LAYERS = re.compile(r"^.*?(?=(?:layers|h|blocks)\.[0-9#])")


class _Entry(NamedTuple):
    """text: the end of a module's name, `#` for any number. inside: or of the name of what it is in.

    head: it is the output head, which libraries put in different places.
    """

    text: str
    inside: bool = False
    head: bool = False

    @property
    def expression(self) -> str:
        text = re.escape(self.text).replace(r"\#", "[0-9]+").replace("#", "[0-9]+")
        return rf"(?:.*\.)?{text}(?:\.|$)" if self.inside else rf"(?:.*\.)?{text}$"

    @property
    def globs(self) -> tuple[str, ...]:
        text = "*" + self.text.replace("#", "*")
        return (text, f"{text}.*") if self.inside else (text,)


def expressions(left: Sequence[LeftAlone], converted: Sequence[str]) -> tuple[str, ...]:
    """For compressed-tensors: regular expressions, and names of those that are not alike in many layers."""
    found = (each if isinstance(each, str) else f"re:{each.expression}" for each in _entries(left, converted))
    return tuple(dict.fromkeys((HEAD, *found)))


def globs(left: Sequence[LeftAlone], converted: Sequence[str]) -> tuple[str, ...]:
    """For ModelOpt, whose engine takes a name without `*` for letters anywhere in a name.

    It holds them to the joint modules that it makes, so that those are listed too.
    """
    entries = (
        _Entry(_UP_TO_LAYERS.sub("", each)) if isinstance(each, str) else each for each in _entries(left, converted)
    )
    found = (glob for each in entries for named in (each, *_joined(each)) for glob in named.globs)
    return tuple(dict.fromkeys((HEAD, *found)))


def _joined(entry: _Entry) -> Iterator[_Entry]:
    outer, dot, last = entry.text.rpartition(".")
    if last in _PARENTS:
        yield _Entry(f"{outer}{dot}{_PARENTS[last]}", entry.inside)


def full_names(left: Sequence[LeftAlone]) -> tuple[str, ...]:
    """For DeepSeek's naming, whose engine compares whole names."""
    return tuple(dict.fromkeys((HEAD, *(each.matrix.module for each in left if _is_listed(each.matrix)))))


def _entries(left: Sequence[LeftAlone], converted: Sequence[str]) -> Iterator[_Entry | str]:
    alike: dict[_Entry, list[str]] = defaultdict(list)
    for each in left:
        module = each.matrix.module
        if _is_listed(each.matrix) and module != HEAD:
            for entry in _ends(each.matrix):
                alike[entry].append(module)
    for entry, those in alike.items():
        pattern = re.compile(entry.expression)
        if (len(those) > 1 or entry.inside or entry.head) and not any(pattern.match(each) for each in converted):
            yield entry
        else:
            yield from those


def _is_listed(matrix: Matrix) -> bool:
    """Whether a library could take it for a linear module."""
    return matrix.is_matrix or (matrix.kind == "linear" and len(matrix.shape) > 2)


def _ends(matrix: Matrix) -> Iterator[_Entry]:
    """Names that differ in numbers alone end alike. Experts in one tensor are asked for by the names of single ones.

    Of a tower, or a draft layer, all is left alone: its own name is enough.
    """
    if matrix.part != "language":
        parts = [part for part in matrix.module.split(".") if part not in WRAPPERS] or [matrix.module]
        yield _Entry(".".join(parts[:2] if parts[0] == "layers" else parts[:1]), inside=True)
        return
    if matrix.kind == "head":
        yield _Entry(matrix.module.rpartition(".")[2], head=True)
        return
    text = _NUMBER.sub("#", _UP_TO_LAYERS.sub("", matrix.module))
    if matrix.is_matrix:
        yield _Entry(text)
    elif ".experts." in text:
        yield _Entry(text.partition(".experts.")[0] + ".experts", inside=True)
    else:
        yield _Entry(text)
        yield _Entry(text.rpartition(".")[0] + ".experts", inside=True)


def unlisted(left: Iterable[LeftAlone]) -> frozenset[str]:
    """Modules that no list needs: no library takes them for linear ones."""
    return frozenset(each.matrix.module for each in left if not _is_listed(each.matrix))
