"""Arrays that were turned, flattened, packed, stacked or joined before they were sent."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from exchange.test_inference import CLASSES, WIDTH, Arrays, _backpropagated, _found, _records, _transcript

from fedassay.exchange.inference.infer import infer_kinds, with_inferred
from fedassay.exchange.inference.layouts import Piece, lower_of_upper
from fedassay.exchange.kinds import FieldKind
from fedassay.exchange.release import PrivacyClaim, derived
from fedassay.exchange.transcript import SERVER, Message, MessageField, Transcript
from fedassay.mixtures.packed import pack_lower

Lay = Callable[[Arrays], Arrays]


def _statistics(size: int, seed: int, dtype: type) -> Arrays:
    features, labels = _records(size, seed)
    member = np.eye(CLASSES)[labels].T
    own = [features[labels == label] for label in range(CLASSES)]
    arrays = {
        "f": features,
        "n": member.sum(axis=1),
        "a": member @ features,
        "g": features.T @ features,
        "s": np.array([each.T @ each for each in own]),
        "q": np.array([(each**2).sum(axis=0) for each in own]),
    }
    return {name: values.astype(dtype) for name, values in arrays.items()} | {"y": labels}


def _upper(matrices: np.ndarray) -> np.ndarray:
    rows, columns = np.triu_indices(WIDTH)
    return matrices[..., rows, columns]


SUMS_AND_GRAM: dict[str, Lay] = {
    "turned": lambda s: {"1": s["a"].T, "2": s["g"]},
    "a square in one row": lambda s: {"1": s["a"], "2": s["g"].ravel()},
    "upper triangle": lambda s: {"1": s["a"], "2": _upper(s["g"])},
    "both in one row each": lambda s: {"1": s["a"].T.ravel(), "2": pack_lower(s["g"])},
    "one above the other": lambda s: {"1": np.vstack([s["a"], s["g"]])},
    "side by side": lambda s: {"1": np.hstack([s["g"], s["a"].T])},
    "sides of one": lambda s: {"1": s["a"][:, None], "2": s["g"][None]},
    "joined": lambda s: {"1": np.concatenate([_upper(s["g"]), s["a"].ravel()])},
    "joined with counts": lambda s: {"1": np.concatenate([s["n"], s["a"].T.ravel(), s["g"].ravel()])},
    "counts in a column": lambda s: {"1": np.column_stack([s["a"], s["n"]]), "2": pack_lower(s["g"])},
    "beside a stranger": lambda s: {
        "1": s["a"].T,
        "2": _upper(s["g"]),
        "3": np.cos(np.arange(35.0)).reshape(7, 5),
    },
    "beside a loss": lambda s: {"1": s["a"], "2": s["g"], "3": np.array([0.3])},
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("size", [12, 60, 300])
@pytest.mark.parametrize("how", [how for how in SUMS_AND_GRAM if how != "joined"])
def test_sums_and_their_gram_matrix_however_they_lie(how: str, size: int, dtype: type) -> None:
    _holds_sums_and_gram(how, size, dtype)


@pytest.mark.parametrize("size", [12, 300])
def test_a_joined_table_is_read_by_rows_or_columns_only_where_something_tells(size: int) -> None:
    """Of 12 records the rank does; of 300 records, with features that are all alike, nothing."""
    if size == 12:
        _holds_sums_and_gram("joined", size, np.float64)
        return
    messages = [SUMS_AND_GRAM["joined"](_statistics(size + 3 * seed, seed, np.float64)) for seed in range(3)]
    (found,) = infer_kinds(_transcript(messages))
    assert found.status == "unknown"
    assert "no number tells which" in found.text


def _holds_sums_and_gram(how: str, size: int, dtype: type) -> None:
    messages = [SUMS_AND_GRAM[how](_statistics(size + 3 * seed, seed, dtype)) for seed in range(3)]
    transcript = _transcript(messages)
    read = next(iter(with_inferred(transcript, infer_kinds(transcript)).from_clients()))
    held = {item.kind: item.values for item in read.fields.values()}
    assert {"class_sums", "second_moment"} <= set(held)
    assert set(held) <= {"class_sums", "second_moment", "class_counts", "other"}
    truth = _statistics(size, 0, dtype)
    assert np.array_equal(held["class_sums"], truth["a"])
    whole = held["second_moment"]
    assert np.array_equal(whole, truth["g"] if whole.ndim == 2 else pack_lower(truth["g"]))


CLASS_WISE: dict[str, Lay] = {
    "in one row each": lambda s: {"1": s["n"], "2": s["a"], "3": s["s"].reshape(CLASSES, -1)},
    "one below the other": lambda s: {"1": s["n"], "2": s["a"].T, "3": s["s"].reshape(-1, WIDTH)},
    "the last axis": lambda s: {"1": s["n"], "2": s["a"], "3": np.moveaxis(s["s"], 0, -1)},
    "all in rows": lambda s: {"1": np.column_stack([s["n"], s["a"], _upper(s["s"])])},
    "all in one row": lambda s: {"1": np.concatenate([s["n"], s["a"].ravel(), s["s"].ravel()])},
    "squares stacked": lambda s: {"1": s["n"], "2": np.stack([s["a"], s["q"]])},
    "squares side by side": lambda s: {"1": s["n"], "2": np.hstack([s["a"], s["q"]])},
    "squares and counts": lambda s: {"1": np.column_stack([s["n"], s["a"], s["q"]])},
}


@pytest.mark.parametrize("how", CLASS_WISE)
def test_class_wise_statistics_however_they_lie(how: str) -> None:
    messages = [CLASS_WISE[how](_statistics(60 + 3 * seed, seed, np.float32)) for seed in range(3)]
    kinds = {each.reading.kind for each in infer_kinds(_transcript(messages))}
    assert kinds == {"class_counts", "class_sums", "class_second_moments"}


@pytest.mark.parametrize("how", ["column", "one hot", "turned"])
def test_features_and_labels_however_they_lie(how: str) -> None:
    messages = []
    for seed in range(3):
        s = _statistics(20 + 9 * seed, seed, np.float32)
        x, y = s["f"], s["y"]
        messages.append(
            {
                "column": {"1": np.column_stack([x, y]).astype(np.float32)},
                "one hot": {"1": x, "2": np.eye(CLASSES)[y]},
                "turned": {"1": x.T, "2": y},
            }[how]
        )
    transcript = _transcript(messages)
    read = next(iter(with_inferred(transcript, infer_kinds(transcript)).from_clients()))
    held = {item.kind: item.values for item in read.fields.values()}
    truth = _statistics(20, 0, np.float32)
    assert np.array_equal(held["features"], truth["f"])
    assert np.array_equal(held["labels"], truth["y"])


GRADIENTS: dict[str, Lay] = {
    "one row": lambda g: {"1": np.concatenate([g[name].ravel() for name in "abcd"])},
    "offsets first": lambda g: {"1": np.concatenate([g[name].ravel() for name in "badc"])},
    "kernels by inputs": lambda g: {"1": np.concatenate([g[name].T.ravel() for name in "abcd"])},
    "turned": lambda g: {name: values.T for name, values in g.items()},
    "offsets in a column": lambda g: {
        "1": np.column_stack([g["a"], g["b"]]),
        "2": np.column_stack([g["c"], g["d"]]),
    },
}


@pytest.mark.parametrize("how", GRADIENTS)
def test_a_gradient_however_it_lies(how: str) -> None:
    gradients = [_backpropagated(3, seed) for seed in range(3)]
    transcript = _transcript([GRADIENTS[how](each) for each in gradients])
    read = next(iter(with_inferred(transcript, infer_kinds(transcript)).from_clients()))
    arrays = [item.values for item in read.fields.values() if item.kind == "gradient"]
    assert len(arrays) == 4
    for mine, name in zip(arrays, "abcd", strict=True):
        assert np.array_equal(mine, gradients[0][name]), name


def test_the_model_that_the_server_sent_is_cut_like_the_gradient() -> None:
    gradient = _backpropagated(3, 0)
    row = {"1": np.concatenate([gradient[name].ravel() for name in "abcd"])}
    down = {"1": MessageField(row["1"] + 1, "parameters", derived(answers=False))}
    sent = _transcript([row])
    both = Transcript("captured", CLASSES, (Message(0, SERVER, "client/0", down), *sent.messages))
    read = with_inferred(both, infer_kinds(both)).messages
    assert [item.shape for item in read[0].fields.values()] == [item.shape for item in read[1].fields.values()]
    assert {item.kind for item in read[0].fields.values()} == {"parameters"}


def test_numbers_that_were_rounded_before_are_of_the_type_they_were_rounded_to() -> None:
    s = _statistics(12, 0, np.float32)
    transcript = _transcript([{"1": s["a"].astype(np.float64), "2": s["g"].astype(np.float64)}])
    read = with_inferred(transcript, infer_kinds(transcript)).messages[0].fields
    assert {item.dtype.name for item in read.values()} == {"float32"}
    assert np.array_equal(read["2"].values, s["g"])


def test_a_claim_for_a_field_covers_the_parts_it_is_cut_into() -> None:
    s = _statistics(12, 0, np.float64)
    plain = _transcript([{"1": np.vstack([s["a"], s["g"]])}])
    claim = PrivacyClaim(epsilon=1, delta=1e-5, adjacency="add_remove", covers=("1",), source="made up")
    changed = with_inferred(Transcript("captured", CLASSES, plain.messages, claim), infer_kinds(plain))
    assert isinstance(changed.claim, PrivacyClaim)
    assert set(changed.messages[0].fields) < set(changed.claim.covers)


@pytest.mark.parametrize("seed", range(12))
def test_networks_however_they_lie_are_none_of_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    net = {
        "a": rng.normal(size=(40, 30)) / 5,
        "b": rng.normal(size=40),
        "c": rng.normal(size=(CLASSES, 40)) / 6,
        "d": rng.normal(size=CLASSES),
    }
    for lay in GRADIENTS.values():
        found = _found([lay(net)], **dict.fromkeys([*"abcd"], "parameters"))
        assert {each.read_as for each in found.values()} <= {None, "parameters"}


@pytest.mark.parametrize("seed", range(30))
def test_arrays_of_any_shapes_are_read_without_an_error(seed: int) -> None:
    """Sides are drawn from those that statistics have, so that most pairs of arrays fit one another by chance."""
    rng = np.random.default_rng(seed)
    sides = (1, 2, CLASSES, WIDTH, WIDTH + 1, 2 * WIDTH, WIDTH * (WIDTH + 1) // 2, 12)
    messages = [
        {
            str(place): _values(rng, tuple(rng.choice(sides, size=rng.integers(0, 4))))
            for place in range(rng.integers(1, 6))
        }
        for _ in range(2)
    ]
    transcript = _transcript(messages)
    told = {each.read_as for each in infer_kinds(transcript)}
    strong: set[FieldKind] = {
        "class_second_moments",
        "second_moment",
        "gradient",
        "ridge_weights",
        "regularised_gram",
    }
    assert not told & strong
    with_inferred(transcript, infer_kinds(transcript))


def _values(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    values = rng.normal(size=shape)
    return values if rng.random() < 0.7 else np.abs(np.rint(5 * values))


def test_upper_triangles_become_lower_ones() -> None:
    matrices = np.random.default_rng(0).normal(size=(3, WIDTH, WIDTH))
    matrices = matrices + matrices.transpose(0, 2, 1)
    assert np.array_equal(lower_of_upper(_upper(matrices)), pack_lower(matrices))
    with pytest.raises(ValueError, match="7 entries are no triangle"):
        Piece(order="upper").of(np.zeros(7))


def test_a_gradient_that_lies_as_it_should_is_not_cut() -> None:
    """Nor where a number of records stands beside it, which no rule reads."""
    messages = [_backpropagated(3, seed) | {"records": np.array([3])} for seed in range(2)]
    found = infer_kinds(_transcript(messages, **dict.fromkeys("abcd", "gradient")))
    assert [each.field for each in found] == [*"abcd", "records"]
    assert all(each.as_sent for each in found)


def _spherical(seed: int) -> Arrays:
    """Mixtures of two components a class, each with one variance."""
    rng = np.random.default_rng(seed)
    shares = rng.uniform(0.2, 0.8, CLASSES).astype(np.float16)
    return {
        "classes": np.arange(CLASSES, dtype=np.int32),
        "counts": rng.integers(20, 60, CLASSES).astype(np.int32),
        "components": np.full(CLASSES, 2, dtype=np.int32),
        "weights": np.stack([shares, 1 - shares], axis=1).ravel().astype(np.float16),
        "means": rng.normal(size=(2 * CLASSES, WIDTH)).astype(np.float32),
        "variances": rng.uniform(0.1, 2, (2 * CLASSES, 1)).astype(np.float16),
    }


@pytest.mark.parametrize("turned", [False, True])
def test_variances_in_a_column_are_no_table_of_variances(turned: bool) -> None:
    """Read as a table they made a message that cannot be, and nothing was attacked or said."""
    messages = [_spherical(seed) for seed in range(3)]
    for each in messages:
        each["means"] = each["means"].T if turned else each["means"]
    transcript = _transcript(messages)
    read = next(iter(with_inferred(transcript, infer_kinds(transcript)).from_clients()))
    kinds = {name: item.kind for name, item in read.fields.items()}
    assert kinds["means"] == "mixture_means"
    assert kinds["variances"] == "mixture_covariances"
    assert kinds["counts"] == "class_counts"
    assert read.fields["variances"].shape == (2 * CLASSES,)


@pytest.mark.parametrize("turned", [(), ("means",), ("variances",), ("means", "variances")])
def test_every_field_may_lie_otherwise_at_once(turned: tuple[str, ...]) -> None:
    """Tables turned and rows as columns: more cuts than are tried field by field."""
    messages = []
    for seed in range(3):
        each = _spherical(seed)
        rng = np.random.default_rng(seed)
        each["variances"] = rng.uniform(0.1, 2, (2 * CLASSES, WIDTH)).astype(np.float16)
        messages.append(
            {name: a.T if name in turned else a if a.ndim == 2 else a[:, None] for name, a in each.items()}
        )
    transcript = _transcript(messages)
    read = next(iter(with_inferred(transcript, infer_kinds(transcript)).from_clients()))
    assert {name: item.kind for name, item in read.fields.items()} == {
        "classes": "class_ids",
        "counts": "class_counts",
        "components": "component_counts",
        "weights": "mixture_weights",
        "means": "mixture_means",
        "variances": "mixture_covariances",
    }


@pytest.mark.parametrize("types", [(np.float16, np.float32), (np.float32, np.float16), (np.float32, np.float64)])
def test_parts_of_one_row_were_rounded_each_in_its_own_type(types: tuple[type, type]) -> None:
    """A Gram matrix that was rounded coarser than the sums that it was joined with is no less symmetric."""
    messages = []
    for seed in range(3):
        truth = _statistics(12 + 3 * seed, seed, np.float64)
        gram, sums = pack_lower(truth["g"]).astype(types[0]), truth["a"].astype(types[1])
        messages.append({"1": np.concatenate([gram.astype(np.float64), sums.astype(np.float64).ravel()])})
    transcript = _transcript(messages)
    read = next(iter(with_inferred(transcript, infer_kinds(transcript)).from_clients()))
    held = {item.kind: item for item in read.fields.values()}
    assert set(held) == {"second_moment", "class_sums"}
    assert held["second_moment"].dtype == types[0]


def test_a_message_that_cannot_be_is_said_and_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a reader takes arrays for: nothing is attacked in silence, or not attacked in silence."""
    messages = [SUMS_AND_GRAM["turned"](_statistics(60, seed, np.float64)) for seed in range(3)]
    monkeypatch.setattr("fedassay.exchange.inference.infer.shape_problem", lambda *_: "the table is too wide")
    found = infer_kinds(_transcript(messages))
    assert {each.status for each in found} == {"unknown"}
    assert {each.read_as for each in found} == {None}
    assert all("cannot be: the table is too wide" in each.text for each in found)
