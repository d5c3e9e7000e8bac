"""Stand-ins for what a build of the patched engine takes from elsewhere and nobody can fetch here.

The base images of the CUDA profiles: Debian 12 with Python 3.12 as packages, GCC 12, and an nvcc that has a release.
A folder for --find-links: a PyTorch that says what the real one says about architectures, the real Triton and the real
build tools, and CUTLASS's name. An engine of a few lines, whose extensions hold real machine code for a GPU.
"""

from __future__ import annotations

import base64
import hashlib
import inspect
import io
import os
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.testbed.base_image import BASE_TAG
from tests.testbed.cache import Cache
from tests.unit.volta.device_compiler import PTXAS

RUNTIME_TAG = "onecat-test/cuda-runtime:12.6"
DEVEL_TAG = "onecat-test/cuda-devel:12.6"
PYTHON = "3.12"
SYSTEM_PACKAGES = "ccache g++ g++-12 gcc git libc6-dev make patch"
BUILD_TOOLS = (
    "cmake>=3.26.1 jinja2>=3.1.6 ninja packaging>=24.2 protobuf>=5.29.6 regex setuptools-rust>=1.9.0 "
    "setuptools-scm>=8 setuptools>=77.0.3,<81.0.0 wheel triton==3.7.1"
)

RUNTIME_DOCKERFILE = f"""\
FROM {BASE_TAG}
RUN apt-get -qq update \\
 && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends {SYSTEM_PACKAGES} \\
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb /usr/local/bin/python
COPY debs/ /debs/
RUN dpkg --install /debs/*.deb && rm -rf /debs
"""
NVCC = """\
#!/bin/sh
echo "nvcc: NVIDIA (R) Cuda compiler driver"
echo "Cuda compilation tools, release 12.6, V12.6.85"
"""
DEVEL_DOCKERFILE = f"FROM {RUNTIME_TAG}\nCOPY nvcc /usr/local/cuda/bin/nvcc\n"


def ensure_cuda_images(docker_client: Any, cache: Cache) -> None:
    """The stand-ins for a runtime and a devel image, built where they are missing."""
    prefix = python_prefix()
    debs = cache.entry("python-debs.tar", (str(prefix), (prefix / "bin" / "python3.12").read_bytes()), pack_python)
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(debs) as archive:
            archive.extractall(Path(folder) / "debs", filter="data")
        build(docker_client, Path(folder), RUNTIME_DOCKERFILE, RUNTIME_TAG)
    with tempfile.TemporaryDirectory() as folder:
        nvcc = Path(folder) / "nvcc"
        nvcc.write_text(NVCC)
        nvcc.chmod(0o755)
        build(docker_client, Path(folder), DEVEL_DOCKERFILE, DEVEL_TAG)


def build(docker_client: Any, folder: Path, dockerfile: str, tag: str) -> None:
    import docker

    (folder / "Dockerfile").write_text(dockerfile)
    for path in folder.rglob("*"):
        os.utime(path, (315532800, 315532800))
    try:
        docker_client.images.build(path=str(folder), tag=tag, rm=True, network_mode="host")
    except docker.errors.BuildError as error:
        log = "".join(str(line.get("stream", "")) for line in error.build_log)
        raise RuntimeError(f"{tag} could not be built:\n{log}") from error


def python_prefix() -> Path:
    """Where pyenv has a Python 3.12; fails the test where there is none."""
    root = os.environ.get("PYENV_ROOT")
    if root is None and shutil.which("pyenv"):
        root = subprocess.run(["pyenv", "root"], capture_output=True, text=True, check=True).stdout.strip()
    for prefix in sorted(Path(root or "/nonexistent").glob(f"versions/{PYTHON}.*")):
        if (prefix / "bin" / f"python{PYTHON}").is_file():
            return prefix
    pytest.fail(f"there is no Python {PYTHON} of pyenv: pyenv install {PYTHON}", pytrace=False)


