"""Inference of the most exposed record, person or client: the maximum over them, and not only the mean.

An area under a curve is a mean over records, and a mean hides the few that a release gives away (Carlini et al.
2022, section VI). So the method is run many times with the smallest client's records. In every run a fair coin for
each record swaps it for a stranger of its label. The audited attack is asked of both, and the sign of the
difference of their scores guesses which of the two was in. Half of the runs choose the test and where to part each
record's differences; the other half are guessed on. Coins are independent over runs, so that right guesses of a
record that leaves no trace are binomial with one half, whatever the scores, the other records and the noise are.

For each record the Clopper-Pearson lower bound on its rate of right guesses, at the level divided by the number of
records: all hold at once, and so does their maximum. Holm's step-down procedure (1979) on the same counts finds
the records that are inferred at all. A claim of (epsilon, delta) allows a rate of (e^epsilon + delta) / (1 +
e^epsilon) for one replaced record.

Where records carry a person's identity, persons are swapped, each with all of its records for all of a stranger's,
and a person's score is the mean over its records. A claim for records then allows what as many steps of it allow.
Whole clients are swapped likewise (`fedassay.audits.membership.clients`).

Positive control: the same of one control record a label, or of persons with two records of one label each, as the
method sends them without privacy in the form in which it gives records away most. It is held against guessing:
that so many runs can show more than a claim allows is asked of the limit of detection. Negative: the same guesses
against coins drawn after the runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import binom

from fedassay.audits.evidence import Arms, Figures, LeakTest, Result
from fedassay.audits.ladder import missing
from fedassay.audits.membership.judging import membership
from fedassay.audits.membership.separation import Allowed, allowed_of
from fedassay.audits.membership.swaps import (
    Guesses,
    Guessing,
    Run,
    Swaps,
    audited_swaps,
    by_person,
    guesses_of,
    own_swaps,
)
from fedassay.audits.stats.intervals import clopper_pearson
from fedassay.audits.stats.one_run_fdp import approximate_inverse, one_run_fdp_bound, rejects
from fedassay.audits.stats.resampling import ALONE, level_of
from fedassay.audits.stats.roc import auc
from fedassay.audits.verdict import assay, inconclusive, not_run
from fedassay.contracts.audit import AttackedContext
from fedassay.records.facts import Harm
from fedassay.records.record import Finding, Limit, Metric, Series
from fedassay.support.adjacency import Unit
from fedassay.support.errors import NotRunError

_NAMES: dict[Unit, tuple[str, str, str]] = {
    "record": ("worst_record", "mean_record", "records_told"),
    "person": ("worst_person_told", "mean_person_told", "persons_told"),
    "client": ("worst_client_told", "mean_client_told", "clients_told"),
}
"""Metrics of each unit: the largest rate, the mean rate, and the number of units inferred at all."""
_MOST_RUNS = 100_000
_KNOWN = (
    "each of {} {}s is in, or a stranger of its label, by a coin of its own in every run; the adversary knows "
    "both, and the method; one test, chosen on the other half of the runs"
)


@dataclass(frozen=True)
class Risk:
    """Units with a measured risk, and the claim's allowance for them.

    Attributes:
        unit: Record, person or client.
        selection: Name of the choice of units.
        swaps: The audited units.
        own: Units of the positive control with their description; or why there are none.
        allowed: The claim's allowance for a replaced unit; None: nothing is claimed of it.
        assumptions: Stated beside the verdict.
        key: The audit's key for the number of runs of the method.
        pooled: Whether the guesses of all units together are tested as well, each kind at half of the level.
        guess: Runs the method with units swapped by coins, and guesses these.
        drawn: Whether units are drawn anew in every run, and unknown to the adversary.
    """

    unit: Unit
    selection: str
    swaps: Swaps
    own: tuple[Swaps, str] | str
    allowed: Allowed | None
    assumptions: tuple[str, ...]
    key: str = "record_runs"
    pooled: bool = False
    guess: Guessing = guesses_of
    drawn: bool = False

    @property
    def most(self) -> float:
        """The largest rate of right guesses of a fair coin that is allowed."""
        if self.allowed is None:
            return 0.5
        odds = math.exp(-min(self.allowed.epsilon, 700.0))
        return min(1.0, (1 + self.allowed.delta * odds) / (1 + odds))

    def share(self, error: float) -> float:
        """The error of each kind of test."""
        return error / 2 if self.pooled else error

    def epsilon(self, guesses: Guesses, error: float) -> float:
        """Lower bound on epsilon from the guesses of all units; 0 where these are not tested together.

        Every coin is of one unit in one run, and runs are independent: the coins of all runs are canaries of one
        mechanism that is as private as a run is.
        """
        if not self.pooled:
            return 0.0
        delta = 0.0 if self.allowed is None else self.allowed.delta
        bound = one_run_fdp_bound(
            guesses.margins.ravel(),
            guesses.included.ravel(),
            delta=delta,
            confidence=1 - self.share(error),
        )
        return bound.epsilon or 0.0

    def exceeds(self, guesses: Guesses, error: float) -> bool:
        """Whether some unit is guessed better than is allowed, or all together are."""
        worst = float(guesses.lower(self.share(error)).max())
        claimed = 0.0 if self.allowed is None else self.allowed.epsilon
        return worst > self.most or self.epsilon(guesses, error) > claimed


def worst_record_finding(context: AttackedContext, most: int, runs: int) -> Finding:
    """The risk of the most exposed record, or person where these are known, beside the mean.

    Args:
        context: The method, the attack and the records.
        most: K at most.
        runs: Runs of the method; guesses are made on half of them.
    """
    unit: Unit = "person" if by_person(context) else "record"
    try:
        swaps = audited_swaps(context, most)
        allowed, remarks = _allowed(context, swaps, unit)
        each = "record, one of a label" if unit == "record" else "person, two records of one label each"
        own = known_swaps(context, unit, f"{{units}} control {each}")
        risk = Risk(unit, "worst", swaps, own, allowed, remarks)
        return risk_finding(context, risk, runs)
    except NotRunError as error:
        return not_run(membership(f"{unit}s", "worst"), error.why)


def risk_finding(context: AttackedContext, risk: Risk, runs: int) -> Finding:
    """Swap units by coins in so many runs, and hold the right guesses against what is allowed.

    Raises:
        NotRunError: The method cannot be run on such records, or the attack scores none of them.
    """
    unit, allowed, most = risk.unit, risk.allowed, risk.most
    if isinstance(risk.own, str):
        # Without a control that is caught nothing that the runs show could be said: they are not made.
        reason = f"no end-to-end positive control: {risk.own}"
        return inconclusive(
            membership(f"{unit}s", risk.selection), reason, obstacle=missing(risk.own, "not_possible")
        )
    (swaps, released), what = risk.own, "" if risk.selection == "worst" else risk.selection

    def guessed(run: Run, units: Swaps, name: str) -> Guesses:
        guesses = risk.guess(context, run, units, runs, name, advance)
        return replace(guesses, unit=unit, tests=context.num_tests)

    with context.io.progress.step(f"{unit}s") as advance:
        ours = guessed(context.method.run_on, risk.swaps, f"audited{what}")
    with context.io.progress.step(f"{unit}s: control") as advance:
        own = guessed(context.method.run_nonprivate, swaps, "own")
    rng = context.seeds.numpy("membership", "worst record", "silent")
    silent = replace(ours, included=rng.random(ours.included.shape) < 0.5)
    corrected = level_of(context.num_tests)
    told, count = ours.told(corrected), len(ours.right)
    allows = "chance" if allowed is None else f"{most:.3g}, which {allowed.words} allows"
    uncorrected = float(ours.lower(risk.share(ALONE)).max())
    result = Result(
        test=LeakTest(
            risk.exceeds(ours, corrected),
            risk.exceeds(ours, ALONE),
            f"a {unit} told in at least {uncorrected:.3g} of the runs",
            statistic=_NAMES[unit][0],
        ),
        shown=_shown(risk, ours, told, corrected),
        leak=f"a {unit} is told better than {allows}",
        harm=Harm(
            kind="attributes" if risk.selection == "property" else "members",
            of=unit,
            count=told,
            total=count,
            metric=_NAMES[unit][0],
            value=float(ours.right.max() / ours.runs),
            mechanism="membership",
        ),
        clear=f"no {unit} is told better than {allows}",
        limit=lambda: _limit(risk, ours, corrected),
    )
    figures = Figures(
        metrics=_metrics(risk, ours, told),
        baseline={_NAMES[unit][0]: Metric(value=most, reason="guessing" if allowed is None else allowed.words)},
        assumptions=(*(() if risk.drawn else (_KNOWN.format(count, unit),)), *risk.assumptions),
        series={f"{unit}s": _series(ours, unit)},
    )
    release = f"the method's own run without privacy on {released}"
    negative = silent.control("the same guesses, against coins drawn after the runs")
    arms = Arms(result, (own.control(release, end_to_end=True),), negative)
    return assay(membership(f"{unit}s", risk.selection), arms, figures)


def known_swaps(context: AttackedContext, unit: Unit, words: str) -> tuple[Swaps, str] | str:
    """Units of control records that the method is known to give away, and what they are; or why there are none."""
    try:
        own = own_swaps(context, unit)
    except NotRunError as error:
        return error.why
    return own, words.format(units=len(own.inside), records=len(own.inside[0]))


def _allowed(context: AttackedContext, swaps: Swaps, unit: Unit) -> tuple[Allowed | None, tuple[str, ...]]:
    """Return the claim's allowance for a replaced unit, None where that is everything; and remarks on it."""
    steps = max(len(each) for each in (*swaps.inside, *swaps.outside)) if unit == "person" else 1
    return allowed_of(context.outcome.transcript.claim, steps, person=unit == "person")


