"""The driver as its files show it."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onecat.facts import Nvidia
from onecat.probe.agent.sources import files
from tests.testbed.host_tree import HostTree
from tests.unit.probe.test_agent import observe

KERNEL = "5.15.0-122-generic"
ELF_64 = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
DRIVER = "/usr/lib/x86_64-linux-gnu"
COMPAT = "/usr/local/cuda-13.1/compat"


def nvidia(tree: HostTree, root: Path) -> Nvidia:
    # What the machine of the tests has in its own LD_LIBRARY_PATH is not meant.
    facts = observe(tree.write(root), environment={"PATH": "/usr/bin"}).nvidia
    assert facts is not None
    return facts


def loader_cache(*libraries: tuple[str, str], older_format_first: bool = False) -> bytes:
    """/etc/ld.so.cache as ldconfig writes it: pairs of name and path."""
    texts, entries = b"", b""
    start = 48 + 24 * len(libraries)
    for name, path in libraries:
        key = start + len(texts)
        texts += name.encode() + b"\0"
        entries += struct.pack("=iIIIQ", 0x0303, key, start + len(texts), 0, 0)
        texts += path.encode() + b"\0"
    header = b"glibc-ld.so.cache1.1" + struct.pack("=II", len(libraries), len(texts)) + bytes(20)
    return (b"ld.so-1.7.0\0" + bytes(4) if older_format_first else b"") + header + entries + texts


def kernel_module(version: str) -> bytes:
    """The part of an ELF file that carries a module's version."""
    names = b"\0.modinfo\0.shstrtab\0"
    entries = f"license=NVIDIA\0version={version}\0srcversion=ABC\0".encode()
    sections = [
        bytes(64),
        struct.pack("<IIQQQQIIQQ", 1, 1, 0, 0, 64, len(entries), 0, 0, 1, 0),
        struct.pack("<IIQQQQIIQQ", 10, 3, 0, 0, 64 + len(entries), len(names), 0, 0, 1, 0),
    ]
    table = 64 + len(entries) + len(names)
    header = struct.pack("<16sHHIQQQIHHHHHH", ELF_64, 1, 62, 1, 0, 0, table, 0, 64, 0, 0, 64, len(sections), 2)
    return header + entries + names + b"".join(sections)


def put(root: Path, path: str, content: bytes) -> None:
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)


def library(root: Path, folder: str, name: str, version: str) -> tuple[str, str]:
    put(root, f"{folder}/{name}.{version}", ELF_64)
    (root / folder.lstrip("/") / f"{name}.1").symlink_to(f"{name}.{version}")
    return f"{name}.1", f"{folder}/{name}.1"


@pytest.mark.parametrize("older_format_first", [False, True])
def test_libraries_are_those_that_the_loader_takes(older_format_first: bool, tmp_path: Path) -> None:
    put(tmp_path, "/usr/lib/i386-linux-gnu/libcuda.so.1", b"\x7fELF\x01")
    entries = [
        ("libcuda.so.1", "/usr/lib/i386-linux-gnu/libcuda.so.1"),
        ("libcuda.so.1.1", "/nowhere"),
        library(tmp_path, DRIVER, "libcuda.so", "580.95.05"),
        library(tmp_path, DRIVER, "libnvidia-ml.so", "580.95.05"),
    ]
    put(tmp_path, files.LOADER_CACHE, loader_cache(*entries, older_format_first=older_format_first))
    facts = nvidia(HostTree(), tmp_path)
    assert (facts.library_version, facts.cuda_library_version) == ("580.95.05", "580.95.05")
    assert facts.compat_libraries == ()


@pytest.mark.parametrize(("compat_first", "found"), [(True, (f"{COMPAT}/libcuda.so.1",)), (False, ())])
def test_compatibility_libraries_count_when_the_loader_sees_them_first(
    compat_first: bool, found: tuple[str, ...], tmp_path: Path
) -> None:
    own = library(tmp_path, DRIVER, "libcuda.so", "580.95.05")
    compat = library(tmp_path, COMPAT, "libcuda.so", "590.44.01")
    put(tmp_path, files.LOADER_CACHE, loader_cache(*([compat, own] if compat_first else [own, compat])))
    facts = nvidia(HostTree(), tmp_path)
    assert facts.compat_libraries == found
    assert facts.cuda_library_version == ("590.44.01" if compat_first else "580.95.05")


def test_a_host_without_libraries_has_no_versions(tmp_path: Path) -> None:
    facts = nvidia(HostTree(driver=None, gpus=()), tmp_path)
    assert (facts.library_version, facts.cuda_library_version, facts.device_files) == (None, None, ())
    assert (facts.dev_char_links, facts.persistence_daemon, facts.fabric_manager) == (None, None, None)


