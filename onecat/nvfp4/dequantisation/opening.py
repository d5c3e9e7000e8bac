"""Reading what a plan is made from: configuration, headers, and the names of the files beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from onecat.checkpoints import Checkpoint, inspect
from onecat.checkpoints.consolidated import consolidated
from onecat.checkpoints.directory import loaded_files
from onecat.checkpoints.json_text import parse_json
from onecat.errors import OnecatError
from onecat.nvfp4.companions import companions
from onecat.nvfp4.dequantisation.modules import Module, gather
from onecat.nvfp4.rewriting import SourceFiles, open_source

NOT_WHOLE = frozenset({
    "truncated", "overlong", "bad-header", "lfs-pointer", "missing-shard", "no-weights", "headers-only",
    "incomplete-download", "incomplete-rewrite", "dead-link", "unreadable", "missing-file", "bad-json", "unknown-dtype",
    "adapter", "diffusion-pipeline", "hub-cache", "gguf", "pickled-weights", "directory-of-models",
})  # fmt: skip
"""Problems of `inspect` that say that there is nothing whole to read."""

OF_QUANTISATION = frozenset({"recipe.yaml"})
"""What llm-compressor writes beside what a plain checkpoint has."""


@dataclass(frozen=True)
class Original:
    """A checkpoint that is to be made into another.

    config: config.json. beside: names of the files that go along as they are.
    """

    directory: Path
    checkpoint: Checkpoint
    source: SourceFiles
    config: Mapping[str, Any]
    beside: tuple[str, ...]

    @cached_property
    def gathered(self) -> tuple[dict[str, Module], list[str]]:
        """See `gather`, of all its tensors."""
        return gather(self.source)


def open_original(directory: Path) -> Original:
    """Read headers and configuration; no weight is loaded.

    Of a directory that also holds Mistral's own copy of the weights the files with the names of transformers are taken.

    Raises OnecatError when there is no whole checkpoint, OSError when it cannot be read.
    """
    if not directory.is_dir():
        what = "is not a directory" if directory.exists() else "does not exist"
        raise OnecatError(
            f"{directory} {what}",
            expected="the directory of a checkpoint: config.json and *.safetensors",
            where=str(directory),
            next_steps=["name the directory that holds config.json"],
        )
    checkpoint = inspect(directory)
    broken = [each for each in checkpoint.problems if each.code in NOT_WHOLE]
    if broken:
        raise OnecatError(
            f"{directory} holds no whole checkpoint: {Path(broken[0].where).name} {broken[0].text}",
            expected="config.json and whole *.safetensors files",
            where=broken[0].where,
            next_steps=[broken[0].fix, f"onecat model verify {directory}"],
            details=[f"{Path(each.where).name} {each.text}" for each in broken[1:9]],
        )
    names = [each.name for each in directory.iterdir() if each.name.endswith(".safetensors")]
    return Original(
        directory,
        checkpoint,
        open_source(directory, _files(directory, checkpoint, names)),
        parse_json((directory / "config.json").read_bytes()),
        tuple(name for name in companions(directory) if name not in OF_QUANTISATION),
    )


def _files(directory: Path, checkpoint: Checkpoint, names: list[str]) -> tuple[str, ...]:
    own = set(consolidated(checkpoint.files))
    if not own:
        return checkpoint.files
    others = [name for name in names if name not in own]
    if not others:
        raise OnecatError(
            "the weights have Mistral's own names, which most engines do not load",
            expected="files with the names of transformers, model*.safetensors",
            where=str(directory / min(own)),
            next_steps=["download the copy with the names of transformers, and name its directory"],
        )
    return tuple(loaded_files(others, ()))
