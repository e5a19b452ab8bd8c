"""Inputs of a linear layer from its gradient, beside breaching's `AnalyticAttacker.invert_fc_layer`.

    pip install --target FOLDER --no-deps breaching hydra-core omegaconf antlr4-python3-runtime==4.9.3
    PYTHONPATH=FOLDER OMP_NUM_THREADS=1 python benchmarks/layer_inversion.py

Both get the same arrays: the gradient of a layer of 256 rectified units on images of 28x28, weights and bias, in
float32. The ratio is of one record, which both solve; ours also finds that it is one. Of several, ours gives the
inputs alone, and the peer a vector for every unit, mixtures of inputs among them (`peer_vectors`). Errors are
those of the vector nearest to each record, relative to its norm. Without breaching the row is left out, with the
reason in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import measure
import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedassay.attacks.gradients.sparse_rows import layer_inputs
from fedassay.support.torchvision import import_torchvision

Matrix = NDArray[np.floating]
Peer = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

WIDTH, UNITS, CLASSES, RECORDS, TARGET = 784, 256, 10, 8, 1.0
RUNS = 20


def gradient(records: int, seed: int = 0) -> tuple[Matrix, torch.Tensor, torch.Tensor]:
    """The inputs (n, d) of a layer, and the gradients of its weights (H, d) and bias (H,)."""
    draws = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(WIDTH, UNITS), nn.ReLU(), nn.Linear(UNITS, CLASSES))
    inputs = torch.rand(records, WIDTH, generator=draws)
    labels = torch.randint(CLASSES, (records,), generator=draws)
    nn.functional.cross_entropy(network(inputs), labels).backward()
    weights, bias = network[0].weight.grad, network[0].bias.grad
    assert weights is not None
    assert bias is not None
    return inputs.numpy(), weights, bias


def ours(weights: torch.Tensor, bias: torch.Tensor) -> Matrix:
    """Every input that comes back."""
    return layer_inputs(weights.numpy(), bias.numpy(), np.random.default_rng(0), most=RECORDS, rounds=64).rows


def peer() -> Peer:
    """The peer's attack on one layer, without its loop over models, which it does not use there.

    Raises:
        ImportError: breaching is not installed.
    """
    import_torchvision()
    from breaching.attacks import AnalyticAttacker

    attacker = AnalyticAttacker.__new__(AnalyticAttacker)
    return lambda weights, bias: attacker.invert_fc_layer(weights, bias, [])


def mean_of(call: Peer, weights: torch.Tensor, bias: torch.Tensor) -> Matrix:
    """The peer's input of one record: the mean over units, as it does itself where it knows of one label."""
    return np.asarray(call(weights, bias).mean(dim=0))[None]


def errors(found: Matrix, inputs: Matrix) -> Matrix:
    """Relative distance of each input (n, d) to the nearest vector that was found, shape (n,)."""
    if not len(found):
        return np.ones(len(inputs))
    apart = np.linalg.norm(inputs[:, None] - found[None], axis=2).min(axis=1)
    return np.asarray(apart / np.linalg.norm(inputs, axis=1))


def check(records: int = RECORDS) -> dict[str, float]:
    """Asserts that ours gives every input of one record and of several; the largest errors."""
    found = {}
    for number in (1, records):
        inputs, *given = gradient(number)
        found[f"error_of_{number}"] = float(errors(ours(*given), inputs).max())
        assert found[f"error_of_{number}"] < 1e-3, found
    return found


def run(full: bool = False, repeats: int = 3) -> measure.Row:
    """The row; a reason in its place where the peer is not installed."""
    found, row = check(), f"inputs of a linear layer, {WIDTH} to {UNITS}, one record"
    peak = measure.peak_mib()
    try:
        call = peer()
    except ImportError as error:
        return {"row": row, "ratio": None, "target": None, "met": True, "peer": f"skipped: {error}", **found}
    inputs, *given = gradient(1)
    several, *of_several = gradient(RECORDS)
    theirs = partial(mean_of, call, *given)
    a, b = measure.alternate(
        lambda: [theirs() for _ in range(RUNS)], lambda: [ours(*given) for _ in range(RUNS)], repeats=repeats
    )
    ratio, of_cpu = a.elapsed / b.elapsed, a.cpu / b.cpu
    return {
        "row": row,
        "ratio": round(ratio, 3),
        "target": TARGET,
        "met": min(ratio, of_cpu) >= TARGET,
        "ratio_of_cpu": round(of_cpu, 3),
        "peer": "breaching AnalyticAttacker.invert_fc_layer",
        **found,
        "peer_error_of_1": float(errors(theirs(), inputs).max()),
        "peer_vectors": len(call(*of_several)),
        f"peer_error_of_{RECORDS}": float(errors(np.asarray(call(*of_several)), several).max()),
        "milliseconds": round(1e3 * b.cpu / RUNS, 2),
        "peer_milliseconds": round(1e3 * a.cpu / RUNS, 2),
        "peak_mib": peak,
    }


if __name__ == "__main__":
    measure.main(run, __doc__)