def _shown(risk: Risk, ours: Guesses, told: int, corrected: float) -> str:
    shown, judged = (float(ours.lower(risk.share(error)).max()) for error in (0.05, corrected))
    words = (
        f"the most exposed of {len(ours.right)} {risk.unit}s is told in at least {shown:.3g} of the runs by "
        f"{ours.chosen} (all at once, 95 %; {judged:.3g} at the corrected level), on the mean in {ours.mean:.3g}; "
        f"{told} are told at all"
    )
    if not risk.pooled:
        return words
    bound = f"epsilon at least {risk.epsilon(ours, 0.05):.3g} for one replaced {risk.unit}"
    return f"{words}; {bound} from all {ours.included.size} guesses (95 %)"


def _metrics(risk: Risk, ours: Guesses, told: int) -> dict[str, Metric]:
    unit, count, runs = risk.unit, len(ours.right), ours.runs
    worst, mean, several = _NAMES[unit]
    rate = float(ours.right.max() / runs)
    found = {
        worst: Metric(
            value=rate,
            low=float(ours.lower(risk.share(0.05)).max()),
            high=1.0,
            n=runs,
            reason=f"the largest of {count} rates of right guesses; its low end holds for all at once (95 %)",
        ),
        mean: Metric(
            value=ours.mean, n=count * runs, reason=f"the mean rate of right guesses of the same {count} {unit}s"
        ),
        several: Metric(
            value=float(told), n=count, reason="told better than by chance (Holm, at the corrected level)"
        ),
    }
    if risk.pooled:
        whose = f"for one replaced {unit}"
        reason = f"one run (f-DP) over all guesses, {whose}; 97.5 %"
        found["observed"] = Metric(value=risk.epsilon(ours, 0.05), n=ours.included.size, unit=whose, reason=reason)
        if 0 < ours.included.sum() < ours.included.size:
            area = auc(ours.margins[~ours.included], ours.margins[ours.included])
            found["auc_swaps"] = area.metric(f"over all {unit}s and tested runs")
    return found


