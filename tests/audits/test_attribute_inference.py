"""Attributes of people: what a message adds is found, what anybody could have guessed is not."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from contexts import with_data
from people import CLASSES, context_of, people

from fedassay.attacks.attribute_likelihood import AttributeLikelihood
from fedassay.audits.attribute_inference.audit import AttributeInference
from fedassay.audits.attribute_inference.completions import Sensitive, carrying, planted
from fedassay.audits.attribute_inference.judging import Guessed
from fedassay.audits.attribute_inference.trials import drawn
from fedassay.contracts.attack import AttackResult, Knowledge, Note
from fedassay.contracts.audit import AttackedContext
from fedassay.data.records import joined
from fedassay.exchange.view import View
from fedassay.methods.baselines.raw_features import RawFeatures
from fedassay.methods.closed_forms.fedncm import FedNCM
from fedassay.methods.fedpft.method import FedPFT
from fedassay.records.record import Finding
from fedassay.support.errors import NotRunError
from fedassay.support.seeds import Seeds

Make = Callable[..., AttackedContext]


@pytest.fixture
def make(make_task: Any, make_context: Any) -> Make:
    def made(kind: Any, method: Any = None, **given: Any) -> AttackedContext:
        return context_of(make_task, make_context, method or FedNCM(), kind, **given)

    return made


def audited(context: AttackedContext) -> Finding:
    (finding,) = AttributeInference().assess(AttackResult("attribute_likelihood"), context)
    return finding


def value(finding: Finding, name: str) -> float:
    found = finding.metrics[name].value
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("kind", "method"),
    [("shift", FedNCM()), ("column", FedNCM()), ("label", FedNCM()), ("column", FedPFT(components=1))],
    ids=["carried by features", "a column", "the label", "a column, of mixtures"],
)
def test_what_a_message_adds_is_found(make: Make, kind: str, method: Any) -> None:
    finding = audited(make(kind, method, each=6))
    assert finding.verdict == "leak", finding.reason
    assert finding.harm is not None
    assert finding.harm.kind == "attributes"
    assert [control.role for control in finding.all_controls] == ["end_to_end", "negative"]
    assert value(finding, "attribute_advantage") > 0.1


def test_the_advantage_is_what_arithmetic_says(make: Make) -> None:
    """Of n records of a class, a sum tells how many have an attribute that parts them: guess the most."""
    n = 5
    finding = audited(make("shift", shift=12.0, clients=40, each=3 * n))
    majority = sum(math.comb(n, k) * max(k, n - k) for k in range(n + 1)) / (n * 2**n)
    told = finding.metrics["attribute_told"]
    assert told.n == 600
    # Records of one client and class are guessed alike: the cells are what the error is of.
    assert abs(value(finding, "attribute_told") - majority) < 4 * 0.5 / math.sqrt(120)
    assert abs(value(finding, "attribute_strangers") - 0.5) < 4 * 0.5 / math.sqrt(120)


def test_an_attribute_that_nothing_depends_on_is_not_told(make: Make) -> None:
    finding = audited(make("none"))
    assert finding.verdict == "no_leak_found", finding.reason
    assert finding.limit is not None
    assert 0 < finding.limit.value < 1
    assert finding.controls.positive is not None
    assert finding.controls.positive.caught


@pytest.mark.long
def test_what_features_tell_anybody_is_no_leak_of_large_sums(make: Make) -> None:
    """The planted correlation is there, and whoever has the image reads it off; the message adds nothing."""
    finding = audited(make("shift", clients=2, each=900))
    assert value(finding, "attribute_from_features") > 0.9
    assert value(finding, "attribute_imputed") < 0.6
    assert finding.verdict == "no_leak_found", finding.reason


def test_an_attribute_that_follows_from_the_rest_is_imputed(make: Make) -> None:
    """A column that is the copy of another one: guessed without any message, so that none adds to it."""
    context = make("column", each=6)

    def copied(records: Any) -> Any:
        features = np.concatenate(
            [records.features, 4.0 * records.attributes["sick"][:, None] + 0.1 * records.features[:, 1:2]], axis=1
        ).astype(np.float32)
        return replace(records, extract=lambda _images: features)

    known = Sensitive.of("sick", copied(context.data.attacker), CLASSES)
    others = copied(context.data.test)
    assert known.carrier == "columns"
    right = known.values[known.imputed(others).argmax(axis=1)] == known.truth(others)
    assert right.mean() > 0.99


def test_noise_hides_it(make: Make) -> None:
    finding = audited(make("shift", each=6, epsilon=0.5))
    assert finding.verdict == "no_leak_found", finding.reason


def test_a_message_that_teaches_of_people_in_general_is_no_leak() -> None:
    """As good with strangers, though better than imputation; or as good as imputation, though better than them."""
    rng = np.random.default_rng(0)
    good, fair = ((rng.random(400) < share).astype(float) for share in (0.9, 0.6))
    others = rng.permutation(good)
    taught = Guessed(good, fair, others, 1, Seeds(0))
    assert not taught.test.uncorrected
    assert taught.advantage < 0.05
    elsewhere = Guessed(good, others, fair, 1, Seeds(0))
    assert not elsewhere.test.uncorrected
    assert Guessed(good, fair, rng.permutation(fair), 1, Seeds(0)).test.rejects


def _broken(change: Callable[[Any], Any]) -> Callable[[View, Knowledge], AttackResult]:
    def run(view: View, knowledge: Knowledge) -> AttackResult:
        found = AttributeLikelihood().run(view, knowledge)
        return replace(found, scores={name: change(scores) for name, scores in found.scores.items()})

    return run


@pytest.mark.parametrize("kind", ["shift", "column", "label"])
@pytest.mark.parametrize(
    "change",
    [np.zeros_like, np.negative, lambda scores: np.random.default_rng(0).permutation(scores)],
    ids=["says nothing", "flipped", "of other records"],
)
def test_a_broken_attack_gives_no_clean_bill(make: Make, kind: str, change: Any) -> None:
    finding = audited(make(kind, each=6, attack=_broken(change)))
    assert finding.verdict == "inconclusive", finding.reason


def test_a_source_that_the_attack_gives_up_is_said(make: Make) -> None:
    result = AttackResult("attribute_likelihood", notes=("a limit", Note("model: none is there", "model")))
    told, left = AttributeInference().assess(result, make("column", each=6))
    assert (told.source, left.source) == ("messages", "model")
    assert (left.verdict, left.reason) == ("not_run", "model: none is there")


def test_persons_are_asked_about_once(make: Make) -> None:
    context = make("shift")
    owners = [
        replace(each, groups=np.arange(len(each)) // 5 + 100 * i) for i, each in enumerate(context.data.clients)
    ]
    unseen = replace(context.data.test, groups=10_000 + np.arange(len(context.data.test)))
    trials = drawn(owners, unseen, np.random.default_rng(0), 600)
    for owner in owners:
        groups = trials.members[owner.name].groups
        assert groups is not None
        assert len(np.unique(groups)) == len(groups) == 3
        assert (trials.members[owner.name].labels == trials.non_members[owner.name].labels).all()
    whole = joined("all", [*trials.non_members.values(), *trials.others.values()])
    assert whole.groups is not None
    assert len(np.unique(whole.groups)) == len(whole)


def test_carriers() -> None:
    rng = np.random.default_rng(0)
    for kind, name, carrier in (
        ("shift", "sick", "record"),
        ("column", "sick", "columns"),
        ("none", "sick", "record"),
        ("label", "label", "label"),
    ):
        own = people("attacker", 300, kind, rng)  # type: ignore[arg-type]
        found = Sensitive.of(name, own, CLASSES)
        assert found.carrier == carrier
        asked = own.take(np.arange(20))
        completions, places = found.completions(asked)
        assert places.shape == (20, len(found.values))
        true = np.searchsorted(found.values, found.truth(asked))
        whole = completions.take(places[np.arange(20), true])
        if carrier != "record":
            assert np.array_equal(whole.features, asked.features)
            assert np.array_equal(whole.labels, asked.labels)
        else:
            assert np.array_equal(whole.labels, asked.labels)
    assert not carrying(np.ones((10, 2)), np.arange(10) % 2).any()


def test_a_planted_attribute_is_told_by_no_more_than_the_carrier() -> None:
    rng = np.random.default_rng(0)
    for kind, name in (("label", "label"), ("none", "sick")):
        own, others = (people("some", 900, kind, rng) for _ in range(2))  # type: ignore[arg-type]
        known, (told,) = planted(Sensitive.of(name, own, CLASSES), [others], rng)
        guess = known.values[known.imputed(told).argmax(axis=1)]
        assert abs((guess == known.truth(told)).mean() - 1 / len(known.values)) < 0.07
        seen = known.values[known.from_features(told).argmax(axis=1)]
        assert ((seen == known.truth(told)).mean() > 0.75) == (kind == "none")


def test_features_that_are_sent_tell_columns(make: Make) -> None:
    assert audited(make("column", RawFeatures(), each=6)).verdict == "leak"


def test_what_cannot_be_asked_is_said(make: Make) -> None:
    context, audit, nothing = make("shift"), AttributeInference(), AttackResult("attribute_likelihood")
    none = tuple(replace(each, attributes={}) for each in context.data.clients)
    with pytest.raises(NotRunError, match="names no sensitive attribute"):
        audit.assess(nothing, with_data(context, clients=none))
    with pytest.raises(NotRunError, match=r"none of data\.attributes"):
        AttributeInference(attribute="age").assess(nothing, context)
    with pytest.raises(NotRunError, match="1 values"):
        audit.assess(nothing, with_data(context, attacker=context.data.attacker.take(np.arange(1))))
    with pytest.raises(NotRunError, match="two strangers") as caught:
        audit.assess(nothing, with_data(context, test=context.data.test.take(np.arange(6))))
    assert caught.value.why.role == "test"
    few = audit.assess(nothing, with_data(context, control=context.data.control.take(np.arange(0))))
    assert few[0].verdict == "inconclusive"
