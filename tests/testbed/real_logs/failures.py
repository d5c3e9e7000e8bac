"""Failures provoked on purpose, each with the log that it really left."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from onecat.nvfp4.rewriting import open_source
from tests.safetensors_files import write_safetensors
from tests.testbed import quantised_checkpoints
from tests.testbed.nginx_servers import SERVER, wait_for
from tests.testbed.ports import free_port
from tests.testbed.real_logs.engine import EngineStarter, running

EAGER = "--enforce-eager"
# Root that may not read what is another user's, as in a container without these capabilities.
_DROPPED = "-dac_override,-dac_read_search"
UNPRIVILEGED = ("setpriv", "--bounding-set", _DROPPED, "--inh-caps", _DROPPED, "--")
SOMEBODY = 12345


@dataclass(frozen=True)
class Stage:
    """Where a failure is provoked. folder: its own, empty. model: a whole tiny checkpoint; copy before a change."""

    starter: EngineStarter
    folder: Path
    model: Path

    def copy(self) -> Path:
        """A checkpoint of this stage's own."""
        return Path(shutil.copytree(self.model, self.folder / "model"))

    def log_of(self, model: Path, *flags: str, **options: Any) -> str:
        """What a server prints that does not come up."""
        with running(self.starter, self.folder, model, *flags, **options) as server:
            server.wait_until_failed()
            return server.text()


def with_small_disk(size: str, folder: Path) -> tuple[str, ...]:
    """The beginning of a command for which an existing folder is on a file system of this size, and for nobody else."""
    mount = 'mount -t tmpfs -o "size=$1" small "$2" && shift 2 && exec "$@"'
    return ("unshare", "--mount", "--propagation", "private", "sh", "-c", mount, "sh", size, str(folder))


Provoke = Callable[[Stage], str]
ENGINE: dict[str, Provoke] = {}


def engine(provoke: Provoke) -> Provoke:
    """Enters a failure under its function's name."""
    ENGINE[provoke.__name__.replace("_", "-")] = provoke
    return provoke


def edit(path: Path, **changes: Any) -> None:
    """Change a JSON document; None takes a key out."""
    document = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({name: value for name, value in document.items() if value is not None}))


# --- arguments -----------------------------------------------------------------------------------------------------


@engine
def misspelt_flag(stage: Stage) -> str:
    return stage.log_of(stage.model, "--max-modellen", "1024")


@engine
def removed_flag(stage: Stage) -> str:
    return stage.log_of(stage.model, "--swap-space", "4")


@engine
def bad_value(stage: Stage) -> str:
    return stage.log_of(stage.model, "--dtype", "float17")


@engine
def longer_than_the_model(stage: Stage) -> str:
    return stage.log_of(stage.model, "--max-model-len", "9999999")


@engine
def heads_not_divisible(stage: Stage) -> str:
    return stage.log_of(stage.model, EAGER, "--tensor-parallel-size", "3")


@engine
def sleep_mode_on_a_processor(stage: Stage) -> str:
    return stage.log_of(stage.model, EAGER, "--enable-sleep-mode")


@engine
def port_taken(stage: Stage) -> str:
    with socket.socket() as other:
        port = free_port()
        other.bind(("127.0.0.1", port))
        other.listen()
        return stage.log_of(stage.model, EAGER, port=port)


# --- memory --------------------------------------------------------------------------------------------------------


@engine
def kv_cache_too_small(stage: Stage) -> str:
    model = stage.copy()
    edit(model / "config.json", max_position_embeddings=2**20)
    return stage.log_of(model, EAGER)


@engine
def shm_too_small(stage: Stage) -> str:
    wrapper = with_small_disk("1m", Path("/dev/shm"))
    return stage.log_of(stage.model, EAGER, "--tensor-parallel-size", "2", wrapper=wrapper)


# --- the model's files ---------------------------------------------------------------------------------------------


@engine
def truncated_shard(stage: Stage) -> str:
    shard = stage.copy() / "model.safetensors"
    os.truncate(shard, shard.stat().st_size - 5000)
    return stage.log_of(shard.parent, EAGER)


