"""A deployment of the small model on a real vLLM, for tests that look at it or load it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.testbed.command import Onecat
from tests.testbed.ports import free_port

NAME, MODEL = "served", "small"
MAX_MODEL_LEN = 512
CONFIGURATION = """\
name: {name}
profile: cpu
model:
  path: {model}
  served_name: {served_name}
port: {port}
proxy:
  listen: 127.0.0.1:{proxy_port}
  instance: own
env:
  # vLLM would bind itself to the first core, which other engines of the same test session want too.
  VLLM_CPU_OMP_THREADS_BIND: nobind
serve:
  max-model-len: {length}
  max-num-seqs: 16
  enforce-eager: true
"""


@dataclass(frozen=True)
class Served:
    """The deployment `name`, up and healthy. Tests may load it and may read all of it; who must change, stop or
    replace something brings up a deployment of their own.

    onecat: the command with the deployment's home. configuration: its onecat.yaml. endpoint: the URL before /v1, of its
    own nginx. port: of the server behind it, on 127.0.0.1. model: the served name. directory: the checkpoint's.
    log: the file that the server writes.
    """

    onecat: Onecat
    configuration: Path
    name: str
    endpoint: str
    port: int
    model: str
    directory: Path
    log: Path

    @property
    def server(self) -> str:
        """The URL of the server itself, without nginx."""
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def serving(onecat: Onecat, directory: Path, folder: Path) -> Iterator[Served]:
    """Bring the model in `directory` up natively, and take it down afterwards. folder: for its onecat.yaml."""
    port = free_port()
    configuration = folder / "onecat.yaml"
    configuration.write_text(
        CONFIGURATION.format(
            name=NAME, model=directory, served_name=MODEL, port=port, proxy_port=free_port(), length=MAX_MODEL_LEN
        )
    )
    arguments = ("--config", configuration)
    try:
        document = onecat("up", *arguments, "--runtime", "native", "--json", timeout=400).expect(0).json()
        log = next((onecat.home / "deployments" / NAME).glob("releases/*/server.log"))
        yield Served(onecat, configuration, NAME, document["endpoint"], port, MODEL, directory, log)
    finally:
        if (onecat.home / "deployments").exists():
            onecat("down", *arguments).expect(0)
