"""Exact nearest neighbours (top 50, L2) of 10^5 streamed queries among many images, projected from 1 %.

    python benchmarks/nearest_streamed.py            among 10^5 images
    python benchmarks/nearest_streamed.py --full     among 10^6 images: 7 GiB

The gallery is crops and mirror images of 12,000 CIFAR-10 images, as a training makes them; 1,000 of the
queries are searched, and the time of all is that of making the gallery ready and a hundred times the search.
faiss IndexFlatL2 is timed on the same queries among 12,000 images, alternately, and projected by pairs: its cost
is the same for each. Before that a hundred lists are compared with brute force in whole numbers over the gallery.
"""

from __future__ import annotations

import images32
import measure
import memorization_search as small
import numpy as np
import torch

from fedassay.similarity import nearest_pixels
from fedassay.similarity.nearest import stream_top_k_l2

TARGET = small.TARGET
QUERIES, SEARCHED = 100_000, 1000
CHECKED = 100


def check(queries: images32.Images, gallery: images32.Images) -> None:
    """Asserts the lists of some queries against brute force, block by block of the gallery."""
    (found,) = stream_top_k_l2([queries], gallery, small.NEIGHBOURS)
    keys = np.empty((len(queries), 0), np.int64)
    for start in range(0, len(gallery), 20_000):
        order, squares = small.brute(queries, gallery[start : start + 20_000])
        keys = np.concatenate([keys, (squares.astype(np.int64) << 31) + order + start], axis=1)
        keys = np.sort(keys, axis=1)[:, : small.NEIGHBOURS]
    np.testing.assert_array_equal(found.indices, keys & (2**31 - 1))
    np.testing.assert_array_equal(np.rint(found.distances**2), keys >> 31)


def run(full: bool = False, repeats: int = 3) -> measure.Row:
    """Times both and returns the row of the performance table."""
    test, train, source = images32.load(2500, 12000)
    gallery = images32.crops(train, 1_000_000 if full else 100_000)
    x = images32.near_copies(test, SEARCHED)
    ready: list[nearest_pixels.PixelGallery] = []
    flat = gallery.reshape(len(gallery), -1)
    prepared = measure.seconds(lambda: ready.append(nearest_pixels.prepare(flat)))
    rows = x.reshape(len(x), -1)
    nearest_pixels.search(rows, ready[0], small.NEIGHBOURS)
    peak = measure.peak_mib()
    check(x[:CHECKED], gallery)
    q, y = small.vectors(x), small.vectors(train)
    theirs, ours = measure.alternate(
        lambda: small.faiss_search(q, y) or small.sklearn_search(q, y),
        lambda: nearest_pixels.search(rows, ready[0], small.NEIGHBOURS),
        repeats=repeats,
    )
    times, share = QUERIES / SEARCHED, len(gallery) / len(train)
    ratio = times * share * theirs.elapsed / (prepared.elapsed + times * ours.elapsed)
    of_cpu = times * share * theirs.cpu / (prepared.cpu + times * ours.cpu)
    return {
        "row": f"nearest neighbours (top {small.NEIGHBOURS}, L2), 32x32x3, 10^5 streamed x {len(gallery):,}",
        "ratio": round(ratio, 2),
        "target": TARGET,
        "met": min(ratio, of_cpu) >= TARGET,
        "ratio_of_cpu": round(of_cpu, 2),
        "peer": small.peer_name(),
        "cpu_seconds_projected": round(prepared.cpu + times * ours.cpu),
        "peer_cpu_seconds_projected": round(times * share * theirs.cpu),
        "peak_mib": peak,
        "data": f"{source}, cropped and mirrored",
        "threads": torch.get_num_threads(),
    }


if __name__ == "__main__":
    measure.main(run, __doc__)
