"""Environment variables that change what CUDA, NCCL, Docker and the engines do."""

# os.path spares every host the import of pathlib; one broken source must not cost the others.
# ruff: noqa: PTH100, PTH110, PTH118, PTH119, PTH120, PTH123, PTH208, BLE001
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

import os
import re

MATTERS = re.compile(
    r"(CUDA|NCCL|NVIDIA|VLLM|HF|HUGGINGFACE|TRANSFORMERS|PYTORCH|TORCH|TRITON|ASCEND|HCCL|OMP|DOCKER)_\w+"
    r"|LD_LIBRARY_PATH|LD_PRELOAD|GLOO_SOCKET_IFNAME|MODELSCOPE_CACHE|(https?|no|all)_proxy",
    re.IGNORECASE,
)
SECRET = re.compile(r"TOKEN|KEY|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
HIDDEN = "(hidden)"


def environment(machine, emit):
    """Those of the user that probes, then those of /etc/environment that it does not have."""
    found = {}
    for line in (machine.read_or_none("/etc/environment") or "").splitlines():
        name, separator, value = line.strip().partition("=")
        if separator and not name.startswith("#"):
            found[name.replace("export ", "").strip()] = value.strip().strip("\"'")
    if machine.is_running:
        found.update(os.environ)
    matching = sorted(name for name in found if MATTERS.fullmatch(name))
    emit(environment=[[name, without_secrets(name, found[name])] for name in matching])


def without_secrets(name, value):
    if SECRET.search(name) and value:
        return HIDDEN
    return re.sub(r"//[^/@\s]+@", "//" + HIDDEN + "@", value)


SOURCES = {"environment": environment}
