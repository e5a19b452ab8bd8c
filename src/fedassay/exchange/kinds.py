"""The kinds of fields: what the array of a field means, declared once for whoever checks, reads or names it.

All blocks are in the order of the message's `class_ids` field where it has one, else class 0 to C - 1. d is the
feature width, C the number of classes, P the number of classes in `class_ids`, S the total number of mixture
components.

A kind of somebody else's is one object: a file in `fedassay/exchange`, or an entry point `field.NAME` of another
package. Its arrays are then checked, attacked as vectors, read by solvers as sums, and named in reports.

    @register("field", "class_medians")
    class ClassMedians:
        facts: ClassVar[FieldFacts] = FieldFacts(
            "(P, d)", "median of the features of a class", "medians of features over each class",
            sides=2, first="classes", wide=True, vectors=True,
        )
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator

from fedassay.support.registry import entries, lookup


@dataclass(frozen=True)
class FieldFacts:
    """What a kind of field is.

    Attributes:
        shape: Its shape, for readers.
        meaning: What the array holds, for readers.
        words: The same in plain words, as a report names it.
        sides: Sides of its array; None: any number.
        first: What its first side counts; empty: nothing that other fields count as well.
        whole: Whether its numbers are integers.
        wide: Whether its second side is the feature width, which all such fields of a message share.
        square: Sides of the array whose last ones are a symmetric matrix, whole or as its packed lower triangle;
            0: it holds none.
        vectors: Whether each of its rows is a vector of feature space, by itself, that attacks on features read.
        sums: Whether each of its rows is the sum of the features of a class, which solvers read.
    """

    shape: str
    meaning: str
    words: str
    sides: int | None = None
    first: Literal["", "classes", "components", "records"] = ""
    whole: bool = False
    wide: bool = False
    square: Literal[0, 2, 3] = 0
    vectors: bool = False
    sums: bool = False


_GRAM = "(d, d) or (d(d+1)/2,)"

_OWN: dict[str, FieldFacts] = {
    "features": FieldFacts(
        "(n, d)",
        "one feature vector a record, in the sender's record order",
        "features of single records",
        sides=2,
        vectors=True,
    ),
    "labels": FieldFacts(
        "(n,)", "the labels of `features`", "labels of single records", sides=1, first="records", whole=True
    ),
    "class_ids": FieldFacts(
        "(P,)", "the classes that the other fields speak of", "lists of classes", sides=1, whole=True
    ),
    "class_counts": FieldFacts(
        "(P,)", "records per class", "numbers of records of each class", sides=1, first="classes"
    ),
    "component_counts": FieldFacts(
        "(P,)",
        "mixture components per class",
        "numbers of records of each cluster",
        sides=1,
        first="classes",
        whole=True,
    ),
    "mixture_weights": FieldFacts(
        "(S,)",
        "component weights, summing to one in each class",
        "shares of clusters of features",
        sides=1,
        first="components",
    ),
    "mixture_means": FieldFacts(
        "(S, d)", "component means", "means of clusters of features", sides=2, first="components"
    ),
    "mixture_covariances": FieldFacts(
        "(S, d(d+1)/2), (S, d) or (S,)",
        "packed lower triangles, diagonals or variances",
        "spreads of clusters of features",
        first="components",
    ),
    "class_sums": FieldFacts(
        "(P, d)",
        "sum of the features of a class",
        "sums of features over each class",
        sides=2,
        first="classes",
        wide=True,
        sums=True,
    ),
    "class_means": FieldFacts(
        "(P, d)",
        "mean of the features of a class",
        "means of features over each class",
        sides=2,
        first="classes",
        wide=True,
        vectors=True,
    ),
    "second_moment": FieldFacts(
        _GRAM, "sum of f f^T over all the sender's records", "second moments of features", square=2
    ),
    "class_covariances": FieldFacts(
        "(P, d, d) or packed",
        "covariance of a class's features",
        "covariances of features within each class",
        first="classes",
        square=3,
    ),
    "class_second_moments": FieldFacts(
        "(P, d, d), (P, d(d+1)/2) or (P, d)",
        "sum of f f^T over a class, or its diagonal",
        "second moments of features within each class",
        first="classes",
        square=3,
    ),
    "regularised_gram": FieldFacts(
        _GRAM, "sum of f f^T plus gamma on the diagonal", "second moments of features", square=2
    ),
    "inverse_gram": FieldFacts(
        _GRAM, "inverse of a `regularised_gram`", "inverse second moments of features", square=2
    ),
    "ridge_weights": FieldFacts(
        "(P, d)",
        "class sums times the inverse of the `regularised_gram` beside them",
        "weights of a linear model",
        sides=2,
        first="classes",
        wide=True,
    ),
    "projection": FieldFacts(
        "(w, d)",
        "public matrix R, of the server: what clients send speaks of R^T f, f of width w",
        "a projection of features",
        sides=2,
    ),
    "phases": FieldFacts(
        "(d,)",
        "of the server, beside R: what clients send speaks of sqrt(2 / d) cos(R^T f + phases)",
        "phases of features",
        sides=1,
    ),
    "head": FieldFacts("any", "weights of the global classifier head", "weights of a classifier"),
    "scaler_mean": FieldFacts(
        "(d,)", "mean of each feature over the records of a head, before it", "means of features", sides=1
    ),
    "scaler_variance": FieldFacts(
        "(d,)", "variance of each feature over the same", "spreads of features", sides=1
    ),
    "scaler_count": FieldFacts("(1,)", "number of the same records", "numbers of records", sides=1),
    "parameters": FieldFacts("any", "weights of a trained model", "weights of a network"),
    "gradient": FieldFacts(
        "any",
        "gradient of the loss by one array of a model, summed or averaged over the sender's records",
        "gradients of a network",
    ),
    "magnitude_mean": FieldFacts(
        "(H, W, C)", "mean Fourier magnitude of the sender's images", "mean sizes of features"
    ),
    "other": FieldFacts("any", "anything else; only ledger and linter look at it", "other numbers"),
}


def kinds() -> dict[str, FieldFacts]:
    """Every kind by name, the project's own first."""
    return _OWN | {name: lookup("field", name).facts for name in entries("field")}


def facts_of(kind: str) -> FieldFacts:
    """What a kind is.

    Raises:
        ValueError: There is no such kind.
    """
    found = _OWN.get(kind) or kinds().get(kind)
    if found is None:
        raise ValueError(f"kind {kind!r} of a field is not known; allowed: {', '.join(kinds())}")
    return found


def vector_kinds() -> tuple[str, ...]:
    """The kinds whose rows are vectors of feature space."""
    return tuple(name for name, facts in kinds().items() if facts.vectors)


def _known(kind: str) -> str:
    facts_of(kind)
    return kind


FieldKind = Annotated[str, AfterValidator(_known)]
"""The name of a kind."""
