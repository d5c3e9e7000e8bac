"""What the build of the patched vLLM makes for which architectures, and the small wheel of vllm_volta alone.

setup.py, CMake and pip are real, and so are vLLM's sources; torch and nvcc are stand-ins that know their versions
(cuda_build/), so that nothing is compiled.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from onecat.images import NativeRuntime
from onecat.images.recipe import load_recipe
from onecat.patching import apply, load_series, unpack
from onecat.patching.series import ADDED
from onecat.resources import resource_directory
from tests.testbed.cache import Cache
from tests.unit.volta.compiled import sources_of
from tests.unit.volta.device_compiler import HEADERS

STAND_INS = Path(__file__).parent / "cuda_build"
SERIES = load_series("vllm-0.27.1")
VOLTA = SERIES.directory / ADDED / "vllm_volta"
KERNELS_CMAKE = VOLTA / "kernels.cmake"
# CUDA 13.0 from the Python packages of the development environment.
TOOLKIT_13 = Path(sysconfig.get_path("purelib")) / "nvidia" / "cu13"
# How the images' own check reads GPU code.
SELFTEST = runpy.run_path(str(resource_directory("templates") / "image" / "cuda" / "selftest.py"))
PLUGIN = "vllm_volta.plugin:register"
# What vLLM 0.27.1 names as its build requirements, without torch; and those of vllm_volta alone.
BUILD_TOOLS = (
    "cmake>=3.26.1",
    "ninja",
    "packaging>=24.2",
    "setuptools>=77.0.3,<81.0.0",
    "setuptools-scm>=8.0",
    "setuptools-rust>=1.9.0",
    "wheel",
    "jinja2",
    "scikit-build-core>=0.10",
)
BUILD_FILES = (
    "CMakeLists.txt",
    "PKG-INFO",
    "cmake",
    "pyproject.toml",
    "requirements",
    "setup.py",
    "tools",
    "vllm/envs.py",
)
EXTERNAL = {
    "vllm.triton_kernels",
    "vllm.vllm_flash_attn._vllm_fa2_C",
    "vllm.vllm_flash_attn._vllm_fa3_C",
    "vllm.vllm_flash_attn._vllm_fa4_cutedsl_C",
    "vllm._flashkda_C",
    "vllm._deep_gemm_C",
    "vllm._qutlass_C",
    "vllm.fmha_sm100",
    "vllm.tml_fa4",
}
ALWAYS = {
    "vllm.cumem_allocator",
    "vllm.spinloop",
    "vllm.fs_io_C",
    "vllm._C_stable_libtorch",
    "vllm._moe_C_stable_libtorch",
}
NOT_BELOW_8 = {
    "flashinfer-python",
    "nvidia-cudnn-frontend",
    "nvidia-cutlass-dsl",
    "quack-kernels",
    "tilelang",
    "tokenspeed-mla",
}


@dataclass(frozen=True)
class Build:
    """A source tree of vLLM and the virtual environment with the tools that build it."""

    tree: Path
    bin: Path

    def environment(self, architectures: str, cuda: str | None) -> dict[str, str]:
        """That of a build for these architectures with a toolkit of that version; no network through git."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("VLLM", "PYTHON", "TORCH"))}
        path = f"{self.bin}:{STAND_INS / 'toolkit' / 'bin'}:{os.environ['PATH']}"
        kept |= {"PATH": path, "PYTHONPATH": str(STAND_INS / "modules"), "TORCH_CUDA_ARCH_LIST": architectures}
        kept |= {"GIT_ALLOW_PROTOCOL": "none", "VLLM_CUTLASS_SRC_DIR": str(STAND_INS / "cutlass")}
        kept |= {"STANDIN_PYTHON": sys.executable}
        return kept | ({"STANDIN_CUDA": cuda, "CUDA_HOME": str(STAND_INS / "toolkit")} if cuda else {})

    def setup(self, architectures: str, cuda: str = "12.6", **variables: str) -> Any:
        """What setup.py hands to setuptools."""
        command = [str(self.bin / "python"), str(STAND_INS / "ask_setup.py")]
        environment = self.environment(architectures, cuda) | variables
        done = subprocess.run(command, cwd=self.tree, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def configure(
        self,
        architectures: Sequence[str],
        build: Path,
        cuda: str = "12.6",
        headers: Sequence[Path] = (),
        device_code: Path | None = None,
    ) -> str:
        """CMake's own words on the whole of CMakeLists.txt; whether it succeeded is its last line."""
        command = [str(self.bin / "cmake"), "-S", str(self.tree), "-B", str(build), "-G", "Ninja"]
        command += [f"-DVLLM_PYTHON_EXECUTABLE={self.bin / 'python'}", f"-DFETCHCONTENT_BASE_DIR={build / 'deps'}"]
        command += [f"-DTorch_DIR={STAND_INS / 'cmake'}", f"-DSTANDIN_ARCHITECTURES={';'.join(architectures)}"]
        command += [f"-DSTANDIN_HEADERS={';'.join(map(str, headers))}"]
        command += [f"-DVLLM_VOLTA_DEVICE_CODE={device_code}"] if device_code else []
        environment = self.environment(";".join(architectures), cuda)
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert (done.returncode == 0) == ("Build files have been written to" in done.stdout)
        return done.stdout


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs' folder of a virtual environment with the build tools."""
    environment = tmp_path_factory.mktemp("tools") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    pip = [str(environment / "bin" / "python"), "-m", "pip", "-qq", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", *BUILD_TOOLS], check=True)
    return environment / "bin"


@pytest.fixture(scope="module")
def released(tools: Path, vllm_archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Build:
    """vLLM as it was released; `patched` changes this tree."""
    return Build(unpack(vllm_archive, SERIES.upstream, tmp_path_factory.mktemp("patched")), tools)


@pytest.fixture(scope="module")
def upstream(released: Build, tmp_path_factory: pytest.TempPathFactory) -> Build:
    """The files of vLLM's build as they were released."""
    tree = tmp_path_factory.mktemp("upstream")
    for name in BUILD_FILES:
        source = released.tree / name
        (tree / name).parent.mkdir(exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copy2)(source, tree / name)
    return Build(tree, released.bin)


@pytest.fixture(scope="module")
def patched(released: Build, upstream: Build) -> Build:
    """vLLM with the whole series."""
    apply(SERIES, released.tree)
    return released


def names(requirements: Sequence[str]) -> set[str]:
    return {re.split(r"[^A-Za-z0-9_.-]", requirement)[0] for requirement in requirements}


@pytest.mark.parametrize("architectures", ["7.0", "7.0;7.5", "7.0+PTX"])
def test_builds_below_8_leave_out_what_has_no_code_for_them(patched: Build, architectures: str) -> None:
    answer = patched.setup(architectures)
    assert dict(answer["extensions"]) == dict.fromkeys({*ALWAYS, "vllm_volta._C"}, False)
    assert names(answer["requirements"]) & NOT_BELOW_8 == set()
    assert ("humming-kernels" in names(answer["requirements"])) == ("7.5" in architectures)
    assert {"torch", "torchvision", "numba", "transformers"} <= names(answer["requirements"])
    # Of no GPU: xgrammar needs it on every machine, in the version that upstream pins.
    assert "apache-tvm-ffi==0.1.11" in answer["requirements"]
    assert answer["version"] == "0.27.1+cu126"


def test_no_requirement_moves_triton_from_what_torch_pins(patched: Build) -> None:
    requirements = patched.setup("7.0")["requirements"]
    assert "torch==2.13.0" in requirements
    assert "triton" not in names(requirements)
    assert [each for each in requirements if "cu13" in each] == []


def test_a_build_for_both_generations_has_everything(patched: Build, upstream: Build) -> None:
    answer, before = patched.setup("7.0;8.0"), upstream.setup("7.0;8.0")
    extra = [each for each in answer["extensions"] if each not in before["extensions"]]
    assert extra == [["vllm_volta._C", False]]
    assert set(dict(before["extensions"])) == EXTERNAL | ALWAYS
    assert answer["requirements"] == before["requirements"]


@pytest.mark.parametrize(("architectures", "cuda"), [("8.0", "12.6"), ("9.0 10.0f;12.0+PTX", "13.0")])
def test_builds_from_8_on_are_as_upstream_made_them(
    patched: Build, upstream: Build, architectures: str, cuda: str
) -> None:
    assert patched.setup(architectures, cuda) == upstream.setup(architectures, cuda)


@pytest.mark.parametrize("architectures", ["", "Volta", "All"])
def test_where_only_cmake_knows_the_architectures_everything_is_asked_for(patched: Build, architectures: str) -> None:
    extensions = dict(patched.setup(architectures)["extensions"])
    assert set(extensions) == {*EXTERNAL, *ALWAYS, "vllm_volta._C"}
    assert extensions["vllm_volta._C"] is True


def test_cmake_configures_a_build_for_volta_without_fetching_more_than_cutlass(
    patched: Build, upstream: Build, tmp_path: Path
) -> None:
    log = patched.configure(["7.0"], tmp_path / "patched")
    assert "Build files have been written to" in log, log[-3000:]
    assert "no CUDA target architecture is 8.0 or newer" in log
    rules = (tmp_path / "patched" / "build.ninja").read_text(encoding="utf-8")
    # setup.py may ask for any of them.
    for name in (*EXTERNAL, *ALWAYS, "vllm_volta._C", "vllm._flashmla_C", "vllm._flashmla_extension_C"):
        target = name.removeprefix("vllm.").removeprefix("vllm_flash_attn.")
        assert re.search(rf"^build ([^:]* )?{re.escape(target)}: phony", rules, re.MULTILINE), target
    assert "vllm_volta/csrc/bindings.cpp" in rules
    assert re.search(r"^build _C\.abi3\.so: ", rules, re.MULTILINE)
    before = upstream.configure(["7.0"], tmp_path / "upstream")
    assert "Failed to clone repository" in before


def test_cmake_fetches_the_external_projects_from_8_on(patched: Build, tmp_path: Path) -> None:
    log = patched.configure(["7.0", "8.0"], tmp_path)
    assert "Enabling vllm_volta extension" in log
    assert "[triton_kernels] Fetch from" in log and "Failed to clone repository" in log


@pytest.mark.parametrize(("cuda", "has_volta"), [("12.9", True), ("13.0", False)])
def test_cmake_takes_volta_from_every_toolkit_that_can_compile_for_it(
    patched: Build, tmp_path: Path, cuda: str, has_volta: bool
) -> None:
    log = patched.configure(["7.0", "7.5"], tmp_path, cuda)
    assert "Build files have been written to" in log, log[-3000:]
    assert ("Enabling vllm_volta extension" in log) is has_volta


def test_ready_device_code_is_taken_for_any_architecture_and_toolkit(patched: Build, tmp_path: Path) -> None:
    code = tmp_path / "code.ptx"
    code.write_text(".version 8.5\n", encoding="utf-8")
    log = patched.configure(["7.5"], tmp_path / "build", "13.0", device_code=code)
    assert "Build files have been written to" in log, log[-3000:]
    assert f"vllm_volta: device code is {code}" in log
    assert "device_code.fatbin" not in (tmp_path / "build" / "build.ninja").read_text(encoding="utf-8")
    asked = patched.setup("9.0", "13.0", VLLM_VOLTA_DEVICE_CODE=str(code))
    assert ["vllm_volta._C", False] in asked["extensions"]
    log = patched.configure(["7.5"], tmp_path / "missing", "13.0", device_code=tmp_path / "none.ptx")
    assert f"VLLM_VOLTA_DEVICE_CODE is {tmp_path / 'none.ptx'}, which is no file." in re.sub(r"\s+", " ", log)


def test_cmake_says_whether_some_architecture_is_new_enough(patched: Build, tmp_path: Path) -> None:
    cases = [("7.0", 0), ("7.0;7.5", 0), ("7.5;8.0", 1), ("8.6", 1), ("9.0a", 1), ("10.0f;12.1a", 1), ("", 0)]
    script = [f"include({patched.tree}/cmake/utils.cmake)"]
    script += [f'cuda_archs_any_from(found 8.0 "{archs}")\nmessage(NOTICE ${{found}})' for archs, _ in cases]
    (tmp_path / "ask.cmake").write_text("\n".join(script), encoding="utf-8")
    done = subprocess.run(
        [str(patched.bin / "cmake"), "-P", str(tmp_path / "ask.cmake")], capture_output=True, text=True
    )
    assert done.stderr.split() == ["ON" if wanted else "OFF" for _, wanted in cases]


def test_wheels_of_the_patched_vllm_carry_vllm_volta(patched: Build, tmp_path: Path) -> None:
    """vLLM's device `empty`: all of its Python files and no extension."""
    command = [str(patched.bin / "pip"), "wheel", "-qq", "--no-deps", "--no-build-isolation", "-w", str(tmp_path)]
    environment = patched.environment("", None) | {"VLLM_TARGET_DEVICE": "empty"}
    subprocess.run([*command, str(patched.tree)], env=environment, check=True)
    (wheel,) = tmp_path.glob("vllm-0.27.1+empty-*.whl")
    assert_holds_vllm_volta(wheel)
    assert "vllm/v1/engine/core.py" in zipfile.ZipFile(wheel).namelist()


def test_vllm_volta_alone_is_a_small_wheel_for_every_python(tools: Path, tmp_path: Path) -> None:
    wheel_of(VOLTA, tools, tmp_path, {})
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name == "vllm_volta-0.27.1-py3-none-any.whl"
    assert_holds_vllm_volta(wheel)
    assert {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()} == {
        "vllm_volta",
        "vllm_volta-0.27.1.dist-info",
    }


def test_a_wheel_with_kernels_is_not_made_where_no_compiler_is(tools: Path, tmp_path: Path) -> None:
    toolkit = tmp_path / "no-toolkit"
    toolkit.mkdir()
    with pytest.raises(subprocess.CalledProcessError) as raised:
        wheel_of(VOLTA, tools, tmp_path, {"VLLM_VOLTA_CUDA": "1", "CUDAToolkit_ROOT": str(toolkit)})
    assert re.search("Could not find `?nvcc`? executable", raised.value.stdout), raised.value.stdout
    assert list(tmp_path.glob("*.whl")) == []


@pytest.fixture
def torch_headers(engine_runtime: NativeRuntime) -> Path:
    """Those of a real torch; its stable interface is the same in builds for CPUs."""
    [headers] = engine_runtime.directory.glob("lib/python3*/site-packages/torch/include")
    return headers


HOST_SOURCES = sorted((VOLTA / "csrc").glob("*.cpp"))
GPP = ("g++", "-fsyntax-only", "-Wall", "-Wextra", "-Werror")
# To the files in which nvcc's host compiler would go on: its own front end has read all of the source then.
NVCC = (str(TOOLKIT_13 / "bin" / "nvcc"), "-x", "cu", "--cuda", "-arch=sm_75")


@pytest.mark.engine
@pytest.mark.parametrize("source", HOST_SOURCES, ids=lambda path: path.name)
@pytest.mark.parametrize(
    ("compiler", "cuda_headers"),
    [
        pytest.param(GPP, HEADERS, id="g++, CUDA 12.6"),
        pytest.param(GPP, (TOOLKIT_13 / "include",), id="g++, CUDA 13.0"),
        pytest.param(NVCC, (), id="nvcc 13.0"),
    ],
)
def test_the_hosts_part_compiles_against_torch_without_a_warning(
    torch_headers: Path, tmp_path: Path, source: Path, compiler: tuple[str, ...], cuda_headers: tuple[Path, ...]
) -> None:
    """Each source of the extension, by the compilers that build it: for CUDA 12.6 in images, for 13.0 where it is
    tried."""
    code = tmp_path / "code.ptx"
    code.write_text("device code", encoding="utf-8")
    command = [*compiler, "-std=c++20", "-DUSE_CUDA", "-DPy_LIMITED_API=3"]
    command += ["-DTORCH_TARGET_VERSION=0x020B000000000000ULL", f'-DVLLM_VOLTA_DEVICE_CODE="{code}"']
    headers = (torch_headers, Path(sysconfig.get_path("include")), *cuda_headers)
    command += [option for header in headers for option in ("-isystem", str(header))]
    done = subprocess.run([*command, str(source)], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_nvcc_takes_the_device_code_as_the_build_gives_it(cache: Cache, tmp_path: Path) -> None:
    """nvcc 13.0 has no 7.0: it compiles the same file, by the same command, for the next architecture that it has.

    That takes a minute, so it is done once for the same sources, command and compiler.
    """
    rule = re.search(r"COMMAND (\"\$\{NVCC\}\" .*?)\n *DEPENDS", KERNELS_CMAKE.read_text(encoding="utf-8"), re.DOTALL)
    assert rule is not None
    text = re.sub(r"_70\b", "_75", rule[1])
    values = {"NVCC": NVCC[0], "_HOST": "g++", "_CODE": str(tmp_path / "code"), "_CSRC": str(VOLTA / "csrc")}
    command = [re.sub(r"\$\{(\w+)\}", lambda found: values[found[1]], word) for word in shlex.split(text)]

    def make(path: Path) -> None:
        done = subprocess.run(command, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        shutil.copyfile(tmp_path / "code", path)

    version = subprocess.run([NVCC[0], "--version"], capture_output=True, text=True, check=True).stdout
    texts = [path.read_text(encoding="utf-8") for path in sources_of(VOLTA / "csrc" / "device_code.cu")]
    code = cache.entry("volta-nvcc.fatbin", (version, text, *texts), make)
    assert set(SELFTEST["device_code"](code.read_bytes())) == {(SELFTEST["CUBIN"], 75)}


IMPORT = """
import ctypes, os, pathlib, sys, torch
# The stand-in for torch's CMake configuration links nothing, and what this torch for CPUs lacks may stay missing.
ctypes.CDLL(str(pathlib.Path(torch.__file__).with_name("lib") / "libtorch_cpu.so"), ctypes.RTLD_GLOBAL)
sys.setdlopenflags(os.RTLD_LAZY)
sys.path.insert(0, sys.argv[1])
import vllm_volta._C
print([name for name in sys.argv[2:] if not torch._C._dispatch_has_kernel_for_dispatch_key(name, "CUDA")])
"""


@pytest.mark.engine
def test_cmake_builds_the_extension_where_python_looks_for_it(
    patched: Build, torch_headers: Path, engine_runtime: NativeRuntime, tmp_path: Path
) -> None:
    """As setup.py goes on after configuring; nvcc's part is done by NVRTC and ptxas."""
    log = patched.configure(["7.0"], tmp_path / "build", headers=(torch_headers, *HEADERS))
    assert "Build files have been written to" in log, log[-3000:]
    cmake, target = str(patched.bin / "cmake"), "vllm_volta._C"
    environment = patched.environment("7.0", "12.6")
    subprocess.run([cmake, "--build", str(tmp_path / "build"), f"--target={target}"], env=environment, check=True)
    prefix = tmp_path / "lib"
    install = [cmake, "--install", str(tmp_path / "build"), "--prefix", str(prefix), "--component", target]
    subprocess.run(install, env=environment, check=True)
    (installed,) = (path for path in prefix.rglob("*") if path.is_file())
    assert installed == prefix / "vllm_volta" / "_C.abi3.so"
    held = SELFTEST["section"](installed.read_bytes(), b".nv_fatbin")
    assert set(SELFTEST["device_code"](held)) == {(SELFTEST["CUBIN"], 70)}
    assert (tmp_path / "build" / "vllm_volta" / "device_code.fatbin").read_bytes() in held
    # There is no driver on this machine, nor is one looked for.
    (prefix / "vllm_volta" / "__init__.py").touch()
    checked = load_recipe("vllm-patched-cuda").selftest["operators"]
    operators = [name for name in checked if name.startswith("vllm_volta::")]
    python = str(engine_runtime.directory / "bin" / "python")
    # -B: leaves no compiled file beside the extension.
    done = subprocess.run([python, "-B", "-c", IMPORT, str(prefix), *operators], capture_output=True, text=True)
    assert (done.stdout, len(operators)) == ("[]\n", 10), done.stderr
    (prefix / "vllm_volta" / "__init__.py").unlink()
    for name in EXTERNAL:
        component = name.removeprefix("vllm.").removeprefix("vllm_flash_attn.")
        subprocess.run([*install[:-1], component], env=environment, check=True)
    assert [path for path in prefix.rglob("*") if path.is_file()] == [installed]


def wheel_of(source: Path, tools: Path, into: Path, variables: dict[str, str]) -> None:
    """Build a wheel with the given tools, from a folder that must stay as it is."""
    before = sorted(path for path in source.rglob("*") if "__pycache__" not in path.parts)
    command = [str(tools / "pip"), "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(into), str(source)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("CUDA", "VLLM"))}
    environment |= {"PATH": f"{tools}:/usr/bin:/bin"} | variables
    try:
        subprocess.run(
            command, env=environment, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
    finally:
        assert sorted(path for path in source.rglob("*") if "__pycache__" not in path.parts) == before


def assert_holds_vllm_volta(wheel: Path) -> None:
    """The modules, as they are, and the entry point; nothing of the sources of the kernels."""
    archive = zipfile.ZipFile(wheel)
    held = {name for name in archive.namelist() if name.startswith("vllm_volta/")}
    assert held == {f"vllm_volta/{path.relative_to(VOLTA)}" for path in VOLTA.rglob("*.py")}
    (distribution,) = metadata.distributions(path=[str(wheel)])
    plugins = {entry.name: entry.value for entry in distribution.entry_points if entry.group == "vllm.general_plugins"}
    assert plugins["volta"] == PLUGIN
