"""A server that the kernel ends for want of memory: what `up` tells of it."""

from __future__ import annotations

import subprocess
import sys

from onecat import deploy
from onecat.errors import ExitCode
from onecat.observe import diagnose
from tests.testbed.deployments import SmallDeployment
from tests.testbed.real_logs.supervised import memory_limit

UP = """
import sys
from pathlib import Path
from onecat.errors import OnecatError
from onecat.paths import Home
from tests.testbed.deployments import SmallDeployment
data, model, port, proxy_port = sys.argv[1:]
small = SmallDeployment(Home(Path(data), Path(data, "cache")), Path(model), int(port), int(proxy_port))
try:
    small.up("--memory", "600")
except OnecatError as error:
    print(error.found)
    sys.exit(int(error.code))
"""


def test_a_server_that_exceeds_its_memory_is_told_as_such_and_nothing_is_left(small: SmallDeployment) -> None:
    places = [str(small.home.data), str(small.model), str(small.port), str(small.proxy_port)]
    with memory_limit(300) as limited:
        done = subprocess.run(
            limited([sys.executable, "-c", UP, *places]), capture_output=True, text=True, timeout=120, check=False
        )
    assert done.returncode == ExitCode.ROLLED_BACK, done.stdout + done.stderr
    assert "ran out of main memory" in done.stdout
    assert [each.outcome for each in small.store.releases()] == ["failed"]
    assert diagnose(deploy.last_lines(small.store, 100))[0].signature == "memory.oom-killer"
    assert small.processes() == []
