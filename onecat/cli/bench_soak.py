"""`onecat bench soak`: load for hours or days, and whether the server stands it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onecat.cli import bench_options as options
from onecat.cli import console
from onecat.cli.machines import HostOption
from onecat.cli.option_records import takes_records
from onecat.errors import ExitCode, OnecatError

if TYPE_CHECKING:
    from onecat.experiments.results import ResultFile
    from onecat.experiments.soak import Design
    from onecat.experiments.soak_verdict import Verdict
    from onecat.experiments.targets import Target

_LEAST_BLOCKS, _LEAST_SAMPLES = 20, 40
_BLOCK_SECONDS = 60.0


def add_to(group: typer.Typer) -> None:
    group.command("soak", help="Load for hours or days: memory growth, errors, restarts, and a verdict.")(
        takes_records(soak)
    )


def soak(
    *,
    name: options.NameArgument = None,
    config: options.ConfigOption = None,
    hosts: HostOption = None,
    lasting: Annotated[str, typer.Option("--for", metavar="TIME", help="How long, as 90m, 72h, 3d.")] = "72h",
    rate: Annotated[float, typer.Option("--rate", min=0.001, help="Requests a second (Poisson).")] = 1.0,
    burstiness: Annotated[float, typer.Option("--burstiness", min=0.01, help="Less than 1 comes in bursts.")] = 1.0,
    concurrency: Annotated[
        int, typer.Option("--concurrency", min=1, help="At most so many at once: what a server that hangs collects.")
    ] = 64,
    sample: Annotated[
        str, typer.Option("--sample", metavar="TIME", help="Between two looks at the server's memory and metrics.")
    ] = "15s",
    max_errors: Annotated[
        float, typer.Option("--max-errors", min=0.0, max=100.0, help="Percent of requests that may fail.")
    ] = 0.1,
    max_growth: Annotated[
        float, typer.Option("--max-growth", min=0.0, help="Percent of its memory that it may grow by in a day.")
    ] = 5.0,
    resume: Annotated[
        Path | None,
        typer.Option("--resume", metavar="FILE", help="Go on with a soak that was cut off; its settings are kept."),
    ] = None,
    asked_requests: options.RequestOptions,
    server: options.ServerOptions,
    request_timeout: options.TimeoutOption = 300.0,
    pin: options.PinOption = True,
    driver_name: options.DriverOption = "engine",
    output: options.OutputFileOption = None,
    as_json: options.JsonOption = False,
) -> None:
    seconds, sample_seconds = options.seconds_of(lasting, "--for"), options.seconds_of(sample, "--sample")
    wanted = options.wanted_server(name, config, hosts, server)
    from onecat.experiments.places import find_result
    from onecat.experiments.records import Arrivals
    from onecat.experiments.results import ResultFile
    from onecat.experiments.soak import Design, Limits, design_document
    from onecat.experiments.targets import environment_of, open_driver_named

    options.check_driver(driver_name)
    console.end_like_ctrl_c()
    file = None
    if resume is not None:
        path = find_result(str(resume))
        file = ResultFile.open_to_resume(path)
        wanted, design, driver_name = _settings(file, path)
        request_timeout, pin = options.sending_as_before(file.experiment.settings)
    try:
        with options.open_bench_target(wanted) as target:
            if file is not None:
                _check_same_server(file, target)
            else:
                workload = options.workload_of(
                    asked_requests,
                    requests=1,
                    longest=target.max_model_len,
                )
                design = Design(
                    workload,
                    Arrivals(concurrency=concurrency, rate=rate, burstiness=burstiness),
                    seconds,
                    block_seconds=max(2 / rate, min(_BLOCK_SECONDS, seconds / _LEAST_BLOCKS)),
                    sample_seconds=min(sample_seconds, max(1.0, seconds / _LEAST_SAMPLES)),
                    warm_up=2,
                    limits=Limits(max_errors, max_growth),
                )
                path = options.result_path(output, "soak", target)
            console.progress(f"load on {target.endpoint.base_url}: starting what sends it")
            with open_driver_named(driver_name, target, request_seconds=request_timeout, pin=pin) as driver:
                console.progress(driver.describe()["pinning"])
                if file is None:
                    settings = {
                        "target": wanted.document(),
                        "design": design_document(design),
                        "request_timeout": request_timeout,
                        "pin": pin,
                        "driver": driver_name,
                    }
                    file = ResultFile.create(path, "soak", environment_of(driver, {"": target}), settings)
                verdict, cut = _measure(driver, target, design, file, path)
    finally:
        if file is not None:
            file.close()
    note = f"it goes on by: onecat bench soak --resume {path}" if cut else ""
    options.print_experiment(options.read_back(path), path, as_json, verdict=verdict.document(), note=note)
    raise typer.Exit(130 if cut else 1 if verdict.answer in ("failed", "undecided") else 0)


def _measure(driver: Any, target: Target, design: Design, file: ResultFile, path: Path) -> tuple[Verdict, bool]:
    """Send the load. Returns the verdict, and whether it was cut short by Ctrl-C."""
    from onecat.experiments.soak import run_soak
    from onecat.experiments.soak_verdict import verdict_of
    from onecat.experiments.watching import ServerWatch

    cut = False
    try:
        with ServerWatch(target, design.sample_seconds) as watch:
            run_soak(driver, target.endpoint, design, file, watch, console.progress)
    except KeyboardInterrupt:
        cut = True
    except OnecatError as error:
        steps = [*error.next_steps, f"then go on from here: onecat bench soak --resume {path}"]
        raise error.told_as(next_steps=steps) from error
    verdict = verdict_of(options.read_back(path), design)
    if not cut:
        file.finish(verdict.document())
    return verdict, cut


def _settings(file: ResultFile, path: Path) -> tuple[options.Wanted, Design, str]:
    from onecat.experiments.soak import design_from

    try:
        if file.experiment.kind != "soak":
            raise KeyError(f"it is of a {file.experiment.kind}")
        settings = file.experiment.settings
        return (
            options.wanted_from(settings["target"]),
            design_from(settings["design"]),
            str(settings.get("driver", "engine")),
        )
    except (KeyError, TypeError, ValueError) as error:
        file.close()
        raise OnecatError(
            f"this is no soak that can be resumed: {error}",
            where=str(path),
            next_steps=["see which results there are: onecat bench report"],
        ) from error


def _check_same_server(file: ResultFile, target: Target) -> None:
    """Raises OnecatError when another release serves than the one that the soak has loaded so far."""
    before = file.experiment.environment.arms[""]
    found = [each.get("fingerprint") or each.get("endpoint") for each in (before, target.arm)]
    if found[0] != found[1]:
        raise OnecatError(
            f"another release serves now ({target.arm.get('release')}) than the one that was loaded "
            f"({before.get('release')})",
            expected="the same server, for a verdict on it",
            next_steps=[
                f"go back to it: onecat rollback {target.endpoint.label} --to {before.get('release')}",
                "or begin a new soak",
            ],
            code=ExitCode.NO,
        )
