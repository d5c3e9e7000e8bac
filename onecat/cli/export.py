"""`onecat export`: a deployment as files for nginx, systemd, Compose, Quadlet, Kubernetes, Prometheus or Grafana."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onecat.cli import console

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onecat.deploy.export import ExportedFile, Form, Options, Request

FORMS_HELP = "nginx, systemd, compose, quadlet, kubernetes, prometheus or grafana."


def register(app: typer.Typer) -> None:
    app.command("export", help="Write a deployment as files for other tools; no host is touched.")(export)


def export(
    form: Annotated[str, typer.Argument(metavar="FORM", help=FORMS_HELP)],
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", metavar="FILE", help="onecat.yaml, or its directory [./onecat.yaml]."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Directory for the files; made if missing.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace files that an export did not write; kept as FILE.old.")
    ] = False,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            "--checkpoint",
            metavar="DIR",
            help="A copy here of the model's config.json, where model.path lies on the other machine only.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="FLAG=VALUE", help="A `vllm serve` flag; may be repeated.")
    ] = None,
    image: Annotated[
        str | None, typer.Option("--image", metavar="IMAGE", help="The server's image as it is pulled there.")
    ] = None,
    user: Annotated[
        str | None, typer.Option("--user", metavar="UID[:GID]", help="Who the server runs as [the image's 10001].")
    ] = None,
    group: Annotated[
        list[int] | None,
        typer.Option("--group", metavar="GID", min=1, help="Group that owns device nodes; may be repeated."),
    ] = None,
    selinux: Annotated[bool, typer.Option("--selinux", help="The host confines containers by SELinux labels.")] = False,
    model_claim: Annotated[
        str | None,
        typer.Option(
            "--model-claim", metavar="NAME[/DIR]", help="kubernetes: PersistentVolumeClaim that holds the model."
        ),
    ] = None,
    program: Annotated[
        str | None, typer.Option("--program", metavar="PATH", help="systemd, native: vllm's program on the host.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the files as JSON (onecat.export/1).")] = False,
) -> None:
    from onecat.cli.plan import flag_settings
    from onecat.deploy.export import Options, document, find_form, write_files

    chosen = find_form(form)
    options = Options(
        user=parse_user(user) if user is not None else Options().user,
        groups=tuple(group or ()),
        selinux=selinux,
        image=image,
        model_claim=model_claim,
        program=program,
    )
    request = make_request(chosen, config, checkpoint, flag_settings(settings or []), options)
    files = chosen.render(request)
    written = None if output is None else write_files(files, output, chosen.name, force)
    for warning in request.plan.warnings:
        console.progress(f"note: {warning}")
    if as_json:
        console.print_json(document(chosen, request, files, written))
    elif output is None:
        print_files(chosen, files)
    else:
        report(output, files, written or (), chosen.first_step)


def make_request(
    form: Form, config: Path | None, checkpoint: Path | None, settings: dict[str, str], options: Options
) -> Request:
    """Read the configuration and make the plan, without a look at any host.

    Raises OnecatError for what is wrong with them, what the engine would refuse, or a model of which nothing is here.
    """
    from onecat.checkpoints import inspect
    from onecat.cli.planning import planned_deployment
    from onecat.config import load_profile
    from onecat.deploy.export import Request
    from onecat.errors import ExitCode, OnecatError
    from onecat.planner import make_plan
    from onecat.planner.download import without_absent_files

    deployment = planned_deployment(config, None, None, "container" if form.needs_container else None)
    profile = load_profile(deployment.profile)
    model = Path(deployment.model.path)
    if checkpoint is None and not model.exists():
        raise OnecatError(
            f"the model is not on this machine, and the plan needs to know what it is: {model}",
            expected="the model's config.json",
            where="model.path",
            next_steps=[
                f"copy it here from the machine that has the model: {model}/config.json",
                f"onecat export {form.name} --checkpoint DIRECTORY-WITH-IT",
            ],
        )
    found = inspect(checkpoint or model)
    if checkpoint is not None:
        # The rest of the model lies elsewhere; what is told of the configuration itself stays.
        found = without_absent_files(found)
    plan = make_plan(deployment, profile, found, None, settings)
    certain = [each for each in plan.refusals if each.certain]
    if certain:
        first = certain[0]
        raise OnecatError(
            f"the engine would refuse this ({first.code}): {first.why}",
            details=[f"also ({each.code}): {each.why}" for each in certain[1:]],
            next_steps=first.fix,
            code=ExitCode.NO,
        )
    return Request(deployment, profile, plan, options)


def parse_user(text: str) -> tuple[int, int]:
    """UID or UID:GID, as numbers. Raises OnecatError for anything else, and for root."""
    from onecat.errors import OnecatError

    uid, _, gid = text.partition(":")
    if not (uid.isdecimal() and (gid or uid).isdecimal()) or (":" in text and not gid):
        raise OnecatError(f"--user {text}", expected="numbers, as --user 10001 or --user 1000:1000")
    if int(uid) == 0:
        raise OnecatError("--user 0 is root", expected="a user without root's rights")
    return int(uid), int(gid or uid)


def print_files(form: Form, files: Sequence[ExportedFile]) -> None:
    """The text of a single file; of several their names."""
    if len(files) == 1:
        print(files[0].text, end="")
        return
    for each in files:
        print(f"{each.mode:04o}  {len(each.text.encode()):>7}  {each.path}")
    console.progress(f"to have them: onecat export {form.name} --output DIR, or --json")


def report(
    directory: Path, files: Sequence[ExportedFile], written: Sequence[Path], first_step: str | None = None
) -> None:
    """What was written where, and what to do with it."""
    for each in files:
        path = directory / each.path
        print(f"{'wrote' if path in written else 'same '}  {path}")
    console.progress(first_step or f"what to do first stands at the top of {directory / files[0].path}")
