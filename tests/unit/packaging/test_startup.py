"""`onecat --help` stays quick: heavy imports wait inside the commands that need them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
HEAVY = {"docker", "paramiko", "pydantic", "jinja2", "numpy", "yaml", "httpx", "pynvml", "rich", "safetensors"}
PROGRAM = """
import json, sys
from onecat.cli.main import main
sys.argv = ["onecat", "--help"]
try:
    main()
except SystemExit as ended:
    assert ended.code == 0, ended.code
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def test_help_loads_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert "Commands:" in done.stdout, done.stderr
    assert HEAVY & set(json.loads(done.stderr)) == set()


def test_help_takes_at_most_twice_the_smallest_typer_program() -> None:
    benchmark = REPOSITORY / "bench" / "startup.py"
    done = subprocess.run([sys.executable, str(benchmark), "--rounds", "5", "--json"], capture_output=True, text=True)
    assert json.loads(done.stdout)["ratio"] <= 2.0, done.stdout
