"""Files that NVFlare, OpenFL and Flower wrote (`real/make.py`): what was saved is what is read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from real.make import FEATURES, SITES, records, weights

from fedassay.exchange.transcript import Transcript
from fedassay.recorders.files.reading import Corrections, read_files
from fedassay.support.errors import DataError

REAL = Path(__file__).resolve().parent / "real"
MODELS = {
    "nvflare/FL_global_model.pt": (3, 0),
    "nvflare/best_FL_global_model.pt": (2, 1),
    "openfl/openfl_plain.pbuf": (0, 0),
    "flwr/round-1-weights.npz": (1, 1),
    "flwr/round-2-weights.npz": (2, 2),
    "flwr/final_model.pt": (0, 2),
}
"""By file the round that clients start from it or came to it in, and the weights that were saved."""


def _read(path: Path, said: Corrections | None = None) -> Transcript:
    return read_files(path, said or Corrections()).transcript


@pytest.mark.parametrize("name", MODELS)
def test_a_saved_model_is_what_all_clients_came_to(name: str) -> None:
    number, which = MODELS[name]
    (message,) = _read(REAL / name).messages
    assert (message.sender, message.round) == ("aggregate", number)
    read = [item.values for item in message.fields.values()]
    assert all(np.array_equal(a, b) for a, b in zip(read, weights(which).values(), strict=True))


def test_a_model_of_numpy_is_the_server_s() -> None:
    (message,) = _read(REAL / "nvflare/server.npy").messages
    assert message.sender == "aggregate"
    assert np.array_equal(message.fields["array"].values, weights(0)["fc.weight"])


def test_statistics_of_sites_are_their_records() -> None:
    first, second = _read(REAL / "nvflare/nvflare_stats.json").messages
    for message, site in zip((first, second), range(len(SITES)), strict=True):
        train = records(site)[:-4]
        assert message.sender == f"client/{site + 1}"
        assert message.fields["count"].values.tolist() == [len(train), 4]
        np.testing.assert_allclose(message.fields["mean"].values[0], train.mean(axis=0), atol=1e-4)
        np.testing.assert_allclose(message.fields["stddev"].values[0], train.std(axis=0, ddof=1), atol=1e-4)
        bins = message.fields["histogram"].values.reshape(2, len(FEATURES), 4)
        assert bins.sum(axis=-1).tolist() == [[len(train)] * 3, [4] * 3]
    assert "--scale" not in read_files(REAL / "nvflare/nvflare_stats.json", Corrections()).text


def test_a_compressed_model_says_which_pipeline_unpacks_it() -> None:
    with pytest.raises(DataError, match=r"compressed.*the pipeline of its plan"):
        _read(REAL / "openfl/openfl_kc.pbuf")


def test_a_client_s_model_is_read_beside_the_one_that_the_server_saved(tmp_path: Path) -> None:
    for name in ("FL_global_model.pt", "server.npy"):
        (tmp_path / name).write_bytes((REAL / "nvflare" / name).read_bytes())
    for site in SITES:
        np.savez(tmp_path / f"{site}-round_3.npz", **weights(ord(site[-1])))  # type: ignore[arg-type]
    down, *up = _read(tmp_path).messages
    assert (down.sender, down.round) == ("server", 3)
    assert [message.sender for message in up] == ["client/1", "client/2"]
    assert np.array_equal(down.fields["fc.weight"].values, weights(0)["fc.weight"])


def test_models_of_rounds_are_changes_since_the_round_before(tmp_path: Path) -> None:
    for number in (1, 2):
        name = f"round-{number}-weights.npz"
        (tmp_path / name).write_bytes((REAL / "flwr" / name).read_bytes())
    found = [(message.round, message.sender) for message in _read(tmp_path).messages]
    assert found == [(1, "aggregate"), (2, "server"), (2, "aggregate")]


@pytest.mark.parametrize("package", ["nvflare", "openfl", "flwr"])
def test_the_package_writes_these_files(package: str, tmp_path: Path) -> None:
    pytest.importorskip(package, reason=f"{package} is not installed; its files are under real/{package}")
    subprocess.run([sys.executable, REAL / "make.py", package, tmp_path], check=True, capture_output=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(p.name for p in (REAL / package).iterdir())
    for path in (REAL / package).iterdir():
        if path.suffix == ".json":
            assert json.loads((tmp_path / path.name).read_text()) == json.loads(path.read_text())
        elif "kc" not in path.name:
            one, other = _read(path).messages[0], _read(tmp_path / path.name).messages[0]
            assert all(np.array_equal(one.fields[n].values, other.fields[n].values) for n in one.fields)


@pytest.mark.parametrize("word", ["server", "global_model", "initial", "final_model"])
@pytest.mark.parametrize("came_to", [False, True])
@pytest.mark.parametrize("place", ["a file", "a key", "part of a key"])
def test_a_model_beside_those_of_clients_is_what_they_started_from_or_came_to(
    place: str, came_to: bool, word: str, tmp_path: Path
) -> None:
    one, other = weights(3), weights(4)
    mean = {name: (0.3 * one[name] + 0.7 * other[name]).astype(np.float32) for name in one}
    models = {"client_1": one, "client_2": other, word: mean if came_to else weights(200)}
    if place == "a file":
        for who, own in models.items():
            np.savez(tmp_path / f"{who}.npz", **own)  # type: ignore[arg-type]
    elif place == "a key":
        whole = {f"{who}/{name}": values for who, own in models.items() for name, values in own.items()}
        np.savez(tmp_path / "all.npz", **whole)  # type: ignore[arg-type]
    else:
        held = {f"w_{who}": own["fc.weight"] for who, own in models.items()}
        np.savez(tmp_path / "all.npz", **held)  # type: ignore[arg-type]
    read = read_files(tmp_path, Corrections())
    senders = [message.sender for message in read.transcript.messages]
    assert senders == [*(() if came_to else ("server",)), "client/1", "client/2"]
    assert ("is left out" in read.text) is came_to


def test_an_aggregate_of_files_that_only_their_names_tell_apart_is_no_client(tmp_path: Path) -> None:
    for number, name in enumerate(("berlin", "paris", "aggregated")):
        np.savez(tmp_path / f"{name}.npz", **weights(number))  # type: ignore[arg-type]
    senders = [message.sender for message in _read(tmp_path).messages]
    assert senders == ["client/berlin", "client/paris"]


def test_the_variance_of_a_site_is_that_of_its_own_records(tmp_path: Path) -> None:
    """NVFlare writes a site's share of everybody's variance (`DFStatisticsCore.variance_with_mean`)."""
    held = {site: records(number) for number, site in enumerate(SITES)}
    everybody = np.concatenate(list(held.values()))
    total, center = len(everybody), everybody.mean(axis=0)
    content = {
        feature: {
            "count": {site: {"train": len(own)} for site, own in held.items()} | {"Global": {"train": total}},
            "mean": {site: {"train": float(own[:, place].mean())} for site, own in held.items()}
            | {"Global": {"train": float(center[place])}},
            "var": {
                site: {"train": float(((own[:, place] - center[place]) ** 2).sum() / (total - 1))}
                for site, own in held.items()
            },
        }
        for place, feature in enumerate(FEATURES)
    }
    (tmp_path / "stats.json").write_text(json.dumps(content))
    for message, own in zip(_read(tmp_path / "stats.json").messages, held.values(), strict=True):
        np.testing.assert_allclose(message.fields["var"].values, own.var(axis=0, ddof=1))
    for feature in FEATURES:
        del content[feature]["mean"]["Global"]
    (tmp_path / "stats.json").write_text(json.dumps(content))
    assert all("var" not in message.fields for message in _read(tmp_path / "stats.json").messages)
