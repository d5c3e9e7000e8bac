"""The list of modules that are left alone, as short as engines understand it.

vLLM maps plain names of such a list to its own names of modules, and no regular expressions: those are written so that
they hold for both, from the part of a name on that all libraries share. It compares q_proj, k_proj and v_proj in place
of the qkv_proj that they become, which is why names and expressions always cover all of them.

Source: vllm 0.27.1, vllm/model_executor/layers/quantization/compressed_tensors/compressed_tensors.py
(apply_vllm_mapper), .../utils.py (should_ignore_layer); modelopt.py (is_layer_excluded); utils/quant_utils.py
(is_layer_skipped).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from onecat.nvfp4.conversion.records import LeftAlone

HEAD = "lm_head"
_NUMBER = re.compile(r"(?<=\.)[0-9]+(?=\.)")
_FROM_LAYERS = re.compile(r"^.*?(?=(?:layers|h|blocks)\.(?:[0-9]|#))")


def expressions(left: Sequence[LeftAlone], converted: Iterable[str]) -> tuple[str, ...]:
    """For compressed-tensors: the head, an expression for each tower, one for modules alike in many layers, else names.

    The head is there also where the embedding takes its place: libraries make a linear module of it.
    """
    kept = tuple(converted)
    found = [HEAD]
    names: list[str] = []
    for each in left:
        name = each.matrix.module
        if each.matrix.kind == "head":
            if name != HEAD:
                found.append(f"re:.*{re.escape(name.rpartition('.')[2])}$")
        elif each.matrix.part == "language" or (tower := _tower(name)) is None:
            names.append(name)
        else:
            found.append(f"re:(?:.*\\.)?{re.escape(tower)}\\.")
    return tuple(dict.fromkeys((*found, *_alike(names, kept))))


def _tower(module: str) -> str | None:
    """The part of a name by which a tower or a draft layer is known in all libraries."""
    first = next((part for part in module.split(".") if part not in ("model", "language_model", "thinker")), None)
    return None if first in (None, "layers") else first


def _alike(names: Sequence[str], converted: Sequence[str]) -> list[str]:
    """Names that differ in the layer alone as one expression, where it covers nothing that is converted."""
    alike: dict[str, list[str]] = defaultdict(list)
    for name in names:
        alike[_NUMBER.sub("#", name)].append(name)
    found = []
    for stem, those in alike.items():
        text = re.escape(_FROM_LAYERS.sub("", stem)).replace(r"\#", "#").replace("#", "[0-9]+")
        expression = f"(?:.*\\.)?{text}$"
        pattern = re.compile(expression)
        if len(those) > 1 and not any(pattern.match(each) for each in converted):
            found.append(f"re:{expression}")
        else:
            found += those
    return found


def full_names(left: Sequence[LeftAlone]) -> tuple[str, ...]:
    """For DeepSeek's naming, whose engine compares whole names: all of them."""
    return tuple(dict.fromkeys((HEAD, *(each.matrix.module for each in left))))


def wildcards(left: Sequence[LeftAlone]) -> tuple[str, ...]:
    """For ModelOpt, whose patterns are globs over the whole name."""
    found = [HEAD]
    names: list[str] = []
    for each in left:
        name = each.matrix.module
        if each.matrix.part != "language" and (tower := _tower(name)) is not None:
            found.append(f"*{tower}*")
        else:
            names.append(name)
    return tuple(dict.fromkeys((*found, *names)))
