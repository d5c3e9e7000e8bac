"""A GPU calculation in an engine's image, only when asked for: the one test that takes everything together."""

# os.path spares every host the import of pathlib; one broken source must not cost the others.
# ruff: noqa: PTH100, PTH110, PTH115, PTH118, PTH119, PTH120, PTH123, PTH208, BLE001
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

import json
import os

from onecat.probe.agent.core import Unknown
from onecat.probe.agent.sources.docker import docker_address
from onecat.probe.agent.sources.docker_daemon import Daemon

LIMIT_SECONDS = 115
"""For the whole source; onecat.probe.program waits a little longer."""
RUN_SECONDS = 100
MOST_ERROR = 600

PROGRAM = """
import importlib.metadata as metadata, json, platform

def version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None

names = ("vllm", "vllm-ascend", "torch", "torch-npu", "triton", "transformers", "flashinfer-python", "xformers",
         "numpy", "nvidia-nccl-cu12", "nvidia-nccl-cu13")
packages = [[name, version(name)] for name in names if version(name)]
facts = {"python_version": platform.python_version(), "packages": packages, "engine_version": version("vllm")}
count = 0
try:
    import torch
    facts["torch_version"], facts["torch_cuda_version"] = torch.__version__, torch.version.cuda
    flags = getattr(torch._C, "_cuda_getArchFlags", lambda: None)()
    facts["cuda_architectures"] = (flags or "").split()
    kind = "cuda"
    if version("torch-npu"):
        import torch_npu
        kind = "npu"
    devices = getattr(torch, kind)
    facts["cuda_available"] = bool(devices.is_available())
    count = devices.device_count()
    side = 64
    numbers = [[(row * 7 + column * 3) % 9 - 4 for column in range(side)] for row in range(side)]
    expected = torch.tensor(numbers, dtype=torch.float32) @ torch.tensor(numbers, dtype=torch.float32)
    wrong = []
    for index in range(count):
        matrix = torch.tensor(numbers, dtype=torch.float16, device=f"{kind}:{index}")
        if not torch.equal((matrix @ matrix).float().cpu(), expected):
            wrong.append(index)
    if count:
        facts["gpu_ok"] = not wrong
        if wrong:
            facts["error"] = f"a matrix product is wrong on {wrong}"
except Exception as error:
    facts["error"] = f"{type(error).__name__}: {error}"
    if count:
        facts["gpu_ok"] = False
facts["count"] = count
print(json.dumps(facts))
"""
"""Whole numbers that float16 holds exactly, so that right means equal."""


def smoke(machine, emit):
    emit(limit=LIMIT_SECONDS)
    image = machine.asked["smoke"]
    docker = machine.find_program("docker")
    if docker is None or not machine.is_running:
        raise Unknown("absent", "a calculation in an image needs Docker, which is not there")
    emit(doing="asking the Docker daemon")
    info = Daemon(docker_address(machine), machine.timeout).get("/info", dict)
    request = gpu_request(machine, info)
    name = f"onecat-smoke-{os.getpid()}"
    emit(doing="running a calculation in " + image)
    try:
        code, output, messages = machine.run([docker, *run_arguments(image, name, request, info)], RUN_SECONDS)
    except Unknown:
        machine.run([docker, "rm", "--force", name])
        raise
    emit(engines=[result(image, code, output, messages, wants_gpu=bool(request))])


def gpu_request(machine, info):
    """The options that give a container this host's accelerators, [] on a host that has none."""
    devices = [each.get("ID", "") for each in info.get("DiscoveredDevices") or [] if each.get("Source") == "cdi"]
    if "nvidia.com/gpu=all" in devices:
        return ["--device", "nvidia.com/gpu=all"]
    if any(name.startswith("nvidia") and name[6:].isdigit() for name in machine.list("/dev")):
        return ["--gpus", "all"]
    npus = [name for name in machine.list("/dev") if name.startswith("davinci") and name[7:].isdigit()]
    if not npus:
        return []
    files = [name for name in npus + ["davinci_manager", "devmm_svm", "hisi_hdc"] if machine.exists("/dev/" + name)]
    mounts = ("/usr/local/dcmi", "/usr/local/Ascend/driver", "/usr/local/bin/npu-smi", "/etc/ascend_install.info")
    mounted = [path for path in mounts if machine.exists(path)]
    return [
        option
        for pair in [("--device", "/dev/" + name) for name in files] + [("-v", f"{path}:{path}:ro") for path in mounted]
        for option in pair
    ]


def run_arguments(image, name, request, info):
    """The command line behind docker. Nothing is pulled, nothing is left, nothing is reachable."""
    if image.startswith("-"):
        raise Unknown("error", "this is not the name of an image: " + image)
    confined = any(option.startswith("name=selinux") for option in info.get("SecurityOptions") or [])
    return [
        *("run", "--rm", "--pull", "never", "--name", name, "--network", "none"),
        *(("--security-opt", "label=disable") if confined and request else ()),
        *request,
        *("--entrypoint", "python3", image, "-c", PROGRAM),
    ]


def result(image, code, output, messages, wants_gpu):
    """The record of one run. A container that could not have its GPUs is a failed calculation."""
    lines = [line for line in output.splitlines() if line.startswith("{")]
    if lines:
        facts = json.loads(lines[-1])
        if wants_gpu and not facts.pop("count", 0):
            facts.setdefault("error", "PyTorch sees no GPU in the container")
            facts["gpu_ok"] = False
        facts.pop("count", None)
        facts["error"] = facts["error"][:MOST_ERROR] if facts.get("error") else None
        return dict(facts, where=image)
    said = messages.strip()[-MOST_ERROR:] or f"the container ended with status {code} and said nothing"
    if "No such image" in said or "Unable to find image" in said:
        raise Unknown("absent", "the image " + image + " is not on this host, and nothing is pulled")
    return {"where": image, "gpu_ok": False if wants_gpu else None, "error": said}


SOURCES = {"smoke": smoke}