@engine
def lfs_pointer(stage: Stage) -> str:
    shard = stage.copy() / "model.safetensors"
    size = shard.stat().st_size
    shard.write_text(f"version https://git-lfs.github.com/spec/v1\noid sha256:{'4d7a' * 16}\nsize {size}\n")
    return stage.log_of(shard.parent, EAGER)


@engine
def header_too_large(stage: Stage) -> str:
    """An error page of a web server, saved under the shard's name."""
    shard = stage.copy() / "model.safetensors"
    shard.write_text("<!DOCTYPE html><html><head><title>Sign in</title></head><body>Sign in first.</body></html>\n")
    return stage.log_of(shard.parent, EAGER)


@engine
def missing_shard(stage: Stage) -> str:
    model = stage.copy()
    names = list(open_source(model, ("model.safetensors",)).tensors)
    (model / "model.safetensors").rename(model / "model-00001-of-00002.safetensors")
    files = {name: f"model-0000{1 + (number % 2)}-of-00002.safetensors" for number, name in enumerate(names)}
    (model / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))
    return stage.log_of(model, EAGER)


@engine
def missing_weights(stage: Stage) -> str:
    model = stage.copy()
    (model / "model.safetensors").unlink()
    return stage.log_of(model, EAGER)


@engine
def missing_tokenizer(stage: Stage) -> str:
    model = stage.copy()
    for path in model.glob("*token*"):
        path.unlink()
    return stage.log_of(model, EAGER)


@engine
def missing_directory(stage: Stage) -> str:
    return stage.log_of(stage.folder / "models" / "not-there", EAGER)


@engine
def unreadable_model(stage: Stage) -> str:
    model = stage.copy()
    model.chmod(0o700)
    os.chown(model, SOMEBODY, SOMEBODY)
    return stage.log_of(model, EAGER, wrapper=UNPRIVILEGED)


@engine
def unreadable_shard(stage: Stage) -> str:
    shard = stage.copy() / "model.safetensors"
    shard.chmod(0o600)
    os.chown(shard, SOMEBODY, SOMEBODY)
    return stage.log_of(shard.parent, EAGER, wrapper=UNPRIVILEGED)


@engine
def custom_code(stage: Stage) -> str:
    model = stage.copy()
    names = {"AutoConfig": "configuration_own.OwnConfig", "AutoModelForCausalLM": "modeling_own.OwnForCausalLM"}
    edit(model / "config.json", auto_map=names, model_type="own", architectures=["OwnForCausalLM"])
    return stage.log_of(model, EAGER)


@engine
def unknown_model_type(stage: Stage) -> str:
    model = stage.copy()
    edit(model / "config.json", model_type="llama9", architectures=["Llama9ForCausalLM"])
    return stage.log_of(model, EAGER)


@engine
def unknown_architecture(stage: Stage) -> str:
    model = stage.copy()
    edit(model / "config.json", architectures=["Llama9ForCausalLM"])
    return stage.log_of(model, EAGER)


@engine
def broken_configuration(stage: Stage) -> str:
    model = stage.copy()
    os.truncate(model / "config.json", 200)
    return stage.log_of(model, EAGER)


@engine
def no_kernel_for_scheme(stage: Stage) -> str:
    """NVFP4 on a device for which no kernel is left."""
    quantised_checkpoints.write(stage.folder, "nvfp4")
    variables = {"VLLM_DISABLED_KERNELS": "VoltaNvFp4LinearKernel"}
    return stage.log_of(stage.folder / "nvfp4", EAGER, variables=variables)


@engine
def damaged_scales(stage: Stage) -> str:
    quantised_checkpoints.write(stage.folder, "nvfp4")
    name = "model.layers.1.mlp.down_proj.weight_scale"
    rewrite(stage.folder / "nvfp4" / "model.safetensors", name, lambda content: b"\x7f" * len(content))
    return stage.log_of(stage.folder / "nvfp4", EAGER)


@engine
def scales_not_in_the_configuration(stage: Stage) -> str:
    """NVFP4 weights, of which config.json no longer says that they are quantised."""
    quantised_checkpoints.write(stage.folder, "nvfp4")
    edit(stage.folder / "nvfp4" / "config.json", quantization_config=None)
    return stage.log_of(stage.folder / "nvfp4", EAGER)


