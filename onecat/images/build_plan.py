"""What a build will do, before it does anything: what is made, how big, how long, from where. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from onecat.errors import ExitCode, OnecatError
from onecat.images.build_host import BuildHost
from onecat.images.context import Context
from onecat.images.disk import megabytes
from onecat.images.dockerfile import Instruction, instructions
from onecat.knowledge.build_costs import BuildCosts, CompileCost

if TYPE_CHECKING:
    from onecat.config.schema import Profile
    from onecat.images.options import BuildOptions, PackageOrigins

GIB = 2**30
TORCH_ORIGINS = ("index_url", "extra_index_urls", "find_links", "pip_config")
"""Options that name where PyTorch may come from where no index of its own is named."""
OPTION_OF = {
    "apt_mirror": "--apt-mirror",
    "index_url": "--index-url",
    "extra_index_urls": "--extra-index-url",
    "torch_index_url": "--torch-index-url",
    "find_links": "--find-links",
    "pip_config": "--pip-config",
}
"""How a person names what decides where packages come from."""
KEPT_FREE_GIB = 2.0
"""Memory of the build host that the compilers leave to everything else there, the engine and the kernel included."""


@dataclass(frozen=True)
class Download:
    """What is fetched. kind: base image, wheels, source, packages. by: onecat, the engine or build steps.

    low, high: bytes; None: unknown. known_from: where the size is from.
    """

    kind: str
    what: str
    origin: str
    by: str
    low: float | None
    high: float | None
    known_from: tuple[str, ...] = ()


@dataclass(frozen=True)
class PlannedStep:
    """One step. fetches: what it needs a network for; None: nothing."""

    stage: str
    line: int
    instruction: str
    fetches: str | None = None


@dataclass(frozen=True)
class CompileEstimate:
    """units: files to compile; None: unknown. low, high: minutes with so many jobs. how: where it is from."""

    units: int | None
    low: float | None
    high: float | None
    how: str
    source: tuple[str, ...]


@dataclass(frozen=True)
class BuildPlan:
    """What a build will do.

    goal: image or wheel. up_to_date: an equal image is there. max_jobs: compilers at once; None: nothing is compiled.
    why_jobs: how that number came about. disk_low: bytes that are surely taken at the engine's data root.
    disk_wanted: bytes that the profile wants free there; None: it does not say. last_seconds: how long the same image
    took the last time here. problems: what will stop the build. warnings: what may.
    """

    goal: str
    profile: str
    tag: str
    base: str
    context: str
    context_bytes: int
    builder: str
    host: BuildHost
    up_to_date: bool
    downloads: tuple[Download, ...]
    steps: tuple[PlannedStep, ...]
    max_jobs: int | None = None
    why_jobs: str = ""
    compile: CompileEstimate | None = None
    disk_low: int = 0
    disk_wanted: int | None = None
    last_seconds: float | None = None
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def jobs_for(cost: CompileCost | None, host: BuildHost) -> tuple[int, str]:
    """How many compilers may run at once on the build host, and why so many."""
    if cost is None or not host.memory_bytes:
        return max(1, host.cpus), f"{host.cpus} processors of the build host; memory per compiler is not known"
    memory = host.memory_bytes / GIB
    by_memory = max(1, int((memory - KEPT_FREE_GIB) / cost.gib_per_job))
    jobs = min(max(1, host.cpus), by_memory)
    return jobs, f"{host.cpus} processors and {memory:.1f} GiB of the build host, {cost.gib_per_job:g} GiB per compiler"


def compile_cost(profile: Profile, context: Context, options: BuildOptions, costs: BuildCosts) -> CompileCost | None:
    """What compiling costs, or None where nothing is compiled or nothing is known."""
    if context.wheel_stage is None or options.wheel is not None:
        return None
    asked = [part for part in str(profile.image.variables.get("arch_list", "")).replace(";", " ").split() if part]
    for row in costs.compile:
        below = row.below is None or (asked and all(_number(part) < _number(str(row.below)) for part in asked))
        if row.recipe == profile.image.recipe and below:
            return row
    return None


def _number(architecture: str) -> tuple[int, ...]:
    digits = "".join(each for each in architecture.split("+")[0] if each.isdigit() or each == ".")
    return tuple(int(part) for part in digits.split(".") if part)


def make_build_plan(
    profile: Profile,
    context: Context,
    options: BuildOptions,
    host: BuildHost,
    builder: str,
    costs: BuildCosts,
    *,
    up_to_date: bool = False,
    stored: Sequence[Path] = (),
    last_seconds: float | None = None,
) -> BuildPlan:
    """The plan of one build.

    Parameters:
        context: rendered with `options`. host: the engine that builds. builder: buildkit or classic.
        stored: files of the context that are on this machine already.
        last_seconds: how long this image took the last time, if that is known.
    """
    steps = _steps(context, costs)
    downloads = () if up_to_date else _downloads(context, options, host, steps, costs, {path.name for path in stored})
    cost = compile_cost(profile, context, options, costs)
    compiles = context.wheel_stage is not None and options.wheel is None
    jobs, why = jobs_for(cost, host) if options.max_jobs is None else (options.max_jobs, "as asked")
    disk_low = 0 if up_to_date else _disk_low(context, host, costs)
    wanted = None if profile.doctor.disk_gib is None else int(profile.doctor.disk_gib * GIB)
    plan = BuildPlan(
        goal="image" if options.wheel_only is None else "wheel",
        profile=profile.name,
        tag=context.tag,
        base=context.base,
        context=f"sha256:{context.digest}",
        context_bytes=context.size,
        builder=builder,
        host=host,
        up_to_date=up_to_date,
        downloads=downloads,
        steps=() if up_to_date else steps,
        max_jobs=jobs if compiles else None,
        why_jobs=why if compiles else "",
        compile=_estimate(cost, min(jobs, max(1, host.cpus))) if compiles and not up_to_date else None,
        disk_low=disk_low,
        disk_wanted=None if up_to_date else wanted,
        last_seconds=last_seconds,
    )
    problems, warnings = ([], []) if up_to_date else _judged(plan, cost, options)
    return replace(plan, problems=tuple(problems), warnings=tuple(warnings))


def _steps(context: Context, costs: BuildCosts) -> tuple[PlannedStep, ...]:
    dockerfile = next((file.content.decode() for file in context.files if file.name == "Dockerfile"), "")
    return tuple(
        PlannedStep(each.stage, each.line, each.text, _fetches(each, context, costs))
        for each in instructions(dockerfile)
        if each.is_step
    )


def _fetches(instruction: Instruction, context: Context, costs: BuildCosts) -> str | None:
    if instruction.keyword != "RUN" or not context.network:
        return None
    return next((row.what for row in costs.network if row.pattern.search(instruction.text)), None)


def _downloads(
    context: Context,
    options: BuildOptions,
    host: BuildHost,
    steps: Sequence[PlannedStep],
    costs: BuildCosts,
    here: set[str],
) -> tuple[Download, ...]:
    found = []
    for base in context.bases:
        if base in host.images:
            continue
        cost = next((row for row in costs.images if base.startswith(row.image)), None)
        low, high = cost.download if cost else (None, None)
        found.append(Download("base image", base, "its registry", "the engine", low, high, cost.source if cost else ()))
    absent = [file for file in context.stored if file.path is None and file.in_store not in here]
    source = None if context.source is None else context.source.file
    wheels = [file for file in absent if file.name != source]
    if wheels:
        known = sum(file.size or 0 for file in wheels)
        high = None if any(file.size is None for file in wheels) else known
        what = f"{len(wheels)} wheels"
        found.append(Download("wheels", what, "the index of this user's pip", "onecat", known, high, ("its lock",)))
    if any(file.name == source for file in absent):
        origin = "the index of this user's pip" if options.source is None else str(options.source)
        found.append(Download("source", str(source), origin, "onecat", None, None))
    if options.origins.offline:
        return tuple(found)
    for what in dict.fromkeys(step.fetches for step in steps if step.fetches):
        row = next(each for each in costs.network if each.what == what)
        origin = _origin(options.origins, row.origin, row.instead, row.besides)
        found.append(Download("packages", what, origin, "build steps", None, None))
    texts = " ".join(file.content.decode("utf-8", "replace") for file in context.files if file.name.endswith(".txt"))
    for package in costs.packages:
        if package.word in texts:
            low, high = package.download
            origin = options.origins.torch_index_url or _origin(options.origins, "", (), TORCH_ORIGINS)
            found.append(Download("wheels", package.what, origin, "build steps", low, high, package.source))
    return tuple(found)


def _origin(origins: PackageOrigins, usual: str, instead: Sequence[str], besides: Sequence[str]) -> str:
    """Where something comes from as the options have it; where they say nothing, with the options that could."""
    first, more = _chosen(origins, instead), _chosen(origins, besides)
    if first or more:
        places = [*(first or [usual]), *more]
    else:
        places = [usual, *(OPTION_OF[name] for name in (*instead, *besides))]
    return " or ".join(filter(None, [", ".join(filter(None, places[:-1])), places[-1]]))


def _chosen(origins: PackageOrigins, names: Sequence[str]) -> list[str]:
    values = [getattr(origins, name) for name in names]
    return [str(each) for value in values if value for each in (value if isinstance(value, tuple) else (value,))]


def _disk_low(context: Context, host: BuildHost, costs: BuildCosts) -> int:
    """Bytes that the build surely takes at the data root: absent base images, the context, which steps copy."""
    absent = [base for base in context.bases if base not in host.images]
    images = [row.disk[0] for base in absent for row in costs.images if base.startswith(row.image)]
    return int(sum(each or 0 for each in images)) + context.size


def _estimate(cost: CompileCost | None, jobs: int) -> CompileEstimate:
    """jobs: that really run at once, which are no more than processors."""
    if cost is None:
        return CompileEstimate(None, None, None, "nobody has measured it", ())
    if cost.units is not None and cost.cpu_seconds is not None:
        # However many jobs there are, one file is compiled by one: the longest sets a floor.
        floor = (cost.cpu_seconds[1] or 0) / 60
        low, high = (None if each is None else max(floor, cost.units * each / 60 / jobs) for each in cost.cpu_seconds)
    else:
        hours = cost.job_hours or (None, None)
        low, high = (None if each is None else each * 60 / jobs for each in hours)
    return CompileEstimate(cost.units, low, high, cost.how, cost.source)


def _judged(plan: BuildPlan, cost: CompileCost | None, options: BuildOptions) -> tuple[list[str], list[str]]:
    problems, warnings = [], []
    free = plan.host.free_bytes
    if free is not None and free < plan.disk_low:
        problems.append(
            f"only {megabytes(free)} are free at {plan.host.data_root}, "
            f"and at least {megabytes(plan.disk_low)} are needed"
        )
    elif free is not None and plan.disk_wanted is not None and free < plan.disk_wanted:
        warnings.append(
            f"{megabytes(free)} are free at {plan.host.data_root}; the profile wants {megabytes(plan.disk_wanted)}"
        )
    memory = plan.host.memory_bytes / GIB
    if cost is not None and plan.max_jobs is not None and memory:
        wanted = plan.max_jobs * cost.gib_per_job
        if wanted > memory:
            warnings.append(
                f"{plan.max_jobs} compilers may want {wanted:.0f} GiB and the build host has {memory:.1f} GiB: "
                "the kernel may kill one"
            )
    if options.origins.offline:
        for download in plan.downloads:
            warnings.append(f"--offline: {download.what} must be here already, and is not")
        for step in plan.steps:
            if step.fetches:
                warnings.append(f"--offline: line {step.line} may want {step.fetches}, which must be in the base image")
    return problems, warnings


def check_plan(plan: BuildPlan) -> None:
    """Raises OnecatError (exit code 4: nothing was changed) when the plan cannot come true."""
    if plan.problems:
        raise OnecatError(
            plan.problems[0],
            where=plan.host.address,
            details=plan.problems[1:],
            next_steps=[
                "see what takes the space: docker system df",
                "free some: docker image prune; docker builder prune",
                "or build elsewhere: --on HOST",
            ],
            code=ExitCode.ROLLED_BACK,
        )
