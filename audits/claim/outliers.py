"""Neighbouring data sets of one client that differ by a record, or a unit, unlike the rest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedassay.audits.claim.tape.neighbours import unit_at
from fedassay.contracts.audit import AuditContext
from fedassay.data.records import Records
from fedassay.support.adjacency import Adjacency, Unit
from fedassay.support.types import Images


@dataclass(frozen=True)
class Outlier:
    """Two neighbouring data sets of one client.

    Attributes:
        name: Name of the record in question.
        without: Data set 0.
        within: Data set 1, which holds the outlier.
    """

    name: str
    without: Records
    within: Records


def outliers_of(
    context: AuditContext, client: Records, adjacency: Adjacency, unit: Unit = "record"
) -> list[Outlier]:
    """Neighbours of some records of a client, at least one, that differ by a record or a unit unlike the rest.

    Under `replace_one_same_label` a record of the rarest class is replaced, its label kept; under
    `replace_one` its label changes too; under `add_remove` the record is added. Of a person, or the client, all
    records are outliers; under `add_remove` the other side lacks them.
    """
    labels, counts = np.unique(client.labels, return_counts=True)
    rare = int(labels[np.argmin(counts)])
    place = int(np.flatnonzero(client.labels == rare)[0])
    others = [label for label in range(context.data.classes) if label != rare] or [rare]
    label = others[0] if adjacency == "replace_one" else rare
    wrong = np.flatnonzero(context.data.test.labels != label)
    images: dict[str, Images] = {
        "an inverted image": 255 - client.images[place],
        "an image of noise": _noise_image(context, client.images[place]),
    }
    if wrong.size:
        images["an image of another class"] = context.data.test.images[wrong[0]]
    verb = "added" if adjacency == "add_remove" else "in place of a record"
    if unit != "record":
        return [
            _unit_outlier(name, image, client, place, unit, label if adjacency == "replace_one" else None, context)
            if adjacency != "add_remove"
            else _without(_unit_outlier(name, image, client, place, unit, None, context), client, place, unit)
            for name, image in images.items()
        ]
    found = []
    for name, image in images.items():
        one = (client.images.copy(), client.labels.copy())
        if adjacency == "add_remove":
            one = (np.concatenate([one[0], image[None]]), np.append(one[1], label))
        else:
            one[0][place], one[1][place] = image, label
        within = Records(client.name, one[0], one[1].astype(np.int64), context.data.encode)
        found.append(Outlier(f"{name} {verb}", client, within))
    return found


def _unit_outlier(
    name: str, image: Images, client: Records, place: int, unit: Unit, label: int | None, context: AuditContext
) -> Outlier:
    """All records of a unit replaced by one image; `label` is theirs, or None where they keep their own."""
    places, images, labels = unit_at(client, place, unit), client.images.copy(), client.labels.copy()
    images[places] = image
    if label is not None:
        labels[places] = label
    within = Records(client.name, images, labels, context.data.encode, client.groups)
    return Outlier(f"{name} in place of every record of one {unit}", client, within)


def _without(outlier: Outlier, client: Records, place: int, unit: Unit) -> Outlier:
    rest = np.setdiff1d(np.arange(len(client)), unit_at(client, place, unit))
    return Outlier(f"{outlier.name}, or nobody", client.take(rest), outlier.within)


def _noise_image(context: AuditContext, like: Images) -> Images:
    """An image of independent pixels and channels at either end of their range, the shape of `like`."""
    rng = context.seeds.numpy("dp_claim", "outlier")
    return np.asarray(255 * rng.integers(0, 2, size=like.shape), dtype=np.uint8)
