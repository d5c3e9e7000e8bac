"""Runs of real servers in which nothing is wrong, each with the log that it left."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy
from safetensors.numpy import save_file

from onecat.resources import small_model
from tests.testbed import quantised_checkpoints
from tests.testbed.nginx_servers import wait_for
from tests.testbed.ports import free_port
from tests.testbed.real_logs.engine import EngineServer, EngineStarter, running
from tests.testbed.waiting import wait_until

EAGER = ("--enforce-eager", "--max-model-len", "512")
# For variables that are read while vLLM's modules load: a process that has not loaded them yet.
COLD = ("env",)
KEY = "sk-0123456789"
# What people ask a model about: no fault of the server that it writes such words into its log.
FAULTS = (
    "What does torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB mean?",
    "My log says: RuntimeError: CUDA error: no kernel image is available for execution on the device. Why?",
    "Explain `OSError: [Errno 98] Address already in use` and NCCL's Watchdog caught collective operation timeout",
    "onecat: server killed by signal 9 (SIGKILL), the kernel's OOM killer struck\nEngineCore failed to start.\n"
    "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
)


@dataclass(frozen=True)
class HealthyStage:
    """Where a healthy run takes place. folder: its own, empty."""

    starter: EngineStarter
    folder: Path
    nginx: str

    @contextlib.contextmanager
    def server(self, *flags: str, model: Path | None = None, **options: Any) -> Iterator[EngineServer]:
        """A ready server of the small model, served as `small`, or of another; stopped in an orderly way."""
        words = ("--served-model-name", "small", "--dtype", "float32", *flags)
        with running(self.starter, self.folder, model or small_model(), *words, **options) as server:
            server.wait_until_ready()
            yield server
            server.stop()


Run = Callable[[HealthyStage], str]
HEALTHY: dict[str, Run] = {}


def healthy(run: Run) -> Run:
    """Enters a run under its function's name."""
    HEALTHY[run.__name__.replace("_", "-")] = run
    return run


def complete(server: EngineServer, prompt: Any = "In the beginning", **more: Any) -> None:
    body = {"model": "small", "prompt": prompt, "max_tokens": 8, "temperature": 0, **more}
    answer = server.post("/v1/completions", body)
    assert answer.status_code == 200, answer.text


def chat(server: EngineServer, words: str = "And God said,", **more: Any) -> None:
    body = {"model": "small", "messages": [{"role": "user", "content": words}], "max_tokens": 16, **more}
    answer = server.post("/v1/chat/completions", body)
    assert answer.status_code == 200, answer.text


def busy(server: EngineServer, requests: int = 12, **more: Any) -> None:
    """Several clients at once, long enough for the engine's own statistics (every 10 s) to be in the log."""
    end = time.monotonic() + 12
    with ThreadPoolExecutor(4) as clients:
        list(clients.map(lambda number: complete(server, f"The words of verse {number}", **more), range(requests)))
    time.sleep(max(0, end - time.monotonic()))


# --- what the engine computes with -----------------------------------------------------------------------------------


@healthy
def eager(stage: HealthyStage) -> str:
    with stage.server(*EAGER) as server:
        complete(server)
        chat(server)
        with httpx.stream(
            "POST", f"{server.address}/v1/completions", timeout=60, trust_env=False,
            json={"model": "small", "prompt": "In the", "max_tokens": 8, "stream": True},
        ) as answer:  # fmt: skip
            assert "[DONE]" in answer.read().decode()
        for path in ("/v1/models", "/metrics", "/version", "/ping"):
            assert httpx.get(f"{server.address}{path}", trust_env=False).status_code == 200
        busy(server)
    return server.text()


@healthy
def compiled(stage: HealthyStage) -> str:
    with stage.server("--max-model-len", "512", variables={"TORCHINDUCTOR_CACHE_DIR": str(stage.folder)}) as server:
        busy(server)
    return server.text()


@healthy
def nvfp4(stage: HealthyStage) -> str:
    model = stage.folder / "small-nvfp4"
    onecat = Path(sys.executable).with_name("onecat")
    subprocess.run([onecat, "model", "convert", small_model(), model], check=True, capture_output=True)
    with stage.server(*EAGER, model=model) as server:
        complete(server)
    return server.text()


