#!/usr/bin/env python3
"""Write what the vLLM that is installed beside this interpreter accepts: flags, quantization methods, data types.

Run it with the Python of an environment that holds the engine, from anywhere:

    ENVIRONMENT/bin/python tools/flag_schema.py > onecat/engines/schemas/vllm-VERSION.yaml

It asks `vllm serve`'s own argument parser for each flag (name, short forms, kind, choices, default), each quantization
method for the least compute capability it needs (as 75 for 7.5), and the model types that refuse float16.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import os
import sys
from typing import Any

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")

ARGUMENTS = ("vllm.entrypoints.launchers.cli_args", "vllm.entrypoints.openai.cli_args")
"""Where the arguments of `vllm serve` are: since 0.32, and before."""
TEXT, INTEGER, NUMBER, SIZE, SIZE_OR_AUTO = "text", "integer", "number", "size", "size-or-auto"
JSON, JSON_OR_TEXT = "json", "json-or-text"
"""Kinds of values. A size may be written as 1k (1000) or 1K (1024)."""

KINDS_BY_CONVERTER = {
    "str": TEXT,
    "int": INTEGER,
    "float": NUMBER,
    "human_readable_int": SIZE,
    "human_readable_int_or_auto": SIZE_OR_AUTO,
    "loads": JSON,
    "union_dict_and_str": JSON_OR_TEXT,
    "parse_dataclass": JSON,
}


def main() -> None:
    with contextlib.redirect_stdout(sys.stderr):
        from vllm.config.model import _FLOAT16_NOT_SUPPORTED_MODELS
        from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS
        from vllm.utils.argparse_utils import FlexibleArgumentParser
        from vllm.version import __version__

        parser = arguments_module().make_arg_parser(FlexibleArgumentParser())
        quantization = {name: least_capability(name) for name in sorted(QUANTIZATION_METHODS)}
    version = str(__version__).split("+")[0]
    out = io.StringIO()
    out.write(f"# What vLLM {version} accepts, asked of its own parser and tables by tools/flag_schema.py.\n")
    out.write(f"family: vllm\nversion: {version}\n")
    out.write(f"float16_refused: {json.dumps(sorted(_FLOAT16_NOT_SUPPORTED_MODELS))}\n")
    out.write("quantization:\n")
    for name, capability in quantization.items():
        out.write(f"  {name}: {json.dumps(capability)}\n")
    out.write("flags:\n")
    for action in sorted(parser._actions, key=lambda each: long_name(each)):
        if not isinstance(action, argparse._HelpAction):
            out.write(f"  {long_name(action)}: {json.dumps(row(action), default=str)}\n")
    sys.stdout.write(out.getvalue())


def arguments_module() -> Any:
    """The module that makes the parser of `vllm serve`."""
    for name in ARGUMENTS:
        with contextlib.suppress(ModuleNotFoundError):
            return importlib.import_module(name)
    raise SystemExit(f"this vLLM has its arguments in none of {', '.join(ARGUMENTS)}")


def least_capability(method: str) -> int | None:
    """The compute capability a quantization method needs, ten times; None when its code cannot be loaded here."""
    from vllm.model_executor.layers.quantization import get_quantization_config

    try:
        return int(get_quantization_config(method).get_min_capability())
    except ImportError as error:
        print(f"{method}: {error}", file=sys.stderr)
        return None


def long_name(action: argparse.Action) -> str:
    """The flag's name without dashes; positional arguments have their destination as name."""
    names = [name for name in action.option_strings if name.startswith("--")]
    return names[0][2:] if names else action.dest.replace("_", "-")


def row(action: argparse.Action) -> dict[str, Any]:
    record: dict[str, Any] = {"kind": kind(action)}
    others = [name for name in action.option_strings if name != f"--{long_name(action)}"]
    negation = [name[2:] for name in others if name.startswith("--no-")]
    if negation:
        record["negation"] = negation[0]
    aliases = [name for name in others if name[2:] not in negation]
    if aliases:
        record["aliases"] = aliases
    if not action.option_strings:
        record["positional"] = True
    if action.choices is not None:
        record["choices"] = sorted(str(each) for each in action.choices if str(each) != "None")
    if action.nargs in ("+", "*"):
        record["many"] = True
    if isinstance(action, argparse._AppendAction):
        record["repeated"] = True
    if isinstance(action.default, (bool, int, float, str)) and action.default is not argparse.SUPPRESS:
        record["default"] = action.default
    return record


def kind(action: argparse.Action) -> str:
    if isinstance(action, argparse.BooleanOptionalAction):
        return "boolean"
    if isinstance(action, argparse._StoreTrueAction):
        return "switch"
    return converted(action.type)


def converted(converter: Any) -> str:
    """The kind behind a converter function, through the closures that vLLM wraps around optional and checked types."""
    name = getattr(converter, "__name__", str(converter))
    if name in KINDS_BY_CONVERTER:
        return KINDS_BY_CONVERTER[name]
    inner = [cell.cell_contents for cell in getattr(converter, "__closure__", None) or ()]
    kinds = [converted(each) for each in inner if callable(each)]
    return kinds[0] if kinds else TEXT


if __name__ == "__main__":
    main()
