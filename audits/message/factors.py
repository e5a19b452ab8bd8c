"""Truth joined to vectors that a factorization recovered, with controls as large as the audited clients.

Whether a factorization succeeds hangs on the number of records: what recovers four of them may give up at five. So
control clients hold as many records of each class as audited ones. A client that is larger than control clients
that came back is not concluded about, and has a finding of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from fedassay.audits.evidence import Arms, ControlResult, Figures, Subject
from fedassay.audits.features import encoder
from fedassay.audits.message import nonprivate
from fedassay.audits.message.attributed import attributed
from fedassay.audits.message.certified import certified
from fedassay.audits.message.controls import attacked, control_records, sums_view
from fedassay.audits.message.identified import averaged, counting, identification, identification_metrics
from fedassay.audits.message.truth import (
    NONE_RECOVERED,
    Recovery,
    assumptions,
    class_means,
    fitting,
    incomparable,
    judge,
    match,
    metrics,
    nothing,
    result_of,
    rule_of_three,
    truth_of,
)
from fedassay.audits.simulation import control_seeds, noised
from fedassay.audits.stats.identification import Identification
from fedassay.audits.verdict import assay, not_run
from fedassay.contracts.attack import AttackResult
from fedassay.contracts.audit import AttackedContext, AuditContext
from fedassay.data.records import Records
from fedassay.exchange.feature_sources import VectorSource
from fedassay.exchange.statistics import noise_of
from fedassay.records.record import Finding, Limit, Metric
from fedassay.support.errors import NotRunError, Why
from fedassay.support.types import Matrix

MOST_SIZES = 4
"""Client sizes that get a control client: the smallest, the largest, and some between."""

_LIMITED, _IS_SIGNED = "too_large", "signed_features"
"""Kinds of obstacles: the plan's parameter forbids to try so large a message; features are negative in places."""

_WHY = ("reasons", "obstacles")
"""Artifacts that say of every message, in words and by kind, why the attack did not try it."""

_TOO_WEAK = Why("the attack does not recover control clients that large")

_SIGNED = Why(
    "this backbone's features are signed: the factorization needs features that are not negative, and a search "
    "for the rotation that is left needs sums without noise and records of the attacker's own",
    kind=_IS_SIGNED,
)


@dataclass(frozen=True)
class _ControlsBySize:
    """Control clients of the sizes of audited ones, and which of them the attack recovered.

    Attributes:
        sizes: Records of each control client, rising.
        found: Whether the verdict's own test finds a leak in each.
        exact: Records that came back exactly, of each.
        errors: Median relative error of each; infinite where nothing came back.
        reasons: Reasons why the attack did not try some.
        missing: Reason why there are no control clients, or none so large.
    """

    sizes: tuple[int, ...] = ()
    found: tuple[bool, ...] = ()
    exact: tuple[int, ...] = ()
    errors: tuple[float, ...] = ()
    reasons: tuple[Why, ...] = ()
    missing: Why = _TOO_WEAK

    @property
    def recovered(self) -> tuple[int, ...]:
        """Sizes at which the attack finds the leak."""
        return tuple(size for size, caught in zip(self.sizes, self.found, strict=True) if caught)

    @property
    def largest(self) -> int:
        """The largest size up to which every control client was recovered; 0: not even the smallest."""
        lost = [size for size, caught in zip(self.sizes, self.found, strict=True) if not caught]
        return max((size for size in self.recovered if size < min(lost, default=np.inf)), default=0)

    def control(self) -> ControlResult:
        """As one control: whether any size was recovered. Which ones were bounds what is concluded."""
        each = ", ".join(
            f"{size} records at {error:.2g}" if np.isfinite(error) else f"none of {size} records"
            for size, error in zip(self.sizes, self.errors, strict=True)
        )
        why = f" ({self.reasons[0]})" if self.reasons else ""
        return ControlResult(
            nonprivate.OF_AS_LARGE,
            detected=bool(self.recovered),
            shown=f"control clients as large as the audited ones came back at median relative errors: {each}{why}",
            value=float(self.largest),
            n=sum(self.sizes),
            detail="largest control client that the attack recovers, in records",
            end_to_end=True,
        )


def factors_findings(result: AttackResult, context: AttackedContext) -> list[Finding]:
    """One finding on all factored messages; two where some clients are larger than the controls that came back."""
    source = result.vectors[0] if result.vectors else nothing(result.attack)
    subject, encode = Subject("message", result.attack, source.name, "all"), encoder(context)
    senders = [str(name) for name in result.artifacts["senders"]]
    truths = {name: records for name in senders if (records := truth_of(context, name)) is not None}
    if encode is None or not truths:
        return [not_run(subject, incomparable(encode))]
    means = class_means(context, encode)
    vectors = fitting(np.asarray(result.artifacts["vectors"], np.float64), means)
    if isinstance(vectors, str):
        return [not_run(subject, vectors)]
    nobody = not len(vectors)
    if nobody and _signed(next(iter(truths.values())), encode):
        return [not_run(subject, _SIGNED)]
    known = _known(list(truths.values()), context)
    untried = _beyond(known)
    if nobody and not known.recovered and untried is not None:
        return [not_run(subject, untried)]
    rng = context.seeds.numpy("message", source.name)
    joining = _Joining(source, vectors, means, encode, rng)
    return [
        _finding(replace(subject, selection=name), part, joining, known, result, context)
        for name, part in _by_control(truths, known, result).items()
    ]


