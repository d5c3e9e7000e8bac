"""What the deployments of a host have claimed: accelerators, ports and server names; no two may have the same.

A claim is what a release that may run says in its release.json and site.json, so there is no list to go stale: `down`
ends it. Releases are made under one short lock of the host, so that two deployments cannot take the same at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from onecat.deploy.short_lock import short_lock
from onecat.deploy.store import deployments, deployments_directory, read_json, understood, write_json
from onecat.errors import ExitCode, OnecatError
from onecat.planner import processors

if TYPE_CHECKING:
    from onecat.config.schema import Profile
    from onecat.deploy.releases import Release
    from onecat.deploy.request import Run
    from onecat.deploy.strategy import Strategy
    from onecat.facts import Facts
    from onecat.hosts import Machine
    from onecat.planner.records import Plan

LOCK_FILE = "claims.lock"
NODE_CLAIM_FILE = "claim.json"
NODE_CLAIM_SCHEMA = "onecat.claim/1"
_LOCK_SECONDS = 60.0
_ANY = ("0.0.0.0", "::", "", "*")  # noqa: S104 - compared, not bound
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_DEPLOYMENT = "deployment "
_WORDS = {"nvidia": "GPU", "ascend": "NPU"}
_FIND_ENGINE = ["sh", "-c", "grep -qs '^VLLM::EngineCore' /proc/[0-9]*/cmdline"]
"""Ends with 0 where an engine runs, by what vLLM calls its process (vllm/utils/system_utils.py, set_process_title)."""


@dataclass(frozen=True)
class Accelerator:
    """A GPU or NPU of a host. processes: in words, those that use it; error: why it does not answer."""

    index: int
    name: str
    uuid: str | None = None
    error: str | None = None
    processes: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """What a release keeps: the UUID, or the index of one that has none."""
        return self.uuid or str(self.index)


@dataclass(frozen=True)
class Address:
    """Where something listens. server_name: of a site of an nginx that can hold several at one address; else None."""

    host: str
    port: int
    server_name: str | None = None

    def overlaps(self, other: Address) -> bool:
        """Whether the two cannot be had at once."""
        if self.port != other.port:
            return False
        if self.host != other.host and self.host not in _ANY and other.host not in _ANY:
            return False
        if self.server_name is None or other.server_name is None:
            return True
        return bool(set(self.server_name.split()) & set(other.server_name.split()))


def listening(listen: str, server_name: str | None = None) -> Address:
    """Where a site listens. listen: ADDRESS:PORT, as proxy.listen of onecat.yaml."""
    host, _, port = listen.rpartition(":")
    return Address(host.strip("[]"), int(port), server_name)


@dataclass(frozen=True)
class Claim:
    """What one release has: accelerators by `Accelerator.id`, and addresses."""

    deployment: str
    release: int
    accelerators: frozenset[str] = frozenset()
    addresses: tuple[Address, ...] = ()

    @property
    def words(self) -> str:
        return f"{_DEPLOYMENT}{self.deployment} (release {self.release})"


# --- pure -------------------------------------------------------------------------------------------------------------


def accelerators_of(facts: Facts | None, kind: str) -> tuple[Accelerator, ...] | None:
    """The accelerators of a host, by index; None when they are not known. kind: as in a profile, nvidia or ascend."""
    if kind == "nvidia" and facts is not None and facts.nvidia is not None and facts.nvidia.gpus:
        return tuple(
            Accelerator(
                gpu.index,
                gpu.name,
                gpu.uuid,
                gpu.error,
                tuple(
                    f"pid {each.pid}"
                    + (f" ({each.name})" if each.name else "")
                    + (f", {each.memory / 2**30:.1f} GiB" if each.memory else "")
                    for each in gpu.processes or ()
                ),
            )
            for gpu in sorted(facts.nvidia.gpus, key=lambda each: each.index)
        )
    if kind == "ascend" and facts is not None and facts.ascend is not None and facts.ascend.npus:
        return tuple(
            Accelerator(
                npu.index,
                npu.name or "Ascend",
                error=None if npu.health in (None, "OK", "Warning") else f"its health is {npu.health}",
                processes=tuple(f"pid {each}" for each in npu.process_ids or ()),
            )
            for npu in sorted(facts.ascend.npus, key=lambda each: each.index)
        )
    return None


def named(wanted: Sequence[int | str], present: Sequence[Accelerator], word: str) -> tuple[Accelerator, ...]:
    """The accelerators that `gpus` of onecat.yaml names, by index or UUID (its begin is enough). Raises OnecatError."""
    found: list[Accelerator] = []
    for name in wanted:
        text = str(name)
        if text.isdigit():
            fits = [each for each in present if each.index == int(text)]
        else:
            fits = [each for each in present if each.uuid is not None and each.uuid.lower().startswith(text.lower())]
        if len(fits) != 1:
            told = "means several" if fits else "is not on this host"
            raise _wrong(f"{word} {text} {told}", present, word)
        if fits[0] in found:
            raise _wrong(f"{word} {text} is named twice", present, word)
        if fits[0].error is not None:
            raise _wrong(f"{word} {text} cannot be used: {fits[0].error}", present, word)
        found.append(fits[0])
    return tuple(found)


def _wrong(found: str, present: Sequence[Accelerator], word: str) -> OnecatError:
    return OnecatError(
        found,
        expected=f"one of: {', '.join(str(each.index) for each in present)}",
        where="gpus",
        details=[f"{word} {each.index}: {each.name}, {each.uuid or 'no UUID'}" for each in present],
        next_steps=["correct gpus in onecat.yaml, by index or UUID"],
        code=ExitCode.USAGE,
    )


def choose(
    wanted: Sequence[int | str] | None,
    count: int,
    present: Sequence[Accelerator],
    held: Mapping[str, str],
    preferred: frozenset[str] = frozenset(),
    word: str = "GPU",
) -> tuple[Accelerator, ...]:
    """The accelerators that a release gets, by index.

    Parameters:
        wanted: `gpus` of onecat.yaml; None: the first ones that are free. count: how many the plan needs.
        held: who has which, in words, by id. preferred: ids to take first, those that it had before.

    Raises OnecatError when one is unknown or somebody has it, or when there are not enough.
    """
    if wanted is not None:
        chosen = named(wanted, present, word)
        taken = [each for each in chosen if each.id in held]
        if taken:
            free = [str(each.index) for each in present if each.id not in held and each.error is None]
            raise OnecatError(
                f"{word} {taken[0].index} is taken by {held[taken[0].id]}",
                expected=f"gpus of onecat.yaml that no other deployment has; free: {', '.join(free) or 'none'}",
                details=[f"{word} {each.index}: {held[each.id]}" for each in taken[1:]],
                where="gpus",
                next_steps=_ends(held[each.id] for each in taken),
                code=ExitCode.ROLLED_BACK,
            )
        if len(chosen) < count:
            raise OnecatError(
                f"gpus names {len(chosen)} and the plan needs {count}",
                where="gpus",
                next_steps=["name more in onecat.yaml, or set a smaller serve.tensor-parallel-size"],
                code=ExitCode.USAGE,
            )
        return chosen
    usable = [each for each in present if each.id not in held and each.error is None]
    usable.sort(key=lambda each: (each.id not in preferred, each.index))
    if len(usable) < count:
        told = [f"{word} {each.index}: {held.get(each.id) or each.error}" for each in present if each not in usable]
        raise OnecatError(
            f"the plan needs {count} {word}{'' if count == 1 else 's'} and {len(usable)} of {len(present)} "
            f"{'is' if len(usable) == 1 else 'are'} free",
            expected="as many as the plan needs",
            details=told,
            where="gpus",
            next_steps=_ends(held[each.id] for each in present if each.id in held),
            code=ExitCode.ROLLED_BACK,
        )
    return tuple(sorted(usable[:count], key=lambda each: each.index))


def _ends(holders: Iterable[str]) -> list[str]:
    """What ends those that have them."""
    steps = (
        f"onecat down {words.split()[1]}" if words.startswith(_DEPLOYMENT) else "set rollout.strategy: recreate"
        for words in holders
    )
    return list(dict.fromkeys(steps))


def check_addresses(own: Sequence[tuple[str, Address]], others: Iterable[Claim]) -> None:
    """Raises OnecatError when another deployment has one of these addresses. own: with the setting each comes from."""
    for claim in others:
        for theirs in claim.addresses:
            for setting, address in own:
                if address.overlaps(theirs):
                    shared = address.server_name is not None and theirs.server_name is not None
                    what = f"server name {address.server_name} at port {address.port}" if shared else None
                    raise OnecatError(
                        f"{what or f'port {address.port}'} is taken by {claim.words}",
                        expected="one that no other deployment has",
                        where=f"{address.host}:{address.port} ({'proxy.server_name' if shared else setting})",
                        next_steps=[
                            f"set another {'proxy.server_name' if shared else setting} in onecat.yaml",
                            f"or end the other one: onecat down {claim.deployment}",
                        ],
                        code=ExitCode.ROLLED_BACK,
                    )


def needed(plan: Plan, profile: Profile) -> int:
    """How many accelerators of one host a plan needs."""
    kind = profile.hardware.accelerator
    if kind == "none":
        return 0
    if plan.container is None:
        return plan.layout.cards
    if kind == "nvidia":
        return plan.container.gpus
    paths = [each.path for each in profile.launch.container.devices if each.per_accelerator]
    return sum(node.removeprefix(path).isdigit() for path in paths[:1] for node in plan.container.devices)


def with_accelerators(plan: Plan, profile: Profile, chosen: Sequence[Accelerator]) -> Plan:
    """The plan for exactly these: device nodes by their numbers; for a native server the variable that hides others."""
    if not chosen:
        return plan
    if plan.container is None:
        visible = (_VISIBLE, ",".join(each.id for each in chosen))
        return replace(plan, env=tuple(sorted((*(pair for pair in plan.env if pair[0] != _VISIBLE), visible))))
    nodes: list[str] = []
    for each in profile.launch.container.devices:
        nodes += [f"{each.path}{card.index}" for card in chosen] if each.per_accelerator else [each.path]
    return replace(plan, container=replace(plan.container, devices=tuple(nodes)))


# --- on a host --------------------------------------------------------------------------------------------------------


def claim_of(machine: Machine, release: Release) -> Claim:
    """What a release has, by what was written when it was made."""
    addresses = [Address(release.host, release.port)]
    path = f"{release.directory}/site.json"
    site = read_json(machine, path) if release.own_proxy_kind is not None else None
    if site is not None:
        name = release.server_name if release.proxy_kind == "host" else None
        with understood(machine, path):
            addresses.append(listening(str(site["listen"]), name))
    return Claim(release.deployment, release.number, frozenset(release.gpus), tuple(addresses))


def claims_of_others(machine: Machine, name: str) -> tuple[Claim, ...]:
    """What the releases of all other deployments of a host have that may run."""
    stores = (store for store in deployments(machine) if store.name != name)
    own = tuple(claim_of(machine, each) for store in stores for each in store.releases() if each.live)
    return (*own, *_claims_of_nodes(machine, name))


def write_node_claim(machine: Machine, release: Release) -> None:
    """Keep what a release has on a host of its Ray cluster that is not its own; `directory` is the node's there.

    The release itself is kept on the head.
    """
    document = {
        "schema": NODE_CLAIM_SCHEMA,
        "deployment": release.deployment,
        "release": release.number,
        "accelerators": list(release.gpus),
    }
    write_json(machine, f"{release.directory}/{NODE_CLAIM_FILE}", document)


def _claims_of_nodes(machine: Machine, name: str) -> Iterator[Claim]:
    """What Ray clusters of other deployments have on a host that is not their head."""
    for deployment in machine.names(deployments_directory(machine)):
        folder = f"{deployments_directory(machine)}/{deployment}/ray"
        for node in machine.names(folder) if deployment != name else ():
            path = f"{folder}/{node}/{NODE_CLAIM_FILE}"
            document = read_json(machine, path)
            if document is not None:
                with understood(machine, path):
                    yield Claim(deployment, int(document["release"]), frozenset(document["accelerators"]))


@contextlib.contextmanager
def claiming(machine: Machine) -> Iterator[None]:
    """Hold the host's lock for making a release; waits for others, which are done in moments. Raises OnecatError."""
    path = f"{machine.data_directory}/{LOCK_FILE}"
    with short_lock(machine, path, "making a release", _LOCK_SECONDS):
        yield


