"""The operators for attention, compiled against a real torch, above a driver that writes down what is asked of it: what
they refuse, what they start with which pointers and sizes. torch's tensors on the CPU pass for a GPU's there."""

from __future__ import annotations

import json
import subprocess
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from onecat.patching.series import ADDED, load_series
from tests.testbed.cache import Cache
from tests.testbed.volta_bindings import checks
from tests.unit.volta.compiled import cached_ptx
from tests.unit.volta.device_compiler import HEADERS

if TYPE_CHECKING:
    from onecat.images import NativeRuntime

HERE = Path(__file__).parent / "volta_bindings"
CSRC = load_series("vllm-0.27.1").directory / ADDED / "vllm_volta" / "csrc"
RECORDING = Path(__file__).parents[1] / "unit" / "volta_launch" / "recording_cuda.cpp"


@pytest.fixture(scope="module")
def answers(engine_runtime: NativeRuntime, cache: Cache, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What is wrong with each claim of volta_bindings/checks.py, by its name; None for nothing."""
    folder = tmp_path_factory.mktemp("bindings")
    [torch] = engine_runtime.directory.glob("lib/python3*/site-packages/torch")
    code, library = folder / "code.ptx", folder / "operators.so"
    code.write_text(cached_ptx(cache, CSRC / "device_code.cu").rstrip("\0"), encoding="utf-8")
    names = ("attention_launch.cpp", "kernels.cpp", "driver.cpp", "device_code.cpp")
    headers = (torch / "include", Path(sysconfig.get_path("include")), *HEADERS)
    # -Bsymbolic: what the library has itself comes before what torch has of the same name.
    command = ["g++", "-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-Wl,-Bsymbolic"]
    command += ["-DUSE_CUDA", "-DTORCH_TARGET_VERSION=0x020B000000000000ULL", f'-DVLLM_VOLTA_DEVICE_CODE="{code}"']
    command += [f"-I{CSRC}", *(option for header in headers for option in ("-isystem", str(header)))]
    command += [str(HERE / "torch_of_a_gpu.cpp"), str(RECORDING), *(str(CSRC / name) for name in names)]
    command += ["-o", str(library), f"-L{torch / 'lib'}", "-ltorch_cpu", f"-Wl,-rpath,{torch / 'lib'}"]
    subprocess.run(command, check=True)
    program = [str(engine_runtime.python), "-B", str(HERE / "checks.py"), str(library)]
    done = subprocess.run(program, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.engine
@pytest.mark.parametrize("claim", checks.CHECKS)
def test_what_the_operators_for_attention_do(claim: str, answers: dict[str, str | None]) -> None:
    assert answers[claim] is None, answers[claim]
