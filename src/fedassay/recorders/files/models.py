"""Models in files: heads and adapters by the names of libraries, the server's model, and missing files."""

from __future__ import annotations

import re
from pathlib import Path, PurePath

import numpy as np

from fedassay.exchange.kinds import FieldKind, called
from fedassay.exchange.message import AGGREGATE, SERVER
from fedassay.exchange.transcript import Transcript, kinds_in
from fedassay.recorders.files.formats import CLASS_NAMES, read_file
from fedassay.recorders.files.grouping import Array, Arrays, messages_of
from fedassay.support.errors import DataError

HEAD: dict[str, FieldKind] = {"weight": "head", "bias": "head"}
"""Names and kinds of the arrays of a linear head after reading."""
_SCALER = ("scaler_mean", "scaler_variance", "scaler_count")
LOW_RANK = ".low_rank"
"""Suffix of the name of a layer's change by its adapters."""
_ADAPTER = re.compile(r"(?i)(.*?)lora_(?:embedding_)?(a|b|down|up)(?:[./](?:default|weight))*")
_ENTRIES = 1 << 24
_WEIGHTS = re.compile(r"(?i)(.*[./_])?(coefs?_?|weights?|w|kernel|theta|beta)(_\d+)?")
_SOLE = re.compile(r"(?i)(.*[./_])?coefs?_?|(.*[./])?weight")
"""Names of weights that may stand without a bias."""
_OFFSETS = re.compile(r"(?i)(.*[./_])?(intercepts?_?|bias|biases|b|offsets?)(_\d+)?")
_ROOTS = re.compile(r"(?i)(.*[./_])?(scale|std|sigma)_?")
_SCALERS: dict[str, re.Pattern[str]] = {
    "mean_": re.compile(r"(?i)(.*[./_])?means?_?"),
    "var_": re.compile(r"(?i)(.*[./_])?(var|variance)s?_?"),
    "n_samples_seen_": re.compile(r"n_samples_seen_|scaler_count"),
}
"""scikit-learn's names of the arrays of a scaler, and others."""
_ALONE = re.compile(r"(?i)(.*[./_])?(running_mean|mean_|(scaler|standardi[sz]er)[./_]means?_?)")
"""Names of the means of a scaler that stands alone; other means are of classes or clients."""
_BESIDE = frozenset({"n_features_in_", "n_iter_"})


def plain(arrays: Arrays) -> Arrays:
    """Convert heads, scalers and adapters to the form that attacks read; other arrays stay as they are."""
    return _plain_scaler(_plain_head(_multiplied(arrays)))


def _plain_scaler(arrays: Arrays) -> Arrays:
    """Convert a scaler without a head to scikit-learn's names; others stay unchanged."""
    means = [array for name, array in arrays.items() if _ALONE.fullmatch(name)]
    if len(means) != 1 or means[0].ndim != 1 or not all(_beside(name, array) for name, array in arrays.items()):
        return arrays
    made = _plain_beside(arrays, len(means[0]))
    return made if is_scaler(made) else arrays


def _multiplied(arrays: Arrays) -> Arrays:
    """Convert adapters A (r, in) and B (out, r) of a layer to the change B A of its weights, without alpha / r.

    Names are those of PEFT and of diffusers. A pair with a product larger than `_ENTRIES` stays as it is.
    """
    pairs: dict[str, dict[str, str]] = {}
    for name, array in arrays.items():
        found = _ADAPTER.fullmatch(name)
        if found and array.ndim == 2:
            pairs.setdefault(found[1].strip("./_"), {})["A" if found[2].casefold() in {"a", "down"} else "B"] = (
                name
            )
    made: Arrays = {}
    for layer, own in pairs.items():
        if len(own) < 2 or arrays[own["B"]].shape[1] != arrays[own["A"]].shape[0]:
            return arrays
        product = np.asarray(arrays[own["B"]], np.float32) @ np.asarray(arrays[own["A"]], np.float32)
        if sum(array.size for array in made.values()) + product.size > _ENTRIES:
            return arrays
        made[f"{layer}{LOW_RANK}"] = product
    used = {name for own in pairs.values() for name in own.values()}
    return made | {name: array for name, array in arrays.items() if name not in used}


