"""The probe and programs that cannot be killed, as nvidia-smi on a dead GPU: here frozen ones."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from onecat.probe.agent import core

COLLECTOR = Path(core.__file__).parent / "collector.sh"


@pytest.fixture
def frozen_smi(freezer: Path, tmp_path: Path) -> Path:
    """A folder with an nvidia-smi that begins to answer and then is stuck."""
    program = tmp_path / "nvidia-smi"
    program.write_text(
        f"#!/bin/sh\necho begun\necho $$ > {freezer}/cgroup.procs\n"
        f"echo FROZEN > {freezer}/freezer.state\nexec sleep 9\n"
    )
    program.chmod(0o755)
    return tmp_path


def test_a_program_that_cannot_be_killed_costs_its_limit(frozen_smi: Path) -> None:
    started = time.monotonic()
    with pytest.raises(core.Unknown, match=r"did not end within 0\.5 s"):
        core.Machine("/", 5, []).run([f"{frozen_smi}/nvidia-smi"], 0.5)
    assert time.monotonic() - started < 1.5


def test_a_source_that_cannot_be_killed_costs_its_limit(freezer: Path) -> None:
    def stuck(machine: object, emit: object) -> None:
        (freezer / "cgroup.procs").write_text(str(os.getpid()))
        (freezer / "freezer.state").write_text("FROZEN")
        time.sleep(9)

    started = time.monotonic()
    document = core.observe(core.Machine("/", 0.5, []), {"stuck": stuck})
    assert document["notes"] == [{"source": "stuck", "kind": "timeout", "text": "no answer within 0.5 s"}]
    assert time.monotonic() - started < 1.5


@pytest.mark.parametrize("shell", [["dash"], ["busybox", "sh"], ["bash", "--posix"]], ids=lambda argv: argv[0])
def test_the_collector_does_not_wait_for_it_either(shell: list[str], frozen_smi: Path) -> None:
    environment = {"PATH": f"{frozen_smi}:/usr/bin:/bin"}
    started = time.monotonic()
    argv = [*shell, str(COLLECTOR), "--timeout", "1"]
    done = subprocess.run(argv, capture_output=True, env=environment, stdin=subprocess.DEVNULL, timeout=30, text=True)
    assert time.monotonic() - started < 4
    assert "===== onecat: nvidia-smi -q\nbegun\n" in done.stdout
    assert "===== onecat: end nvidia-smi -q timeout\n" in done.stdout
    assert "===== onecat: end df -Pk 0\n" in done.stdout
