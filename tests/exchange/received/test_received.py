"""What a client finds of what a server sent it: traps are found, and honest broadcasts are not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from numpy.typing import NDArray
from safetensors.numpy import save_file
from torch import nn

from fedassay.backbones.base import renewed
from fedassay.cli import cli
from fedassay.contracts.method import MethodInput
from fedassay.exchange.public_map import fourier_features, projection, separating_bandwidth
from fedassay.exchange.received.check import Checked, check_received
from fedassay.exchange.received.features import check_features
from fedassay.exchange.received.layers import alone, parallel_rows
from fedassay.exchange.received.reading import read_own, read_received
from fedassay.methods.shared.local_networks import to_inputs
from fedassay.nets.bodies import BodySpec, build_body
from fedassay.nets.cells import cells_for
from fedassay.nets.traps import set_trap
from fedassay.support.errors import DataError
from fedassay.support.seeds import Seeds

MakeTask = Callable[..., MethodInput]
WIDTH = 64


def _network(task: MethodInput, seed: int, *, trap: bool) -> dict[str, NDArray[np.float32]]:
    body = build_body(BodySpec(name="mlp", hidden=96), (8, 8, 1), 31, seed)
    network = nn.Sequential(body, nn.Linear(31, 10))
    assert task.public is not None
    if trap:
        set_trap(network, to_inputs(task.public.images, "cpu"), Seeds(seed))
    return {name: each.numpy().copy() for name, each in network.state_dict().items()}


def _checked(
    folder: Path, sent: dict[str, NDArray[np.float32]], own: NDArray[np.generic], **said: object
) -> Checked:
    save_file(sent, folder / "sent.safetensors")
    np.savez(folder / "own.npz", x=own)
    return check_received(folder / "sent.safetensors", folder / "own.npz", **said)  # type: ignore[arg-type]


def _found(checked: Checked) -> set[str]:
    return {each.rule for each in checked.tests if each.found}


def test_trap_weights_are_found_on_the_own_records(make_task: MakeTask, tmp_path: Path) -> None:
    task = make_task(clients=1, records=100)
    own = task.clients[0].images
    trapped = _checked(tmp_path, _network(task, 0, trap=True), own, fresh=True)
    assert _found(trapped) == {"law", "one question", "alone"}
    assert trapped.untested == ("0.1.3", "1")
    assert _found(_checked(tmp_path, _network(task, 0, trap=True), own)) == {"one question", "alone"}


@pytest.mark.parametrize("seed", range(10))
def test_fresh_weights_are_not(seed: int, make_task: MakeTask, tmp_path: Path) -> None:
    """Each random test finds one in 200 of them; none of these ten."""
    task = make_task(clients=1, records=100)
    checked = _checked(tmp_path, _network(task, seed, trap=False), task.clients[0].images, fresh=True)
    assert _found(checked) == set()
    assert len(checked.tests) == 3


def _initial(name: str, layer: nn.Linear) -> None:
    """A layer drawn anew by one of the initialisations that have a name; biases are 0 where it leaves them."""
    d = layer.in_features
    draw: dict[str, Callable[[], object]] = {
        "default": lambda: None,
        "he uniform": lambda: nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu"),
        "he normal": lambda: nn.init.kaiming_normal_(layer.weight, nonlinearity="relu"),
        "glorot uniform": lambda: nn.init.xavier_uniform_(layer.weight),
        "glorot normal": lambda: nn.init.xavier_normal_(layer.weight),
        "lecun normal": lambda: nn.init.normal_(layer.weight, std=d**-0.5),
        "cut": lambda: nn.init.trunc_normal_(layer.weight, std=d**-0.5, a=-2 * d**-0.5, b=2 * d**-0.5),
        "orthogonal": lambda: nn.init.orthogonal_(layer.weight),
        "normal .02": lambda: nn.init.normal_(layer.weight, std=0.02),
    }
    draw[name]()


_INITIAL = ("default", "he uniform", "he normal", "glorot uniform", "glorot normal", "lecun normal", "cut")


@pytest.mark.parametrize("scale", [1.0, 0.3, 4.0])
@pytest.mark.parametrize("zero", [True, False])
@pytest.mark.parametrize("name", [*_INITIAL, "orthogonal", "normal .02"])
def test_every_initialisation_by_name_is_one_scaled_or_not(
    name: str, zero: bool, scale: float, make_task: MakeTask, tmp_path: Path
) -> None:
    own = make_task(clients=1, records=60).clients[0].images.reshape(60, -1) / 127.5 - 1
    for units in (32, 96):
        with torch.random.fork_rng():
            torch.manual_seed(units)
            layer = nn.Linear(WIDTH, units)
            with torch.no_grad():
                _initial(name, layer)
                layer.bias.mul_(0 if zero else 1)
                for array in (layer.weight, layer.bias) if name == "default" else (layer.weight,):
                    array.mul_(scale)
            sent = {f"l.{key}": value.numpy() for key, value in layer.state_dict().items()}
        checked = _checked(tmp_path, sent, own.astype(np.float32), fresh=True)
        assert "law" not in _found(checked), checked.lines()


def _trapped(kind: str, own: NDArray[np.float64], rng: np.random.Generator) -> dict[str, NDArray[np.float32]]:
    """Rows that ask one question at thresholds of their own, disguised in one of six ways."""
    units = 96
    direction = rng.standard_normal(WIDTH) / 8 if kind != "mean" else own.mean(axis=0)
    weights = np.tile(direction, (units, 1))
    bias = -np.quantile(own @ direction, np.arange(units) / units)
    if kind == "scaled":
        sizes = rng.uniform(0.1, 10, units)
        weights, bias = weights * sizes[:, None], bias * sizes
    elif kind == "shuffled":
        order = rng.permutation(units)
        weights, bias = weights[order], bias[order]
    elif kind == "jittered":
        weights = weights + rng.standard_normal(weights.shape) * 1e-4
    elif kind == "mixed":
        honest = rng.random(units) < 0.5
        weights[honest] = rng.uniform(-1, 1, (int(honest.sum()), WIDTH)) / 8
        bias[honest] = rng.uniform(-1, 1, int(honest.sum())) / 8
    elif kind == "signs":
        signs = rng.choice([-1.0, 1.0], units)
        weights, bias = weights * signs[:, None], bias * signs
    return {"l.weight": weights.astype(np.float32), "l.bias": bias.astype(np.float32)}


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("kind", ["plain", "mean", "scaled", "shuffled", "jittered", "mixed", "signs"])
def test_a_trap_is_found_however_it_is_disguised(
    kind: str, fresh: bool, make_task: MakeTask, tmp_path: Path
) -> None:
    own = make_task(clients=1, records=100).clients[0].images.reshape(100, -1) / 127.5 - 1
    for seed in range(6):
        sent = _trapped(kind, own, np.random.default_rng(seed))
        assert _found(_checked(tmp_path, sent, own.astype(np.float32), fresh=fresh))


def test_units_that_few_records_switch_on_are_found(make_task: MakeTask, tmp_path: Path) -> None:
    """Boenisch et al.'s traps: rows that are scaled so that each unit is on for about one record in a hundred."""
    task = make_task(clients=1, records=100)
    own = task.clients[0].images.reshape(100, -1) / 127.5 - 1
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((96, WIDTH)).astype(np.float32) / 8
    assert task.public is not None
    theirs = task.public.images.reshape(-1, WIDTH) / 127.5 - 1
    bias = -np.quantile(theirs @ weights.T, 0.99, axis=0).astype(np.float32)
    assert "alone" in _found(_checked(tmp_path, {"l.weight": weights, "l.bias": bias}, own.astype(np.float32)))


