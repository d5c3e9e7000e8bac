"""What `up` would change in a deployment, and what somebody has changed on its host since it was deployed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from onecat.deploy import prerequisites
from onecat.deploy.fingerprint import fingerprint
from onecat.deploy.hand_edits import nginx_edits
from onecat.deploy.site import to_document
from onecat.deploy.store import read_json, understood
from onecat.deploy.written_files import HandEdit, rendered_edits, unified
from onecat.planner.records import to_json

if TYPE_CHECKING:
    from onecat.deploy.container_spec import ContainerSpec
    from onecat.deploy.releases import Release
    from onecat.deploy.request import Run
    from onecat.deploy.store import DeploymentStore
    from onecat.hosts import Machine

SCHEMA = "onecat.diff/1"
UNIT_DIRECTORY = "/etc/systemd/system"
# What `docker update` can set and a specification leaves alone: what the engine says where nobody has set it.
_UNLIMITED: Mapping[str, tuple[Any, ...]] = {
    "Memory": (0,),
    "NanoCpus": (0,),
    "CpuQuota": (0,),
    "CpuShares": (0,),
    "CpusetCpus": ("",),
    "CpusetMems": ("",),
    "PidsLimit": (None, 0, -1),
    "Privileged": (False,),
}

Kind = Literal[
    "arguments", "environment", "image", "settings", "nginx", "model", "key", "release", "container", "unit", "files"
]


@dataclass(frozen=True)
class Difference:
    """One thing that is not the same. what: in one sentence; diff: unified, where there is text to compare."""

    kind: Kind
    what: str
    diff: tuple[str, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """A deployment on one host. changes: what `up` would change; drift: what was changed on the host by hand.

    release: the one that serves or should. with_configuration: whether changes were looked for.
    """

    deployment: str
    host: str
    release: int | None
    changes: tuple[Difference, ...]
    drift: tuple[Difference, ...]
    with_configuration: bool

    @property
    def same(self) -> bool:
        return not self.changes and not self.drift


def compare_deployment(run: Run | None, store: DeploymentStore) -> Comparison:
    """Compare what runs with what is asked for, and with what was written.

    Parameters:
        run: what `up` would work with (`onecat.deploy.preparing.prepare_run`); None: only drift is looked for.
    """
    current = store.current()
    if current is None:
        what = "nothing serves: onecat up would start the first release"
        first = () if run is None else (Difference("release", what),)
        return Comparison(store.name, store.machine.name, None, first, (), run is not None)
    changes = () if run is None else tuple(_changes(run, current))
    drift = tuple(_drift(store, current))
    return Comparison(store.name, store.machine.name, current.number, changes, drift, run is not None)


# --- what up would change ---------------------------------------------------------------------------------------------


def _changes(run: Run, current: Release) -> Iterator[Difference]:
    machine = run.machine
    plan_file = f"{current.directory}/plan.json"
    before = read_json(machine, plan_file) or {}
    plan = to_json(run.plan)
    with understood(machine, plan_file):
        found = [
            *_text_change("arguments", "the server's arguments", _words(before), _words(plan)),
            *_text_change("environment", "the server's environment", _environment(before), _environment(plan)),
            *_image_changes(run, current, before, plan),
        ]
    found += _settings_changes(run, current)
    found += _site_changes(run, current)
    yield from found
    image = _image_id(run)
    entries = machine.entries(run.plan.model_directory)
    same = fingerprint(
        run.deployment,
        run.plan,
        run.argv,
        entries,
        run.traffic is not None,
        image,
        prerequisites.read_secret(run.secret),
    )
    if same != current.fingerprint and not found:
        yield Difference("model", "files of the model, the API key or the engine have changed since it was deployed")


def _text_change(kind: Kind, what: str, before: str, after: str) -> list[Difference]:
    if before == after:
        return []
    return [Difference(kind, f"{what} would change", unified(before, after, what, "serves now", "onecat.yaml"))]


def _words(plan: Mapping[str, Any]) -> str:
    """Arguments, a flag and its value on one line; without the port, which each release gets anew."""
    words, lines = list(plan.get("server_args", ())), []
    while words:
        word = words.pop(0)
        line = [word]
        while word.startswith("--") and "=" not in word and words and not words[0].startswith("--"):
            line.append(words.pop(0))
        if word != "--port":
            lines.append(f" {shlex.join(line)}")  # a sign of a diff before it must not look like a dash of it
    return "\n".join(lines)


def _environment(plan: Mapping[str, Any]) -> str:
    # Which GPUs a release gets is decided when it is made.
    env = {name: value for name, value in plan.get("env", {}).items() if name != "CUDA_VISIBLE_DEVICES"}
    return "\n".join(f"{name}={value}" for name, value in sorted(env.items()))


def _image_changes(
    run: Run, current: Release, before: Mapping[str, Any], plan: Mapping[str, Any]
) -> Iterator[Difference]:
    was, wanted = ((each.get("container") or {}).get("image") for each in (before, plan))
    if was != wanted:
        yield Difference("image", f"the image would be {wanted or 'none'}, in place of {was or 'none'}")
        return
    identifier = _image_id(run)
    if wanted is not None and identifier is None:
        yield Difference("image", f"the image {wanted} is not on the host any more")
    elif wanted is not None and current.image_id not in (None, identifier):
        what = f"the image {wanted} was built anew: {_short(identifier)} in place of {_short(current.image_id)}"
        yield Difference("image", what)


def _short(identifier: str | None) -> str:
    return (identifier or "none").removeprefix("sha256:")[:12]


def _image_id(run: Run) -> str | None:
    if run.plan.container is None:
        return None
    from onecat.deploy.container import image_id

    return image_id(run.machine.docker_host(run.request.docker_host), run.plan.container.image)


def _site_changes(run: Run, current: Release) -> list[Difference]:
    """Changes of nginx's site; the keys of its clients change without a release, so those that it has now count."""
    if run.site is None and not current.proxied:
        return []
    was = read_json(run.machine, f"{current.directory}/site.json")
    wanted = None if run.site is None else to_document(run.site)
    texts = [
        _table({name: value for name, value in (each or {}).items() if name != "keys_mark"}) for each in (was, wanted)
    ]
    found = _text_change("nginx", "nginx's site", *texts)
    now = None if run.traffic is None else run.traffic.site()
    marks = {each.keys_mark for each in (now, run.site) if each is not None and each.checks_keys}
    if len(marks) > 1:
        what = "the clients' keys are others than nginx has: onecat keys reload (or up) hands them over"
        found.append(Difference("key", what))
    return found


