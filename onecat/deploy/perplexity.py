"""Measures perplexities in a Python of an engine's; quantised models are turned back into plain ones for it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onecat.errors import ExitCode, OnecatError
from onecat.images.disk import die_with_parent
from onecat.images.pip import clean_environment
from onecat.nvfp4.codec import Codec
from onecat.nvfp4.comparison import perplexity_program
from onecat.nvfp4.comparison.perplexity import Perplexity
from onecat.nvfp4.dequantisation import Original, Target, open_original, plan_dequantisation, quantised_weights
from onecat.nvfp4.rewriting import rewrite
from onecat.space import gigabytes

Say = Callable[[str], None]
"""Shows how far it is, in words."""

LARGEST_SHARE = 0.8
"""Of the memory that is free, for one model."""
QUIET = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


@dataclass(frozen=True)
class Request:
    """What to measure. original: None for one model alone. text: a file of UTF-8. python: with torch and transformers.

    window: tokens that a model sees at once, None for the most it takes, up to 2048. limit: percent, None for the
    usual one. threads: that compute.
    """

    directory: Path
    original: Path | None
    text: Path
    python: Path
    window: int | None = None
    limit: float | None = None
    threads: int = 1


def read_text(text: Path) -> None:
    """Raises OnecatError (exit code 2) when a file is no text; OSError when it cannot be read."""
    if not text.is_file():
        raise OnecatError(f"{text} is no file", expected="a plain text file", where=str(text))
    try:
        empty = not text.read_text(encoding="utf-8").strip()
    except UnicodeDecodeError as error:
        raise OnecatError(f"{text} is no text in UTF-8", expected="a plain text file", where=str(text)) from error
    if empty:
        raise OnecatError(f"{text} is empty", expected="a text of some thousand words", where=str(text))


def measure(request: Request, codec: Codec, show: Say) -> Perplexity:
    """Measure one model or two on a text.

    Quantised weights are turned back by onecat into a folder of the temporary directory, in the type of the model;
    activations are not quantised. Needs memory for the larger of both.

    Raises OnecatError when a model cannot be read or loaded, OSError.
    """
    began = time.monotonic()
    read_text(request.text)
    given = [each for each in (request.directory, request.original) if each is not None]
    opened = [open_original(each) for each in given]
    dtype = _dtype(opened)
    with ExitStack() as kept:
        plain = [_plain(each, kept, codec, show) for each in opened]
        show("loading the engine's libraries")
        asked = {
            "models": [str(each.absolute()) for each in plain],
            "text": str(request.text.absolute()),
            "tokenizer": str(given[-1].absolute()),
            "window": request.window,
            "dtype": dtype,
            "threads": request.threads,
        }
        answer = _run(request.python, asked, show)
    found = answer["perplexities"]
    return Perplexity(
        text=str(request.text),
        ours=found[0],
        original=found[1] if len(found) > 1 else None,
        compared=len(found) > 1,
        **{name: answer[name] for name in ("tokens", "scored", "window", "stride", "bos", "same_tokens")},
        dtype=dtype,
        tool=f"transformers {answer['transformers']}, torch {answer['torch']}",
        seconds=time.monotonic() - began,
        limit=request.limit,
    )


def _plain(each: Original, kept: ExitStack, codec: Codec, show: Say) -> Path:
    """The directory of a plain checkpoint with the same weights: its own, or one that is gone at the end."""
    if not quantised_weights(each):
        return each.directory
    folder = kept.enter_context(tempfile.TemporaryDirectory(prefix="onecat-perplexity-"))
    planned = plan_dequantisation(each, Target(Path(folder) / "plain"), codec)
    show(f"turning {each.directory} back into {planned.dtype} for the measurement")
    try:
        rewrite(planned.rewrite, each.source)
    except OnecatError as error:
        if error.where is not None and error.where.startswith(folder):
            steps = ["name another place for it: TMPDIR=/large/disk onecat model verify ...", *error.next_steps]
            raise OnecatError(
                error.found, expected=error.expected, where=error.where, next_steps=steps, code=error.code
            ) from error
        raise
    return Path(folder) / "plain"


def _dtype(opened: list[Original]) -> str:
    """What to compute in: float32 when the larger model fits in memory so, else bfloat16, which all processors have."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
        free = int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError):
        pass
    most = max(each.checkpoint.architecture.parameters for each in opened)
    for dtype, size in (("float32", 4), ("bfloat16", 2)):
        if most * size <= LARGEST_SHARE * free:
            return dtype
    raise OnecatError(
        f"a model of {most / 1e9:.1f} billion parameters takes {gigabytes(2 * most)} of memory, and "
        f"{gigabytes(free)} are free",
        expected="a machine whose memory holds the model in bfloat16",
        next_steps=["compare the weights alone: leave out --perplexity"],
        code=ExitCode.NO,
    )


def _run(python: Path, asked: dict[str, Any], show: Say) -> dict[str, Any]:
    answer: dict[str, Any] = {}
    argv = [str(python), "-I", "-B", perplexity_program.__file__, json.dumps(asked)]
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said, text=True,
            env=clean_environment(os.environ) | QUIET,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - one C call, nothing that a fork could have left locked
        ) as process,
    ):  # fmt: skip
        try:
            for answer in _documents(process):
                if "done" in answer:
                    show(f"measuring perplexity: {answer['done']} of {answer['of']} parts")
        finally:
            if process.poll() is None:
                process.terminate()
        process.wait()
        said.seek(0)
        log = said.read().decode("utf-8", "replace").strip().splitlines()
    if process.returncode != 0 or "perplexities" not in answer:
        raise OnecatError(
            f"the perplexity could not be measured: {answer.get('error') or (log[-1] if log else 'no reason told')}",
            expected="models that transformers can load, with their tokenizers",
            where=str(python),
            details=log[-6:],
            next_steps=["compare the weights alone: leave out --perplexity", "or name another Python: --python FILE"],
            code=ExitCode.NO,
        )
    return answer


def _documents(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """The lines of the program that are its own; libraries may print too."""
    for line in process.stdout or ():
        with contextlib.suppress(ValueError):
            document = json.loads(line)
            if isinstance(document, dict):
                yield document
