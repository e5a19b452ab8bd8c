"""Files of systems with known records: what is read is what was written, or what would tell it is asked for."""

from __future__ import annotations

import re
import subprocess
import sys
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from generated_hostile import hostile
from honest import HONEST, network
from hostile import HOSTILE
from systems import ASKED, CHANGES, CLASSES, CLIENTS, SYSTEMS, WRITERS, System

from fedassay.attacks.gram.targets import targets
from fedassay.exchange.inference.infer import infer_kinds, with_inferred
from fedassay.exchange.sent_head import scaler_in
from fedassay.exchange.transcript import load_transcript
from fedassay.exchange.view import ThreatModel, View
from fedassay.recorders.files.reading import Corrections, read_files
from fedassay.support.errors import DataError, PlanError

GENERATED = hostile()


def _found(path: Path, said: Corrections) -> tuple[int, dict[str, list[list[np.ndarray]]]]:
    """Classes, and of every sender the second moments that attacks factor, candidates of each together."""
    transcript = read_files(path, said).transcript
    transcript = with_inferred(transcript, infer_kinds(transcript))
    view = View(transcript.messages, transcript.classes, ThreatModel())
    found: dict[str, list[list[np.ndarray]]] = {message.sender: [] for message in transcript.from_clients()}
    for target in targets(view, gamma=None, differences=False):
        found[target.sender].append([gram.second for gram in target.candidates])
    return transcript.classes, found


def _true(system: System, name: str) -> list[list[np.ndarray]]:
    """The second moments of every client that follow from what it sends."""
    if "of classes" in name:
        return [
            [own[of == c].T @ own[of == c] for c in range(CLASSES)]
            for own, of in zip(system.features, system.labels, strict=True)
        ]
    return [[own.T @ own] for own in system.features]


def _problem(name: str, change: str, writer: str, seed: int, base: Path) -> str:
    """What is wrong with what was read of a system; empty: nothing."""
    base.mkdir(parents=True)
    system = SYSTEMS[name](np.random.default_rng(seed))
    path = WRITERS[writer](CHANGES[change](system.messages), base)
    try:
        _, found = _found(path, Corrections())
    except DataError as error:
        return f"refused: {error}"
    if "--kinds t" in (text := read_files(path, Corrections()).text) or "--kinds arr_" in text:
        return "asked"
    if len(found) != CLIENTS:
        return f"{len(found)} senders"
    near = 1e-2 if change == "half" else 1e-4
    for sender, wanted in zip(sorted(found), _true(system, name), strict=True):
        if len(found[sender]) != len(wanted):
            return f"{len(found[sender])} second moments of {sender}"
        for candidates, moment in zip(found[sender], wanted, strict=True):
            off = min(float(np.abs(each - moment).max() / np.abs(moment).max()) for each in candidates)
            if off > near:
                return f"{sender}: off by {off:.2g}"
    return ""


@pytest.mark.parametrize("writer", WRITERS)
def test_every_way_to_write_a_system_gives_its_statistics(writer: str, tmp_path: Path) -> None:
    found = {
        name: _problem(name, "as they are", writer, seed, tmp_path / str(seed))
        for seed, name in enumerate(SYSTEMS)
    }
    assert found == {name: "asked" if writer == "positional" and name in ASKED else "" for name in SYSTEMS}


@pytest.mark.parametrize("change", CHANGES)
def test_every_way_to_change_what_is_sent_gives_its_statistics(change: str, tmp_path: Path) -> None:
    found = {
        name: _problem(name, change, "npz_a_client", seed, tmp_path / str(seed))
        for seed, name in enumerate(SYSTEMS)
    }
    assert found == {name: "asked" if change == "renamed" and name in ASKED else "" for name in SYSTEMS}