def _settings_changes(run: Run, current: Release) -> list[Difference]:
    """Changes of onecat.yaml that make a release, and are not in the arguments, the environment or nginx's site."""
    path = f"{current.directory}/request.json"
    kept = read_json(run.machine, path)
    if kept is None:
        return []
    with understood(run.machine, path):
        before: dict[str, Any] = dict(kept["deployment"])
    after = run.deployment.model_dump(mode="json")
    elsewhere = ("serve", "env", "proxy", "runtime", "preflight")
    texts = [_table({name: value for name, value in each.items() if name not in elsewhere}) for each in (before, after)]
    return _text_change("settings", "settings of onecat.yaml", *texts)


def _table(document: Mapping[str, Any] | None) -> str:
    """A document with one line for each value, as `proxy.tls.port: 443`."""
    return "\n".join(f"{name}: {json.dumps(value)}" for name, value in _flat("", document or {}))


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _flat(f"{name}.{key}" if name else str(key), inner)
    else:
        yield name, value


# --- what was changed by hand -----------------------------------------------------------------------------------------


def _drift(store: DeploymentStore, current: Release) -> Iterator[Difference]:
    machine = store.machine
    yield from (_of_edit("nginx", each) for each in nginx_edits(store, current))
    yield from _unit_drift(machine, current)
    yield from (_of_edit("files", each) for each in rendered_edits(machine, current.directory))
    if current.service == "docker" and current.container is not None:
        yield from _container_drift(machine, current)
    yield from _key_drift(machine, current)


def _of_edit(kind: Kind, edit: HandEdit) -> Difference:
    return Difference(kind, f"{edit.path} was {edit.edit} by hand", edit.diff)


def _unit_drift(machine: Machine, current: Release) -> Iterator[Difference]:
    """The unit that systemd reads, beside the one that was rendered."""
    if current.service != "systemd":
        return
    for name in machine.names(f"{current.directory}/systemd"):
        if not name.endswith(".service"):
            continue
        written = machine.read(f"{current.directory}/systemd/{name}") or b""
        path = f"{UNIT_DIRECTORY}/{name}"
        present = machine.read(path)
        if present is None:
            yield Difference("unit", f"{path} was removed by hand")
        elif present != written:
            texts = written.decode(errors="replace"), present.decode(errors="replace")
            yield Difference("unit", f"{path} was changed by hand", unified(*texts, path, "as written", "on the host"))
        for drop_in in machine.names(f"{path}.d"):
            yield Difference("unit", f"{path}.d/{drop_in} changes the unit, and is not onecat's")


