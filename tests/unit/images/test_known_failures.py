"""Each known build failure is found in the words of a real tool, and a healthy build shows none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from onecat.images.known_failures import explain
from onecat.knowledge.build_failures import build_failures

FIXTURES = Path(__file__).parents[2] / "fixtures" / "build_logs"
BUILD = "onecat build --profile v100x2-pcie"
VALUES = {"profile": "v100x2-pcie", "build": BUILD, "jobs": "8", "max_jobs": "4"}

# What stands at the end of the step's output, as the tools word it, and the row that must be found.
LOGS: dict[str, list[tuple[str, str]]] = {
    "disk.full": [
        ("tar: vllm/config/model.py: Cannot write: No space left on device", "docker builder prune"),
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "docker system df"),
        ("E: You don't have enough free space in /var/cache/apt/archives/.", "docker system df"),
    ],
    "compiler.killed": [
        (
            "g++: fatal error: Killed signal terminated program cc1plus\ncompilation terminated.",
            f"{BUILD} --max-jobs 4",
        ),
        ("nvcc error   : 'cicc' died due to signal 9 (Kill signal)", f"{BUILD} --max-jobs 4"),
        ("[131/214] Building CUDA object csrc/x.cu.o\nKilled\nninja: build stopped.", "--max-jobs 4"),
        ("/bin/sh: line 1:    71 Killed                  /usr/local/cuda/bin/nvcc -c x.cu", "--max-jobs 4"),
        (
            "subprocess.CalledProcessError: Command '['cmake', '--build', '.', '-j=8', '--target=_C']' "
            "died with <Signals.SIGKILL: 9>.",
            "--max-jobs 4",
        ),
    ],
    "network.name": [
        ("curl: (6) Could not resolve host: mirror.example", "--proxy"),
        ("W: Failed to fetch http://mirror.example/x  Temporary failure resolving 'mirror.example'", "--apt-mirror"),
        (
            "WARNING: Retrying (Retry(total=4)) after connection broken by 'NameResolutionError(\"<urllib3>: "
            "Failed to resolve 'index.example' ([Errno -3] Temporary failure in name resolution)\")': /simple/cmake/\n"
            "ERROR: Could not find a version that satisfies the requirement cmake (from versions: none)\n"
            "ERROR: No matching distribution found for cmake",
            "--offline",
        ),
        (
            "fatal: unable to access 'https://git.example/cutlass.git/': Could not resolve host: git.example",
            "--proxy",
        ),
    ],
    "network.certificate": [
        (
            "SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: "
            "self-signed certificate in certificate chain (_ssl.c:1000)'))",
            "--ca-certificate",
        ),
        (
            "fatal: unable to access 'https://git.example/cutlass.git/': server certificate verification failed. "
            "CAfile: none CRLfile: none",
            "--ca-certificate",
        ),
        ("curl: (60) SSL certificate problem: unable to get local issuer certificate", "--ca-certificate"),
    ],
    "network.proxy": [
        (
            "WARNING: Retrying after connection broken by 'ProxyError('Cannot connect to proxy.', "
            "OSError('Tunnel connection failed: 407 Proxy Authentication Required'))': /simple/torch/",
            "--no-proxy",
        ),
        ("curl: (56) Received HTTP code 503 from proxy after CONNECT", "--proxy"),
    ],
    "source.git": [
        (
            "fatal: unable to access 'https://git.example/cutlass.git/': Failed to connect to git.example port 443 "
            "after 130011 ms: Couldn't connect to server",
            "--find-links FOLDER",
        ),
        (
            "CMake Error: Failed to clone repository: 'https://git.example/nvidia/cutlass.git'",
            "",
        ),
    ],
    "network.unreachable": [
        ("connect to 192.0.2.1 port 443 failed: Network is unreachable", "--apt-mirror"),
        ("E: Failed to fetch http://mirror.example/g.deb  Could not connect to mirror.example:80", "--offline"),
    ],
    "hash.mismatch": [
        (
            "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. If you have updated",
            "patch verify",
        ),
        (
            "/build/vllm-0.27.1.tar.gz: FAILED\nsha256sum: WARNING: 1 computed checksum did NOT match",
            "--find-links",
        ),
    ],
    "index.torch": [
        (
            "ERROR: Could not find a version that satisfies the requirement torch==2.13.0+cu126 (from versions: "
            "2.13.0)\nERROR: No matching distribution found for torch==2.13.0+cu126",
            "--torch-index-url URL",
        ),
        (
            "    vllm 0.27.1 depends on torchvision==0.28.0\n"
            "    The user requested (constraint) torchvision==0.28.0+cu126",
            "--torch-index-url URL",
        ),
        (
            "selftest torch: FAILED\nonecat: found: torch 2.13.0+cu130 holds code for sm_75, sm_80",
            "--torch-index-url URL",
        ),
    ],
    "index.missing": [
        ("ERROR: No matching distribution found for setuptools-rust==1.11.1", "--extra-index-url"),
        ("E: Unable to locate package python3.12-dev", "--apt-mirror"),
    ],
    "patch.conflict": [
        (
            "Hunk #2 FAILED at 814.\n1 out of 3 hunks FAILED -- saving rejects to file setup.py.rej",
            "onecat patch verify",
        ),
        ("error: patch failed: CMakeLists.txt:118\nerror: CMakeLists.txt: patch does not apply", "onecat patch status"),
    ],
    "cuda.toolkit-drops-architecture": [
        ("nvcc fatal   : Unsupported gpu architecture 'compute_70'", "profile show v100x2-pcie"),
    ],
    "cuda.compiler-too-new": [
        (
            "crt/host_config.h:143:2: error: #error -- unsupported GNU version! gcc versions later "
            "than 13 are not supported! The nvcc flag '-allow-unsupported-compiler' can be used to override",
            "build_base",
        ),
    ],
    "cuda.version-mismatch": [
        (
            "The detected CUDA version (12.6) mismatches the version that was used to compile",
            "--torch-index-url",
        ),
    ],
    "cuda.toolkit-missing": [
        ("OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root.", "devel"),
        ("CMake Error: No CMAKE_CUDA_COMPILER could be found.", "devel"),
    ],
    "wheel.platform": [
        ("ERROR: vllm-0.27.1-cp311-cp311-linux_x86_64.whl is not a supported wheel on this platform.", "--wheel-only"),
    ],
    "selftest.failed": [("selftest device-code: FAILED\nonecat: found: vllm/_C.abi3.so has no code for sm_70", BUILD)],
    "docker.base-image": [
        (
            "pull access denied for nvidia/cuda, repository does not exist or may require 'docker login'",
            "docker pull nvidia/cuda",
        ),
        (
            "failed to solve: nvidia/cuda:12.6.3: failed to resolve source metadata for docker.io/nvidia/cuda:12.6.3: "
            "dial timeout",
            "docker save",
        ),
    ],
    "docker.buildkit-missing": [
        ("ERROR: BuildKit is enabled but the buildx component is missing or broken.", "--builder classic"),
    ],
}


@pytest.mark.parametrize(
    ("failure", "log", "step"), [(name, log, step) for name, rows in LOGS.items() for log, step in rows]
)
def test_a_known_failure_is_found_behind_ordinary_output(failure: str, log: str, step: str) -> None:
    ordinary = ["Collecting cmake>=3.26.1", "  Using cached cmake-4.1.0-py3-none-manylinux.whl"] * 40
    found = explain([*ordinary, *log.splitlines()], VALUES)
    assert found is not None and found.failure == failure
    assert any(step in each for each in found.fix), found.fix
    assert found.evidence and all(line in log for line in found.evidence)


@pytest.mark.parametrize("failure", build_failures(), ids=lambda failure: failure.id)
def test_each_row_has_its_test_its_source_and_texts_that_fill(failure: object) -> None:
    from onecat.knowledge.build_failures import BuildFailure

    assert isinstance(failure, BuildFailure)
    assert failure.id in LOGS, "a row without a log that shows it"
    assert failure.source and all(url.startswith("https://") for url in failure.source)
    for text in (failure.cause, *failure.fix):
        groups = {name.rstrip("0123456789") for pattern in failure.patterns for name in pattern.groupindex}
        assert set(re.findall(r"\{(\w+)\}", text)) <= groups | set(VALUES)


@pytest.mark.parametrize("log", sorted(FIXTURES.glob("healthy-*.log")), ids=lambda path: path.stem)
def test_a_healthy_log_shows_no_failure(log: Path) -> None:
    lines = log.read_text().splitlines()
    shown = [(failure.id, line) for failure in build_failures() for line in lines if failure_shows(failure, line)]
    assert not shown


def failure_shows(failure: object, line: str) -> bool:
    found = explain([line], VALUES)
    return found is not None and found.failure == failure.id  # type: ignore[attr-defined]


def test_the_cause_stands_before_its_consequences() -> None:
    """pip tells of a missing version where it only could not look up a name."""
    lines = [
        "WARNING: Retrying (...): Temporary failure in name resolution",
        "ERROR: No matching distribution found for torch==2.13.0+cu126",
    ]
    found = explain(lines, VALUES)
    assert found is not None and found.failure == "network.name"


def test_what_nothing_was_found_for_is_left_to_be_filled_in() -> None:
    found = explain(["curl: (56) Received HTTP code 503 from proxy after CONNECT"], {"build": BUILD})
    assert found is not None and "--proxy http://PROXY:PORT" in found.fix[0]


def test_words_long_before_the_end_are_no_reason() -> None:
    early = ["ERROR: No matching distribution found for cmake", *["[1/214] Building CUDA object"] * 3000]
    assert explain(early, VALUES) is None
