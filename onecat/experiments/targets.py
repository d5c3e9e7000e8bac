"""What load goes to: a deployment or an address, and from where it is sent.

Load on a server of somebody else is an attack. An address must be one of this machine or of a host of the deployment
that is named beside it; any other needs to be asked for in so many words.
"""

from __future__ import annotations

import contextlib
import ipaddress
import platform
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from onecat import __version__
from onecat.errors import ExitCode, OnecatError
from onecat.experiments.environments import deployment_arm
from onecat.experiments.loads import LoadDriver
from onecat.experiments.loads.cores import Pinning, choose_cores
from onecat.experiments.loads.engine import REQUEST_SECONDS, EngineLoadDriver, program_words
from onecat.experiments.records import ApiKey, Endpoint, Environment
from onecat.experiments.server_processes import cores_of_machine, look_at

if TYPE_CHECKING:
    from onecat.deploy.releases import Release
    from onecat.deploy.request import UpRequest
    from onecat.deploy.store import DeploymentStore
    from onecat.hosts import Conversation, Machine

ANYWAY = "--load-foreign-server"
"""The option that lets load go to an address that is not known to be one's own."""
DRIVERS = ("engine", "aiperf")
UNPINNED = Pinning(None, "the load is sent from any core, as was asked")
_TOKENIZER_VALUES = ("--tokenizer-mode",)
_TOKENIZER_SWITCHES = ("--trust-remote-code",)


@dataclass(frozen=True)
class NativeSender:
    """The load is sent by a native runtime of this machine. python: its interpreter."""

    python: str


@dataclass(frozen=True)
class ContainerSender:
    """The load is sent by a container of an image. user: uid:gid. docker_host: the daemon, as the machine names it."""

    image: str
    user: str
    docker_host: str | None


@dataclass(frozen=True)
class Target:
    """A server and what sends load to it.

    endpoint: as the sending machine reaches it. arm: what is known of it, for `Environment.arms`. machine: which sends
    the load. sender: what by. tokenizer_words: how the server reads its tokenizer. store, release: of a deployment;
    max_model_len: tokens of its longest request, where its arguments or its plan say so.
    """

    endpoint: Endpoint
    arm: dict[str, Any]
    machine: Machine
    sender: NativeSender | ContainerSender
    tokenizer_words: tuple[str, ...] = ()
    store: DeploymentStore | None = None
    release: Release | None = None
    max_model_len: int | None = None


def deployment_target(
    store: DeploymentStore, *, direct: bool = False, label: str = "", number: int | None = None
) -> Target:
    """What a deployment serves by its current release, to be loaded from the host that it runs on.

    Parameters:
        direct: the server itself, not the nginx before it. label: of the endpoint; by default the deployment's name.
        number: another release, which must run, to be loaded directly.

    Raises OnecatError when nothing is deployed, or when its host cannot be asked.
    """
    from onecat.deploy.host_facts import facts_of
    from onecat.deploy.saved_request import saved_request

    machine = store.machine
    release = store.current() if number is None else store.load(number)
    if release is None:
        raise OnecatError(
            f"{store.name} has no release that serves" if number is None else f"{store.name} has no release {number}",
            where=machine.name,
            next_steps=[f"onecat status {store.name}", "onecat up"],
            code=ExitCode.NO,
        )
    facts = facts_of(machine)
    request = saved_request(machine, release, "up", facts)
    through_nginx = release.proxied and not direct and number is None
    endpoint = Endpoint(
        label=label or store.name,
        base_url=_front_url(store, release) if through_nginx else release.server_url,
        model=release.model,
        tokenizer=_tokenizer(request),
        server_name=_site_name(release) if through_nginx else None,
        key=_key(request, release, through_nginx),
        # The certificate is for a name, and we go to an address of our own host.
        verify=not (through_nginx and release.endpoint.startswith("https:")),
    )
    sender = _sender(machine, release, request)
    python = sender.python if isinstance(sender, NativeSender) else None
    arm = deployment_arm(machine, release, request.plan, request.profile, facts, python)
    return Target(
        endpoint=endpoint,
        arm={**arm, "loaded": endpoint.base_url},
        machine=machine,
        sender=sender,
        tokenizer_words=_tokenizer_words(request.plan.server_args),
        store=store,
        release=release,
        max_model_len=_longest(request),
    )


