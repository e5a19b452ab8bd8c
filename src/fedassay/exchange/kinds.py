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
            sides=2, first="classes", wide=True, vectors=True, names="median medians"
        )
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator

from fedassay.support.registry import entries, lookup


@dataclass(frozen=True)
class FieldFacts:
    """Facts about a kind of field.

    Attributes:
        shape: Its shape, for readers.
        meaning: Content of the array, for readers.
        words: The same in plain words, as a report names it.
        sides: Sides of its array; None: any number.
        first: Things that its first side counts; empty: none that other fields count as well.
        whole: Whether its numbers are integers.
        wide: Whether its second side is the feature width, which all such fields of a message share.
        square: Sides of an array with a symmetric matrix in the last ones, whole or as its packed lower triangle;
            0: it holds none.
        vectors: Whether each of its rows is a vector of feature space, by itself, that attacks on features read.
        sums: Whether each of its rows is the sum of the features of a class, which solvers read.
        names: Names of such arrays in systems, parted by spaces: whole names, or words of them.
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
    names: str = ""


_GRAM = "(d, d) or (d(d+1)/2,)"

_OWN: dict[str, FieldFacts] = {
    "features": FieldFacts(
        "(n, d)",
        "one feature vector a record, in the sender's record order",
        "features of single records",
        sides=2,
        vectors=True,
        names="feature features embedding embeddings x",
    ),
    "labels": FieldFacts(
        "(n,)",
        "the labels of `features`",
        "labels of single records",
        sides=1,
        first="records",
        whole=True,
        names="label labels y target targets",
    ),
    "class_ids": FieldFacts(
        "(P,)", "the classes that the other fields speak of", "lists of classes", sides=1, whole=True
    ),
    "class_counts": FieldFacts(
        "(P,)",
        "records per class",
        "numbers of records of each class",
        sides=1,
        first="classes",
        names="count counts n num samples size sizes support",
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
        names="weights_ pi pis priors",
    ),
    "mixture_means": FieldFacts(
        "(S, d)", "component means", "means of clusters of features", sides=2, first="components", names="means_"
    ),
    "mixture_covariances": FieldFacts(
        "(S, d(d+1)/2), (S, d) or (S,)",
        "packed lower triangles, diagonals or variances",
        "spreads of clusters of features",
        first="components",
        names="covariances_",
    ),
    "class_sums": FieldFacts(
        "(P, d)",
        "sum of the features of a class",
        "sums of features over each class",
        sides=2,
        first="classes",
        wide=True,
        sums=True,
        names="sum sums total totals sx s1",
    ),
    "class_means": FieldFacts(
        "(P, d)",
        "mean of the features of a class",
        "means of features over each class",
        sides=2,
        first="classes",
        wide=True,
        vectors=True,
        names="mean means avg average mu centroid centroids center centers centres prototype prototypes",
    ),
    "second_moment": FieldFacts(
        _GRAM,
        "sum of f f^T over all the sender's records",
        "second moments of features",
        square=2,
        names="gram second moment moments xtx xx outer cross crossproducts sq squares sumsq s2",
    ),
    "class_covariances": FieldFacts(
        "(P, d, d) or packed",
        "covariance of a class's features",
        "covariances of features within each class",
        first="classes",
        square=3,
        names="cov covs covar covariance covariances sigma vcov",
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
        "(d,)",
        "mean of each feature over the records of a head, before it",
        "means of features",
        sides=1,
        names="mean_",
    ),
    "scaler_variance": FieldFacts(
        "(d,)", "variance of each feature over the same", "spreads of features", sides=1, names="var_"
    ),
    "scaler_count": FieldFacts(
        "(1,)", "number of the same records", "numbers of records", sides=1, names="n_samples_seen_"
    ),
    "parameters": FieldFacts("any", "weights of a trained model", "weights of a network"),
    "gradient": FieldFacts(
        "any",
        "gradient of the loss by one array of a model, summed or averaged over the sender's records",
        "gradients of a network",
        names="grad grads gradient gradients",
    ),
    "magnitude_mean": FieldFacts(
        "(H, W, C)", "mean Fourier magnitude of the sender's images", "mean sizes of features"
    ),
    "correlation": FieldFacts(
        "(d, d) or (P, d, d)",
        "correlation of features",
        "correlations of features",
        names="corr correlation correlations corrcoef",
    ),
    "deviations": FieldFacts(
        "(d,) or (P, d)",
        "standard deviation of each feature",
        "spreads of features",
        names="std stds stddev stddevs sd sds deviations scale_",
    ),
    "variances": FieldFacts(
        "(d,) or (P, d)",
        "variance of each feature",
        "spreads of features",
        names="var vars variance variances",
    ),
    "axes": FieldFacts(
        "(k, d) or (d, k)",
        "principal or singular directions of features",
        "directions of features",
        sides=2,
        names="components_ components loadings eigenvectors eigvecs pcs v vh vt",
    ),
    "axis_variances": FieldFacts(
        "(k,)",
        "variance along each of the `axes`",
        "spreads of features",
        sides=1,
        names="explained_variance_ explained_variance eigenvalues eigvals",
    ),
    "singular_values": FieldFacts(
        "(k,)",
        "singular values along the `axes`",
        "spreads of features",
        sides=1,
        names="singular_values_ singular_values s",
    ),
    "left_vectors": FieldFacts(
        "(n, k)",
        "where each record lies along the `axes`, over the singular values",
        "features of single records",
        sides=2,
        names="u",
    ),
    "histogram": FieldFacts(
        "(..., b)",
        "records in each bin of a feature",
        "histograms of features",
        names="hist hists histogram histograms",
    ),
    "bin_edges": FieldFacts(
        "(..., b + 1)",
        "where the bins of a `histogram` begin and end",
        "bins of histograms",
        names="edges bins bin_edges",
    ),
    "quantiles": FieldFacts(
        "any",
        "quantiles of features, also the least and the greatest value",
        "quantiles of features",
        names="quantile quantiles percentile percentiles quartiles min max median medians",
    ),
    "other": FieldFacts("any", "anything else; only ledger and linter look at it", "other numbers"),
}


def kinds() -> dict[str, FieldFacts]:
    """Every kind by name, the project's own first."""
    return _OWN | {name: lookup("field", name).facts for name in entries("field")}