def _series(ours: Guesses, unit: Unit) -> Series:
    order = np.argsort(-ours.right, kind="stable")
    low = ours.lower(0.05)[order]
    return Series(
        title=f"{unit.capitalize()}s, the most exposed first",
        columns={
            unit: tuple(int(each) for each in order),
            "rate": tuple((ours.right[order] / ours.runs).tolist()),
            "low": tuple(low.tolist()),
        },
    )


def _limit(risk: Risk, ours: Guesses, error: float) -> Limit | str:
    """The smallest rate of one unit that so many runs would have shown to be above what is allowed."""
    count, runs, most = len(ours.right), ours.runs, risk.most
    for rate in np.linspace(most, 1.0, 501)[1:]:
        right = binom.ppf(0.05, runs, rate)
        low = float(clopper_pearson(right, runs, confidence=1 - risk.share(error) / count, side="lower").low)
        if low > most:
            words = f"one {risk.unit} of {count} that is told in {rate:.3g} of the runs would have been found"
            return Limit(
                metric=_NAMES[risk.unit][0], value=float(rate), n=runs, words=words, of=risk.unit, planted="member"
            )
    needed = runs_needed(risk, count, error)
    what = f"{count} {risk.unit}s in {runs} tested runs cannot show any to be told better than {most:.6g}"
    if needed is None:
        return f"{what}, and {_MOST_RUNS} runs could not either"
    return f"{what}: {risk.key} {needed} would decide"


def runs_needed(risk: Risk, count: int, error: float) -> int | None:
    """Number of runs in which right guesses alone would exceed the allowance; None: more than is practical.

    Half of the runs choose the test. One unit's n right guesses show a rate above error^(1/n); those of all units
    together, n a unit, are rejected by the bound itself.
    """
    level, most = risk.share(error), risk.most
    if most >= 1:
        return None
    tested = math.ceil(math.log(level / count) / math.log(most)) + 1
    if risk.pooled:
        epsilon, delta = (0.0, 0.0) if risk.allowed is None else (risk.allowed.epsilon, risk.allowed.delta)
        inverse = approximate_inverse(epsilon, delta)
        # The test tries three numbers of guesses at a third of the level each; here every guess is right.
        for few in range(max(1, math.ceil(math.log(level / 3) / math.log(most) / count)), tested):
            if few * count > _MOST_RUNS:
                break
            if rejects(inverse, few * count, few * count, few * count, level / 3):
                tested = few
                break
    return 2 * tested if 2 * tested <= _MOST_RUNS else None