def rewrite(path: Path, name: str, change: Callable[[bytes], bytes]) -> None:
    """Change the content of one tensor in a file of safetensors."""
    source = open_source(path.parent, (path.name,))
    tensors = {each: (found.dtype, found.shape, source.raw(each).tobytes()) for each, found in source.tensors.items()}
    dtype, shape, content = tensors.pop(name)
    tensors[name] = (dtype, shape, change(content))
    write_safetensors(path, tensors, {"format": "pt"})


@engine
def quantization_package_missing(stage: Stage) -> str:
    model = stage.copy()
    edit(model / "config.json", quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True})
    return stage.log_of(model, EAGER)


# --- the machine ---------------------------------------------------------------------------------------------------


@engine
def disk_full(stage: Stage) -> str:
    full = stage.folder / "full"
    full.mkdir()
    variables = dict.fromkeys(("VLLM_CACHE_ROOT", "TORCHINDUCTOR_CACHE_DIR", "HOME", "TMPDIR"), str(full))
    return stage.log_of(stage.model, wrapper=with_small_disk("64k", full), variables=variables)


@engine
def no_compiler(stage: Stage) -> str:
    path = stage.folder / "bin"
    path.mkdir()
    for program in ("sh", "lscpu", "uname", "ldconfig"):
        (path / program).symlink_to(shutil.which(program, path="/usr/bin:/bin:/usr/sbin:/sbin") or "")
    variables = {"PATH": str(path), "TORCHINDUCTOR_CACHE_DIR": str(stage.folder / "inductor")}
    return stage.log_of(stage.model, variables=variables)


@engine
def no_ray(stage: Stage) -> str:
    return stage.log_of(stage.model, EAGER, "--distributed-executor-backend", "ray")


# --- killed --------------------------------------------------------------------------------------------------------


def killed(stage: Stage, title: str, *flags: str) -> str:
    """The log of a server that has answered, of which then a process with this title is killed."""
    with running(stage.starter, stage.folder, stage.model, EAGER, *flags) as server:
        server.wait_until_ready()
        body = {"model": str(stage.model), "prompt": "In the beginning", "max_tokens": 4}
        assert server.post("/v1/completions", body).status_code == 200
        os.kill(server.children(title)[-1], signal.SIGKILL)
        server.wait_until_ended()
        return server.text()


@engine
def worker_killed(stage: Stage) -> str:
    return killed(stage, "VLLM::Worker", "--tensor-parallel-size", "2")


@engine
def engine_killed(stage: Stage) -> str:
    return killed(stage, "VLLM::EngineCore")


# --- nginx ---------------------------------------------------------------------------------------------------------

# As people write it, but for a short time-out and little room.
NGINX = """daemon off; pid {folder}/nginx.pid; worker_processes 1; user root; error_log {folder}/error.log;
events {{}}
http {{
  access_log {folder}/access.log combined;
  client_body_temp_path {folder}/temp; proxy_temp_path {folder}/temp; fastcgi_temp_path {folder}/temp;
  uwsgi_temp_path {folder}/temp; scgi_temp_path {folder}/temp;
  server {{
    listen 127.0.0.1:{port};
    client_max_body_size 1k;
    location / {{ proxy_pass http://{server}; proxy_read_timeout 1s; proxy_buffering off; }}
  }}
}}
"""


@dataclass(frozen=True)
class ProxyStage:
    """Where a proxy fails. folder: its own, empty. nginx: the program."""

    folder: Path
    nginx: str

    def logs_of(self, ask: Callable[[httpx.Client, subprocess.Popen[bytes]], None], *words: str) -> ProxyLogs:
        """The logs of an nginx before the small server, started with `words`, after `ask`."""
        port, upstream = free_port(), free_port()
        argv = [sys.executable, "-I", str(SERVER), "tiny", "--port", str(upstream), *words]
        server = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        nginx = subprocess.Popen(self.nginx_argv(port, f"127.0.0.1:{upstream}"), stderr=subprocess.DEVNULL)
        try:
            wait_for(f"http://127.0.0.1:{upstream}/health")
            wait_for(f"http://127.0.0.1:{port}/health")
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=20) as client:
                ask(client, server)
        finally:
            server.kill()
            server.wait()
            nginx.send_signal(signal.SIGQUIT)
            nginx.wait(20)
        return self.logs()

    def nginx_argv(self, port: int, server: str) -> list[str]:
        """The command of an nginx that listens on `port` before `server`."""
        configuration = self.folder / "nginx.conf"
        configuration.write_text(NGINX.format(folder=self.folder, port=port, server=server))
        return [self.nginx, "-c", str(configuration), "-e", str(self.folder / "error.log")]

    def logs(self) -> ProxyLogs:
        return ProxyLogs((self.folder / "access.log").read_text(), (self.folder / "error.log").read_text())


