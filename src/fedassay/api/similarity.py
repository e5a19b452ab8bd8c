"""Reconstructions of any tool compared with the private images: tables, a page, CSV and LaTeX."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from PIL import Image

from fedassay.api.pairs import Pairing, PairReport, compare_pairs
from fedassay.audits.stats.estimate import Estimate
from fedassay.contracts.metrics import LPIPS, SSIM, declared, likeness_metrics, pair_metrics
from fedassay.data.named_images import Given, NamedImages, alike, named_images
from fedassay.records.record import Metric
from fedassay.reports.document.escaping import latex_escaped
from fedassay.reports.document.output import write_page
from fedassay.reports.document.pictures import Tile, data_uri
from fedassay.reports.document.similarity import Row, similarity_page
from fedassay.reports.document.tables import Column, Table, csv_text
from fedassay.reports.document.tables import Row as TableRow
from fedassay.reports.words.numbers import interval, significant
from fedassay.similarity.metrics import make_similarity
from fedassay.similarity.spec import LpipsSpec
from fedassay.support.errors import PlanError
from fedassay.support.extras import optional
from fedassay.support.terminal import is_stream

if TYPE_CHECKING:
    import pandas

_PICTURES = 12
"""Number of pairs, the closest ones, with pictures on the page."""


@dataclass(frozen=True, repr=False)
class SimilarityReport:
    """The result of `fedassay.similarity_report`.

    Attributes:
        found: All measurements: means with intervals, tests, pairs.
    """

    found: PairReport
    _sets: tuple[NamedImages, ...]
    _trunk: str = ""

    @property
    def means(self) -> dict[str, Metric]:
        """Mean of each metric over the pairs, with its 95 % interval and n."""
        return _metrics(self.found.means)

    @property
    def lookalikes(self) -> dict[str, Metric]:
        """The same for the closest look-alike of each private image; empty where none were given."""
        return _metrics(self.found.lookalike_means)

    @property
    def pairs(self) -> pandas.DataFrame:
        """One row a pair: both images, PSNR, SSIM and LPIPS, and those of the closest look-alike."""
        pandas = optional("pandas", "notebook", "SimilarityReport.pairs")
        return pandas.DataFrame(self._rows(), columns=self._header())

    def csv(self) -> str:
        """The pairs as CSV."""
        return csv_text(self._header(), self._rows())

    def latex(self) -> str:
        r"""The means as a table for a paper (`booktabs`), look-alikes and gain below the reconstructions."""
        names = [
            metric.name for metric in (*likeness_metrics(), *pair_metrics()) if metric.name in self.found.means
        ]
        body = []
        for title, held in self._summary():
            cells = [
                "--" if name not in held else latex_escaped(f"{significant(held[name].value)} {_ends(held[name])}")
                for name in names
            ]
            body.append(" & ".join([title, *cells]) + r" \\")
        caption = latex_escaped(" ".join((f"n = {len(self.found.private)}.", *self.sentences)))
        return "\n".join(
            [
                r"\begin{table}",
                r"\centering",
                rf"\caption{{{caption}}}",
                rf"\begin{{tabular}}{{l{'r' * len(names)}}}",
                r"\toprule",
                " & ".join(["", *(latex_escaped(self._head(name)) for name in names)]) + r" \\",
                r"\midrule",
                *body,
                r"\bottomrule",
                r"\end{tabular}",
                r"\end{table}",
                "",
            ]
        )

    @property
    def sentences(self) -> tuple[str, ...]:
        """Sentences on the images that were read, their pairing, and the results of the tests."""
        read = tuple(f"{each[:1].upper()}{each[1:]}." for each in self.found.how)
        tests = tuple(
            f"{test.about} {significant(test.value)}, by chance {significant(test.chance)}; "
            f"permutation p = {significant(test.p)}, n = {test.n}."
            for test in self.found.tests
        )
        none = () if tests else ("No test by permutation: assigned pairs are tested with look-alikes alone.",)
        return (*read, *tests, *none, f"LPIPS: {self.found.lpips}.")

    def page(self) -> str:
        """One HTML page: means, tests, the closest pairs as pictures, and every pair."""
        names = [
            metric.name for metric in (*likeness_metrics(), *pair_metrics()) if metric.name in self.found.means
        ]
        summary = Table(
            "similarity",
            "Means over the pairs",
            (Column("what", ""), *(Column(name, self._head(name), "metric") for name in names)),
            tuple(
                (TableRow((title, *(_metric(held, name) for name in names))),) for title, held in self._summary()
            ),
        )
        columns = tuple(
            Column(key, self._title(key), "code" if key in _NAMES else "parameter") for key in self._header()
        )
        each = Table("pairs", "Every pair", columns, tuple((TableRow(tuple(row)),) for row in self._rows()))
        return similarity_page(self.sentences, (summary, each), self._pictures())

    def save(self, output: str | os.PathLike[str] = "similarity.html") -> Path:
        """Write the page; its CSV and LaTeX are written beside it, under the same name.

        Raises:
            PlanError: A file cannot be written, or the page has the name of its own table.
        """
        path = Path(output)
        if is_stream(path):
            write_page(self.page(), path)
            return path
        if path.suffix.lower() in {".csv", ".tex"}:
            raise PlanError(
                f"{path}: given for the page; allowed: another ending, since its CSV and LaTeX go beside"
            )
        for suffix, text in ((path.suffix, self.page()), (".csv", self.csv()), (".tex", self.latex())):
            write_page(text, path.with_suffix(suffix))
        return path

    def lines(self) -> list[str]:
        """Return the means and the results of the tests, for a terminal."""
        rows = [
            f"{title:<16}"
            + "  ".join(
                f"{self._head(name)} {significant(held[name].value)} {_ends(held[name])}".strip() for name in held
            )
            for title, held in self._summary()
        ]
        return [*rows, *self.sentences]

    def as_dict(self) -> dict[str, Any]:
        """The summary as JSON holds it."""
        return {
            "means": {name: metric.model_dump() for name, metric in self.means.items()},
            "lookalikes": {name: metric.model_dump() for name, metric in self.lookalikes.items()},
            "gains": {name: metric.model_dump() for name, metric in _metrics(self.found.gains).items()},
            "tests": [vars(test) for test in self.found.tests],
            "read": list(self.found.how),
            "lpips": self.found.lpips,
        }

    def __repr__(self) -> str:
        """One line a metric."""
        said = ", ".join(f"{self._head(name)} {significant(metric.value)}" for name, metric in self.means.items())
        return f"SimilarityReport({len(self.found.private)} pairs: {said})"

    def _head(self, name: str) -> str:
        """The header of a metric: that of LPIPS names the file where its trunk is one of the user's."""
        facts = declared(name)
        titled = f"{facts.title} ({facts.unit})" if facts.unit else facts.title
        return f"{titled} (trunk {self._trunk})" if name == LPIPS.name and self._trunk else titled

    def _title(self, key: str) -> str:
        name, _, of = key.partition("_")
        return (
            f"{self._head(name)}{', look-alike' if of else ''}" if name in self.found.means else key.capitalize()
        )

    def _summary(self) -> list[tuple[str, Mapping[str, Estimate]]]:
        rows = [("Reconstructions", self.found.means)]
        if self.found.lookalike_means:
            rows += [("Look-alikes", self.found.lookalike_means), ("Gain", self.found.gains)]
        return rows

    def _header(self) -> list[str]:
        names = list(self.found.values)
        return [*_NAMES, *names, *(f"{name}_lookalike" for name in self.found.beside)]

    def _rows(self) -> list[list[Any]]:
        held = [*self.found.values.values(), *self.found.beside.values()]
        return [[*names, *(float(part[at]) for part in held)] for at, names in enumerate(self.found.names)]

    def _pictures(self) -> tuple[Row, ...]:
        """The closest pairs: private image, look-alike, reconstruction, and their SSIM."""
        private, rebuilt, *others = self._sets
        order = np.argsort(-self.found.values["ssim"], kind="stable")[:_PICTURES]
        rows = []
        for at in order.tolist():
            names = self.found.names[at]
            tiles = [_tile(private.images[self.found.private[at]], f"private image {names[0]}")]
            if others and self.found.lookalikes is not None:
                tiles.append(_tile(others[0].images[self.found.lookalikes[at]], f"look-alike {names[2]}"))
            tiles.append(_tile(rebuilt.images[self.found.rebuilt[at]], f"reconstruction {names[1]}"))
            words = f"{SSIM.title} {significant(float(self.found.values['ssim'][at]))}"
            if others:
                words += f", look-alike {significant(float(self.found.beside['ssim'][at]))}"
            rows.append(Row(tuple(tiles), words))
        return tuple(rows)


