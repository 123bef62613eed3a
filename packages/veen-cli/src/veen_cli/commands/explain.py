"""``veen explain``: the meaning of a refusal code or exit code, and the next step."""

from __future__ import annotations

import click

from veen_cli.arguments import completions
from veen_cli.arguments.numbers import parse_unsigned
from veen_cli.frame.command_class import command
from veen_cli.frame.exits import MEANINGS, CommandFailed, Exit
from veen_cli.frame.explanations import Explanation, all_explanations
from veen_cli.frame.explanations import explain as find
from veen_cli.frame.output import Answer, Output, fields


def _lines(found: Explanation) -> list[str]:
    name = f"{found.code} / {found.name}" if found.code else found.name
    return [
        f"{name}: {found.means}",
        *fields({"  next step": found.next, "  stage": found.stage, "  HTTP": found.http}),
    ]


def _exit(text: str) -> Exit | None:
    return Exit(number) if (number := parse_unsigned(text)) in set(Exit) else None


@command("veen explain CAP_TTL", "veen explain E.SEQ", "veen explain 4", "veen explain")
@click.argument("code", required=False, shell_complete=completions.codes)
def explain(out: Output, *, code: str | None) -> Answer:
    """Explain a hub's refusal code or an exit code of veen.

    Without a code, all codes are listed.
    """
    del out
    if code is None:
        every = all_explanations()
        width = max(len(each.name) for each in every)
        return Answer(
            {
                "codes": [each._asdict() for each in every],
                "exits": {str(int(k)): v for k, v in MEANINGS.items()},
            },
            [
                *(f"{each.name:<{width}}  {each.means}" for each in every),
                *(f"{f'exit {int(number)}':<{width}}  {means}" for number, means in MEANINGS.items()),
            ],
        )
    if (number := _exit(code)) is not None:
        return Answer(
            {"exit": int(number), "means": MEANINGS[number]}, [f"exit {int(number)}: {MEANINGS[number]}"]
        )
    if (found := find(code)) is None:
        raise CommandFailed(
            f"there is no code {code.strip() or '(empty)'}", Exit.USAGE, "list all codes with `veen explain`"
        )
    return Answer(found._asdict(), _lines(found))
