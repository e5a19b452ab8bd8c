"""Figure 4 of Guan et al. 2025 on CIFAR-10: what four records of one class show through FedCGS's message.

    FEDASSAY_DATA=... FEDASSAY_WEIGHTS=... python benchmarks/inversion_figure4.py OUT.png [--family NAME]

One client holds the first four training images of a class. Rows of the picture: the images; inverted from their
raw features; from the features that `gram_factorization` recovers from the client's second moment and class sum in
float64; from the class mean; from the strongest direction of the second moment. Prints each row's PSNR.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from PIL import Image

from fedassay.attacks.feature_inversion import DIRECTIONS, FeatureInversion
from fedassay.attacks.gram.attack import GramFactorization
from fedassay.backbones import build
from fedassay.backbones.base import Backbone, BackboneRequest
from fedassay.contracts.attack import Knowledge
from fedassay.exchange.feature_sources import VectorSource
from fedassay.exchange.release import exact
from fedassay.exchange.transcript import Message, MessageField
from fedassay.exchange.view import ThreatModel, View
from fedassay.similarity.psnr import psnr
from fedassay.support.paths import find
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds
from fedassay.support.types import Images

RECORDS, CLASSES, ENLARGED = 4, 10, 4


def backbone() -> Backbone:
    weights = find("squeezenet1_1_imagenet_features.pt", Path.cwd())
    return build(
        BackboneRequest(
            name="squeezenet1_1",
            weights=str(weights.resolve()),
            input_size=64,
            image_shape=(32, 32, 3),
            classes=CLASSES,
            public=None,
            seed=0,
            device="cpu",
            base=Path.cwd(),
        )
    )


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
    given = parser.parse_args()
    data = find("cifar10_subset.npz", Path.cwd())
    with np.load(data, allow_pickle=False) as archive:
        images: Images = archive["x_train"][np.flatnonzero(archive["y_train"] == given.label)[:RECORDS]]
    network = backbone()
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
        print(f"{name}: " + ", ".join(f"{value:.1f}" for value in psnr(images, row)) + " dB")
    sheet = np.concatenate([np.concatenate(list(row), axis=1) for row in rows.values()])
    Image.fromarray(sheet.repeat(ENLARGED, axis=0).repeat(ENLARGED, axis=1)).save(given.out)


if __name__ == "__main__":
    main()
