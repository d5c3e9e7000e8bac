"""Makes what an engine runs in: container images and native runtimes.

In: a profile, the lock of its engine or its pinned source with the patches, and where packages come from. Out: the plan
of a build, a rendered build context, a built image, a wheel, or a native runtime whose `serve_argv` starts the server.

Doorways of their own, which a build does not load unasked: `lock_session` and `lock_file` (onecat.lock), `bundle`,
`bundle_create` and `bundle_load` (one file for machines without a network), `sbom` (bills of materials), `sources`
(source archives) and `docker_engine` (the connection, which deploying uses as well).
"""

from onecat.images.build_plan import BuildPlan
from onecat.images.build_plan_text import plan_document, plan_lines
from onecat.images.container import BuiltWheel, build_wheel, ensure_image, log_file, prepare_build
from onecat.images.context import Context, ContextFile, render_context
from onecat.images.context_output import write_context
from onecat.images.docker_build import BuilderChoice, BuiltImage, build_image, find_image
from onecat.images.hadolint import Lint, lint
from onecat.images.native import NativeRuntime, ensure_runtime, find_runtime
from onecat.images.native_plan import native_plan
from onecat.images.options import BuildOptions, PackageOrigins
from onecat.images.remote_engine import EngineAccess, engine_on
from onecat.images.stored_file import StoredFile
from onecat.images.wheels import WheelStore, wheel_store

__all__ = [
    "BuildOptions",
    "BuildPlan",
    "BuilderChoice",
    "BuiltImage",
    "BuiltWheel",
    "Context",
    "ContextFile",
    "EngineAccess",
    "Lint",
    "NativeRuntime",
    "PackageOrigins",
    "StoredFile",
    "WheelStore",
    "build_image",
    "build_wheel",
    "engine_on",
    "ensure_image",
    "ensure_runtime",
    "find_image",
    "find_runtime",
    "lint",
    "log_file",
    "native_plan",
    "plan_document",
    "plan_lines",
    "prepare_build",
    "render_context",
    "wheel_store",
    "write_context",
]
