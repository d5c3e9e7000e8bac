"""`onecat explain`: the page behind a check of doctor or preflight, and what is said about it elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from onecat.cli import console
from onecat.errors import OnecatError

if TYPE_CHECKING:
    from onecat.doctor import Rule
    from onecat.knowledge.claims import Claim


def register(app: typer.Typer) -> None:
    app.command(
        "explain",
        help="Say what a check of doctor or preflight looks at, why, how to fix what it finds, and whether what is "
        "said about it in how-to articles is true.",
    )(explain)


def explain(
    word: Annotated[
        str | None,
        typer.Argument(
            metavar="[CHECK]", help="Id of a check, area of checks as pcie, or topic as nvfp4; without it: all."
        ),
    ] = None,
    claims: Annotated[bool, typer.Option("--claims", help="Only what is said in how-to articles.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON (onecat.explain/1).")] = False,
) -> None:
    checks, said = _everything(claims) if word is None else _meant(word, claims)
    if as_json:
        from onecat.render.json import explain_document

        console.print_json(explain_document(checks, said))
        return
    from rich.console import Console

    from onecat.render.text import claim_lines, explain_lines, index_lines, print_lines

    screen = Console()
    width = min(screen.width, 100)
    if len(checks) == 1 and word is not None and word.lower() == checks[0].id:
        print_lines(screen, explain_lines(checks[0], said, width))
        return
    print_lines(screen, index_lines(checks, width))
    print_lines(screen, claim_lines(said, width))


def _all_checks() -> tuple[Rule[Any], ...]:
    from onecat.doctor import all_checks
    from onecat.live.preflight import all_preflight_checks

    return (*all_checks(), *all_preflight_checks())


def _everything(claims_only: bool) -> tuple[tuple[Rule[Any], ...], tuple[Claim, ...]]:
    from onecat.knowledge.claims import all_claims

    return ((), all_claims()) if claims_only else (_all_checks(), ())


def _meant(word: str, claims_only: bool) -> tuple[tuple[Rule[Any], ...], tuple[Claim, ...]]:
    """The checks and claims that a word means: an id, an area, a topic. Raises OnecatError with the nearest words."""
    from onecat.knowledge.claims import claims_about, find_claims

    word = word.lower()
    named = tuple(each for each in _all_checks() if each.id == word)
    if named:
        return (() if claims_only else named), claims_about(word)
    checks = tuple(each for each in _all_checks() if each.id.partition(".")[0] == word)
    claims = find_claims(word) if word.strip() else ()
    if not claims and claims_only:
        claims = tuple(dict.fromkeys(claim for each in checks for claim in claims_about(each.id)))
    if not (checks or claims):
        raise _unknown(word)
    return (() if claims_only else checks), claims


def _unknown(word: str) -> OnecatError:
    import difflib

    from onecat.knowledge.claims import all_claims

    ids = [each.id for each in _all_checks()]
    words = dict.fromkeys(
        [
            *ids,
            *(id.partition(".")[0] for id in ids),
            *(topic for claim in all_claims() for topic in (claim.id, *claim.topics)),
        ]
    )
    near = difflib.get_close_matches(word.lower(), words, n=3, cutoff=0.5)
    return OnecatError(
        f"no check, area or topic is called {word!r}",
        expected=f"perhaps {' or '.join(near)}" if near else None,
        next_steps=["list all checks: onecat explain", "list what is said elsewhere: onecat explain --claims"],
    )
