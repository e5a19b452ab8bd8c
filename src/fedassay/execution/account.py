"""`fedassay account`: its group of commands, and what noise will leave before any data are touched."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click
from click.core import ParameterSource

from fedassay.support.adjacency import ADJACENCIES, UNITS, Adjacency, Unit
from fedassay.support.epsilon import Epsilon
from fedassay.support.errors import PlanError
from fedassay.support.terminal import say, say_json, say_lines

if TYPE_CHECKING:
    from fedassay.execution.expected import Expected

_OF = (
    click.option(
        "--adjacency",
        type=click.Choice(list(ADJACENCIES)),
        default="add_remove",
        show_default=True,
        help="The relation that the sensitivity is for.",
    ),
    click.option(
        "--unit",
        type=click.Choice(list(UNITS)),
        default="record",
        show_default=True,
        help="The difference between neighbours.",
    ),
)
"""Options for the kind of a command's epsilon."""


@click.command()
@click.option("--sigma", type=float, help="Noise standard deviation: prints epsilon and mu.")
@click.option("--epsilon", type=float, help="Target epsilon: prints the smallest sigma and mu.")
@click.option("--sensitivity", type=float, default=1.0, show_default=True, help="L2 sensitivity.")
@click.option("--delta", type=float, required=True)
@_OF[0]
@_OF[1]
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def gaussian(
    sigma: float | None,
    epsilon: float | None,
    sensitivity: float,
    delta: float,
    adjacency: Adjacency,
    unit: Unit,
    as_json: bool,
) -> int:
    """The analytic Gaussian mechanism (Balle and Wang 2018), exact for every epsilon."""
    from fedassay.privacy.gaussian import calibrate_sigma, epsilon_of, mu_of

    if (sigma is None) == (epsilon is None):
        raise PlanError("account gaussian: give one of --sigma and --epsilon")
    within("--delta", delta, 0, 1)
    within("--sensitivity", sensitivity, 0, math.inf)
    if sigma is not None:
        within("--sigma", sigma, 0, math.inf)
        mu = sensitivity / sigma
        _show(Epsilon(epsilon_of(mu, delta), delta, adjacency, unit), {"mu": mu}, as_json)
    if epsilon is not None:
        within("--epsilon", epsilon, 0, math.inf)
        facts = {"sigma": calibrate_sigma(epsilon, delta, sensitivity), "mu": mu_of(epsilon, delta)}
        _show(Epsilon(epsilon, delta, adjacency, unit), facts, as_json)
    return 0


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--delta", type=float, required=True)
@_OF[0]
@_OF[1]
@click.option("--second-opinion", "ask", is_flag=True, help="Ask Opacus's PRV accountant too (add_remove).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def compose(file: Path, delta: float, adjacency: Adjacency, unit: Unit, ask: bool, as_json: bool) -> int:
    r"""Total epsilon of the releases listed in FILE (YAML or JSON).

    \b
    - {mechanism: gaussian, sigma: 4.0, sensitivity: 1.73, count: 3}
    - {mechanism: dp_sgd, noise_multiplier: 1.1, sampling_rate: 0.01, steps: 1000}
    - {mechanism: dp_sgd, noise_multiplier: 2.0, sampling_rate: 0.01, steps: 1000, sampling: fixed_size}
    - {mechanism: pure, epsilon: 0.1}
    """
    from fedassay.privacy.accounting import compose as add_up
    from fedassay.privacy.listed import read_events

    within("--delta", delta, 0, 1)
    events = read_events(file, adjacency)
    peer = {}
    if ask:
        from fedassay.privacy.second_opinion import second_opinion

        # First: it refuses more, and at once.
        other = second_opinion(events, delta)
        peer = {"opacus_prv": other.estimate, "opacus_prv_low": other.low, "opacus_prv_high": other.high}
    total = add_up(events, delta)
    _show(
        Epsilon(total.epsilon, delta, adjacency, unit), {"mu": total.mu, "method": total.method, **peer}, as_json
    )
    return 0


def within(name: str, value: float, low: float, high: float) -> None:
    """Refuse a number that is not strictly between two others.

    Raises:
        PlanError: The number is outside.
    """
    if not low < value < high:
        bound = f"in ({low:g}, {high:g})" if math.isfinite(high) else f"above {low:g}"
        raise PlanError(f"account: {name}: given {value:g}; allowed: a number {bound}")


def _show(epsilon: Epsilon, facts: dict[str, Any], as_json: bool) -> None:
    """Print an epsilon with its kind, and the values beside it."""
    if as_json:
        facts = {"epsilon": epsilon.bare, **asdict(epsilon.kind), **facts}
        say_json(json.dumps({k: ("inf" if v == math.inf else v) for k, v in facts.items()}))
        return
    say(f"epsilon: {epsilon.bare:.6g} ({epsilon.kind.words})")
    for name, value in facts.items():
        if value is not None:
            say(f"{name}: {value:.6g}" if isinstance(value, float) else f"{name}: {value}")


class _OrRun(click.Group):
    """A group with an optional command name `run`: arguments that name no command are a run."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command of the first argument, or `run` with all of them."""
        named = not args or args[0].startswith("-") or args[0] in self.commands or "run" not in self.commands
        return super().resolve_command(ctx, args if named else ["run", *args])


@click.group(cls=_OrRun, invoke_without_command=True)
@click.option("--utility", is_flag=True, help="Accuracy of each method's private statistic, before any data.")
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
