"""Look at a model directory: configuration, headers of its weight files, tokenizer, and what is wrong with them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from onecat.checkpoints.architectures import describe
from onecat.checkpoints.quantization import read_quantization
from onecat.checkpoints.records import Checkpoint, Problem, StoredTensors
from onecat.checkpoints.safetensors_header import Header, HeaderError, read_header
from onecat.errors import OnecatError

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "tekken.json", "vocab.json", "tiktoken.model")
HF_QUANT_CONFIG = "hf_quant_config.json"
DOWNLOAD_AGAIN = "download this file again and compare its checksum with the one its publisher states"


def inspect(directory: Path) -> Checkpoint:
    """Read a checkpoint's configuration and headers; no weight is loaded.

    Raises OnecatError when `directory` does not exist or is no directory. Everything else that is wrong with the
    checkpoint is in `problems`, so that all of it is told at once.
    """
    if not directory.is_dir():
        raise OnecatError(
            f"the model directory {directory} does not exist"
            if not directory.exists()
            else f"{directory} is not a directory",
            expected="a directory with config.json, *.safetensors and a tokenizer",
            where=str(directory),
            next_steps=("correct model.path in onecat.yaml, or download the checkpoint to that directory",),
        )
    problems: list[Problem] = []
    config = _read_json(directory / "config.json", problems) or {}
    headers = _read_headers(directory, problems)
    if not any((directory / name).is_file() for name in TOKENIZER_FILES):
        problems.append(
            Problem(
                "missing-tokenizer",
                f"has no tokenizer (none of {', '.join(TOKENIZER_FILES)})",
                str(directory),
                "copy the tokenizer files of the original checkpoint into this directory",
            )
        )
    stored = [
        StoredTensors(tensor.name, tensor.dtype, tensor.shape, 1, tensor.end - tensor.begin)
        for header in headers.values()
        for tensor in header.tensors
    ]
    documents = {"config.json": config}
    if config.get("quantization_config") is None and (directory / HF_QUANT_CONFIG).is_file():
        documents[HF_QUANT_CONFIG] = _read_json(directory / HF_QUANT_CONFIG, problems) or {}
    return Checkpoint(
        directory=str(directory),
        architecture=describe(config),
        quantization=read_quantization(documents),
        tensors=tuple(stored),
        weight_bytes=sum(each.bytes for each in stored),
        parameters=sum(each.elements for each in stored),
        files=tuple(sorted(headers)),
        problems=tuple(problems),
    )


def _read_headers(directory: Path, problems: list[Problem]) -> dict[str, Header]:
    names = {path.name for path in directory.glob("*.safetensors")}
    index_path = directory / "model.safetensors.index.json"
    if index_path.is_file():
        index = _read_json(index_path, problems) or {}
        weight_map = index.get("weight_map")
        listed = set(_strings(weight_map.values())) if isinstance(weight_map, Mapping) else set()
        for missing in sorted(listed - names):
            problems.append(
                Problem(
                    "missing-shard",
                    f"is listed in {index_path.name} and not there",
                    str(directory / missing),
                    "download the missing shard",
                )
            )
    elif not names:
        problems.append(
            Problem(
                "no-weights",
                "has no *.safetensors file",
                str(directory),
                "download the weights, or convert a .bin or GGUF checkpoint to safetensors",
            )
        )
    headers: dict[str, Header] = {}
    for name in sorted(names):
        path = directory / name
        try:
            headers[name] = read_header(path)
        except HeaderError as error:
            fix = "run `git lfs pull` in that directory" if error.code == "lfs-pointer" else DOWNLOAD_AGAIN
            problems.append(Problem(error.code, str(error), str(path), fix))
        except OSError as error:
            problems.append(_unreadable(path, error))
    return headers


def _read_json(path: Path, problems: list[Problem]) -> dict[str, Any] | None:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        problems.append(Problem("missing-file", "is missing", str(path), "copy it from the original checkpoint"))
        return None
    except OSError as error:
        problems.append(_unreadable(path, error))
        return None
    except (ValueError, RecursionError) as error:
        problems.append(Problem("bad-json", f"is not valid JSON ({error})", str(path), DOWNLOAD_AGAIN))
        return None
    if not isinstance(document, dict):
        problems.append(Problem("bad-json", "is not a JSON object", str(path), DOWNLOAD_AGAIN))
        return None
    return document


def _unreadable(path: Path, error: OSError) -> Problem:
    return Problem("unreadable", f"cannot be read ({error.strerror})", str(path), "check its owner and mode")


def _strings(values: Any) -> Iterable[str]:
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        return []
    return [value for value in values if isinstance(value, str)]
