"""Environment variables that change what CUDA, NCCL, Docker and the engines do."""

# os.path spares every host the import of pathlib; one broken source must not cost the others.
# ruff: noqa: PTH100, PTH110, PTH118, PTH119, PTH120, PTH123, PTH208, BLE001
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

import os

from onecat.probe.agent.core import Late

re = Late("re")

FIRST_WORDS = (
    "CUDA",
    "NCCL",
    "NVIDIA",
    "VLLM",
    "HF",
    "HUGGINGFACE",
    "TRANSFORMERS",
    "PYTORCH",
    "TORCH",
    "TRITON",
    "ASCEND",
    "HCCL",
    "OMP",
    "DOCKER",
)
"""Of names that matter, up to their first underscore."""
NAMES = (
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "GLOO_SOCKET_IFNAME",
    "MODELSCOPE_CACHE",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
)
SECRET = ("TOKEN", "KEY", "SECRET", "PASSWORD", "CREDENTIAL")
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
    matching = sorted(name for name in found if matters(name))
    emit(environment=[[name, without_secrets(name, found[name])] for name in matching])


def matters(name):
    first, _, rest = name.upper().partition("_")
    return name.upper() in NAMES or (first in FIRST_WORDS and rest != "")


def without_secrets(name, value):
    if any(word in name.upper() for word in SECRET) and value:
        return HIDDEN
    return value if "@" not in value else re.sub(r"//[^/@\s]+@", "//" + HIDDEN + "@", value)


SOURCES = {"environment": environment}
