"""Several runs side by side."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedassay.api.run import Run
from fedassay.support.extras import optional

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Comparison:
    """Several runs: the result of `fedassay.compare`.

    Attributes:
        runs: In the order given.
    """

    runs: tuple[Run, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """A name for every run: its plan's, with its folder where plans share a name."""
        from fedassay.reports.document.compare import run_names

        return run_names([(run.folder, run.record) for run in self.runs])

    @property
    def changes(self) -> pandas.DataFrame:
        """The keys of the plans with different values, one row a key, one column a run."""
        from fedassay.reports.document.compare import changes

        pandas = optional("pandas", "notebook", "Comparison.changes")
        found = changes([run.record for run in self.runs])
        return pandas.DataFrame(
            [change.values for change in found],
            index=pandas.Index([change.key for change in found], name="key"),
            columns=list(self.names),
        )

    @property
    def cells(self) -> pandas.DataFrame:
        """The cells of all runs, with the run's name in `run`."""
        return self._all("cells")

    @property
    def findings(self) -> pandas.DataFrame:
        """The findings of all runs, likewise."""
        return self._all("findings")

    @property
    def metrics(self) -> pandas.DataFrame:
        """The figures of all runs' findings, likewise."""
        return self._all("metrics")

    def save(self, output: str | os.PathLike[str] = "compare.html") -> Path:
        """Write the page of `fedassay compare`.

        Raises:
            PlanError: The file cannot be written.
        """
        from fedassay.reports.document.compare import write_comparison

        return write_comparison([(run.folder, run.record) for run in self.runs], Path(output))

    def _all(self, table: str) -> pandas.DataFrame:
        pandas = optional("pandas", "notebook", f"Comparison.{table}")
        frames = [getattr(run, table).assign(run=name) for name, run in zip(self.names, self.runs, strict=True)]
        whole = pandas.concat(frames, ignore_index=True)
        return whole[["run", *(name for name in whole.columns if name != "run")]]
