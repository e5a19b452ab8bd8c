"""Exact nearest neighbours (top 50, L2) of 32x32x3 images, against faiss IndexFlatL2 and scikit-learn.

    python benchmarks/memorization_search.py            5,000 queries, 12,000 training images
    python benchmarks/memorization_search.py --full     60,000 queries: five times the training set

Queries stand in for generated images: test images, mirrored and with a little noise in turn. Ours is given the
8-bit images, as `memorization_scores` is; peers know float32 only and are given that, its making not counted.
Every contender builds its index inside its time and uses the same threads. faiss is optional
(`pip install faiss-cpu`); without it the ratio is to scikit-learn's.

Before anything is timed our lists are compared with brute force in whole numbers (200 queries), and with
faiss's on all queries: where a list differs, the two images must be equally far to faiss's rounding.
`of_sgemm` is the work of a brute-force product in float32 in our processor time, over torch's measured rate.
"""

from __future__ import annotations

import images32
import measure
import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors

from fedassay.similarity.nearest import Neighbours, stream_top_k_l2, top_k_l2

NEIGHBOURS, TARGET = 50, 5.0
BLOCK = 1024
ROUNDING = 5e-3
"""Peers expand the square in float32, which is good to about 1e-3 for pixels on [0, 1]."""
Vectors = NDArray[np.float32]


def faiss_search(queries: Vectors, gallery: Vectors) -> tuple[NDArray[np.int64], NDArray[np.float32]] | None:
    """Indices and distances, or None without faiss."""
    try:
        import faiss
    except ImportError:
        return None
    faiss.omp_set_num_threads(torch.get_num_threads())
    index = faiss.IndexFlatL2(gallery.shape[1])
    index.add(gallery)
    squares, indices = index.search(queries, NEIGHBOURS)
    return indices, np.sqrt(np.maximum(squares, 0))


def peer_name() -> str:
    try:
        import faiss
    except ImportError:
        return "scikit-learn NearestNeighbors (faiss not installed)"
    return f"faiss {faiss.__version__} IndexFlatL2"


def sklearn_search(queries: Vectors, gallery: Vectors) -> NDArray[np.float64]:
    distances: NDArray[np.float64]
    distances, _ = NearestNeighbors(n_neighbors=NEIGHBOURS, algorithm="brute").fit(gallery).kneighbors(queries)
    return distances


def sgemm_rate() -> float:
    """Floating-point operations a processor second of a large float32 product: the best of five."""
    a, b = torch.rand(2048, 3072), torch.rand(3072, 4096)
    return 2 * 2048 * 3072 * 4096 / min(measure.seconds(lambda: torch.mm(a, b)).cpu for _ in range(5))


def brute(queries: images32.Images, gallery: images32.Images) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Indices and squared distances in whole numbers, which float64 holds; of equal ones the lowest index."""
    x, y = (images.reshape(len(images), -1).astype(np.float64) for images in (queries, gallery))
    squares = (x**2).sum(axis=1)[:, None] + (y**2).sum(axis=1)[None] - 2 * x @ y.T
    order = np.argsort(squares, axis=1, kind="stable")[:, :NEIGHBOURS]
    return order, np.take_along_axis(squares, order, axis=1)


def differing(
    ours: Neighbours, theirs: NDArray[np.int64], queries: images32.Images, gallery: images32.Images
) -> int:
    """Asserts that lists differ from a peer's only where it cannot tell distances apart; in how many places."""
    row, place = np.nonzero(ours.indices != theirs)
    if not len(row):
        return 0
    other = np.linalg.norm(
        (queries[row].astype(np.float64) - gallery[theirs[row, place]]).reshape(len(row), -1), axis=1
    )
    np.testing.assert_allclose(other / 255, ours.distances[row, place] / 255, rtol=0, atol=ROUNDING)
    return len(row)


def check(queries: images32.Images, gallery: images32.Images) -> int:
    """Asserts our lists against brute force and the peers'; places where they differ from faiss's."""
    found = top_k_l2(queries, gallery, NEIGHBOURS)
    order, squares = brute(queries[:200], gallery)
    np.testing.assert_array_equal(found.indices[:200], order)
    np.testing.assert_allclose(found.distances[:200] ** 2, squares, rtol=1e-6)
    q, y = vectors(queries), vectors(gallery)
    np.testing.assert_allclose(found.distances[:200] / 255, sklearn_search(q[:200], y), rtol=0, atol=ROUNDING)
    theirs = faiss_search(q, y)
    if theirs is None:
        return 0
    np.testing.assert_allclose(found.distances / 255, theirs[1], rtol=0, atol=ROUNDING)
    return differing(found, theirs[0], queries, gallery)


def vectors(images: images32.Images) -> Vectors:
    return images.reshape(len(images), -1).astype(np.float32) / np.float32(255)


def stream(queries: images32.Images, gallery: images32.Images, blocks: int) -> int:
    """Streams blocks of queries and drops what is found; the peak of memory afterwards, MiB."""
    parts = (queries[i : i + BLOCK] for i in range(0, min(len(queries), blocks * BLOCK), BLOCK))
    for _ in stream_top_k_l2(parts, gallery, NEIGHBOURS):
        pass
    return measure.peak_mib()


def run(full: bool = False, repeats: int = 3) -> measure.Row:
    """Times all and returns the row of the performance table."""
    test, train, source = images32.load(2500, 12000)
    x = images32.near_copies(test, 60_000 if full else 5000)
    # Memory first: it must not grow with the number of queries that stream through.
    before = measure.peak_mib()
    after_two, after_all = stream(x, train, 2), stream(x, train, len(x))
    places = check(x[:5000], train)
    q, y = vectors(x), vectors(train)
    has_faiss = faiss_search(q[:1], y[:100]) is not None
    search = faiss_search if has_faiss else sklearn_search
    peer, ours = measure.alternate(
        lambda: search(q, y), lambda: top_k_l2(x, train, NEIGHBOURS), repeats=1 if full else repeats
    )
    learn = None if full else measure.seconds(lambda: sklearn_search(q, y))
    rate = sgemm_rate()
    ratio, of_cpu = peer.elapsed / ours.elapsed, peer.cpu / ours.cpu
    return {
        "row": f"nearest neighbours (top {NEIGHBOURS}, L2), 32x32x3, {len(q):,} x {len(y):,}",
        "ratio": round(ratio, 2),
        "target": TARGET,
        "met": min(ratio, of_cpu) >= TARGET,
        "ratio_of_cpu": round(of_cpu, 2),
        "peer": peer_name(),
        "sklearn_ratio_of_cpu": round(learn.cpu / ours.cpu, 2) if learn else None,
        "of_sgemm": round(2 * len(q) * len(y) * q.shape[1] / ours.cpu / rate, 2),
        "sgemm_gflops": round(rate / 1e9, 1),
        "places_that_differ_from_faiss": places,
        "seconds": round(ours.elapsed, 2),
        "extra_mib_two_blocks": after_two - before,
        "extra_mib_all_blocks": after_all - before,
        "peak_mib": after_all,
        "data": source,
        "threads": torch.get_num_threads(),
    }


if __name__ == "__main__":
    measure.main(run, __doc__)