_NAMES = ("private", "reconstructed", "lookalike")


def similarity_report(
    private: Given,
    reconstructed: Given,
    *,
    lookalikes: Given | None = None,
    pairs: Pairing = "auto",
    lpips: Literal["auto", "alex", "squeeze"] | str | None = "auto",
    seed: int = 0,
    device: str = "cpu",
) -> SimilarityReport:
    """Hold reconstructions of any tool against the private images: PSNR, SSIM and LPIPS of each pair.

    Args:
        private: The private images: a folder, an `.npz` or `.npy`, an array or a tensor; uint8, or floating point
            in [0, 1].
        reconstructed: The reconstructed images, likewise.
        lookalikes: Images that the attacker has anyway; of each private image the closest one is its baseline.
        pairs: `matched` by name or number, `assigned` one to one by SSIM, or `auto`: matched where both sides have
            the same names or as many images.
        lpips: `auto`, a network on its official trunk (`alex`, `squeeze`), a trunk file for SqueezeNet, or None.
        seed: Seed of the permutations.
        device: Device of the computation.

    Raises:
        PlanError: There is no such pairing.
        DataError: Images cannot be read, are of different sizes, or their names do not fit each other.
    """
    if pairs not in get_args(Pairing):
        raise PlanError(f"similarity_report: pairs={pairs!r}; allowed: {', '.join(get_args(Pairing))}")
    sets = [named_images(private, "private"), named_images(reconstructed, "reconstructed")]
    others = None if lookalikes is None else named_images(lookalikes, "look-alikes")
    asked = _asked(lpips)
    similarity = make_similarity(asked, Path(), device).warned()
    trunk = asked.trunk if isinstance(asked, LpipsSpec) else None
    found = compare_pairs(sets[0], sets[1], others, similarity, pairs, seed)
    return SimilarityReport(
        found, tuple(alike([*sets, *([] if others is None else [others])])), Path(trunk or "").name
    )


def _asked(lpips: str | None) -> LpipsSpec | Literal["auto"] | None:
    if lpips is None or lpips == "auto":
        return "auto" if lpips else None
    if lpips == "alex" or lpips == "squeeze":  # noqa: PLR1714 - so that types are narrowed
        return LpipsSpec(net=lpips)
    return LpipsSpec(net="squeeze", trunk=lpips)


def _metrics(found: Mapping[str, Estimate]) -> dict[str, Metric]:
    names = dict.fromkeys(metric.name for metric in (*likeness_metrics(), *pair_metrics()))
    return {name: _metric(found, name) for name in names if name in found}


def _metric(found: Mapping[str, Estimate], name: str) -> Metric:
    if name not in found:
        return Metric(value=None, reason="not measured")
    each = found[name]
    return each.metric(each.reason or each.method, declared(name).unit)


def _ends(found: Estimate) -> str:
    return interval(found.metric(), count=False)


def _tile(image: np.ndarray[Any, Any], alternative: str) -> Tile:
    pixels = image if image.dtype == np.uint8 else np.round(np.clip(image, 0, 1) * 255).astype(np.uint8)
    return Tile(data_uri(Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)), alternative)
