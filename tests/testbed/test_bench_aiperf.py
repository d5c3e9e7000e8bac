"""Load by a real aiperf, where it is installed: it brings 1.2 GB of packages, which `make test` does not fetch."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from onecat.deploy import find_deployment
from onecat.errors import OnecatError
from onecat.experiments.loads import CutShort
from onecat.experiments.loads.aiperf import AiperfLoadDriver
from onecat.experiments.loads.cores import Pinning
from onecat.experiments.records import ApiKey, Arrivals, Endpoint, Workload
from onecat.experiments.targets import deployment_target, open_driver_named
from onecat.hosts import LocalMachine
from onecat.resources import small_model
from tests.testbed.nginx_servers import running_server
from tests.testbed.served import Served

SMALL = Workload(requests=4, input_tokens=16, output_tokens=4)
needs_aiperf = pytest.mark.skipif(shutil.which("aiperf") is None, reason="aiperf is not on PATH")


def test_a_machine_without_aiperf_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    with pytest.raises(OnecatError) as refused:
        AiperfLoadDriver(LocalMachine(tmp_path), where="here", pinning=Pinning(None, ""))
    assert "there is no aiperf" in refused.value.found


@needs_aiperf
@pytest.mark.engine
def test_blocks_of_aiperf(served: Served) -> None:
    target = deployment_target(find_deployment(LocalMachine(served.onecat.home), served.name))
    with open_driver_named("aiperf", target) as driver:
        assert driver.describe()["name"] == "aiperf"
        block = driver.run(target.endpoint, SMALL, Arrivals(concurrency=2), number=3, arm="A")
        assert (block.number, block.arm) == (3, "A")
        assert [(each.error, each.output_tokens) for each in block.requests] == [(None, 4)] * 4
        assert all(each.ttft is not None and 0 < each.ttft <= each.end_to_end for each in block.requests)
        assert min(each.start for each in block.requests) == 0
        many = Workload(requests=300, input_tokens=16, output_tokens=4)
        short = driver.run(target.endpoint, many, Arrivals(concurrency=2), number=4, stop_after=2.0)
        assert 2 <= len(short.requests) < 300
        threading.Timer(25, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(CutShort):
            driver.run(target.endpoint, many, Arrivals(rate=1.0), number=5)


@needs_aiperf
def test_a_key_is_shown_to_the_server_alone(tmp_path: Path) -> None:
    driver = AiperfLoadDriver(LocalMachine(tmp_path), where="here", pinning=Pinning((0,), ""))
    with running_server("sk-0123456789abcdef") as address:
        endpoint = Endpoint("x", f"http://{address}", "tiny", str(small_model()))
        refused = driver.run(endpoint, SMALL, Arrivals(concurrency=2), number=0)
        assert {each.error for each in refused.requests} == {"key"}
        # What the small server streams is not what aiperf wants of a text; it is let in.
        let_in = driver.run(replace(endpoint, key=ApiKey("sk-0123456789abcdef")), SMALL, Arrivals(2), number=1)
        assert len(let_in.requests) == 4
        assert "key" not in {each.error for each in let_in.requests}
