"""`onecat --help` and `onecat doctor` stay quick: heavy imports wait inside what needs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
HEAVY = {"docker", "paramiko", "pydantic", "jinja2", "numpy", "yaml", "httpx", "pynvml", "rich", "safetensors"}
HEAVY_FOR_DOCTOR = {
    "docker", "paramiko", "jinja2", "numpy", "httpx", "pynvml", "safetensors", "http.client", "urllib.request",
    "onecat.deploy.rollout", "onecat.deploy.operations", "onecat.images", "onecat.planner", "onecat.hosts.ssh",
    "onecat.render.redaction",
}  # fmt: skip
"""What a look at one local host has no use for; pydantic is loaded by Typer, PyYAML and Rich are of use."""
SMALLEST_SECONDS = 0.13
"""What the smallest Typer program takes where the half second was measured: other machines are judged by theirs."""
PROGRAM = """
import json, sys
from onecat.cli.main import main
sys.argv = ["onecat", *sys.argv[1:]]
try:
    main()
except SystemExit as ended:
    assert ended.code in (0, 1), ended.code
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def loaded(*arguments: str) -> tuple[str, set[str]]:
    """What a command prints, and the modules that are loaded at its end."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True)
    return done.stdout, set(json.loads(done.stderr.splitlines()[-1]))


def test_help_loads_nothing_heavy() -> None:
    output, modules = loaded("--help")
    assert "Commands:" in output
    assert HEAVY & modules == set()


def test_a_look_at_one_local_host_loads_nothing_that_it_does_not_use(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ONECAT_HOME", str(tmp_path))
    output, modules = loaded("doctor", "--profile", "v100x2-pcie")
    assert "local" in output
    assert HEAVY_FOR_DOCTOR & modules == set()


def test_a_look_at_one_local_host_takes_half_a_second(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # As installed: modules are compiled once, wherever this checkout may keep no byte code.
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path))
    onecat = str(Path(sys.executable).with_name("onecat"))
    program = "import typer; app = typer.Typer(); app.command()(lambda: None); app()"
    commands = ([onecat, "doctor", "--profile", "v100x2-pcie"], [sys.executable, "-c", program])
    seconds, here = (min(processor_seconds(argv) for _ in range(4)) for argv in commands)
    assert seconds < 0.5 * 2 * max(1, here / SMALLEST_SECONDS), (
        "twice the target on a machine as fast as the one it was set on: one that is shared may compile each module"
    )


def processor_seconds(argv: list[str]) -> float:
    """What a command and all it waits for need of processors: its wall time on an idle machine, or more."""
    child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode in (0, 1)
    return usage.ru_utime + usage.ru_stime


def test_help_takes_at_most_twice_the_smallest_typer_program() -> None:
    benchmark = REPOSITORY / "bench" / "startup.py"
    done = subprocess.run([sys.executable, str(benchmark), "--rounds", "5", "--json"], capture_output=True, text=True)
    assert json.loads(done.stdout)["ratio"] <= 2.0, done.stdout
