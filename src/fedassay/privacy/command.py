"""`fedassay account`: calibrate one mechanism, or add up a list of releases."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from fedassay.support.adjacency import ADJACENCIES, UNITS, Adjacency, Unit
from fedassay.support.epsilon import Epsilon
from fedassay.support.errors import PlanError
from fedassay.support.terminal import say, say_json

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
        help="What neighbours differ in.",
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
