"""`onecat bench burst`: many requests at once, and how long the server needs to be as before."""

from __future__ import annotations

from typing import Annotated

import typer

from onecat.cli import bench_options as options
from onecat.cli import console
from onecat.cli.machines import HostOption
from onecat.cli.option_records import takes_records


def add_to(group: typer.Typer) -> None:
    group.command("burst", help="Many requests at once: P99, time-outs, errors, and how long recovery takes.")(
        takes_records(burst)
    )


def burst(
    *,
    name: options.NameArgument = None,
    config: options.ConfigOption = None,
    hosts: HostOption = None,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, max=10_000, help="Requests at once.")] = 100,
    lasting: Annotated[str, typer.Option("--for", metavar="TIME", help="How long new requests are sent.")] = "30s",
    calm_requests: Annotated[
        int, typer.Option("--calm-requests", min=2, help="Single requests before, from which calm latency is known.")
    ] = 40,
    recovery: Annotated[
        str, typer.Option("--recovery", metavar="TIME", help="The longest that is waited for recovery.")
    ] = "2m",
    asked_requests: options.RequestOptions,
    server: options.ServerOptions,
    request_timeout: options.TimeoutOption = 60.0,
    pin: options.PinOption = True,
    driver_name: options.DriverOption = "engine",
    output: options.OutputFileOption = None,
    as_json: options.JsonOption = False,
) -> None:
    seconds = options.seconds_of(lasting, "--for")
    recovery_seconds = options.seconds_of(recovery, "--recovery")
    wanted = options.wanted_server(name, config, hosts, server)
    from dataclasses import asdict

    from onecat.experiments.burst import Design, Outcome, run_burst
    from onecat.experiments.results import ResultFile
    from onecat.experiments.targets import environment_of, open_driver_named

    options.check_driver(driver_name)
    console.end_like_ctrl_c()
    outcome: Outcome | None = None
    with options.open_bench_target(wanted) as target:
        workload = options.workload_of(
            asked_requests,
            requests=calm_requests,
            longest=target.max_model_len,
        )
        design = Design(workload, concurrency, seconds, calm_requests, recovery_seconds=recovery_seconds)
        path = options.result_path(output, "burst", target)
        console.progress(f"load on {target.endpoint.base_url}: starting what sends it")
        with open_driver_named(driver_name, target, request_seconds=request_timeout, pin=pin) as driver:
            console.progress(driver.describe()["pinning"])
            environment = environment_of(driver, {"": target})
            settings = {"target": wanted.document(), "design": asdict(design), "request_timeout": request_timeout}
            with ResultFile.create(path, "burst", environment, settings) as results:
                try:
                    outcome = run_burst(driver, target.endpoint, design, results, console.progress)
                    results.finish(outcome.document())
                except KeyboardInterrupt:
                    console.progress("cut short: the load has ended")
    note = "" if outcome is not None else "cut short by Ctrl-C: parts that were not whole do not count"
    options.print_experiment(options.read_back(path), path, as_json, note=note)
    if outcome is None:
        raise typer.Exit(130)
    raise typer.Exit(0 if outcome.recovered else 1)
