"""Options that the commands of `onecat bench` have in common, and what they become."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onecat.errors import OnecatError

if TYPE_CHECKING:
    from onecat.experiments.records import Arrivals, Experiment, Objectives, Workload
    from onecat.experiments.targets import ContainerSender, NativeSender, Target
    from onecat.hosts import Machine

NameArgument = Annotated[
    str | None,
    typer.Argument(
        help="Deployment name; by default that of --config, of ./onecat.yaml, or the only one.", show_default=False
    ),
]
ConfigOption = Annotated[Path | None, typer.Option("--config", "-c", help="onecat.yaml that names it.")]
EndpointOption = Annotated[
    str | None,
    typer.Option(
        "--endpoint", metavar="URL", help="Load this server and no deployment; needs --model and --tokenizer."
    ),
]
ModelOption = Annotated[str | None, typer.Option("--model", help="Served name of the model at --endpoint.")]
TokenizerOption = Annotated[
    str | None,
    typer.Option(
        "--tokenizer", metavar="DIRECTORY", help="Of the model at --endpoint, on the machine that sends the load."
    ),
]
KeyOption = Annotated[
    Path | None, typer.Option("--api-key-file", help="File with the API key of --endpoint.", show_default=False)
]
ImageOption = Annotated[
    str | None,
    typer.Option("--image", help="Image of an engine that sends the load to --endpoint; by default a native runtime."),
]
ForeignOption = Annotated[
    bool,
    typer.Option(
        "--load-foreign-server", help="Load --endpoint though it is not this machine: only with its owner's consent."
    ),
]
DirectOption = Annotated[bool, typer.Option("--direct", help="Load the server itself, not the nginx before it.")]
PromptsOption = Annotated[
    Path | None,
    typer.Option("--prompts", metavar="FILE", help='Prompts: one a line, or JSON lines with "prompt".'),
]
ShareGptOption = Annotated[
    Path | None, typer.Option("--sharegpt", metavar="FILE", help="Conversations in ShareGPT's JSON.")
]
InputOption = Annotated[
    int | None, typer.Option("--input-tokens", min=1, help="Tokens of a random prompt.  [default: 512]")
]
OutputOption = Annotated[
    int | None,
    typer.Option("--output-tokens", min=1, help="Tokens of an answer.  [default: 128; of a file: what it says]"),
]
RangeOption = Annotated[
    float,
    typer.Option(
        "--range-ratio", min=0.0, max=0.99, help="Random lengths vary by so much: 0.5 for half to one and a half times."
    ),
]
ChatOption = Annotated[bool, typer.Option("--chat", help="Ask for chats, not for texts to go on with.")]
EosOption = Annotated[
    bool,
    typer.Option("--stop-at-eos", help="Let answers end where the model ends them, not at --output-tokens."),
]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Of random prompts and arrivals.")]
TimeoutOption = Annotated[
    float, typer.Option("--request-timeout", min=0.1, metavar="SECONDS", help="Then a request has timed out.")
]
PinOption = Annotated[
    bool, typer.Option("--pin/--no-pin", help="Send the load from cores of its own, where there are enough.")
]
DriverOption = Annotated[
    str, typer.Option("--driver", metavar="engine|aiperf", help="What sends it: vllm bench serve, or aiperf on PATH.")
]
OutputFileOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Result file; by default one among onecat's data."),
]
GoodputOption = Annotated[
    list[str] | None,
    typer.Option(
        "--goodput",
        metavar="WHAT:MS",
        help="What a good request keeps: ttft:200, inter-token:50, end-to-end:2000 (repeat).",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print as JSON (onecat.bench/1).")]

_DEFAULT_INPUT, _DEFAULT_OUTPUT = 512, 128
_OBJECTIVES = {
    "ttft": "ttft_ms",
    "inter-token": "inter_token_ms",
    "itl": "inter_token_ms",
    "tpot": "inter_token_ms",
    "end-to-end": "end_to_end_ms",
    "e2e": "end_to_end_ms",
    "e2el": "end_to_end_ms",
}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|d)?")
_SECONDS = {None: 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True)
class RequestOptions:
    """Which requests are sent."""

    prompts: PromptsOption = None
    sharegpt: ShareGptOption = None
    input_tokens: InputOption = None
    output_tokens: OutputOption = None
    range_ratio: RangeOption = 0.0
    chat: ChatOption = False
    stop_at_eos: EosOption = False
    seed: SeedOption = 0


@dataclass(frozen=True)
class ServerOptions:
    """Which server is loaded: the deployment's own, or one at an address."""

    direct: DirectOption = False
    endpoint: EndpointOption = None
    model: ModelOption = None
    tokenizer: TokenizerOption = None
    key_file: KeyOption = None
    image: ImageOption = None
    foreign: ForeignOption = False


