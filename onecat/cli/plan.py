"""`onecat plan`: show how the server would be started, and why, without starting anything."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onecat.cli import console
from onecat.cli.changes import forecast_lines, rollout_document
from onecat.cli.cluster import cluster_lines

if TYPE_CHECKING:
    from onecat.config import Deployment
    from onecat.deploy import Forecast
    from onecat.planner import Plan, Reason, Refusal

COLUMNS = 80


def register(app: typer.Typer) -> None:
    app.command("plan", help="Show how the server would be started, with a reason for each argument.")(plan)


def plan(
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", metavar="FILE", help="onecat.yaml, or its directory [./onecat.yaml]."),
    ] = None,
    model: Annotated[
        Path | None, typer.Option("--model", "-m", metavar="DIR", help="Checkpoint, in place of onecat.yaml's.")
    ] = None,
    profile: Annotated[
        str | None, typer.Option("--profile", "-p", metavar="PROFILE", help="Profile, in place of onecat.yaml's.")
    ] = None,
    runtime: Annotated[str | None, typer.Option("--runtime", metavar="RUNTIME", help="native or container.")] = None,
    facts_file: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="Facts of the host, from `onecat facts --json`.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="FLAG=VALUE", help="A `vllm serve` flag; may be repeated.")
    ] = None,
    tensor_parallel: Annotated[
        int | None, typer.Option("--tensor-parallel", metavar="N", help="Sets tensor-parallel-size.")
    ] = None,
    pipeline_parallel: Annotated[
        int | None, typer.Option("--pipeline-parallel", metavar="N", help="Sets pipeline-parallel-size.")
    ] = None,
    max_model_len: Annotated[
        str | None, typer.Option("--max-model-len", metavar="N", help="Longest context, as 4096 or 32K.")
    ] = None,
    kv_cache_dtype: Annotated[
        str | None, typer.Option("--kv-cache-dtype", metavar="TYPE", help="Data type of the KV cache.")
    ] = None,
    gpu_memory_utilization: Annotated[
        float | None,
        typer.Option("--gpu-memory-utilization", metavar="SHARE", help="Share of GPU memory the engine may use."),
    ] = None,
    max_num_seqs: Annotated[
        int | None, typer.Option("--max-num-seqs", metavar="N", help="Most requests in one batch.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON (onecat.plan/1).")] = False,
) -> None:
    from onecat.checkpoints import inspect
    from onecat.config import load_profile
    from onecat.errors import ExitCode
    from onecat.planner import make_plan, to_json
    from onecat.planner.ray import on_host_network

    named: dict[str, Any] = {
        "tensor-parallel-size": tensor_parallel,
        "pipeline-parallel-size": pipeline_parallel,
        "max-model-len": max_model_len,
        "kv-cache-dtype": kv_cache_dtype,
        "gpu-memory-utilization": gpu_memory_utilization,
        "max-num-seqs": max_num_seqs,
    }
    command_line = flag_settings(settings or []) | {name: value for name, value in named.items() if value is not None}
    deployment = planned_deployment(config, model, profile, runtime)
    checkpoint = inspect(Path(deployment.model.path))
    facts = None
    if facts_file is not None:
        from onecat.probe import read_facts

        facts = read_facts(facts_file)
    made = make_plan(deployment, load_profile(deployment.profile), checkpoint, facts, command_line)
    cluster = None
    if deployment.ray is not None and facts_file is None:
        cluster, against = _cluster(deployment, made)
        made = replace(on_host_network(made), refusals=(*made.refusals, *against))
    asked = facts_file is None and model is None and deployment.hosts == ("local",) and not made.refusals
    forecast = _forecast(deployment, made) if asked else None
    if as_json:
        rollout = None if forecast is None else rollout_document(forecast)
        console.print_json({**to_json(made), "rollout": rollout, "cluster": cluster})
    else:
        print(text_of(made))
        if cluster is not None:
            print("\n".join(["", *cluster_lines(cluster)]))
        if forecast is not None:
            print("\n".join(["", "ROLLOUT", *forecast_lines(forecast)]))
    if made.refusals:
        raise typer.Exit(int(ExitCode.NO))


def _forecast(deployment: Deployment, made: Plan) -> Forecast | None:
    """How `onecat up` would put this on this machine; None where that cannot be told, which is told."""
    from onecat.cli.machines import facts_of, local_machine
    from onecat.config import load_profile
    from onecat.deploy import UpRequest, forecast_up
    from onecat.errors import OnecatError
    from onecat.images import find_runtime
    from onecat.paths import home

    profile, machine = load_profile(deployment.profile), local_machine()
    launcher = find_runtime(profile, home()) if made.runtime == "native" else None
    request = UpRequest(deployment, profile, made, launcher, facts_of(machine), model_is_checked=True)
    try:
        return forecast_up(request, machine)
    except OnecatError as error:
        console.progress(f"how it would be put on this machine is not known: {error.found}")
        return None


def _cluster(deployment: Deployment, made: Plan) -> tuple[dict[str, Any] | None, tuple[Refusal, ...]]:
    """The cluster that the hosts of a deployment with `ray` can form now, as a document, or what stands against it.

    A host that cannot be asked is told, and leaves both empty.
    """
    from onecat.cli.machines import only_host, open_hosts
    from onecat.deploy.ray_cluster import find_cluster
    from onecat.errors import OnecatError
    from onecat.planner.ray import to_document

    try:
        with open_hosts(deployment.hosts[:1]) as hosts:
            found, against, _ = find_cluster(deployment, made.layout, only_host(hosts))
    except OnecatError as error:
        console.progress(f"which cluster the hosts can form is not known: {error.found}")
        return None, ()
    return None if found is None else to_document(found, made.layout), against


def planned_deployment(config: Path | None, model: Path | None, profile: str | None, runtime: str | None) -> Deployment:
    """The deployment that the options mean: of a file, or of --model and --profile alone."""
    from onecat.cli.up import config_file
    from onecat.config import deployment_from, deployment_name, load_deployment
    from onecat.errors import OnecatError

    options = {"model.path": str(model) if model else None, "profile": profile, "runtime": runtime}
    overrides = {name: value for name, value in options.items() if value is not None}
    file = config_file(config or Path("onecat.yaml"))
    if config is None and model is not None and profile is not None:
        return deployment_from({"name": deployment_name(model.absolute().name), **overrides})
    if config is None and not file.exists():
        raise OnecatError(
            "there is no onecat.yaml here",
            expected="--config FILE, or both --model DIRECTORY and --profile NAME",
            where=str(file.absolute()),
            next_steps=["onecat init", "onecat plan --model DIRECTORY --profile cpu"],
        )
    return load_deployment(file, overrides)


def flag_settings(settings: list[str]) -> dict[str, str]:
    """`--set FLAG=VALUE` options as a mapping; the planner gives each value its flag's type."""
    from onecat.errors import OnecatError

    result: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not name or not equals:
            raise OnecatError(f"--set {setting}", expected="--set FLAG=VALUE, as in --set max-model-len=4096")
        result[name.lstrip("-")] = value
    return result


