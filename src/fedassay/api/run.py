"""A run as notebooks and other programs hold it: its record, as tables, figures and a decision."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fedassay.api import frames
from fedassay.records.record import ErrorRecord, RunRecord

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

    from fedassay.api.plots import Plots
    from fedassay.reports.answer.answer import Answer
    from fedassay.reports.decision.decision import Decision
    from fedassay.reports.gate.judging import Outcome
    from fedassay.reports.gate.policy import Policy


@dataclass(frozen=True, repr=False)
class Run:
    """A run: the result of `run`, `audit` and `load`.

    In a notebook it shows the decision. Its tables need pandas, its figures matplotlib; both come with
    `pip install 'fedassay[notebook]'`.

    Attributes:
        record: The whole record, typed; everything else here follows from it.
        folder: The run folder.
        source: The run folder or record.json that the run was read from; None: this process made the run.
    """

    record: RunRecord
    folder: Path
    source: Path | None = None

    @property
    def errors(self) -> tuple[ErrorRecord, ...]:
        """Failures: the cell, the stage and the message. Other cells are unaffected."""
        return self.record.errors

    @property
    def cells(self) -> pandas.DataFrame:
        """One row a cell (a method entry at one epsilon, delta and seed): privacy, utility, bytes, seconds.

        `cell` numbers the cells, in this and every other table.
        """
        return frames.frame(frames.cell_rows(self.record), frames.CELLS, "Run.cells")

    @property
    def findings(self) -> pandas.DataFrame:
        """One row a finding: its verdict and reason, and the outcome of its controls.

        `cell` and `finding` together number the findings; `metrics` has their figures.
        """
        return frames.frame(frames.finding_rows(self.record), frames.FINDINGS, "Run.findings")

    @property
    def metrics(self) -> pandas.DataFrame:
        """One row a figure of a finding: value, 95 % interval, n, and the same figure without the attack."""
        return frames.frame(frames.metric_rows(self.record), frames.METRICS, "Run.metrics")

    @property
    def ledger(self) -> pandas.DataFrame:
        """One row a field that leaves the clients in a cell: its mechanism, noise, sensitivity and bytes."""
        return frames.frame(frames.ledger_rows(self.record), frames.LEDGER, "Run.ledger")

    @property
    def coverage(self) -> pandas.DataFrame:
        """One row an attack that applies to a cell: whether it was conclusive, or what would make it so."""
        return frames.frame(frames.coverage_rows(self.record), frames.COVERAGE, "Run.coverage")

    @property
    def mission(self) -> pandas.DataFrame:
        """One row a method and epsilon: accuracy, the strongest attacks on images, copies, members, the claim.

        Figures of images stand beside those of look-alikes (`..._lookalikes`), each with its interval, n and
        reason; `..._why` says in two words why nothing is decided. Empty where the run has no images.
        """
        from fedassay.reports.document.mission.table import mission_keys, mission_rows

        return frames.frame(mission_rows(self.record), mission_keys(self.record), "Run.mission")

    def attacks(self, method: str | None = None, epsilon: float | None = None) -> pandas.DataFrame:
        """All attacks on one release side by side: one row an attack and the source that it read.

        `value` is the figure of the attack's own audit, with its interval; `taken` is the same between 0 (no more
        than without the attack) and 1 (everything), so that attacks can be compared. `fedassay.latex` makes a
        table for a paper of it, and `plot.attacks` a figure.

        Args:
            method: The entry's label or registered name; None: the run has one release.
            epsilon: Epsilon of the release.

        Raises:
            PlanError: The run has no such release, or several.
        """
        from fedassay.api.attacks import cell_of, table

        return table(cell_of(self.record, method, epsilon))

    @property
    def plot(self) -> Plots:
        """Figures of the run: `plot.tradeoff()`, `plot.epsilon()`, `plot.roc()`, `plot.attacks()`."""
        from fedassay.api.plots import Plots

        return Plots(self.record)

    def latex(self) -> str:
        """A table for a paper, in LaTeX (`booktabs`): methods by epsilon, or one row a cell without images."""
        from fedassay.reports.document.latex import latex

        return latex(self.record)

    def pictures(self, audit: str | None = None, label: str | None = None) -> list[Axes]:
        """Draw the run's picture grids: private images, and their reconstructions.

        Args:
            audit: Only those of one audit.
            label: Only those of one method entry.

        Returns:
            One Axes a grid; none where the run has no pictures, as after `redact`.

        Raises:
            MissingExtraError: matplotlib is not installed.
            DataError: A picture is missing, or differs from the record.
        """
        from fedassay.api.pictures import draw

        return draw(self.record, self.folder, audit, label)

    def answer(
        self,
        method: str | None = None,
        epsilon: float | None = None,
        policy: str | os.PathLike[str] | Mapping[str, Any] | Policy | None = None,
    ) -> Answer:
        """Whether it may be deployed: `answer` is yes, no or not yet, `sentences` say why, `next` what to do.

        Args:
            method: Only the entries of this label or registered name.
            epsilon: Only the releases at this epsilon.
            policy: As in `recommend`.

        Raises:
            PlanError: The policy is wrong, or the run has no such release.
        """
        from fedassay.reports.answer.answer import answer

        return answer(self.record, self._policy(policy), method, epsilon)

    def recommend(self, policy: str | os.PathLike[str] | Mapping[str, Any] | Policy | None = None) -> Decision:
        """Apply a policy to the run: `recommended`, `options`, `steps`; `Run.answer` says it in words.

        Args:
            policy: As in `fedassay.check`; None: the one that ships and fits, `strict` for the run of a plan.

        Raises:
            PlanError: The policy is wrong.
        """
        from fedassay.reports.decision.decision import decide

        return decide(self.record, self._policy(policy))

    def check(
        self,
        policy: str | os.PathLike[str] | Mapping[str, Any] | Policy,
        *,
        key: str | os.PathLike[str] | None = None,
        unverified: bool = False,
    ) -> Outcome:
        """Hold the run against a policy, rule by rule; see `fedassay.check`.

        A run that this process made is taken as it is, unless a key is given.

        Raises:
            PlanError: The policy is wrong, or the key cannot be read.
            DataError: The run was read from files, and they were changed.
        """
        from fedassay.reports.gate.check import check_record, check_run

        held = self._policy(policy)
        source = self.source or (None if key is None else self.folder)
        if source is None:
            return check_record(self.record, held)
        pem = None if key is None else Path(key)
        return check_run(source, held, key=pem, unverified=unverified, record=self.record)

    def report(
        self,
        format: Literal["html", "md", "latex", "json", "csv", "sarif", "junit", "evidence"] = "html",
        output: str | os.PathLike[str] | None = None,
        policy: str | os.PathLike[str] | Mapping[str, Any] | Policy | None = None,
        method: str | None = None,
        epsilon: float | None = None,
    ) -> Path:
        """Write the run in one of the formats of `fedassay report`.

        Args:
            format: The format; `csv` and `evidence` are folders.
            output: Path of the page; None: beside the record.
            policy: The policy of the decision, and of SARIF and JUnit.
            method: The method entry that evidence is about, by label or name; None: the only or recommended one.
            epsilon: The epsilon of that release.

        Returns:
            The files written.

        Raises:
            PlanError: The policy is wrong, the output cannot be written, or evidence is asked of no one release.
        """
        from fedassay.reports import write_report

        held = None if policy is None else self._policy(policy)
        target = None if output is None else Path(output)
        return write_report(self.record, self.folder, format, target, held, method, epsilon, pdf=True)

    def to_mlflow(
        self,
        experiment: str = "fedassay",
        *,
        uri: str | None = None,
        name: str | None = None,
        policy: str | os.PathLike[str] | Mapping[str, Any] | Policy | None = None,
        private: bool = False,
    ) -> str:
        """Write the run to MLflow: an MLflow run for the whole, and one below it for each cell.

        The whole has the plan as parameters, the decision as tags, and as artifacts the record, the plan, the
        report and its Markdown; a cell has its parameters and every figure that was measured as a metric.

        Args:
            experiment: Name of the experiment; it is made where there is none.
            uri: Tracking server or store; None: the one that MLflow is set to.
            name: Name of the MLflow run; None: that of the plan.
            policy: The policy of the decision; as in `recommend`.
            private: Send pictures of private images and names of classes, too. They are left out otherwise, as by
                `fedassay report --redact`.

        Returns:
            The identifier of the MLflow run.

        Raises:
            MissingExtraError: MLflow is not installed.
            DataError: MLflow refuses, or cannot be reached.
            PlanError: The policy is wrong.
        """
        from fedassay.api.tracking import send
        from fedassay.records.redacted import redact

        sent = self.record if private or self.record.redacted else redact(self.record)
        return send(sent, self.folder, self._policy(policy), experiment, uri, name)

    def _policy(self, policy: str | os.PathLike[str] | Mapping[str, Any] | Policy | None) -> Policy:
        from fedassay.api.inputs import as_policy
        from fedassay.reports.decision.standard import standard_policy

        return standard_policy(self.record) if policy is None else as_policy(policy)

    def __repr__(self) -> str:
        """One line: how much there is, and the decision."""
        cells = len(self.record.cells)
        failed = f", {len(self.errors)} failed" if self.errors else ""
        return f"Run({str(self.folder)!r}: {cells} cell{'s'[: cells != 1]}{failed}. {self.answer().headline})"

    def _repr_html_(self) -> str:
        """The decision, for notebooks."""
        from fedassay.reports.document.fragment import fragment

        return fragment(self.record, self.answer(), self.folder)
