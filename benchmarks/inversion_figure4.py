"""Figure 4 of Guan et al. 2025 on CIFAR-10: what four records of one class show through FedCGS's message.

    python benchmarks/inversion_figure4.py OUT.png [--family NAME] [--data cifar10] [--weights imagenet]

One client holds the first four training images of a class. Rows of the picture: the images; inverted from their
raw features; from the features that `gram_factorization` recovers from the client's second moment and class sum in
float64; from the class mean; from the strongest direction of the second moment. Prints each row's PSNR.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import public_data
from PIL import Image

from fedassay.attacks.feature_inversion import DIRECTIONS, FeatureInversion
from fedassay.attacks.gram.attack import GramFactorization
from fedassay.contracts.attack import Knowledge
from fedassay.exchange.feature_sources import VectorSource
from fedassay.exchange.release import exact
from fedassay.exchange.transcript import Message, MessageField
from fedassay.exchange.view import ThreatModel, View
from fedassay.similarity.reported import reported_psnr
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds

RECORDS, CLASSES, ENLARGED = 4, 10, 4


def views(features: np.ndarray, label: int) -> tuple[View, View]:
    """The client's FedCGS message, and its raw features."""
    sums = np.zeros((CLASSES, features.shape[1]))
    sums[label] = features.sum(axis=0)
    counts = np.bincount([label] * len(features), minlength=CLASSES)
    fields = {
        "A": MessageField(sums, "class_sums", exact()),
        "B": MessageField(features.T @ features, "second_moment", exact()),
        "N": MessageField(counts, "class_counts", exact("labels")),
    }
    raw = {"features": MessageField(features, "features", exact())}
    first, second = (View((Message(0, "client/0", "server", f),), CLASSES, ThreatModel()) for f in (fields, raw))
    return first, second


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("out", type=Path)
    parser.add_argument("--family", choices=["spectrum", "pixels", "deep_image_prior"], default="spectrum")
    parser.add_argument("--label", type=int, choices=range(CLASSES), default=1)
    parser.add_argument("--steps", type=int, default=150)
    public_data.add_arguments(parser)
    given = parser.parse_args()
    every, labels = public_data.training(given.data)
    images = every[np.flatnonzero(labels == given.label)[:RECORDS]]
    network = public_data.backbone("squeezenet1_1", given.weights, public_data.SIZE, images, CLASSES)
    features = network.extract(images).astype(np.float64)
    message, raw = views(features, given.label)

    def knowledge(recovered: tuple[VectorSource, ...] = ()) -> Knowledge:
        return Knowledge(None, CLASSES, network, True, Seeds(0), "cpu", SILENT, recovered)

    factors = GramFactorization().run(message, knowledge())
    vectors = np.asarray(factors.artifacts["vectors"], np.float64)
    apart = np.linalg.norm(vectors[:, None] - features, axis=2) / np.linalg.norm(features, axis=1)
    print(f"relative error of the recovered features: {apart.min(axis=0).max():.1e} at most")
    attack = FeatureInversion.model_validate({"family": given.family, "steps": given.steps, "directions": 1})
    result = attack.run(message, knowledge(factors.vectors))
    shown = {item.source.name: item.images[:, 0] for item in result.reconstructions}
    rows = {
        "private image": images,
        "raw feature": attack.run(raw, knowledge()).reconstructions[0].images[:, 0],
        "recovered feature": shown["gram_factorization"][apart.argmin(axis=0)],
        "class mean": shown["class_means"].repeat(RECORDS, axis=0),
        "strongest direction": shown[DIRECTIONS].repeat(RECORDS, axis=0),
    }
    for name, row in list(rows.items())[1:]:
        print(f"{name}: " + ", ".join(f"{value:.1f}" for value in reported_psnr(images, row)) + " dB")
    sheet = np.concatenate([np.concatenate(list(row), axis=1) for row in rows.values()])
    Image.fromarray(sheet.repeat(ENLARGED, axis=0).repeat(ENLARGED, axis=1)).save(given.out)


if __name__ == "__main__":
    public_data.ended(main)
