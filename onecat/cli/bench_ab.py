"""`onecat bench ab`: whether B is faster than A."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onecat.cli import bench_options as options
from onecat.cli import console
from onecat.cli.machines import HostOption
from onecat.cli.option_records import takes_records
from onecat.errors import ExitCode, OnecatError

if TYPE_CHECKING:
    from onecat.cli.bench_frames import Frame
    from onecat.experiments.ab import Design
    from onecat.experiments.targets import Target
    from onecat.experiments.variants import Variant

_PAIRS, _RESTARTED_PAIRS = 20, 8
_LEAST_REQUESTS, _REQUESTS_EACH = 20, 4
EPILOG = (
    "A is what serves; B differs by --b-set, --b-release or --b-model, and the deployment is started anew before each "
    "block: 2 starts a pair, requests are refused meanwhile where there is no room for both, and in the end it serves "
    "as before, also after Ctrl-C. Two servers that run already: --a URL --b URL, without restarts. Blocks go A B, "
    "B A, and both of a pair send the same requests. A difference is shown where the 99 % interval over pairs leaves "
    "zero out; where all of it is smaller than --smallest, it does not matter. "
    "Example: onecat bench ab chat --b-set max-num-seqs=64"
)


def add_to(group: typer.Typer) -> None:
    group.command("ab", help="Compare A with B: 'faster by x %, 95 % interval', or no difference.", epilog=EPILOG)(
        takes_records(ab)
    )


def ab(
    *,
    name: options.NameArgument = None,
    config: options.ConfigOption = None,
    hosts: HostOption = None,
    a_set: Annotated[
        list[str] | None,
        typer.Option("--a-set", metavar="FLAG=VALUE", help="A is the deployment with this flag (repeat)."),
    ] = None,
    b_set: Annotated[
        list[str] | None,
        typer.Option("--b-set", metavar="FLAG=VALUE", help="B is the deployment with this flag (repeat)."),
    ] = None,
    a_release: Annotated[
        int | None, typer.Option("--a-release", metavar="N", help="A is this release.  [default: what serves]")
    ] = None,
    b_release: Annotated[int | None, typer.Option("--b-release", metavar="N", help="B is this release.")] = None,
    b_model: Annotated[
        str | None,
        typer.Option("--b-model", metavar="DIRECTORY", help="B serves this checkpoint, under the same name."),
    ] = None,
    a: Annotated[str | None, typer.Option("--a", metavar="URL", help="A is this server; with --b.")] = None,
    b: Annotated[str | None, typer.Option("--b", metavar="URL", help="B is this server; with --a.")] = None,
    metric: Annotated[
        str,
        typer.Option("--metric", help="Decides: per-token, end-to-end, ttft, inter-token, throughput. All are shown."),
    ] = "per-token",
    smallest: Annotated[
        float,
        typer.Option("--smallest", min=0.0, metavar="PERCENT", help="The smallest difference that matters."),
    ] = 1.0,
    max_pairs: Annotated[
        int | None,
        typer.Option("--max-pairs", min=1, help="At most so many pairs of blocks.  [default: 20; with restarts: 8]"),
    ] = None,
    no_early_stop: Annotated[
        bool, typer.Option("--no-early-stop", help="Measure all pairs, however clear it is before.")
    ] = False,
    concurrency: Annotated[
        list[str] | None, typer.Option("--concurrency", metavar="N", help="Requests at once.  [default: 8]")
    ] = None,
    rate: Annotated[
        list[str] | None, typer.Option("--rate", metavar="R", help="Requests a second, answered or not (Poisson).")
    ] = None,
    burstiness: Annotated[
        float, typer.Option("--burstiness", min=0.01, help="Of --rate: less than 1 comes in bursts, more is more even.")
    ] = 1.0,
    requests: Annotated[
        int | None,
        typer.Option("--requests", "-n", min=1, help="In a block.  [default: 4 for each at once; at least 20]"),
    ] = None,
    warm_up: Annotated[
        int | None,
        typer.Option(
            "--warm-up", min=0, help="Requests after each start that do not count.  [default: as many as are at once]"
        ),
    ] = None,
    asked_requests: options.RequestOptions,
    direct: options.DirectOption = False,
    model: Annotated[str | None, typer.Option("--model", help="Served name of the model at --a and --b.")] = None,
    tokenizer: Annotated[
        str | None, typer.Option("--tokenizer", metavar="DIRECTORY", help="Of the model at --a and --b.")
    ] = None,
    key_file: Annotated[
        Path | None, typer.Option("--api-key-file", help="File with the API key of --a and --b.", show_default=False)
    ] = None,
    image: Annotated[
        str | None, typer.Option("--image", help="Image of an engine that sends the load to --a and --b.")
    ] = None,
    foreign: Annotated[
        bool,
        typer.Option(
            "--load-foreign-server",
            help="Load --a and --b though they are not this machine: only with the owner's consent.",
        ),
    ] = False,
    request_timeout: options.TimeoutOption = 600.0,
    pin: options.PinOption = True,
    resume: Annotated[
        Path | None,
        typer.Option("--resume", metavar="FILE", help="Go on with a comparison that was cut off, as it was asked for."),
    ] = None,
    output: options.OutputFileOption = None,
    as_json: options.JsonOption = False,
) -> None:
    from onecat.cli.bench_frames import Frame
    from onecat.experiments.ab import Design, whole_pairs
    from onecat.experiments.speed import metric_called
    from onecat.experiments.variants import Variant

    console.end_like_ctrl_c()
    if resume is not None:
        _resume(resume, as_json)
        return
    metric_called(metric)
    levels = options.levels_of(concurrency, rate, burstiness)
    if len(levels) > 1:
        raise OnecatError(
            "a comparison has one way of arriving",
            expected="one --concurrency, or one --rate",
            next_steps=["compare at each of them, one after the other"],
        )
    changed = any(each for each in (a_set, b_set, a_release, b_release, b_model))
    if (a is None) != (b is None) or (a is not None and changed):
        raise OnecatError(
            "--a and --b go together, and without --a-set, --b-set, --a-release, --b-release, --b-model",
            expected="two servers that run, or a deployment and how B differs",
            next_steps=["onecat bench ab --a URL --b URL --model NAME --tokenizer DIRECTORY", _EXAMPLE],
        )
    if a is None and not changed:
        raise OnecatError(
            "nothing says how B differs from A",
            expected="--b-set FLAG=VALUE, --b-release N, --b-model DIRECTORY, or two servers: --a URL --b URL",
            next_steps=[_EXAMPLE],
        )
    pairs = whole_pairs(max_pairs or (_PAIRS if a is not None else _RESTARTED_PAIRS))
    if a is not None and (model is None or tokenizer is None):
        raise OnecatError(
            "--a and --b need --model and --tokenizer",
            expected="the served name of their model, and a directory with its tokenizer",
            next_steps=[
                f"see what is served: curl {a.removesuffix('/v1')}/v1/models",
                f"onecat bench ab --a {a} --b {b} --model NAME --tokenizer DIRECTORY",
            ],
        )
    common = options.Wanted(name, config, tuple(hosts or ()), direct=direct)
    if b_model is not None:
        b_model = str(Path(b_model).expanduser().absolute())
    if a is not None:
        common = replace(
            common, endpoint=a, model=model, tokenizer=tokenizer, key_file=key_file, image=image, foreign=foreign
        )
    else:
        given = {"--model": model, "--tokenizer": tokenizer, "--api-key-file": key_file, "--image": image}
        needless = next((option for option, value in given.items() if value is not None), None)
        if needless is not None:
            raise OnecatError(f"{needless} goes with --a and --b", expected="a deployment's own, which onecat knows")
    variants = (
        None
        if a is not None
        else {
            "A": Variant(_settings(a_set, "--a-set"), a_release),
            "B": Variant(_settings(b_set, "--b-set"), b_release if b_release is not None else a_release, b_model),
        }
    )
    asked = _Asked(common, b, variants)
    at_once = levels[0].concurrency or 1
    with _open(asked) as targets:
        longest = min((each.max_model_len for each in targets.values() if each.max_model_len), default=None)
        workload = options.workload_of(
            asked_requests,
            requests=requests or max(_LEAST_REQUESTS, _REQUESTS_EACH * at_once),
            longest=longest,
        )
        before = at_once if warm_up is None else warm_up
        design = Design(workload, levels[0], metric, pairs, not no_early_stop, before, smallest)
        path = options.result_path(output, "ab", targets["A"])
        _measure(targets, asked, design, Frame("ab", path, request_timeout, pin))
    _show(path, as_json)


_EXAMPLE = "onecat bench ab NAME --b-set max-num-seqs=64"


@dataclass(frozen=True)
class _Asked:
    """What is compared. server: of A, or the deployment. b: the other server. variants: of the deployment, by arm."""

    server: options.Wanted
    b: str | None
    variants: dict[str, Variant] | None

    def document(self) -> dict[str, Any]:
        variants = None if self.variants is None else {arm: each.document() for arm, each in self.variants.items()}
        return {"target": self.server.document(), "b": self.b, "variants": variants}


@contextlib.contextmanager
def _open(asked: _Asked) -> Iterator[dict[str, Target]]:
    """The servers by arm; of variants of a deployment both are what serves now, until they do themselves."""
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(options.open_bench_target(asked.server))
        second = first
        if asked.b is not None:
            second = stack.enter_context(options.open_bench_target(replace(asked.server, endpoint=asked.b)))
        yield {"A": first, "B": second}


def _measure(targets: dict[str, Target], asked: _Asked, design: Design, frame: Frame) -> None:
    """Run the comparison into a result file."""
    from onecat.experiments.ab import run_ab

    settings = {**asked.document(), "design": asdict(design)}
    if asked.variants is None:
        with frame.opened(targets, settings) as (driver, file):
            run_ab(driver, design, lambda arm: (targets[arm].endpoint, False), file, console.progress)
        return
    variants = frame.variants(targets["A"], asked.variants, asked.server.direct)
    for line in variants.differences:
        console.progress(line)
    console.progress(f"up to {2 * design.pairs} starts; in the end release {variants.original} serves as before")
    with frame.opened(variants.targets, settings, variants=variants) as (driver, file):
        run_ab(driver, design, lambda arm: (variants.to(arm), True), file, console.progress)


def _resume(name: Path, as_json: bool) -> None:
    from onecat.cli.bench_frames import frame_of_cut_off
    from onecat.experiments.ab import Design
    from onecat.experiments.records import Arrivals, Workload
    from onecat.experiments.variants import variant_from

    frame, experiment = frame_of_cut_off(name, "ab")
    settings = experiment.settings
    told = dict(settings["design"])
    design = Design(**{**told, "workload": Workload(**told["workload"]), "arrivals": Arrivals(**told["arrivals"])})
    variants = settings["variants"]
    asked = _Asked(
        options.wanted_from(settings["target"]),
        settings["b"],
        None if variants is None else {arm: variant_from(each) for arm, each in variants.items()},
    )
    with _open(asked) as targets:
        _measure(targets, asked, design, frame)
    _show(frame.path, as_json)


def _show(path: Path, as_json: bool) -> None:
    """Tell what was found; exit code 1 where A and B cannot be compared."""
    experiment = options.read_back(path)
    options.print_experiment(experiment, path, as_json)
    if (experiment.verdict or {}).get("verdict") in ("not-comparable", "undecided"):
        raise typer.Exit(int(ExitCode.NO))


def _settings(words: Sequence[str] | None, option: str) -> tuple[tuple[str, str], ...]:
    """FLAG=VALUE words of an option. Raises OnecatError."""
    found: dict[str, str] = {}
    for word in words or ():
        flag, equals, value = word.partition("=")
        if not flag.lstrip("-") or not equals:
            raise OnecatError(f"{option} {word}", expected=f"{option} FLAG=VALUE, as in {option} max-num-seqs=64")
        found[flag.lstrip("-")] = value
    return tuple(found.items())
