"""A run in MLflow: one MLflow run for the whole, with plan, record and report, and one below it for each cell.

MLflow (https://mlflow.org) keeps the runs of a team's experiments. Only `mlflow.MlflowClient` is used, so the
experiment and run that a program has active stay as they are.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from fedassay.records.record import CellRecord, RunRecord, finite_json
from fedassay.support.errors import DataError
from fedassay.support.extras import optional
from fedassay.support.text import shown

if TYPE_CHECKING:
    from fedassay.reports.gate.policy import Policy

_NEEDS = "Run.to_mlflow"
_CELL_PARTS = ("method", "label", "epsilon", "delta", "seed", "adjacency", "unit")
_LONGEST_NAME, _LONGEST_VALUE = 250, 500
"""Characters that every store of MLflow takes (`mlflow.utils.validation`; a value of older stores)."""
_PARAMS_AT_ONCE, _METRICS_AT_ONCE = 100, 1000


def send(
    record: RunRecord,
    folder: Path,
    policy: Policy,
    experiment: str = "fedassay",
    uri: str | None = None,
    name: str | None = None,
) -> str:
    """Write a run to an MLflow tracking server or store.

    Args:
        record: The record to send; without pictures and class names where these must not leave.
        folder: Folder of the record's pictures.
        policy: The policy of the decision.
        experiment: The experiment, which is made where there is none of that name.
        uri: The tracking server or store; None: the one that MLflow is set to.
        name: Name of the MLflow run; None: that of the plan.

    Returns:
        The identifier of the MLflow run; those of cells carry it as `mlflow.parentRunId`.

    Raises:
        MissingExtraError: MLflow is not installed.
        DataError: MLflow refuses: no such server, no right to write, a deleted experiment.
    """
    mlflow = optional("mlflow", "mlflow", _NEEDS)
    from mlflow.exceptions import MlflowException

    try:
        return _Sink(mlflow.MlflowClient(tracking_uri=uri)).run(record, folder, policy, experiment, name)
    except MlflowException as error:
        where = "the tracking server that MLflow is set to" if uri is None else shown(uri)
        raise DataError(f"{_NEEDS}: {where}: {error}") from None


class _Sink:
    """A writer of runs, through one client of MLflow."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def run(self, record: RunRecord, folder: Path, policy: Policy, experiment: str, name: str | None) -> str:
        """The whole run, its cells below it."""
        from fedassay.reports.answer.answer import answer

        known = self._client.get_experiment_by_name(experiment)
        place = known.experiment_id if known else self._client.create_experiment(experiment)
        tags = {
            "fedassay.version": record.environment.get("fedassay"),
            "fedassay.policy": policy.name,
            "fedassay.decision": answer(record, policy).text,
            "fedassay.errors": len(record.errors),
            "fedassay.redacted": record.redacted,
        }
        title = name or str(record.plan.get("name") or folder.name)

        def content(run: str) -> None:
            # Method entries are the cells' parameters.
            self._params(run, flat({key: item for key, item in record.plan.items() if key != "methods"}))
            self._documents(run, record, folder, policy)
            for cell in record.cells:
                self._within(place, _title(cell), _tags(cell) | {"mlflow.parentRunId": run}, self._cell(cell))

        return self._within(place, title, tags, content)

    def _within(self, experiment: str, name: str, tags: Mapping[str, Any], content: Callable[[str], None]) -> str:
        """Open an MLflow run, fill it and close it: as failed where it could not be filled."""
        words = {key: value(word) for key, word in tags.items() if word is not None}
        run: str = self._client.create_run(experiment, run_name=name, tags=words).info.run_id
        try:
            content(run)
        except BaseException:
            self._client.set_terminated(run, "FAILED")
            raise
        self._client.set_terminated(run, "FINISHED")
        return run

    def _cell(self, cell: CellRecord) -> Callable[[str], None]:
        def content(run: str) -> None:
            from mlflow.entities import Metric

            own = {part: getattr(cell, part) for part in _CELL_PARTS}
            self._params(run, flat({**own, "params": cell.params}))
            now = int(time.time() * 1000)
            entries = [Metric(key, number, now, 0) for key, number in metrics(cell).items()]
            for first in range(0, len(entries), _METRICS_AT_ONCE):
                self._client.log_batch(run, metrics=entries[first : first + _METRICS_AT_ONCE])

        return content

    def _params(self, run: str, params: Mapping[str, str]) -> None:
        from mlflow.entities import Param

        entries = [Param(key, word) for key, word in params.items()]
        for first in range(0, len(entries), _PARAMS_AT_ONCE):
            self._client.log_batch(run, params=entries[first : first + _PARAMS_AT_ONCE])

    def _documents(self, run: str, record: RunRecord, folder: Path, policy: Policy) -> None:
        """The record, the plan, the page and the decision as artifacts."""
        from fedassay.reports import render
        from fedassay.reports.document.plan_notes import plan_yaml

        with TemporaryDirectory() as temporary:
            documents = {
                "record.json": record.to_json(),
                "plan.yaml": plan_yaml(record),
                "report.html": render(folder, record, "html", policy),
                "report.md": render(folder, record, "md", policy),
            }
            for name, text in documents.items():
                (Path(temporary) / name).write_text(text, encoding="utf-8")
            self._client.log_artifacts(run, temporary)