@dataclass(frozen=True)
class Wanted:
    """Which server is meant, as the options say."""

    name: str | None = None
    config: Path | None = None
    hosts: tuple[str, ...] = ()
    endpoint: str | None = None
    model: str | None = None
    tokenizer: str | None = None
    key_file: Path | None = None
    image: str | None = None
    foreign: bool = False
    direct: bool = False

    def document(self) -> dict[str, Any]:
        """As plain data, for the result file's settings: from it a soak finds its server again."""
        values: dict[str, Any] = {
            "name": self.name,
            "config": None if self.config is None else str(self.config.absolute()),
            "hosts": list(self.hosts),
            "endpoint": self.endpoint,
            "model": self.model,
            "tokenizer": self.tokenizer,
            "key_file": None if self.key_file is None else str(self.key_file.absolute()),
            "image": self.image,
            "foreign": self.foreign,
            "direct": self.direct,
        }
        return {name: value for name, value in values.items() if value not in (None, [], False)}


def wanted_server(name: str | None, config: Path | None, hosts: Sequence[str] | None, server: ServerOptions) -> Wanted:
    """The server that is meant by a deployment's name, or by the options for one at an address."""
    return Wanted(name, config, tuple(hosts or ()), **vars(server))


def wanted_from(document: dict[str, Any]) -> Wanted:
    """What `Wanted.document` made this from."""
    paths: dict[str, Any] = {name: Path(document[name]) for name in ("config", "key_file") if name in document}
    return Wanted(**{**document, **paths, "hosts": tuple(document.get("hosts", ()))})


def sending_as_before(settings: Mapping[str, Any]) -> tuple[float, bool]:
    """How an experiment that goes on sends its requests: the seconds after which one has timed out, and whether what
    sends them has cores of its own. Blocks before and after must not differ in these."""
    return float(settings.get("request_timeout", 600.0)), bool(settings.get("pin", True))


@contextlib.contextmanager
def open_bench_target(wanted: Wanted) -> Iterator[Target]:
    """The server that is to be loaded, while the block runs. Raises OnecatError."""
    from onecat.cli.machines import chosen_hosts, only_host, open_hosts
    from onecat.cli.status import chosen_name
    from onecat.deploy import find_deployment
    from onecat.experiments.targets import deployment_target

    if wanted.endpoint is None:
        for option, value in (
            ("--model", wanted.model),
            ("--tokenizer", wanted.tokenizer),
            ("--api-key-file", wanted.key_file),
            ("--image", wanted.image),
        ):
            if value is not None:
                raise OnecatError(
                    f"{option} goes with --endpoint",
                    expected="a deployment's own, which onecat knows, or --endpoint URL",
                    next_steps=["leave it out", "or name a server: --endpoint http://127.0.0.1:8000"],
                )
        with open_hosts(chosen_hosts(list(wanted.hosts), wanted.config, wanted.name)) as opened:
            store = find_deployment(only_host(opened), chosen_name(wanted.name, wanted.config))
            yield deployment_target(store, direct=wanted.direct)
        return
    with _open_url(wanted) as target:
        yield target


@contextlib.contextmanager
def _open_url(wanted: Wanted) -> Iterator[Target]:
    from onecat.cli.machines import open_hosts
    from onecat.experiments.targets import url_target

    assert wanted.endpoint is not None
    if wanted.name is not None or wanted.config is not None:
        raise OnecatError(
            "both a deployment and --endpoint are named",
            expected="one of them",
            next_steps=["leave the deployment's name out, or --endpoint"],
        )
    missing = [
        option for option, value in (("--model", wanted.model), ("--tokenizer", wanted.tokenizer)) if value is None
    ]
    if missing:
        raise OnecatError(
            f"--endpoint needs {' and '.join(missing)} too",
            expected="the served name of its model, and a directory with the model's tokenizer",
            next_steps=[
                f"see what it serves: curl {wanted.endpoint.removesuffix('/v1')}/v1/models",
                f"onecat bench run --endpoint {wanted.endpoint} --model NAME --tokenizer DIRECTORY",
            ],
        )
    with open_hosts(wanted.hosts or ("local",)) as opened:
        machine = opened.machines[0]
        addresses = [each.address for each in opened.machines if each.address is not None]
        tokenizer = str(wanted.tokenizer)
        yield url_target(
            wanted.endpoint,
            str(wanted.model),
            machine=machine,
            sender=_sender(machine, wanted.image, tokenizer),
            tokenizer=str(Path(tokenizer).expanduser().absolute()) if machine.is_local else tokenizer,
            key_file=None if wanted.key_file is None else str(wanted.key_file),
            allowed_hosts=[*wanted.hosts, *addresses],
            foreign=wanted.foreign,
        )


