"""`onecat plan`: show how the server would be started, what that takes, and why, without starting anything."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onecat.cli import console
from onecat.cli.changes import forecast_lines, rollout_document
from onecat.cli.cluster import cluster_lines

if TYPE_CHECKING:
    from onecat.cli.planning import Subject
    from onecat.config import Deployment
    from onecat.deploy import Forecast
    from onecat.facts import Facts
    from onecat.planner import Plan, Refusal
    from onecat.planner.comparison import Case


HELP = """Show how the server would be started and what it takes, with reasons.

Of several layouts the cheapest is taken of those that hold --max-model-len, or a handful of the longest --prompts, or
else the checkpoint's whole context; a shorter one only where none does, and that is told.
"""


def register(app: typer.Typer) -> None:
    app.command("plan", help=HELP)(plan)


def plan(
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", metavar="FILE", help="onecat.yaml, or its directory [./onecat.yaml]."),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            "--model", "-m", metavar="PATH", help="Checkpoint: its directory, or its config.json before a download."
        ),
    ] = None,
    profile: Annotated[
        str | None, typer.Option("--profile", "-p", metavar="PROFILE", help="Profile, in place of onecat.yaml's.")
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option("--gpu", metavar="NAME", help="Cards alone in place of a profile, as h100 or v100-32g."),
    ] = None,
    gpus: Annotated[int | None, typer.Option("--gpus", metavar="N", min=1, help="How many of them [1].")] = None,
    gpu_memory: Annotated[
        float | None, typer.Option("--gpu-memory", metavar="GIB", help="Memory of one, where onecat does not know it.")
    ] = None,
    engine: Annotated[str | None, typer.Option("--engine", metavar="NAME", help="Engine for --gpu.")] = None,
    engine_version: Annotated[
        str | None, typer.Option("--engine-version", metavar="VERSION", help="Its version, as 0.27.1.")
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
    prompts: Annotated[
        str | None,
        typer.Option(
            "--prompts",
            metavar="SHARES|FILE",
            help="Lengths of prompts to come: 30%:128,70%:2048 (:answer), or a file with one length per line.",
        ),
    ] = None,
    what_if: Annotated[
        list[str] | None,
        typer.Option(
            "--what-if",
            metavar="NAME=VALUES",
            help="Compare: gpu=h100,a100-80g, tp=1,2,4, len=8K,32K; repeat to cross.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON (onecat.plan/1).")] = False,
) -> None:
    from onecat.cli.planning import facts_here, subject_of
    from onecat.errors import ExitCode
    from onecat.planner import to_json
    from onecat.planner.ray import on_host_network
    from onecat.render.plans import plan_text

    named: dict[str, Any] = {
        "tensor-parallel-size": tensor_parallel,
        "pipeline-parallel-size": pipeline_parallel,
        "max-model-len": max_model_len,
        "kv-cache-dtype": kv_cache_dtype,
        "gpu-memory-utilization": gpu_memory_utilization,
        "max-num-seqs": max_num_seqs,
    }
    flags = flag_settings(settings or []) | {name: value for name, value in named.items() if value is not None}
    subject = subject_of(
        config=config,
        model=model,
        profile=profile,
        runtime=runtime,
        gpu=gpu,
        gpus=gpus,
        gpu_memory=gpu_memory,
        engine=engine,
        engine_version=engine_version,
        flags=flags,
        prompts=prompts,
        what_if=what_if or [],
    )
    if facts_file is not None:
        from onecat.probe import read_facts

        subject = replace(subject, facts=read_facts(facts_file))
    if what_if:
        _compare(subject, what_if, as_json)
        return
    deployment = subject.deployment
    asked = facts_file is None and model is None and gpu is None and deployment.hosts == ("local",)
    here = facts_here() if asked else None
    made = (subject if here is None else subject.here(here)).plan()
    cluster = None
    if deployment.ray is not None and facts_file is None:
        cluster, against = _cluster(deployment, made)
        made = replace(on_host_network(made), refusals=(*made.refusals, *against))
    forecast = _forecast(deployment, made, here) if asked and not any(each.certain for each in made.refusals) else None
    if as_json:
        rollout = None if forecast is None else rollout_document(forecast)
        console.print_json({**to_json(made), "rollout": rollout, "cluster": cluster})
    else:
        print(plan_text(made, unicode=console.draws_blocks()))
        if cluster is not None:
            print("\n".join(["", *cluster_lines(cluster)]))
        if forecast is not None:
            print("\n".join(["", "ROLLOUT", *forecast_lines(forecast)]))
    if made.refusals or made.fits is False:
        raise typer.Exit(int(ExitCode.NO))


def _compare(subject: Subject, what_if: list[str], as_json: bool) -> None:
    """Several cases in one table; exit code 1 when none of them fits."""
    from onecat.errors import ExitCode
    from onecat.planner import to_json
    from onecat.planner.comparison import cases, compared
    from onecat.render.plans import what_if_lines, wrapped

    plans: dict[str, Plan] = {}

    def plan_for(case: Case) -> Plan:
        plans[case.name] = subject.varied(case).plan()
        return plans[case.name]

    rows = compared(cases(what_if), plan_for)
    first = next(iter(plans.values()))
    if as_json:
        console.print_json({**to_json(first), "rollout": None, "cluster": None, "what_if": rows})
    else:
        print("\n".join([f"{first.deployment}: {first.engine} {first.engine_version}", "", *what_if_lines(rows)]))
        for why in first.estimated:
            print("\n".join(wrapped(f"note: sizes are estimated: {why}", "")))
    if not any(each["fits"] and not each["refusals"] for each in rows):
        raise typer.Exit(int(ExitCode.NO))


def _forecast(deployment: Deployment, made: Plan, facts: Facts | None) -> Forecast | None:
    """How `onecat up` would put this on this machine; None where that cannot be told, which is told."""
    from onecat.cli.machines import facts_of, local_machine
    from onecat.config import load_profile
    from onecat.deploy import UpRequest, forecast_up
    from onecat.errors import OnecatError
    from onecat.images import find_runtime
    from onecat.paths import home

    profile, machine = load_profile(deployment.profile), local_machine()
    launcher = find_runtime(profile, home()) if made.runtime == "native" else None
    seen = facts or facts_of(machine)
    request = UpRequest(deployment, profile, made, launcher, seen, model_is_checked=True)
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