@pytest.mark.long
def test_changes_and_ways_to_write_together_give_the_statistics(tmp_path: Path) -> None:
    """Of 60 systems in drawn forms none is read as something else, and few are asked about."""
    rng = np.random.default_rng(0)
    found = Counter[str]()
    for number in range(60):
        name, change, writer = (str(rng.choice(list(of))) for of in (SYSTEMS, CHANGES, WRITERS))
        problem = _problem(name, change, writer, int(rng.integers(1 << 30)), tmp_path / str(number))
        nameless = name in ASKED and (change == "renamed" or writer == "positional")
        found[
            "asked" if problem == "asked" and nameless else problem and f"{name}, {change}, {writer}: {problem}"
        ] += 1
    assert set(found) <= {"", "asked"}
    assert found["asked"] <= 6


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_files_are_refused_with_one_message_and_nothing_runs(case: str, tmp_path: Path) -> None:
    make, says = HOSTILE[case]
    path = make(tmp_path)
    tracemalloc.start()
    with pytest.raises(DataError, match=re.escape(says)):
        read_files(path, Corrections())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("case", GENERATED)
def test_generated_hostile_files_are_refused_with_one_message(case: str, tmp_path: Path) -> None:
    path = GENERATED[case](tmp_path)
    with pytest.raises(DataError) as refused:
        read_files(path, Corrections())
    said = str(refused.value)
    assert path.name in said
    assert "\n" not in said
    assert len(said) < 600
    assert not (tmp_path / "ran").exists()


_READ_ALL = """
import re, sys
from pathlib import Path
import torch
from fedassay.recorders.files.reading import Corrections, read_files
from fedassay.support.errors import DataError
def peak():
    # Of this process alone: what getrusage says is inherited from the one that started it.
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
before = peak()
for line in sys.stdin:
    try:
        read_files(Path(line.strip()), Corrections())
    except DataError:
        pass
print(peak() - before)
"""


@pytest.mark.long
def test_no_hostile_file_takes_memory_above_the_limit(tmp_path: Path) -> None:
    assert len(GENERATED) + len(HOSTILE) >= 200
    makes = {**GENERATED, **{f"own {name}": make for name, (make, _) in HOSTILE.items()}}
    paths = []
    for number, make in enumerate(makes.values()):
        (tmp_path / str(number)).mkdir()
        paths.append(make(tmp_path / str(number)))
    done = subprocess.run(
        [sys.executable, "-c", _READ_ALL],
        input="\n".join(map(str, paths)),
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) < 200 << 10, "in KiB, above what imports take"


_STATISTICS = {
    *("class_sums", "class_means", "class_covariances", "class_second_moments", "second_moment"),
    *("regularised_gram", "inverse_gram", "features", "mixture_means", "axes"),
}


