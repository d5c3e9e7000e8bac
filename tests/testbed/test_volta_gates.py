"""The patched vLLM on compute capability 7.0: what is chosen, why, and that it can run there.

No GPU is here: vLLM's own Python decides for a platform of a chosen compute capability (tests/testbed/volta), and what
it would launch is compiled.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from onecat.patching import apply
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
SHARED_MEMORY = 96 * 1024  # bytes that a block of a V100 may have

MODELS = ("llama", "qwen3", "qwen3_moe", "gemma3", "gemma4", "deepseek_v2")
WORKERS = ("gpu_worker", "gpu_model_runner", "gpu.model_runner")
NEEDED = [f"vllm.model_executor.models.{name}" for name in MODELS] + [f"vllm.v1.worker.{name}" for name in WORKERS]
FLASH_ATTENTION = "vllm.v1.attention.backends.fa_utils"
NO_FLASH_ATTENTION = "requires the CUDA flash attention extensions"
FOR_CUDA_ALONE = [
    "vllm.v1.attention.backends.mla.flashattn_mla_sparse",
    "vllm.v1.attention.backends.mla.flashattn_mla",
    "vllm.v1.attention.backends.mla.prefill.flash_attn",
    "vllm.platforms.cuda",
]


@pytest.fixture(scope="module")
def patched_source(vllm_source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source with the whole series."""
    tree = tmp_path_factory.mktemp("patched") / "vllm"
    shutil.copytree(vllm_source, tree, symlinks=True)
    apply(vllm_series(), tree)
    return tree


class Started:
    """Programs that run side by side, as many as there are processors at a time."""

    def __init__(self, programs: Programs, pool: ThreadPoolExecutor) -> None:
        self._programs, self._pool = programs, pool
        self._pending: dict[str, Future[Any]] = {}

    def start(self, name: str, program: str, tree: Path, **request: Any) -> None:
        """Begin what `answer(name)` waits for."""
        self._pending[name] = self._pool.submit(self._programs.run, program, tree, request)

    def answer(self, name: str) -> Any:
        """The answer of one program; what it raised when it failed."""
        return self._pending[name].result()


@pytest.fixture(scope="module")
def started(
    engine_runtime: NativeRuntime,
    cache: Cache,
    vllm_source: Path,
    patched_source: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Started]:
    """All programs of this file.

    `decisions KIND CAPABILITY`: every answer of one kind of vLLM on one compute capability. Kinds: upstream; series
    (the patched source); volta (the same with the plugin that it declares).
    """
    python = engine_runtime.python
    programs = Programs(python=python, triton=ensure_triton(python, cache), kernels=cache.folder("triton-kernels"))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        running = Started(programs, pool)
        for capability in (VOLTA, *OTHERS):
            for kind in ("upstream", "series", "volta") if capability == VOLTA else ("upstream", "volta"):
                running.start(
                    decisions(kind, capability),
                    "ask.py",
                    vllm_source if kind == "upstream" else patched_source,
                    capability=capability,
                    # Without its extensions upstream does not import at all, on whatever GPU.
                    flash_attention=kind == "upstream" or capability != VOLTA,
                    plugin=entry_point(patched_source) if kind == "volta" else None,
                )
        kernels = [*kernels_named("runs"), *kernels_named("fails")]
        running.start("kernels", "compile_kernels.py", patched_source, capability=VOLTA, kernels=kernels)

        bare = {"capability": VOLTA, "flash_attention": False}
        touched = touched_modules()
        running.start("imports series", "import_modules.py", patched_source, **bare, modules=[*NEEDED, *touched])
        running.start("imports upstream", "import_modules.py", vllm_source, **bare, modules=NEEDED)
        ampere = {"capability": (8, 0), "flash_attention": False}
        running.start("imports 8.0", "import_modules.py", patched_source, **ampere, modules=[FLASH_ATTENTION])
        for kind, source, modules in (("upstream", vllm_source, FOR_CUDA_ALONE), ("series", patched_source, touched)):
            tree = with_extensions(source, engine_runtime, tmp_path_factory.mktemp(f"cpu-{kind}"))
            running.start(f"imports {kind} cpu", "import_modules.py", tree, capability=None, modules=modules)
        yield running


def decisions(kind: str, capability: tuple[int, int]) -> str:
    """The name under which the answers of one kind of vLLM on one compute capability are kept."""
    return f"decisions {kind} {capability[0]}.{capability[1]}"


def entry_point(tree: Path) -> str:
    """The plugin that the source declares, as vLLM finds it."""
    lines = (tree / "pyproject.toml").read_text(encoding="utf-8").splitlines()
    return next(line.split('"')[1] for line in lines if line.startswith("volta = "))


def kernels_named(kind: str) -> list[str]:
    """The Triton kernels that the table counts on (`runs`), or that it says cannot run (`fails`)."""
    if kind == "fails":
        return sorted({row.fails for row in TABLE.values() if row.fails})
    lists = [row.runs.removeprefix("Triton: ") for row in TABLE.values() if row.runs.startswith("Triton: ")]
    return sorted({name for names in lists for name in names.split(", ")})