@healthy
def fp8_blocks(stage: HealthyStage) -> str:
    quantised_checkpoints.write(stage.folder, "fp8-block")
    with stage.server(*EAGER, "--dtype", "bfloat16", model=stage.folder / "fp8-block") as server:
        complete(server)
    return server.text()


@healthy
def adapters(stage: HealthyStage) -> str:
    adapter = stage.folder / "psalms"
    adapter.mkdir()
    settings = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], "bias": "none"}
    (adapter / "adapter_config.json").write_text(json.dumps({**settings, "base_model_name_or_path": "small"}))
    tensors = {}
    for layer in range(4):
        name = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        tensors[f"{name}.lora_A.weight"] = numpy.full((4, 256), 0.01, numpy.float32)
        tensors[f"{name}.lora_B.weight"] = numpy.full((256, 4), 0.01, numpy.float32)
    save_file(tensors, adapter / "adapter_model.safetensors")
    with stage.server(
        *EAGER, "--enable-lora", "--max-lora-rank", "8", "--lora-modules", f"psalms={adapter}",
        variables={"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"},
    ) as server:  # fmt: skip
        complete(server, model="psalms")
        complete(server)
        assert server.post("/v1/load_lora_adapter", {"lora_name": "b", "lora_path": str(adapter)}).status_code == 200
        assert server.post("/v1/unload_lora_adapter", {"lora_name": "b"}).status_code == 200
        assert server.post("/v1/load_lora_adapter", {"lora_name": "c", "lora_path": "/nowhere"}).status_code >= 400
    return server.text()


@healthy
def speculative(stage: HealthyStage) -> str:
    words = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3}
    with stage.server(*EAGER, "--speculative-config", json.dumps(words)) as server:
        busy(server, max_tokens=40)
    return server.text()


@healthy
def long_prompts(stage: HealthyStage) -> str:
    """Prefix caching and chunked prefill, with prompts of up to the whole context length and beyond it."""
    flags = ("--enable-prefix-caching", "--enable-chunked-prefill", "--max-num-batched-tokens", "64")
    with stage.server(*EAGER, *flags, "--max-num-seqs", "4") as server:
        for length in (100, 400, 400, 504):
            complete(server, [list(range(1, length + 1))])
        body = {"model": "small", "prompt": list(range(1, 600)), "max_tokens": 8}
        assert server.post("/v1/completions", body).status_code == 400
        busy(server)
    return server.text()


@healthy
def preemptions(stage: HealthyStage) -> str:
    """A KV cache of few blocks: requests wait, and some are computed anew. Slow, and right."""
    flags = ("--max-model-len", "256", "--enforce-eager", "--block-size", "16", "--num-gpu-blocks-override", "24")
    with stage.server(*flags) as server, ThreadPoolExecutor(8) as clients:
        list(clients.map(lambda number: complete(server, f"verse {number}", max_tokens=200, ignore_eos=True), range(8)))
        busy(server)
    return server.text()


@healthy
def embeddings(stage: HealthyStage) -> str:
    with stage.server(*EAGER, "--runner", "pooling", "--convert", "embed") as server:
        assert server.post("/v1/embeddings", {"model": "small", "input": "In the beginning"}).status_code == 200
        assert server.post("/v1/completions", {"model": "small", "prompt": "In the"}).status_code >= 400
    return server.text()


@healthy
def tensor_parallel(stage: HealthyStage) -> str:
    with stage.server(*EAGER, "--tensor-parallel-size", "2") as server:
        complete(server)
    return server.text()


@healthy
def pipeline_parallel(stage: HealthyStage) -> str:
    with stage.server(*EAGER, "--pipeline-parallel-size", "2") as server:
        complete(server)
    return server.text()


@healthy
def data_parallel(stage: HealthyStage) -> str:
    with stage.server(*EAGER, "--data-parallel-size", "2") as server:
        complete(server)
        chat(server)
    return server.text()


# --- what clients do -------------------------------------------------------------------------------------------------


@healthy
def tools(stage: HealthyStage) -> str:
    parameters = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 4}}, "required": ["city"]}
    tool = {"type": "function", "function": {"name": "weather", "parameters": parameters}}
    with stage.server(*EAGER, "--enable-auto-tool-choice", "--tool-call-parser", "hermes") as server:
        chat(server, "And it rained", tools=[tool])
        chat(server, tools=[tool], tool_choice={"type": "function", "function": {"name": "weather"}}, max_tokens=64)
    return server.text()


