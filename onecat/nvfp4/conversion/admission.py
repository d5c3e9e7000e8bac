"""Whether a directory is a plain checkpoint that can be converted."""

from __future__ import annotations

import shlex
from pathlib import Path

from onecat.checkpoints import Checkpoint, inspect
from onecat.errors import ExitCode, OnecatError

HARMLESS = frozenset(("missing-tokenizer",))
"""Faults of a checkpoint that do not touch its weights."""


def admitted(directory: Path, target: Path) -> Checkpoint:
    """The checkpoint in a directory.

    Raises OnecatError when there is none, when it is not whole, when its weights are no plain safetensors of Hugging
    Face's layout, when it is quantised already, and when the target is the same directory.
    """
    if not directory.exists():
        raise OnecatError(
            f"{directory} does not exist", expected="a directory with config.json and *.safetensors",
            where=str(directory.absolute()), next_steps=["onecat model pull ORG/NAME DIRECTORY fetches a model"],
        )  # fmt: skip
    if not directory.is_dir():
        raise OnecatError(
            f"{directory} is one file", expected="the checkpoint's directory", where=str(directory.absolute()),
            next_steps=[f"give the directory: {shlex.quote(str(directory.absolute().parent))}"],
        )  # fmt: skip
    seen = inspect(directory)
    if target.exists() and target.samefile(directory):
        raise OnecatError(
            "the new checkpoint would be written over the one that it is made of",
            expected="another directory for the result",
            where=str(directory.absolute()),
        )
    told = {each.code: each for each in seen.problems}
    for code in ("pickled-weights", "headers-only"):
        if code in told:
            raise OnecatError(
                f"{directory} {told[code].text}", expected="weights in safetensors", where=told[code].where,
                next_steps=[told[code].fix], code=ExitCode.NO,
            )  # fmt: skip
    quantised = seen.quantization
    if quantised is not None and quantised.scheme != "none":
        raise OnecatError(
            f"{directory} is quantised already ({quantised.scheme}, {quantised.container})",
            expected="weights as they were trained: BF16, FP16 or FP32",
            where=str(directory.absolute()),
            next_steps=[
                f"turn it back first: onecat model dequantize {shlex.quote(str(directory))} PLAIN",
                "better: convert the model that it was made of, which has lost nothing yet",
            ],
            code=ExitCode.NO,
        )
    failed = [each for each in seen.problems if each.severity == "fail" and each.code not in HARMLESS]
    if failed:
        first, *more = failed
        raise OnecatError(
            f"{first.where} {first.text}" + (f", and {len(more)} more problems" if more else ""),
            expected="a checkpoint that is whole",
            where=str(directory.absolute()),
            next_steps=[first.fix, f"see all of it: onecat model inspect {shlex.quote(str(directory))}"],
            code=ExitCode.NO,
        )
    if any(name.startswith("consolidated") for name in seen.files):
        raise OnecatError(
            f"{directory} has its weights in Mistral's own layout ({seen.files[0]})",
            expected="weights named as Hugging Face names them: model*.safetensors",
            where=str(directory.absolute()),
            next_steps=["take the publisher's other copy of the weights, and leave consolidated* out"],
            code=ExitCode.NO,
        )
    return seen
