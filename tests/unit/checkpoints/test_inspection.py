"""What onecat says about a model directory, whole and broken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onecat.checkpoints import Checkpoint, inspect, write_tiny_checkpoint
from onecat.checkpoints.integrity import read_contents, static_faults
from onecat.checkpoints.safetensors_header import HeaderError, parse_header, read_header
from onecat.checkpoints.tiny import byte_alphabet
from onecat.checkpoints.tokenizers import TOKENIZER_FILES
from onecat.errors import OnecatError


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_tiny_checkpoint(tmp_path / "tiny")


def method_of(checkpoint: Checkpoint) -> str | None:
    return None if checkpoint.quantization is None else checkpoint.quantization.method


def codes(directory: Path) -> list[str]:
    return [problem.code for problem in inspect(directory).problems]


def test_a_whole_checkpoint_has_no_problem_and_its_sizes_are_exact(checkpoint: Path) -> None:
    seen = inspect(checkpoint)
    assert seen.problems == ()
    assert (seen.architecture.name, seen.architecture.model_type, seen.architecture.dtype) == (
        "LlamaForCausalLM",
        "llama",
        "float32",
    )
    assert (seen.architecture.layers, seen.architecture.hidden_size) == (4, 128)
    assert (seen.architecture.attention_heads, seen.architecture.key_value_heads) == (4, 2)
    # 2 x 258x128 embeddings, 4 x (2x128x128 + 2x64x128 + 3x384x128 + 2x128), 128
    assert seen.parameters == 2 * 258 * 128 + 4 * (2 * 128 * 128 + 2 * 64 * 128 + 3 * 384 * 128 + 2 * 128) + 128
    assert seen.weight_bytes == 4 * seen.parameters


@pytest.mark.parametrize(
    ("algorithm", "method"),
    [
        ("FP8", "modelopt"),
        ("NVFP4", "modelopt_fp4"),
        ("MXFP8", "modelopt_mxfp8"),
        ("MIXED_PRECISION", "modelopt_mixed"),
    ],
)
def test_what_modelopt_wrote_into_either_file_is_the_engines_name_for_it(
    checkpoint: Path, algorithm: str, method: str
) -> None:
    old = {"producer": {"name": "modelopt", "version": "0.29.0"}, "quantization": {"quant_algo": algorithm}}
    (checkpoint / "hf_quant_config.json").write_text(json.dumps(old))
    assert method_of(inspect(checkpoint)) == method
    config = json.loads((checkpoint / "config.json").read_text())
    stated = {"quant_method": "modelopt", "quant_algo": algorithm}
    (checkpoint / "hf_quant_config.json").write_text("{}")
    (checkpoint / "config.json").write_text(json.dumps({**config, "quantization_config": stated}))
    assert method_of(inspect(checkpoint)) == method


def test_the_format_of_compressed_tensors_is_kept_and_a_broken_side_file_is_a_problem(checkpoint: Path) -> None:
    (checkpoint / "hf_quant_config.json").write_text("{")
    assert codes(checkpoint) == ["bad-json"]
    config = json.loads((checkpoint / "config.json").read_text())
    stated = {"quant_method": "compressed-tensors", "format": "pack-quantized"}
    (checkpoint / "config.json").write_text(json.dumps({**config, "quantization_config": stated}))
    seen = inspect(checkpoint)
    assert codes(checkpoint) == ["claimed-not-stored"]
    assert seen.quantization is not None
    assert (seen.quantization.method, seen.quantization.format) == ("compressed-tensors", "pack-quantized")


@pytest.mark.parametrize(
    ("stated", "kv_cache"),
    [
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": {"type": "float", "num_bits": 8}}, "fp8"),
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": None}, None),
        (
            {"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_scheme": {"type": "float", "num_bits": 8}},
            "fp8",
        ),
        ({"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}}, "fp8"),
        ({"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": None}}, None),
    ],
)
def test_an_fp8_kv_cache_that_the_checkpoint_asks_for_is_seen(
    checkpoint: Path, stated: dict[str, object], kv_cache: str | None
) -> None:
    config = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(json.dumps({**config, "quantization_config": stated}))
    claimed = inspect(checkpoint).quantization
    assert claimed is not None and claimed.kv_cache == kv_cache


def test_the_tiny_checkpoint_is_the_same_every_time(tmp_path: Path) -> None:
    first, second = write_tiny_checkpoint(tmp_path / "a"), write_tiny_checkpoint(tmp_path / "b")
    assert {path.name: path.read_bytes() for path in first.iterdir()} == {
        path.name: path.read_bytes() for path in second.iterdir()
    }


def test_the_byte_alphabet_gives_each_byte_its_own_printable_character() -> None:
    alphabet = byte_alphabet()
    assert len(set(alphabet)) == 256
    assert (alphabet[ord("A")], alphabet[ord(" ")], alphabet[ord("\n")]) == ("A", "\u0120", "\u010a")


def test_a_missing_directory_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(OnecatError, match="does not exist") as caught:
        inspect(tmp_path / "nowhere")
    assert caught.value.code == 2
    assert caught.value.where == str(tmp_path / "nowhere")


@pytest.mark.parametrize("length", [0, 7, 8, 100, 3_000_000])
def test_a_truncated_weight_file_is_found_wherever_it_was_cut(checkpoint: Path, length: int) -> None:
    path = checkpoint / "model.safetensors"
    path.write_bytes(path.read_bytes()[:length])
    assert codes(checkpoint) == ["truncated"]


def test_bytes_after_the_last_tensor_are_found(checkpoint: Path) -> None:
    with (checkpoint / "model.safetensors").open("ab") as file:
        file.write(b"\0" * 16)
    assert codes(checkpoint) == ["overlong"]


def test_a_git_lfs_pointer_is_named_as_such(checkpoint: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n"
    (checkpoint / "model.safetensors").write_text(pointer)
    assert codes(checkpoint) == ["lfs-pointer"]


def test_a_shard_that_the_index_lists_must_be_there(checkpoint: Path) -> None:
    index = {"weight_map": {"a": "model.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (checkpoint / "model.safetensors.index.json").write_text(json.dumps(index))
    assert codes(checkpoint) == ["missing-shard"]


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    assert codes(tmp_path) == ["bad-json", "no-weights", "missing-tokenizer"]


def test_the_text_part_of_a_multimodal_configuration_is_read(checkpoint: Path) -> None:
    config = json.loads((checkpoint / "config.json").read_text())
    nested = {
        "architectures": ["X"],
        "model_type": "x",
        "text_config": config,
        "quantization_config": {"quant_method": "awq"},
    }
    (checkpoint / "config.json").write_text(json.dumps(nested))
    seen = inspect(checkpoint)
    assert (seen.architecture.layers, seen.architecture.dtype, method_of(seen)) == (4, "float32", "awq")


@given(st.binary(max_size=400))
def test_any_header_bytes_give_a_header_or_a_header_error(text: bytes) -> None:
    try:
        parse_header(text)
    except HeaderError as error:
        assert error.code == "bad-header"


@given(st.binary(max_size=64))
def test_any_file_gives_a_header_or_a_header_error(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("header") / "x.safetensors"
    path.write_bytes(content)
    try:
        header = read_header(path)
    except HeaderError as error:
        assert error.code in {"truncated", "bad-header", "overlong", "lfs-pointer"}
    else:
        assert header.tensors == ()


def test_our_reader_agrees_with_the_safetensors_library(checkpoint: Path) -> None:
    from safetensors import safe_open

    header = read_header(checkpoint / "model.safetensors")
    with safe_open(checkpoint / "model.safetensors", framework="numpy") as file:
        assert {tensor.name: list(tensor.shape) for tensor in header.tensors} == {
            name: file.get_slice(name).get_shape()
            for name in file.keys()  # noqa: SIM118 - no mapping
        }


def cut_after_headers(directory: Path) -> None:
    for path in directory.glob("*.safetensors"):
        data = path.read_bytes()
        path.write_bytes(data[: 8 + int.from_bytes(data[:8], "little")])


def test_a_directory_of_headers_tells_all_that_the_weights_would(checkpoint: Path) -> None:
    whole = inspect(checkpoint)
    cut_after_headers(checkpoint)
    (checkpoint / "tokenizer.json").unlink()
    seen = inspect(checkpoint)
    assert (seen.tensors, seen.parameters, seen.weight_bytes) == (whole.tensors, whole.parameters, whole.weight_bytes)
    assert [(problem.code, problem.severity) for problem in seen.problems] == [
        ("headers-only", "info"),
        ("missing-tokenizer", "info"),
    ]


def test_one_file_without_its_weights_among_whole_ones_is_truncated(checkpoint: Path) -> None:
    data = (checkpoint / "model.safetensors").read_bytes()
    header = b'{"model.extra.weight":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}'
    (checkpoint / "more.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    assert codes(checkpoint) == ["truncated"]
    assert (checkpoint / "model.safetensors").read_bytes() == data


def test_a_file_that_is_cut_still_tells_its_tensors(checkpoint: Path) -> None:
    whole = inspect(checkpoint)
    path = checkpoint / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    seen = inspect(checkpoint)
    assert (seen.tensors, [problem.code for problem in seen.problems]) == (whole.tensors, ["truncated"])


def test_a_config_alone_is_computed(checkpoint: Path) -> None:
    whole, alone = inspect(checkpoint), inspect(checkpoint / "config.json")
    assert (alone.parameters, alone.weight_bytes) == (whole.parameters, whole.weight_bytes)
    assert (alone.measured, alone.tensors, alone.files, alone.problems) == (False, (), (), ())
    assert alone.directory == str(checkpoint / "config.json")


def test_one_weight_file_is_looked_at_with_the_configuration_beside_it(checkpoint: Path) -> None:
    whole, alone = inspect(checkpoint), inspect(checkpoint / "model.safetensors")
    assert (alone.architecture, alone.tensors, alone.problems) == (whole.architecture, whole.tensors, ())


def test_an_index_alone_tells_the_size_that_it_states(checkpoint: Path) -> None:
    index = {"metadata": {"total_size": 123456}, "weight_map": {"a": "model-00001-of-00002.safetensors"}}
    path = checkpoint / "model.safetensors.index.json"
    path.write_text(json.dumps(index))
    seen = inspect(path)
    assert (seen.weight_bytes, seen.measured, seen.files) == (123456, False, ("model-00001-of-00002.safetensors",))
    (checkpoint / "model.safetensors").unlink()
    assert (codes(checkpoint), inspect(checkpoint).weight_bytes) == (["missing-shard", "size-differs"], 123456)


def test_only_files_of_the_index_are_looked_at(checkpoint: Path) -> None:
    whole = inspect(checkpoint)
    (checkpoint / "consolidated.safetensors").write_bytes((checkpoint / "model.safetensors").read_bytes())
    assert inspect(checkpoint).weight_bytes == whole.weight_bytes
    (checkpoint / "consolidated.safetensors").rename(checkpoint / "copy.safetensors")
    assert inspect(checkpoint).tensors[0].count == 2
    (checkpoint / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "model.safetensors"}}))
    assert inspect(checkpoint).tensors == whole.tensors


def test_the_files_of_a_large_index_are_those_of_a_small_one(tmp_path: Path) -> None:
    from onecat.checkpoints.directory import LARGE_INDEX, _listed

    files = [f"model-{number:05d}-of-00100.safetensors" for number in range(1, 101)]
    weights = {f"model.layers.{number}.self_attn.q_proj.weight": files[number % 100] for number in range(30_000)}
    path = tmp_path / "model.safetensors.index.json"
    for indent in (None, 2):
        path.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weights}, indent=indent))
        assert path.stat().st_size > LARGE_INDEX
        assert _listed(path, []) == set(files)


@pytest.mark.parametrize("name", ["config.json", "weights.safetensors", "listing.txt"])
@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"{", b"null", b"3", b'"x"'])
def test_a_file_that_is_nothing_of_this_is_refused_with_its_name(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(OnecatError) as caught:
        inspect(tmp_path / name)
    assert name in str(caught.value) and caught.value.code == 2


def test_what_looks_at_a_checkpoint_is_the_same_twice_and_can_be_pickled(checkpoint: Path) -> None:
    import pickle

    config = json.loads((checkpoint / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8", "activation_scheme": "dynamic"}
    (checkpoint / "config.json").write_text(json.dumps(config))
    seen = inspect(checkpoint)
    assert seen == inspect(checkpoint) == pickle.loads(pickle.dumps(seen))


@pytest.mark.parametrize(
    "stated", ["Infinity", "-Infinity", "NaN", "1e400", "9" * 400, "-5", "0", "true", '"5"', "[5]"]
)
def test_a_size_of_an_index_that_cannot_be_one_is_left_out(checkpoint: Path, stated: str) -> None:
    path = checkpoint / "model.safetensors.index.json"
    metadata = f'{{"total_size": {stated}, "total_parameters": {stated}}}'
    path.write_text(f'{{"metadata": {metadata}, "weight_map": {{"a": "b.safetensors"}}}}')
    alone = inspect(checkpoint / "config.json")
    seen = inspect(path)
    assert (seen.weight_bytes, seen.parameters) == (alone.weight_bytes, alone.parameters)


def test_an_index_alone_tells_the_parameters_that_it_states(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors.index.json"
    metadata = {"total_size": 2000.0, "total_parameters": 1000}
    path.write_text(json.dumps({"metadata": metadata, "weight_map": {"a": "b.safetensors"}}))
    seen = inspect(path)
    assert (seen.weight_bytes, seen.parameters) == (2000, 1000)


def test_inspect_and_verify_take_the_same_files_for_a_tokenizer(checkpoint: Path) -> None:
    def told() -> set[bool]:
        faults = static_faults(read_contents(checkpoint))
        return {"missing-tokenizer" in codes(checkpoint), "missing-tokenizer" in {each.code for each in faults}}

    (checkpoint / "merges.txt").touch()
    for name in (*TOKENIZER_FILES, "qwen.tiktoken"):
        (checkpoint / "tokenizer.json").rename(checkpoint / name)
        assert told() == {False}
        (checkpoint / name).rename(checkpoint / "words.model")
        assert told() == {True}
        (checkpoint / "words.model").rename(checkpoint / "tokenizer.json")