def text_of(plan: Plan) -> str:
    """A plan for a person: one row per argument with its origin, the reason below it, in at most 80 columns."""
    lines = [
        f"{plan.deployment}: {plan.engine} {plan.engine_version}, profile {plan.profile}, {plan.runtime}, "
        f"at {plan.host}:{plan.port}"
    ]
    if plan.container is not None:
        gpus = f"{plan.container.gpus} GPU{'s' if plan.container.gpus > 1 else ''}" if plan.container.gpus else ""
        shm = f"/dev/shm of {plan.container.shm_bytes // 2**20} MiB"
        parts = [f"image {plan.container.image}", gpus, " ".join(plan.container.devices), shm]
        lines += _wrapped(", ".join(filter(None, parts)), "")
    width = max(len(reason.arg) for reason in plan.reasons) + 2
    lines += ["", f"{'ARGUMENT':<{width}}{'VALUE':<{COLUMNS - width - 14}}  FROM"]
    for reason in plan.reasons:
        lines += _row(reason, width)
    lines += _layouts(plan)
    lines += ["", *_command(["vllm", "serve", *plan.server_args])]
    for warning in plan.warnings:
        lines += ["", *_wrapped(f"note: {warning}", "")]
    for refusal in plan.refusals:
        lines += ["", *_wrapped(f"REFUSED ({refusal.code}): {refusal.why}", "")]
        lines += [line for step in refusal.fix for line in _wrapped(f"fix: {step}", "  ")]
    return "\n".join(lines)


def _layouts(plan: Plan) -> list[str]:
    """The other ways that the profile knows to use the cards, with the flags that choose them."""
    others = [each for each in plan.layouts if not each.selected]
    if not others:
        return []
    chosen = next((each.name for each in plan.layouts if each.selected), "one of its own")
    lines = ["", f"LAYOUT {chosen}; the profile also knows:"]
    for each in others:
        flags = ", ".join(f"{name}: {value}" for name, value in each.serve)
        lines += _wrapped(f"{each.name}, when {each.when}", "  ")
        lines += _wrapped(f"serve: {{{flags}}}" if flags else "no flags under serve: it is the default", "    ")
    return lines


def _row(reason: Reason, width: int) -> list[str]:
    room = COLUMNS - width - 14
    head = f"{reason.arg:<{width}}{reason.value:<{room}}  {reason.origin}"
    if len(reason.value) > room:
        return [
            f"{reason.arg:<{width}}{reason.value}",
            f"{'':<{width + room}}  {reason.origin}",
            *_wrapped(reason.why, "    "),
        ]
    return [head, *_wrapped(reason.why, "    ")]


def _command(argv: list[str]) -> list[str]:
    """A command for a shell, continued with backslashes."""
    import shlex

    lines = [""]
    for word in map(shlex.quote, argv):
        if lines[-1] and len(lines[-1]) + len(word) > COLUMNS - 3:
            lines[-1] += " \\"
            lines.append("   ")
        lines[-1] += f" {word}" if lines[-1] else word
    return lines


def _wrapped(text: str, indent: str) -> list[str]:
    import textwrap

    return textwrap.wrap(text, COLUMNS, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
