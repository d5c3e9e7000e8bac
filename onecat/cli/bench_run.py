"""`onecat bench run`: how quick a server is under load."""

from __future__ import annotations

from typing import Annotated

import typer

from onecat.cli import bench_options as options
from onecat.cli import console
from onecat.cli.machines import HostOption
from onecat.cli.option_records import takes_records

_REQUESTS_EACH, _LEAST_REQUESTS, _RATE_SECONDS = 10, 50, 60.0


def add_to(group: typer.Typer) -> None:
    group.command("run", help="Measure a deployment under load: latencies, throughput, errors, with intervals.")(
        takes_records(run)
    )


def run(
    *,
    name: options.NameArgument = None,
    config: options.ConfigOption = None,
    hosts: HostOption = None,
    concurrency: Annotated[
        list[str] | None,
        typer.Option(
            "--concurrency",
            metavar="N",
            help="Requests at once, a new one for each answer; several (1,8,32): one after the other.  [default: 8]",
        ),
    ] = None,
    rate: Annotated[
        list[str] | None,
        typer.Option(
            "--rate", metavar="R", help="Requests a second, answered or not (Poisson); several: one after the other."
        ),
    ] = None,
    burstiness: Annotated[
        float,
        typer.Option(
            "--burstiness", min=0.01, help="Of --rate: less than 1 comes in bursts, more is more even (gamma)."
        ),
    ] = 1.0,
    requests: Annotated[
        int | None,
        typer.Option(
            "--requests", "-n", min=1, help="In a block.  [default: 10 for each at once, 60 s of a rate; at least 50]"
        ),
    ] = None,
    repetitions: Annotated[
        int, typer.Option("--repetitions", min=1, help="Blocks of each level; intervals come from their spread.")
    ] = 3,
    warm_up: Annotated[
        int | None,
        typer.Option(
            "--warm-up", min=0, help="Requests before each level that do not count.  [default: as many as are at once]"
        ),
    ] = None,
    goodput: options.GoodputOption = None,
    asked_requests: options.RequestOptions,
    server: options.ServerOptions,
    request_timeout: options.TimeoutOption = 600.0,
    pin: options.PinOption = True,
    driver_name: options.DriverOption = "engine",
    output: options.OutputFileOption = None,
    as_json: options.JsonOption = False,
) -> None:
    levels = options.levels_of(concurrency, rate, burstiness)
    objectives = options.objectives_of(goodput)
    wanted = options.wanted_server(name, config, hosts, server)
    from onecat.experiments.results import ResultFile
    from onecat.experiments.running import Design, design_document, run_design
    from onecat.experiments.targets import environment_of, open_driver_named

    options.check_driver(driver_name)
    console.end_like_ctrl_c()
    at_once = max((each.concurrency or 1 for each in levels), default=1)
    number = requests or max(
        _LEAST_REQUESTS,
        _REQUESTS_EACH * at_once,
        round(_RATE_SECONDS * max((each.rate or 0.0 for each in levels), default=0.0)),
    )
    with options.open_bench_target(wanted) as target:
        workload = options.workload_of(
            asked_requests,
            requests=number,
            longest=target.max_model_len,
        )
        design = Design(workload, levels, repetitions, at_once if warm_up is None else warm_up)
        if workload.source != "random" and (design.repetitions > 1 or design.warm_up):
            console.progress(
                "prompts of a file come again in each repetition: where the server caches prefixes (vLLM does unless "
                "told otherwise), first tokens are quicker than for new prompts"
            )
        path = options.result_path(output, "run", target)
        console.progress(f"load on {target.endpoint.base_url}: starting what sends it")
        cut = False
        with open_driver_named(driver_name, target, request_seconds=request_timeout, pin=pin) as driver:
            console.progress(driver.describe()["pinning"])
            environment = environment_of(driver, {"": target})
            settings = {
                "target": wanted.document(),
                "design": design_document(design),
                "request_timeout": request_timeout,
            }
            with ResultFile.create(path, "run", environment, settings, objectives) as results:
                try:
                    run_design(driver, target.endpoint, design, results, console.progress)
                    results.finish(None)
                except KeyboardInterrupt:
                    cut = True
    experiment = options.read_back(path)
    note = "cut short by Ctrl-C: blocks that were not whole do not count" if cut else ""
    options.print_experiment(experiment, path, as_json, note=note)
    if cut:
        raise typer.Exit(130)
    sent = [each for block in experiment.blocks if not block.warm_up for each in block.requests]
    if sent and all(each.error is not None for each in sent):
        # The figures are told already, under --json as the one document on standard output.
        for message in sorted({each.message for each in sent})[:3]:
            console.progress(f"no request was answered: {message}")
        raise typer.Exit(1)
