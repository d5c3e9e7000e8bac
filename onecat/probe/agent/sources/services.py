"""systemd's units that have to do with serving."""

# os.path spares every host the import of pathlib; one broken source must not cost the others.
# ruff: noqa: PTH100, PTH110, PTH111, PTH114, PTH115, PTH118, PTH119, PTH120, PTH123, PTH208, BLE001
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

import os

from onecat.probe.agent.core import Late, Unknown
from onecat.probe.agent.sources.environment import HIDDEN

re = Late("re")

OWN_FOLDERS = ("/etc/systemd/system", "/run/systemd/system")
PACKAGE_FOLDERS = ("/usr/lib/systemd/system", "/lib/systemd/system")
ENGINES = ("vllm", "onecat", "1cat", "sglang", "ollama", "llama", "lmdeploy", "triton")
NAMES = (*ENGINES, "nginx", "caddy", "haproxy", "nvidia", "docker", "podman")
TEXTS = "(?i)" + "|".join(ENGINES) + r"|\bnginx\b|docker[ -](?:run|start|compose)|podman (?:run|start)"
SECRETS = (
    r"(?i)(--?[\w-]*(?:key|token|password|secret)(?:=|\s+))[^\s\"']+",
    r"(?i)(\w*(?:KEY|TOKEN|PASSWORD|SECRET)\w*=)[^\s\"']+",
)
MOST_BYTES = 64 << 10


def services(machine, emit):
    folders = [folder for folder in (*OWN_FOLDERS, *PACKAGE_FOLDERS) if machine.exists(folder)]
    if not folders:
        raise Unknown("absent", "there are no folders of systemd units")
    units = {}
    for folder in folders:
        is_own = folder in OWN_FOLDERS
        for name in machine.list(folder):
            if not name.endswith(".service") or name in units or not (is_own or has_own_name(name)):
                continue
            path = folder + "/" + name
            text = unit_text(machine, path)
            if text is not None and (has_own_name(name) or re.search(TEXTS, text)):
                text += "\n" + "\n".join(drop_ins(machine, name))
                units[name] = {"name": name, "path": path, "settings": settings(text)}
    emit(systemd_units=[units[name] for name in sorted(units)])


def has_own_name(name):
    """Whether a unit's name tells that it has to do with serving."""
    return any(word in name.lower() for word in NAMES)


def unit_text(machine, path):
    """The text of a unit; None for a name of another one, a masked one, and one that cannot be read."""
    place = machine.path(path)
    if os.path.islink(place) and os.path.basename(os.path.realpath(place)) != os.path.basename(path):
        return None
    try:
        return machine.read(path)[:MOST_BYTES]
    except OSError:
        return None


def drop_ins(machine, name):
    for folder in OWN_FOLDERS:
        for each in machine.list(folder + "/" + name + ".d"):
            if each.endswith(".conf"):
                yield machine.read_or_none(folder + "/" + name + ".d/" + each) or ""


def settings(text):
    """The pairs of a unit in order, lines that end in a backslash joined, without secrets.

    Form: https://www.freedesktop.org/software/systemd/man/latest/systemd.syntax.html
    """
    pairs = []
    for line in re.sub(r"\s*\\\n\s*", " ", text).splitlines():
        name, separator, value = line.strip().partition("=")
        if separator and not name.startswith(("#", ";", "[")):
            for secret in SECRETS:
                value = re.sub(secret, lambda match: match.group(1) + HIDDEN, value)
            pairs.append([name.strip(), value.strip()])
    return pairs


SOURCES = {"services": services}