@dataclass(frozen=True, eq=False)
class _Joining:
    """Parameters of the join of vectors to the truth.

    Attributes:
        source: The vectors' senders and labels.
        vectors: In float64, shape (k, d).
        means: Class means, shape (C, d).
        encode: Turns records into features.
        rng: Of the tests and of fresh records.
    """

    source: VectorSource
    vectors: Matrix
    means: Matrix
    encode: Callable[[Records], Matrix]
    rng: np.random.Generator

    def named(
        self, held: Mapping[str, Records], context: AuditContext, *, plain: bool = False
    ) -> Identification | None:
        """Whether the vectors of these senders name their records; `plain`: each label's mean in their place."""
        own = self.source.of_senders(held)
        shown = averaged(self.vectors, self.source.labels, list(own.values())) if plain else self.vectors
        asked = {sender: (own[sender], records) for sender, records in held.items()}
        return identification(shown, self.source.labels, asked, context.data.fresh, self.encode)

    def recovery(
        self, held: Mapping[str, Records], context: AuditContext, named: Identification | None
    ) -> Recovery:
        """Judge how closely the vectors of these senders match the records that they are said to hold."""
        own = self.source.of_senders(held)
        truth = [(own[sender], self.encode(records), records.labels) for sender, records in held.items()]
        persons = [records.groups for records in held.values()]
        matched = match(self.vectors, self.source.labels, truth, self.means, persons)
        return judge(matched, self.rng, tests=context.num_tests, named=counting(named, context))


def _by_control(
    truths: Mapping[str, Records], known: _ControlsBySize, result: AttackResult
) -> dict[str, Mapping[str, Records]]:
    """Group senders by the possible conclusion: no larger than a recovered control client, or larger.

    A limit of the plan on the attack does not depend on size, so that all senders stay together then.
    """
    small = {name: records for name, records in truths.items() if len(records) <= known.largest}
    large = {name: records for name, records in truths.items() if name not in small}
    if not any(map(len, small.values())) or not large or result.limited:
        return {"all": truths}
    return {"controlled_sizes": small, "larger_clients": large}


def _finding(
    subject: Subject,
    truths: Mapping[str, Records],
    joining: _Joining,
    known: _ControlsBySize,
    result: AttackResult,
    context: AttackedContext,
) -> Finding:
    """Finding on the factorization of some senders' messages."""
    named, test = joining.named(truths, context), context.data.test
    ours = joining.recovery(truths, context, named)
    fresh = {
        name: test.take(joining.rng.permutation(len(test))[: len(records)]) for name, records in truths.items()
    }
    negative = joining.recovery(fresh, context, joining.named(fresh, context))
    sent = None if named is None else joining.named(truths, context, plain=True)
    shares, of_means = identification_metrics(named, sent, context)
    by_hand = _by_hand(context, joining.means)
    figures, baseline = metrics(ours.matched)
    whose, chance = attributed(result, context)
    reach = Metric(
        value=float(known.largest), n=len(known.sizes), reason="largest control client recovered, in records"
    )
    made = result_of(
        ours,
        joining.source.name,
        partial(_limit, len(truths), known),
        noised=noised(context),
        about=_about(result, known, subject.selection, truths),
        undecided=_undecided(result, known, truths),
    )
    own = (known.control(),) if known.sizes else known.missing
    silent = negative.negative(ours)
    return assay(
        subject,
        Arms(made, own, silent, (by_hand,)),
        Figures(
            {
                **figures,
                **shares,
                "expected_error": _expected(result),
                "largest_recovered": reach,
                **certified(result, truths, context),
                **whose,
            },
            {**baseline, **of_means, **chance},
            assumptions(context),
        ),
    )


def _about(
    result: AttackResult, known: _ControlsBySize, selection: str | None, truths: Mapping[str, Records]
) -> str:
    """Return the clients that a finding speaks of, and why no vector was recovered, in the attack's words."""
    if selection != "all":
        sizes = [len(records) for records in truths.values()]
        clients = f"{len(sizes)} client{'s'[: len(sizes) != 1]}"
        least, most = min(sizes), max(sizes)
        return f"{clients} of {least}{f' to {most}' * (most > least)} records"
    if result.vectors or not result.notes:
        return ""
    if known.recovered and _IS_SIGNED in result.artifacts["obstacles"]:
        return "not tried: noise makes sums of features negative that are not"
    return result.notes[0]


