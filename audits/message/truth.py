"""Truth joined to recovered vectors: the record of each, and the relative error.

Where records carry a person's identity, records of one person are no independent trials. Tests, medians and their
intervals are of persons, each by the mean over its records, and shares of records have intervals by person
(`fedassay.audits.stats.persons`). An exact copy is one record's, and counts as such.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedassay.audits.evidence import WORSE, ControlResult, LeakTest, Result, by_arithmetic, by_p_value
from fedassay.audits.stats.below_baseline import below_baseline
from fedassay.audits.stats.identification import Identification
from fedassay.audits.stats.paired import sign_flip, smallest_pairs
from fedassay.audits.stats.permutation import PermutationTest
from fedassay.audits.stats.persons import mean_by, share_interval, share_of_persons
from fedassay.audits.stats.resampling import level_of
from fedassay.audits.stats.typed_intervals import Binary, Unbounded, interval
from fedassay.contracts.attack import AttackResult
from fedassay.contracts.audit import AttackedContext, AuditContext
from fedassay.data.records import Records, joined
from fedassay.exchange.feature_sources import VectorSource, sources
from fedassay.exchange.transcript import AGGREGATE
from fedassay.records.facts import NEAREST, Harm, Obstacle
from fedassay.records.record import Limit, Metric, unmeasured
from fedassay.support.types import Bools, Ints, Matrix

EXACT = 1e-3
"""Relative error below which a record counts as recovered."""


NEAR = 0.1
"""Median relative error below which a positive control counts as caught."""


NONE_RECOVERED = unmeasured("no vector was recovered")


@dataclass(frozen=True)
class Matched:
    """Recovered vectors with the true records that they are closest to, matched one to one within a sender.

    Attributes:
        errors: |v - f| / |f|, shape (k,).
        cosines: Cosine of v and f, shape (k,).
        baseline: The same error for the nearest of the public class means, shape (k,). The nearest, not that of
            the record's own class: matching lets a vector choose its record, too.
        labelled: Whether the vector came with a label, shape (k,).
        label_right: Whether that label is the record's, shape (k,).
        records: True records of the senders attacked.
        vectors: Vectors recovered, k or more.
        hits: Whether each of these records came back to `EXACT`, shape (n,).
        persons: The person of each matched record, shape (k,); None: each is of a person of its own.
        everyone: The person of each of all records, shape (n,); None likewise.
    """

    errors: Matrix
    cosines: Matrix
    baseline: Matrix
    labelled: Bools
    label_right: Bools
    records: int
    vectors: int
    hits: Bools
    persons: Ints | None = None
    everyone: Ints | None = None

    @property
    def exact(self) -> int:
        """Records recovered to `EXACT`."""
        return int((self.errors < EXACT).sum())

    @property
    def trials(self) -> int:
        """Number of units that may leak independently: all records, or their persons where these are known."""
        return self.records if self.everyone is None else len(np.unique(self.everyone))

    def by_person(self, values: Matrix) -> Matrix:
        """The mean of each person's matched records, from one value of each record; else the values."""
        return values if self.persons is None else mean_by(values, self.persons)


