"""GPUs as NVML reports them, through the pynvml that travels with the agent.

A GPU that is dying can make any call hang, also calls of those that come after it. So each GPU is asked in a process of
its own, and what it had not yet said is all that a hang costs.
"""

# ruff: noqa: PTH110, PTH118
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

import os
import time

from onecat.probe.agent.core import Unknown
from onecat.probe.agent.sources import files

LIBRARY = "libnvidia-ml.so.1"
OTHER_DIRECTORIES = ("/usr/local/nvidia/lib64", "/usr/lib/wsl/lib", "/run/opengl-driver/lib")
"""Where drivers lie that the loader is not told of: on managed Kubernetes nodes, in WSL, on NixOS."""
MARGIN = 0.1
"""Share of the time limit that is left for telling what is known of GPUs that do not answer."""


def nvml(machine, emit):
    deadline = time.monotonic() + machine.timeout * (1 - MARGIN)
    path = find_library()
    if path is None:
        emit(nvidia={"library_found": False})
        raise Unknown("absent", f"{LIBRARY} was not found")
    emit(doing=f"loading {LIBRARY}")
    # Imported here: a host without the library does not compile what asks it.
    from onecat.probe.agent.sources import nvml_gpu, nvml_library

    bindings, version = nvml_library.load(path, emit)
    emit(nvidia={"library_found": True, "library_version": version})
    nvml_gpu.observe_gpus(machine, bindings, deadline, emit)


def find_library():
    """What to load: the name where the loader knows the library or may know it, the path where it lies elsewhere."""
    has_no_cache = not os.path.exists(files.LOADER_CACHE)
    if has_no_cache or files.find_library(lambda path: path, LIBRARY):
        return LIBRARY
    found = [os.path.join(each, LIBRARY) for each in OTHER_DIRECTORIES]
    return next((each for each in found if os.path.exists(each)), None)


SOURCES = {"nvml": nvml}
