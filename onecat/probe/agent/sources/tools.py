"""Programs and libraries that matter."""

# os.path spares every host the import of pathlib; one broken source must not cost the others.
# ruff: noqa: PTH100, PTH110, PTH115, PTH118, PTH119, PTH120, PTH123, PTH208, BLE001
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

from onecat.probe.agent.core import Late

re = Late("re")

TOOLS = (
    "curl",
    "docker",
    "gcc",
    "journalctl",
    "lspci",
    "mokutil",
    "nginx",
    "npu-smi",
    "numactl",
    "nvcc",
    "nvidia-container-cli",
    "nvidia-container-runtime",
    "nvidia-container-runtime-hook",
    "nvidia-ctk",
    "nvidia-persistenced",
    "nvidia-smi",
    "podman",
    "podman-compose",
    "python3",
    "sudo",
    "systemctl",
)
LIBRARIES = ("libnuma.so.1",)


def tools(machine, emit):
    paths = [(name, machine.find_program(name)) for name in TOOLS]
    emit(tools={"paths": [[name, path] for name, path in paths if path]})
    if not machine.is_running:
        return
    emit(tools={"libraries": [name for name in LIBRARIES if can_be_loaded(name)]})
    nginx = dict(paths)["nginx"]
    if nginx:
        emit(doing="running nginx -v")
        _, output, messages = machine.run([nginx, "-v"])
        match = re.search(r"nginx/([\d.]+)", output + messages)
        emit(tools={"versions": [["nginx", match.group(1)]] if match else []})


def can_be_loaded(library):
    import ctypes

    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


SOURCES = {"tools": tools}
