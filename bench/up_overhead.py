"""What `onecat up` adds to a start by hand: until it returns, against `docker run` of the same container and /health.

Run it as root by `make bench-up`, on this machine alone: a dockerd of its own, a small server that is ready at once,
and turn by turn `onecat up` as a process of its own (release, nginx, smoke test and all) and by hand. The best of each
counts. Ends with 1 when onecat adds more than the limit.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from onecat.checkpoints import write_tiny_checkpoint  # noqa: E402
from onecat.deploy.container_spec import ContainerSpec, from_document, run_argv  # noqa: E402
from tests.testbed import base_image, docker_daemon, server_image  # noqa: E402
from tests.testbed.cache import open_cache  # noqa: E402
from tests.testbed.command import Onecat  # noqa: E402

LIMIT_SECONDS = 2.0
CONFIGURATION = """
name: bench
profile: ./small.yaml
runtime: container
model: {{path: {model}, served_name: tiny}}
port: 18431
proxy: {{listen: "127.0.0.1:18430", instance: own}}
"""


@dataclass(frozen=True)
class Comparison:
    """Seconds until the server is ready, the best of some rounds. steps: of onecat's best round, what it was doing."""

    onecat: float
    by_hand: float
    steps: tuple[tuple[float, str], ...]

    @property
    def overhead(self) -> float:
        return self.onecat - self.by_hand


def compare(onecat: Onecat, image: str, work: Path, rounds: int) -> Comparison:
    """Start the same container by onecat and by hand, turn by turn.

    Parameters:
        image: of the small server, on the engine that `onecat` knows. work: a folder to be made.
    """
    work.mkdir()
    write_tiny_checkpoint(work / "tiny")
    for path in (work, work / "tiny", *(work / "tiny").iterdir()):
        path.chmod(0o755)
    (work / "small.yaml").write_text(f"name: small\nextends: [cpu]\nimage: {{tag: '{image}'}}\n")
    (work / "onecat.yaml").write_text(CONFIGURATION.format(model=work / "tiny"))
    ups, hands = [], []
    for _ in range(rounds):
        steps = tuple(up(onecat, work))
        ups.append((steps[-1][0], steps))
        spec = made(onecat)
        onecat("down", cwd=work).expect(0)
        hands.append(by_hand(spec, str(onecat.docker_host)))
    seconds, steps = min(ups)
    return Comparison(seconds, min(hands), steps)


def up(onecat: Onecat, work: Path) -> Iterator[tuple[float, str]]:
    """Run `onecat up` and tell when it said what; the last is its end."""
    began = time.monotonic()
    with subprocess.Popen(
        onecat.argv("up"),
        cwd=work,
        env=onecat.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            yield time.monotonic() - began, line.rstrip()
    yield time.monotonic() - began, f"ended with {process.returncode}"
    assert process.returncode == 0


def made(onecat: Onecat) -> ContainerSpec:
    """What the newest release's container was made from, without the guard: it belongs to onecat."""
    newest = max(onecat.home.glob("deployments/bench/releases/*/container.json"))
    return replace(from_document(json.loads(newest.read_text())), guard_directory=None, state_directory=None)


def by_hand(spec: ContainerSpec, docker_host: str) -> float:
    """Seconds of `docker run` until /health answers. The container is removed again."""
    docker = shutil.which("docker") or "docker"
    argv = run_argv(spec, docker)
    argv.insert(argv.index("run") + 1, "--detach")
    environment = {**os.environ, "DOCKER_HOST": docker_host}
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    began = time.monotonic()
    subprocess.run(argv, env=environment, check=True, stdout=subprocess.DEVNULL)
    try:
        while True:
            with contextlib.suppress(OSError), opener.open(f"http://{spec.host}:{spec.port}/health", timeout=1):
                return time.monotonic() - began
            time.sleep(0.02)
    finally:
        subprocess.run([docker, "rm", "--force", spec.name], env=environment, check=True, stdout=subprocess.DEVNULL)


def told(found: Comparison) -> list[str]:
    """The comparison for a person."""
    verdict = "within" if found.overhead <= LIMIT_SECONDS else "above"
    return [
        f"by hand      {found.by_hand:5.2f} s  docker run, until /health answers",
        f"onecat up    {found.onecat:5.2f} s  until it returns",
        *(f"  at {at:5.2f} s  {text}" for at, text in found.steps),
        f"onecat adds  {found.overhead:5.2f} s  ({verdict} the limit of {LIMIT_SECONDS:g} s)",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="starts of each kind (default: 5)")
    rounds = parser.parse_args().rounds
    import docker

    with contextlib.ExitStack() as stack:
        cache = stack.enter_context(open_cache())
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="onecat-bench-")))
        daemon = stack.enter_context(docker_daemon.running_docker_daemon(work / "data" / "docker"))
        client = stack.enter_context(contextlib.closing(docker.DockerClient(base_url=daemon.host, timeout=600)))
        image = server_image.build_server_image(client, base_image.ensure_base_image(client, cache))
        work.chmod(0o755)
        onecat = Onecat(home=work / "home", cache=cache.folder("onecat"), docker_host=daemon.host)
        found = compare(onecat, image, work / "files", rounds)
    print("\n".join(told(found)))
    return int(found.overhead > LIMIT_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
