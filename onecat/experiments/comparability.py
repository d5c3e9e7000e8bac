"""Whether experiments may be compared: what differs in them that matters, and what differs because it is compared.

Two runs say something about a change only where everything else was the same: the same requests, arriving alike, at
the same model on the same GPUs, sent by the same program. An aspect of that is a row of `ASPECTS`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from onecat.errors import ExitCode, OnecatError
from onecat.experiments.records import Arrivals, Block, Experiment, Objectives, Workload

Role = Literal["matters", "compared", "told"]
"""matters: runs that differ in it are not compared. compared: it is what a comparison is made for. told: neither."""

MISSING = "not known"
NOTHING = "-"


@dataclass(frozen=True)
class Difference:
    """values: one for each experiment, as people read them. why: what a difference in it does to the figures."""

    what: str
    role: Role
    values: tuple[str, ...]
    why: str = ""


@dataclass(frozen=True)
class Aspect:
    """read: the value in an experiment as text, several of them (of the points of a sweep) joined; empty where the
    experiment has none, so that nothing differs from it."""

    what: str
    role: Role
    read: Callable[[Experiment], str]
    why: str = ""


def differences(experiments: Sequence[Experiment]) -> tuple[Difference, ...]:
    """What differs in experiments, what matters first. Equal aspects are left out."""
    found = [*_of_aspects(experiments), *_of_arguments(experiments), *_of_the_rest(experiments)]
    order = ("matters", "compared", "told")
    return tuple(sorted(found, key=lambda each: order.index(each.role)))


def check_comparable(experiments: Sequence[Experiment], names: Sequence[str]) -> tuple[Difference, ...]:
    """The differences of experiments that may be compared. names: one for each, for the message.

    Raises OnecatError (exit code 1) when they differ in what matters, naming all of it.
    """
    found = differences(experiments)
    mattering = [each for each in found if each.role == "matters"]
    if mattering:
        raise OnecatError(
            f"these runs are not comparable: they differ in {', '.join(each.what for each in mattering)}",
            expected="runs that differ only in what is compared, as the engine, its arguments, or the checkpoint",
            next_steps=[
                "measure again with the same requests, arrivals, model and GPUs",
                "or add --anyway, which compares them and prints these differences above the figures",
            ],
            details=list(difference_lines(mattering, names)),
            code=ExitCode.NO,
        )
    return found


def difference_lines(found: Iterable[Difference], names: Sequence[str]) -> Iterator[str]:
    """Differences in lines: what differs, its value in each experiment, and why that matters."""
    columns = max(map(len, names), default=0)
    for each in found:
        yield f"{each.what}: {each.why}" if each.why else each.what
        for name, value in zip(names, each.values, strict=True):
            yield f"  {name:<{columns}}  {value}"


def arrivals_text(arrivals: Arrivals) -> str:
    """Arrivals as people say them: `8 at once`, `4 a second (Poisson), at most 64 at once`."""
    limit = None if arrivals.concurrency is None else f"{arrivals.concurrency} at once"
    if arrivals.rate is None:
        return limit or "all at once"
    shape = "Poisson" if arrivals.burstiness == 1 else f"burstiness {arrivals.burstiness:g}"
    return f"{arrivals.rate:g} a second ({shape})" + (f", at most {limit}" if limit else "")


def objectives_text(objectives: Objectives) -> str:
    """Objectives as people say them: `first token in 200 ms, end in 2000 ms`; `none`."""
    demands = (
        ("first token in", objectives.ttft_ms),
        ("tokens every", objectives.inter_token_ms),
        ("end in", objectives.end_to_end_ms),
    )
    return ", ".join(f"{word} {value:g} ms" for word, value in demands if value is not None) or "none"


def prompts_text(workload: Workload) -> str:
    """Where prompts come from; a file by its digest, wherever it lies."""
    if workload.source == "random":
        return "random tokens"
    what = f"SHA-256 {workload.digest[:16]}" if workload.digest else workload.path or MISSING
    return f"{workload.source} ({what})"


def measured(experiment: Experiment) -> tuple[Block, ...]:
    """The blocks that count: those that warm up do not."""
    return tuple(block for block in experiment.blocks if not block.warm_up)


def _of_workloads(show: Callable[[Workload], str]) -> Callable[[Experiment], str]:
    return lambda experiment: _joined(show(block.workload) for block in measured(experiment))


def _of_arms(key: str) -> Callable[[Experiment], str]:
    return lambda experiment: _joined(_shown(arm.get(key)) for arm in experiment.environment.arms.values())


def _first_seed(experiment: Experiment) -> str:
    """How many followed it is a matter of how many blocks were measured."""
    return min((str(block.workload.seed) for block in measured(experiment)), key=int, default="")


def _repetition(experiment: Experiment) -> str:
    """Nothing of a run that repeated nothing."""
    seeds: dict[Any, list[int]] = {}
    for block in measured(experiment):
        alike = (block.arm, block.arrivals, replace(block.workload, seed=0))
        seeds.setdefault(alike, []).append(block.workload.seed)
    repeated = [found for found in seeds.values() if len(found) > 1]
    if not repeated:
        return ""
    return "have the same prompts" if any(len(set(found)) < len(found) for found in repeated) else "have new prompts"


def _requests(experiment: Experiment) -> str:
    """Where the number was asked for: a burst and a soak send as many as they come to."""
    if experiment.kind in ("burst", "soak"):
        return ""
    return _of_workloads(lambda each: str(each.requests))(experiment)


def _warm_up(experiment: Experiment) -> str:
    """Requests before the first that count, for each arm."""
    warmed: dict[str, int] = {}
    begun: set[str] = set()
    for block in experiment.blocks:
        if not block.warm_up:
            begun.add(block.arm)
        elif block.arm not in begun:
            warmed[block.arm] = warmed.get(block.arm, 0) + len(block.requests)
    return _joined(f"{warmed.get(arm, 0)} requests" for arm in {block.arm: None for block in experiment.blocks})


def _burst_seconds(experiment: Experiment) -> str:
    design = experiment.settings.get("design")
    return _shown(design.get("seconds")) if experiment.kind == "burst" and isinstance(design, Mapping) else ""


def _gpus(experiment: Experiment) -> str:
    """Of a server without any: what computes instead."""
    return _joined(_shown(arm.get("gpus")) if arm.get("gpus") else _processor(arm) for arm in _arms(experiment))


def _processor(arm: Mapping[str, Any]) -> str:
    hardware = arm.get("hardware")
    if not isinstance(hardware, Mapping) or not hardware.get("cpu"):
        return MISSING
    return f"none; {hardware['cpu']}, {hardware.get('cores')} cores"


def _arms(experiment: Experiment) -> Iterable[Mapping[str, Any]]:
    return experiment.environment.arms.values()


def _time_limit(experiment: Experiment) -> str:
    """Of files that tell it; empty else."""
    seconds = experiment.settings.get("request_timeout")
    return f"{seconds:g} s" if isinstance(seconds, int | float) else ""


def _cores_of_load(experiment: Experiment) -> str:
    pinned = experiment.environment.driver.get("pinned")
    return "" if pinned is None else "its own, or the last of many" if pinned else "any"


def _way(experiment: Experiment) -> str:
    """Of deployments; of a server by its address nothing is known."""
    arms = [arm for arm in _arms(experiment) if arm.get("loaded") and "proxied" in arm]
    if not arms:
        return ""
    return _joined(
        "through nginx" if arm["proxied"] and arm["loaded"] == arm.get("endpoint") else "to the server itself"
        for arm in arms
    )


def _load_driver(experiment: Experiment) -> str:
    driver = experiment.environment.driver
    return " ".join(str(driver[key]) for key in ("name", "version") if driver.get(key)) or MISSING


ASPECTS: tuple[Aspect, ...] = (
    Aspect("prompts", "matters", _of_workloads(prompts_text), "other prompts are other work"),
    Aspect(
        "API",
        "matters",
        _of_workloads(lambda each: "chats" if each.chat else "texts"),
        "a chat's template adds tokens to each prompt",
    ),
    Aspect("requests in a block", "matters", _requests, "the begin and the end of a block have less load"),
    Aspect(
        "length of the burst",
        "matters",
        _burst_seconds,
        "the longer, the longer is the queue",
    ),
    Aspect(
        "input tokens",
        "matters",
        _of_workloads(lambda each: str(each.input_tokens) if each.source == "random" else "of the file"),
        "longer prompts delay the first token",
    ),
    Aspect(
        "output tokens",
        "matters",
        _of_workloads(lambda each: "of the file" if each.output_tokens is None else str(each.output_tokens)),
        "longer answers take longer",
    ),
    Aspect("spread of lengths", "matters", _of_workloads(lambda each: f"{each.range_ratio:g}")),
    Aspect(
        "seed of the prompts",
        "matters",
        _first_seed,
        "another seed makes other prompts",
    ),
    Aspect("repetitions", "matters", _repetition, "a server answers quicker what it has seen before"),
    Aspect(
        "end of sequence",
        "matters",
        _of_workloads(lambda each: "ignored" if each.ignore_eos else "heeded"),
        "answers that may end early are shorter",
    ),
    Aspect(
        "arrivals",
        "matters",
        lambda experiment: _joined(arrivals_text(block.arrivals) for block in measured(experiment)),
        "more requests at once raise both throughput and latency",
    ),
    Aspect(
        "objectives",
        "matters",
        lambda experiment: objectives_text(experiment.objectives),
        "goodput counts by them",
    ),
    Aspect("model", "matters", _of_arms("model")),
    Aspect("GPUs", "matters", _gpus),
    Aspect("load driver", "matters", _load_driver, "programs that send load differ in what they time"),
    Aspect(
        "where the load comes from",
        "matters",
        lambda experiment: _shown(experiment.environment.driver.get("where")),
        "a network on the way adds to each latency",
    ),
    Aspect("way to the server", "matters", _way, "nginx on the way adds to each latency"),
    Aspect("cores of the load driver", "matters", _cores_of_load, "where it shares the server's, both are slower"),
    Aspect(
        "time limit of a request",
        "matters",
        _time_limit,
        "what takes longer is no slow answer, but an error",
    ),
    Aspect("warm-up", "matters", _warm_up, "the first requests of a server are slow"),
    Aspect("engine", "compared", _of_arms("engine")),
    Aspect("engine version", "compared", _of_arms("engine_version")),
    Aspect("patches", "compared", _of_arms("patches")),
    Aspect("profile", "compared", _of_arms("profile")),
    Aspect("checkpoint", "compared", _of_arms("checkpoint")),
    Aspect("release", "compared", _of_arms("release")),
    Aspect("image", "compared", _of_arms("image")),
    Aspect("onecat", "told", lambda experiment: experiment.environment.onecat),
    Aspect("host of onecat", "told", lambda experiment: experiment.environment.host),
)
_ARGUMENTS = "server_args"
_ALSO_COMPARED = {"env", "layout", "runtime"}
_READ_BY_ROWS = {"model", "gpus", "engine", "engine_version", "patches", "profile", "checkpoint", "release", "image"}


def _of_aspects(experiments: Sequence[Experiment]) -> Iterator[Difference]:
    for aspect in ASPECTS:
        values = tuple(map(aspect.read, experiments))
        if len({value for value in values if value}) > 1:
            yield Difference(aspect.what, aspect.role, tuple(value or NOTHING for value in values), aspect.why)


def _of_arguments(experiments: Sequence[Experiment]) -> Iterator[Difference]:
    """Each argument of the server that is not the same in all."""
    arguments = [
        [argument_values(arm.get(_ARGUMENTS) or ()) for arm in each.environment.arms.values()] for each in experiments
    ]
    for name in dict.fromkeys(name for of_run in arguments for of_arm in of_run for name in of_arm):
        values = tuple(_joined(of_arm.get(name, "not given") for of_arm in of_run) for of_run in arguments)
        if len(set(values)) > 1:
            yield Difference(name, "compared", values)


def _of_the_rest(experiments: Sequence[Experiment]) -> Iterator[Difference]:
    """What else is known of the arms, told under its own name."""
    known = [[_flat(arm) for arm in each.environment.arms.values()] for each in experiments]
    for name in dict.fromkeys(name for of_run in known for of_arm in of_run for name in of_arm):
        head = name.partition(" ")[0]
        if head != _ARGUMENTS and head not in _READ_BY_ROWS:
            values = tuple(_joined(_shown(of_arm.get(name)) for of_arm in of_run) for of_run in known)
            if len(set(values)) > 1:
                role: Role = "compared" if head in _ALSO_COMPARED else "told"
                yield Difference(name if head == "env" else name.replace("_", " "), role, values)


def _flat(document: Mapping[str, Any], head: str = "") -> dict[str, Any]:
    """Plain data by paths, as `hardware gpus 0 power_limit_watts`; lists of texts stay whole."""
    found: dict[str, Any] = {}
    for name, value in document.items():
        if isinstance(value, list) and any(isinstance(each, Mapping) for each in value):
            value = {str(place): each for place, each in enumerate(value)}
        if isinstance(value, Mapping):
            found.update(_flat(value, f"{head}{name} "))
        else:
            found[f"{head}{name}"] = value
    return found


def argument_values(arguments: Sequence[str]) -> dict[str, str]:
    """A server's arguments by name; those without a value are `given`, what stands before them has its place as name.

    `--name=value` and `--name value` are the same.
    """
    found: dict[str, str] = {}
    name = ""
    for place, word in enumerate(map(str, arguments)):
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            found[name] = value if equals else "given"
            name = "" if equals else name
        elif name:
            found[name] = word if found[name] == "given" else f"{found[name]} {word}"
        else:
            found[f"argument {place + 1}"] = word
    return found


def _joined(values: Iterable[str]) -> str:
    """Different values in their order, as of the points of a sweep."""
    return "; ".join(dict.fromkeys(values)) or MISSING


def _shown(value: Any) -> str:
    if value is None or value == "" or value == [] or value == {}:
        return MISSING
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
        return ", ".join(f"{value.count(each)}x {each}" if value.count(each) > 1 else each for each in _distinct(value))
    if isinstance(value, Mapping) and set(value) == {"name"}:
        return str(value["name"])
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _distinct(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))