def check_ports(run: Run) -> None:
    """Raises OnecatError when another deployment has a port or server name of this one; before anything is changed.

    Behind nginx the server's own port is any that is free, and not looked at.
    """
    own = _addresses(run)
    check_addresses(own if run.traffic is None else own[1:], claims_of_others(run.machine, run.store.name))


def ports_of_others(run: Run) -> frozenset[int]:
    """The ports that other deployments have claimed."""
    claims = claims_of_others(run.machine, run.store.name)
    return frozenset(address.port for claim in claims for address in claim.addresses)


def _addresses(run: Run) -> list[tuple[str, Address]]:
    own = [("port", Address(run.plan.host, run.plan.port))]
    if run.site is not None and run.traffic is not None and run.proxy_machine is run.machine:
        name = run.site.server_name if run.traffic.proxy.kind == "host" else None
        own.append(("proxy.listen", listening(run.site.listen, name)))
    return own


def free_accelerators(run: Run) -> int | None:
    """How many of those that this deployment may have are free while its own releases run; None when not known."""
    kind = run.request.profile.hardware.accelerator
    present = accelerators_of(run.request.facts, kind)
    if present is None:
        return None
    allowed = present if run.deployment.gpus is None else named(run.deployment.gpus, present, _WORDS[kind])
    held = _held(run, None, claims_of_others(run.machine, run.store.name))
    return sum(each.id not in held and each.error is None for each in allowed)


