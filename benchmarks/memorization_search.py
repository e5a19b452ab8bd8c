"""Memorization search (top-50 L2) of 32x32x3 images, against faiss, scikit-learn and sgemm.

    python benchmarks/memorization_search.py            5,000 queries, 12,000 training images
    python benchmarks/memorization_search.py --full     60,000 queries: five times the training set

Queries stand in for generated images: test images, mirrored and with a little noise in turn. Every
contender gets float32 vectors, builds its index inside its time, and uses the same threads. faiss is
optional (`pip install faiss-cpu`); without it the ratio is to scikit-learn's. `of_sgemm` is the work of
a brute-force product, 2 x queries x gallery x 3072 operations, in our time, over the measured rate of
torch's float32 product: pruning can bring it above 1.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import images32
import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors

from fedassay.similarity.nearest import stream_top_k_l2, top_k_l2

NEIGHBOURS = 50
REQUIRED_OF_SGEMM = 0.7
BLOCK = 1024
Vectors = NDArray[np.float32]


def faiss_search(queries: Vectors, gallery: Vectors) -> NDArray[np.float32] | None:
    try:
        import faiss
    except ImportError:
        return None
    faiss.omp_set_num_threads(torch.get_num_threads())
    index = faiss.IndexFlatL2(gallery.shape[1])
    index.add(gallery)
    squares, _ = index.search(queries, NEIGHBOURS)
    return np.sqrt(np.maximum(squares, 0))


def sklearn_search(queries: Vectors, gallery: Vectors) -> NDArray[np.float64]:
    distances, _ = NearestNeighbors(n_neighbors=NEIGHBOURS, algorithm="brute").fit(gallery).kneighbors(queries)
    return distances


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def sgemm_rate() -> float:
    """Floating-point operations a second of a large float32 product: the best of five."""
    a, b = torch.rand(2048, 3072), torch.rand(3072, 4096)
    return 2 * 2048 * 3072 * 4096 / min(seconds(lambda: torch.mm(a, b)) for _ in range(5))


def peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def check(queries: Vectors, gallery: Vectors) -> None:
    """Asserts our distances against scikit-learn's and faiss's before anything is timed."""
    ours = top_k_l2(queries, gallery, NEIGHBOURS).distances
    for peer in (sklearn_search(queries, gallery), faiss_search(queries, gallery)):
        if peer is not None:  # peers expand the square in float32, which is good to about 1e-3 here
            np.testing.assert_allclose(ours, peer, rtol=0, atol=5e-3)


def pseudo_generated(images: images32.Images, number: int) -> images32.Images:
    """Test images in turn as they are, mirrored, and with noise, repeated as often as needed."""
    rng = np.random.default_rng(0)
    chosen = images[np.arange(number) % len(images)]
    chosen = np.where((np.arange(number) // len(images) % 2 == 1)[:, None, None, None], chosen[:, :, ::-1], chosen)
    noisy = chosen + rng.normal(0, 4, chosen.shape).astype(np.float32)
    return np.clip(np.rint(noisy), 0, 255).astype(np.uint8)


def vectors(images: images32.Images) -> Vectors:
    return images.reshape(len(images), -1).astype(np.float32) / 255


def run(queries: int = 5000, gallery: int = 12000, repeats: int = 3, full: bool = False) -> dict[str, Any]:
    """Times all and returns the row of the performance table."""
    queries, repeats = (60_000, 1) if full else (queries, repeats)
    test, train, source = images32.load(2500, gallery)
    x, y = pseudo_generated(test, queries), vectors(train)
    check(vectors(x[:200]), y)
    # Memory first: it must not grow with the number of queries that stream through.
    before = peak_mib()
    for _ in stream_top_k_l2((vectors(x[i : i + BLOCK]) for i in range(0, 2 * BLOCK, BLOCK)), y, NEIGHBOURS):
        pass
    after_two = peak_mib()
    for _ in stream_top_k_l2((vectors(x[i : i + BLOCK]) for i in range(0, len(x), BLOCK)), y, NEIGHBOURS):
        pass
    after_all = peak_mib()
    q = vectors(x)
    ours, faiss_seconds, sklearn_seconds, rates = [], [], [], []
    for _ in range(repeats):
        ours.append(seconds(lambda: top_k_l2(q, y, NEIGHBOURS)))
        if faiss_search(q[:1], y[:100]) is not None:
            faiss_seconds.append(seconds(lambda: faiss_search(q, y)))
        if not full:
            sklearn_seconds.append(seconds(lambda: sklearn_search(q, y)))
        rates.append(sgemm_rate())
    work = 2 * len(q) * len(y) * q.shape[1]
    of_sgemm = work / median(ours) / median(rates)
    to_sklearn = median(sklearn_seconds) / median(ours) if sklearn_seconds else None
    ratio = median(faiss_seconds) / median(ours) if faiss_seconds else to_sklearn
    return {
        "row": "memorization search (top-50 L2), 32x32x3",
        "ratio": round(ratio, 2) if ratio is not None else None,
        "target": 1,
        "met": ratio is not None and ratio >= 1 and of_sgemm >= REQUIRED_OF_SGEMM,
        "peer": "faiss IndexFlatL2" if faiss_seconds else "scikit-learn NearestNeighbors (faiss not installed)",
        "sklearn_ratio": round(to_sklearn, 2) if to_sklearn is not None else None,
        "of_sgemm": round(of_sgemm, 2),
        "of_sgemm_target": REQUIRED_OF_SGEMM,
        "sgemm_gflops": round(median(rates) / 1e9, 1),
        "seconds": round(median(ours), 2),
        "queries": len(q),
        "gallery": len(y),
        "extra_mib_two_blocks": after_two - before,
        "extra_mib_all_blocks": after_all - before,
        "peak_mib_of_process": peak_mib(),
        "data": source,
        "threads": torch.get_num_threads(),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--queries", type=int, default=5000)
    parser.add_argument("--gallery", type=int, default=12000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--full", action="store_true")
    print(json.dumps(run(**vars(parser.parse_args())), indent=2))