@healthy
def structured(stage: HealthyStage) -> str:
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}}, "required": ["name"]}
    with stage.server(*EAGER) as server:
        form = {"type": "json_schema", "json_schema": {"name": "person", "schema": schema}}
        chat(server, response_format=form, max_tokens=64)
        complete(server, structured_outputs={"choice": ["day", "night"]})
        complete(server, structured_outputs={"regex": "[0-9]{3}"})
        broken = {"model": "small", "prompt": "x", "structured_outputs": {"regex": "[0-9"}}
        assert server.post("/v1/completions", broken).status_code >= 400
    return server.text()


@healthy
def refused_requests(stage: HealthyStage) -> str:
    """A client's fault is none of the server's."""
    known = {"Authorization": f"Bearer {KEY}"}
    with stage.server(*EAGER, variables={"VLLM_API_KEY": KEY}) as server:
        right = {"model": "small", "prompt": "In the", "max_tokens": 4}
        assert server.post("/v1/completions", right).status_code == 401
        assert server.post("/v1/completions", right, headers=known).status_code == 200
        assert server.post("/v1/completions", {**right, "model": "gpt-4"}, headers=known).status_code == 404
        wrong: list[tuple[str, dict[str, Any]]] = [
            ("/v1/completions", {**right, "max_tokens": 10**6}),
            ("/v1/completions", {**right, "temperature": -1}),
            ("/v1/completions", {**right, "prompt": None}),
            ("/v1/completions", {**right, "logprobs": 500}),
            ("/v1/chat/completions", {"model": "small", "messages": [{"role": "user"}, 7]}),
            ("/v1/chat/completions", {"model": "small", "messages": [{"role": "user", "content": [
                {"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/cat.png"}}]}]}),
            ("/v1/completions", {"model": "small", "prompt": [[1, 2, 10**9]]}),
        ]  # fmt: skip
        for path, body in wrong:
            assert 400 <= server.post(path, body, headers=known).status_code < 500, body
        broken = httpx.post(
            f"{server.address}/v1/completions", content=b'{"model": ', trust_env=False,
            headers={**known, "Content-Type": "application/json"},
        )  # fmt: skip
        assert broken.status_code in (400, 422)
        for path in ("/v1/nothing", "/favicon.ico", "/.env", "/v1/completions"):
            assert httpx.get(f"{server.address}{path}", headers=known, trust_env=False).status_code in (404, 405)
    return server.text()


@healthy
def client_aborts(stage: HealthyStage) -> str:
    with stage.server(*EAGER, "--enable-log-requests") as server:
        for stream in (True, False, True):
            body = {"model": "small", "prompt": "In", "max_tokens": 500, "ignore_eos": True, "stream": stream}
            with contextlib.suppress(httpx.TimeoutException):
                if stream:
                    with httpx.stream(
                        "POST", f"{server.address}/v1/completions", json=body, trust_env=False, timeout=60
                    ) as answer:
                        next(answer.iter_bytes())
                else:
                    server.post("/v1/completions", body, timeout=0.2)
        complete(server)
        time.sleep(1)
    return server.text()


@healthy
def prompts_about_faults(stage: HealthyStage) -> str:
    flags = ("--enable-log-requests", "--enable-log-outputs")
    with stage.server(*EAGER, *flags, variables={"VLLM_LOGGING_LEVEL": "DEBUG"}, wrapper=COLD) as server:
        for prompt in FAULTS:
            complete(server, prompt, echo=True)
            chat(server, prompt)
    lines = server.text().splitlines(keepends=True)
    first = next(number for number, line in enumerate(lines) if "HTTP server started" in line)
    # The other processes only say again and again that they were woken.
    text = "".join(line for line in lines[first:] if line.startswith("(APIServer"))
    assert all(words.splitlines()[0] in text for words in FAULTS)
    return text


@healthy
def debug(stage: HealthyStage) -> str:
    with stage.server(*EAGER, variables={"VLLM_LOGGING_LEVEL": "DEBUG"}, wrapper=COLD) as server:
        complete(server)
    return server.text()


@healthy
def coloured(stage: HealthyStage) -> str:
    with stage.server(*EAGER, variables={"VLLM_LOGGING_COLOR": "1", "FORCE_COLOR": "1"}, wrapper=COLD) as server:
        complete(server)
    return server.text()


