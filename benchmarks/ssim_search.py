"""SSIM nearest neighbour over all pairs at 32x32x3, against scikit-image in a double loop.

    python benchmarks/ssim_search.py            1,000 x 6,000 pairs
    python benchmarks/ssim_search.py --full     9,000 x 9,000, each image against all others

`ratio` compares elapsed times. `ratio_of_free_cores` divides our processor time evenly over the threads,
as on a machine that nothing else uses; the two agree where the cores were free.

The peer runs on a stated subsample of pairs and is compared by its time per pair; it is asked for
the SSIM and nothing else, and the maximum is free. torchmetrics, where it is installed, is timed in
batches on the same subsample. Runs alternate; medians are compared.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable
from typing import Any

import images32
import numpy as np
import torch
from numpy.typing import NDArray
from skimage.metrics import structural_similarity

from fedassay.similarity.ssim_search import most_similar
from fedassay.support.torchvision import import_torchvision

REQUIRED, GOAL = 90, 200
PEER_PAIRS = (20, 150)


def skimage_matrix(x: images32.Images, y: images32.Images) -> NDArray[np.float64]:
    return np.array([[structural_similarity(a, b, channel_axis=-1, data_range=255) for b in y] for a in x])


def torchmetrics_matrix(x: images32.Images, y: images32.Images) -> NDArray[np.float32] | None:
    import_torchvision()  # torchmetrics imports it, and it may have to be mended first
    try:
        from torchmetrics.functional.image import structural_similarity_index_measure as measure
    except ImportError:
        return None
    right = torch.from_numpy(y).permute(0, 3, 1, 2).float()
    options: dict[str, Any] = {
        "gaussian_kernel": False, "kernel_size": 7, "data_range": 255.0, "reduction": "none",
    }  # fmt: skip
    rows = [
        measure(torch.from_numpy(one).permute(2, 0, 1)[None].float().expand_as(right), right, **options)
        for one in x
    ]
    return torch.stack(rows).numpy()


def seconds(call: Callable[[], object]) -> NDArray[np.float64]:
    """Elapsed seconds, and processor seconds of all threads together."""
    start = np.array([time.perf_counter(), time.process_time()])
    call()
    return np.array([time.perf_counter(), time.process_time()]) - start


def check(x: images32.Images, y: images32.Images) -> None:
    """Asserts that the search equals the double loop on a subsample, before anything is timed."""
    expected = skimage_matrix(x, y)
    found = most_similar(x, y)
    np.testing.assert_allclose(found.values, expected.max(axis=1), rtol=0, atol=1e-4)
    np.testing.assert_array_equal(found.indices, expected.argmax(axis=1))


def run(queries: int = 1000, gallery: int = 6000, repeats: int = 3, full: bool = False) -> dict[str, Any]:
    """Times both and returns the row of the performance table."""
    if full:
        _, y, source = images32.load(0, 9000)
        x = y
    else:
        x, y, source = images32.load(queries, gallery)
    few_x, few_y = x[: PEER_PAIRS[0]], y[-PEER_PAIRS[1] :]
    check(few_x, few_y)
    matched = most_similar(x[:100], y[:100], exclude_self=full)  # warms up
    assert len(matched.indices) == min(100, len(x))
    peer, ours, metrics = [], [], []
    for _ in range(1 if full else repeats):
        peer.append(seconds(lambda: skimage_matrix(few_x, few_y)) / few_x.shape[0] / few_y.shape[0])
        ours.append(seconds(lambda: most_similar(x, y, exclude_self=full)) / len(x) / len(y))
        if torchmetrics_matrix(few_x[:1], few_y[:1]) is not None:
            metrics.append(seconds(lambda: torchmetrics_matrix(few_x, few_y)) / few_x.shape[0] / few_y.shape[0])
    (peer_us, peer_cpu), (ours_us, ours_cpu) = (1e6 * np.median(runs, axis=0) for runs in (peer, ours))
    ratio = peer_us / ours_us
    return {
        "row": "SSIM nearest neighbour over all pairs, 32x32x3",
        "ratio": round(ratio, 1),
        "target": REQUIRED,
        "met": bool(ratio >= REQUIRED),
        "goal": GOAL,
        "goal_met": bool(ratio >= GOAL),
        "ratio_of_free_cores": round(peer_cpu / (ours_cpu / torch.get_num_threads()), 1),
        "peer": "skimage.metrics.structural_similarity in a double loop",
        "peer_us_per_pair": round(peer_us, 2),
        "ours_us_per_pair": round(ours_us, 3),
        "torchmetrics_ratio": round(1e6 * np.median(metrics, axis=0)[0] / ours_us, 1) if metrics else None,
        "pairs": len(x) * len(y),
        "peer_pairs": len(few_x) * len(few_y),
        "seconds": round(ours_us * len(x) * len(y) / 1e6, 1),
        "peak_mib_of_process": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "data": source,
        "threads": torch.get_num_threads(),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--gallery", type=int, default=6000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--full", action="store_true")
    print(json.dumps(run(**vars(parser.parse_args())), indent=2))
