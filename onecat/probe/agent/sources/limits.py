"""Resource limits of the user that probes."""

# os.path spares every host the import of pathlib; one broken source must not cost the others.
# ruff: noqa: PTH100, PTH110, PTH118, PTH119, PTH120, PTH123, PTH208, BLE001
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

from onecat.probe.agent.core import Unknown

NAMES = ("nofile", "memlock", "nproc", "stack", "as", "fsize")
"""As in limits.conf: https://man7.org/linux/man-pages/man5/limits.conf.5.html"""


def limits(machine, emit):
    if not machine.is_running:
        raise Unknown("absent", "limits are those of a running machine")
    import resource

    def number(value):
        return None if value == resource.RLIM_INFINITY else value

    values = [(name, resource.getrlimit(getattr(resource, "RLIMIT_" + name.upper()))) for name in NAMES]
    emit(limits=[{"name": name, "soft": number(soft), "hard": number(hard)} for name, (soft, hard) in values])


SOURCES = {"limits": limits}
