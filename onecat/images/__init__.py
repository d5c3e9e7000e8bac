"""Makes what an engine runs in: container images and native runtimes.

In: a profile and the lock of its engine. Out: a rendered build context, a built image, or a native runtime whose
`serve_argv` starts the server.
"""

from onecat.images.native import NativeRuntime, ensure_runtime, find_runtime

__all__ = ["NativeRuntime", "ensure_runtime", "find_runtime"]
