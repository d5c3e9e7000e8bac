"""Reading what an import is planned from: the flat file's length, its layout, the model's configuration, the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from onecat.checkpoints import Architecture, inspect
from onecat.checkpoints.architectures.records import Weight
from onecat.checkpoints.json_text import NotJson, parse_json
from onecat.errors import OnecatError
from onecat.nvfp4.companions import companions
from onecat.nvfp4.dequantisation import Original, open_original
from onecat.nvfp4.flat_files.layouts import NAMES, FlatTensor, Layout, read_layout
from onecat.nvfp4.flat_files.lengths import MAGIC, Seen, look

MODEL = "model.bin"


@dataclass(frozen=True)
class FlatSource:
    """A flat file and all that is beside it.

    table_from: which document the table of tensors is from, None without one. layout_file: the one that was read. rest:
    the checkpoint with the tensors that the flat file does not hold. companions: names of files of `directory` that go
    along.
    """

    directory: Path
    seen: Seen
    layout: Layout
    table_from: Path | None
    layout_file: Path | None
    config: Mapping[str, Any] | None
    architecture: Architecture
    rest: Original | None
    companions: tuple[str, ...]


def is_flat(directory: Path) -> bool:
    """Whether a directory holds a flat file and no weights in safetensors."""
    path = directory / MODEL
    if not path.is_file() or any(directory.glob("*.safetensors")):
        return False
    if (directory / "scales.bin").is_file():
        return True
    with path.open("rb") as stream:
        return stream.read(len(MAGIC)) == MAGIC


def open_flat(path: Path, layout_file: Path | None = None, rest: Path | None = None) -> FlatSource:
    """Read lengths and documents; no weight is loaded.

    Parameters:
        path: the flat file, or the directory with model.bin.
        layout_file: the layout; None for the one beside the weights, if there is one.
        rest: a checkpoint with the other tensors; None for safetensors beside the flat file, if there are some.

    Raises OnecatError when there is no flat file, or a document is wrong; OSError.
    """
    file = path / MODEL if path.is_dir() else path
    if not file.is_file():
        raise OnecatError(
            f"{file} does not exist",
            expected=f"a directory with {MODEL}, or the file itself",
            where=str(file),
            next_steps=["name the directory that holds it"],
        )
    directory = file.parent
    seen = look(file)
    found = layout_file or next((directory / name for name in NAMES if (directory / name).is_file()), None)
    layout = read_layout(found) if found is not None else Layout()
    if rest is None and any(directory.glob("*.safetensors")):
        rest = directory
    others = open_original(rest) if rest is not None else None
    config_file = next((each / "config.json" for each in (directory, rest)
                        if each is not None and (each / "config.json").is_file()), None)  # fmt: skip
    config = None if config_file is None else _config(config_file)
    architecture = Architecture() if config_file is None else inspect(config_file).architecture
    table_from = found if layout.tensors else None
    if not layout.tensors and config_file is not None:
        layout = replace(layout, tensors=tuple(_matrices(architecture, "linear")))
        table_from = config_file if layout.tensors else None
    left_out = tuple(each for kind in ("head", "embedding") for each in _matrices(architecture, kind))
    home = directory if rest is None or _has_tokenizer(directory) else rest
    return FlatSource(
        home, seen, replace(layout, left_out=left_out), table_from, found, config, architecture, others,
        tuple(name for name in companions(home) if name not in NAMES),
    )  # fmt: skip


def _config(path: Path) -> Mapping[str, Any]:
    try:
        document = parse_json(path.read_bytes())
    except NotJson as error:
        raise OnecatError(
            f"config.json is not valid JSON ({error})", where=str(path), next_steps=[error.fix]
        ) from error
    if not isinstance(document, dict):
        raise OnecatError("config.json is not a JSON object", where=str(path))
    return document


def _has_tokenizer(directory: Path) -> bool:
    from onecat.checkpoints.tokenizers import tokenizers

    return bool(tokenizers(each.name for each in directory.iterdir()))


def _matrices(architecture: Architecture, kind: str) -> Iterator[FlatTensor]:
    """The matrices of the language model, layer by layer as its description lists them."""
    for weight in architecture.weights:
        if weight.kind == kind and weight.part == "language":
            for name in names_of(weight):
                yield FlatTensor(name, (weight.shape[-2], weight.shape[-1]))


def names_of(weight: Weight) -> Iterator[str]:
    """Names of the tensors that a weight stands for: of each expert where it stands for several."""
    if "*" not in weight.name:
        yield weight.name
        return
    for number in range(weight.count):
        yield weight.name.replace("*", str(number), 1)
