"""A record but for one attribute: what is known of it, the best guess from that, and its completions.

What is unknown of a record is its attribute and whatever of the record is the attribute's carrier:

| the attribute is | known of a record | its completion with a value |
|---|---|---|
| `label` | its features | the same features under that label |
| columns of the features | the other columns, and the label | the columns as that value has them |
| anything else | the label | the mean of the adversary's own records of that label and value |

Of an attribute that is no column and no label the image is the carrier: it is no input of any method, and given
all features and the label of a record no message says anything more of it. So the features are what is unknown;
whoever has them needs no message (`from_features`).

The best guess without a message is Bayes' rule on the adversary's own records: shares of the values, and Gaussians
of one shrunk covariance for what is known of the features (imputation: Jayaraman and Evans, "Are Attribute
Inference Attacks Just Imputation?", CCS 2022).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from fedassay.data.feature_archive import stand_ins
from fedassay.data.loading import LABEL
from fedassay.data.records import Records, joined
from fedassay.mixtures.population import Population, population_of
from fedassay.support.errors import NotRunError
from fedassay.support.types import Bools, Ints, Matrix

Carrier = Literal["label", "columns", "record"]

MOST_VALUES = 20
"""More values than this are a number and no attribute."""

_CONSTANT = 1e-6
"""Spread of a column within a value, over that between values, up to which the column is the attribute itself."""


@dataclass(frozen=True, eq=False)
class Sensitive:
    """An attribute, and what the adversary knows of it from records of its own.

    Attributes:
        name: As the plan has it.
        carrier: Part of a record that carries it.
        values: The values that the adversary has seen, ascending, shape (V,).
        columns: Whether each column of the features carries it, shape (d,).
        levels: Values of these columns at each value, shape (V, k); no row of numbers where there are none.
        own: The adversary's records.
        classes: C.
    """

    name: str
    carrier: Carrier
    values: Ints
    columns: Bools
    levels: Matrix
    own: Records
    classes: int

    @staticmethod
    def of(name: str, own: Records, classes: int) -> Sensitive:
        """Learn an attribute from the adversary's own records.

        Raises:
            NotRunError: They do not hold it, are too few, or show one value or too many.
        """
        if name not in own.attributes:
            raise NotRunError("the adversary's records do not hold the attribute")
        truth = own.labels if name == LABEL else own.attributes[name]
        values = np.unique(truth)
        if not 2 <= len(values) <= MOST_VALUES:
            raise NotRunError(
                f"the adversary's {len(own)} records show {len(values)} values of the attribute; 2 to "
                f"{MOST_VALUES} can be asked about"
            )
        features = own.features.astype(np.float64)
        columns = np.zeros(features.shape[1], np.bool_)
        if name != LABEL:
            columns = carrying(features, truth)
        levels = np.stack([features[truth == value][0, columns] for value in values])
        carrier: Carrier = "label" if name == LABEL else "columns" if columns.any() else "record"
        return Sensitive(name, carrier, values, columns, levels, own, classes)

    @property
    def words(self) -> str:
        """Return the adversary's knowledge of each record, as a clause."""
        known = {
            "label": "its features",
            "columns": f"its label and all features but {int(self.columns.sum())}, which are the attribute",
            "record": "its label",
        }[self.carrier]
        return f"the adversary knows of each record {known}, and {len(self.own)} records of its own as a whole"

    def truth(self, records: Records) -> Ints:
        """The true values of records, shape (n,)."""
        return records.labels if self.carrier == "label" else records.attributes[self.name]

    def imputed(self, records: Records) -> Matrix:
        """Log-odds of each value from what is known of records, without any message, shape (n, V)."""
        shares = self._shares[self._strata(records.labels)]
        return shares if self.carrier == "record" else shares + self._fits(records, ~self.columns, self._known_law)

    def from_features(self, records: Records) -> Matrix:
        """The same from all features of records, and from their labels where these are not asked for."""
        every = np.ones(len(self.columns), np.bool_)
        return np.asarray(self._shares[self._strata(records.labels)] + self._fits(records, every, self._whole_law))

    @cached_property
    def _shares(self) -> Matrix:
        """Log-shares of the values in every stratum of the adversary's records (Laplace), shape (strata, V)."""
        counts = np.zeros((1 if self.carrier == "label" else self.classes, len(self.values)))
        np.add.at(counts, (self._strata(self.own.labels), self._places), 1.0)
        return np.asarray(np.log((counts + 1) / (counts.sum(axis=1, keepdims=True) + len(self.values))))

    @cached_property
    def _places(self) -> Ints:
        """Index in `values` of the attribute of each of the adversary's records, shape (m,)."""
        return np.asarray(np.searchsorted(self.values, self.truth(self.own)), np.int64)

    @cached_property
    def _known_law(self) -> Population:
        return self._law(~self.columns)

    @cached_property
    def _whole_law(self) -> Population:
        return self._law(np.ones(len(self.columns), np.bool_))

    def _law(self, known: Bools) -> Population:
        """Gaussians of some features, one of each stratum and value."""
        groups = self._strata(self.own.labels) * len(self.values) + self._places
        return population_of(self.own.features[:, known].astype(np.float64), groups, self._shares.size)

    def _fits(self, records: Records, known: Bools, people: Population) -> Matrix:
        """Gaussian log-densities of records' features under every value, up to what values have in common."""
        scaled = people.vectors / np.sqrt(people.values)
        means = (people.means @ scaled).reshape(*self._shares.shape, scaled.shape[1])
        points = records.features[:, known].astype(np.float64) @ scaled
        apart = points[:, None, :] - means[self._strata(records.labels)]
        return np.asarray(-(apart**2).sum(axis=2) / 2)

    def _strata(self, labels: Ints) -> Ints:
        return np.zeros(len(labels), np.int64) if self.carrier == "label" else labels

    def completions(self, records: Records) -> tuple[Records, Ints]:
        """Whole records that these may be, or the means of these.

        Returns:
            The completions, and which of them each record is with each value, shape (n, V).
        """
        n, values = len(records), len(self.values)
        if self.carrier == "record":
            return self._means(records.labels)
        places = np.arange(n * values).reshape(values, n).T
        if self.carrier == "label":
            parts = [records.relabelled(np.full(n, value)) for value in self.values]
        else:
            parts = [self._with_columns(records, level) for level in self.levels]
        return joined("completions", parts), places

    @property
    def spread(self) -> float:
        """Variance of a record about its completion, in units of the covariance within classes."""
        return float(self.carrier == "record")

    def _with_columns(self, records: Records, level: Matrix) -> Records:
        features = records.features.copy()
        features[:, self.columns] = level
        # Without pictures the bytes of the features stand where images would, and tell records apart.
        images = records.images if records.pictures else stand_ins(features)
        return replace(records, images=images, extract=lambda _images: features)

    def _means(self, asked: Ints) -> tuple[Records, Ints]:
        """Means of own records of every label and value; of every label where there are none of one."""
        truth = self.truth(self.own)
        labels, rows = np.unique(asked, return_inverse=True)
        chosen = []
        for label in labels:
            for value in self.values:
                same = np.flatnonzero((truth == value) & (self.own.labels == label))
                chosen.append(same if len(same) else np.flatnonzero(truth == value))
        means = np.stack([self.own.features[each].mean(axis=0) for each in chosen])
        first = self.own.take(np.array([each[0] for each in chosen]))
        whole = replace(
            first, labels=np.repeat(labels, len(self.values)).astype(np.int64), extract=lambda _images: means
        )
        return whole, np.arange(len(chosen)).reshape(len(labels), -1)[rows]