def facts_of(kind: str) -> FieldFacts:
    """Return the facts about a kind.

    Raises:
        ValueError: There is no such kind.
    """
    found = _OWN.get(kind) or kinds().get(kind)
    if found is None:
        raise ValueError(f"kind {kind!r} of a field is not known; allowed: {', '.join(kinds())}")
    return found


def called(name: str, *, whole: bool = False) -> tuple[str, ...]:
    """The kinds that systems call so: by the whole name before by a word of it, of other packages before our own.

    Args:
        name: Of an array; of keys that lead to it the last one counts.
        whole: Whether the whole name alone counts.
    """
    own = name.rpartition("/")[2].casefold()
    words = set() if whole else {word for word in re.split(r"[\W_]+|(?<=[a-z])(?=\d)", own) if len(word) > 1}
    found = {kind: facts_of(kind).names.split() for kind in (*entries("field"), *_OWN)}
    exact = tuple(kind for kind, names in found.items() if own in names)
    return exact + tuple(kind for kind, names in found.items() if kind not in exact and words & set(names))


def vector_kinds() -> tuple[str, ...]:
    """The kinds of fields with vectors of feature space as rows."""
    return tuple(name for name, facts in kinds().items() if facts.vectors)


def _known(kind: str) -> str:
    facts_of(kind)
    return kind


FieldKind = Annotated[str, AfterValidator(_known)]
"""The name of a kind."""