def _sender(machine: Machine, image: str | None, tokenizer: str) -> NativeSender | ContainerSender:
    """What sends load to a server that is no deployment of ours."""
    from onecat.experiments.targets import ContainerSender, NativeSender
    from onecat.paths import home

    if machine.is_local and not Path(tokenizer).expanduser().is_dir():
        raise OnecatError(
            f"{tokenizer} is not a directory", expected="the model's directory, for its tokenizer", where="--tokenizer"
        )
    if image is not None:
        from onecat.deploy.container import container_user

        owner = machine.status(tokenizer)
        operator = (machine.user_id, machine.group_id)
        user = container_user(operator, operator if owner is None else (owner.uid, owner.gid))
        return ContainerSender(image, f"{user[0]}:{user[1]}", None)
    markers = sorted(home().runtimes.glob("*/onecat-runtime.json"), key=lambda each: each.stat().st_mtime)
    if not machine.is_local or not markers:
        raise OnecatError(
            "there is no engine here that could send the load"
            if machine.is_local
            else f"on {machine.name} an engine's image sends the load",
            expected="a native runtime of onecat's, or an image of an engine",
            next_steps=["onecat build --profile cpu --runtime native", "or name an image: --image IMAGE"],
        )
    return NativeSender(str(markers[-1].parent / "bin" / "python"))


def workload_of(asked: RequestOptions, *, requests: int, longest: int | None) -> Workload:
    """The requests that the options mean. longest: tokens of the server's longest request. Raises OnecatError."""
    from onecat.experiments.loads.arguments import prompts_file
    from onecat.experiments.loads.engine import digest_of, read_prompts
    from onecat.experiments.records import Workload

    if asked.prompts is not None and asked.sharegpt is not None:
        raise OnecatError("both --prompts and --sharegpt are given", expected="one of them")
    file = asked.prompts or asked.sharegpt
    if file is None:
        asked_in, asked_out = asked.input_tokens or _DEFAULT_INPUT, asked.output_tokens or _DEFAULT_OUTPUT
        _check_length(asked_in, asked_out, asked.range_ratio, longest)
        return Workload(
            requests=requests,
            input_tokens=asked_in,
            output_tokens=asked_out,
            range_ratio=asked.range_ratio,
            seed=asked.seed,
            ignore_eos=not asked.stop_at_eos,
            chat=asked.chat,
        )
    if asked.input_tokens is not None or asked.range_ratio:
        raise OnecatError(
            "--input-tokens and --range-ratio are for random prompts, and a file of prompts is named",
            next_steps=["leave them out"],
        )
    path = str(file.expanduser().absolute())
    text = read_prompts(path)
    workload = Workload(
        source="file" if asked.prompts is not None else "sharegpt",
        requests=requests,
        input_tokens=0,
        output_tokens=asked.output_tokens,
        path=path,
        digest=digest_of(text),
        seed=asked.seed,
        ignore_eos=not asked.stop_at_eos,
        chat=asked.chat,
    )
    prompts_file(text, workload, path)
    return workload


def _check_length(asked_in: int, asked_out: int, range_ratio: float, longest: int | None) -> None:
    most = round((asked_in + asked_out) * (1 + range_ratio))
    if longest is not None and most > longest:
        room = max(1, int(longest / (1 + range_ratio)) - asked_out)
        raise OnecatError(
            f"requests of up to {most} tokens do not fit: the server's longest has {longest} (--max-model-len)",
            expected=f"at most {longest} tokens of prompt and answer together",
            next_steps=[f"ask for fewer: --input-tokens {room} --output-tokens {asked_out}"]
            if room > 1
            else [f"ask for fewer: --input-tokens {longest // 2} --output-tokens {longest // 4}"],
        )


