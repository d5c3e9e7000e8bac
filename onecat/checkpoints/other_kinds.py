"""Directories that hold no checkpoint that an engine loads from there, but something that people take for one."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onecat.checkpoints.numbering import counted, first_of
from onecat.checkpoints.records import Problem
from onecat.checkpoints.sources import CONFIG

EXPLAINED = frozenset(("missing-file", "no-weights", "missing-tokenizer", "no-generation-config"))
"""Problems that a directory of another kind has because it is one."""

NO_WEIGHTS = ("training_args.bin", "optimizer.bin", "optimizer.pt", "scheduler.pt", "scaler.pt", "rng_state.pth")
"""Files of a training run. Source: filter_files_not_needed_for_inference in vllm 0.27.1's weight_utils.py."""

TELLING = (".json", ".safetensors", ".gguf", ".bin")
"""Ends of the names of files that tell what a directory is."""

_LARGEST = 1 << 20


@dataclass(frozen=True)
class OtherKind:
    """What a directory is. explains: codes of problems that this one is told in place of. files, bytes: weights that
    an engine loads and whose tensors cannot be told."""

    problem: Problem
    explains: frozenset[str] = EXPLAINED
    files: tuple[str, ...] = ()
    bytes: int = 0


@dataclass(frozen=True)
class _Names:
    directory: Path
    files: Collection[str]
    folders: Collection[str]

    def document(self, name: str) -> dict[str, Any]:
        try:
            with (self.directory / name).open(encoding="utf-8") as file:
                found = json.loads(file.read(_LARGEST))
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def ending(self, ending: str) -> list[str]:
        return sorted(name for name in self.files if name.endswith(ending))


def other_kind(directory: Path) -> OtherKind | None:
    """What a directory is when it is no checkpoint in safetensors; None when it may be one.

    Raises OSError when it cannot be listed.
    """
    files: set[str] = set()
    folders: set[str] = set()
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir():
                folders.add(entry.name)
            elif entry.name.endswith(TELLING):
                files.add(entry.name)
    names = _Names(directory, files, folders)
    return next((found for kind in _KINDS if (found := kind(names)) is not None), None)


def _adapter(names: _Names) -> OtherKind | None:
    """Source: https://huggingface.co/docs/peft/developer_guides/checkpoint; --lora-modules of vLLM."""
    if "adapter_config.json" not in names.files or CONFIG in names.files:
        return None
    stated = names.document("adapter_config.json")
    base = stated.get("base_model_name_or_path")
    base = base if isinstance(base, str) and base else "its base model"
    kind = stated.get("peft_type")
    is_lora = kind in (None, "LORA")
    fix = f"serve {base} with --enable-lora --lora-modules NAME={shlex.quote(str(names.directory))}"
    return OtherKind(
        Problem(
            "adapter",
            f"holds an adapter ({kind if isinstance(kind, str) else 'of no stated kind'}) for {base}, not a model",
            str(names.directory),
            fix if is_lora else f"merge it into {base} with PEFT: vLLM loads no adapters of this kind",
        )
    )


def _pipeline(names: _Names) -> OtherKind | None:
    """Source: https://huggingface.co/docs/diffusers/using-diffusers/loading."""
    if "model_index.json" not in names.files or CONFIG in names.files:
        return None
    kind = names.document("model_index.json").get("_class_name")
    told = f" ({kind})" if isinstance(kind, str) else ""
    return OtherKind(
        Problem(
            "diffusion-pipeline",
            f"holds a pipeline of diffusers{told}, not a language model",
            str(names.directory),
            "run it with the library diffusers: vllm serve does not load it",
        )
    )


def _hub_cache(names: _Names) -> OtherKind | None:
    """Source: https://huggingface.co/docs/huggingface_hub/guides/manage-cache."""
    if "snapshots" not in names.folders or CONFIG in names.files:
        return None
    snapshots = names.directory / "snapshots"
    there = sorted(entry.name for entry in os.scandir(snapshots) if entry.is_dir())
    try:
        main = (names.directory / "refs" / "main").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        main = ""
    revision = main if main in there else there[-1] if there else None
    return OtherKind(
        Problem(
            "hub-cache",
            f"is a model's folder in the hub's cache, with {counted(len(there), 'snapshot')}, not a snapshot",
            str(names.directory),
            f"give the snapshot: {shlex.quote(str(snapshots / revision))}" if revision else "download the model again",
        )
    )


def _mistral(names: _Names) -> OtherKind | None:
    """Source: vllm 0.27.1, vllm/transformers_utils/config.py (MISTRAL_CONFIG_NAME)."""
    if "params.json" not in names.files or CONFIG in names.files or not names.ending(".safetensors"):
        return None
    return OtherKind(
        Problem(
            "mistral-format",
            f"stands in place of {CONFIG}: Mistral's own format, of which no more than tensors is told",
            str(names.directory / "params.json"),
            "vLLM reads it as it is; other engines want the config.json of the publisher's other copy",
            "info",
        ),
        frozenset(("missing-file",)),
    )


def _gguf(names: _Names) -> OtherKind | None:
    """Source: vllm 0.27.1, docs/features/quantization/gguf.md."""
    found = names.ending(".gguf")
    if not found or names.ending(".safetensors") or _pickles(names):
        return None
    first = shlex.quote(str(names.directory / found[0]))
    return OtherKind(
        Problem(
            "gguf",
            f"holds GGUF ({first_of(found)}), which vLLM loads from no directory, and 0.27.1 by a plugin only",
            str(names.directory),
            f"serve the file itself (llama-server -m {first}), or take the model in safetensors",
        )
    )


def _pickled(names: _Names) -> OtherKind | None:
    """Source: vllm 0.27.1, vllm/model_executor/model_loader/default_loader.py (*.bin where no safetensors are)."""
    found = _pickles(names)
    if not found or names.ending(".safetensors"):
        return None
    size = sum((names.directory / name).stat().st_size for name in found)
    return OtherKind(
        Problem(
            "pickled-weights",
            f"has its weights as pickles ({first_of(found)}): their size is told, and no tensor",
            str(names.directory),
            "take the model in safetensors, or convert it: pickles load slowly, and other engines refuse them",
            "warn",
        ),
        frozenset(("no-weights",)),
        tuple(found),
        size,
    )


def _pickles(names: _Names) -> list[str]:
    return [name for name in names.ending(".bin") if name not in NO_WEIGHTS and (names.directory / name).is_file()]


def _above_models(names: _Names) -> OtherKind | None:
    if CONFIG in names.files or names.ending(".safetensors") or names.ending(".index.json"):
        return None
    models = sorted(name for name in names.folders if _is_model(names.directory / name))
    if not models:
        return None
    first = shlex.quote(str(names.directory / models[0]))
    return OtherKind(
        Problem(
            "directory-of-models",
            f"is no model itself; it holds {counted(len(models), 'model')} ({first_of(models)})",
            str(names.directory),
            f"give one of them, as {first}",
        )
    )


def _is_model(directory: Path) -> bool:
    return any((directory / name).exists() for name in (CONFIG, "adapter_config.json", "model_index.json", "snapshots"))


_KINDS: tuple[Callable[[_Names], OtherKind | None], ...] = (
    _adapter, _pipeline, _hub_cache, _mistral, _gguf, _pickled, _above_models,
)  # fmt: skip
