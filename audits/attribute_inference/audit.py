"""Audit of attribute inference: does a client's message improve the best guess of a person's sensitive attribute?

The adversary knows that a record is a client's, and all of it but a sensitive attribute (`data.attributes`) and
what carries that (`completions`): of a label it knows the features, of a column the other columns and the label,
of anything else, such as the sex of a person in an image, the label. It has records of its own, of the same
distribution, with their attributes, and guesses by Bayes' rule: once without the message and once with its
likelihood. A leak requires both of the following (`judging`):

- The guess with the message is right more often than the best one without it. What the adversary's own records
  teach, and what follows from the rest of a record, is population inference: it needs no message and does not
  count.
- It is right more often than the same guess of strangers, who are in no message. What the message teaches of
  people in general helps with those as much, and does not count either (the membership advantage of attributes:
  Yeom, Giacomelli, Fredrikson and Jha 2018, definition 5).

Given a whole record, features and label, no message says more of an attribute that is neither: no method reads it,
so that record and message are independent of it. `attribute_from_features` says how well an adversary with all
features guesses it without any message; hiding the message gives no protection against that.

What a message reveals of a client as a whole counts where its population differs from the strangers': the message
of a client of women reveals the sex of each. So does what so few records have in common by chance.

Positive control: the method's own run without privacy on control records (`fedassay.audits.nonprivate_releases`),
one a class and client, asked in the same way. An attribute that only the message reveals is planted in the place
of the real one (`planted`), so that the control does not depend on whether the real one can be inferred. Negative
control: strangers in the place of the clients' records.

A null result says nothing of an adversary who knows the client's other records, or part of an image.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from fedassay.audits.attribute_inference.completions import Sensitive, planted
from fedassay.audits.attribute_inference.facts import ATTRIBUTES
from fedassay.audits.attribute_inference.trials import FEWEST, ReleaseGuesses, Trials, asked, drawn, merged
from fedassay.audits.evidence import OWN_RELEASE, Arms, Figures, Subject
from fedassay.audits.nonprivate_releases import MOST_RUNS, dealt_clients, nonprivate_clients, summed_only
from fedassay.audits.simulation import control_seeds
from fedassay.audits.verdict import assay, not_run
from fedassay.contracts.attack import AttackResult, given_up
from fedassay.contracts.audit import AttackedContext
from fedassay.contracts.facts import AuditFacts
from fedassay.contracts.registry import register
from fedassay.data.records import Records
from fedassay.records.record import Finding
from fedassay.support.errors import NotRunError
from fedassay.support.types import Parameters


@register("audit", "attribute_inference")
class AttributeInference(Parameters):
    """Gain of messages over the best imputation of a sensitive attribute, and over guesses of strangers."""

    facts: ClassVar[AuditFacts] = ATTRIBUTES

    attribute: str | None = None
    """One of `data.attributes`; `null`: the first. Ask about several with one entry each."""
    trials: int = Field(default=600, ge=8)
    """Records of clients at most that are asked about."""
    control_records: int = Field(default=120, ge=8)
    """Records that the positive control gives away, about."""

    def assess(self, result: AttackResult, context: AttackedContext) -> list[Finding]:
        """One finding on the attribute, and one for each source that the attack gave up.

        Raises:
            NotRunError: The plan names no attribute, or records lack it.
        """
        name = self._name(context)
        sensitive = Sensitive.of(name, context.data.attacker, context.data.classes)
        unseen = context.data.test.without(*context.data.clients)
        if name not in unseen.attributes:
            raise NotRunError("the test records do not hold the attribute, so there are no strangers")
        seeds = context.seeds.child("attribute_inference", name)
        trials = drawn(context.data.clients, unseen, seeds.numpy("trials"), self.trials)
        ours = asked(context.view, context.data.clients, trials, sensitive, context, seeds)
        try:
            own: ReleaseGuesses | str = self._own(sensitive, unseen, context)
        except NotRunError as error:
            own = error.why
        audited, silent = ours.audited, ours.silent
        arms = Arms(
            audited.result(ours.source, silent, None if isinstance(own, str) else own.audited),
            own if isinstance(own, str) else (own.audited.control(_released(sensitive), end_to_end=True),),
            silent.control("strangers in the place of the clients' records"),
        )
        figures = Figures(audited.metrics(ours.from_features), {}, self._assumptions(sensitive, trials))
        found = [assay(Subject("attribute_inference", result.attack, ours.source, name), arms, figures)]
        for source, notes in given_up(result, (ours.source,)).items():
            found.append(not_run(Subject("attribute_inference", result.attack, source, name), "; ".join(notes)))
        return found

    def _name(self, context: AttackedContext) -> str:
        known = tuple(context.data.clients[0].attributes) if context.data.clients else ()
        if not known:
            raise NotRunError("the plan names no sensitive attribute (data.attributes)")
        if self.attribute is not None and self.attribute not in known:
            raise NotRunError("audits.attribute_inference.attribute: given is none of data.attributes")
        return known[0] if self.attribute is None else self.attribute

    def _own(self, sensitive: Sensitive, unseen: Records, context: AttackedContext) -> ReleaseGuesses:
        """Guesses of attributes that the method's own releases of control records are known to give away.

        Raises:
            NotRunError: There are too few control records or strangers, or the method cannot be run on them.
        """
        seeds = control_seeds(context, "attribute_inference", sensitive.name)
        dealt = dealt_clients(context, self.control_records)
        if summed_only(context.view):
            dealt = dealt[:MOST_RUNS]
        total, held = len(context.data.control), sum(map(len, dealt))
        if held < FEWEST:
            words = f"of {total} control records {held} can be given away, and {FEWEST} are needed"
            raise NotRunError(words, role="control", held=total, needed=total + FEWEST - held)
        known, (non_members, *clients) = planted(sensitive, [unseen, *dealt], seeds.numpy("planted"))
        found = []
        for number, release in enumerate(nonprivate_clients(context, clients, f"attributes/{sensitive.name}")):
            owners, streams = [each for each in release.clients if len(each)], seeds.child(number)
            trials = drawn(owners, non_members, streams.numpy("trials"), self.control_records)
            found.append(asked(release.view, release.clients, trials, known, context, streams))
        return merged(found)

    def _assumptions(self, sensitive: Sensitive, trials: Trials) -> tuple[str, ...]:
        persons = any(each.groups is not None for each in trials.members.values())
        lines = (
            sensitive.words,
            "that a record is the client's is known; the client's other records are not",
            "advantage: the smaller of the gains over the best guess without the message and over strangers of "
            "the same labels; sign-flips of pairs, the larger p-value of both",
        )
        return (*lines, "one record of each person is asked about") if persons else lines


def _released(sensitive: Sensitive) -> str:
    words = {
        "label": "with labels drawn anew",
        "columns": "and their own attribute",
        "record": "and an attribute planted in the place of theirs",
    }
    return f"{OWN_RELEASE}, {words[sensitive.carrier]}"
