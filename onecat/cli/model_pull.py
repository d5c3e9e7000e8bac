"""`onecat model pull`: fetch a model whole and verified, and go on after a break."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onecat.cli import console
from onecat.cli.progress_line import ProgressLine


def add_to(group: typer.Typer) -> None:
    group.command("pull", help="Fetch a model, whole and verified.", epilog="The same command goes on after a break.")(
        pull_model
    )


def pull_model(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="ORG/NAME[@REVISION] of a hub, or the https:// address of a file, a directory or a SHA256SUMS.",
        ),
    ],
    directory: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="Where the files go.")],
    revision: Annotated[str | None, typer.Option("--revision", help="Branch, tag or commit of the hub.")] = None,
    endpoint: Annotated[
        str | None,
        typer.Option("--endpoint", help="Address of the hub or of a mirror of it.  [default: HF_ENDPOINT, else HF]"),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            help="File of mode 0600 with a token, in place of HF_TOKEN; only SOURCE's own host gets to see it.",
        ),
    ] = None,
    include: Annotated[
        list[str] | None, typer.Option("--include", metavar="GLOB", help="Fetch only these files; several times.")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option("--exclude", metavar="GLOB", help="Do not fetch these files; several times.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, max=64, help="Connections at once.")] = 8,
    sha256: Annotated[
        Path | None, typer.Option("--sha256", metavar="FILE", help="Checksums as sha256sum writes them.")
    ] = None,
    stall: Annotated[
        float, typer.Option("--stall-seconds", min=1, help="Give a connection up that sends nothing for so long.")
    ] = 30.0,
    insecure_http: Annotated[
        bool, typer.Option("--insecure-http", help="Allow plain HTTP to other machines; anyone between may change it.")
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace files that differ and that no pull put there; check all anew.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be fetched.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON (onecat.model-pull/1).")] = False,
) -> None:
    from onecat.pull import PullRequest, Teller, pull
    from onecat.render import pulls

    request = PullRequest(
        source=source,
        directory=directory,
        revision=revision,
        endpoint=endpoint,
        token_file=token_file,
        include=tuple(include or ()),
        exclude=tuple(exclude or ()),
        jobs=jobs,
        manifest=sha256,
        insecure_http=insecure_http,
        replace=replace,
        dry_run=dry_run,
        stall_seconds=stall,
    )
    console.end_like_ctrl_c()
    with ProgressLine() as line:
        teller = Teller(line.say, lambda progress: line.show(lambda: pulls.progress_line(progress)))
        found = pull(request, teller)
    if as_json:
        console.print_json(pulls.document(found))
    else:
        print("\n".join(pulls.lines(found)))
