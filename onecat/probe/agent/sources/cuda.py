"""Copies to a GPU through libcuda.so.1, the driver's own library: no toolkit, no kernel, no image."""

# ruff: noqa: PTH118
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

import ctypes
import os
import time

LIBRARY = "libcuda.so.1"
NON_BLOCKING = 1


class CudaError(Exception):
    """A call of the driver that failed."""


class Driver:
    """Calls driver functions by name; raises CudaError with the error's name."""

    def __init__(self, directory):
        try:
            self.library = ctypes.CDLL(os.path.join(directory, LIBRARY))
        except OSError as error:
            raise CudaError(str(error)) from None

    def __call__(self, name, *arguments):
        code = getattr(self.library, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            known = self.library.cuGetErrorName(code, ctypes.byref(text)) == 0 and text.value
            raise CudaError(f"{name}: {text.value.decode() if known else code}")  # type: ignore[union-attr]


def copy_to_gpu(directory, address, size, pieces, seconds, watch, doing):
    """Copy pinned memory to a GPU for some seconds.

    directory: of the driver's libraries, "" for those that the loader takes. address: of the GPU on the PCI bus. size:
    bytes of a copy. pieces: copies that are queued together; watch is called while they run. doing: is told before what
    may hang. Returns the bytes that were copied and the seconds it took.
    Raises CudaError; what was taken is then given back by the end of the process.
    """
    doing(f"loading {LIBRARY} for the memory")
    call = Driver(directory)
    device, context, host, target, stream = (
        ctypes.c_int(),
        ctypes.c_void_p(),
        ctypes.c_void_p(),
        ctypes.c_uint64(),
        ctypes.c_void_p(),
    )
    doing("in cuInit")
    call("cuInit", 0)
    call("cuDeviceGetByPCIBusId", ctypes.byref(device), address.encode())
    doing("in cuDevicePrimaryCtxRetain")
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    doing("in cuMemHostAlloc")
    call("cuMemHostAlloc", ctypes.byref(host), ctypes.c_size_t(size), 0)
    doing("in cuMemAlloc")
    call("cuMemAlloc_v2", ctypes.byref(target), ctypes.c_size_t(size))
    call("cuStreamCreate", ctypes.byref(stream), NON_BLOCKING)

    def copy():
        for _ in range(pieces):
            call("cuMemcpyHtoDAsync_v2", target, host, ctypes.c_size_t(size), stream)
        watch()
        doing("copying to the memory")
        call("cuStreamSynchronize", stream)
        return pieces * size

    # The link needs a moment to speed up.
    copy()
    started = time.monotonic()
    moved = copy()
    while time.monotonic() - started < seconds:
        moved += copy()
    taken = time.monotonic() - started
    doing("giving back the memory")
    call("cuStreamDestroy_v2", stream)
    call("cuMemFree_v2", target)
    call("cuMemFreeHost", host)
    call("cuDevicePrimaryCtxRelease", device)
    return moved, taken
