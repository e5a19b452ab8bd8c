"""Certificates keep the expected share of wrong vectors, whatever expected errors are worth."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedassay.audits.message import certified as of_audit
from fedassay.audits.message.certified import FALSE_DISCOVERIES, Recovered, certificate_metrics, fit
from fedassay.exchange.release import Release, exact
from fedassay.exchange.transcript import Message, MessageField
from fedassay.exchange.view import ThreatModel, View


def clients(number: int, rng: np.random.Generator, informative: float) -> list[Recovered]:
    """Clients whose vectors are all wrong or mostly right; expected errors say so as far as informative."""
    made = []
    for _ in range(number):
        size = int(rng.integers(1, 12))
        bad = rng.random() < 0.3
        errors = np.where(rng.random(size) < (0.8 if bad else 0.02), 0.5, 1e-6)
        expected = np.exp(informative * np.log(errors) + rng.normal(0, 1, size))
        made.append(Recovered(expected, errors))
    return made


@pytest.mark.long
@pytest.mark.parametrize("informative", [0.0, 0.1, 1.0])
def test_the_expected_share_of_wrong_vectors_is_kept(informative: float) -> None:
    rng = np.random.default_rng(0)
    shares = []
    for _ in range(150):
        certificate = fit(clients(12, rng, informative))
        (audited,) = clients(1, rng, informative)
        taken = certificate.certified(audited.expected)
        shares.append(float((audited.errors[taken] > 0.1).mean()) if taken.any() else 0.0)
    spread = float(np.std(shares)) / np.sqrt(len(shares))
    assert np.mean(shares) < FALSE_DISCOVERIES + 2 * spread


def test_expected_errors_that_say_something_certify_what_is_right() -> None:
    rng = np.random.default_rng(1)
    certificate = fit(clients(30, rng, 1.0))
    everything = clients(50, rng, 1.0)
    right = np.concatenate([certificate.certified(each.expected)[each.errors < 0.1] for each in everything])
    assert right.mean() > 0.8


def test_fewer_than_nine_clients_certify_nothing() -> None:
    perfect = [Recovered(np.full(4, 1e-9), np.full(4, 1e-9))] * 9
    assert fit(perfect).threshold == 1e-9
    assert fit(perfect[:8]).threshold < 0
    metrics = certificate_metrics(fit(perfect[:8]), perfect[:1])
    assert metrics["certified"].value is None
    assert "take 9 control clients" in metrics["certified"].reason


def test_what_was_certified_is_counted_with_an_interval() -> None:
    certificate = fit([Recovered(np.full(4, 1e-9), np.full(4, 1e-9))] * 9)
    audited = Recovered(np.array([1e-10, 1e-9, 0.5]), np.array([1e-9, 0.5, 0.5]))
    metrics = certificate_metrics(certificate, [audited])
    assert metrics["certified"].value == 2
    assert metrics["certified_wrong"].value == 0.5
    assert metrics["certified_wrong"].high is not None


def test_wrong_vectors_in_every_control_client_certify_nothing() -> None:
    assert fit([Recovered(np.array([1e-9]), np.array([0.5]))] * 20).threshold < 0


def test_the_share_of_wrong_vectors_has_an_interval_of_clients() -> None:
    """Forty wrong vectors of one client of ten say less than forty wrong ones among all clients'."""
    certificate = fit([Recovered(np.full(4, 1e-9), np.full(4, 1e-9))] * 9)
    right, wrong = (Recovered(np.full(40, 1e-10), np.full(40, error)) for error in (1e-9, 0.5))
    mixed = Recovered(np.full(40, 1e-10), np.where(np.arange(40) < 4, 0.5, 1e-9))
    one, all_ = (
        certificate_metrics(certificate, audited)["certified_wrong"]
        for audited in ([*[right] * 9, wrong], [mixed] * 10)
    )
    assert one.value == all_.value == pytest.approx(0.1)
    assert one.n == all_.n == 10
    assert one.high is not None
    assert all_.high is not None
    assert one.high > all_.high


def test_what_is_certified_is_a_clients_share_and_not_that_of_all_vectors() -> None:
    """One client in thirty is large and wrong: a thirtieth of the clients' share, a third of all vectors."""
    certificate = fit([Recovered(np.full(4, 1e-9), np.full(4, 1e-9))] * 9)
    small, large = Recovered(np.full(4, 1e-10), np.full(4, 1e-9)), Recovered(np.full(60, 1e-10), np.full(60, 0.5))
    nothing = Recovered(np.full(4, 0.9), np.full(4, 0.5))
    metrics = certificate_metrics(certificate, [*[small] * 28, large, nothing])
    assert metrics["certified"].value == 28 * 4 + 60
    wrong = metrics["certified_wrong"]
    assert wrong.value == pytest.approx(1 / 30)
    assert wrong.n == 30
    assert wrong.high is not None
    assert wrong.high < 0.3
    assert "clients" in wrong.reason


@pytest.mark.parametrize("sizes", [(1, 150), (150, 1, 1, 1), (1,) * 4, (3, 149, 2), (1,)])
def test_clients_of_any_sizes_have_an_interval(sizes: tuple[int, ...]) -> None:
    certificate = fit([Recovered(np.full(4, 1e-9), np.full(4, 1e-9))] * 9)
    for wrong in range(len(sizes)):
        audited = [
            Recovered(np.full(size, 1e-10), np.full(size, 0.5 if number == wrong else 1e-9))
            for number, size in enumerate(sizes)
        ]
        share = certificate_metrics(certificate, audited)["certified_wrong"]
        assert share.value is not None
        assert share.value == pytest.approx(1 / len(sizes))
        assert share.low is not None
        assert share.high is not None
        assert 0 <= share.low <= share.value <= share.high <= 1


@pytest.mark.parametrize("noised", [False, True])
def test_noised_messages_have_no_certificate(noised: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the control clients say: none of them sends the noise that the audited clients send."""
    gaussian = Release(mechanism="gaussian", adjacency="add_remove", noise_scale=(0.1,), sensitivity=(1.0,))
    fields = {"sums": MessageField(np.ones((2, 3)), "class_sums", gaussian if noised else exact())}
    context: Any = SimpleNamespace(
        view=View((Message(0, "client/0", "server", fields),), 2, ThreatModel()),
        data=SimpleNamespace(control=range(5)),
    )
    perfect = [Recovered(np.full(4, 1e-9), np.full(4, 1e-9))] * 12
    monkeypatch.setattr(of_audit, "encoder", lambda _: np.asarray)
    monkeypatch.setattr(of_audit, "_fitted", lambda *_: fit(perfect))
    monkeypatch.setattr(of_audit, "recovered", lambda *_: perfect[0])
    result: Any = SimpleNamespace(vectors=("some",))
    truths: Any = {"client/0": range(4)}
    metrics = of_audit.certified(result, truths, context)
    assert (metrics["certified"].value is None) == noised
    assert (metrics["certified_wrong"].value is None) == noised
    assert ("exchangeable" in metrics["certified_wrong"].reason) == noised