def _plain_head(arrays: Arrays) -> Arrays:
    """Convert a linear head and its scaler to the form of `fedassay.exchange.sent_head`; others stay unchanged.

    The rows of its matrix are classes, or the second of two classes. A matrix with classes as columns is turned;
    without a bias, its shorter side are the classes.
    """
    own = [name for name, array in arrays.items() if not _beside(name, array)]
    tables = [name for name in own if _WEIGHTS.fullmatch(name) and arrays[name].ndim in (1, 2)]
    offsets = [name for name in own if _OFFSETS.fullmatch(name)]
    if len(tables) != 1 or len(offsets) > 1 or len(own) != 1 + len(offsets):
        return arrays
    if not offsets and not _SOLE.fullmatch(tables[0]):
        return arrays
    weights, bias = np.atleast_2d(arrays[tables[0]]), arrays[offsets[0]].ravel() if offsets else np.zeros(1)
    if len(bias) == 1 and not bias.any():
        # No bias is fitted: scikit-learn has a single 0 for it.
        bias = np.zeros(min(weights.shape), weights.dtype)
    if weights.shape[0] != len(bias) and weights.shape[1] == len(bias) and arrays[tables[0]].ndim == 2:
        weights = np.ascontiguousarray(weights.T)
    if weights.shape[0] != len(bias):
        return arrays
    beside = {name: array for name, array in arrays.items() if name not in own}
    made = _plain_beside(beside, weights.shape[1])
    if ("mean_" in made) != ("var_" in made):
        # Centred inputs move a fitted bias alone; how any other half of a scaler is used is not known.
        if "var_" in made or not bias.any():
            return arrays
        bias = bias - weights.astype(np.float64) @ made.pop("mean_")
    return {**dict(zip(HEAD, (weights, bias), strict=True)), **made}


def _plain_beside(arrays: Arrays, width: int) -> Arrays:
    """Give class numbers and a scaler of `width` features beside a head the names of scikit-learn."""
    made: Arrays = {}
    for name, array in arrays.items():
        means = array.shape == (width,)
        if CLASS_NAMES.fullmatch(name):
            made["head_classes"] = array
        elif means and _ROOTS.fullmatch(name):
            # The root of the variance, which a scaler may keep as well.
            made.setdefault("var_", np.square(array))
        else:
            known = [own for own, names in _SCALERS.items() if names.fullmatch(name)]
            counts = known == ["n_samples_seen_"]
            # Where values were missing, each feature has a number of records of its own, and none is that of all.
            if not counts or len(np.unique(array)) == 1:
                made[known[0] if known and (means or counts) else name.rpartition("/")[2]] = (
                    np.unique(array) if counts else array
                )
    return made


def kind_of(name: str, arrays: Arrays) -> FieldKind:
    """Return the kind of an array without a declared one; its algebra may show another."""
    if not arrays[name].ndim:
        return "other"
    if name.endswith(LOW_RANK):
        return "gradient"
    if not is_head(arrays) and not is_scaler(arrays):
        return "parameters"
    scaler = next((kind for kind in called(name, whole=True) if kind in _SCALER), None)
    return HEAD.get(name) or scaler or "other"


def is_head(arrays: Arrays) -> bool:
    """Whether a converted message holds one linear head, and at most a scaler beside it."""
    if not HEAD.keys() <= arrays.keys() or arrays["weight"].ndim != 2:
        return False
    beside = all(name in HEAD or _beside(name, array) for name, array in arrays.items())
    return beside and arrays["bias"].shape == arrays["weight"].shape[:1]