@dataclass(frozen=True)
class Recovery:
    """Recovery of records by vectors, against the public class means.

    Attributes:
        matched: The match.
        closer: Sign-flip test of whether the vectors are closer than the class means; None where none matched.
        farther: The same the other way round.
        tests: Number of tests in the run.
        named: Whether the vectors name their records in a gallery; None where that was not asked, or does not
            count: under a claim, only an excess over its allowance does.
    """

    matched: Matched
    closer: PermutationTest | None
    farther: PermutationTest | None
    tests: int
    named: Identification | None = None

    @property
    def test(self) -> LeakTest:
        """The test of whether single records came back, exactly or closer than what is known of their class."""
        if self.matched.exact > 0 or self.closer is None:
            return by_arithmetic(self.matched.exact > 0, "fraction_recovered")
        if self.named is None:
            return by_p_value(self.closer.p, self.tests, "relative_error")
        # Two questions of the same vectors: closer than class means, and nearer to their records than to others.
        return by_p_value(min(1.0, 2 * min(self.closer.p, self.named.test.p)), self.tests, "identified")

    def flags(self, negative: Recovery) -> bool:
        """Whether strangers' records come back from the same vectors, by what the finding itself rests on.

        Exact copies are no class means: that fresh records of the same kind lie closer to them than those do, as
        where classes have several modes, is no reason to doubt them. That one of them is met exactly would be.
        """
        return negative.matched.exact > 0 if self.matched.exact else negative.test.rejects

    @property
    def undecided(self) -> str:
        """Return the reason why vectors could not be distinguished from class means; empty where they could be."""
        needed, size = smallest_pairs(level_of(self.tests)), len(self.matched.by_person(self.matched.errors))
        if not size or self.matched.exact or size >= needed:
            return ""
        what = "vectors" if self.matched.persons is None else "persons' vectors"
        return (
            f"{size} {what} are too few to tell from class means at the level of this run; {needed} would decide"
        )

    @property
    def caught(self) -> bool:
        """Whether most records of a release that is known to leak came back nearly as they are."""
        errors = self.matched.errors
        return 2 * len(errors) >= self.matched.records > 0 and float(np.median(errors)) < NEAR

    @property
    def share(self) -> float:
        """Share of the records that came back exactly."""
        return self.matched.exact / max(self.matched.records, 1)

    @property
    def below_baseline(self) -> bool:
        """Whether the vectors are farther from the records than their class means."""
        return self.farther is not None and self.farther.p <= WORSE and self.matched.exact == 0

    @property
    def median(self) -> float | None:
        """Median relative error, None where nothing was matched."""
        return float(np.median(self.matched.errors)) if len(self.matched.errors) else None

    def control(self, release: str, *, end_to_end: bool = False) -> ControlResult:
        """As a control of a release that is known to leak: caught where most of its records came back."""
        errors, records = self.matched.errors, self.matched.records
        shown = f"{len(errors)} of {records} records matched"
        if self.median is not None:
            shown += f" at a median relative error of {self.median:.2g}"
        return ControlResult(
            release,
            self.caught,
            shown,
            self.median,
            len(errors),
            "median relative error",
            end_to_end,
            gain=float((errors < NEAR).sum()) / max(records, 1),
        )

    def by_hand(self) -> ControlResult:
        """As a control of the attack alone, on exact statistics that no method computed."""
        return self.control(f"statistics by hand of {self.matched.records} private records, in float64")

    def negative(self, ours: Recovery) -> ControlResult:
        """As a control of records that were not sent, held against the vectors of a result."""
        release = "the same vectors against features of fresh (test) records"
        return replace(self.control(release), detected=ours.flags(self))


def incomparable(encode: Callable[[Records], Matrix] | None) -> str:
    """Return the reason why vectors were not compared with records: unknown features, or unknown records."""
    what = (
        "features of the method's own networks (its model does not name them as the backbone's, by an attribute "
        "`transform`)"
        if encode is None
        else "senders without known records"
    )
    return f"vectors of {what} cannot be compared with any record's"


def fitting(vectors: Matrix, means: Matrix) -> Matrix | str:
    """Vectors that can be compared with features as wide as class means (C, d), or why these cannot.

    No vectors are none of that width.
    """
    if len(vectors) and vectors.shape[1] != means.shape[1]:
        return f"the vectors have width {vectors.shape[1]}, the records' features {means.shape[1]}"
    return vectors if len(vectors) else np.zeros((0, means.shape[1]))


def truth_of(context: AuditContext, sender: str) -> Records | None:
    """The records that a sender's message speaks of; for the aggregate, those of all clients; None if unknown."""
    if sender != AGGREGATE:
        return context.records(sender)
    return joined("clients", context.data.clients) if context.data.clients else None


def class_means(context: AuditContext, encode: Callable[[Records], Matrix]) -> Matrix:
    """Class means of records that no client holds, shape (C, d); their common mean for a class without any."""
    known = context.data.fresh
    features = encode(known)
    means = np.repeat(features.mean(axis=0, keepdims=True), context.data.classes, axis=0)
    for label in np.unique(known.labels):
        means[label] = features[known.labels == label].mean(axis=0)
    return means