def with_claims(run: Run, current: Release | None, strategy: Strategy) -> Run:
    """The run with the accelerators that its release gets; the caller holds `claiming`.

    Raises OnecatError when another deployment has what it needs.
    """
    others = claims_of_others(run.machine, run.store.name)
    check_addresses(_addresses(run), others)
    kind = run.request.profile.hardware.accelerator
    count = needed(run.plan, run.request.profile)
    if count == 0:
        if run.deployment.gpus is not None:
            run.report(f"gpus of onecat.yaml has no effect: profile {run.request.profile.name} uses none")
        return _beside_others(run, current if strategy.name != "blue-green" else None)
    word = _WORDS[kind]
    present = accelerators_of(run.request.facts, kind)
    wanted = run.deployment.gpus
    if present is None:
        # The engine will say what it misses; what was asked for is passed on as it is.
        run.report(f"the {word}s of this host are not known: other deployments on them were not looked for")
        return run if wanted is None else replace(run, accelerators=tuple(map(_unseen, wanted)))
    if wanted is None and run.plan.container is None and _VISIBLE in dict(run.plan.env):
        wanted = tuple(each.strip() for each in dict(run.plan.env)[_VISIBLE].split(",") if each.strip())
    beside = None if strategy.name == "blue-green" else current
    before = frozenset(current.gpus if beside is not None and current is not None else ())
    chosen = choose(wanted, count, present, _held(run, beside, others), before, word)
    own = before | {each for release in run.store.releases() if release.live for each in release.gpus}
    for each in chosen:
        if each.processes and each.id not in own:
            run.report(f"warning: {word} {each.index} is used by {'; '.join(each.processes)}: no deployment of onecat")
    run.report(f"on {word} {', '.join(str(each.index) for each in chosen)}")
    return replace(run, accelerators=chosen)