def test_the_module_on_disk_is_what_dkms_built_for_this_kernel(tmp_path: Path) -> None:
    for version, kernel in (("570.211.01", "5.15.0-91-generic"), ("580.105.08", KERNEL)):
        put(tmp_path, f"/var/lib/dkms/nvidia/{version}/{kernel}/x86_64/module/nvidia.ko.zst", b"")
    facts = nvidia(HostTree(), tmp_path)
    assert (facts.kernel_module_version, facts.kernel_module_file_version) == ("580.95.05", "580.105.08")


@pytest.mark.parametrize("folder", ["kernel/drivers/video", "updates/dkms", "kernel/nvidia-580"])
def test_the_module_on_disk_says_its_version(folder: str, tmp_path: Path) -> None:
    put(tmp_path, f"/lib/modules/{KERNEL}/{folder}/nvidia.ko", kernel_module("580.105.08"))
    assert nvidia(HostTree(), tmp_path).kernel_module_file_version == "580.105.08"


@pytest.mark.parametrize("content", [b"", b"\x28\xb5\x2f\xfd compressed", kernel_module("1.2")[:100], b"\x7fELF" * 30])
def test_a_module_that_cannot_be_read_has_no_version(content: bytes, tmp_path: Path) -> None:
    put(tmp_path, "nvidia.ko", content)
    assert files.module_version(str(tmp_path / "nvidia.ko")) is None


CACHE = loader_cache(("libcuda.so.1", f"{DRIVER}/libcuda.so.1"))
MODULE = kernel_module("580.95.05")


@given(st.binary(max_size=200), st.integers(0, len(MODULE)), st.integers(0, len(MODULE)))
def test_no_damaged_file_makes_the_agent_stumble(noise: bytes, where: int, length: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "file"
        for content in (MODULE, CACHE):
            place.write_bytes((content[:where] + noise + content[where + len(noise) :])[: length or None])
            version = files.module_version(str(place))
            assert version is None or isinstance(version, str)
            paths = files.read_cache(lambda path: str(place), "libcuda.so.1")
            assert all(isinstance(path, str) for path in paths)


def test_the_cache_of_this_test_is_read(tmp_path: Path) -> None:
    put(tmp_path, "cache", CACHE)
    assert files.read_cache(lambda path: str(tmp_path / "cache"), "libcuda.so.1") == [f"{DRIVER}/libcuda.so.1"]


@pytest.mark.parametrize("links", [True, False])
def test_links_to_device_files_are_looked_for(links: bool, tmp_path: Path) -> None:
    facts = nvidia(HostTree(dev_char_links=links), tmp_path)
    assert facts.device_files == (
        "/dev/nvidia-uvm",
        "/dev/nvidia-uvm-tools",
        "/dev/nvidia0",
        "/dev/nvidia1",
        "/dev/nvidiactl",
    )
    assert facts.dev_char_links is links


@pytest.mark.parametrize(
    ("tree", "runs"),
    [
        (HostTree(), False),
        (HostTree(processes=((812, "nvidia-persiste"),)), True),
        (HostTree(other_files=(("var/run/nvidia-persistenced/socket", ""),)), True),
    ],
)
def test_the_persistence_daemon_is_found_by_its_socket_or_name(tree: HostTree, runs: bool, tmp_path: Path) -> None:
    assert nvidia(tree, tmp_path).persistence_daemon is runs


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize("installed", [True, False])
def test_where_there_are_nvswitches_the_fabric_manager_runs_or_not(
    installed: bool, running: bool, tmp_path: Path
) -> None:
    if installed:
        put(tmp_path, "/usr/bin/nv-fabricmanager", b"")
        (tmp_path / "usr/bin/nv-fabricmanager").chmod(0o755)
    files_of_switches = () if installed else ("nvidiactl", "nvidia-nvswitchctl", "nvidia-nvswitch0")
    processes = ((900, "nv-fabricmanage"),) if running else ()
    manager = nvidia(HostTree(device_files=files_of_switches, processes=processes), tmp_path).fabric_manager
    assert manager is not None and manager.running is running


def test_each_toolkit_is_named_once(tmp_path: Path) -> None:
    put(tmp_path, "/usr/local/cuda-12.8/bin/nvcc", b"")
    put(tmp_path, "/usr/local/cuda-12.8/version.json", b'{"cuda": {"name": "CUDA SDK", "version": "12.8.1"}}')
    put(tmp_path, "/usr/local/cuda-10.1/bin/nvcc", b"")
    put(tmp_path, "/usr/local/cuda-10.1/version.txt", b"CUDA Version 10.1.243\n")
    put(tmp_path, "/usr/local/cuda-13.1/compat/libcuda.so.1", b"")
    (tmp_path / "usr/local/cuda").symlink_to("cuda-12.8")
    put(tmp_path, "/usr/bin/nvcc", b"")
    put(tmp_path, "/usr/include/cuda.h", b"#define CUDA_VERSION 11080\n")
    assert nvidia(HostTree(), tmp_path).toolkits == (
        ("/usr", "11.8"),
        ("/usr/local/cuda-10.1", "10.1.243"),
        ("/usr/local/cuda-12.8", "12.8.1"),
    )