def _container_drift(machine: Machine, current: Release) -> Iterator[Difference]:
    from onecat.deploy.container import saved_spec

    spec = saved_spec(machine, current.directory)
    if spec is None:
        return
    attributes = _inspected(machine, current, spec.name)
    if attributes is None:
        yield Difference("container", f"container {spec.name} was removed by hand")
        return
    lines = container_differences(attributes, spec, current.image_id, of_unit=current.service == "systemd")
    if lines:
        yield Difference("container", f"container {spec.name} is not as it was made", tuple(lines))


def _inspected(machine: Machine, current: Release, name: str) -> Mapping[str, Any] | None:
    from docker.errors import NotFound

    from onecat.deploy.container import connect, translated

    docker_host = machine.docker_host(current.docker_host)
    with translated(docker_host, None):
        try:
            attributes: Mapping[str, Any] = connect(docker_host).api.inspect_container(name)
        except NotFound:
            return None
    return attributes


def container_differences(
    attributes: Mapping[str, Any], spec: ContainerSpec, image_id: str | None, of_unit: bool = False
) -> list[str]:
    """What `docker inspect` says otherwise than a container was made, as lines of a diff. Pure.

    Parameters:
        image_id: what the image's name meant then; None: not known. of_unit: whether a unit of systemd looks after it,
            which leaves nothing of that to Docker.
    """
    from onecat.deploy.container import RESTART_POLICY
    from onecat.deploy.container_spec import create_body

    body = create_body(spec)
    policy = {"Name": "no", "MaximumRetryCount": 0} if of_unit else RESTART_POLICY
    wanted_host: dict[str, Any] = {**body.pop("HostConfig"), "RestartPolicy": policy}
    if of_unit:
        body.pop("Healthcheck", None)
    body.pop("Image")
    host, config = attributes["HostConfig"], attributes["Config"]
    found = [*_unlike("Config", body, config), *_unlike("HostConfig", wanted_host, host)]
    for name, usual in _UNLIMITED.items():
        if name not in wanted_host and name in host and host[name] not in usual:
            found += [f"- HostConfig.{name}: {json.dumps(usual[0])}", f"+ HostConfig.{name}: {json.dumps(host[name])}"]
    if image_id is not None and attributes["Image"] != image_id:
        found += [f"- Image: {image_id}", f"+ Image: {attributes['Image']}"]
    if attributes["State"].get("Paused"):
        found += ["- State.Paused: false", "+ State.Paused: true"]
    return found


def _unlike(name: str, wanted: Any, present: Any) -> Iterator[str]:
    """Where `present` lacks what is wanted; what it has beyond, as the engine's own defaults, is fine."""
    if isinstance(wanted, Mapping):
        for key, value in wanted.items():
            yield from _unlike(f"{name}.{key}", value, (present or {}).get(key))
    elif isinstance(wanted, Sequence) and not isinstance(wanted, str):
        for number, value in enumerate(wanted):
            if not any(not list(_unlike(name, value, each)) for each in present or ()):
                yield f"- {name}[{number}]: {json.dumps(value)}"
    elif wanted != present and not (wanted in (False, 0, "") and present in (None, False, 0, "")):
        yield f"- {name}: {json.dumps(wanted)}"
        yield f"+ {name}: {json.dumps(present)}"


def _key_drift(machine: Machine, current: Release) -> Iterator[Difference]:
    """The API key's file, beside the copy that the server has."""
    path = f"{current.directory}/request.json"
    kept = read_json(machine, path)
    with understood(machine, path):
        place = {} if kept is None else kept["deployment"]["secrets"]["api_key"] or {}
    copy = machine.read(f"{current.directory}/secrets/api_key")
    if copy is None or not place.get("file") or not machine.is_local:
        return
    present = machine.read(place["file"])
    if present is None:
        yield Difference("key", f"the file of the API key is gone: {place['file']}; the server still has the key")
    elif present.strip() != copy.strip():
        what = f"the API key in {place['file']} is another one than the server has: onecat up hands it over"
        yield Difference("key", what)


def comparison_document(found: Comparison) -> dict[str, Any]:
    """One comparison in the `onecat.diff/1` document."""
    return {
        "deployment": found.deployment,
        "host": found.host,
        "release": found.release,
        "same": found.same,
        "with_configuration": found.with_configuration,
        "changes": [_document(each) for each in found.changes],
        "drift": [_document(each) for each in found.drift],
    }


def _document(difference: Difference) -> dict[str, Any]:
    return {"kind": difference.kind, "what": difference.what, "diff": list(difference.diff)}