def _beside_others(run: Run, going: Release | None) -> Run:
    """The run with the other engines on the processors of its host. going: has ended before it starts."""
    if run.plan.engine != processors.ENGINE:
        return run
    others = [
        f"release {release.number} of {release.deployment}"
        for store in deployments(run.machine)
        for release in store.releases()
        if release.live and (store.name != run.store.name or going is None or release.number != going.number)
        if (read_json(run.machine, f"{release.directory}/plan.json") or {}).get("engine") == processors.ENGINE
    ]
    # One that is going runs still, and cannot be told from those of others.
    if not others and going is None and run.machine.run(_FIND_ENGINE).exit_code == 0:
        others = ["an engine that is no deployment of this onecat"]
    if others and processors.beside_others(run.plan, others) is not run.plan:
        run.report(f"its threads are bound to no cores: beside it on this host's processors: {', '.join(others)}")
    return replace(run, beside=tuple(others))


def placed(run: Run) -> Plan:
    """The run's plan for exactly the accelerators that it got, or for what computes beside it on the processors."""
    plan = processors.beside_others(run.plan, run.beside)
    return with_accelerators(plan, run.request.profile, run.accelerators)


def _unseen(wanted: int | str) -> Accelerator:
    text = str(wanted)
    return Accelerator(int(text), "") if text.isdigit() else Accelerator(-1, "", text)


def _held(run: Run, going: Release | None, others: Sequence[Claim]) -> dict[str, str]:
    """Who has which accelerator, in words, by id: other deployments, and own releases but the one that is going."""
    number = None if going is None else going.number
    own = [each for each in run.store.releases() if each.live and each.number != number]
    return {
        **{each: f"release {release.number}, which serves meanwhile" for release in own for each in release.gpus},
        **{each: claim.words for claim in others for each in claim.accelerators},
    }
