"""Variants of a deployment, made to serve one after the other for an experiment, and what served before put back.

Each variant is started by the steps of `onecat up`, so it must answer well before it is measured, and one that fails
to start changes nothing. Whatever becomes of the experiment, what served before it serves again at its end.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from types import FrameType
from typing import TYPE_CHECKING, Any

from onecat.errors import ExitCode, OnecatError

if TYPE_CHECKING:
    from onecat.deploy import DeploymentStore, Release, UpRequest
    from onecat.experiments.records import Endpoint
    from onecat.experiments.targets import Target
    from onecat.facts import Facts

Report = Callable[[str], None]
Settings = tuple[tuple[str, str], ...]
"""Flags of the server with their values as text."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Variant:
    """How one arm differs from what serves: flags of the server, another release, another checkpoint.

    settings: `vllm serve` flags with their values as text. release: a number. model: a directory of the host.
    """

    settings: Settings = ()
    release: int | None = None
    model: str | None = None

    @property
    def label(self) -> str:
        """For people."""
        words = [] if self.release is None else [f"release {self.release}"]
        words += [] if self.model is None else [self.model]
        words += [f"{name}={value}" for name, value in self.settings]
        return ", ".join(words) or "as it serves"

    def document(self) -> dict[str, Any]:
        """As plain data, for a result file's settings."""
        return {"settings": dict(self.settings), "release": self.release, "model": self.model}


def variant_from(document: Mapping[str, Any]) -> Variant:
    """What `Variant.document` made this from."""
    return Variant(tuple(document["settings"].items()), document["release"], document["model"])


def request_of(store: DeploymentStore, variant: Variant, facts: Facts, original: int | None = None) -> UpRequest:
    """What makes a variant serve; nothing is changed. original: the release that it varies; None: what serves.

    A variant with settings or another checkpoint is planned anew, with the same configuration and the same flags that
    were typed when the release was made, so that nothing else differs.

    Raises OnecatError for what the planner refuses, for a release that there is not, and for a deployment that has
    several hosts.
    """
    from onecat.deploy.model_files import inspect_on
    from onecat.deploy.saved_request import saved_request
    from onecat.planner import make_plan
    from onecat.planner.records import with_port

    release = _release(store, original if variant.release is None else variant.release)
    request = replace(saved_request(store.machine, release, "bench", facts), origin=None, anew=True)
    if request.deployment.ray is not None or len(request.deployment.hosts) > 1:
        raise _several_hosts(store)
    if not variant.settings and variant.model is None:
        return request
    deployment = request.deployment
    if variant.model is not None:
        # The name stays: clients, and the load, ask for it.
        model = deployment.model.model_copy(update={"path": variant.model, "served_name": request.plan.served_name})
        deployment = deployment.model_copy(update={"model": model})
    typed = {
        reason.arg.removeprefix("--"): reason.value
        for reason in request.plan.reasons
        if reason.origin == "command line" and reason.arg.startswith("--")
    }
    checkpoint = inspect_on(store.machine, deployment.model.path)
    plan = make_plan(deployment, request.profile, checkpoint, facts, {**typed, **dict(variant.settings)})
    return replace(request, deployment=deployment, plan=with_port(plan, deployment.port))


def _differences(a: str, a_request: UpRequest, b: str, b_request: UpRequest) -> list[str]:
    words = {a: _words(a_request), b: _words(b_request)}
    lines = []
    for arm, other in ((a, b), (b, a)):
        lines += [f"{arm}: {' '.join(each)}" for each in words[arm] if each not in words[other]]
    return lines or [f"{a} and {b} are started in the same way"]


def _words(request: UpRequest) -> list[tuple[str, ...]]:
    """Options with their values, and variables of the environment; an image; the model's directory."""
    plan = request.plan
    found: list[tuple[str, ...]] = []
    for word in plan.server_args[1:]:
        if word.startswith("--") or not found:
            found.append((word,))
        else:
            found[-1] = (*found[-1], word)
    found += [("variable", f"{name}={value}") for name, value in plan.env]
    found.append(("model", plan.model_directory))
    if plan.container is not None:
        found.append(("image", request.image or plan.container.image))
    return found


class _Changed(OnecatError):
    """Somebody else has changed the deployment: what they made is theirs, and stays."""