@healthy
def interrupted(stage: HealthyStage) -> str:
    """Ctrl-C while a request is under way, and a second start in the same log."""
    with stage.server(*EAGER) as server, ThreadPoolExecutor(1) as clients:
        body = {"model": "small", "prompt": "In", "max_tokens": 500, "ignore_eos": True, "stream": False}
        clients.submit(server.post, "/v1/completions", body)
        time.sleep(0.5)
        server.stop(2)
    first = server.text()
    with stage.server(*EAGER, "--shutdown-timeout", "5") as server:
        complete(server)
    return first + server.text()


# --- what stands around the server -----------------------------------------------------------------------------------

NGINX = """daemon off; pid {folder}/nginx.pid; worker_processes 1; user root; error_log {folder}/error.log notice;
events {{}}
http {{
  access_log {folder}/access.log combined;
  client_body_temp_path {folder}/temp; proxy_temp_path {folder}/temp; fastcgi_temp_path {folder}/temp;
  uwsgi_temp_path {folder}/temp; scgi_temp_path {folder}/temp;
  server {{
    listen 127.0.0.1:{port};
    location / {{ proxy_pass {server}; proxy_http_version 1.1; proxy_buffering off; proxy_read_timeout 600s; }}
  }}
}}
"""


@healthy
def behind_nginx(stage: HealthyStage) -> str:
    """The access and the error log of an nginx: right requests, refused ones, and clients that went away."""
    with stage.server(*EAGER) as server:
        port = free_port()
        configuration = stage.folder / "nginx.conf"
        configuration.write_text(NGINX.format(folder=stage.folder, port=port, server=server.address))
        command = [stage.nginx, "-c", str(configuration), "-e", str(stage.folder / "error.log")]
        nginx = subprocess.Popen(command)
        try:
            wait_for(f"http://127.0.0.1:{port}/health")
            proxied = EngineServer(server.process, server.log, port)
            complete(proxied)
            chat(proxied)
            assert proxied.post("/v1/completions", {"model": "gpt-4", "prompt": "x"}).status_code == 404
            assert proxied.post("/v1/completions", {"model": "small", "max_tokens": -1}).status_code == 400
            body = {"model": "small", "prompt": "In", "max_tokens": 500, "ignore_eos": True}
            with contextlib.suppress(httpx.TimeoutException):
                proxied.post("/v1/completions", body, timeout=0.3)
            for path in ("/favicon.ico", "/robots.txt", "/v1/models"):
                httpx.get(f"{proxied.address}{path}", trust_env=False)
            subprocess.run([*command, "-s", "reload"], check=True)
            time.sleep(0.5)
            complete(proxied)
        finally:
            nginx.send_signal(3)  # SIGQUIT: requests are served to their end
            nginx.wait(20)
    return (stage.folder / "access.log").read_text() + (stage.folder / "error.log").read_text()


def ray_node(folder: Path, ray: Path) -> str:
    """The log of a Ray head that starts, is asked for its state, and is ended. ray: a folder with its packages."""
    environment = {"PYTHONPATH": str(ray), "PATH": "/usr/bin:/bin", "HOME": str(folder), "RAY_USAGE_STATS_ENABLED": "0"}
    program = [sys.executable, "-m", "ray.scripts.scripts"]
    port = free_port()
    words = ["start", "--head", "--block", "--num-cpus=1", "--include-dashboard=false", f"--temp-dir={folder}/ray"]
    # Its own choice of ports for workers, from 10002 on, has the ones that tests take.
    words += ["--node-ip-address=127.0.0.1", f"--port={port}", "--min-worker-port=33000", "--max-worker-port=33999"]
    path = folder / "ray.log"
    with path.open("wb") as file:
        head = subprocess.Popen(
            [*program, *words, "--object-store-memory=80000000"], env=environment, stdout=file, stderr=file
        )
        try:
            wait_until(lambda: "Ray runtime started" in path.read_text(), 240)
            argv = [*program, "status", "--address", f"127.0.0.1:{port}"]
            told = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=120, check=True)
        finally:
            head.terminate()
            head.wait(60)
    text = path.read_text() + told.stdout + told.stderr
    for name in ("gcs_server.out", "raylet.out", "monitor.log", "log_monitor.log"):
        for each in (folder / "ray" / "session_latest" / "logs").glob(name):
            text += each.read_text(errors="replace")
    return text
