"""The collector for hosts without Python, with each shell that is `sh` somewhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from onecat.probe.agent import core

COLLECTOR = Path(core.__file__).parent / "collector.sh"
SHELLS = {"dash": ["dash"], "busybox": ["busybox", "sh"], "bash": ["bash", "--posix"]}
SECTION = re.compile(r"^===== onecat: (?!end )(.*)\n((?:(?!===== ).*\n)*)===== onecat: end \1 (\S+)$", re.MULTILINE)


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> list[str]:
    argv = SHELLS[request.param]
    if shutil.which(argv[0]) is None:
        pytest.skip(f"{argv[0]} is not installed")
    return argv


def program(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("#!/bin/sh\n" + text)
    (folder / name).chmod(0o755)


def collect(
    shell: list[str], folder: Path, *options: str, environment: dict[str, str] | None = None
) -> tuple[dict[str, tuple[str, str]], float]:
    """Sections with their text and exit, and the seconds until every stream is closed. folder: first in PATH."""
    started = time.monotonic()
    done = subprocess.run(
        [*shell, str(COLLECTOR), *options],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={"PATH": f"{folder}:/usr/bin:/bin", **(environment or {})},
        timeout=60,
        text=True,
        errors="replace",
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = {name: (text, code) for name, text, code in SECTION.findall(done.stdout)}
    assert len(found) == len(re.findall(r"^===== onecat: (?!end )", done.stdout, re.MULTILINE)), (
        "each section has its end"
    )
    return found, time.monotonic() - started


def test_what_a_host_is_comes_in_sections(shell: list[str], tmp_path: Path) -> None:
    found, seconds = collect(shell, tmp_path, "--timeout", "5", "--host", "gpu 1", "--root", "/")
    assert found["/proc/meminfo"][0].startswith("MemTotal:")
    assert abs(int(found["date +%s"][0]) - time.time()) < 60
    assert "Mounted on" in found["df -Pk"][0] and found["df -Pk"][1] == "0"
    assert found["id"][0].startswith("uid=")
    assert "file" in found["ulimit -a"][0] and "Max open files" in found["/proc/self/limits"][0]
    assert found["sysfs pci"][1] == "0"
    assert seconds < 1, "nothing that lives on may keep the streams open"


def test_a_program_that_is_not_there_ends_with_127(shell: list[str], tmp_path: Path) -> None:
    found, _ = collect(shell, tmp_path, "--timeout", "5")
    if shutil.which("npu-smi") is None:
        assert found["npu-smi info"] == ("", "127")


HANGS = {
    "df": "echo begun\nsleep 30\n",
    "nvidia-smi": "trap '' TERM HUP INT\necho begun\nsleep 30 & wait\nsleep 30\n",
    "docker": "echo begun\nsleep 30 & sleep 30 &\nwait\n",
    "npu-smi": "echo begun\ncat\nsleep 30\n",
}
"""Programs that sleep, that cannot be asked to end, whose children hold their output, and that read first."""


def test_programs_that_hang_cost_one_limit_together(shell: list[str], tmp_path: Path) -> None:
    for name, text in HANGS.items():
        program(tmp_path, name, text)
    found, seconds = collect(shell, tmp_path, "--timeout", "1")
    assert seconds < 3
    for name in ("df -Pk", "nvidia-smi -q", "nvidia-smi topo -m", "docker info", "npu-smi info"):
        text, code = found[name]
        assert (text.strip(), code) == ("begun", "timeout")
    assert found["id"][1] == "0"


def test_a_program_of_another_language_speaks_english_and_its_failure_is_told(shell: list[str], tmp_path: Path) -> None:
    program(tmp_path, "nvidia-smi", 'echo "$LC_ALL $*"; echo "NVIDIA-SMI has failed" >&2; exit 9\n')
    found, _ = collect(shell, tmp_path)
    assert found["nvidia-smi topo -p2p r"] == ("C topo -p2p r\nNVIDIA-SMI has failed\n", "9")


def test_much_output_arrives_whole_and_in_one_piece(shell: list[str], tmp_path: Path) -> None:
    program(
        tmp_path,
        "nvidia-smi",
        'n=0; while [ $n -lt 4000 ]; do echo "line $n of $1 ................."; n=$((n+1)); done\n',
    )
    found, _ = collect(shell, tmp_path)
    lines = found["nvidia-smi -q"][0].splitlines()
    assert (len(lines), lines[0], lines[-1]) == (
        4000,
        "line 0 of -q .................",
        "line 3999 of -q .................",
    )


def test_the_kernel_log_is_bounded_and_its_newest_lines_survive(shell: list[str], tmp_path: Path) -> None:
    flood = 'n=0; while [ $n -lt 6000 ]; do echo "[$n.0] NVRM: Xid (PCI:0000:3b:00): 13"; n=$((n+1)); done\n'
    program(tmp_path, "dmesg", flood + 'echo "[6001.0] usb 1-1: new device"; echo "[6002.0] NVRM: Xid: 79"\n')
    lines = collect(shell, tmp_path)[0]["dmesg"][0].splitlines()
    assert (len(lines), lines[-1]) == (4000, "[6002.0] NVRM: Xid: 79")


def test_without_dmesg_the_journal_is_asked(shell: list[str], tmp_path: Path) -> None:
    program(tmp_path, "dmesg", "exit 1\n")
    program(
        tmp_path,
        "journalctl",
        'echo "[1.0] host kernel: nouveau 0000:3b:00.0: NVIDIA GV100"; echo "[2.0] h kernel: x"\n',
    )
    found, _ = collect(shell, tmp_path)
    assert found["journalctl -k"] == ("[1.0] host kernel: nouveau 0000:3b:00.0: NVIDIA GV100\n", "0")
    assert "dmesg" not in found


def test_named_paths_are_measured_at_their_nearest_parent(shell: list[str], tmp_path: Path) -> None:
    found, _ = collect(shell, tmp_path, "--path", f"data={tmp_path}/a b/c", "--path", "model=/")
    text, code = found[f"path data={tmp_path}/a b/c"]
    assert code == "0" and "Mounted on" in text
    assert found["path model=/"][0].rstrip().endswith("/")


def test_the_environment_tells_what_matters_and_no_secret(shell: list[str], tmp_path: Path) -> None:
    environment = {
        "NCCL_P2P_DISABLE": "1",
        "HF_TOKEN": "hf_abc",
        "VLLM_API_KEY": "k",
        "https_proxy": "http://user:pw@proxy.example:3128",
        "EDITOR": "vi",
    }
    text, _ = collect(shell, tmp_path, environment=environment)[0]["env"]
    assert sorted(text.splitlines()) == [
        "HF_TOKEN=(hidden)",
        "NCCL_P2P_DISABLE=1",
        "VLLM_API_KEY=(hidden)",
        "https_proxy=http://(hidden)@proxy.example:3128",
    ]


def test_a_refused_sudo_is_told(shell: list[str], tmp_path: Path) -> None:
    assert collect(shell, tmp_path, "--sudo-refused")[0]["sudo"] == ("refused\n", "1")


def test_nothing_is_written_to_disk(shell: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    collect(shell, tmp_path / "bin")
    assert list(tmp_path.iterdir()) == []


def test_shellcheck_has_nothing_to_say() -> None:
    checker = Path(sys.executable).with_name("shellcheck")
    done = subprocess.run([str(checker), "--shell=sh", str(COLLECTOR)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
