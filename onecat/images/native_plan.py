"""What making a native runtime will do, before it does anything."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from onecat.images.build_host import local_free_space
from onecat.images.disk import megabytes
from onecat.images.host_check import INSTALLED_PER_DOWNLOADED
from onecat.images.lock import profile_lock
from onecat.images.native import choose_interpreter, find_runtime, runtime_directory
from onecat.images.wheels import wheel_store

if TYPE_CHECKING:
    from onecat.config.schema import Profile
    from onecat.paths import Home


@dataclass(frozen=True)
class NativePlan:
    """wheels, download_bytes: what is still to be fetched. installed_bytes: about. free_bytes: on that disk."""

    profile: str
    engine: str
    python: str
    directory: str
    up_to_date: bool
    wheels: int = 0
    download_bytes: int = 0
    installed_bytes: int = 0
    free_bytes: int | None = None
    warnings: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """As part of the onecat.build/1 document."""
        return asdict(self)

    def lines(self) -> list[str]:
        """For people."""
        if self.up_to_date:
            return [f"plan: the runtime in {self.directory} is up to date; nothing to do"]
        free = "unknown" if self.free_bytes is None else f"{megabytes(self.free_bytes)} free"
        return [
            f"plan: native runtime {self.engine} on Python {self.python} for profile {self.profile}",
            f"  in:       {self.directory}",
            *self._download(),
            f"  disk:     about {megabytes(self.installed_bytes)} besides; {free}",
            *(f"  warning:  {each}" for each in self.warnings),
        ]

    def _download(self) -> tuple[str, ...]:
        if not self.wheels:
            return ("  download: nothing",)
        size = f"  download: {self.wheels} wheels, {megabytes(self.download_bytes)}"
        return size, "            by onecat, from the index of this user's pip"


def native_plan(profile: Profile, home: Home, *, offline: bool = False) -> NativePlan:
    """The plan of a profile's native runtime.

    Parameters:
        offline: nothing may be downloaded; what is not here is a warning.

    Raises OnecatError (exit code 2): no lock, or no Python that the engine has wheels for.
    """
    lock = profile_lock(profile)
    engine = f"{lock.engine} {lock.version}"
    present = find_runtime(profile, home)
    if present is not None:
        return NativePlan(profile.name, engine, present.python_version, str(present.directory), up_to_date=True)
    _, python = choose_interpreter(lock)
    store = wheel_store(home)
    rows = lock.for_python(python)
    absent = [row for row in rows if not store.path(row).is_file()]
    warnings = (f"--offline: {len(absent)} wheels are not on this machine",) if offline and absent else ()
    existing = next(path for path in (home.runtimes, *home.runtimes.parents) if path.exists())
    return NativePlan(
        profile.name,
        engine,
        python,
        str(runtime_directory(home, lock, python)),
        up_to_date=False,
        wheels=len(absent),
        download_bytes=sum(lock.estimated_size(row) for row in absent),
        installed_bytes=round(sum(lock.estimated_size(row) for row in rows) * INSTALLED_PER_DOWNLOADED),
        free_bytes=local_free_space(str(existing)),
        warnings=warnings,
    )