def metrics(cell: CellRecord) -> dict[str, float]:
    """The figures of a cell that are finite numbers, by names that MLflow takes.

    The cell's own are `accuracy`, `privacy/accounted`, `communication/bytes_up`, `seconds/total`; those of a
    finding `audit/attack/source/selection/metric`, and with `.low`, `.high` and `.baseline` its interval and the
    same figure without the attack. Infinite epsilon is no number in every store: it is in the tags, as a word.
    """
    privacy = {key: getattr(cell.privacy, key) for key in ("claimed", "accounted", "observed", "mu")}
    groups: list[tuple[str, Mapping[str, Any]]] = [
        ("", cell.utility),
        ("privacy/", privacy),
        ("communication/", cell.communication),
        ("seconds/", cell.seconds),
    ]
    for finding in cell.findings:
        parts = (finding.audit, finding.attack, finding.source, finding.selection)
        place = "/".join(part for part in parts if part)
        for key, metric in finding.metrics.items():
            base = finding.baseline.get(key)
            figures = {"": metric.value, ".low": metric.low, ".high": metric.high}
            groups.append((f"{place}/{key}", figures | ({".baseline": base.value} if base else {})))
    return {
        taken(f"{place}{key}"): float(number)
        for place, group in groups
        for key, number in group.items()
        if number is not None and math.isfinite(number)
    }


def flat(tree: Mapping[str, Any], above: str = "") -> dict[str, str]:
    """A mapping of mappings as one level of names with dots; lists are one value each.

    Example:
        >>> flat({"data": {"name": "digits", "split": {"test": 0.2}}, "seeds": [0, 1]})
        {'data.name': 'digits', 'data.split.test': '0.2', 'seeds': '[0, 1]'}
    """
    out: dict[str, str] = {}
    for key, item in tree.items():
        if isinstance(item, Mapping):
            out |= flat(item, f"{above}{key}.")
        elif item is not None:
            out[taken(f"{above}{key}")] = value(item)
    return out


def taken(name: str) -> str:
    """A name that MLflow takes: letters, digits, `_`, `-`, `.`, `:`, `/` and spaces, no `..` and no `/` at an end.

    Example:
        >>> taken("privacy/ε at 90 %")
        'privacy/_ at 90 _'
    """
    parts = re.sub(r"[^A-Za-z0-9_\-.:/ ]", "_", name)[:_LONGEST_NAME].split("/")
    return "/".join(part if part.strip(".") else "_" for part in parts)


def value(item: Any) -> str:
    """A value as MLflow keeps it: text, cut where it is longer than every store takes."""
    word = item if isinstance(item, str) else json.dumps(finite_json(item), ensure_ascii=False, default=str)
    word = word.strip('"') if isinstance(item, float) else word  # "inf"
    return word if len(word) <= _LONGEST_VALUE else f"{word[: _LONGEST_VALUE - 1]}…"


def _title(cell: CellRecord) -> str:
    seed = "" if cell.seed is None else f", seed {cell.seed}"
    return f"{cell.label}, epsilon {cell.asked}, delta {cell.delta:g}{seed}"


def _tags(cell: CellRecord) -> dict[str, Any]:
    """Return the tags of a cell: its verdict in words, and its three epsilons, which may be infinite."""
    verdicts = Counter(finding.verdict for finding in cell.findings)
    return {
        "fedassay.verdict": cell.privacy.verdict,
        "fedassay.reason": cell.privacy.reason,
        **{
            f"fedassay.{name}": None if found is None else str(found)
            for name in ("claimed", "accounted", "observed")
            for found in [getattr(cell, name)]
        },
        "fedassay.exact_fields": ", ".join(cell.privacy.exact_fields),
        **{f"fedassay.findings.{verdict}": number for verdict, number in verdicts.items()},
    }