def url_target(
    url: str,
    model: str,
    *,
    machine: Machine,
    sender: NativeSender | ContainerSender,
    tokenizer: str | None,
    key_file: str | None = None,
    label: str = "",
    allowed_hosts: Sequence[str] = (),
    foreign: bool = False,
) -> Target:
    """A server by its address, about which nothing else is known.

    Parameters:
        url: with or without /v1 at its end. tokenizer: a directory of the machine that sends the load.
        allowed_hosts: names and addresses of hosts that may be loaded besides this machine. foreign: any may.

    Raises OnecatError for what is no address, and for one that is nobody's of these (exit code 2).
    """
    parts = urlsplit(url if "//" in url else f"http://{url}")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise OnecatError(
            f"{url} is no address of a server",
            expected="http://ADDRESS:PORT or https://NAME, without user and password",
            next_steps=["as: --endpoint http://127.0.0.1:8080"],
        )
    if not foreign:
        check_own(parts.hostname, machine, allowed_hosts)
    path = parts.path.rstrip("/").removesuffix("/v1")
    base = f"{parts.scheme}://{parts.netloc}{path}"
    endpoint = Endpoint(label or base, base, model, tokenizer=tokenizer, key_file=key_file)
    return Target(endpoint, {"model": model, "endpoint": base, "loaded": base}, machine, sender)


def open_driver_named(
    name: str, target: Target, *, request_seconds: float = REQUEST_SECONDS, pin: bool = True
) -> LoadDriver:
    """The driver that a person names: `engine` or `aiperf`. Raises OnecatError, as `open_driver`."""
    if name == "aiperf":
        from onecat.experiments.loads.aiperf import AiperfLoadDriver

        pinning = pinning_for(target) if pin else UNPINNED
        where = _where(target.machine)
        return AiperfLoadDriver(target.machine, where=where, pinning=pinning, request_seconds=request_seconds)
    return open_driver(target, request_seconds=request_seconds, pin=pin)


def open_driver(
    target: Target, *others: Target, request_seconds: float = REQUEST_SECONDS, pin: bool = True
) -> EngineLoadDriver:
    """Start what sends load to a target, and to others from the same place: of two that are compared, one sends all.

    Parameters:
        request_seconds: after so many a request counts as timed out. pin: whether it stays on cores of its own.

    Raises OnecatError when it cannot be started.
    """
    pinning = pinning_for(target) if pin else UNPINNED
    sender, runtime = target.sender, "a native runtime"
    if isinstance(sender, ContainerSender):
        runtime = f"a container of {sender.image[:19]}"
    tokenizers = dict.fromkeys(each.endpoint.tokenizer for each in (target, *others) if each.endpoint.tokenizer)
    return EngineLoadDriver(
        lambda: _start(target, tuple(tokenizers)),
        where=_where(target.machine),
        runtime=runtime,
        pinning=pinning,
        tokenizer_words=target.tokenizer_words,
        request_seconds=request_seconds,
    )


def _where(machine: Machine) -> str:
    return platform.node() if machine.is_local else machine.name


def pinning_for(target: Target) -> Pinning:
    """The cores that what sends the load stays on. Raises OnecatError when the machine cannot be asked."""
    cores: set[int] = set()
    if target.store is not None and target.release is not None:
        from onecat.deploy.servers import server_of

        pid = server_of(target.machine, target.release).state().pid
        if pid is not None:
            cores = {core for each in look_at(target.machine, pid) for core in each.cores}
    return choose_cores(cores_of_machine(target.machine), cores)


def environment_of(driver: LoadDriver, arms: dict[str, Target]) -> Environment:
    """Under which conditions an experiment runs. arms: by name; "" for the only one."""
    return Environment(
        onecat=__version__,
        host=platform.node(),
        driver=driver.describe(),
        arms={name: target.arm for name, target in arms.items()},
    )


