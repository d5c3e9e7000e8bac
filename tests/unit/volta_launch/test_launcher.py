"""The launcher of vllm_volta: what it asks CUDA's driver for, how it cuts work into thread blocks, what its errors say.

The launcher is the extension's own; below it stands a driver that writes down what it is asked for. The device code is
the kernels' PTX, as it is carried to machines without nvcc for 7.0.
"""

from __future__ import annotations

import ctypes
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from onecat.patching.series import ADDED, load_series
from tests.testbed.cache import open_cache
from tests.unit.volta.compiled import cached_ptx
from tests.unit.volta.device_compiler import HEADERS, NVRTC

HERE = Path(__file__).parent
CSRC = load_series("vllm-0.27.1").directory / ADDED / "vllm_volta" / "csrc"
CUDART = NVRTC.parents[2] / "cuda_runtime" / "lib" / "libcudart.so.12"
NVFP4, FP8 = 0, 1
QUAD_PAIRS, OCTETS = 0, 1
VOLTA, HOPPER = 0, 1
"""Numbers of the GPUs that the recording driver has."""
MULTIPROCESSORS = 80
MOST_SPLIT_BLOCKS = 1024
"""Of split attention, at once."""
HEAD_SIZES = (64, 80, 96, 128, 256, 512)
"""Those that kernels for attention exist for."""
STARTERS = (
    "start_matmul",
    "start_dequantize",
    "start_rows",
    "start_split",
    "start_tiled",
    "start_write",
    "ask_workspace",
    "ask_fragments",
    "recorded",
)
"""Functions of launcher.cpp that return a text."""


@dataclass(frozen=True)
class Started:
    """A kernel that the driver was asked to start; parameters: the stream too."""

    name: str
    grid: tuple[int, int, int]
    threads: int
    shared: int
    parameters: dict[str, float]


class Launcher:
    """A launcher that has started nothing yet, with GPUs of compute capability 7.0 and 9.0."""

    def __init__(self, library: Path) -> None:
        self.library = ctypes.CDLL(str(library))
        for name in STARTERS:
            getattr(self.library, name).restype = ctypes.c_char_p
        self.library.has_gpu(VOLTA, 70)
        self.library.has_gpu(HOPPER, 90)

    def call(self, name: str, *arguments: object) -> str:
        """Call a function of launcher.cpp; its error, empty without one."""
        return str(getattr(self.library, name)(*arguments).decode())

    def matmul(self, m: int, n: int = 4096, k: int = 4096, *, gpu: int = VOLTA, fragments: int = QUAD_PAIRS) -> str:
        return self.call("start_matmul", gpu, NVFP4, fragments, m, n, k)

    def attend(
        self,
        kind: str,
        tokens: int,
        head_size: int = 128,
        kv_heads: int = 8,
        group: int = 8,
        requests: int = 1,
        *,
        gpu: int = VOLTA,
        fragments: int = QUAD_PAIRS,
    ) -> str:
        """Start split attention for requests of at most `tokens` queries, or tiled attention for `tokens` in all."""
        shape = (ctypes.c_int * 4)(head_size, kv_heads, group, requests)
        return self.call(f"start_{kind}", gpu, fragments, shape, tokens)

    def started(self) -> Started:
        """The last kernel that was started."""
        name, *rest = self.recorded("cuLaunchKernel")[-1].split()[1:]
        x, y, z, threads, thread_y, thread_z, shared = map(int, rest[:7])
        assert (thread_y, thread_z) == (1, 1)
        pairs = dict(zip(rest[7::2], map(float, rest[8::2]), strict=True))
        return Started(name, (x, y, z), threads, shared, pairs)

    def recorded(self, start: str = "") -> list[str]:
        """What the driver was asked for so far, the lines with this start."""
        return [line for line in self.library.recorded().decode().splitlines() if line.startswith(start)]

    def fail(self, function: str, result: int) -> None:
        self.library.fail(function.encode(), result)


@pytest.fixture(scope="module")
def ptx() -> str:
    with open_cache() as cache:
        return cached_ptx(cache, CSRC / "device_code.cu").rstrip("\0")


