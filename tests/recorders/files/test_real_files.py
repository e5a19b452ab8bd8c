"""Files that NVFlare, OpenFL and Flower wrote (`real/make.py`): what was saved is what is read."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas
import pytest
from real.make import FEATURES, SITES, records, weights

from fedassay.exchange.transcript import Transcript
from fedassay.recorders.files.reading import Corrections, read_files
from fedassay.support.errors import DataError

Arrays = dict[str, Any]

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


def _written(models: Mapping[str, Arrays], place: str, folder: Path) -> None:
    """Write models of clients and a server, by name, into files or one file of a folder."""
    for who, own in models.items():
        if place == "a file":
            np.savez(folder / f"{who}.npz", **own)
        elif place == "a file of one array":
            np.save(folder / f"{who}.npy", own["fc.weight"])
        elif place == "a text":
            held = {name: values.tolist() for name, values in own.items()}
            (folder / f"{who}.json").write_text(json.dumps(held))
    if place == "a key":
        whole = {f"{who}/{name}": values for who, own in models.items() for name, values in own.items()}
        np.savez(folder / "all.npz", **whole)
    elif place == "part of a key":
        np.savez(folder / "all.npz", **{f"w_{who}": own["fc.weight"] for who, own in models.items()})


def _mean(one: Arrays, other: Arrays) -> Arrays:
    return {name: (0.3 * one[name] + 0.7 * other[name]).astype(np.float32) for name in one}


WORDS = ("server", "global_model", "initial", "final_model", "avg_model", "master", "central", "server_round")


def _on_the_page(package: str) -> dict[str, Any]:
    """The names that the block of docs/howto/audit-a-file.md for a package defines."""
    page = REAL.parents[3] / "docs/howto/audit-a-file.md"
    (block,) = re.findall(rf"<!-- needs {package} -->\n```python\n(.*?)```", page.read_text(), re.DOTALL)
    scope: dict[str, Any] = {}
    exec(block, scope)
    return scope


def test_the_filter_on_the_page_keeps_what_sites_of_nvflare_send(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dxo = pytest.importorskip("nvflare.apis.dxo", reason="nvflare is not installed")
    monkeypatch.chdir(tmp_path)
    keep = _on_the_page("nvflare")["Keep"]()
    for number, site in enumerate(SITES):
        shareable = dxo.DXO(dxo.DataKind.WEIGHTS, data=weights(number)).to_shareable()
        shareable.set_header("current_round", 2)
        keep.process(shareable, SimpleNamespace(get_identity_name=lambda site=site: site))
    messages = _read(tmp_path).messages
    assert [(message.round, message.sender) for message in messages] == [(2, "client/1"), (2, "client/2")]


def test_the_function_on_the_page_keeps_what_collaborators_of_openfl_send(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        {"tensor_name": name, "round": 2, "tags": tags, "nparray": values}
        for number, who in enumerate(("one", "two"))
        for name, values in weights(number).items()
        for tags in (("trained", who), ("metric", who))
    ]
    monkeypatch.chdir(tmp_path)
    held = SimpleNamespace(tensor_db=SimpleNamespace(tensor_db=pandas.DataFrame(rows)))
    _on_the_page("openfl")["keep"](held)
    messages = _read(tmp_path).messages
    assert [(message.round, message.sender) for message in messages] == [(2, "client/one"), (2, "client/two")]


PLACES = ("a file", "a file of one array", "a text", "a key")
CLIENTS = (("client_1", "client_2"), ("berlin", "paris"), ("model_site-1", "model_site-2"))


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("came_to", [False, True])
@pytest.mark.parametrize(("place", "clients"), [*product(PLACES, CLIENTS), ("part of a key", CLIENTS[0])])
def test_a_model_beside_those_of_clients_is_what_they_started_from_or_came_to(
    place: str, clients: tuple[str, str], came_to: bool, word: str, tmp_path: Path
) -> None:
    one, other = weights(3), weights(4)
    models = {clients[0]: one, clients[1]: other, word: _mean(one, other) if came_to else weights(200)}
    _written(models, place, tmp_path)
    read = read_files(tmp_path, Corrections())
    server, sent = {"server"}, {f"client/{who.rpartition('_')[2].rpartition('-')[2]}" for who in clients}
    assert {message.sender for message in read.transcript.messages} == (sent if came_to else sent | server)
    assert ("are left out: they follow" in read.text) is came_to


@pytest.mark.parametrize("place", PLACES)
def test_the_mean_of_others_is_no_client_whatever_its_name(place: str, tmp_path: Path) -> None:
    one, other = weights(3), weights(4)
    _written({"berlin": one, "paris": other, "rome": _mean(one, other)}, place, tmp_path)
    read = read_files(tmp_path, Corrections())
    assert {message.sender for message in read.transcript.messages} == {"client/berlin", "client/paris"}
    assert "with positive weights is no client's message: rome." in read.text
    if place != "a key":
        assert len(read_files(tmp_path, Corrections(clients=3)).transcript.messages) == 3


def _near(one: Arrays, number: int) -> Arrays:
    return {name: values + np.float32(1e-6) * weights(number)[name] for name, values in one.items()}


@pytest.mark.parametrize(
    ("second", "third"),
    [
        (weights(3), weights(3)),
        (_near(weights(3), 8), _near(weights(3), 9)),
        (weights(4), {name: -values - weights(4)[name] for name, values in weights(3).items()}),
    ],
    ids=["equal", "near", "negative weights"],
)
def test_clients_that_are_alike_are_all_clients(second: Arrays, third: Arrays, tmp_path: Path) -> None:
    _written({"berlin": weights(3), "paris": second, "rome": third}, "a file", tmp_path)
    assert len(_read(tmp_path).messages) == 3


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


@pytest.mark.parametrize("name", ["shared_weights", "merged_model", "updated_weights", "model", "mean_pooling"])
def test_a_model_alone_without_a_name_of_the_server_is_a_client_s(name: str, tmp_path: Path) -> None:
    np.savez(tmp_path / f"{name}.npz", **weights(0))  # type: ignore[arg-type]
    assert [message.sender for message in _read(tmp_path).messages] == ["client/0"]
