"""How far the most exposed record of a client can be told: the maximum over records, and not only their mean.

An area under a curve is a mean over records, and a mean hides the few that a release gives away (Carlini et al.
2022, section VI). So the method is run many times with the smallest client's records, each of which is swapped for
a stranger of its own label by a fair coin of its own, in every run anew; the audited attack is asked of both, and
which of the two was in is guessed by the sign of the difference of their scores. Half of the runs choose the test
and where to part each record's differences; the other half are guessed on. Coins are independent over runs, so
that right guesses of a record that nothing tells are binomial with one half, whatever the scores, the other
records and the noise are.

For each record the Clopper-Pearson lower bound on its rate of right guesses, at the level divided by the number of
records: all hold at once, and so does their maximum. Which records are told at all is Holm's step-down procedure
(1979) on the same counts. A claim of (epsilon, delta) allows a rate of (e^epsilon + delta) / (1 + e^epsilon) for
one replaced record.

Positive control: the same of one control record a label, as the method sends them without privacy in the form in
which it gives records away most. Negative: the same guesses against coins drawn after the runs.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.stats import binom

from fedassay.audits.evidence import Figures, LeakTest, Result
from fedassay.audits.membership.roc import Allowed, allowed_by
from fedassay.audits.membership.swaps import Guesses, audited_swaps, guesses_of, own_swaps
from fedassay.audits.membership.verdict import membership
from fedassay.audits.stats.intervals import clopper_pearson
from fedassay.audits.stats.resampling import ALONE
from fedassay.audits.verdict import conclude, not_run
from fedassay.contracts.audit import AttackedContext
from fedassay.exchange.release import PrivacyClaim
from fedassay.records.record import Finding, Limit, Metric, Series
from fedassay.support.errors import NotRunError


def worst_record_finding(context: AttackedContext, records: int, runs: int) -> Finding:
    """The risk of the most exposed record, beside the mean.

    Args:
        context: The method, the attack and the records.
        records: K at most.
        runs: Of the method, half of which are guessed on.
    """
    try:
        return _finding(context, records, runs)
    except NotRunError as error:
        return not_run(membership("records", "worst"), str(error))


def _finding(context: AttackedContext, records: int, runs: int) -> Finding:
    claim = context.outcome.transcript.claim
    allowed = allowed_by(claim, replaced=True) if isinstance(claim, PrivacyClaim) else None
    most = _most(allowed)
    corrected = 0.05 / context.bounds
    with context.workplace.progress.step("records") as advance:
        ours = guesses_of(context, context.rerun, audited_swaps(context, records), runs, "audited", advance)
    with context.workplace.progress.step("records: control") as advance:
        own = guesses_of(context, context.exposed, own_swaps(context), runs, "own", advance)
    rng = context.seeds.numpy("membership", "worst record", "silent")
    silent = Guesses(ours.guessed, rng.random(ours.coins.shape) < 0.5, ours.test)
    shown, alone, judged = (float(ours.lower(error).max()) for error in (0.05, ALONE, corrected))
    told, count = ours.told(corrected), len(ours.right)
    words = "chance" if allowed is None else f"{most:.3g}, which {allowed.words} allows,"
    return conclude(
        membership("records", "worst"),
        Result(
            test=LeakTest(judged > most, alone > most, f"a record told in at least {alone:.3g} of the runs"),
            shown=f"the most exposed of {count} records is told in at least {shown:.3g} of the runs "
            f"by {ours.test} (all at once, 95 %; {judged:.3g} at the corrected level), on the mean in "
            f"{_mean(ours):.3g}; {told} are told at all",
            leak=f"a record is told better than {words.rstrip(',')}",
            clear=f"no record is told better than {words.rstrip(',')}",
            limit=lambda: _limit(ours, most, corrected),
        ),
        Figures(
            metrics=_metrics(ours, told),
            baseline={"worst_record": Metric(value=most, reason="guessing" if allowed is None else allowed.words)},
            assumptions=(
                f"each of {count} records is in, or a stranger of its label, by a coin of its own in every run; "
                "the adversary knows both, and the method; one test of the attack, chosen on the other half of "
                "the runs",
            ),
            series={"records": _series(ours)},
        ),
        positive=own.control(
            f"the method's own run without privacy on {len(own.right)} control records, one of a label",
            corrected,
            most,
            own_shape=True,
        ),
        negative=silent.control(
            "the same guesses, against coins drawn after the runs", corrected, most, own_shape=False
        ),
    )


def _most(allowed: Allowed | None) -> float:
    """The largest rate of right guesses of a fair coin that a claim allows."""
    if allowed is None:
        return 0.5
    odds = math.exp(-min(allowed.epsilon, 700.0))
    return min(1.0, (1 + allowed.delta * odds) / (1 + odds))


def _mean(guesses: Guesses) -> float:
    return float(guesses.right.mean() / guesses.runs)


def _metrics(ours: Guesses, told: int) -> dict[str, Metric]:
    count, runs = len(ours.right), ours.runs
    worst = int(np.argmax(ours.right))
    return {
        "worst_record": Metric(
            value=float(ours.right[worst] / runs),
            low=float(ours.lower(0.05).max()),
            high=1.0,
            n=runs,
            reason=f"the largest of {count} rates of right guesses; its low end holds for all at once (95 %)",
        ),
        "mean_record": Metric(
            value=_mean(ours), n=count * runs, reason=f"the mean rate of right guesses of the same {count} records"
        ),
        "records_told": Metric(
            value=float(told), n=count, reason="told better than by chance (Holm, at the corrected level)"
        ),
    }


def _series(ours: Guesses) -> Series:
    order = np.argsort(-ours.right, kind="stable")
    low = ours.lower(0.05)[order]
    return Series(
        title="Records, the most exposed first",
        columns={
            "record": tuple(int(each) for each in order),
            "rate": tuple((ours.right[order] / ours.runs).tolist()),
            "low": tuple(low.tolist()),
        },
    )


def _limit(ours: Guesses, most: float, error: float) -> Limit | str:
    """The smallest rate of one record that so many runs would have shown to be above what is allowed."""
    count, runs = len(ours.right), ours.runs
    for rate in np.linspace(most, 1.0, 501)[1:]:
        right = binom.ppf(0.05, runs, rate)
        low = float(clopper_pearson(right, runs, confidence=1 - error / count, side="lower").low)
        if low > most:
            words = f"one record of {count} that is told in {rate:.3g} of the runs would have been found"
            return Limit(metric="worst_record", value=float(rate), n=runs, words=words)
    return f"{runs} tested runs cannot show any record to be told better than {most:.3g}: more runs would decide"