def _signed(records: Records, encode: Callable[[Records], Matrix]) -> bool:
    """Whether the features that the method sums up are negative in places."""
    features = encode(records)
    return bool(features.min(initial=0.0) < -1e-6 * np.abs(features).max(initial=0.0))


def _known(audited: Sequence[Records], context: AttackedContext) -> _ControlsBySize:
    """Control clients of the sizes of audited ones, through the method's own run and the same attack."""
    by_size = {len(records): records for records in audited if len(records)}
    sizes = sorted(by_size)
    if not sizes:
        return _ControlsBySize(missing=Why("no audited client holds a record"))
    chosen = sorted({sizes[round(i)] for i in np.linspace(0, len(sizes) - 1, MOST_SIZES)})
    noised = sorted(
        {item.kind for m in context.view.from_clients() for item in m.fields.values() if noise_of(item)}
    )
    key = f"message/{context.attack_key}/{context.release_key}/{noised}/{chosen}/{context.num_tests}"
    return context.data.once(key, lambda: _tried([by_size[size] for size in chosen], context))


def _tried(wanted: Sequence[Records], context: AttackedContext) -> _ControlsBySize:
    """Recover control clients as large as these, of rising sizes."""
    try:
        readings = nonprivate.also_faintly_noised(nonprivate.alike(context, wanted), context)
    except NotRunError as error:
        return _ControlsBySize(missing=error.why)
    tried = [
        (len(client), recovery)
        for reading in readings
        for client in reading.clients
        for recovery in nonprivate.recovered(
            (replace(reading, clients=(client,)),), reading.result.attack, context
        )
    ]
    tried.sort(key=lambda each: each[0])
    reasons = {
        Why(str(words), kind=str(kind))
        for reading in readings
        for words, kind in zip(*(reading.result.artifacts.get(name, ()) for name in _WHY), strict=True)
    }
    available, largest = len(context.data.control), len(wanted[-1])
    short = Why(
        f"the control role has {available} records, and the largest client {largest}: give data.split.control at "
        f"least {largest - available} more",
        "control",
        available,
        largest,
    )
    return _ControlsBySize(
        sizes=tuple(size for size, _ in tried),
        found=tuple(recovery.test.rejects for _, recovery in tried),
        exact=tuple(recovery.matched.exact for _, recovery in tried),
        errors=tuple(np.inf if recovery.median is None else recovery.median for _, recovery in tried),
        reasons=tuple(sorted(reasons - {""})),
        missing=short if largest > available else next(iter(sorted(reasons - {""})), _TOO_WEAK),
    )


def _beyond(known: _ControlsBySize) -> Why | None:
    """Return the reason why the factorization does not apply to messages of these sizes at all."""
    return next((reason for reason in known.reasons if reason.kind != _LIMITED), None)


def _undecided(result: AttackResult, known: _ControlsBySize, truths: Mapping[str, Records]) -> str:
    """Return the reason why nothing is concluded about some of these senders; empty: there is none."""
    limited, largest = result.limited, max(map(len, truths.values()))
    if limited:
        return limited.said(f"not tried on all messages: {limited}; a larger one would decide")
    if known.largest < largest:
        return known.missing.said(
            f"control clients were recovered up to {known.largest} records, the largest client has {largest}, "
            f"so that nothing is known of larger ones ({known.missing})"
        )
    return ""


def _limit(clients: int, known: _ControlsBySize) -> Limit:
    """The share of clients which, if they came back as control clients do, would have shown in 95 %."""
    share = rule_of_three(clients)
    return Limit(
        metric="share",
        value=share,
        n=clients,
        words=f"0 of {clients} clients gave a record away: at most {share:.2g} of clients like these would; "
        f"control clients of up to {known.largest} records were recovered",
        of="client",
        scope="population",
        planted="factored_client",
    )


def _by_hand(context: AttackedContext, means: Matrix) -> ControlResult:
    """The attack alone, on exact statistics of a few records, in float64."""
    records, encode = control_records(context), encoder(context)
    assert encode is not None
    computed = attacked(context, sums_view(records, context, encode))
    whole = np.asarray(computed.artifacts.get("vectors", np.zeros((0, 0))), np.float64).reshape(-1, means.shape[1])
    labels = np.full(len(whole), -1)
    truth = [(np.arange(len(whole)), encode(records), records.labels)]
    rng = control_seeds(context, "message", "by hand").numpy()
    return judge(match(whole, labels, truth, means), rng, tests=context.num_tests).by_hand()


def _expected(result: AttackResult) -> Metric:
    errors = np.asarray(result.scores["expected_error"], np.float64)
    if not len(errors):
        return NONE_RECOVERED
    return Metric(
        value=float(np.median(errors)), n=len(errors), reason="from the agreement of runs, without truth"
    )