def match(
    vectors: Matrix,
    labels: Ints,
    truth: Sequence[tuple[Ints, Matrix, Ints]],
    means: Matrix,
    persons: Sequence[Ints | None] | None = None,
) -> Matched:
    """Match vectors to true records, sender by sender, at the least total distance.

    Args:
        vectors: Shape (k, d).
        labels: Their labels, -1 where unknown, shape (k,).
        truth: For each sender: the indices of its vectors, its true features (n, d) and true labels (n,).
        means: Class means for the baseline, shape (C, d).
        persons: For each sender, the person of each record, (n,); None, or one without: unknown.
    """
    from scipy.optimize import linear_sum_assignment

    known_persons = [np.zeros(0, np.int64) if each is None else each for each in persons or ()]
    known = persons is not None and all(each is not None for each in persons)
    parts, hits, whose = [], [], []
    for number, (own, features, classes) in enumerate(truth):
        hits.append(np.zeros(len(classes), np.bool_))
        norms = np.linalg.norm(features, axis=1)
        seen = np.flatnonzero(norms > 0)  # the relative error of a record with all features 0 is undefined
        if not len(own) or not len(seen):
            continue
        found, real, norms = vectors[own], features[seen], norms[seen]
        squares = (found**2).sum(axis=1)[:, None] + norms**2 - 2 * found @ real.T
        rows, columns = linear_sum_assignment(np.sqrt(np.maximum(squares, 0)) / norms)
        found, real, norms, labelled = found[rows], real[columns], norms[columns], classes[seen][columns]
        lengths = np.maximum(np.linalg.norm(found, axis=1) * norms, np.finfo(float).tiny)
        errors = np.linalg.norm(found - real, axis=1) / norms
        cosines = (found * real).sum(axis=1) / lengths
        baseline = np.min([np.linalg.norm(real - mean, axis=1) for mean in means], axis=0) / norms
        given = labels[own][rows]
        parts.append(np.stack([errors, cosines, baseline, given >= 0, given == labelled]))
        hits[-1][seen[columns]] = errors < EXACT
        if known:
            whose.append(known_persons[number][seen[columns]])
    joined = np.concatenate([np.zeros((5, 0)), *parts], axis=1)
    return Matched(
        errors=joined[0],
        cosines=joined[1],
        baseline=joined[2],
        labelled=joined[3].astype(np.bool_),
        label_right=joined[4].astype(np.bool_),
        records=sum(len(part[2]) for part in truth),
        vectors=len(vectors),
        hits=np.concatenate([np.zeros(0, np.bool_), *hits]),
        persons=np.concatenate([np.zeros(0, np.int64), *whose]) if known else None,
        everyone=np.concatenate([np.zeros(0, np.int64), *known_persons]) if known else None,
    )


def judge(
    matched: Matched, rng: np.random.Generator, *, tests: int, named: Identification | None = None
) -> Recovery:
    """Test the gain over the baseline, in a run of so many tests; `named` as in `Recovery`."""
    if not len(matched.errors):
        return Recovery(matched, None, None, tests)
    errors, baseline = matched.by_person(matched.errors), matched.by_person(matched.baseline)
    closer = sign_flip(baseline - errors, rng, tests=tests)
    return Recovery(matched, closer, below_baseline(-errors, -baseline, rng), tests, named)


def nothing(name: str) -> VectorSource:
    """A source without vectors."""
    none = np.zeros(0, np.int64)
    return VectorSource(name, np.zeros((0, 0), np.float32), none, (), none)


def parts_of(result: AttackResult, context: AttackedContext) -> dict[str, VectorSource]:
    """The attack's vectors by their source, and features that are sent as they are, which need no attack."""
    sent = sources(context.view, context.seeds.numpy("message", "sources"))
    return {part.name: part for part in (*result.vectors, *(part for part in sent if part.name == "raw"))}


def plain(records: Records) -> Matrix:
    """The backbone's features, where those that the method summed are unknown."""
    return records.features.astype(np.float64)


def comes_back(vectors: Matrix, features: Matrix) -> bool:
    """Whether any of some vectors (k, d) is the feature of a record (n, d), to `EXACT`."""
    norms = np.linalg.norm(features, axis=1)
    seen = norms > 0
    if not len(vectors) or not seen.any() or vectors.shape[1] != features.shape[1]:
        return False
    real, norms = features[seen], norms[seen]
    # Squares by expansion suffer from rounding: the difference to the nearest record is computed directly.
    squares = (vectors**2).sum(axis=1)[:, None] + norms**2 - 2 * vectors @ real.T
    nearest = (squares / norms**2).argmin(axis=1)
    errors = np.linalg.norm(vectors - real[nearest], axis=1) / norms[nearest]
    return bool((errors < EXACT).any())


def result_of(
    ours: Recovery,
    name: str,
    limit: Callable[[], Limit | str],
    *,
    noised: bool,
    about: str = "",
    undecided: str = "",
    obstacle: Obstacle | None = None,
) -> Result:
    """Recovered vectors for the ladder.

    Args:
        ours: Their match with the records.
        name: Of their source.
        limit: The smallest leak that would have been found.
        noised: Whether they come from a noised release: the noise may well ruin its vectors.
        about: Said before the reason.
        undecided: Reason why silence is no answer, empty where it is one, or where the vectors themselves say so.
        obstacle: The same as data.
    """
    matched = ours.matched
    if ours.median is None:
        shown = f"0 of {matched.records} records' features were recovered ({name})"
    else:
        vectors = "vector" if len(matched.errors) == 1 else "vectors"
        shown = (
            f"{matched.exact} of {matched.records} records' features computed exactly ({name}); median relative "
            f"error {ours.median:.2g} over {len(matched.errors)} {vectors}, {np.median(matched.baseline):.2g} for "
            "the nearest class means"
        )
        if ours.named is not None:
            shown += f"; {ours.named.words('vectors')}"
    return Result(
        test=ours.test,
        shown=shown,
        about=about,
        below_baseline="the class means" if ours.below_baseline else "",
        ruin_expected=noised,
        near_copies=matched.exact,
        harm=_harm(ours, name),
        undecided=undecided or ours.undecided,
        obstacle=obstacle,
        limit=limit,
    )


