"""Makes what an engine runs in: container images and native runtimes.

In: a profile, and the lock of its engine. Out: a rendered build context, a built image, or a native runtime whose
`serve_argv` starts the server.
"""

from onecat.images.container import ensure_image
from onecat.images.context import Context, ContextFile, render_context, write_context
from onecat.images.docker_build import BuiltImage, build_image, find_image
from onecat.images.native import NativeRuntime, ensure_runtime, find_runtime
from onecat.images.options import BuildOptions, PackageOrigins
from onecat.images.stored_file import StoredFile
from onecat.images.wheels import WheelStore, wheel_store

__all__ = [
    "BuildOptions",
    "BuiltImage",
    "Context",
    "ContextFile",
    "NativeRuntime",
    "PackageOrigins",
    "StoredFile",
    "WheelStore",
    "build_image",
    "ensure_image",
    "ensure_runtime",
    "find_image",
    "find_runtime",
    "render_context",
    "wheel_store",
    "write_context",
]
