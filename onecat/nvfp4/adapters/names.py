"""What the tensors of an adapter file are, told from their names.

Source: peft 0.21.2, peft/utils/save_and_load.py (get_peft_model_state_dict), tuners_utils.py
(_remove_adapter_name_from_state_dict_key), tuners/trainable_tokens/layer.py. PEFT leaves the adapter's name out of the
names; older versions and other trainers keep it (`lora_A.default.weight`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

Role = Literal["first", "second", "second-bias", "embedding-first", "embedding-second", "magnitude", "rows", "whole"]
"""first, second: the matrices A and B of a product B A. magnitude: lengths of rows (DoRA). rows: trained rows of an
embedding. whole: takes the place of a tensor of the base."""

PREFIX = "base_model.model."

_PARTS: dict[Role, str] = {
    "first": r"lora_A(?:\.(?P<adapter>[^.]+))?\.weight",
    "second": r"lora_B(?:\.(?P<adapter>[^.]+))?\.weight",
    "second-bias": r"lora_B(?:\.(?P<adapter>[^.]+))?\.bias",
    "embedding-first": r"lora_embedding_A(?:\.(?P<adapter>[^.]+))?",
    "embedding-second": r"lora_embedding_B(?:\.(?P<adapter>[^.]+))?",
    "magnitude": r"lora_magnitude_vector(?:\.weight|\.(?P<adapter>[^.]+)(?:\.weight)?)?",
    "rows": r"token_adapter\.trainable_tokens_delta(?:\.(?P<adapter>[^.]+))?",
}
_ROLES = tuple((role, re.compile(rf"(?P<module>.+)\.{pattern}")) for role, pattern in _PARTS.items())
_SAVED = re.compile(r"(?P<module>.+)\.modules_to_save\.(?:(?P<adapter>[^.]+)\.)?(?P<last>[^.]+)")


class AdapterTensor(NamedTuple):
    """name: in the adapter's file. module: in the model, without PEFT's prefix; for `whole` the tensor's own name.

    adapter: the adapter's name where the file keeps it.
    """

    name: str
    role: Role
    module: str
    adapter: str | None = None


def read_name(name: str) -> AdapterTensor:
    """What a tensor of this name is."""
    own = name.removeprefix(PREFIX)
    for role, pattern in _ROLES:
        if (found := pattern.fullmatch(own)) is not None:
            return AdapterTensor(name, role, found["module"], found["adapter"])
    if (saved := _SAVED.fullmatch(own)) is not None:
        return AdapterTensor(name, "whole", f"{saved['module']}.{saved['last']}", saved["adapter"])
    return AdapterTensor(name, "whole", own.replace(".base_layer.", "."))


def adapters_of(tensors: Iterable[AdapterTensor]) -> set[str]:
    """The names of adapters that the tensors' names keep: more than one means several adapters in one file."""
    return {each.adapter for each in tensors if each.adapter is not None}