def check_own(host: str, machine: Machine, allowed: Iterable[str] = ()) -> None:
    """Raises OnecatError unless a name or address is the machine's own, or one of the allowed.

    A name counts when all addresses that it has do. machine: which sends the load; of another than this one the
    loopback addresses are known to be its own, whatever names mean here.
    """
    names = {each.lower() for each in allowed}
    if host.lower() in names or _is_loopback(host):
        return
    try:
        found = {str(each[4][0]).partition("%")[0] for each in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError as error:
        raise OnecatError(
            f"the name {host} is not known: {getattr(error, 'strerror', None) or error}",
            next_steps=[f"getent hosts {host}"],
            code=ExitCode.UNREACHABLE,
        ) from error
    allowed_addresses = {address for name in names for address in _addresses(name)}
    foreign = sorted(
        address
        for address in found
        if address not in allowed_addresses and not (machine.is_local and is_own_address(address))
    )
    if foreign:
        raise OnecatError(
            f"{host} ({', '.join(foreign)}) is not this machine, nor a host of a deployment that was named",
            expected="a server of your own: load on another's is an attack",
            next_steps=[
                "name the deployment that runs there, and its host: onecat bench run NAME --host HOST",
                f"if that server is yours to load, say so: {ANYWAY}",
            ],
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_own_address(address: str) -> bool:
    """Whether an address is one of this machine's: the loopback's, or one that a socket can be bound to."""
    parsed = ipaddress.ip_address(address)
    if parsed.is_loopback:
        return True
    if parsed.is_unspecified or parsed.is_multicast:
        return False
    family = socket.AF_INET6 if parsed.version == 6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def _addresses(name: str) -> set[str]:
    with contextlib.suppress(OSError):
        return {str(each[4][0]) for each in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)}
    return set()


def _front_url(store: DeploymentStore, release: Release) -> str:
    """The address for clients. Raises OnecatError where it is a loopback address of another host than the server's."""
    elsewhere = release.front is not None and release.front != release.host_name
    host = urlsplit(release.endpoint).hostname or ""
    if elsewhere and (host == "localhost" or host.startswith("127.") or host == "::1"):
        raise OnecatError(
            f"nginx answers on {release.front} alone, and the load is sent from {release.host_name}",
            where=release.endpoint,
            next_steps=[f"load the server itself: onecat bench run {store.name} --direct"],
        )
    return release.endpoint


def _site_name(release: Release) -> str | None:
    """A name by which nginx tells the site from others at its address; None where it has none."""
    return next((each for each in release.server_name.split() if each != "_" and "*" not in each), None)


def _key(request: UpRequest, release: Release, through_nginx: bool) -> ApiKey | None:
    """The key that what is loaded wants to hear: a client's where nginx checks those, else the server's."""
    from onecat.deploy.client_keys import read_client_keys
    from onecat.deploy.prerequisites import read_secret, secret_of

    if not release.protected:
        return None
    key = read_secret(secret_of(request.deployment))
    if through_nginx:
        clients = read_client_keys(request.deployment, key)
        if clients is not None:
            return ApiKey(clients.clients[0][1])
    return None if key is None else ApiKey(key)


def _tokenizer(request: UpRequest) -> str:
    """The directory on the host that holds the tokenizer which the server uses."""
    plan = request.plan
    named = _value(plan.server_args, "--tokenizer")
    if named is None:
        return plan.model_directory
    mount = None if plan.container is None else plan.container.model_mount
    if mount is not None and (named == mount or named.startswith(f"{mount}/")):
        return plan.model_directory + named[len(mount) :]
    return named


def _longest(request: UpRequest) -> int | None:
    given = _value(request.plan.server_args, "--max-model-len")
    return int(given) if given is not None and given.isdigit() else request.plan.max_model_len


def _tokenizer_words(server_args: Sequence[str]) -> tuple[str, ...]:
    words = [word for word in _TOKENIZER_SWITCHES if word in server_args]
    for name in _TOKENIZER_VALUES:
        value = _value(server_args, name)
        words += [] if value is None else [name, value]
    return tuple(words)


def _value(words: Sequence[str], name: str) -> str | None:
    """The value of an option, given as two words or with `=`; the last one counts."""
    found = None
    for at, word in enumerate(words):
        if word == name and at + 1 < len(words):
            found = words[at + 1]
        elif word.startswith(f"{name}="):
            found = word.partition("=")[2]
    return found


def _sender(machine: Machine, release: Release, request: UpRequest) -> NativeSender | ContainerSender:
    if release.runtime == "native":
        assert request.launcher is not None
        return NativeSender(request.launcher.serve_argv([])[0])
    from onecat.deploy.container import container_user, saved_spec

    spec = saved_spec(machine, release.directory)
    owner = machine.status(request.plan.model_directory)
    operator = (machine.user_id, machine.group_id)
    user = container_user(operator, operator if owner is None else (owner.uid, owner.gid))
    assert request.plan.container is not None
    return ContainerSender(
        image=release.image_id or request.plan.container.image,
        user=f"{user[0]}:{user[1]}" if spec is None else spec.user,
        docker_host=release.docker_host,
    )


def _start(target: Target, tokenizers: Sequence[str]) -> Conversation:
    sender, machine = target.sender, target.machine
    if isinstance(sender, NativeSender):
        return machine.start(program_words(sender.python))
    from onecat.deploy.container import daemon_of
    from onecat.experiments.loads.container import ContainerConversation, container_body

    docker_host = machine.docker_host(sender.docker_host)
    body = container_body(
        sender.image,
        program_words("python3"),
        user=sender.user,
        tokenizers=tokenizers,
        label=target.endpoint.label,
        selinux=daemon_of(docker_host).selinux,
    )
    return ContainerConversation(docker_host, body, machine.name)