def carrying(features: Matrix, truth: Ints) -> Bools:
    """The columns of features (n, d) that are the attribute: constant within each value, and not over all."""
    within = np.max([np.ptp(features[truth == value], axis=0) for value in np.unique(truth)], axis=0)
    between = np.ptp(features, axis=0)
    return np.asarray((between > 0) & (within <= _CONSTANT * between))


def planted(
    sensitive: Sensitive, parts: list[Records], rng: np.random.Generator
) -> tuple[Sensitive, list[Records]]:
    """The sensitive attribute replaced by one that nothing but a message can tell.

    Labels are drawn anew, so that features tell nothing of them. Columns are what they are. For anything else,
    features may depend on it or not. The side of the mean of their class takes its place, along the direction in
    which records of a class differ most among the adversary's own.

    Args:
        sensitive: The attribute.
        parts: Records of others; labels of clients are permuted, so that each holds as many of a class as before.
        rng: Draws labels.
    """
    own, classes, name = sensitive.own, sensitive.classes, sensitive.name
    if sensitive.carrier == "columns":
        return sensitive, parts
    if sensitive.carrier == "label":
        known, *found = [each.relabelled(rng.permutation(each.labels)) for each in (own, *parts)]
        return Sensitive.of(name, known, classes), found
    people = population_of(own.features.astype(np.float64), own.labels, classes)

    def told(records: Records) -> Records:
        steps = (records.features.astype(np.float64) - people.means[records.labels]) @ people.vectors[:, -1]
        return replace(records, attributes={**records.attributes, name: (steps > 0).astype(np.int64)})

    return Sensitive.of(name, told(own), classes), [told(each) for each in parts]