@pytest.mark.long
def test_a_map_under_which_nothing_is_alike_is_found(make_task: MakeTask, tmp_path: Path) -> None:
    task = make_task(clients=1, records=100)
    own, rng = task.clients[0].features, np.random.default_rng(0)
    assert task.public is not None
    small = separating_bandwidth(task.public.features)
    for bandwidth, against in ((3.0, set()), (small, {"law", "apart"})):
        made = fourier_features(WIDTH, 400, bandwidth, rng)
        assert made.phases is not None
        checked = _checked(tmp_path, {"R": made.matrix, "c": made.phases}, own, bandwidth=3.0)
        assert _found(checked) == against
    # Where nobody says which bandwidth it has, what it does to the records is left.
    assert _found(_checked(tmp_path, {"R": made.matrix, "c": made.phases}, own)) == {"apart"}


def test_a_sparse_column_is_found(make_task: MakeTask, tmp_path: Path) -> None:
    task = make_task(clients=1, records=60)
    made = fourier_features(WIDTH, 200, 3.0, np.random.default_rng(0))
    assert made.phases is not None
    made.matrix[:, 0] = 0
    made.matrix[5, 0] = 2.0
    sent = {"R": made.matrix, "c": made.phases}
    assert "sparse" in _found(_checked(tmp_path, sent, task.clients[0].features, bandwidth=3.0))


