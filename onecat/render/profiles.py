"""Profiles, and which of them fits a host, as lines for people of at most 80 columns."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from onecat.config import layer_name

if TYPE_CHECKING:
    from onecat.config import Profile
    from onecat.planner import Detection

COLUMNS = 80


def profile_text(profile: Profile) -> str:
    """A profile for a person: each value with its reason, its source, and the layer it came from, in 80 columns."""
    lines = [*_wrapped(f"{profile.name}: {profile.summary}"), *_head(profile)]
    if profile.launch.layouts:
        lines += ["", "Layouts, the first by default; flags under serve choose another:"]
    for index, layout in enumerate(profile.launch.layouts):
        flags = ", ".join(f"{name}: {value}" for name, value in layout.flags.items())
        lines += _row(profile, f"{layout.name}  {flags}", ("launch", "layouts", index, "name"))
        lines += [*_wrapped(f"when {layout.when}", "      "), *_reason(layout.why, layout.source)]
    lines += ["", "Launch defaults:"]
    for index, argument in enumerate(profile.launch.args):
        value = str(argument.value).lower() if isinstance(argument.value, bool) else argument.value
        lines += _row(profile, f"{argument.arg}: {value}", ("launch", "args", index, "value"))
        lines += _reason(argument.why, argument.source)
    for index, variable in enumerate(profile.launch.env):
        lines += _row(profile, f"{variable.name}={variable.value}", ("launch", "env", index, "value"))
        lines += _reason(variable.why, variable.source)
    lines += _container(profile)
    if profile.drop:
        lines += ["", "Left out, though a layer below has it:"]
    for index, dropped in enumerate(profile.drop):
        kind, name = dropped.row or ("", "")
        lines += [*_row(profile, f"{kind} {name}", ("drop", index)), *_wrapped(dropped.why, "      ")]
    if profile.notes:
        lines += ["", "To know:"]
        lines += [line for note in profile.notes for line in _wrapped(f"- {note}", "  ")]
    lines += ["", "Sources:", *(f"  {source}" for source in profile.sources)]
    return "\n".join(lines)


def _head(profile: Profile) -> list[str]:
    """What a profile is for and made of, a line for each."""
    hardware, doctor, image = profile.hardware, profile.doctor, profile.image
    cards = f"{hardware.count} x {' or '.join(hardware.gpu_names)}" if hardware.count else "no accelerator"
    rows: list[tuple[str, str, tuple[str | int, ...]]] = [
        ("hardware", cards, ("hardware",)),
        ("engine", f"{profile.engine.name} {profile.engine.version}", ("engine", "version")),
        ("image", f"{image.tag}, from {image.base}", ("image", "base")),
        (
            "runtime",
            f"{profile.launch.runtime} (can be: {', '.join(profile.launch.runtimes)})",
            ("launch", "runtime"),
        ),
    ]
    if doctor.driver is not None:
        last = f", up to branch {doctor.driver.last_branch}" if doctor.driver.last_branch else ""
        rows.append(("driver", f"{doctor.driver.minimum} or later{last}", ("doctor", "driver", "minimum")))
    needs = f"{doctor.memory_gib:g} GiB of memory, {doctor.disk_gib:g} GiB of disk"
    rows.append(("needs", needs, ("doctor", "memory_gib")))
    lines = [line for label, text, path in rows for line in _labelled(profile, label, text, path)]
    if profile.extends:
        lines += _wrapped(f"layers    {', '.join(profile.extends)}", following=" " * 10)
    if profile.alternative is not None:
        told = f"instead   of {profile.alternative.to}, when {profile.alternative.when}"
        lines += _wrapped(told, following=" " * 10)
    return lines


def _container(profile: Profile) -> list[str]:
    container = profile.launch.container
    path: tuple[str | int, ...] = ("launch", "container")
    lines = ["", "In a container:"]
    lines += _row(profile, f"/dev/shm of {container.shm_size_mib} MiB", (*path, "shm_size_mib"))
    lines += _reason(container.why, None)
    for index, device in enumerate(container.devices):
        each = "N, one for each accelerator" if device.per_accelerator else ""
        lines += _row(profile, f"device {device.path}{each}", (*path, "devices", index, "path"))
        lines += _reason(device.why, device.source)
    for index, mount in enumerate(container.mounts):
        target = f" at {mount.target}" if mount.target else ""
        lines += _row(profile, f"mount {mount.path}{target}", (*path, "mounts", index, "path"))
        lines += _reason(mount.why, mount.source)
    return lines


def _row(profile: Profile, text: str, path: tuple[str | int, ...]) -> list[str]:
    """A value, with the layer it came from at the end of the line where there is room for it."""
    layer = _layer(profile, path)
    if layer is None:
        return _wrapped(text, "  ")
    if len(text) + len(layer) + 6 <= COLUMNS:
        return [f"  {text}{layer:>{COLUMNS - len(text) - 2}}"]
    return [*_wrapped(text, "  "), f"{layer:>{COLUMNS}}"]


def _labelled(profile: Profile, label: str, text: str, path: tuple[str | int, ...]) -> list[str]:
    layer = _layer(profile, path)
    lines = _wrapped(f"{label:<10}{text}", following=" " * 10)
    if layer is None:
        return lines
    if len(lines[-1]) + len(layer) + 2 <= COLUMNS:
        lines[-1] += f"{layer:>{COLUMNS - len(lines[-1])}}"
        return lines
    return [*lines, f"{layer:>{COLUMNS}}"]


def _layer(profile: Profile, path: tuple[str | int, ...]) -> str | None:
    """The part or file that a value came from, in brackets; None for one of the profile's own file, or a default."""
    where = profile.origin(*path).where
    name = layer_name(where) if where is not None else None
    own = profile.origin("name").where
    return f"[{name}]" if name is not None and (own is None or layer_name(own) != name) else None


def _reason(why: str, source: str | None) -> list[str]:
    return [*_wrapped(why, "      "), *([f"      {source}"] if source else [])]


def detection_text(host: str, found: Detection) -> str:
    """What fits one host for a person, in lines of at most 80 columns."""
    lines = _wrapped(f"{host}: {found.profile or 'no profile fits'}")
    lines += [line for text in (*found.reasons, *found.remarks) for line in _wrapped(f"- {text}", "  ")]
    for other in found.alternatives:
        lines += _wrapped(f"or {other.profile}: when {other.when}", "  ")
    if found.nearest is not None:
        told = "; ".join(found.against)
        lines += _wrapped(f"nearest: {found.nearest}" + (f" ({told})" if told else ""), "  ")
    for each in found.runners_up:
        lines += _wrapped(f"also: {each.profile}: {'; '.join(each.against or each.reasons)}", "  ")
    if found.profile is not None:
        lines += [f"  next: onecat init --profile {found.profile}"]
    else:
        lines += ["  next: onecat profile list; onecat doctor"]
    return "\n".join(lines)


def _wrapped(text: str, indent: str = "", following: str | None = None) -> list[str]:
    if following is None:
        following = f"{indent}  " if text.startswith("- ") else indent
    return textwrap.wrap(text, COLUMNS, initial_indent=indent, subsequent_indent=following, break_on_hyphens=False)
