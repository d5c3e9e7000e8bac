"""Steps of a fix that are commands, shown so that a person can copy them."""

from __future__ import annotations

from onecat.render import columns

_PROGRAMS = frozenset(
    {
        "apt-get",
        "curl",
        "dnf",
        "docker",
        "echo",
        "export",
        "getent",
        "nvidia-smi",
        "onecat",
        "ping",
        "podman",
        "ps",
        "ss",
        "ssh",
        "ssh-add",
        "ssh-keygen",
        "ssh-keyscan",
        "sudo",
        "ulimit",
        "unset",
    }
)
_PROSE = (", ", ": ", "; ")


def is_command(step: str) -> bool:
    """Whether a step can be typed as it stands: it begins with a program, and no words stand around it."""
    return step.split(" ", 1)[0] in _PROGRAMS and not any(mark in step for mark in _PROSE)


def wrap(step: str, width: int, first: str, following: str) -> list[str]:
    """A command in lines of at most `width` columns that a shell takes for one when they are copied together.

    One with single quotes stays whole, because a shell joins no lines within them.
    """
    if "'" in step or columns.width(first + step) <= width:
        return [first + step]
    *lines, last = columns.wrap(step, width - len(" \\"), first, following)
    return [*(line + " \\" for line in lines), last]
