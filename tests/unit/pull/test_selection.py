"""Which files are fetched without being asked, and which duplicates are not."""

from __future__ import annotations

import time

import pytest

from onecat.errors import OnecatError
from onecat.pull.records import RemoteFile
from onecat.pull.selection import Selection, select


def chosen(paths: list[str], include: tuple[str, ...] = (), exclude: tuple[str, ...] = ()) -> Selection:
    return select([RemoteFile(path, f"https://h.example/{path}") for path in paths], include, exclude)


def names(selection: Selection) -> list[str]:
    return [each.path for each in selection.files]


LLAMA = [
    *("config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"),
    *("model.safetensors.index.json", "original/consolidated.00.pth", "original/params.json", "LICENSE"),
]
MISTRAL = ["config.json", "consolidated.safetensors", "model-00001-of-00001.safetensors", "params.json", "tekken.json"]


def test_second_copies_of_the_weights_are_left_out_with_the_reason() -> None:
    seen = chosen([*LLAMA, "pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5", "sub/training_args.bin"])
    assert names(seen) == [*LLAMA[:4], "LICENSE"]
    assert {each.path: each.why for each in seen.skipped} == {
        "original/consolidated.00.pth": "the same weights once more, in the publisher's own layout",
        "original/params.json": "the same weights once more, in the publisher's own layout",
        "pytorch_model.bin": "pickle; the source has safetensors",
        "pytorch_model.bin.index.json": "pickle; the source has safetensors",
        "tf_model.h5": "weights for another framework; the source has safetensors",
        "sub/training_args.bin": "pickle; the source has safetensors",
    }


def test_consolidated_weights_are_left_out_only_beside_others() -> None:
    assert names(chosen(MISTRAL)) == ["config.json", MISTRAL[2], "params.json", "tekken.json"]
    assert names(chosen(["params.json", "consolidated.safetensors"])) == ["params.json", "consolidated.safetensors"]


def test_pickles_without_safetensors_are_fetched_with_a_warning() -> None:
    seen = chosen(["config.json", "pytorch_model.bin"])
    assert names(seen) == ["config.json", "pytorch_model.bin"]
    assert "runs code of its author" in seen.notes[0]


def test_what_is_asked_for_is_fetched_whatever_it_is() -> None:
    assert names(chosen(LLAMA, include=("original/*",))) == LLAMA[4:6]
    assert names(chosen(LLAMA, include=("*.json",), exclude=("original/*",))) == [LLAMA[0], LLAMA[3]]
    assert names(chosen(LLAMA, exclude=("*.safetensors", "LICENSE", "*.pth"))) == [LLAMA[0], LLAMA[3], LLAMA[5]]


def test_nothing_left_is_told_with_the_reasons() -> None:
    with pytest.raises(OnecatError, match="no file is left") as caught:
        chosen(["config.json"], include=("*.gguf",))
    assert caught.value.details == ("config.json: not asked for by --include",)


def test_the_time_to_choose_grows_with_the_number_of_files_and_not_with_its_square() -> None:
    files = [RemoteFile(f"{number}.json", "https://hub.example/x", 1) for number in range(20_000)]
    began = time.process_time()
    found = select(files, ("*.json",), ("1*.json",))
    assert len(found.files) + len(found.skipped) == 20_000
    assert time.process_time() - began < 1.0