class VariantServers:
    """Makes variants of a deployment serve, one after the other. A context manager: at its end what served before
    serves again, also after an error or Ctrl-C.

    Parameters:
        serves: what serves now. variants: by arm. report: receives one line for each step, for a person.
        direct: load goes to the server itself, not to the nginx before it.
        original: the release that is to serve in the end; None: what serves now.

    Nothing is changed by making it. Raises OnecatError for what cannot be planned.

    Attributes: targets: by arm, as they will serve. differences: in what they differ, in lines. original: the number of
    the release that is put back.
    """

    def __init__(
        self,
        serves: Target,
        variants: Mapping[str, Variant],
        report: Report,
        direct: bool = False,
        original: int | None = None,
    ) -> None:
        from onecat.deploy.host_facts import facts_of
        from onecat.deploy.saved_request import front_of_release, saved_request

        assert serves.store is not None
        self._store = store = serves.store
        self._report = report
        self._direct = direct
        self._facts = facts_of(store.machine)
        self._release = _release(store, original)
        self.original = self._release.number
        if front_of_release(store.machine, self._release) is not None:
            raise _several_hosts(store)
        # Read now: while others serve, its directory might go.
        self._back = saved_request(store.machine, self._release, "rollback", self._facts)
        self._requests = {arm: request_of(store, each, self._facts, original) for arm, each in variants.items()}
        self._labels = {arm: self._label(arm, each) for arm, each in variants.items()}
        self._digests: dict[str, str] = {}
        self.targets = {arm: self._planned(serves, arm) for arm in variants}
        current = store.current()
        self._serving = None if current is None else current.number
        self._was_starting = False

    @property
    def differences(self) -> list[str]:
        """In what the variants differ from the first of them: a line for each word that one has alone."""
        (first, *others) = self._requests
        lines: list[str] = []
        for arm in others:
            lines += _differences(first, self._requests[first], arm, self._requests[arm])
        return list(dict.fromkeys(lines))

    def _label(self, arm: str, variant: Variant) -> str:
        """What the endpoint is called; an arm that says itself what it is needs no more than the deployment's name."""
        return self._store.name if arm == variant.label else f"{self._store.name}, {variant.label}"

    def _planned(self, serves: Target, arm: str) -> Target:
        """A target as it will be, for what is written down about it."""
        from onecat.experiments.environments import checkpoint_digest

        request = self._requests[arm]
        plan = request.plan
        if plan.model_directory not in self._digests:
            self._digests[plan.model_directory] = checkpoint_digest(self._store.machine, plan.model_directory)
        known = {
            **serves.arm,
            # Another release may have another profile, and an argument another layout, than what serves now.
            "engine": plan.engine,
            "engine_version": plan.engine_version,
            "profile": request.profile.name,
            "image": request.image or serves.arm.get("image"),
            "layout": {
                "tensor_parallel": plan.layout.tensor_parallel,
                "pipeline_parallel": plan.layout.pipeline_parallel,
                "replicas": plan.layout.replicas,
            },
            "server_args": list(plan.server_args),
            "env": dict(plan.env),
            "model_directory": plan.model_directory,
            "checkpoint": self._digests[plan.model_directory],
            "release": None,
            "variant": self._labels[arm],
        }
        endpoint = replace(serves.endpoint, label=self._labels[arm])
        if plan.model_directory != serves.arm.get("model_directory"):
            endpoint = replace(endpoint, tokenizer=plan.model_directory)
        return replace(serves, endpoint=endpoint, arm=known)

    def suggest(self, settings: Settings, evidence: str, file: str) -> dict[str, Any]:
        """A profile that makes settings last, as plain data; see `onecat.experiments.suggestion`."""
        from onecat.experiments.suggestion import suggestion_for

        return asdict(suggestion_for(self._back, settings, evidence, file))

    def to(self, arm: str, variant: Variant | None = None) -> Endpoint:
        """Start the arm's variant anew, in the place of what serves; returns where it answers.

        Parameters:
            variant: of an arm that was not named before.

        Raises as `onecat.deploy.up` does.
        """
        from onecat import deploy
        from onecat.experiments.targets import deployment_target

        self._check_ours()
        if variant is not None and arm not in self._requests:
            self._requests[arm] = request_of(self._store, variant, self._facts, self.original)
            self._labels[arm] = self._label(arm, variant)
        self._report(f"starting {arm}")
        # A start that is interrupted in its end has made its release serve, and tells nobody which one that is.
        self._was_starting = True
        release = deploy.up(self._requests[arm], self._store.machine, self._quiet)
        self._serving, self._was_starting = release.number, False
        return deployment_target(self._store, direct=self._direct, label=self._labels[arm]).endpoint

    def put_back(self) -> None:
        """Make what served before the experiment serve again. Ctrl-C does not end this.

        Raises OnecatError, with the command by which a person does it, when it cannot be done.
        """
        with uninterrupted(lambda: self._report("it is being put back first; this takes as long as a start")):
            try:
                if self._serves_as_before():
                    return
                self._check_ours()
                self._start_back()
            except _Changed:
                raise
            except (OnecatError, OSError) as error:
                raise self._not_back(error) from error
        self._report(f"{self._store.name} serves as before")

    def _serves_as_before(self) -> bool:
        """Whether the original release serves. Of a start that was interrupted twice it is left stopped, or without
        requests from nginx, so being the current one is not enough then."""
        from onecat import deploy

        current = self._store.current()
        if current is None or current.number != self.original:
            return False
        return not self._was_starting or deploy.status(self._store).state == "serving"

    def _start_back(self) -> None:
        from onecat import deploy

        self._report(f"putting release {self.original} back")
        release = deploy.up(self._back, self._store.machine, self._quiet)
        # The last variant was the same: then it stays, as what it is now.
        if release.purpose == "bench":
            self._store.save(replace(release, purpose="rollback", origin=self.original))

    def __enter__(self) -> VariantServers:
        return self

    def __exit__(self, *_: object) -> None:
        self.put_back()

    def _quiet(self, text: str) -> None:
        """The steps of a start are too many lines for dozens of starts; a variant that fails says why."""

    def _check_ours(self) -> None:
        current = self._store.current()
        number = None if current is None else current.number
        is_interrupted = self._was_starting and current is not None and current.purpose == "bench"
        if number != self._serving and not is_interrupted:
            made = "was taken down" if current is None else f"now has release {number}, made by {current.created_by}"
            raise _Changed(
                f"{self._store.name} {made} while the experiment ran",
                expected="nobody else to change it",
                next_steps=[f"onecat status {self._store.name}", f"onecat history {self._store.name}"],
                code=ExitCode.NEEDS_PERSON,
            )

    def _not_back(self, error: Exception) -> OnecatError:
        found = error.found if isinstance(error, OnecatError) else str(error)
        return OnecatError(
            f"release {self.original} could not be put back after the experiment: {found}",
            where=error.where if isinstance(error, OnecatError) else None,
            details=error.details if isinstance(error, OnecatError) else (),
            next_steps=[
                f"onecat rollback {self._store.name} --to {self.original}",
                f"onecat status {self._store.name}",
            ],
            code=ExitCode.NEEDS_PERSON,
        )