def _harm(ours: Recovery, name: str) -> Harm:
    """Harm of a leak: exact features; or records that vectors name among others; or signs of participation."""
    matched, named = ours.matched, ours.named
    if matched.exact:
        return Harm(
            kind="exact",
            of="record",
            count=matched.exact,
            total=matched.records,
            metric="fraction_recovered",
            value=ours.share,
            mechanism=name,
        )
    if named is not None and named.test.p <= level_of(ours.tests):
        hits = int(named.hits.sum())
        return Harm(kind="members", of="record", count=hits, total=len(named.hits), metric=NEAREST, mechanism=name)
    return Harm(kind="members", of="record", metric="relative_error", value=ours.median, mechanism=name)


def recovery_limit(ours: Recovery, known: Sequence[Recovery]) -> Limit | str:
    """The share of records which, if they came back as the control's do, would have shown with probability .95.

    None of n came back: a share q would have been missed with (1 - q)^n, so that q = 1 - .05^(1/n), about 3/n.
    """
    size, what = ours.matched.trials, "records" if ours.matched.everyone is None else "persons"
    caught = sum(each.matched.exact for each in known) / max(1, sum(each.matched.records for each in known))
    if caught == 0:
        return "no control record came back exactly, so that no limit of detection can be stated"
    share = rule_of_three(size) / caught
    if share > 1:
        return f"{size} {what} are too few for a limit of detection; more {what} would decide"
    return Limit(
        metric="share",
        value=share,
        n=size,
        words=f"0 of {size} {what} came back: at most {share:.2g} of {what} like these would",
        of="record" if ours.matched.everyone is None else "person",
        scope="population",
        planted="exact_vector",
    )


def rule_of_three(trials: int) -> float:
    """The smallest share that shows at least once in so many trials with probability .95, about 3/n."""
    return float(1 - 0.05 ** (1 / trials)) if trials else 1.0


def assumptions(context: AuditContext) -> tuple[str, ...]:
    """Assumptions behind a verdict on recovered vectors."""
    return (
        "vectors are matched to their sender's records one to one, at the least total distance",
        "baseline: the nearest of the class means over records that no client holds",
        f"leak: a record recovered to a relative error below {EXACT:g}, or errors below the baseline's by a "
        f"sign-flip test of paired gains (symmetric where nothing is read), one-sided 95 %, corrected for "
        f"{context.num_tests} tests",
    )


def metrics(matched: Matched) -> tuple[dict[str, Metric], dict[str, Metric]]:
    """Metrics of the vectors and of the baseline."""
    size = len(matched.errors)
    ours: dict[str, Metric] = {}
    theirs: dict[str, Metric] = {}
    if size == 0:
        ours["relative_error"] = ours["cosine"] = theirs["relative_error"] = NONE_RECOVERED
    else:
        ours["relative_error"] = _median(matched, matched.errors)
        ours["cosine"] = _median(matched, matched.cosines)
        theirs["relative_error"] = _median(matched, matched.baseline)
    ours["fraction_recovered"] = _share(matched.hits, matched.everyone, f"relative error below {EXACT:g}")
    told = matched.labelled
    if told.any():
        persons = None if matched.persons is None else matched.persons[told]
        ours["label_accuracy"] = _share(matched.label_right[told], persons, "")
    return ours, theirs


def _median(matched: Matched, values: Matrix) -> Metric:
    median = interval(matched.by_person(values), Unbounded("median"))
    words = median.reason or ("" if matched.persons is None else "of persons, each by the mean over its records")
    return median.metric(words)


def _share(hits: Bools, persons: Ints | None, reason: str) -> Metric:
    """A share of records; the mean over persons of each one's share, where persons are known."""
    whole = len(hits)
    if whole == 0:
        return unmeasured("no record to count")
    if persons is None:
        return interval(hits, Binary()).metric(reason)
    low, high = share_interval(hits, persons)
    words = f"{reason}; " if reason else ""
    words += f"mean share and interval by person, of whom there are {len(np.unique(persons))}"
    return Metric(value=share_of_persons(hits, persons), low=low, high=high, n=whole, reason=words)
