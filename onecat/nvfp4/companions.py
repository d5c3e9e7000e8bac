"""Files beside the weights: which go along with a converted checkpoint."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from onecat.checkpoints.quantization.reading import SIDE_FILES

_WEIGHTS = re.compile(
    r"\.(?:safetensors|bin|pt|pth|ckpt|gguf|onnx|h5|msgpack|tflite|npz|npy|pkl|pickle|ot|mlmodel|tar|zip|gz)$"
    r"|\.(?:safetensors|bin|onnx)[._-].*$|\.index\.json$",
    re.IGNORECASE,
)
_TRAINING = re.compile(
    r"^(?:training_args|trainer_state|optimizer|scheduler|scaler|rng_state|events\.out)", re.IGNORECASE
)
_CHECKSUMS = re.compile(r"(?:^(?:sha|md5|b2)\d*sums?(?:\.|$)|\.(?:sha\d+|md5)$)", re.IGNORECASE)
_WRITTEN = frozenset(("config.json", "onecat_conversion.json", *SIDE_FILES))

FOLDERS = ("chat_templates", "additional_chat_templates")
"""Folders that tokenizers read. Source: transformers, utils/hub.py (CHAT_TEMPLATE_DIR)."""


def companions(directory: Path) -> tuple[str, ...]:
    """Tokenizer, templates, generation settings, processors, code, license and such, by name.

    Not among them: weights in any form, what describes weights (index, checksums, quantisation), states of training,
    and hidden files. Raises OSError when the directory cannot be listed.
    """
    return tuple(sorted(_files(directory)))


def _files(directory: Path) -> Iterator[str]:
    for entry in directory.iterdir():
        if entry.is_file() and _goes_along(entry.name):
            yield entry.name
        elif entry.name in FOLDERS and entry.is_dir():
            yield from (f"{entry.name}/{each.name}" for each in entry.iterdir() if each.is_file())


def _goes_along(name: str) -> bool:
    return not (
        name.startswith(".")
        or name in _WRITTEN
        or _WEIGHTS.search(name)
        or _TRAINING.search(name)
        or _CHECKSUMS.search(name)
    )
