"""`onecat bench sweep`: which values of flags make a deployment faster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onecat.cli import bench_options as options
from onecat.cli import console
from onecat.cli.machines import HostOption
from onecat.cli.option_records import takes_records
from onecat.cli.outputs import ForceOption, Output
from onecat.errors import ExitCode, OnecatError

if TYPE_CHECKING:
    from onecat.cli.bench_frames import Frame
    from onecat.experiments.sweep import Design, Knob
    from onecat.experiments.targets import Target

_LEAST_REQUESTS, _REQUESTS_EACH = 50, 4
_MOST_POINTS = 200
EPILOG = (
    "Each point is started as onecat up does it; one that does not answer well is left out, and in the end the "
    "deployment serves as before, also after Ctrl-C. Points that miss --goodput go at once, and in each round the "
    "slower half. The winner is then compared with what serves, as by onecat bench ab; if it is faster, a profile with "
    "its values is suggested. Example: onecat bench sweep chat --over max-num-seqs=16,32,64"
)
_EXAMPLE = "onecat bench sweep NAME --over max-num-seqs=16,32,64"


def add_to(group: typer.Typer) -> None:
    group.command(
        "sweep", help="Try values of server flags, and suggest a profile where some are really faster.", epilog=EPILOG
    )(takes_records(sweep))


def sweep(
    *,
    name: options.NameArgument = None,
    config: options.ConfigOption = None,
    hosts: HostOption = None,
    over: Annotated[
        list[str] | None,
        typer.Option("--over", metavar="FLAG=V,V,...", help="A server flag and the values to try (repeat)."),
    ] = None,
    one_at_a_time: Annotated[
        bool,
        typer.Option(
            "--one-at-a-time", help="One flag after the other, with the best of those before; not all combinations."
        ),
    ] = False,
    metric: Annotated[
        str,
        typer.Option("--metric", help="Decides: throughput, per-token, end-to-end, ttft, inter-token."),
    ] = "throughput",
    goodput: options.GoodputOption = None,
    good_share: Annotated[
        float,
        typer.Option("--good-share", min=0.01, max=1.0, help="Of the requests, how many must keep --goodput."),
    ] = 0.95,
    confirm_pairs: Annotated[
        int,
        typer.Option("--confirm-pairs", min=0, metavar="N", help="Pairs of blocks for the winner; 0: do not confirm."),
    ] = 8,
    concurrency: Annotated[
        list[str] | None, typer.Option("--concurrency", metavar="N", help="Requests at once.  [default: 32]")
    ] = None,
    rate: Annotated[
        list[str] | None, typer.Option("--rate", metavar="R", help="Requests a second, answered or not (Poisson).")
    ] = None,
    burstiness: Annotated[
        float, typer.Option("--burstiness", min=0.01, help="Of --rate: less than 1 comes in bursts, more is more even.")
    ] = 1.0,
    requests: Annotated[
        int | None,
        typer.Option("--requests", "-n", min=1, help="In a block.  [default: 4 for each at once; at least 50]"),
    ] = None,
    warm_up: Annotated[
        int | None,
        typer.Option(
            "--warm-up", min=0, help="Requests after each start that do not count.  [default: as many as are at once]"
        ),
    ] = None,
    asked_requests: options.RequestOptions,
    direct: options.DirectOption = False,
    request_timeout: options.TimeoutOption = 600.0,
    pin: options.PinOption = True,
    resume: Annotated[
        Path | None,
        typer.Option("--resume", metavar="FILE", help="Go on with a sweep that was cut off, as it was asked for."),
    ] = None,
    write_profile: Annotated[
        str | None, typer.Option("--write-profile", metavar="FILE", help="Write the suggested profile there.")
    ] = None,
    force: ForceOption = False,
    output: options.OutputFileOption = None,
    as_json: options.JsonOption = False,
) -> None:
    from onecat.cli.bench_frames import Frame
    from onecat.experiments.ab import whole_pairs
    from onecat.experiments.speed import metric_called
    from onecat.experiments.sweep import Design

    console.end_like_ctrl_c()
    written = None if write_profile is None else Output(write_profile, "onecat bench sweep --write-profile", force)
    if written is not None:
        written.check()
    if resume is not None:
        _resume(resume, written, as_json)
        return
    metric_called(metric)
    knobs = _knobs(over)
    levels = options.levels_of(concurrency or (None if rate else ["32"]), rate, burstiness)
    if len(levels) > 1:
        raise OnecatError("a sweep has one way of arriving", expected="one --concurrency, or one --rate")
    wanted = options.Wanted(name, config, tuple(hosts or ()), direct=direct)
    at_once = levels[0].concurrency or 1
    with options.open_bench_target(wanted) as target:
        workload = options.workload_of(
            asked_requests,
            requests=requests or max(_LEAST_REQUESTS, _REQUESTS_EACH * at_once),
            longest=target.max_model_len,
        )
        design = Design(
            knobs,
            workload,
            levels[0],
            metric,
            grid=not one_at_a_time,
            objectives=options.objectives_of(goodput),
            good_share=good_share,
            confirming=whole_pairs(confirm_pairs) if confirm_pairs else 0,
            warm_up=at_once if warm_up is None else warm_up,
        )
        _check_size(design)
        path = options.result_path(output, "sweep", target)
        _measure(target, wanted, design, Frame("sweep", path, request_timeout, pin))
    _show(path, written, as_json)


def _measure(target: Target, wanted: options.Wanted, design: Design, frame: Frame) -> None:
    """Run the sweep into a result file."""
    from onecat.experiments.sweep import REFERENCE, label_of, run_sweep
    from onecat.experiments.variants import Variant

    # Planned now, so that a value which cannot be is told before anything is started.
    points = {label_of(each): Variant(each) for each in ((), *design.first_points())}
    variants = frame.variants(target, points, wanted.direct)
    console.progress(f"{design.most_points} points; in the end release {variants.original} serves as before")
    settings = {"target": wanted.document(), "design": asdict(design)}
    arms = {"": variants.targets[REFERENCE]}
    with frame.opened(arms, settings, design.objectives, variants) as (driver, file):
        run_sweep(
            driver,
            design,
            lambda settings: variants.to(label_of(settings), Variant(settings)),
            file,
            console.progress,
            lambda settings, evidence: variants.suggest(settings, evidence, frame.path.name),
        )


def _resume(name: Path, written: Output | None, as_json: bool) -> None:
    from onecat.cli.bench_frames import frame_of_cut_off
    from onecat.experiments.sweep import design_from

    frame, experiment = frame_of_cut_off(name, "sweep")
    wanted = options.wanted_from(experiment.settings["target"])
    with options.open_bench_target(wanted) as target:
        _measure(target, wanted, design_from(experiment.settings["design"]), frame)
    _show(frame.path, written, as_json)


def _show(path: Path, written: Output | None, as_json: bool) -> None:
    """Tell what was found, and suggest a profile where a point is faster."""
    experiment = options.read_back(path)
    options.print_experiment(experiment, path, as_json)
    suggestion: dict[str, Any] | None = (experiment.verdict or {}).get("suggestion")
    if suggestion is None:
        return
    if written is not None and not written.is_printed:
        kept = written.write(suggestion["profile"], 0o644)
        console.progress(f"{written.file}: profile: {written.file} in onecat.yaml, then onecat up, makes it serve")
        if kept is not None:
            console.progress(f"  the old one is kept as {kept}")
    elif not as_json:
        print(f"\nsuggested profile ({suggestion['name']}.yaml):\n\n{suggestion['profile']}")
    if not as_json:
        for note in suggestion["notes"]:
            print(f"note: {note}")


def _knobs(words: Sequence[str] | None) -> tuple[Knob, ...]:
    from onecat.experiments.sweep import Knob

    found: dict[str, tuple[str, ...]] = {}
    for word in words or ():
        flag, equals, text = word.partition("=")
        flag = flag.lstrip("-").replace("_", "-")
        values = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
        if not flag or not equals or not values:
            raise OnecatError(f"--over {word}", expected="--over FLAG=VALUE,VALUE", next_steps=[_EXAMPLE])
        found[flag] = tuple(dict.fromkeys((*found.get(flag, ()), *values)))
    if not found:
        raise OnecatError(
            "nothing says what to try", expected="--over FLAG=VALUE,VALUE; may be repeated", next_steps=[_EXAMPLE]
        )
    return tuple(Knob(flag, values) for flag, values in found.items())


def _check_size(design: Design) -> None:
    if design.most_points > _MOST_POINTS:
        raise OnecatError(
            f"{design.most_points} combinations, each with a start of the server",
            expected=f"at most {_MOST_POINTS}",
            next_steps=["try one flag after the other: --one-at-a-time", "or fewer values"],
            code=ExitCode.USAGE,
        )
