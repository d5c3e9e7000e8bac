"""`onecat top`: how GPUs and servers do, live."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onecat.cli.machines import HostOption
from onecat.errors import ExitCode, OnecatError

if TYPE_CHECKING:
    from datetime import datetime

    from rich.console import Console

    from onecat.hosts import Desk, Machine
    from onecat.live.top import Feed, Histories, HostView
    from onecat.observe.metrics import Sample

LOOK_SECONDS = 0.2
"""How long a key that was pressed may wait."""


def register(app: typer.Typer) -> None:
    app.command(
        "top",
        help="Show live how GPUs, hosts and servers do, and what holds them back; q or Ctrl-C ends it.",
    )(top)


def top(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Deployment name; by default that of --config, of ./onecat.yaml, or the only one there is."
        ),
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", "-c", help="onecat.yaml that names it.")] = None,
    hosts: HostOption = None,
    interval: Annotated[
        float, typer.Option("--interval", min=0.2, max=3600, metavar="SECONDS", help="Between two samples of a host.")
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Two samples, printed, and the end.")] = False,
    record: Annotated[
        Path | None, typer.Option("--record", metavar="FILE", help="Write all samples into a new file, too.")
    ] = None,
    replay: Annotated[
        Path | None, typer.Option("--replay", metavar="FILE", help="Show a recording; no host is asked.")
    ] = None,
    speed: Annotated[
        float, typer.Option("--speed", min=0.01, metavar="X", help="Of --replay: so many times as fast.")
    ] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="A line of JSON (onecat.top/1) for each sample.")] = False,
) -> None:
    from onecat.live.top import Recording

    if replay is not None and (record is not None or hosts or name is not None or config is not None):
        raise OnecatError(
            "--replay shows a file and asks no host",
            expected="--replay without NAME, --host, --config and --record",
            next_steps=[f"onecat top --replay {replay}"],
            code=ExitCode.USAGE,
        )
    if speed != 1.0 and replay is None:
        raise OnecatError(
            "--speed is of --replay", next_steps=["onecat top --replay FILE --speed X"], code=ExitCode.USAGE
        )
    with contextlib.ExitStack() as opened:
        recording = opened.enter_context(Recording(record)) if record is not None else None
        keep = recording.add if recording is not None else None
        if replay is not None:
            samples: Iterator[Sample | None] = _replay(replay, speed, instantly=once)
            code = _show(samples, [], f"onecat top: replay of {replay.name}", interval, once, as_json, keep, [None])
        else:
            code = _watch(opened, name, config, hosts, interval, once, as_json, keep)
    raise typer.Exit(int(code))


def _watch(
    opened: contextlib.ExitStack,
    name: str | None,
    config: Path | None,
    hosts: list[str] | None,
    interval: float,
    once: bool,
    as_json: bool,
    keep: Callable[[dict[str, Any]], None] | None,
) -> int:
    from onecat.cli.machines import open_hosts
    from onecat.cli.status import chosen_name
    from onecat.live.top import Feeds

    wanted = chosen_name(name, config) if hosts is None or name is not None or config is not None else None
    names = _hosts(hosts, config, name)
    machines = opened.enter_context(open_hosts(names))
    feeds = _feeds(machines.machines, names, machines.desk, wanted, required=name is not None or config is not None)
    running = opened.enter_context(Feeds(feeds, interval))
    deployment = [next((each.deployment for each in running.watched.values() if each.deployment), wanted)]
    title = f"onecat top {deployment[0]}" if deployment[0] else "onecat top"

    def samples() -> Iterator[Sample | None]:
        seen = {feed.host: 0 for feed in feeds}
        while True:
            sample = running.next(LOOK_SECONDS)
            yield sample
            if sample is not None:
                seen[sample.host] += 1
            # The second sample has rates; a host that does not answer has no more to tell.
            if once and all(count >= 2 for count in seen.values()):
                return

    return _show(samples(), [feed.host for feed in feeds], title, interval, once, as_json, keep, deployment)


def _hosts(hosts: list[str] | None, config: Path | None, name: str | None) -> tuple[str, ...]:
    """As other commands choose them, but of one model across hosts all hosts."""
    from onecat.cli.machines import chosen_hosts
    from onecat.cli.up import config_file

    chosen = chosen_hosts(hosts, config, name)
    path = config_file(config) if config is not None else Path("onecat.yaml")
    if hosts or not path.exists():
        return chosen
    from onecat.config import load_deployment

    deployment = load_deployment(path)
    if deployment.ray is None or (config is None and name not in (None, deployment.name)):
        return chosen
    return tuple(deployment.hosts)


def _feeds(
    machines: tuple[Machine, ...], names: tuple[str, ...], desk: Desk, wanted: str | None, *, required: bool
) -> list[Feed]:
    """Reach all hosts at the same time, while somebody can be asked for a password; raises what all hosts say."""
    from onecat.hosts import FanOut, Task
    from onecat.live.top import Feed, Watched, watched_on

    def look(machine: Machine, limit: Callable[[float], None]) -> Watched:
        return watched_on(machine, wanted, required=required)

    tasks = [
        Task(machine.name, lambda limit, machine=machine: look(machine, limit))  # type: ignore[misc]
        for machine in machines
    ]
    outcomes = dict(FanOut(tasks, desk=desk).ended())
    feeds, refused = [], []
    for number, machine in enumerate(machines):
        error = outcomes[number].error
        if error is not None and not isinstance(error, (OnecatError, OSError)):
            raise error
        if isinstance(error, OnecatError) and error.code != ExitCode.UNREACHABLE:
            # Another host may have the deployment, as with one model across hosts: here are GPUs only.
            refused.append(error)
            watched: Watched | None = Watched(note=error.found)
            error = None
        else:
            watched = outcomes[number].result
        found = None if error is None else error.found if isinstance(error, OnecatError) else str(error)
        feeds.append(
            Feed(
                machine.name,
                _opener(names[number], wanted),
                machine if error is None else None,
                watched,
                found,
            )
        )
    if refused and len(refused) == len(machines):
        raise refused[0]
    return feeds


def _opener(host: str, wanted: str | None) -> Callable[[], tuple[Machine, Any]]:
    """Connects to a host anew, without anybody who could be asked for a password."""

    def connect() -> tuple[Machine, Any]:
        from onecat.cli.machines import local_machine
        from onecat.hosts import Desk, Reach, SshMachine, SudoPasswords, parse_target
        from onecat.live.top import watched_on

        class Unattended(Desk):
            is_attended = False

            def ask(self, text: str, *, echo: bool = False) -> str | None:
                return None

        target = parse_target(host)
        desk = Unattended()
        machine: Machine
        if target.is_local:
            machine = local_machine()
        else:
            machine = SshMachine(Reach(desk).ssh_transport(target), SudoPasswords(desk))
        try:
            return machine, watched_on(machine, wanted)
        except BaseException:
            machine.close()
            raise

    return connect


def _replay(path: Path, speed: float, *, instantly: bool) -> Iterator[Sample | None]:
    """The samples of a recording at the pace in which they were taken, with pauses in between as None."""
    from onecat.live.top import replayed

    begin: float | None = None
    started = time.monotonic()
    for sample, _ in replayed(path):
        begin = sample.time if begin is None else begin
        while not instantly and (rest := (sample.time - begin) / speed - (time.monotonic() - started)) > 0:
            time.sleep(min(rest, LOOK_SECONDS))
            yield None
        yield sample


def _show(
    samples: Iterator[Sample | None],
    hosts: list[str],
    title: str,
    interval: float,
    once: bool,
    as_json: bool,
    keep: Callable[[dict[str, Any]], None] | None,
    deployment: list[str | None],
) -> int:
    """Show samples as they come; None is a moment to look at the keyboard. Returns the exit code."""
    from rich.console import Console

    from onecat.live.top import Histories, document_of

    console = Console()
    histories = Histories(hosts)

    def take(sample: Sample) -> tuple[HostView, dict[str, Any] | None]:
        view = histories.add(sample)
        document = document_of(view, deployment[0]) if as_json or keep is not None else None
        if keep is not None and document is not None:
            keep(document)
        return view, document

    try:
        if as_json or once or not console.is_terminal or console.is_dumb_terminal:
            _print(samples, take, console, histories, title, interval, once, as_json)
        else:
            _live(samples, take, console, histories, title, interval)
    except KeyboardInterrupt:
        return int(ExitCode.FINE)
    views = histories.views()
    if once and views and all(view.latest.error is not None for view in views):
        return int(ExitCode.UNREACHABLE)
    return int(ExitCode.FINE)


def _print(
    samples: Iterator[Sample | None],
    take: Callable[[Sample], tuple[HostView, dict[str, Any] | None]],
    console: Console,
    histories: Any,
    title: str,
    interval: float,
    once: bool,
    as_json: bool,
) -> None:
    from onecat.render.top import Screen, sample_line, top_view

    for sample in samples:
        if sample is None:
            continue
        view, document = take(sample)
        if as_json:
            print(json.dumps(document, ensure_ascii=True), flush=True)
        elif not once:
            print(sample_line(view), flush=True)
    if once and not as_json:
        from onecat.cli.console import draws_blocks

        screen = Screen(title, interval, min(console.width, 120), 10_000, blocks=draws_blocks(), keys=False)
        console.print(top_view(histories.views(), histories.missing(), screen, _moment(histories)))


def _moment(histories: Histories) -> datetime:
    """When the newest sample was taken, which of a recording is long ago."""
    from datetime import datetime

    newest = max((view.latest.time for view in histories.views()), default=time.time())
    return datetime.fromtimestamp(newest).astimezone()


def _live(
    samples: Iterator[Sample | None],
    take: Callable[[Sample], tuple[HostView, dict[str, Any] | None]],
    console: Console,
    histories: Any,
    title: str,
    interval: float,
) -> None:
    from rich.live import Live

    from onecat.cli.console import draws_blocks
    from onecat.cli.keyboard import QUIT, pressed, single_keys
    from onecat.render.top import Screen, top_view

    blocks = draws_blocks()  # asked before Live takes the standard output's place

    def view() -> Any:
        screen = Screen(title, interval, console.width, console.height, blocks=blocks)
        return top_view(histories.views(), histories.missing(), screen, _moment(histories))

    with single_keys() as attended, Live(view(), console=console, screen=True, auto_refresh=False) as live:
        live.refresh()
        size = console.size
        for sample in samples:
            if sample is not None:
                take(sample)
            if sample is not None or console.size != size:
                size = console.size
                live.update(view(), refresh=True)
            if attended and QUIT & set(pressed(0.0, attended=attended)):
                return
        # The end of a recording stays to be looked at.
        while attended and not QUIT & set(pressed(LOOK_SECONDS, attended=attended)):
            if console.size != size:
                size = console.size
                live.update(view(), refresh=True)