@pytest.mark.long
@pytest.mark.parametrize("kind", HONEST)
def test_honest_messages_of_other_kinds_are_no_statistics(kind: str, tmp_path: Path) -> None:
    for seed in range(25):
        rng = np.random.default_rng(seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        for client in range(2):
            np.savez(folder / f"client_{client}.npz", **HONEST[kind](rng))
        messages = read_files(folder, Corrections()).transcript.messages
        assert not _STATISTICS & {item.kind for message in messages for item in message.fields.values()}


def test_corrections_say_whose_arrays_are_and_what_they_mean(tmp_path: Path) -> None:
    system = SYSTEMS["class sums and second moment"](np.random.default_rng(3))
    stacked = {name: np.stack([own[name] for own in system.messages]) for name in system.messages[0]}
    np.savez(tmp_path / "a.npz", **stacked)
    said = Corrections(clients=3, kinds={"sums": "class_sums", "gram": "second_moment", "count": "class_counts"})
    read = read_files(tmp_path / "a.npz", said)
    assert [message.sender for message in read.transcript.messages] == ["client/0", "client/1", "client/2"]
    assert read.transcript.classes == CLASSES
    assert "3 clients in 1 round" in read.text
    whole = {name: sum(own[name] for own in system.messages) for name in system.messages[0]}
    np.savez(tmp_path / "b.npz", **whole)
    read = read_files(tmp_path / "b.npz", Corrections(aggregate=True))
    assert [message.sender for message in read.transcript.messages] == ["aggregate"]
    assert "the aggregate of all clients" in read.text


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (Corrections(clients=7), "--clients 7"),
        (Corrections(kinds={"absent": "class_sums"}), "no array is called so"),
        (Corrections(kinds={"sums": "class_sum"}), "no such kind"),
    ],
)
def test_corrections_that_do_not_fit_are_refused(said: Corrections, message: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", sums=np.ones((4, 6)), counts=np.arange(1, 5))
    with pytest.raises(PlanError, match=message):
        read_files(tmp_path / "a.npz", said)


def test_a_head_is_read_with_its_scaler_and_asks_for_candidates(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    head: dict[str, Any] = {"coef_": rng.normal(size=(1, 8)), "intercept_": rng.normal(size=1)}
    np.savez(tmp_path / "head.npz", **head, scale_=np.ones(8), mean_=np.zeros(8), n_samples_seen_=np.asarray(30))
    read = read_files(tmp_path / "head.npz", Corrections())
    (message,) = read.transcript.messages
    kinds = {name: item.kind for name, item in message.fields.items()}
    assert kinds["weight"] == kinds["bias"] == "head"
    assert set(message.fields) == {"weight", "bias", "mean_", "var_", "n_samples_seen_"}
    assert read.transcript.classes == 2
    assert "--gallery FILE" in read.text


SCALER = {"mean": np.zeros(8), "std": np.full(8, 2.0)}


@pytest.mark.parametrize(
    "arrays",
    [
        {"coef": (3, 8), "intercept": (3,), "classes": np.arange(3)},
        {"W": (3, 8), "b": (3,), "class_ids": np.arange(3), "accuracy": np.asarray(0.9)},
        {"model/coef_": (3, 8), "model/intercept_": (3,), "model/classes_": np.arange(3)},
        {"kernel": (8, 3), "bias": (3,), "n": np.asarray(90)},
        {"coef_": (3, 8), "intercept_": np.asarray(0.0)},
        {"coef_": (3, 8)},
        {"fc.weight": (3, 8)},
        {"coef": (3, 8), "intercept": (3,), **SCALER},
        {"coef": (3, 8), "intercept": (3,), **{f"scaler_{name}": values for name, values in SCALER.items()}},
    ],
    ids=lambda arrays: " ".join(arrays),
)
def test_heads_are_read_under_the_names_that_people_give_them(arrays: dict[str, Any], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    made = {name: rng.normal(size=each) if isinstance(each, tuple) else each for name, each in arrays.items()}
    np.savez(tmp_path / "head.npz", **made)
    read = read_files(tmp_path / "head.npz", Corrections())
    (message,) = read.transcript.messages
    first = next(iter(made.values()))
    assert np.array_equal(message.fields["weight"].values, (first if len(first) == 3 else first.T))
    assert message.fields["bias"].shape == (3,)
    assert message.fields["weight"].kind == message.fields["bias"].kind == "head"
    assert read.transcript.classes == 3
    if any("std" in name for name in arrays):
        assert np.array_equal(message.fields["var_"].values, np.full(8, 4.0))


@pytest.mark.parametrize(
    "arrays",
    [
        {"bn.weight": (8,), "bn.bias": (8,), "bn.running_mean": (8,), "bn.running_var": (8,)},
        {"weight": (8,), "bias": (8,)},
        {"weights": (5,), "means": (5, 8)},
        {"W": (3, 8)},
    ],
    ids=lambda arrays: " ".join(arrays),
)
def test_other_layers_are_no_heads(arrays: dict[str, tuple[int, ...]], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "a.npz", **{name: rng.normal(size=shape) for name, shape in arrays.items()})
    (message,) = read_files(tmp_path / "a.npz", Corrections()).transcript.messages
    assert "head" not in {item.kind for item in message.fields.values()}


def test_a_kind_that_the_user_says_keeps_the_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", coef=np.ones((3, 8)), intercept=np.ones(3))
    said = Corrections(kinds={"coef": "class_sums", "intercept": "class_counts"})
    (message,) = read_files(tmp_path / "a.npz", said).transcript.messages
    assert {name: item.kind for name, item in message.fields.items()} == said.kinds


def test_weights_ask_for_the_model_that_was_sent_and_are_read_beside_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    model, sent = network(rng), tmp_path / "sent"
    sent.mkdir()
    np.savez(sent / "client_1.npz", **{name: values + 0.1 for name, values in model.items()})
    assert "--downlink FILE" in read_files(sent, Corrections()).text
    np.savez(tmp_path / "model.npz", *model.values())
    read = read_files(sent, Corrections(downlink=tmp_path / "model.npz"))
    down, up = read.transcript.messages
    assert (down.sender, up.sender) == ("server", "client/1")
    assert list(down.fields) == list(up.fields)
    assert "--downlink" not in read.text
    np.savez(tmp_path / "other.npz", a=np.ones((3, 3)))
    with pytest.raises(DataError, match="allowed: the model that they started from"):
        read_files(sent, Corrections(downlink=tmp_path / "other.npz"))


def test_tables_hold_clients_classes_and_vectors(tmp_path: Path) -> None:
    def read(text: str) -> tuple[list[str], dict[str, tuple[int, ...]]]:
        (tmp_path / "t.csv").write_text(text)
        messages = read_files(tmp_path / "t.csv", Corrections()).transcript.messages
        return [message.sender for message in messages], {n: i.shape for n, i in messages[0].fields.items()}

    assert read("site;n;mean_0;mean_1\nA;3;1,5;2,5\nB;4;0,5;1,5\n") == (
        ["client/A", "client/B"],
        {"n": (), "mean": (2,)},
    )
    assert read("class,count,f1,f0\n0,3,1.5,2\n1,4,2,1.25\n") == (
        ["client/0"],
        {"class_ids": (2,), "count": (2,), "f": (2, 2)},
    )
    assert read("feature,mean,var\nage,50,2.5\nbmi,24,1.5\n") == (["client/0"], {"mean": (1, 2), "var": (2,)})


def test_files_that_may_be_clients_or_parts_ask(tmp_path: Path) -> None:
    np.savez(tmp_path / "one.npz", a=np.ones((3, 4)), b=np.ones(3))
    np.savez(tmp_path / "two.npz", c=np.ones(4))
    with pytest.raises(DataError, match="--clients 1"):
        read_files(tmp_path, Corrections())
    (message,) = read_files(tmp_path, Corrections(clients=1)).transcript.messages
    assert set(message.fields) == {"one/a", "one/b", "two/c"}


@pytest.mark.parametrize(
    ("classes", "names"),
    [
        (np.array(["cat", "dog"]), ("cat", "dog")),
        (np.array([b"cat", b"dog"]), ("cat", "dog")),
        (np.array([3, 7]), ("3", "7")),
        (np.array([0.0, 1.0]), ("0", "1")),
        (np.array([False, True]), ("False", "True")),
    ],
)
def test_a_head_keeps_the_names_of_its_classes(classes: Any, names: tuple[str, ...], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "head.npz", coef_=rng.normal(size=(1, 8)), intercept_=np.ones(1), classes_=classes, penalty="l2"
    )
    transcript = read_files(tmp_path / "head.npz", Corrections()).transcript
    assert (transcript.classes, transcript.class_names) == (2, names)
    assert transcript.messages[0].fields["head_classes"].values.tolist() == [0, 1]
    transcript.save(tmp_path / "sent")
    assert load_transcript(tmp_path / "sent").class_names == names


def test_a_state_dict_keeps_the_names_of_its_classes_in_the_order_of_rows(tmp_path: Path) -> None:
    model = {"fc.weight": torch.randn(3, 8), "fc.bias": torch.randn(3)}
    torch.save({"state_dict": model, "classes": ["dog", "cat", "ant"]}, tmp_path / "head.pt")
    transcript = read_files(tmp_path / "head.pt", Corrections()).transcript
    assert transcript.class_names == ("dog", "cat", "ant")
    assert {item.kind for item in transcript.messages[0].fields.values()} == {"head", "other"}


def test_names_of_other_classes_than_rows_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "head.npz", coef_=np.ones((3, 8)), intercept_=np.ones(3), classes_=np.array(["a", "b"]))
    with pytest.raises(DataError, match="3 rows and names 2 classes, a, b"):
        read_files(tmp_path / "head.npz", Corrections())


@pytest.mark.parametrize(
    "arrays",
    [
        {"mean_": (8,), "var_": (8,), "scale_": (8,), "n_samples_seen_": np.asarray(30)},
        {"mean_": (8,), "scale_": (8,), "n_samples_seen_": np.full(8, 30), "n_features_in_": np.asarray(8)},
        {"scaler.mean_": (8,), "scaler.var_": (8,)},
        {"scaler_mean": (8,), "scaler_std": (8,)},
        {"running_mean": (8,), "running_var": (8,), "num_batches_tracked": np.asarray(4)},
        {"norm.running_mean": (8,), "norm.running_var": (8,)},
    ],
    ids=lambda arrays: " ".join(arrays),
)
def test_a_scaler_alone_is_read_as_one(arrays: dict[str, Any], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    made = {name: rng.uniform(1, 2, each) if isinstance(each, tuple) else each for name, each in arrays.items()}
    np.savez(tmp_path / "scaler.npz", **made)
    read = read_files(tmp_path / "scaler.npz", Corrections())
    scaler = scaler_in(read.transcript.messages[0])
    assert scaler is not None
    assert scaler.count == (30 if "n_samples_seen_" in arrays else None)
    variance = next((made[name] for name in made if "var" in name), None)
    roots = next((made[name] for name in made if "scale_" in name or "std" in name), None)
    assert np.allclose(scaler.variance, np.square(roots) if variance is None else variance)
    assert "--gallery FILE" in read.text
    assert "labels" not in read.text


@pytest.mark.parametrize("arrays", [{"mean": (8,), "var": (8,), "count": ()}, {"mean_": (3, 8), "var_": (3, 8)}])
def test_statistics_are_no_scaler(arrays: dict[str, tuple[int, ...]], tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **{name: np.full(shape, 5.0) for name, shape in arrays.items()})
    assert scaler_in(read_files(tmp_path / "a.npz", Corrections()).transcript.messages[0]) is None


def test_a_head_of_centred_features_is_read_with_its_bias_moved(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    weights, bias, mean = rng.normal(size=(3, 8)), rng.normal(size=3), rng.normal(size=8)
    np.savez(tmp_path / "head.npz", coef_=weights, intercept_=bias, mean_=mean, n_samples_seen_=30)
    (message,) = read_files(tmp_path / "head.npz", Corrections()).transcript.messages
    assert np.allclose(message.fields["bias"].values, bias - weights @ mean)
    assert "mean_" not in message.fields


@pytest.mark.parametrize("half", [{"scale_": (8,)}, {"mean_": (8,), "intercept_": ()}])
def test_a_head_behind_half_a_scaler_is_not_read_as_one_without(half: dict[str, Any], tmp_path: Path) -> None:
    made = {"intercept_": np.ones(3)} | {name: np.zeros(shape) for name, shape in half.items()}
    np.savez(tmp_path / "head.npz", coef_=np.ones((3, 8)), **made)
    (message,) = read_files(tmp_path / "head.npz", Corrections()).transcript.messages
    assert "head" not in {item.kind for item in message.fields.values()}
