"""NVIDIA's container toolkit, and the files that describe devices for containers (CDI)."""

# os.path spares every host the import of pathlib; one broken source must not cost the others.
# ruff: noqa: PTH100, PTH110, PTH115, PTH118, PTH119, PTH120, PTH123, PTH208, BLE001
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

from onecat.probe.agent.core import Late, Unknown, needs_root

json = Late("json")
re = Late("re")

SPECIFICATION_FOLDERS = ("/etc/cdi", "/var/run/cdi")
"""Source: https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md"""
CONFIGURATION = "/etc/nvidia-container-runtime/config.toml"
PROGRAMS = (("nvidia-ctk", r"version ([\d.]+\S*)"), ("nvidia-container-cli", r"cli-version: ([\d.]+\S*)"))


def toolkit(machine, emit):
    found = [specification(machine, path) for path in specification_files(machine)]
    emit(container_toolkit={"specifications": found})
    emit(container_toolkit=configuration(machine))
    if any(not each["readable"] for each in found) and not machine.is_root:
        emit(note=needs_root("the devices in CDI specifications that only root can read"))
    for name, pattern in PROGRAMS:
        program = machine.find_program(name)
        if program is not None and machine.is_running:
            emit(doing="running " + name + " --version")
            _, output, _ = machine.run([program, "--version"])
            match = re.search(pattern, output)
            if match:
                emit(container_toolkit={"version": match.group(1)})
                return
    raise Unknown("absent", "neither nvidia-ctk nor nvidia-container-cli tells a version")


def specification_files(machine):
    for folder in SPECIFICATION_FOLDERS:
        for name in machine.list(folder):
            if name.endswith((".yaml", ".yml", ".json")):
                yield folder + "/" + name


def specification(machine, path):
    try:
        text = machine.read(path)
    except OSError:
        return {"path": path, "readable": False}
    kind, names = read_json(text) if path.endswith(".json") else read_yaml(text)
    match = re.search(r"lib(?:cuda|nvidia-ml)\.so\.(\d+\.\d+(?:\.\d+)*)", text)
    return {
        "path": path,
        "readable": True,
        "devices": [kind + "=" + name for name in names] if kind else [],
        "driver_version": match.group(1) if match else None,
    }


def read_json(text):
    try:
        document = json.loads(text)
        return document["kind"], [device["name"] for device in document["devices"]]
    except (ValueError, KeyError, TypeError):
        return None, []


def read_yaml(text):
    """The kind and the names of the devices of a specification, by indentation: hosts have no library for YAML.

    A device's name stands in the column of its other keys; what is deeper inside it has names of its own.
    """
    kind = None
    names = []
    column = None
    inside = False
    for line in text.splitlines():
        match = re.match(r"(\s*(?:- +)?)([\w-]+):\s*(.*)", line)
        if not match:
            continue
        place, key, value = len(match.group(1)), match.group(2), match.group(3).strip("\"' ")
        starts_item = "-" in match.group(1)
        if place == 0:
            inside, column = key == "devices", None
            if key == "kind":
                kind = value
        elif inside:
            column = place if column is None and starts_item else column
            if place == column and key == "name":
                names.append(value)
    return kind, names


def configuration(machine):
    """What the toolkit's own settings say: TOML, of which only sections and simple values are read."""
    section = ""
    values = {}
    for line in (machine.read_or_none(CONFIGURATION) or "").splitlines():
        header = re.match(r"\s*\[([^\]]+)\]", line)
        pair = re.match(r"\s*([\w-]+)\s*=\s*\"?([^\"#]*)\"?", line)
        if header:
            section = header.group(1).strip()
        elif pair:
            values[section, pair.group(1)] = pair.group(2).strip()
    no_cgroups = values.get(("nvidia-container-cli", "no-cgroups"))
    return {
        "no_cgroups": None if no_cgroups is None else no_cgroups == "true",
        "mode": values.get(("nvidia-container-runtime", "mode")),
    }


SOURCES = {"toolkit": toolkit}
