"""The patched vLLM on compute capability 7.0: what is chosen, why, and that it can run there.

No GPU is here: vLLM's own Python decides for a platform of a chosen compute capability (tests/testbed/volta), and what
it would launch is compiled.
"""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from onecat.patching import apply, touched_paths
from tests.testbed.cache import Cache
from tests.testbed.sources import vllm_series
from tests.testbed.volta.programs import Programs, ensure_triton
from tests.testbed.volta.table import (
    ADDED_METHODS,
    REPAIRED_BELOW_8_9,
    REPAIRED_EVERYWHERE,
    TABLE,
    Refused,
    Row,
)

if TYPE_CHECKING:
    from onecat.images import NativeRuntime

VOLTA = (7, 0)
OTHERS = ((8, 0), (8, 9), (9, 0))
MODELS = ("llama", "qwen3", "qwen3_moe", "gemma3", "gemma4", "deepseek_v2")
WORKERS = ("gpu_worker", "gpu_model_runner", "gpu.model_runner")


@pytest.fixture(scope="module")
def patched_source(vllm_source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source with the whole series."""
    tree = tmp_path_factory.mktemp("patched") / "vllm"
    shutil.copytree(vllm_source, tree, symlinks=True)
    apply(vllm_series(), tree)
    return tree


@pytest.fixture(scope="module")
def programs(engine_runtime: NativeRuntime, cache: Cache) -> Programs:
    """Runs programs in the engine's interpreter."""
    python = engine_runtime.python
    return Programs(python=python, triton=ensure_triton(python, cache), kernels=cache.folder("triton-kernels"))


Ask = Callable[[str, tuple[int, int]], dict[str, Any]]


@pytest.fixture(scope="module")
def ask(programs: Programs, vllm_source: Path, patched_source: Path) -> Any:
    """All answers of one kind of vLLM on one compute capability: `ask("upstream", (7, 0))`.

    Kinds: upstream, series (patched), volta (patched, with the plugin of the patched source loaded). All are asked at
    once, as many as there are processors at a time.
    """
    plugin = entry_point(patched_source)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        pending: dict[tuple[str, tuple[int, int]], Future[Any]] = {}
        for capability in (VOLTA, *OTHERS):
            for kind in ("upstream", "series", "volta") if capability == VOLTA else ("upstream", "volta"):
                request = {
                    "capability": capability,
                    # Without its extensions upstream does not import at all, on whatever GPU.
                    "flash_attention": kind == "upstream" or capability != VOLTA,
                    "plugin": plugin if kind == "volta" else None,
                }
                tree = vllm_source if kind == "upstream" else patched_source
                pending[kind, capability] = pool.submit(programs.run, "ask.py", tree, request)
        yield lambda kind, capability: pending[kind, capability].result()


def entry_point(tree: Path) -> str:
    """The plugin that the source declares, as vLLM finds it."""
    lines = (tree / "pyproject.toml").read_text(encoding="utf-8").splitlines()
    return next(line.split('"')[1] for line in lines if line.startswith("volta = "))


@functools.lru_cache
def kernels_named(kind: str) -> tuple[str, ...]:
    """The Triton kernels that the table counts on (`runs`) or that it says cannot run (`fails`)."""
    if kind == "fails":
        names = {row.fails for row in TABLE.values() if row.fails}
    else:
        by_triton = [row.runs.removeprefix("Triton: ") for row in TABLE.values() if row.runs.startswith("Triton: ")]
        names = {name for names in by_triton for name in names.split(", ")}
    return tuple(sorted(names))


@pytest.fixture(scope="module")
def compiled(programs: Programs, patched_source: Path) -> dict[str, list[dict[str, Any]]]:
    """What became of the table's Triton kernels on 7.0."""
    kernels = [*kernels_named("runs"), *kernels_named("fails")]
    answer: dict[str, Any] = programs.run(
        "compile_kernels.py", patched_source, {"capability": VOLTA, "kernels": kernels}
    )
    return answer


def agrees(expected: Any, answer: dict[str, Any]) -> bool:
    return expected.matches(answer) if isinstance(expected, Refused) else answer == {"answer": expected}


@pytest.mark.parametrize("kind", ["upstream", "series", "volta"])
def test_the_table_says_what_is_chosen_on_7_0(kind: str, ask: Ask) -> None:
    answers = ask(kind, VOLTA)["answers"]
    wrong = {
        question: (getattr(row, kind), answers.get(question))
        for question, row in TABLE.items()
        if not agrees(getattr(row, kind), answers.get(question, {}))
    }
    assert wrong == {}


@pytest.mark.parametrize("kind", ["upstream", "series", "volta"])
def test_the_table_leaves_nothing_out(kind: str, ask: Ask) -> None:
    added = set(ADDED_METHODS) if kind == "volta" else set()
    assert set(ask(kind, VOLTA)["answers"]) == set(TABLE) | added


@pytest.mark.parametrize("capability", OTHERS, ids=lambda capability: ".".join(map(str, capability)))
def test_other_gpus_get_the_answers_of_upstream(capability: tuple[int, int], ask: Ask) -> None:
    repaired = REPAIRED_EVERYWHERE | (REPAIRED_BELOW_8_9 if capability < (8, 9) else set())
    upstream, ours = (ask(kind, capability)["answers"] for kind in ("upstream", "volta"))
    assert set(ours) - set(upstream) == set(ADDED_METHODS)
    assert {question for question in upstream if ours[question] != upstream[question]} == repaired


@pytest.mark.parametrize("capability", OTHERS, ids=lambda capability: ".".join(map(str, capability)))
def test_other_gpus_get_no_kernel_of_the_plugin(capability: tuple[int, int], ask: Ask) -> None:
    assert [line for line in ask("volta", capability)["log"] if "Volta" in line] == []


def test_a_lowered_gate_is_logged_with_its_reason(ask: Ask) -> None:
    log = "\n".join(ask("volta", VOLTA)["log"])
    for line in (
        "Selected VoltaFp8LinearKernel for the layer",
        "Using VoltaNvFp4LinearKernel for NVFP4 GEMM",
        "Lowering a minimum capability from 75 to 70: this device has VoltaNvFp4LinearKernel (nvfp4)",
        "Lowering a minimum capability from 75 to 70: this device has ExllamaLinearKernel (mp)",
        "Using TRITON_ATTN attention backend",
    ):
        assert line in log


def test_every_choice_on_7_0_says_what_runs_it() -> None:
    def is_choice(row: Row) -> bool:
        group = row.question.partition("/")[0]
        return group in ("linear", "moe", "attention") and isinstance(row.series, str)

    assert [row.question for row in TABLE.values() if is_choice(row) and not row.runs] == []


@pytest.mark.parametrize("name", kernels_named("runs"))
def test_a_triton_kernel_of_a_choice_compiles_for_7_0_and_fits(
    name: str, compiled: dict[str, list[dict[str, Any]]]
) -> None:
    shared_memory_of_a_v100 = 96 * 1024
    assert compiled[name] != []
    for kernel in compiled[name]:
        assert "failed" not in kernel
        assert kernel["machine_code"] > 0
        assert kernel["shared_memory"] <= shared_memory_of_a_v100


@pytest.mark.parametrize("name", kernels_named("fails"))
def test_a_triton_kernel_that_is_no_longer_chosen_cannot_run_on_7_0(
    name: str, compiled: dict[str, list[dict[str, Any]]]
) -> None:
    assert any("failed" in kernel or kernel["shared_memory"] > 96 * 1024 for kernel in compiled[name])


def touched_modules() -> list[str]:
    """The modules of vLLM that the series edits or adds."""
    paths = sorted(path for path in touched_paths(vllm_series()) if path.endswith(".py"))
    inside = [path for path in paths if path.startswith(("vllm/", "vllm_volta/")) and not path.endswith("setup.py")]
    return [path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in inside]


def test_models_workers_and_all_that_the_series_touches_import_on_7_0(
    programs: Programs, vllm_source: Path, patched_source: Path
) -> None:
    """With neither FlashAttention nor FlashInfer; upstream imports none of the models."""
    models = [f"vllm.model_executor.models.{name}" for name in MODELS]
    workers = [f"vllm.v1.worker.{name}" for name in WORKERS]
    request = {"capability": VOLTA, "flash_attention": False, "modules": [*models, *workers, *touched_modules()]}
    assert {
        module: error
        for module, error in programs.run("import_modules.py", patched_source, request).items()
        if error is not None
    } == {}
    upstream = programs.run("import_modules.py", vllm_source, {**request, "modules": [*models, *workers]})
    assert all("requires the CUDA flash attention extensions" in str(error) for error in upstream.values())


def test_a_build_for_8_0_that_lacks_flash_attention_still_says_so(programs: Programs, patched_source: Path) -> None:
    request = {"capability": (8, 0), "flash_attention": False, "modules": ["vllm.v1.attention.backends.fa_utils"]}
    [error] = programs.run("import_modules.py", patched_source, request).values()
    assert "requires the CUDA flash attention extensions" in error


def test_what_the_series_touches_compiles_and_imports_in_the_engine_for_the_cpu(
    programs: Programs, engine_runtime: NativeRuntime, vllm_source: Path, patched_source: Path, tmp_path: Path
) -> None:
    """Modules for CUDA alone do not import there, with or without the series."""
    modules = touched_modules()
    for path in patched_source.glob("vllm_volta/**/*.py"):
        compile(path.read_bytes(), str(path), "exec")
    errors = {}
    for kind, source in (("upstream", vllm_source), ("ours", patched_source)):
        tree = with_extensions(source, engine_runtime, tmp_path / kind)
        present = [module for module in modules if is_in(tree, module)]
        answers = programs.run("import_modules.py", tree, {"capability": None, "modules": present})
        errors[kind] = {module for module, error in answers.items() if error is not None}
        for module in present:
            path = file_of(tree, module)
            compile(path.read_bytes(), str(path), "exec")
    assert errors["ours"] <= errors["upstream"]
    assert errors["upstream"] <= {
        "vllm.platforms.cuda",
        "vllm.v1.attention.backends.mla.flashattn_mla",
        "vllm.v1.attention.backends.mla.flashattn_mla_sparse",
    }


def file_of(tree: Path, module: str) -> Path:
    path = tree / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def is_in(tree: Path, module: str) -> bool:
    return file_of(tree, module).exists()


def with_extensions(source: Path, runtime: NativeRuntime, into: Path) -> Path:
    """The Python files of a source with the compiled parts of the engine for the CPU."""
    for package in ("vllm", "vllm_volta"):
        if (source / package).is_dir():
            shutil.copytree(source / package, into / package)
    [installed] = runtime.directory.glob("lib/python3*/site-packages/vllm")
    for path in (*installed.glob("*.so"), installed / "_version.py"):
        (into / "vllm" / path.name).symlink_to(path)
    return into
