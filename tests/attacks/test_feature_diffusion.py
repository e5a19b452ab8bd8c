"""Feature diffusion where the vectors are of a body that everybody can train, and where nobody has the body."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from fedassay.attacks.feature_diffusion import FeatureDiffusion
from fedassay.contracts.attack import Knowledge
from fedassay.data.records import Records
from fedassay.exchange.blocks import Enters, LinearBlock, OfImages
from fedassay.exchange.message import SERVER, Message, MessageField
from fedassay.exchange.release import exact
from fedassay.exchange.view import ThreatModel, View
from fedassay.similarity.reported import reported_ssim
from fedassay.support.errors import NotRunError
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds
from fedassay.support.types import Images

_DIGITS = np.rint(load_digits().images[:320, ..., None] * (255 / 16)).astype(np.uint8)
_OWN, _SENT = _DIGITS[:300], _DIGITS[300:]
_BODY = np.random.default_rng(0).standard_normal((64, 48)) / 8


def _features(images: Images) -> NDArray[np.float64]:
    return np.asarray(images.reshape(len(images), -1) / 255 @ _BODY)


def _block(message: Message, classes: int) -> LinearBlock:
    nothing = np.zeros(classes)
    return LinearBlock(
        "sums", OfImages(_features), 1, True, message.fields["sums"].values, noise=nothing, rounding=nothing
    )


def _enters(message: Message, classes: int) -> Sequence[LinearBlock]:
    return [_block(message, classes)]


def _view(enters: Enters | None) -> View:
    """Class sums of two clients, of one record a class."""
    messages = tuple(
        Message(
            0,
            f"client/{number}",
            SERVER,
            {
                "sums": MessageField(_features(part), "class_sums", exact()),
                "counts": MessageField(np.ones(len(part), np.int32), "class_counts", exact("labels")),
            },
        )
        for number, part in enumerate((_SENT[:10], _SENT[10:]))
    )
    return View(messages, 10, ThreatModel(), enters=enters)


def _knowledge() -> Knowledge:
    own = Records("attacker", _OWN, np.zeros(len(_OWN), np.int64), lambda images: np.zeros((len(images), 7)))
    return Knowledge(own, 10, None, False, Seeds(0), "cpu", SILENT)


def test_sums_of_a_body_that_everybody_can_train_are_read_through_it() -> None:
    (made,) = FeatureDiffusion(preset="quick", sampler="dpm").run(_view(_enters), _knowledge()).reconstructions
    assert made.source.name == "class_means"
    assert made.images.shape == (20, 1, 8, 8, 1)
    ours, others = (reported_ssim(truth, made.images[:, 0]).mean() for truth in (_SENT, np.roll(_SENT, 1, axis=0)))
    assert ours > 0.75
    assert ours > others + 0.2


def test_sums_of_a_body_that_nobody_has_are_not_read() -> None:
    with pytest.raises(NotRunError, match="width 48, and the backbone's features 7"):
        FeatureDiffusion(preset="quick").run(_view(None), _knowledge())


def test_clients_with_bodies_of_their_own_are_not_read_through_one() -> None:
    def enters(message: Message, classes: int) -> Sequence[LinearBlock]:
        block = _block(message, classes)
        if message.sender == "client/0":
            return [block]
        return [LinearBlock(**{**vars(block), "of": OfImages(lambda images: _features(images) + 1)})]

    with pytest.raises(NotRunError):
        FeatureDiffusion(preset="quick").run(_view(enters), _knowledge())
