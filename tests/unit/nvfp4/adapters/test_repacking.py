"""Adapters merged into small checkpoints of each scheme."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy
import pytest
from numpy.typing import NDArray

from onecat.checkpoints import inspect
from onecat.nvfp4.adapters import Repacked, Request, repack, storage
from onecat.nvfp4.adapters.dithering import dithered_fp8, dithered_nvfp4
from onecat.nvfp4.codec import Nvfp4, ScaledCodes, choose
from onecat.nvfp4.conversion import Request as Conversion
from onecat.nvfp4.conversion import convert
from onecat.nvfp4.dequantisation import Target, open_original, plan_dequantisation
from onecat.nvfp4.rewriting import SourceFiles, open_source, rewrite
from onecat.nvfp4.rewriting.source import SourceTensor
from tests.unit.nvfp4.adapters.lora_files import BF16, factors, write_adapter, write_tensors

Array = NDArray[Any]
SMALL = Path(__file__).parents[4] / "models" / "small"
SCHEMES = [
    ("nvfp4", "compressed-tensors"), ("nvfp4", "modelopt"), ("fp8-block", "compressed-tensors"),
    ("fp8-block", "deepseek"),
]  # fmt: skip
LAYER = "model.layers.1"
# Of layer 1, the others stay; q_proj is one of three that engines join, gate_proj and up_proj are a whole group.
MODULES = {
    f"{LAYER}.self_attn.q_proj": (256, 256), f"{LAYER}.mlp.gate_proj": (512, 256), f"{LAYER}.mlp.up_proj": (512, 256),
    f"{LAYER}.mlp.down_proj": (256, 512),
}  # fmt: skip


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """The small model in a scheme, made once."""
    made: dict[tuple[str, str], Path] = {}

    def base(scheme: str, naming: str) -> Path:
        if (scheme, naming) not in made:
            target = tmp_path_factory.mktemp(scheme) / naming
            convert(Conversion(SMALL, target, scheme=scheme, naming=naming))  # type: ignore[arg-type]
            made[scheme, naming] = target
        return made[scheme, naming]

    return base


def adapter_of(directory: Path, size: float, modules: dict[str, tuple[int, int]] = MODULES) -> Path:
    tensors: dict[str, Array] = {}
    for seed, (module, shape) in enumerate(modules.items()):
        tensors |= factors(module, *shape, size, seed=seed)
    return write_adapter(directory, tensors, target_modules=[name.rpartition(".")[2] for name in modules])


def opened(directory: Path) -> SourceFiles:
    return open_source(directory, inspect(directory).files)


def values(directory: Path, scratch: Path) -> dict[str, Array]:
    """All weights of a checkpoint in float32, through `model dequantize` where it is quantised."""
    original = open_original(directory)
    if original.checkpoint.quantization is not None:
        planned = plan_dequantisation(original, Target(scratch, "float32"), choose())
        rewrite(planned.rewrite, original.source)
        directory = scratch
    source = opened(directory)
    return {name: source.read(name).astype(numpy.float32) for name in source}


def distance(one: Array, other: Array) -> float:
    return float(numpy.linalg.norm(one.astype(numpy.float64) - other) / numpy.linalg.norm(other))


def result(outcome: Repacked, module: str) -> Any:
    return next(each for each in outcome.modules if each.touched.name == module)


@pytest.mark.parametrize(("scheme", "naming"), [SCHEMES[0], SCHEMES[3]])
def test_equals_merge_then_convert_within_the_rounding_of_both(
    scheme: str, naming: str, bases: Callable[[str, str], Path], tmp_path: Path
) -> None:
    adapter = adapter_of(tmp_path / "adapter", 0.02)
    outcome = repack(Request(bases(scheme, naming), adapter, tmp_path / "repacked"))
    repack(Request(SMALL, adapter, tmp_path / "merged"))
    convert(Conversion(tmp_path / "merged", tmp_path / "converted", scheme=scheme, naming=naming))  # type: ignore[arg-type]
    repacked, converted, base, merged = (
        values(each, tmp_path / f"plain-{number}")
        for number, each in enumerate((tmp_path / "repacked", tmp_path / "converted", bases(scheme, naming),
                                       tmp_path / "merged"))
    )  # fmt: skip
    for module in MODULES:
        name = f"{module}.weight"
        rounding = distance(converted[name], merged[name])
        # Two roundings that know nothing of each other, of the base and of the merge, against one: sqrt(3) of it.
        assert distance(repacked[name], converted[name]) < 1.8 * rounding
        assert distance(repacked[name], merged[name]) < 1.5 * rounding
        assert distance(base[name], merged[name]) > 2 * rounding
        told = result(outcome, module)
        assert told.error == pytest.approx(rounding, rel=0.1)
        assert told.error <= told.conversion_error * 1.02
        assert told.kept > 0.9
    for name in merged.keys() - {f"{module}.weight" for module in MODULES}:
        assert numpy.array_equal(repacked[name], base[name])


@pytest.mark.parametrize(("scheme", "naming"), SCHEMES)
def test_leaves_everything_else_byte_for_byte(
    scheme: str, naming: str, bases: Callable[[str, str], Path], tmp_path: Path
) -> None:
    base = bases(scheme, naming)
    outcome = repack(Request(base, adapter_of(tmp_path / "adapter", 0.001), tmp_path / "out"))
    before, after = opened(base), opened(tmp_path / "out")
    assert list(before) and before.tensors.keys() == after.tensors.keys()
    changed = set()
    for name in before:
        assert before.tensors[name][1:3] == after.tensors[name][1:3]
        if not numpy.array_equal(before.raw(name), after.raw(name)):
            changed.add(name)
    assert {name.rpartition(".")[0] for name in changed} == MODULES.keys()
    assert not any(name.endswith(("global_scale", "scale_2")) for name in changed)
    own = sum(name.startswith(f"{module}.") for name in before for module in MODULES)
    assert (outcome.untouched, outcome.rescaled) == (len(before.tensors) - own, ())
    for file in base.glob("*.json"):
        if file.name != "onecat_conversion.json":
            assert (tmp_path / "out" / file.name).read_bytes() == file.read_bytes()


@pytest.mark.parametrize("naming", ["compressed-tensors", "modelopt"])
def test_makes_room_for_larger_weights_without_new_codes_beside_them(
    naming: str, bases: Callable[[str, str], Path], tmp_path: Path
) -> None:
    base = bases("nvfp4", naming)
    query = f"{LAYER}.self_attn.q_proj"
    outcome = repack(Request(base, adapter_of(tmp_path / "adapter", 1.0, {query: (256, 256)}), tmp_path / "out"))
    halvings = result(outcome, query).halvings
    assert halvings > 0
    assert set(outcome.rescaled) == {f"{LAYER}.self_attn.k_proj", f"{LAYER}.self_attn.v_proj"}
    before, after = opened(base), opened(tmp_path / "out")
    scale = "weight_global_scale" if naming == "compressed-tensors" else "weight_scale_2"
    factor = 2.0 ** (-halvings if naming == "compressed-tensors" else halvings)
    data = "weight_packed" if naming == "compressed-tensors" else "weight"
    for part in ("q_proj", "k_proj", "v_proj"):
        module = f"{LAYER}.self_attn.{part}"
        assert after.read(f"{module}.{scale}") == before.read(f"{module}.{scale}") * numpy.float32(factor)
        if part != "q_proj":
            assert numpy.array_equal(before.raw(f"{module}.{data}"), after.raw(f"{module}.{data}"))
    one, other = values(base, tmp_path / "one"), values(tmp_path / "out", tmp_path / "other")
    changed = {name for name in one if not numpy.array_equal(one[name], other[name])}
    assert changed == {f"{query}.weight"}
    told = result(outcome, query)
    assert told.error < 1.05 * told.conversion_error < 0.12


def test_keeps_the_scale_where_dividing_it_would_cost_more(tmp_path: Path) -> None:
    """A weight that is a little too large is cut off; halved block scales would round the others of its block worse."""
    codes = numpy.full((64, 32), 0x77, numpy.uint8)
    small = numpy.full((64, 4), 2**-9, ml_dtypes.float8_e4m3fn)
    large = numpy.full((64, 4), 448, ml_dtypes.float8_e4m3fn)
    base = plain_config(tmp_path / "base")
    write_tensors(base / "model.safetensors", {
        f"l.{part}.{name}": each
        for part, scale in (("gate_proj", large), ("up_proj", small))
        for name, each in (
            ("weight_packed", codes), ("weight_scale", scale), ("weight_global_scale", numpy.ones(1, numpy.float32)),
        )
    })  # fmt: skip
    first, second = numpy.zeros((4, 64), numpy.float32), numpy.zeros((64, 4), numpy.float32)
    for extra, expected in ((0.0, 0), (200.0, 0), (2000.0, 1)):
        first[0, 0], second[0, 0] = 1, extra / 2
        adapter = write_adapter(
            tmp_path / f"adapter-{extra}", {"l.gate_proj.lora_A.weight": first, "l.gate_proj.lora_B.weight": second}
        )
        outcome = repack(Request(base, adapter, tmp_path / f"out-{extra}"))
        assert result(outcome, "l.gate_proj").halvings == expected, extra


def plain_config(directory: Path) -> Path:
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"]}))
    return directory


def test_rounds_scales_of_fp8_to_the_type_that_they_have(bases: Callable[[str, str], Path], tmp_path: Path) -> None:
    base = tmp_path / "base"
    shutil.copytree(bases("fp8-block", "compressed-tensors"), base)
    source = opened(base)
    stored = {
        name: source.read(name).astype(BF16) if name.endswith("weight_scale") else source.read(name) for name in source
    }
    write_tensors(base / "model.safetensors", stored)
    outcome = repack(Request(base, adapter_of(tmp_path / "adapter", 0.02), tmp_path / "out"))
    after = opened(tmp_path / "out")
    assert after.tensors[f"{LAYER}.mlp.up_proj.weight_scale"].dtype == "BF16"
    for module in MODULES:
        codes, scale = after.read(f"{module}.weight").astype(numpy.float32), after.read(f"{module}.weight_scale")
        spread = scale.astype(numpy.float32).repeat(128, 0).repeat(128, 1)
        told = result(outcome, module)
        assert told.error < 0.03
        before_scale = stored[f"{module}.weight_scale"].astype(numpy.float32).repeat(128, 0).repeat(128, 1)
        before = stored[f"{module}.weight"].astype(numpy.float32) * before_scale
        assert distance(codes * spread, before) == pytest.approx(told.update, rel=0.1)


def test_works_in_runs_of_rows_and_with_tensors_in_several_files(
    bases: Callable[[str, str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = adapter_of(tmp_path / "adapter", 0.02)
    for scheme, naming in SCHEMES[::2]:
        base, target = bases(scheme, naming), tmp_path / scheme
        repack(Request(base, adapter, target / "whole"))
        split = target / "split"
        shutil.copytree(base, split)
        source = opened(base)
        names = list(source)
        files: dict[str, dict[str, Array]] = {f"model-0000{n + 1}-of-00003.safetensors": {} for n in range(3)}
        for position, name in enumerate(names):
            files[list(files)[position % 2]][name] = source.read(name)
        last = list(files)[2]
        files[last]["model.norm.weight"] = files[next(f for f in files if "model.norm.weight" in files[f])].pop(
            "model.norm.weight"
        )
        (split / "model.safetensors").unlink()
        for file, tensors in files.items():
            write_tensors(split / file, tensors)
        places = {name: file for file, tensors in files.items() for name in tensors}
        (split / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
        with monkeypatch.context() as patched:
            patched.setattr(storage, "CHUNK_ELEMENTS", 33 * 256)
            repack(Request(split, adapter, target / "chunks"))
        one, other = opened(target / "whole"), opened(target / "chunks")
        assert {name: tensor.file for name, tensor in other.tensors.items()} == places
        assert (target / "chunks" / last).read_bytes() == (split / last).read_bytes()
        for name in names:
            a, b = one.read(name), other.read(name)
            # The product of matrices may round otherwise in runs of rows: a code that stands on an edge may differ.
            assert (a.view(numpy.uint8) == b.view(numpy.uint8)).mean() > 0.999, name


def test_goes_on_after_an_interruption_with_the_same_bytes(bases: Callable[[str, str], Path], tmp_path: Path) -> None:
    request = Request(bases("nvfp4", "compressed-tensors"), adapter_of(tmp_path / "a", 0.02), tmp_path / "whole")
    repack(request)

    def interrupt(progress: Any) -> None:
        if progress.done > progress.total / 2:
            raise KeyboardInterrupt

    again = replace(request, target=tmp_path / "interrupted")
    with pytest.raises(KeyboardInterrupt):
        repack(again, interrupt)
    assert not (again.target / "config.json").exists()
    outcome = repack(again)
    assert len(outcome.modules) == len(MODULES)
    assert outcome.total is not None and outcome.total.error > 0
    for file in request.target.iterdir():
        assert (again.target / file.name).read_bytes() == file.read_bytes()


def test_a_dry_run_writes_nothing(bases: Callable[[str, str], Path], tmp_path: Path) -> None:
    request = Request(bases("nvfp4", "modelopt"), adapter_of(tmp_path / "a", 0.02), tmp_path / "out", dry_run=True)
    outcome = repack(request)
    assert [each.name for each in outcome.touched] and not outcome.modules
    assert {each.name for each in outcome.touched} == MODULES.keys()
    assert not request.target.exists()


def test_replaces_and_adds_to_what_is_not_quantised(bases: Callable[[str, str], Path], tmp_path: Path) -> None:
    base = bases("nvfp4", "compressed-tensors")
    random = numpy.random.default_rng(1)
    head = random.normal(0, 1, (1024, 256)).astype(BF16)
    norm = random.normal(1, 0.1, 256).astype(numpy.float32)
    rows, columns = numpy.float32(random.normal(0, 0.1, (4, 1024))), numpy.float32(random.normal(0, 0.1, (256, 4)))
    adapter = write_adapter(
        tmp_path / "a",
        {
            "lm_head.modules_to_save.weight": head, "model.norm.weight": norm,
            "model.embed_tokens.lora_embedding_A": rows, "model.embed_tokens.lora_embedding_B": columns,
        },
        target_modules=["embed_tokens"],
    )  # fmt: skip
    repack(Request(base, adapter, tmp_path / "out"))
    before, after = opened(base), opened(tmp_path / "out")
    assert numpy.array_equal(after.read("lm_head.weight"), head.astype(after.read("lm_head.weight").dtype))
    assert numpy.array_equal(after.read("model.norm.weight"), norm.astype(after.read("model.norm.weight").dtype))
    exact = before.read("model.embed_tokens.weight").astype(numpy.float32) + 2 * (columns @ rows).T
    assert distance(after.read("model.embed_tokens.weight").astype(numpy.float32), exact) < 1e-3


def test_rounds_a_matrix_that_the_adapter_holds_in_full(bases: Callable[[str, str], Path], tmp_path: Path) -> None:
    base, module = bases("nvfp4", "compressed-tensors"), f"{LAYER}.mlp.down_proj"
    whole = numpy.random.default_rng(3).normal(0, 0.05, (256, 512)).astype(numpy.float32)
    adapter = write_adapter(tmp_path / "a", {f"{module}.weight": whole}, modules_to_save=["down_proj"])
    outcome = repack(Request(base, adapter, tmp_path / "out"))
    stored = values(tmp_path / "out", tmp_path / "plain")[f"{module}.weight"]
    assert distance(stored, whole) == pytest.approx(result(outcome, module).error, rel=1e-3)
    assert distance(stored, whole) < 0.1


def test_finds_the_language_model_where_the_checkpoint_keeps_it(tmp_path: Path) -> None:
    weight = numpy.ones((16, 16), numpy.float32)
    base = plain_config(tmp_path / "base")
    write_tensors(base / "model.safetensors", {"model.language_model.layers.0.mlp.up_proj.weight": weight})
    for number, module in enumerate(("model.layers.0.mlp.up_proj", "language_model.model.layers.0.mlp.up_proj")):
        adapter = write_adapter(tmp_path / f"a{number}", factors(module, 16, 16, 1.0), target_modules=["up_proj"])
        outcome = repack(Request(base, adapter, tmp_path / f"out{number}"))
        assert [each.name for each in outcome.touched] == ["model.language_model.layers.0.mlp.up_proj"]


def test_reads_only_what_the_plan_says(bases: Callable[[str, str], Path]) -> None:
    """Steps name what they read in the order in which they do: it is read ahead."""
    source = opened(bases("nvfp4", "compressed-tensors"))
    module = storage.stored_module(source, f"{LAYER}.mlp.up_proj", lambda stem: None)
    asked: list[str] = []

    def fetch(name: str) -> Array:
        asked.append(name)
        tensor: SourceTensor = source.tensors[name]
        return source.piece(name, 0, tensor.bytes)

    storage.Weight(module, replace(source, fetch=fetch), choose(1))
    assert asked == list(module.tensors)


@pytest.mark.parametrize(("scheme", "naming"), [SCHEMES[0], SCHEMES[2]])
def test_keeps_small_updates_when_it_rounds_at_random(
    scheme: str, naming: str, bases: Callable[[str, str], Path], tmp_path: Path
) -> None:
    request = Request(bases(scheme, naming), adapter_of(tmp_path / "a", 0.0003), tmp_path / "nearest")
    nearest = repack(request).total
    dithered = repack(replace(request, target=tmp_path / "one", rounding="dithered")).total
    assert nearest is not None and dithered is not None
    assert nearest.kept is not None and nearest.kept < 0.5
    assert dithered.kept == pytest.approx(1, abs=0.1)
    assert nearest.error < dithered.error < 0.08
    assert dithered.conversion_error == nearest.conversion_error
    repack(replace(request, target=tmp_path / "two", rounding="dithered"))
    assert (tmp_path / "one" / "model.safetensors").read_bytes() == (
        tmp_path / "two" / "model.safetensors"
    ).read_bytes()


def test_rounds_at_random_to_a_neighbour_and_right_on_average() -> None:
    wanted = numpy.linspace(-6, 6, 16 * 9, dtype=numpy.float32).reshape(9, 16).repeat(400, axis=0)
    made = Nvfp4(numpy.zeros((3600, 8), numpy.uint8), numpy.ones((3600, 1), ml_dtypes.float8_e4m3fn))
    codes = dithered_nvfp4(made, wanted, 1.0, "module", 0)
    found = choose(1).nvfp4_values(codes, 1.0, "F32")
    grid = numpy.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], numpy.float32)
    below = grid[numpy.searchsorted(grid, numpy.abs(wanted), "right") - 1]
    above = grid[numpy.searchsorted(grid, numpy.abs(wanted), "left")]
    assert ((numpy.abs(found) == below) | (numpy.abs(found) == above)).all()
    assert numpy.abs((found - wanted).reshape(9, 400, 16).mean(axis=1)).max() < 0.25
    assert abs(float((found - wanted).mean())) < 0.01
    scaled = ScaledCodes(numpy.zeros((3600, 16), ml_dtypes.float8_e4m3fn), numpy.full((29, 1), 0.5, numpy.float32))
    eighths = choose(1).fp8_values(dithered_fp8(scaled, wanted, (128, 128), "module", 0), (128, 128), "F32")
    assert (numpy.abs(eighths - wanted) <= numpy.abs(wanted) / 8).all()
    assert abs(float((eighths - wanted).mean())) < 0.001