def pack_python(archive: Path) -> None:
    """python3.12, python3.12-dev and python3.12-venv as Debian packages, in one tar archive."""
    prefix = python_prefix()
    library = f"lib/python{PYTHON}"
    left_out = ("__pycache__", "test", "tests", "site-packages", "idlelib", "tkinter", "ensurepip", "config-*")
    with tempfile.TemporaryDirectory() as scratch:
        roots = {name: Path(scratch) / name for name in ("", "-dev", "-venv")}
        usr = {name: root / "usr" for name, root in roots.items()}
        for folder in (usr[""] / "bin", usr["-dev"] / "include"):
            folder.mkdir(parents=True)
        shutil.copytree(prefix / library, usr[""] / library, ignore=shutil.ignore_patterns(*left_out))
        shutil.copy2(prefix / "bin" / f"python{PYTHON}", usr[""] / "bin")
        for path in (prefix / "lib").glob(f"libpython{PYTHON}.so*"):
            shutil.copy2(path, usr[""] / "lib", follow_symlinks=False)
        include = f"include/python{PYTHON}"
        shutil.copytree(prefix / include, usr["-dev"] / include)
        ensurepip = f"{library}/ensurepip"
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(prefix / ensurepip, usr["-venv"] / ensurepip, ignore=ignore)
        debs = Path(scratch) / "debs"
        debs.mkdir()
        for name, root in roots.items():
            depends = f"Depends: python{PYTHON}\n" if name else ""
            (root / "DEBIAN").mkdir()
            (root / "DEBIAN" / "control").write_text(
                f"Package: python{PYTHON}{name}\nVersion: {prefix.name}-1\nArchitecture: amd64\n{depends}"
                "Maintainer: onecat's tests <tests@onecat.invalid>\nDescription: Python for onecat's tests\n"
            )
            subprocess.run(
                ["dpkg-deb", "-Zgzip", "-z1", "--root-owner-group", "--build", str(root), str(debs)],
                check=True,
                stdout=subprocess.DEVNULL,
            )
        with tarfile.open(archive, "w") as made:
            for path in sorted(debs.iterdir()):
                made.add(path, path.name)