def test_a_linear_map_has_no_kernel_to_test(make_task: MakeTask, tmp_path: Path) -> None:
    task = make_task(clients=1, records=60)
    linear = projection(WIDTH, 20, np.random.default_rng(0))
    checked = _checked(tmp_path, {"projection": linear.matrix}, task.clients[0].features)
    assert [each.rule for each in checked.tests] == ["law", "sparse"]
    assert not checked.found


@pytest.mark.long
@pytest.mark.parametrize("backbone", ["pixels", "small_cnn", "small_cnn_rectified"])
@pytest.mark.parametrize("weights", ["public", "random"])
def test_an_honest_backbone_makes_records_of_a_class_alike(
    backbone: str, weights: str, make_task: MakeTask, tmp_path: Path
) -> None:
    task = make_task(clients=1, records=100, backbone=backbone, weights=weights)
    client = task.clients[0]
    sent = {name: each.numpy().copy() for name, each in task.backbone.module.state_dict().items()}
    save_file(sent or {"n": np.ones(1)}, tmp_path / "sent.safetensors")
    np.savez(tmp_path / "own.npz", x=client.images, f=client.features, y=client.labels)
    checked = check_received(tmp_path / "sent.safetensors", tmp_path / "own.npz")
    assert [each.found for each in checked.tests if each.rule == "held apart"] == [False]


@pytest.mark.parametrize("records", [5.0, 40.0])
def test_a_backbone_of_cells_is_found(records: float, make_task: MakeTask, tmp_path: Path) -> None:
    """By its features, and by the layer that asks one question."""
    task = make_task(clients=1, records=100)
    client, public = task.clients[0], task.public
    assert public is not None
    network = cells_for(public.images, public.labels, WIDTH, records, Seeds(0))
    features = renewed(task.backbone, network, "", "").extract(client.images)
    save_file(
        {name: each.numpy().copy() for name, each in network.state_dict().items()}, tmp_path / "sent.safetensors"
    )
    np.savez(tmp_path / "own.npz", x=client.images, f=features, y=client.labels)
    assert {"held apart", "one question"} <= _found(
        check_received(tmp_path / "sent.safetensors", tmp_path / "own.npz")
    )


def test_features_that_say_nothing_are_refused(make_task: MakeTask, tmp_path: Path) -> None:
    images = make_task(clients=1, records=20).clients[0].images
    save_file({"n": np.ones(1)}, tmp_path / "sent.safetensors")
    for wrong in (
        {"f": np.ones((20, 3))},
        {"f": np.ones((20, 3)), "y": np.ones(19, np.int64)},
        {"f": np.ones(20)},
    ):
        np.savez(tmp_path / "own.npz", x=images, **wrong)
        with pytest.raises(DataError, match="allowed: finite features"):
            check_received(tmp_path / "sent.safetensors", tmp_path / "own.npz")
    few = check_features(np.eye(4), np.array([0, 0, 1, 2]))
    assert not few.found
    assert "10 would do" in few.text


def test_who_is_alone_is_counted_right() -> None:
    own = np.array([[0.0], [1.0], [2.0], [2.1], [5.0]])
    one = np.ones((1, 1))
    # One unit at 4: the last record alone; at 1.5: three records.
    assert alone(one, np.array([-4.0]), own).tolist() == [False, False, False, False, True]
    assert not alone(one, np.array([-1.5]), own).any()
    # Three thresholds of one question: 0.5 < 1 < 1.5 < 2, 2.1 < 4 < 5.
    three = alone(np.ones((3, 1)), np.array([-0.5, -1.5, -4.0]), own)
    assert three.tolist() == [False, True, False, False, True]
    assert parallel_rows(np.array([[1.0, 0], [0, 1], [2, 0], [3, 1e-9]])).tolist() == [0, 2, 3]


def test_the_command_says_it_and_exits_by_it(make_task: MakeTask, tmp_path: Path) -> None:
    task = make_task(clients=1, records=60)
    np.savez(tmp_path / "own.npz", x=task.clients[0].images)
    for trap, code in ((False, 0), (True, 1)):
        save_file(_network(task, 1, trap=trap), tmp_path / "sent.safetensors")
        given = ["audit", "--received", str(tmp_path / "sent.safetensors"), "--own", str(tmp_path / "own.npz")]
        said = CliRunner().invoke(cli, [*given, "--fresh"], standalone_mode=False)
        assert said.return_value == code
        assert ("to be: alone, law, one question" in said.output) == trap
        told = json.loads(CliRunner().invoke(cli, [*given, "--json"], standalone_mode=False).output)
        assert told["found"] is trap
        assert told["untested"] == ["0.1.3", "1"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["--received", "sent.safetensors"], "needs your records"),
        (["--own", "own.npz"], "go with --received"),
        (["run", "--received", "sent.safetensors"], "one of them"),
    ],
)
def test_wrong_use_is_one_sentence(given: list[str], says: str) -> None:
    result = CliRunner().invoke(cli, ["audit", *given], standalone_mode=False)
    assert says in str(result.exception)


