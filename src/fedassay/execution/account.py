"""`fedassay account`: its group of commands, and what noise will leave before any data are touched."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, get_args

import click
from click.core import ParameterSource

from fedassay.privacy.command import compose, gaussian, within
from fedassay.support.adjacency import Adjacency
from fedassay.support.errors import PlanError
from fedassay.support.terminal import say, say_json, say_lines

if TYPE_CHECKING:
    from fedassay.execution.expected import Expected


class _OrRun(click.Group):
    """A group with an optional command name `run`: arguments that name no command are a run."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command of the first argument, or `run` with all of them."""
        named = not args or args[0].startswith("-") or args[0] in self.commands or "run" not in self.commands
        return super().resolve_command(ctx, args if named else ["run", *args])


@click.group(cls=_OrRun, invoke_without_command=True)
@click.option("--utility", is_flag=True, help="How good each method's private statistic will be, before any data.")
@click.option("--epsilon", "epsilons", type=float, multiple=True, default=(1.0, 8.0), show_default=True)
@click.option("--delta", type=float, default=1e-5, show_default=True)
@click.option(
    "--records", type=click.IntRange(2, 1_000_000), default=100, show_default=True, help="Of each client."
)
@click.option("--clients", type=click.IntRange(1, 1000), default=5, show_default=True)
@click.option("--width", type=click.IntRange(2, 4096), default=256, show_default=True, help="Features (d).")
@click.option("--classes", type=click.IntRange(2, 1000), default=2, show_default=True)
@click.option("--method", "methods", multiple=True, help="Only this method; give it once for each.")
@click.option("--adjacency", type=click.Choice(get_args(Adjacency)), help="Default: each method's own.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def account(
    context: click.Context,
    utility: bool,
    epsilons: tuple[float, ...],
    delta: float,
    records: int,
    clients: int,
    width: int,
    classes: int,
    methods: tuple[str, ...],
    adjacency: Adjacency | None,
    as_json: bool,
) -> None:
    r"""Calibrate and account mechanisms, or say what the cells of a RUN give away together.

    With --utility: the error that noise at an epsilon leaves in what each method sends, for clients of so many
    records and features, and the accuracy that is left on made-up records.

    \b
    fedassay account --utility --epsilon 1 --records 80 --clients 5 --width 256 --classes 2
    """
    if not utility:
        given = [
            name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        ]
        if given:
            named = given[0].removesuffix("s") if given[0] in {"epsilons", "methods"} else given[0]
            raise PlanError(f"account: --{named} goes with --utility, or behind a command")
        if context.invoked_subcommand is None:
            say_lines(context.get_help())
        return
    from fedassay.execution.expected import Size, expected

    for epsilon in epsilons:
        within("--epsilon", epsilon, 0, math.inf)
    within("--delta", delta, 0, 1)
    size = Size(records, width, classes, clients)
    _tell(expected(size, epsilons, delta, methods, adjacency), classes, as_json)


def _tell(found: Sequence[Expected], classes: int, as_json: bool) -> None:
    """A line a method and epsilon."""
    if as_json:
        say_json(json.dumps([each.as_dict() for each in found], indent=1))
        return
    say("error of what is sent: noise over statistic, all clients together (1: as much noise as statistic)")
    say(f"accuracy on made-up records, beside that without noise (the largest class: {1 / classes:.2f})")
    for each in found:
        if each.why:
            say(f"{each.method} at {each.epsilon:g}: not known: {each.why}")
            continue
        errors = ", ".join(f"{part} {error:.2g}" for part, error in each.errors)
        left = "" if math.isnan(each.accuracy) else f"; accuracy {each.accuracy:.2f} of {each.plain:.2f}"
        say(f"{each.method} at {each.epsilon:g} ({each.adjacency}): error {errors}{left}")


account.add_command(gaussian)
account.add_command(compose)
