"""The ledger: what counts once, what composes in parallel, and what makes a total infinite."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedassay.privacy.adjacency import Adjacency
from fedassay.privacy.gaussian import epsilon_of
from fedassay.privacy.ledger import account, exact_fields, ledger_rows, warnings_of
from fedassay.release import PrivacyClaim, PrivacyTarget, Release, derived, exact, public
from fedassay.transcript import Message, MessageField, Transcript

DELTA = 1e-5


def _gaussian(
    mu: float | tuple[float, ...],
    adjacency: Adjacency = "replace_one_same_label",
    group: str | None = None,
    stated: float | None = None,
) -> Release:
    mus = mu if isinstance(mu, tuple) else (mu,)
    cells = ("all",) if len(mus) == 1 else tuple(f"class/{i}" for i in range(len(mus)))
    return Release(
        mechanism="gaussian",
        adjacency=adjacency,
        group=group,
        cells=cells,
        noise_scale=tuple(2.0 for _ in mus),
        sensitivity=tuple(2.0 * value for value in mus),
        stated_sensitivity=None if stated is None else tuple(stated for _ in mus),
    )


def _field(release: Release) -> MessageField:
    return MessageField(np.zeros(3), "other", release)


def _transcript(*clients: dict[str, Release], rounds: int = 1) -> Transcript:
    messages = tuple(
        Message(number, f"client/{i}", "server", {name: _field(release) for name, release in fields.items()})
        for number in range(rounds)
        for i, fields in enumerate(clients)
    )
    return Transcript("test", 3, messages)


def _mu(transcript: Transcript, adjacency: Adjacency = "replace_one_same_label") -> float | None:
    return account(transcript, adjacency, DELTA).mu


def test_fields_of_one_message_compose() -> None:
    assert _mu(_transcript({"a": _gaussian(0.3), "b": _gaussian(0.4)})) == pytest.approx(0.5)


def test_a_joint_release_counts_once() -> None:
    joint = {"a": _gaussian(0.3, group="g"), "b": _gaussian(0.3, group="g")}
    assert _mu(_transcript(joint)) == pytest.approx(0.3)


def test_rounds_compose_even_of_one_group() -> None:
    assert _mu(_transcript({"a": _gaussian(0.3, group="g")}, rounds=4)) == pytest.approx(0.6)


def test_clients_compose_in_parallel() -> None:
    assert _mu(_transcript({"a": _gaussian(0.3)}, {"a": _gaussian(0.4)})) == pytest.approx(0.4)


def test_classes_compose_in_parallel_where_the_label_stays() -> None:
    per_class = _transcript({"a": _gaussian((0.3, 0.4, 0.1))})
    assert _mu(per_class) == pytest.approx(0.4)
    assert _mu(_transcript({"a": _gaussian((0.3, 0.4), "add_remove")}), "add_remove") == pytest.approx(0.4)


def test_a_record_that_moves_changes_two_classes() -> None:
    moving = _transcript({"a": _gaussian((0.3, 0.4, 0.1), "replace_one")})
    assert _mu(moving, "replace_one") == pytest.approx(0.5)


def test_whole_client_and_class_releases_add_up() -> None:
    both = _transcript({"a": _gaussian((0.3, 0.1)), "b": _gaussian(0.4)})
    assert _mu(both) == pytest.approx(0.5)


def test_epsilon_is_the_exact_one() -> None:
    found = account(_transcript({"a": _gaussian(1.0)}), "replace_one_same_label", DELTA)
    assert found.epsilon == pytest.approx(epsilon_of(1.0, DELTA), rel=1e-9)


@pytest.mark.parametrize(
    ("adjacency", "depends_on", "breaks"),
    [
        ("add_remove", "labels", True),
        ("replace_one", "labels", True),
        ("replace_one_same_label", "labels", False),
        ("add_remove", "records", True),
        ("replace_one_same_label", "records", True),
    ],
)
def test_an_exact_field_is_unbounded_unless_the_adjacency_makes_it_public(
    adjacency: Adjacency, depends_on: str, breaks: bool
) -> None:
    counts = exact(depends_on)  # type: ignore[arg-type]
    transcript = _transcript({"counts": counts, "a": _gaussian(0.1, adjacency)})
    found = account(transcript, adjacency, DELTA)
    assert (found.epsilon == math.inf) == breaks
    assert exact_fields(transcript, adjacency) == (("counts",) if breaks else ())
    row = next(row for row in ledger_rows(transcript, adjacency) if row.field == "counts")
    assert row.exact
    assert row.public_under_adjacency != breaks


def test_public_and_derived_fields_cost_nothing() -> None:
    assert _mu(_transcript({"a": _gaussian(0.2), "b": public(), "c": derived()})) == pytest.approx(0.2)


def test_conversion_between_adjacencies() -> None:
    removal = _transcript({"a": _gaussian(0.2, "add_remove")})
    assert _mu(removal, "replace_one") == pytest.approx(0.4)
    assert _mu(_transcript({"a": _gaussian(0.2, "replace_one")})) == pytest.approx(0.2)
    # Nothing about adding a record follows from replacing one.
    assert account(_transcript({"a": _gaussian(0.2, "replace_one")}), "add_remove", DELTA).epsilon == math.inf
    assert account(_transcript({"a": _gaussian(0.2)}), "replace_one", DELTA).epsilon == math.inf


def test_stated_sensitivity_has_its_own_column() -> None:
    found = account(_transcript({"a": _gaussian(0.5, stated=2.0)}), "replace_one_same_label", DELTA)
    assert found.epsilon == pytest.approx(epsilon_of(0.5, DELTA))
    assert found.epsilon_stated == pytest.approx(epsilon_of(1.0, DELTA))


def test_no_noise_is_no_privacy() -> None:
    silent = Release(mechanism="gaussian", adjacency="add_remove", noise_scale=(0.0,), sensitivity=(1.0,))
    assert account(_transcript({"a": silent}), "add_remove", DELTA).epsilon == math.inf


def test_one_exact_message_among_noised_ones_is_named() -> None:
    transcript = _transcript({"a": _gaussian(0.1)}, {"a": exact()})
    assert account(transcript, "replace_one_same_label", DELTA).epsilon == math.inf
    row = ledger_rows(transcript, "replace_one_same_label")[0]
    assert row.mechanism == "gaussian+exact"
    assert row.messages == 2


def test_a_large_delta_is_warned_of() -> None:
    claim = PrivacyClaim(epsilon=1.0, delta=0.01, adjacency="add_remove", source="a test")
    transcript = Transcript("test", 3, _transcript({"a": _gaussian(0.1)}).messages, claim)
    target = PrivacyTarget(epsilon=1.0, delta=0.01, adjacency="add_remove")
    assert "smallest client (n = 200)" in warnings_of(transcript, target, 200)[0]
    small = claim.model_copy(update={"delta": 1e-5})
    assert warnings_of(Transcript("test", 3, transcript.messages, small), target, 200) == ()
