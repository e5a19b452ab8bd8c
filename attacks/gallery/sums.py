"""The sums in a sender's messages, and candidates' features as they enter them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedassay.attacks.membership.signals import encoded
from fedassay.data.records import Records
from fedassay.exchange.blocks import LinearBlock
from fedassay.exchange.linear import linear_blocks
from fedassay.exchange.public_map import as_summed
from fedassay.exchange.transcript import SERVER, Message
from fedassay.exchange.view import View
from fedassay.support.errors import NotRunError
from fedassay.support.types import Ints, Matrix

_OF_FEATURES = ("features", "squares", "norms")


def rounds_of(view: View, sender: str, sizes: Ints | None) -> list[list[LinearBlock]]:
    """Return the sums in a sender's messages by round, as its method declares them or by their fields' kinds."""
    found: dict[int, list[LinearBlock]] = {}
    for message in view.from_client(sender):
        found.setdefault(message.round, []).extend(_declared(view, message, sizes))
    return [found[number] for number in sorted(found)]


def _declared(view: View, message: Message, sizes: Ints | None) -> Sequence[LinearBlock]:
    if view.enters is not None:
        return view.enters(message, view.classes)
    return linear_blocks(message, view.classes, sizes)


def features_of(view: View, records: Records, blocks: Sequence[LinearBlock], captured: bool) -> Matrix | str:
    """Return features of records as they enter the sums, shape (n, d); a string says why there are none.

    Sums over images need no features of networks that only clients hold.
    """
    if any(block.of_images for block in blocks) and not any(block.of in _OF_FEATURES for block in blocks):
        return records.features.astype(np.float64)
    try:
        features = encoded(view, records)
    except NotRunError as error:
        if not captured:
            return str(error)
        # The sent features are not declared: the candidates' own are tried, and a certificate decides.
        features = records.features.astype(np.float64)
    widths = {block.width for block in blocks if block.of == "features"}
    if widths and features.shape[1] not in widths:
        mapped = as_summed(view, records.features, max(widths))
        features = features if mapped is None else mapped
    if view.protected and SERVER not in view.model_rounds:
        # Without a head the clipping is not declared: private sums are of features of norm 1 at most.
        features = features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1.0)
    return features