@dataclass(frozen=True)
class ProxyLogs:
    """Both logs of an nginx."""

    access: str
    error: str


PROXY: dict[str, Callable[[ProxyStage], ProxyLogs]] = {}


def proxy(provoke: Callable[[ProxyStage], ProxyLogs]) -> Callable[[ProxyStage], ProxyLogs]:
    """Enters a failure under its function's name."""
    PROXY[provoke.__name__.replace("_", "-")] = provoke
    return provoke


def question(client: httpx.Client, words: str = "hello", **more: Any) -> httpx.Response:
    body = {"model": "tiny", "messages": [{"role": "user", "content": words}], "max_tokens": 8, **more}
    return client.post("/v1/chat/completions", json=body)


@proxy
def nginx_504(stage: ProxyStage) -> ProxyLogs:
    def ask(client: httpx.Client, _: subprocess.Popen[bytes]) -> None:
        assert question(client).status_code == 504

    return stage.logs_of(ask, "--word-seconds", "2")


@proxy
def nginx_504_in_a_stream(stage: ProxyStage) -> ProxyLogs:
    def ask(client: httpx.Client, _: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(httpx.RemoteProtocolError):
            question(client, stream=True)

    return stage.logs_of(ask, "--word-seconds", "3")


@proxy
def nginx_502(stage: ProxyStage) -> ProxyLogs:
    def ask(client: httpx.Client, server: subprocess.Popen[bytes]) -> None:
        assert question(client).status_code == 200
        server.kill()
        server.wait()
        assert question(client).status_code == 502

    return stage.logs_of(ask)


@proxy
def nginx_502_killed_while_it_answers(stage: ProxyStage) -> ProxyLogs:
    def ask(client: httpx.Client, server: subprocess.Popen[bytes]) -> None:
        threading.Timer(0.3, server.kill).start()
        assert question(client).status_code == 502

    return stage.logs_of(ask, "--word-seconds", "0.1")


@proxy
def nginx_413(stage: ProxyStage) -> ProxyLogs:
    def ask(client: httpx.Client, _: subprocess.Popen[bytes]) -> None:
        assert question(client, "long " * 1000).status_code == 413

    return stage.logs_of(ask)


@proxy
def nginx_port_taken(stage: ProxyStage) -> ProxyLogs:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        argv = stage.nginx_argv(other.getsockname()[1], "127.0.0.1:9")
        assert subprocess.run(argv, check=False, capture_output=True).returncode != 0
    return stage.logs()


# --- Docker --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DockerStage:
    """Where containers fail. host: DOCKER_HOST. image: one with Python."""

    host: str
    image: str

    def run(self, *words: str, code: int) -> str:
        """What `docker run` prints that ends with this exit code."""
        argv = ["docker", "--host", self.host, "run", "--rm", *words]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == code, done
        return done.stdout + done.stderr


DOCKER: dict[str, Callable[[DockerStage], str]] = {}


def docker(provoke: Callable[[DockerStage], str]) -> Callable[[DockerStage], str]:
    """Enters a failure under its function's name."""
    DOCKER[provoke.__name__.replace("_", "-")] = provoke
    return provoke


@docker
def docker_without_toolkit(stage: DockerStage) -> str:
    return stage.run("--gpus", "all", stage.image, "true", code=125)


@docker
def docker_unknown_cdi_device(stage: DockerStage) -> str:
    return stage.run("--device", "nvidia.com/gpu=all", stage.image, "true", code=125)


@docker
def docker_port_taken(stage: DockerStage) -> str:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        return stage.run("--publish", f"127.0.0.1:{port}:8000", stage.image, "true", code=125)
