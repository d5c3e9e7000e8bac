"""Reading what a repack is made from: the base's headers, the adapter's settings and headers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onecat.checkpoints.json_text import NotJson, parse_json
from onecat.checkpoints.safetensors_header import HeaderError
from onecat.errors import ExitCode, OnecatError
from onecat.nvfp4.adapters.settings import AdapterSettings, read_settings
from onecat.nvfp4.dequantisation import Original, open_original
from onecat.nvfp4.rewriting import SourceFiles, open_source

SETTINGS = "adapter_config.json"
TENSORS = "adapter_model.safetensors"
PICKLED = "adapter_model.bin"


@dataclass(frozen=True)
class Adapter:
    """document: adapter_config.json as it stands there; source: the adapter's tensors."""

    settings: AdapterSettings
    document: Mapping[str, Any]
    source: SourceFiles


def open_base(directory: Path, adapter: Path, target: Path) -> Original:
    """Read the base. Raises OnecatError when it is none, or when the target lies where one of both is."""
    if (directory / SETTINGS).is_file() and not (directory / "config.json").is_file():
        raise OnecatError(
            f"{directory} is an adapter, not a base",
            expected="the base first, then the adapter: onecat model repack BASE ADAPTER DST",
            where=str(directory),
        )
    for other in (directory, adapter):
        if target.resolve() == other.resolve():
            raise OnecatError(
                f"{target} is a directory that is read",
                expected="another directory for what is made",
                where=str(target),
                next_steps=[f"name a new directory: {target}-merged"],
            )
    return open_original(directory)


def open_adapter(directory: Path) -> Adapter:
    """Read an adapter's settings and the header of its file; no tensor is loaded.

    Raises OnecatError when it is none, when it is pickled, and as `read_settings` does.
    """
    if not directory.is_dir():
        found = f"{directory} is not a directory" if directory.exists() else f"{directory} does not exist"
        raise OnecatError(
            found, expected=f"a directory with {SETTINGS} and {TENSORS}", where=str(directory),
            next_steps=["name the directory that PEFT's save_pretrained has written"],
        )  # fmt: skip
    document = _settings(directory)
    settings = read_settings(document, str(directory / SETTINGS))
    path = directory / TENSORS
    if not path.is_file():
        pickled = (directory / PICKLED).is_file()
        raise OnecatError(
            f"{directory} has its tensors in {PICKLED}, which onecat does not open: reading it runs code that it holds"
            if pickled
            else f"{directory} has no {TENSORS}",
            expected=TENSORS,
            where=str(directory / PICKLED if pickled else path),
            next_steps=["in a place that you trust it with, load it with PEFT and save it: save_pretrained(DIRECTORY)"]
            if pickled
            else ["download the adapter again, or save it: model.save_pretrained(DIRECTORY)"],
            code=ExitCode.NO,
        )
    try:
        source = open_source(directory, (TENSORS,))
    except HeaderError as error:
        raise OnecatError(
            f"{TENSORS} {error}", expected="a whole safetensors file", where=str(path),
            next_steps=["download the adapter again"], code=ExitCode.NO,
        ) from error  # fmt: skip
    if not source.tensors:
        raise OnecatError(
            f"{TENSORS} holds no tensor", expected="an adapter's matrices", where=str(path),
            next_steps=["save the adapter again: with DeepSpeed ZeRO-3 or FSDP, gather its parameters first"],
            code=ExitCode.NO,
        )  # fmt: skip
    return Adapter(settings, document, source)


def _settings(directory: Path) -> dict[str, Any]:
    path = directory / SETTINGS
    steps = ["name the directory that PEFT's save_pretrained has written"]
    if not path.is_file():
        inner = sorted(each.parent.name for each in directory.glob(f"*/{SETTINGS}"))
        if inner:
            steps.insert(0, f"name one of the adapters in it: {', '.join(str(directory / each) for each in inner[:3])}")
        raise OnecatError(
            f"{directory} has no {SETTINGS}: it is no adapter of PEFT", expected=f"{SETTINGS} and {TENSORS}",
            where=str(path), next_steps=steps,
        )  # fmt: skip
    try:
        document = parse_json(path.read_bytes())
    except NotJson as error:
        raise OnecatError(f"{SETTINGS} is not valid JSON ({error})", where=str(path), next_steps=[error.fix]) from error
    if not isinstance(document, dict):
        raise OnecatError(f"{SETTINGS} is no JSON object", where=str(path), next_steps=steps)
    return document
