"""What doctor judges by, and its report on hosts that were observed."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from onecat.cli import console
from onecat.errors import OnecatError

if TYPE_CHECKING:
    from onecat.cli.outputs import Output
    from onecat.config import Deployment, Profile
    from onecat.doctor import HostReport, Report, Settings
    from onecat.facts import Facts
    from onecat.probe import Observation


@dataclass(frozen=True)
class Rules:
    """What hosts are judged by.

    own_ports: on which onecat's own deployments on this machine listen. elsewhere: hosts that are other machines, on
    which a checkpoint of this one does not lie. only, skip: ids or patterns of checks.
    """

    profile: Profile | None
    settings: Settings
    own_ports: tuple[int, ...] = ()
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    elsewhere: frozenset[str] = frozenset()

    def report(self, hosts: Iterable[HostReport]) -> Report:
        """Doctor's report on some hosts."""
        from onecat.doctor import Report

        return Report(self.profile.name if self.profile else None, tuple(hosts))

    def judge(self, observation: Observation) -> HostReport:
        """What doctor says of one host."""
        from onecat.doctor import HostReport

        if observation.facts is not None:
            return self._judge_facts(observation, observation.facts)
        error = observation.error
        assert error is not None
        return HostReport(
            observation.name,
            False,
            observation.seconds,
            reason=error.found,
            evidence=error.details,
            fix=error.next_steps,
        )

    def _judge_facts(self, observation: Observation, facts: Facts) -> HostReport:
        from onecat.doctor import HostReport, examine, suitability

        settings = replace(self.settings, own_ports=self.own_ports) if observation.name == "local" else self.settings
        if observation.name in self.elsewhere:
            settings = replace(settings, assessment=None)
        findings = examine(facts, self.profile, settings, only=self.only, skip=self.skip)
        is_open = not (self.profile or self.only or self.skip)
        suitable = suitability(facts, all_profiles(), settings) if is_open else ()
        return HostReport(observation.name, True, observation.seconds, findings, suitability=suitable)


def saved_hosts(arguments: Sequence[str]) -> list[Observation]:
    """The hosts of `--from`."""
    from onecat.probe import Observation, read_hosts

    return [Observation(facts.host, 0.0, facts) for facts in read_hosts(arguments)]


def load_rules(
    deployment: Deployment | None,
    profile: str | None,
    settings: Settings,
    *,
    own_ports: tuple[int, ...],
    only: Sequence[str],
    skip: Sequence[str],
) -> Rules:
    """The rules that the command line and onecat.yaml ask for. Raises OnecatError when they cannot be meant."""
    from onecat.config import load_profile
    from onecat.doctor import all_checks, select

    if deployment is not None:
        settings = settings_of(deployment, settings)
    name = profile or (deployment.profile if deployment is not None else None)
    chosen = load_profile(name) if name is not None else None
    _refuse_missing_runtime(chosen, settings)
    only, skip = _parts(only), _parts(skip)
    if not select(all_checks(), only, skip):  # that, and a wrong id, is told without waiting for any host
        raise OnecatError("no check is left", expected="--skip that leaves some of the checks of --only")
    return Rules(chosen, settings, own_ports, only, skip)


def _parts(words: Sequence[str]) -> tuple[str, ...]:
    return tuple(part.strip() for word in words for part in word.split(","))


def settings_of(deployment: Deployment, settings: Settings) -> Settings:
    """`settings` with what a deployment asks for; a runtime and a model in them stay."""
    has_proxy = deployment.proxy.kind != "none"
    return replace(
        settings,
        port=deployment.port,
        proxy_port=int(deployment.proxy.listen.rpartition(":")[2]) if has_proxy else None,
        runtime=settings.runtime or deployment.runtime,
        model=settings.model or deployment.model.path,
        serve=tuple(deployment.serve.items()),
    )


def smoke_image(image: str | None, profile: Profile | None) -> str:
    """The image for the GPU smoke test. Raises OnecatError when neither it nor a profile was named."""
    if image is not None:
        return image
    if profile is not None:
        return profile.image.tag
    raise OnecatError(
        "--smoke needs to know the image",
        expected="--profile PROFILE, or --smoke-image IMAGE",
        next_steps=["list the profiles: onecat profile list"],
    )


def write_fix_script(output: Output, hosts: Sequence[tuple[Observation, HostReport]], rules: Rules) -> None:
    """Write or print the script with the fixes for one host; there is none for a host that could not be reached.

    Raises OnecatError when there are several hosts, and why the host was not reached where its script was to be printed
    in place of the report that tells it.
    """
    from onecat.doctor.fix import fix_script

    if len(hosts) != 1:
        raise OnecatError(
            f"a fix script is for one host, and there are {len(hosts)}",
            next_steps=[f"onecat doctor --host {hosts[0][0].name} --fix-script FILE"],
        )
    ((observation, host),) = hosts
    if observation.facts is None:
        assert observation.error is not None
        if output.is_printed:
            raise observation.error
        console.progress(f"{output.file} was not written: {observation.name} could not be reached")
        return
    kept = output.write(fix_script(host, observation.facts, rules.profile, rules.settings), 0o700)
    if not output.is_printed:
        console.progress(f"{output.file}: read it, then run it as root on {observation.name}: onecat never runs it")
    if kept is not None:
        console.progress(f"  the old one is kept as {kept}")


def _refuse_missing_runtime(profile: Profile | None, settings: Settings) -> None:
    if profile is not None and settings.runtime not in (None, *profile.launch.runtimes):
        raise OnecatError(
            f"the profile {profile.name} has no {settings.runtime} runtime",
            expected=" or ".join(profile.launch.runtimes),
            next_steps=[f"onecat doctor --profile {profile.reference}"],
        )


@functools.cache
def all_profiles() -> list[Profile]:
    """Every profile that ships with onecat."""
    from onecat.config import list_profiles, load_profile

    return [load_profile(name) for name in list_profiles()]