def compile_all(folder: Path, *sources: Path, options: tuple[str, ...] = ()) -> list[str]:
    """Object files of C++ sources."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.fail("g++ is missing: `make test` installs it as root, or type: apt-get install g++", pytrace=False)
    command = [compiler, "-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-pthread", f"-I{CSRC}", "-c"]
    command += [option for header in HEADERS for option in ("-isystem", str(header))]
    subprocess.run([*command, *options, *map(str, sources)], cwd=folder, check=True)
    return [str(folder / f"{source.stem}.o") for source in sources]


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The launcher without the device code."""
    names = ("kernels.cpp", "launch.cpp", "attention_launch.cpp", "driver.cpp")
    sources = (HERE / "launcher.cpp", *(CSRC / name for name in names))
    return compile_all(tmp_path_factory.mktemp("objects"), *sources)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The driver that writes down what it is asked for."""
    return compile_all(tmp_path_factory.mktemp("driver"), HERE / "recording_cuda.cpp")


def link(folder: Path, ptx: str, objects: list[str]) -> Path:
    """The launcher with this device code in it."""
    code, library = folder / "code.ptx", folder / "launcher.so"
    code.write_text(ptx, encoding="utf-8")
    embedded = compile_all(folder, CSRC / "device_code.cpp", options=(f'-DVLLM_VOLTA_DEVICE_CODE="{code}"',))
    subprocess.run(["g++", "-shared", "-pthread", *objects, *embedded, "-o", str(library)], check=True)
    return library


@pytest.fixture(scope="module")
def recording(ptx: str, objects: list[str], driver: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The launcher with the kernels' PTX in it, above the driver that writes down what it is asked for."""
    return link(tmp_path_factory.mktemp("launcher"), ptx, [*objects, *driver])


@pytest.fixture
def launcher(recording: Path, tmp_path: Path) -> Iterator[Launcher]:
    # Under another name the loader gives it variables of its own.
    yield Launcher(Path(shutil.copy2(recording, tmp_path / "launcher.so")))


def start_every_kernel(launcher: Launcher, gpu: int, fragments: int) -> Iterator[str]:
    """The error of each call, empty without one."""
    for form in (NVFP4, FP8):
        for m in (1, 8, 16, 24, 32, 40, 48, 56, 64):
            yield launcher.call("start_matmul", gpu, form, fragments, m, 4096, 4096)
        yield launcher.call("start_dequantize", gpu, form, fragments, 0, 64, 64)
    for columns in (48, 50):
        yield launcher.call("start_rows", gpu, columns)
    yield launcher.call("start_write", gpu, 1, 1, 64)
    for head_size in HEAD_SIZES:
        for queries in (1, 2):
            yield launcher.attend("split", queries, head_size, gpu=gpu, fragments=fragments)
        yield launcher.attend("tiled", 100, head_size, gpu=gpu, fragments=fragments)


def test_every_kernel_of_the_device_code_is_loaded_once_on_each_gpu(launcher: Launcher, ptx: str) -> None:
    """And each can be started by the launcher: the device code has no other kernels."""
    for gpu, fragments in ((HOPPER, QUAD_PAIRS), (HOPPER, OCTETS), (VOLTA, QUAD_PAIRS), (HOPPER, OCTETS)):
        assert set(start_every_kernel(launcher, gpu, fragments)) == {""}
    asked = [line.split()[1] for line in launcher.recorded("cuLibraryGetKernel")]
    entries = entries_of(ptx)
    assert sorted(asked) == sorted([*entries, *(name for name in entries if "octets" not in name)])
    assert len(launcher.recorded("cuLibraryLoadData")) == 1


def test_a_kernel_is_loaded_when_it_is_first_needed(launcher: Launcher) -> None:
    assert launcher.matmul(1) == ""
    assert launcher.recorded("cuLibraryGetKernel") == ["cuLibraryGetKernel nvfp4_panels_quad_pairs_1"]
    assert launcher.attend("tiled", 5) == ""
    assert launcher.recorded("cuLibraryGetKernel")[1:] == ["cuLibraryGetKernel attention_tiled_quad_pairs_128"]


def entries_of(ptx: str) -> list[str]:
    return re.findall(r"\.entry (\w+)\(", ptx)


def sizes_of(ptx: str) -> list[int]:
    """How many tokens the kernels of one form take at most."""
    names = (re.fullmatch(r"nvfp4_panels_quad_pairs_(\d+)", name) for name in entries_of(ptx))
    return sorted(int(name[1]) for name in names if name)


