"""Look at a model directory: configuration, headers of its weight files, tokenizer, and what is wrong with them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from onecat.checkpoints.records import Checkpoint, Problem
from onecat.checkpoints.safetensors_header import Header, HeaderError, read_header
from onecat.errors import OnecatError

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "tekken.json", "vocab.json", "tiktoken.model")
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
    tensors = [tensor for header in headers.values() for tensor in header.tensors]
    text = config["text_config"] if isinstance(config.get("text_config"), Mapping) else config
    quantization = _quantization(directory, config, problems)
    return Checkpoint(
        directory=str(directory),
        architecture=next(iter(_strings(config.get("architectures"))), None),
        model_type=_string(config.get("model_type")),
        dtype=_string(config.get("dtype") or config.get("torch_dtype") or text.get("dtype") or text.get("torch_dtype")),
        layers=_integer(text.get("num_hidden_layers")),
        hidden_size=_integer(text.get("hidden_size")),
        attention_heads=_integer(text.get("num_attention_heads")),
        key_value_heads=_integer(text.get("num_key_value_heads")),
        head_dim=_integer(text.get("head_dim")),
        max_position_embeddings=_integer(text.get("max_position_embeddings")),
        rope_type=_rope_type(text.get("rope_parameters") or text.get("rope_scaling")),
        vocabulary_size=_integer(text.get("vocab_size")),
        quantization=_quantization_method(quantization),
        quantization_format=_string(quantization.get("format")),
        kv_cache_quantization=_kv_cache_quantization(quantization),
        weight_bytes=sum(tensor.end - tensor.begin for tensor in tensors),
        parameters=sum(tensor.elements for tensor in tensors),
        files=tuple(sorted(headers)),
        problems=tuple(problems),
    )


def _quantization(directory: Path, config: Mapping[str, Any], problems: list[Problem]) -> Mapping[str, Any]:
    """How the weights are stored; before version 0.31 ModelOpt wrote it into a file of its own, which engines read too.

    https://github.com/vllm-project/vllm/blob/v0.27.1/vllm/transformers_utils/config.py
    """
    stated = config.get("quantization_config")
    path = directory / "hf_quant_config.json"
    if stated is None and path.is_file():
        stated = _read_json(path, problems)
    return stated if isinstance(stated, Mapping) else {}


def _quantization_method(quantization: Mapping[str, Any]) -> str | None:
    """The method by the name that engines use; ModelOpt's algorithms have one each.

    https://github.com/vllm-project/vllm/blob/v0.27.1/vllm/model_executor/layers/quantization/modelopt.py
    """
    method = _string(quantization.get("quant_method"))
    inner = quantization.get("quantization")
    algorithm = _string((inner if isinstance(inner, Mapping) else quantization).get("quant_algo"))
    if algorithm is None or method not in (None, "modelopt"):
        return method
    if "MXFP8" in algorithm:
        return "modelopt_mxfp8"
    if "FP4" in algorithm:
        return "modelopt_fp4"
    return "modelopt_mixed" if algorithm == "MIXED_PRECISION" else "modelopt"


def _kv_cache_quantization(quantization: Mapping[str, Any]) -> str | None:
    """`fp8` where the checkpoint asks for an FP8 KV cache, by a scheme of 8-bit floats or ModelOpt's name for it.

    https://github.com/vllm-project/vllm/blob/v0.27.1/vllm/utils/torch_utils.py (get_kv_cache_quant_algo_string)
    https://github.com/vllm-project/vllm/blob/v0.27.1/vllm/model_executor/layers/attention/attention.py
    """
    inner = quantization.get("quantization")
    for stated in (inner if isinstance(inner, Mapping) else {}, quantization):
        scheme = stated.get("kv_cache_scheme")
        if isinstance(scheme, Mapping) and (scheme.get("type"), scheme.get("num_bits")) == ("float", 8):
            return "fp8"
        if (_string(stated.get("kv_cache_quant_algo")) or "").lower() == "fp8":
            return "fp8"
    return None


def _rope_type(parameters: Any) -> str | None:
    if not isinstance(parameters, Mapping):
        return None
    if any(isinstance(each, Mapping) for each in parameters.values()):
        return "several"
    return _string(parameters.get("rope_type") or parameters.get("type"))


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


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _strings(values: Any) -> Iterable[str]:
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        return []
    return [value for value in values if isinstance(value, str)]


def _integer(value: Any) -> int | None:
    return value if type(value) is int else None