def write_wheel(
    folder: Path,
    name: str,
    version: str,
    files: Mapping[str, str | bytes],
    metadata: str = "",
    tag: str = "py3-none-any",
) -> Path:
    """A wheel of these files, with RECORD. metadata: more lines of METADATA."""
    info = f"{name}-{version}.dist-info"
    contents = {path: data.encode() if isinstance(data, str) else data for path, data in files.items()}
    contents[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{metadata}".encode()
    contents[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    rows = [f"{path},sha256={_digest(data)},{len(data)}" for path, data in contents.items()]
    contents[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
    path = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, data in contents.items():
            archive.writestr(zipfile.ZipInfo(member, (1980, 1, 1, 0, 0, 0)), data)
    return path


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


TORCH = """
__version__ = "2.13.0+cu126"
from torch import _C, cuda, version
"""
TORCH_FILES = {
    "torch/__init__.py": TORCH,
    "torch/version.py": 'cuda = "12.6"\n',
    # Of the real wheel's own list for CUDA 12.6 (pytorch's .ci/manywheel/build_cuda.sh).
    "torch/cuda.py": "",
    "torch/_C.py": (
        "def _cuda_getArchFlags():\n    return 'sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90'\n\n"
        "registered = set()\n\ndef _dispatch_has_kernel_for_dispatch_key(name, key):\n"
        "    return key == 'CUDA' and name in registered\n"
    ),
}


def make_find_links(folder: Path, cache: Cache) -> None:
    """Fill a folder with all that the build's pip and git would fetch."""

    def download(archive: Path) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            command = [sys.executable, "-m", "pip", "download", "-qq", "--only-binary", ":all:", "--dest", scratch]
            platforms = [f"--platform=manylinux_{glibc}_x86_64" for glibc in ("2_17", "2_27", "2_28")]
            command += ["--python-version", PYTHON, *platforms, "--platform=manylinux2014_x86_64", *BUILD_TOOLS.split()]
            subprocess.run(command, check=True)
            [triton] = Path(scratch).glob("triton-*.whl")
            lighten(triton)
            with tarfile.open(archive, "w") as made:
                for path in sorted(Path(scratch).iterdir()):
                    made.add(path, path.name)

    made_by = inspect.getsource(lighten) + NOT_NEEDED.pattern
    with tarfile.open(cache.entry("cuda-build-tools.tar", (PYTHON, BUILD_TOOLS, made_by), download)) as archive:
        archive.extractall(folder, filter="data")
    tag = "cp312-cp312-linux_x86_64"
    write_wheel(folder, "torch", "2.13.0+cu126", TORCH_FILES, "Requires-Dist: triton==3.7.1\n", tag)
    (folder / "cutlass-4.4.2.tar.gz").write_bytes(archive_of({"cutlass-4.4.2/CMakeLists.txt": b"project(cutlass)\n"}))


NOT_NEEDED = re.compile(
    r"triton/(backends/nvidia/lib/cupti/|.*ptxas-blackwell$|_C/libproton|plugins/|instrument|FileC)"
)


def lighten(wheel: Path) -> None:
    """Take out of Triton's wheel what compiling for Volta does not touch, and debug symbols: a third is left."""
    with tempfile.TemporaryDirectory() as scratch, zipfile.ZipFile(wheel) as archive:
        archive.extractall(scratch)
        library = Path(scratch) / "triton" / "_C" / "libtriton.so"
        subprocess.run(["strip", "--strip-unneeded", str(library)], check=True)
        members = [member for member in archive.infolist() if not NOT_NEEDED.match(member.filename)]
        with zipfile.ZipFile(Path(scratch) / "light", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as made:
            for member in members:
                if not member.is_dir():
                    made.writestr(member, (Path(scratch) / member.filename).read_bytes(), compresslevel=1)
        shutil.move(Path(scratch) / "light", wheel)


def archive_of(files: Mapping[str, bytes]) -> bytes:
    """A tar.gz of these files, the same bytes each time."""
    import gzip

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as made:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(data), 315532800
            made.addfile(info, io.BytesIO(data))
    return gzip.compress(buffer.getvalue(), mtime=0)


def fatbin(architecture: int, folder: Path) -> bytes:
    """A fat binary as nvcc embeds it, with machine code for one architecture that ptxas has made."""
    source, made = folder / f"{architecture}.ptx", folder / f"{architecture}.cubin"
    source.write_text(
        f".version 8.5\n.target sm_{architecture}\n.address_size 64\n.visible .entry nothing()\n{{\n    ret;\n}}\n"
    )
    subprocess.run([str(PTXAS), f"--gpu-name=sm_{architecture}", f"--output-file={made}", str(source)], check=True)
    return fat_binary(made.read_bytes(), architecture)


def fat_binary(code: bytes, architecture: int) -> bytes:
    """A fat binary, as nvcc makes it, of machine code for one architecture."""
    code += b"\0" * (-len(code) % 8)
    entry = struct.pack("<HHIQIIHHIIIQQQ", 2, 0x101, 64, len(code), 0, 0, 7, 1, architecture, 0, 0, 0x11, 0, 0)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entry) + len(code)) + entry + code


OPERATORS = {
    "vllm._C_stable_libtorch": (
        "_C::rms_norm",
        "_C::silu_and_mul",
        "_C::rotary_embedding",
        "_C::gptq_gemm",
        "_C_cache_ops::reshape_and_cache",
    ),
    "vllm._moe_C_stable_libtorch": ("_moe_C::topk_softmax",),
    "vllm_volta._C": (
        "vllm_volta::dequantize_nvfp4",
        "vllm_volta::dequantize_fp8",
        "vllm_volta::nvfp4_panels",
        "vllm_volta::fp8_panels",
        "vllm_volta::dequantize_nvfp4_panels",
        "vllm_volta::dequantize_fp8_panels",
        "vllm_volta::panel_fragments",
        "vllm_volta::write_cache",
        "vllm_volta::paged_attention",
        "vllm_volta::attention_workspace",
    ),
}
EXTENSION = """\
#include <Python.h>
__asm__(".section .nv_fatbin, \\"a\\"\\n.balign 8\\n.incbin \\"FATBIN\\"\\n.previous\\n");
int cuDriverGetVersion(int *version);
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "NAME", NULL, -1, NULL};
PyMODINIT_FUNC PyInit_NAME(void) {
    int version;
    cuDriverGetVersion(&version);
    if (PyRun_SimpleString("import torch; torch._C.registered.update('OPERATORS'.split())")) return NULL;
    return PyModule_Create(&module);
}
"""
SETUP = """\
import os
import subprocess
from pathlib import Path

import torch
from setuptools import Extension, setup

root = Path(__file__).resolve().parent
assert os.environ["TORCH_CUDA_ARCH_LIST"] == "7.0" and os.environ["VLLM_TARGET_DEVICE"] == "cuda"
assert os.environ["MAX_JOBS"] == "3" and os.environ["CC"] == "gcc-12"
assert (Path(os.environ["VLLM_CUTLASS_SRC_DIR"]) / "CMakeLists.txt").is_file()
assert torch.__version__ == "2.13.0+cu126"
assert "patched" in (root / "vllm" / "__init__.py").read_text(), "the patches come before the compiler"
(root / "driver.c").write_text("int cuDriverGetVersion(int *v) { return 0; }")
command = ["gcc-12", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", "libcuda.so", "driver.c"]
subprocess.run(command, cwd=root, check=True)


def extension(name):
    return Extension(name, ["csrc/" + name + ".c"], library_dirs=[str(root)], libraries=["cuda"])


setup(
    name="vllm",
    version=os.environ["VLLM_VERSION_OVERRIDE"],
    packages=["vllm", "vllm.entrypoints", "vllm.entrypoints.cli", "vllm_volta"],
    ext_modules=[extension(path.stem) for path in sorted((root / "csrc").glob("*.c"))],
    entry_points={
        "console_scripts": ["vllm = vllm.entrypoints.cli.main:main"],
        "vllm.general_plugins": ["volta = vllm_volta.plugin:register"],
    },
    install_requires=["torch==2.13.0"],
)
"""
PATCH = """\
--- a/vllm/__init__.py
+++ b/vllm/__init__.py
@@ -1 +1 @@
-state = "as released"
+state = "patched"
"""


def write_series(directory: Path) -> Path:
    """A series of one patch and added files for an engine of a few lines; the engine's source archive lies beside it.

    Returns the path of the archive.
    """
    directory.mkdir()
    code = fatbin(70, directory)
    files = {
        "pyproject.toml": b'[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n',
        "setup.py": SETUP.encode(),
        "CMakeLists.txt": b'set(CUTLASS_REVISION "v4.4.2")\nFetchContent_Declare(\n  cutlass\n'
        b"  GIT_REPOSITORY https://git.example/cutlass.git\n  GIT_TAG ${CUTLASS_REVISION}\n)\n",
        "csrc/code.fatbin": code,
        "vllm/__init__.py": b'state = "as released"\n',
        "vllm/entrypoints/__init__.py": b"",
        "vllm/entrypoints/cli/__init__.py": b"",
        "vllm/entrypoints/cli/main.py": b"import sys\n\n\ndef main():\n    print('stand-in', *sys.argv[1:])\n",
    }
    for name, operators in OPERATORS.items():
        text = EXTENSION.replace("NAME", name.rpartition(".")[2]).replace("OPERATORS", " ".join(operators))
        files[f"csrc/{name}.c"] = text.replace("FATBIN", "csrc/code.fatbin").encode()
    archive = directory.parent / "vllm-0.27.1.tar.gz"
    archive.write_bytes(archive_of({f"vllm-0.27.1/{name}": data for name, data in files.items()}))
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    (directory / "upstream.yaml").write_text(
        f"distribution: vllm\nversion: 0.27.1\nfile: {archive.name}\nsha256: {sha256}\nlicence: Apache-2.0\n"
    )
    (directory / "series.yaml").write_text(
        "patches:\n- {file: 0001-state.patch, purpose: say that it is patched, author: onecat, reference: not sent, "
        "drop_when: never}\n"
    )
    (directory / "0001-state.patch").write_text(PATCH)
    package = directory / "add" / "vllm_volta"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "plugin.py").write_text("def register():\n    pass\n")
    for scratch in directory.glob("70.*"):
        scratch.unlink()
    return archive