def test_the_smallest_kernel_that_takes_the_tokens_is_started(launcher: Launcher, ptx: str) -> None:
    sizes = sizes_of(ptx)
    assert {1, 8, 16, 32} <= set(sizes)
    for m in range(1, sizes[-1] + 1):
        assert launcher.matmul(m) == ""
        name, x, y, z, threads, thread_y, thread_z, shared, *rest = launcher.recorded("cuLaunchKernel")[-1].split()[1:]
        assert name == f"nvfp4_panels_quad_pairs_{next(size for size in sizes if size >= m)}"
        assert int(threads) == threads_of(ptx, name)
        assert (y, z, thread_y, thread_z, shared) == ("1", "1", "1", "1", "0")
        assert 80 <= int(x) <= 80 * (1024 // int(threads))
        assert rest == ["stream", "7", "m", str(m), "n", "4096", "k", "4096"]


def threads_of(ptx: str, kernel: str) -> int:
    """The threads that a kernel was compiled for (PTX ISA, .maxntid)."""
    found = re.search(rf"\.entry {kernel}\([^)]*\)\s*\.maxntid (\d+)", ptx)
    assert found is not None
    return int(found[1])


def test_all_forms_of_kernels_are_started_by_their_names(launcher: Launcher) -> None:
    for number, form in enumerate(("nvfp4", "fp8")):
        for fragments, layout in enumerate(("quad_pairs", "octets")):
            assert launcher.call("start_matmul", HOPPER, number, fragments, 8, 64, 64) == ""
            assert launcher.recorded("cuLaunchKernel")[-1].split()[1] == f"{form}_panels_{layout}_8"
            assert launcher.call("start_dequantize", HOPPER, number, fragments, 32, 97, 65) == ""
            # 3 groups of rows, 2 panels of columns, 4 warps a block.
            wanted = f"cuLaunchKernel dequantize_{form}_panels_{layout} 2 1 1 128 1 1 0 stream 0"
            assert launcher.recorded("cuLaunchKernel")[-1] == wanted
    for columns, name in ((48, "dequantize_fp8_kernel"), (50, "dequantize_fp8_unaligned_kernel")):
        assert launcher.call("start_rows", VOLTA, columns) == ""
        before, last = launcher.recorded("cuLaunchKernel")[-2:]
        assert before.split()[1] == name
        assert last == "cuLaunchKernel dequantize_nvfp4_kernel 1 1 1 256 1 1 0 stream 0"


@pytest.mark.parametrize("head_size", HEAD_SIZES)
@pytest.mark.parametrize("fragments", [QUAD_PAIRS, OCTETS])
def test_split_attention_fills_the_gpu_once_with_the_tile_that_fits_the_rows(
    launcher: Launcher, ptx: str, head_size: int, fragments: int
) -> None:
    form = ("quad_pairs", "octets")[fragments]
    for group, queries in ((1, 1), (8, 1), (9, 1), (16, 1), (4, 2), (4, 3), (1, 8), (1, 9), (6, 50)):
        arguments = (queries, head_size, 4, group, 33)
        assert launcher.attend("split", *arguments, gpu=HOPPER, fragments=fragments) == ""
        started = launcher.started()
        rows = 16 if group * queries > 8 and head_size < 512 else 8
        assert started.name == f"attention_split_{form}_{head_size}_{rows}"
        assert started.threads == threads_of(ptx, started.name) == 128
        assert started.grid == (MULTIPROCESSORS * (1024 // started.threads), 1, 1)
        assert started.shared == 0
        shape = {"requests": 33, "kv_heads": 4, "group": group, "head_size": head_size, "block_size": 16}
        assert started.parameters.items() >= {"stream": 7, **shape}.items()


@pytest.mark.parametrize("head_size", HEAD_SIZES)
@pytest.mark.parametrize("fragments", [QUAD_PAIRS, OCTETS])
def test_tiled_attention_gets_a_block_for_every_tile_of_each_kv_head(
    launcher: Launcher, ptx: str, head_size: int, fragments: int
) -> None:
    name = f"attention_tiled_{('quad_pairs', 'octets')[fragments]}_{head_size}"
    rows = {256: 128, 512: 64}.get(head_size, 256)
    for tokens, requests, kv_heads, group in ((1, 1, 1, 1), (5, 5, 2, 4), (333, 3, 8, 6), (8192, 1, 4, 16)):
        arguments = (tokens, head_size, kv_heads, group, requests)
        assert launcher.attend("tiled", *arguments, gpu=HOPPER, fragments=fragments) == ""
        started = launcher.started()
        assert (started.name, started.grid[1]) == (name, kv_heads)
        # However the tokens are dealt out to the requests, and not more than that asks for.
        most = sum(-(-queries * group // rows) for queries in (tokens - requests + 1, *[1] * (requests - 1)))
        assert most <= started.grid[0] <= tokens * group // rows + requests
        # Where there are few blocks, as many share their keys as there are multiprocessors for, up to 16.
        blocks = started.grid[0] * kv_heads
        assert started.grid[2] == min(16, max(1, MULTIPROCESSORS // blocks))
        assert started.threads == threads_of(ptx, name) == 256
        assert 0 < started.shared <= 96 * 1024
    asked = launcher.recorded("cuFuncSetAttribute")
    assert asked == ([f"cuFuncSetAttribute {name} shared {started.shared}"] if started.shared > 48 * 1024 else [])


def test_shared_memory_that_the_gpu_does_not_have_is_told(launcher: Launcher) -> None:
    launcher.fail("cuFuncSetAttribute", 1)
    refused = launcher.attend("tiled", 8)
    assert re.fullmatch(
        r"kernel attention_tiled_quad_pairs_128 of vllm_volta cannot be loaded on a GPU of compute capability 7\.0 "
        r"with \d+ bytes of shared memory: what the driver says \(CUDA error 1\)",
        refused,
    )


@pytest.mark.parametrize(("tokens", "blocks"), [(1, 1), (4, 2), (5, 3), (100_000, 16 * MULTIPROCESSORS)])
def test_new_keys_and_values_are_written_by_as_many_threads_as_pieces(
    launcher: Launcher, tokens: int, blocks: int
) -> None:
    assert launcher.call("start_write", VOLTA, tokens, 8, 128) == ""
    started = launcher.started()
    assert (started.name, started.grid, started.threads, started.shared) == ("write_cache", (blocks, 1, 1), 256, 0)
    assert started.parameters.items() >= {"stream": 0, "tokens": tokens, "kv_heads": 8, "head_size": 128}.items()


@pytest.mark.parametrize("head_size", [64, 80, 256, 512])
@pytest.mark.parametrize(("group", "tokens"), [(1, 1), (1, 256), (5, 64), (8, 12), (12, 3)])
def test_the_workspace_is_enough_for_whatever_kernel_is_taken(
    launcher: Launcher, head_size: int, group: int, tokens: int
) -> None:
    kv_heads, requests = 4, 3
    out = (ctypes.c_longlong * (2 * tokens + 2))()
    shape = (ctypes.c_int * 4)(head_size, kv_heads, group, requests)
    assert launcher.call("ask_workspace", VOLTA, QUAD_PAIRS, shape, tokens, tokens, out) == ""
    plans = list(zip(out[2::2], out[3::2], strict=True))
    # Blocks of tiled attention that share rows, one on each multiprocessor, leave sums by dimension and two numbers for
    # each row.
    tiled = MULTIPROCESSORS * ({256: 128, 512: 64}.get(head_size, 256) * (-(-head_size // 64) * 64 + 2))
    assert out[0] == max(tiled, *(partial for partial, _ in plans))
    assert out[1] == max(arrivals for _, arrivals in plans)
    for queries, (partial, arrivals) in enumerate(plans, 1):
        rows = 16 if group * queries > 8 and head_size < 512 else 8
        # Two results of each thread block, of whole pieces of 64 dimensions; one counter for each tile, however the
        # tokens are dealt out.
        padded = -(-head_size // 64) * 64
        assert partial == 2 * (MULTIPROCESSORS * 8) * rows * (padded + 2)
        assert kv_heads * max(requests, -(-tokens * group // rows)) <= arrivals
        assert arrivals <= 2 * MOST_SPLIT_BLOCKS + kv_heads * (tokens * group // rows + requests + 1)


def test_split_attention_is_not_started_with_more_blocks_than_may_work(launcher: Launcher) -> None:
    for count, blocks in ((127, 1016), (128, 1024), (129, 1024), (132 * 4, 1024)):
        gpu = 2 + count
        launcher.library.has_gpu(gpu, 90)
        launcher.library.has_multiprocessors(gpu, count)
        assert launcher.attend("split", 1, gpu=gpu) == ""
        assert launcher.started().grid == (blocks, 1, 1)


def test_attention_by_octets_is_refused_below_8(launcher: Launcher) -> None:
    for kind in ("split", "tiled"):
        refused = launcher.attend(kind, 1, gpu=VOLTA, fragments=OCTETS)
        assert "octets of tensor cores need compute capability 8.0 or newer, this GPU has 7.0" in refused
    assert launcher.recorded("cuLaunchKernel") == []


def test_attention_that_cannot_be_started_is_told_with_its_shape(launcher: Launcher) -> None:
    launcher.fail("cuLaunchKernel", 701)
    assert launcher.attend("tiled", 100, head_size=64, kv_heads=2, group=8) == (
        "kernel attention_tiled_quad_pairs_64 of vllm_volta cannot be started for requests 1, kv_heads 2, group 8, "
        "head_size 64, block_size 16, 4 x 2 x 10 blocks of 256 threads: what the driver says (CUDA error 701)"
    )


@pytest.mark.parametrize("resident", [1, 2, 4, 5, 16])
def test_plans_give_every_thread_block_a_part_of_the_work(recording: Path, ptx: str, resident: int) -> None:
    library = ctypes.CDLL(str(recording))
    sizes = sizes_of(ptx)
    for m in (1, 2, 8, 9, 16, 31, sizes[-1]):
        for n in (1, 31, 128, 129, 4096, 4120, 28672, 152064, 2**22):
            for k in (16, 64, 80, 1024, 5120, 8192, 28672, 2**22):
                out = (ctypes.c_int * 4)()
                library.plan(m, n, k, 80, resident, out)
                tokens, warps, blocks, values = out
                assert tokens == next(size for size in sizes if size >= m)
                assert values == 2 * blocks * tokens * 32 * warps
                row_blocks, panels = -(-n // (32 * warps)), -(-k // 64)
                # Of a block of rows no more parts than pay for being added up, and none without a panel.
                most = row_blocks * min(panels, math.isqrt(2 * panels - 1) + 1)
                assert 1 <= blocks <= min(most, 80 * resident), (n, k)
                units = row_blocks * panels
                assert units * blocks < 2**32
                assert blocks == min(most, 80 * resident) or units * (blocks + 1) >= 2**32


def test_octets_are_refused_below_8(launcher: Launcher) -> None:
    assert launcher.matmul(1, gpu=HOPPER, fragments=OCTETS) == ""
    refused = launcher.matmul(1, gpu=VOLTA, fragments=OCTETS)
    assert "octets of tensor cores need compute capability 8.0 or newer, this GPU has 7.0" in refused
    assert len(launcher.recorded("cuLaunchKernel")) == 1


@pytest.mark.parametrize(
    ("gpu", "chosen", "wanted"),
    [
        (VOLTA, None, QUAD_PAIRS),
        (HOPPER, None, OCTETS),
        (HOPPER, "", OCTETS),
        (HOPPER, "quad-pairs", QUAD_PAIRS),
        (VOLTA, "octets", "need compute capability 8.0"),
        (HOPPER, "pairs", "VLLM_VOLTA_FRAGMENTS must be quad-pairs or octets, it is pairs"),
    ],
)
def test_fragments_are_those_of_the_gpu_unless_the_environment_says_otherwise(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch, gpu: int, chosen: str | None, wanted: int | str
) -> None:
    monkeypatch.delenv("VLLM_VOLTA_FRAGMENTS", raising=False)
    if chosen is not None:
        monkeypatch.setenv("VLLM_VOLTA_FRAGMENTS", chosen)
    out = ctypes.c_int(-1)
    error = launcher.call("ask_fragments", gpu, ctypes.byref(out))
    if isinstance(wanted, int):
        assert (error, out.value) == ("", wanted)
    else:
        assert wanted in error and out.value == -1


def test_code_is_loaded_while_a_graph_is_captured_and_the_mode_is_set_back(launcher: Launcher) -> None:
    assert launcher.matmul(1) == ""
    lines = launcher.recorded()
    relaxed, restored = (lines.index(f"capture mode {mode}") for mode in (2, 0))
    assert relaxed < lines.index("cuLibraryLoadData") < restored < lines.index(launcher.recorded("cuLaunchKernel")[0])


def test_a_thread_without_a_gpu_gets_the_one_that_it_wants(launcher: Launcher) -> None:
    assert launcher.matmul(1, gpu=HOPPER) == ""
    assert launcher.matmul(1, gpu=HOPPER) == ""
    assert launcher.recorded("cudaSetDevice") == ["cudaSetDevice 1"]


def test_threads_that_start_at_the_same_time_load_each_kernel_once(launcher: Launcher, ptx: str) -> None:
    with ThreadPoolExecutor(16) as threads:
        errors = list(threads.map(lambda index: launcher.matmul(1 + index % 32, gpu=index % 2), range(400)))
    assert set(errors) == {""}
    assert len(launcher.recorded("cuLaunchKernel")) == 400
    assert len(launcher.recorded("cuLibraryLoadData")) == 1
    # Tokens 1, 3, 5 ... 31 on one GPU and 2, 4, 6 ... 32 on the other.
    sizes = sizes_of(ptx)
    wanted = {(next(size for size in sizes if size >= m), m % 2) for m in range(1, 33)}
    assert len(launcher.recorded("cuLibraryGetKernel")) == len(wanted)


def test_device_code_that_the_driver_does_not_take_is_told_with_its_log(launcher: Launcher) -> None:
    launcher.fail("cuLibraryLoadData", 218)
    refused = launcher.matmul(1)
    assert re.fullmatch(
        r"the device code of vllm_volta \(\d+ bytes\) cannot be loaded: line 1 of the log: what the driver says "
        r"\(CUDA error 218\)",
        refused,
    )
    launcher.fail("", 0)
    assert launcher.matmul(1) == "", "the next call tries again"


def test_a_kernel_that_is_not_in_the_device_code_is_named(
    ptx: str, objects: list[str], driver: list[str], tmp_path: Path
) -> None:
    lacking = ptx.replace(".entry fp8_panels_octets_16(", ".entry other(")
    launcher = Launcher(link(tmp_path, lacking, [*objects, *driver]))
    assert launcher.matmul(1, gpu=HOPPER) == ""
    refused = launcher.call("start_matmul", HOPPER, FP8, OCTETS, 16, 64, 64)
    assert "kernel fp8_panels_octets_16 of vllm_volta cannot be loaded on a GPU of compute capability 9.0" in refused
    assert "(CUDA error 500)" in refused


def test_a_launch_that_fails_is_told_with_its_shape(launcher: Launcher, ptx: str) -> None:
    launcher.fail("cuLaunchKernel", 701)
    refused = launcher.matmul(5, n=96, k=64)
    threads = threads_of(ptx, "nvfp4_panels_quad_pairs_8")
    assert refused == (
        f"kernel nvfp4_panels_quad_pairs_8 of vllm_volta cannot be started for m 5, n 96, k 64, 1 blocks of {threads} "
        "threads: "
        "what the driver says (CUDA error 701)"
    )


def test_a_driver_that_is_too_old_is_told(launcher: Launcher) -> None:
    launcher.library.hide(b"cuLibraryLoadData")
    refused = launcher.matmul(1)
    assert "the driver has no cuLibraryLoadData of CUDA 12.0: driver 525 or newer is needed" in refused


ASK = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.start_matmul.restype = ctypes.c_char_p
print(library.start_matmul(0, 0, 0, 1, 64, 64).decode())
"""


def test_without_a_working_driver_the_launcher_loads_and_says_why_nothing_runs(
    ptx: str, objects: list[str], tmp_path: Path
) -> None:
    """CUDA's real runtime, above a libcuda that can do nothing: of this process's machine none is used."""
    library = link(tmp_path, ptx, [*objects, str(CUDART)])
    (tmp_path / "driver.c").write_text("int cuInit(unsigned flags) { return 100; }\n", encoding="utf-8")
    driver = ["gcc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", str(tmp_path / "driver.c")]
    subprocess.run([*driver, "-o", str(tmp_path / "libcuda.so.1")], check=True)
    environment = {**os.environ, "LD_LIBRARY_PATH": f"{tmp_path}:{CUDART.parent}"}
    command = [sys.executable, "-c", ASK, str(library)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("the kernels of vllm_volta cannot run: CUDA's driver gives no cu"), done.stdout
    assert "driver" in done.stdout.rpartition(": ")[2]