def test_files_that_say_nothing_are_refused(tmp_path: Path, make_task: MakeTask) -> None:
    task = make_task(clients=1, records=20)
    with pytest.raises(DataError, match="neither a layer nor a map"):
        _checked(tmp_path, {"parameters": np.zeros(500, np.float32)}, task.clients[0].images)
    with pytest.raises(DataError, match="takes rows of 32"):
        _checked(
            tmp_path,
            {"l.weight": np.ones((4, 32), np.float32), "l.bias": np.ones(4, np.float32)},
            np.ones((3, 64)),
        )
    with pytest.raises(DataError, match="NaN"):
        _checked(tmp_path, {"l.weight": np.full((4, 32), np.nan, np.float32)}, np.ones((3, 64)))
    (tmp_path / "text").write_text("no tensors")
    with pytest.raises(DataError):
        read_received(tmp_path / "text")
    np.savez(tmp_path / "bad.npz", x=np.array([["a"]]))
    with pytest.raises(DataError, match="allowed: an array x"):
        read_own(tmp_path / "bad.npz")


def test_tables_and_rows_are_told_apart(tmp_path: Path) -> None:
    square, row = np.eye(3, dtype=np.float32), np.ones(3, np.float32)
    save_file({"R": square, "c": row, "l.weight": square, "l.bias": row, "n": np.ones(2)}, tmp_path / "f")
    found = read_received(tmp_path / "f")
    assert [each.name for each in found.layers] == ["l"]
    assert list(found.maps) == ["R"]
    assert found.others == ("n",)


def test_tables_by_columns_are_turned(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    kernel, bias = rng.normal(size=(6, 4)).astype(np.float32), np.zeros(4, np.float32)
    phases = rng.uniform(0, 6, 4).astype(np.float32)
    save_file({"dense.kernel": kernel, "dense.bias": bias}, tmp_path / "keras")
    (layer,) = read_received(tmp_path / "keras").layers
    assert np.array_equal(layer.weights, kernel.T)
    for name, matrix in (("as it is", kernel), ("turned", np.ascontiguousarray(kernel.T))):
        save_file({"R": matrix, "phases": phases}, tmp_path / name)
        assert np.array_equal(read_received(tmp_path / name).maps["R"].matrix, kernel)


@pytest.mark.parametrize(
    ("own", "says"),
    [
        ({"x": np.eye(4, dtype=np.uint8)[None]}, "x: holds the grey levels 0 and 1 alone"),
        ({"x": np.zeros((0, 4, 4), np.uint8)}, r"x of shape \(0, 4, 4\)"),
        ({"x": np.full((9, 3, 4, 4), 7, np.uint8)}, r"x of shape \(9, 3, 4, 4\).*with 1 or 3 channels"),
        ({"x": np.full((9, 4, 4), 7)}, "type int64; allowed: an array x: images of bytes"),
        ({"X": np.ones((9, 16))}, "has no array x; allowed: an array x"),
        (
            {"x": np.ones((9, 16)), "f": np.ones((8, 3)), "y": np.ones(8, int)},
            "9 records x, and 8 rows of features f",
        ),
    ],
)
def test_records_that_say_nothing_are_refused(own: dict[str, Any], says: str, tmp_path: Path) -> None:
    save_file({"l.weight": np.ones((4, 16), np.float32), "l.bias": np.ones(4, np.float32)}, tmp_path / "sent")
    np.savez(tmp_path / "own.npz", **own)
    with pytest.raises(DataError, match=says):
        check_received(tmp_path / "sent", tmp_path / "own.npz")


def test_a_map_of_zeros_is_found(tmp_path: Path) -> None:
    save_file({"R": np.zeros((16, 8), np.float32), "phases": np.zeros(8, np.float32)}, tmp_path / "sent")
    np.savez(tmp_path / "own.npz", x=np.random.default_rng(0).normal(size=(12, 16)))
    assert check_received(tmp_path / "sent", tmp_path / "own.npz").found