@contextmanager
def uninterrupted(told: Callable[[], None]) -> Iterator[None]:
    """While the block runs, Ctrl-C and being told to end are only told, by `told`, and count after it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def later(number: int, frame: FrameType | None) -> None:
        came.append(number)
        told()

    # What is ignored already, as under nohup, stays so.
    heard = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, later) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        raise KeyboardInterrupt


def _release(store: DeploymentStore, number: int | None) -> Release:
    """A release of the deployment; None: what serves. Raises OnecatError."""
    if number is None:
        current = store.current()
        if current is None:
            raise OnecatError(
                f"{store.name} serves nothing",
                expected="a deployment that serves, to go back to",
                next_steps=["onecat up"],
                code=ExitCode.NO,
            )
        if current.purpose == "bench":
            raise OnecatError(
                f"release {current.number} of {store.name} serves for an experiment that was ended before it could put "
                "back what served before",
                expected="what is meant to serve",
                next_steps=[f"onecat rollback {store.name}"],
                code=ExitCode.NO,
            )
        return current
    found = store.load(number)
    if found is None:
        numbers = ", ".join(str(each.number) for each in store.releases())
        raise OnecatError(
            f"there is no release {number} of {store.name}",
            expected=f"one of: {numbers}",
            next_steps=[f"onecat releases {store.name}"],
        )
    return found


def _several_hosts(store: DeploymentStore) -> OnecatError:
    return OnecatError(
        f"{store.name} has several hosts",
        expected="a deployment of one host, whose server can be started anew by itself",
        next_steps=["compare two endpoints: onecat bench ab --a URL --b URL"],
    )