def is_scaler(arrays: Arrays) -> bool:
    """Whether a converted message holds a scaler, and single numbers at most beside it."""
    sides = [arrays[name].shape for name in ("mean_", "var_") if name in arrays]
    others = {name for name, array in arrays.items() if array.ndim} - {"mean_", "var_", "n_samples_seen_"}
    return len(sides) == 2 and sides[0] == sides[1] and len(sides[0]) == 1 and not others


def _beside(name: str, array: Array) -> bool:
    """Whether an array may stand beside a head: class numbers, those of a scaler, or a single number."""
    if not array.ndim:
        return _OFFSETS.fullmatch(name) is None
    scaler = any(names.fullmatch(name) for names in (_ROOTS, *_SCALERS.values()))
    return array.ndim == 1 and (
        scaler or CLASS_NAMES.fullmatch(name) is not None or name.rpartition("/")[2] in _BESIDE
    )


def downlink(path: Path, sent: dict[tuple[int, str], Arrays]) -> dict[tuple[int, str], Arrays]:
    """Read the model that the server sent before the first messages, under the clients' names of its arrays.

    Args:
        path: A file of the model.
        sent: The clients' messages.

    Raises:
        DataError: The file cannot be read, or its arrays are not those that clients send.
    """
    held = messages_of({PurePath("server.any"): read_file(path)}, None)
    arrays = plain({name: array for message in held.values() for name, array in message.items()})
    first = min(number for number, _ in sent)
    own = next(message for (_, who), message in sent.items() if who != SERVER)
    shapes = {name: array.shape for name, array in own.items() if array.ndim}
    given = {name: array for name, array in arrays.items() if array.ndim}
    if not all(name in given and given[name].shape == shape for name, shape in shapes.items()):
        if [array.shape for array in given.values()] != list(shapes.values()):
            raise DataError(
                f"--downlink {path}: holds {_shown(given)}, and clients send {_shown(own)}; allowed: the model "
                "that they started from, with the same arrays"
            )
        given = dict(zip(shapes, given.values(), strict=True))
    return {(first, SERVER): {name: given[name] for name in shapes}}


def _shown(arrays: Arrays) -> str:
    return ", ".join(f"{name} {array.shape}" for name, array in list(arrays.items())[:4]) or "nothing"


_KEPT = (
    "Flower's servers have it as the parameters of the round before, NVFlare as app_server/FL_global_model.pt, "
    "OpenFL as save/*_init.pbuf, PyTorch and Hugging Face as the checkpoint that training began with."
)


def missing(transcript: Transcript, given: bool, candidates: bool) -> str:
    """Return a sentence on the file without which attacks cannot read a sent model; empty where none is missing.

    Args:
        transcript: The messages.
        given: Whether the model that the server sent before is given.
        candidates: Whether candidates are given.
    """
    sent = list(transcript.from_clients())
    kinds = kinds_in(sent)
    if kinds & {"head", "scaler_mean"}:
        what, labels = ("linear head", " and labels (n,)") if "head" in kinds else ("scaler", "")
        asked = (
            f"A {what} is read with candidates who may be in it: give them with --gallery FILE, an .npz with "
            f"features (n, d){labels}."
        )
        return "" if candidates else asked
    if given or any(message.sender == SERVER for message in transcript.messages):
        return ""
    if any(name.endswith(LOW_RANK) for message in sent for name in message.fields):
        return (
            "Adapters are read as the changes of rank r that they make; adapters that training went on from are "
            f"taken off with --downlink FILE. {_KEPT}"
        )
    tables = sum(
        item.kind == "parameters" and len(item.shape) > 1
        for message in sent[:1]
        for item in message.fields.values()
    )
    if tables and len(sent[0].fields) > 1 and not any(message.sender == AGGREGATE for message in sent):
        return (
            "Weights that clients send are read beside the model that they started from: give its file with "
            f"--downlink FILE. {_KEPT}"
        )
    return ""
