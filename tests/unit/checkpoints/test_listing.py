"""What a listing of a remote directory tells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from onecat.checkpoints import inspect
from onecat.errors import OnecatError
from tests.unit.checkpoints.test_contradictions import CONFIG

SHARDS = {"model-00001-of-00002.safetensors": 1_000_000, "model-00002-of-00002.safetensors": 400_000}
OTHERS = {"config.json": 700, "tokenizer.json": 9_000_000, "model.safetensors.index.json": 4_000, "README.md": 10}
FILES = SHARDS | OTHERS


def tree(files: dict[str, int]) -> str:
    """As the hub's tree API answers: large files have their size under `lfs` as well."""
    entries: list[dict[str, Any]] = [{"type": "directory", "path": "original", "size": 0, "oid": "0"}]
    for name, size in files.items():
        entry: dict[str, Any] = {"type": "file", "path": name, "size": size}
        if name in SHARDS:
            entry |= {"size": 135, "lfs": {"oid": "ab" * 32, "size": size, "pointerSize": 135}}
        entries.append(entry)
    return json.dumps(entries)


def long_lines(files: dict[str, int]) -> str:
    lines = [f"-rw-r--r-- 1 root root {size:>10} Nov 30 05:41 {name}" for name, size in files.items()]
    return "\n".join(["total 12", "drwxr-xr-x 2 root root 4096 Nov 30 05:41 original", *lines])


FORMS = {
    "tree": tree,
    "siblings": lambda files: json.dumps({"siblings": [{"rfilename": k, "size": v} for k, v in files.items()]}),
    "data": lambda files: json.dumps({"Data": {"Files": [{"Path": k, "Size": v} for k, v in files.items()]}}),
    "ls": long_lines,
    "size-name": lambda files: "\n".join(f"{size}\t./{name}" for name, size in files.items()),
    "name-size": lambda files: "\n".join(f"{name} {size}" for name, size in files.items()),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_listing_gives_files_and_their_sizes(tmp_path: Path, form: str) -> None:
    (tmp_path / "listing.txt").write_text(FORMS[form](FILES))
    seen = inspect(tmp_path / "listing.txt")
    assert seen.files == tuple(SHARDS)
    assert (seen.weight_bytes, seen.measured, seen.tensors) == (1_400_000, False, ())
    assert seen.problems == ()


def test_the_configuration_beside_a_listing_is_read_and_held_against_its_sizes(tmp_path: Path) -> None:
    (tmp_path / "listing.json").write_text(tree(FILES))
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    seen = inspect(tmp_path / "listing.json")
    assert (seen.architecture.name, seen.parameters) == ("LlamaForCausalLM", seen.architecture.parameters)
    (problem,) = seen.problems
    assert (problem.code, problem.severity) == ("size-differs", "warn")
    exact = 2 * seen.architecture.parameters
    (tmp_path / "listing.json").write_text(tree(OTHERS | {"model.safetensors": exact + 2000}))
    assert inspect(tmp_path / "listing.json").problems == ()


def test_of_two_copies_of_the_weights_mistrals_own_counts_as_an_engine_loads_it(tmp_path: Path) -> None:
    more = {"consolidated.safetensors": 1_400_100, "original/model.safetensors": 5, "model.safetensors": 1_400_000}
    (tmp_path / "listing.json").write_text(tree(FILES | more))
    assert inspect(tmp_path / "listing.json").weight_bytes == 1_400_100


def test_what_a_listing_lacks_is_told(tmp_path: Path) -> None:
    (tmp_path / "listing.json").write_text(tree({"model-00003-of-00003.safetensors": 140, "config.json": 1}))
    problems = inspect(tmp_path / "listing.json").problems
    assert [(problem.code, problem.severity) for problem in problems] == [
        ("missing-shard", "fail"),
        ("missing-shard", "fail"),
        ("lfs-pointer", "fail"),
        ("missing-tokenizer", "warn"),
    ]
    assert problems[0].text == "does not list model-00001-of-00003.safetensors"
    (tmp_path / "listing.json").write_text(tree({"pytorch_model.bin": 9000, "tokenizer.json": 1}))
    assert [problem.code for problem in inspect(tmp_path / "listing.json").problems] == ["no-weights"]


@pytest.mark.parametrize("text", ["", "hello", "[]", "[3]", '{"siblings": 3}', "\x00", "a b c\nd e f"])
def test_what_is_no_listing_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "list").write_text(text)
    with pytest.raises(OnecatError, match="neither a config.json nor a listing of files"):
        inspect(tmp_path / "list")


@pytest.mark.parametrize("size", ["9" * 400, "9" * 5000])
@pytest.mark.parametrize("form", ["{name} {size}", '[{{"path": "{name}", "size": {size}}}]'])
def test_a_size_that_no_file_can_have_is_none(tmp_path: Path, form: str, size: str) -> None:
    (tmp_path / "listing.txt").write_text(form.format(name="model.safetensors", size=size))
    with pytest.raises(OnecatError, match=r"listing\.txt"):
        inspect(tmp_path / "listing.txt")
