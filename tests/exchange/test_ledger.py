"""The ledger: what counts once, what composes in parallel, and what makes a total infinite."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedassay.exchange import ledger
from fedassay.exchange.ledger import account, exact_fields, ledger_rows
from fedassay.exchange.privacy_unit import warnings_of
from fedassay.exchange.release import PrivacyClaim, PrivacyTarget, Release, derived, exact, public
from fedassay.exchange.transcript import Message, MessageField, Transcript
from fedassay.privacy.accounting import compose
from fedassay.privacy.events import Event
from fedassay.privacy.gaussian import epsilon_of
from fedassay.privacy.sensitivities import class_sums
from fedassay.support import limits
from fedassay.support.adjacency import Adjacency

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


def test_fields_of_one_group_with_other_noise_or_none_count_by_themselves() -> None:
    for_each = _transcript({"a": _gaussian(0.3, group="g"), "b": _gaussian(0.4, group="g")})
    assert _mu(for_each) == pytest.approx(0.5)
    hidden = exact().model_copy(update={"group": "g"})
    assert math.isinf(
        account(_transcript({"a": _gaussian(0.3, group="g"), "b": hidden}), "add_remove", DELTA).epsilon
    )
    noted = _gaussian(0.3, group="g").model_copy(update={"note": "half of it"})
    assert _mu(_transcript({"a": _gaussian(0.3, group="g"), "b": noted})) == pytest.approx(0.3)


@pytest.mark.parametrize("sender", ["server", "aggregate"])
def test_what_speaks_of_all_records_adds_to_every_clients_own(sender: str) -> None:
    clients = _transcript({"a": _gaussian((0.3, 0.1))}, {"a": _gaussian(0.1)})
    noised = Message(1, sender, "client/0", {"b": _field(_gaussian((0.4, 0.0)))})
    both = Transcript("test", 3, (*clients.messages, noised))
    assert _mu(both) == pytest.approx(0.5)
    assert _mu(Transcript("test", 3, (noised,))) == pytest.approx(0.4)


@pytest.mark.parametrize("cells", [(), ("even", "odd"), ("class/0", "class/0"), ("class/00",)])
def test_cells_that_the_accountant_does_not_know_are_refused(cells: tuple[str, ...]) -> None:
    many = tuple(1.0 for _ in cells)
    with pytest.raises(ValueError, match="cells must be"):
        Release(
            mechanism="gaussian",
            adjacency="replace_one_same_label",
            cells=cells,
            noise_scale=many,
            sensitivity=many,
        )


def test_clients_compose_in_parallel() -> None:
    assert _mu(_transcript({"a": _gaussian(0.3)}, {"a": _gaussian(0.4)})) == pytest.approx(0.4)


def test_classes_compose_in_parallel_where_the_label_stays() -> None:
    per_class = _transcript({"a": _gaussian((0.3, 0.4, 0.1))})
    assert _mu(per_class) == pytest.approx(0.4)
    assert _mu(_transcript({"a": _gaussian((0.3, 0.4), "add_remove")}), "add_remove") == pytest.approx(0.4)


def test_a_record_that_moves_changes_two_classes() -> None:
    moving = _transcript({"a": _gaussian((0.3, 0.4, 0.1), "replace_one")})
    assert _mu(moving, "replace_one") == pytest.approx(0.5)


def test_thousands_of_classes_are_added_up_as_few_are() -> None:
    mus = tuple(0.001 * (1 + number % 977) for number in range(5000))
    many = _transcript({"a": _gaussian(mus, "replace_one")})
    assert _mu(many, "replace_one") == pytest.approx(math.sqrt(2) * max(mus))
    own = tuple(float(value) for value in mus)
    pure = Release(
        mechanism="pure",
        adjacency="add_remove",
        cells=tuple(f"class/{number}" for number in range(len(own))),
        pure_epsilon=own,
    )
    assert account(_transcript({"a": pure}), "add_remove", DELTA).epsilon == pytest.approx(max(own))


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
        ("add_remove", "size", True),
        ("replace_one", "size", False),
        ("replace_one_same_label", "size", False),
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


def test_noise_that_is_next_to_none_is_counted() -> None:
    tiny = _transcript({"a": _gaussian((1e300, 1e-300), "replace_one")})
    assert account(tiny, "replace_one", DELTA).epsilon == math.inf


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
    assert "largest client (n = 200)" in warnings_of(transcript, target, 200)[0]
    small = claim.model_copy(update={"delta": 1e-5})
    assert warnings_of(Transcript("test", 3, transcript.messages, small), target, 200) == ()


def _per_class(sensitivity: float, adjacency: Adjacency, classes: int = 3) -> Transcript:
    release = Release(
        mechanism="gaussian",
        adjacency=adjacency,
        cells=tuple(f"class/{i}" for i in range(classes)),
        noise_scale=(1.0,) * classes,
        sensitivity=(sensitivity,) * classes,
    )
    return _transcript({"a": release})


def test_a_record_replaced_within_its_class_may_weigh_more_than_one_that_moves() -> None:
    """Weights (.01, 1, 1) on (count, sum, second moment): 2.12 within a class, 2.00 from class to class."""
    weights = (0.01, 1.0, 1.0)

    def exact_mu(adjacency: Adjacency) -> float:
        return class_sums(2, adjacency=adjacency, classes=3, weights=weights).sensitivity

    within, moving, once = exact_mu("replace_one_same_label"), exact_mu("replace_one"), exact_mu("add_remove")
    assert math.sqrt(2) * once < within == moving == pytest.approx(math.sqrt(4.5))
    # One release over the whole client is exact.
    whole = _transcript({"a": _gaussian(moving, "replace_one")})
    assert _mu(whole, "replace_one") == pytest.approx(within)
    # Declared cell by cell for add_remove, the worse of both kinds of replacement counts: twice in one cell.
    by_class = _per_class(once, "add_remove")
    assert _mu(by_class, "replace_one") == pytest.approx(2 * once)
    assert _mu(by_class, "replace_one_same_label") == pytest.approx(2 * once)
    assert _mu(by_class, "add_remove") == pytest.approx(once)
    assert 2 * once >= within
    # Declared for replace_one, a cell's sensitivity covers both kinds, and two cells may move that far.
    assert _mu(_per_class(within, "replace_one"), "replace_one") == pytest.approx(math.sqrt(2) * within)
    assert _mu(_per_class(within, "replace_one", classes=1), "replace_one") == pytest.approx(within)


def test_a_record_that_moves_is_removed_here_and_added_there() -> None:
    """Cells of unequal noise: 2 mu within the worst one, against hypot of the two worst ones."""
    unequal = _transcript({"a": _gaussian((0.3, 0.4, 0.1), "add_remove")})
    assert _mu(unequal, "replace_one") == pytest.approx(0.8)
    # A release over the whole client is hit by removal and addition alike.
    both = _transcript({"a": _gaussian((0.3, 0.3), "add_remove"), "b": _gaussian(0.1, "add_remove")})
    assert _mu(both, "replace_one") == pytest.approx(math.hypot(0.6, 0.2))


@settings(max_examples=60, deadline=None)
@given(
    mus=st.lists(st.floats(0.01, 3), min_size=1, max_size=5),
    made_for=st.sampled_from(["add_remove", "replace_one"]),
)
def test_accounting_never_falls_below_any_neighbour(mus: list[float], made_for: Adjacency) -> None:
    """Whatever a record does under replace_one, the total covers it; and same-label changes are no worse."""
    transcript = _transcript(
        {"a": _gaussian(tuple(mus), made_for) if len(mus) > 1 else _gaussian(mus[0], made_for)}
    )
    total = _mu(transcript, "replace_one")
    assert total is not None
    reach = 2.0 if made_for == "add_remove" else 1.0
    assert total >= reach * max(mus) * (1 - 1e-12)
    if len(mus) > 1:
        first, second = sorted(mus)[-2:]
        assert total >= math.hypot(first, second) * (1 - 1e-12)
    same = _mu(transcript, "replace_one_same_label")
    assert same is not None
    assert same <= total * (1 + 1e-12)
    assert same == pytest.approx(reach * max(mus))


def test_pure_releases_by_class_move_in_two_classes() -> None:
    pure = Release(mechanism="pure", adjacency="add_remove", cells=("class/0", "class/1"), pure_epsilon=(0.3, 0.2))
    assert account(_transcript({"a": pure}), "replace_one", DELTA).epsilon == pytest.approx(0.6)
    assert account(_transcript({"a": pure}), "add_remove", DELTA).epsilon == pytest.approx(0.3)


def test_a_published_mechanism_under_add_remove_is_unbounded_and_says_why() -> None:
    """Means by class, for label-preserving replacement, asked about added records: nothing follows."""
    means = _gaussian((0.1, 0.2), "replace_one_same_label")
    found = account(_transcript({"means": means}), "add_remove", DELTA)
    assert found.epsilon == math.inf
    assert found.exact_fields == ()
    assert "released under replace_one_same_label, asked add_remove" in found.reason
    with_counts = account(_transcript({"means": means, "counts": exact("labels")}), "add_remove", DELTA)
    assert with_counts.reason == "sent exactly: counts"


@pytest.mark.parametrize(("secure", "expected"), [(True, 0.5), (False, 1.0)])
def test_a_share_of_noise_protects_only_inside_the_secure_sum(secure: bool, expected: float) -> None:
    """Each of four senders adds half of the deviation; who sees one message alone sees that half."""
    release = _gaussian(0.5).model_copy(update={"shares": 4})
    field = MessageField(np.zeros(3), "other", release, additive=True, secure=secure)
    clients = [Message(0, f"client/{number}", "server", {"sums": field}) for number in range(4)]
    claim = PrivacyClaim(epsilon=1.0, delta=1e-5, adjacency=release.adjacency, source="a test")
    total = account(Transcript("made up", 2, tuple(clients), claim), release.adjacency, 1e-5)
    assert total.mu == pytest.approx(expected)


def _sgd(noise: float, rate: float, steps: int = 5) -> Release:
    return Release(
        mechanism="dp_sgd",
        adjacency="add_remove",
        noise_multiplier=noise,
        sampling_rate=rate,
        steps=steps,
        cells=("all",),
    )


def test_clients_that_differ_in_one_number_of_dp_sgd_take_one_composition(monkeypatch: pytest.MonkeyPatch) -> None:
    composed = _work(monkeypatch)
    total = account(_transcript(*({"a": _sgd(2.0, 0.01 + i * 1e-5)} for i in range(300))), "add_remove", DELTA)
    assert len(composed) == 1
    assert total.epsilon == account(_transcript({"a": _sgd(2.0, 0.01 + 299 * 1e-5)}), "add_remove", DELTA).epsilon


@pytest.mark.parametrize("release", [exact, lambda: _gaussian(0.3), lambda: _sgd(0.0, 0.1)])
def test_thousands_of_clients_without_a_guarantee_are_infinite_with_their_own_reason(
    release: Callable[[], Release],
) -> None:
    clients = [{"a": release(), f"own{i}": exact()} for i in range(2100)]
    found = account(_transcript(*clients), "add_remove", DELTA)
    assert math.isinf(found.epsilon)
    assert found.reason.startswith("sent exactly: ")


@pytest.mark.long
def test_thousands_of_clients_whose_noise_differs_are_those_of_the_least_noise() -> None:
    clients = [{"a": _gaussian(0.3 + i * 1e-5, "add_remove")} for i in range(2100)]
    assert _mu(_transcript(*clients), "add_remove") == pytest.approx(0.3 + 2099 * 1e-5)
    classes = [{"a": _gaussian((0.3 + i * 1e-5, 0.4 - i * 1e-5), "add_remove")} for i in range(2100)]
    assert _mu(_transcript(*classes), "add_remove") == pytest.approx(0.4)


def _pure(*epsilons: float) -> Release:
    cells = ("all",) if len(epsilons) == 1 else tuple(f"class/{i}" for i in range(len(epsilons)))
    return Release(mechanism="pure", adjacency="add_remove", cells=cells, pure_epsilon=epsilons)


def test_thousands_of_clients_of_unlike_pure_epsilons_are_those_of_the_largest() -> None:
    clients = [{"a": _pure(0.1 + i * 1e-5), "b": _gaussian(0.2 + i * 1e-5, "add_remove")} for i in range(2100)]
    total = account(_transcript(*clients), "add_remove", DELTA).epsilon
    assert total == account(_transcript(clients[-1]), "add_remove", DELTA).epsilon


def _work(monkeypatch: pytest.MonkeyPatch) -> list[list[Event]]:
    composed: list[list[Event]] = []
    monkeypatch.setattr(ledger, "compose", lambda events, delta: composed.append(events) or compose(events, delta))
    return composed


@pytest.mark.long
def test_clients_of_which_none_is_the_worst_in_all_are_searched_not_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As many epochs and as large a batch for every client: those with fewer records take fewer, larger steps."""
    clients = [{"a": _sgd(2.0, 16 / size, steps=size // 4)} for size in range(400, 2800)]
    composed = _work(monkeypatch)
    total = account(_transcript(*clients), "add_remove", DELTA).epsilon
    assert len(composed) <= 2 * limits.COMPOSITIONS + 1
    some = [account(_transcript(client), "add_remove", DELTA).epsilon for client in clients[::200]]
    assert max(some) <= total <= 1.05 * max(some)


@pytest.mark.long
def test_what_is_found_is_the_largest_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    drawn = rng.uniform(0.05, 0.6, (12, 2)).round(2).tolist()
    clients = [{"a": _gaussian(mu, "add_remove"), "b": _pure(pure)} for mu, pure in drawn]
    each = [account(_transcript(client), "add_remove", DELTA).epsilon for client in clients]
    assert account(_transcript(*clients), "add_remove", DELTA).epsilon == max(each)
    monkeypatch.setattr(limits, "COMPOSITIONS", 1)
    bound = account(_transcript(*clients), "add_remove", DELTA)
    assert max(each) <= bound.epsilon
    assert "neighbouring clients" in bound.reason


@pytest.mark.long
def test_classes_of_which_none_is_the_worst_are_bounded_not_refused() -> None:
    """A thousand classes, each with a pure epsilon and a mu of its own that trade off."""
    steps = [0.1 + i * 1e-4 for i in range(1000)]
    both = _transcript({"a": _pure(*steps), "b": _gaussian(tuple(steps[::-1]), "add_remove")})
    total = account(both, "replace_one", DELTA).epsilon

    def alone(pure: float, mu: float) -> float:
        one = _transcript({"a": _pure(pure, pure), "b": _gaussian((mu, mu), "add_remove")})
        return account(one, "replace_one", DELTA).epsilon

    assert max(alone(0.1, 0.2), alone(0.2, 0.1)) <= total <= alone(0.2, 0.2)