def objectives_of(words: Sequence[str] | None) -> Objectives:
    """The objectives of `--goodput`: each word WHAT:MS, several parted by commas or blanks. Raises OnecatError."""
    from onecat.experiments.records import Objectives

    values: dict[str, float] = {}
    for word in (part for each in words or () for part in re.split(r"[,\s]+", each) if part):
        name, _, text = word.partition(":")
        found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s)?", text)
        if name not in _OBJECTIVES or found is None or float(found[1]) <= 0:
            raise OnecatError(
                f"--goodput {word} is no objective",
                expected="ttft:MS, inter-token:MS or end-to-end:MS, as ttft:200",
                next_steps=["--goodput ttft:200 --goodput inter-token:50"],
            )
        values[_OBJECTIVES[name]] = float(found[1]) * (1000 if found[2] == "s" else 1)
    return Objectives(**values)


def levels_of(concurrency: Sequence[str] | None, rate: Sequence[str] | None, burstiness: float) -> tuple[Arrivals, ...]:
    """Ways of arriving: of each rate with the one concurrency as its bound, or of each concurrency in a closed loop.

    Raises OnecatError.
    """
    from onecat.experiments.records import Arrivals

    at_once = [int(each) for each in _numbers(concurrency, "--concurrency", r"[1-9]\d{0,5}", "8 or 1,8,32")]
    rates = [float(each) for each in _numbers(rate, "--rate", r"\d+(?:\.\d+)?", "2 or 0.5,1,2")]
    if any(each <= 0 for each in rates):
        raise OnecatError("--rate 0 sends nothing", expected="requests a second, more than 0")
    if rates and len(at_once) > 1:
        raise OnecatError(
            "several values of --concurrency and a --rate",
            expected="one --concurrency beside --rate: the most requests at once",
            next_steps=["measure them one after the other"],
        )
    if not rates and burstiness != 1.0:
        raise OnecatError(
            "--burstiness says how requests of a --rate arrive, and there is none", next_steps=["add: --rate 2"]
        )
    if rates:
        bound = at_once[0] if at_once else None
        return tuple(Arrivals(concurrency=bound, rate=each, burstiness=burstiness) for each in dict.fromkeys(rates))
    return tuple(Arrivals(concurrency=each) for each in dict.fromkeys(at_once or [8]))


def _numbers(words: Sequence[str] | None, option: str, pattern: str, example: str) -> list[str]:
    parts = [part for word in words or () for part in re.split(r"[,\s]+", word) if part]
    wrong = next((each for each in parts if re.fullmatch(pattern, each) is None), None)
    if wrong is not None:
        raise OnecatError(f"{option} {wrong} is no number that it may be", expected=f"as {option} {example}")
    return parts


def seconds_of(text: str, option: str) -> float:
    """A time as people write it: 90s, 5m, 72h, 3d. Raises OnecatError."""
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None or float(found[1]) <= 0:
        raise OnecatError(f"{option} {text} is no time", expected=f"as {option} 90s, {option} 30m, {option} 72h")
    return float(found[1]) * _SECONDS[found[2]]


def check_driver(name: str) -> None:
    """Raises OnecatError for a name that is no driver's."""
    from onecat.experiments.targets import DRIVERS

    if name not in DRIVERS:
        raise OnecatError(f"--driver {name} is none", expected=f"one of: {', '.join(DRIVERS)}")


def result_path(output: Path | None, kind: Any, target: Target) -> Path:
    """Where the results go."""
    from onecat.experiments.places import new_path

    return output.expanduser() if output is not None else new_path(kind, target.endpoint.label)


def print_experiment(
    experiment: Experiment, path: Path, as_json: bool, *, verdict: dict[str, Any] | None = None, note: str = ""
) -> None:
    """Tell what was measured. verdict: of an experiment that is not finished. note: what is to be known of it."""
    from dataclasses import replace

    from onecat.cli import console

    shown = experiment if verdict is None else replace(experiment, verdict=verdict)
    if as_json:
        from onecat.render.benchmark_documents import experiment_document

        console.print_json(experiment_document(shown, path, note))
        return
    from rich.console import Console

    from onecat.render.benchmarks import experiment_lines
    from onecat.render.text import print_lines

    screen = Console()
    print_lines(screen, experiment_lines(shown, path, min(screen.width, 100)))
    if note:
        print(note)


def read_back(path: Path) -> Experiment:
    """What is in a result file now."""
    from onecat.experiments.results import read_experiment

    return read_experiment(path)