def touched_modules() -> list[str]:
    """The modules of vLLM that the series edits or adds."""
    series = vllm_series()
    paths = {change.path for patch in series.patches for change in patch.changes} | set(series.added)
    inside = [path for path in sorted(paths) if re.fullmatch(r"(vllm|vllm_volta)/.*(?<!/setup)\.py", path)]
    return [path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in inside]


def with_extensions(source: Path, runtime: NativeRuntime, into: Path) -> Path:
    """The Python files of a source with the compiled parts of the engine for the CPU."""
    for package in ("vllm", "vllm_volta"):
        if (source / package).is_dir():
            shutil.copytree(source / package, into / package)
    [installed] = runtime.directory.glob("lib/python3*/site-packages/vllm")
    for path in installed.glob("*.so"):
        (into / "vllm" / path.name).symlink_to(path)
    return into


def agrees(expected: Any, answer: dict[str, Any]) -> bool:
    return expected.matches(answer) if isinstance(expected, Refused) else answer == {"answer": expected}


@pytest.mark.parametrize("kind", ["upstream", "series", "volta"])
def test_the_table_says_what_is_chosen_on_7_0(kind: str, started: Started) -> None:
    answers = started.answer(decisions(kind, VOLTA))["answers"]
    wrong = {
        question: (getattr(row, kind), answers.get(question))
        for question, row in TABLE.items()
        if not agrees(getattr(row, kind), answers.get(question, {}))
    }
    assert wrong == {}


@pytest.mark.parametrize("kind", ["upstream", "series", "volta"])
def test_the_table_leaves_nothing_out(kind: str, started: Started) -> None:
    added = set(ADDED_METHODS) if kind == "volta" else set()
    assert set(started.answer(decisions(kind, VOLTA))["answers"]) == set(TABLE) | added


@pytest.mark.parametrize("capability", OTHERS, ids=lambda capability: ".".join(map(str, capability)))
def test_other_gpus_get_the_answers_of_upstream(capability: tuple[int, int], started: Started) -> None:
    repaired = REPAIRED_EVERYWHERE | (REPAIRED_BELOW_8_9 if capability < (8, 9) else set())
    upstream, ours = (started.answer(decisions(kind, capability))["answers"] for kind in ("upstream", "volta"))
    assert set(ours) - set(upstream) == set(ADDED_METHODS)
    assert {question for question in upstream if ours[question] != upstream[question]} == repaired


@pytest.mark.parametrize("capability", OTHERS, ids=lambda capability: ".".join(map(str, capability)))
def test_other_gpus_get_no_kernel_of_the_plugin(capability: tuple[int, int], started: Started) -> None:
    assert [line for line in started.answer(decisions("volta", capability))["log"] if "Volta" in line] == []


def test_a_lowered_gate_is_logged_with_its_reason(started: Started) -> None:
    log = "\n".join(started.answer(decisions("volta", VOLTA))["log"])
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
def test_a_triton_kernel_of_a_choice_compiles_for_7_0_and_fits(name: str, started: Started) -> None:
    kernels = started.answer("kernels")[name]
    assert kernels != []
    for kernel in kernels:
        assert "failed" not in kernel
        assert kernel["machine_code"] > 0
        assert kernel["shared_memory"] <= SHARED_MEMORY


@pytest.mark.parametrize("name", kernels_named("fails"))
def test_a_triton_kernel_that_is_no_longer_chosen_cannot_run_on_7_0(name: str, started: Started) -> None:
    kernels = started.answer("kernels")[name]
    assert any("failed" in kernel or kernel["shared_memory"] > SHARED_MEMORY for kernel in kernels)


def test_models_workers_and_all_that_the_series_touches_import_on_7_0(started: Started) -> None:
    """With neither FlashAttention nor FlashInfer."""
    assert failures(started.answer("imports series")) == {}


def test_upstream_imports_no_model_and_no_worker_on_7_0(started: Started) -> None:
    failed = failures(started.answer("imports upstream"))
    assert set(failed) == set(NEEDED)
    assert all(NO_FLASH_ATTENTION in error for error in failed.values())


def test_a_build_for_8_0_that_lacks_flash_attention_still_says_so(started: Started) -> None:
    assert NO_FLASH_ATTENTION in failures(started.answer("imports 8.0"))[FLASH_ATTENTION]


def test_what_the_series_touches_imports_in_the_engine_for_the_cpu(started: Started) -> None:
    """But for what imports there without the series neither."""
    assert set(failures(started.answer("imports upstream cpu"))) == set(FOR_CUDA_ALONE)
    assert set(failures(started.answer("imports series cpu"))) <= set(FOR_CUDA_ALONE)


def failures(answers: dict[str, str | None]) -> dict[str, str]:
    """What did not import, and why."""
    return {module: error for module, error in answers.items() if error is not None}
