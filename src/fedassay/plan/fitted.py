"""A plan to start from that fits the user's own images: what `fedassay init --data` writes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fedassay.data.groups import is_obvious, likely_patterns
from fedassay.data.image_folder import paths_of_image_folder
from fedassay.data.label_table import column_names
from fedassay.data.npz import names_of_npz
from fedassay.data.outline import Outline
from fedassay.plan.own_images import check_images, data_seeds, outline, request_of, role_sizes
from fedassay.plan.record_claims import most_of_a_person
from fedassay.plan.schema import DataSpec, Plan, parse_plan
from fedassay.support.errors import DataError, PlanError, UnrelatedTableError
from fedassay.support.text import plain

FEWEST = 20
"""Fewest records that a plan is written for."""
LARGEST_SIDE = 32
"""Images with a longer side are resized to squares of this one, which two cores manage in minutes."""
MOST_RECORDS = 4_000
"""More records than this are limited to it, for a first run."""
_CLIENTS, _RECORDS_A_CLIENT = 5, 10
_NAMED = 8
_DELTA = "\n  delta:"
"""Where the starting plan's section `privacy` takes whose privacy it is."""


def fitted_plan(data: Path, file: Path, starter: str, label_column: str | None = None) -> str:
    """The starting plan with sections `data`, `clients` and `backbone` that fit what lies at `data`.

    Args:
        data: A folder of images, or an `.npz` file.
        file: Where the plan will be written; the path in it is relative to that, where it can be.
        starter: The starting plan; what follows its section `backbone` is kept as it is.
        label_column: Name of the column of labels of a CSV, or number of that of an array; None: what is there
            must tell.

    Returns:
        YAML, with what was found in comments.

    Raises:
        PlanError: Nothing is there.
        DataError: No way of reading it gives a data set; the message is that of the likeliest way.
    """
    if not data.exists():
        raise PlanError(f"--data: {data} does not exist; allowed: a folder of images, or an .npz file")
    base = file.resolve().parent
    source, whole = _with_persons(*_readable(_file(data), base, label_column), _file(data), base)
    sections: dict[str, Any] = {
        "name": _name(data),
        "seeds": [0],
        "data": _data(source, whole),
        "methods": [{"raw_features": {}}],
    }
    found = _outline(sections["data"], base)
    sections |= _clients_and_backbone(sections["data"], found)
    check_images(_plan(sections), base)
    start = starter.index("\nprivacy:") + 1
    rest = starter[start:]
    most = most_of_a_person(whole)
    if most > 1:
        # Who is in the data is a person's secret: a guarantee for one record of several would not keep it.
        whose = f"  unit: person           # all of a person together, up to {most} records; record: one at a time"
        rest = rest.replace(_DELTA, f"\n{whose}{_DELTA}", 1)
    return "\n".join([*_head(sections, whole, "size" not in source), *_sections(sections, found), "", rest])


def _plan(sections: dict[str, Any]) -> Plan:
    return parse_plan(sections, "the plan")


def _outline(section: dict[str, Any], base: Path) -> Outline:
    spec = DataSpec.model_validate(section)
    found = outline(request_of(spec, base, data_seeds(0)))
    assert found is not None
    return found


def _readable(data: Path, base: Path, label_column: str | None) -> tuple[dict[str, Any], Outline]:
    """The first way of reading what lies there that gives a data set.

    Raises:
        DataError: There is none.
    """
    reasons: list[DataError] = []
    for source in _ways(data, base, label_column):
        try:
            return source, _outline(source, base)
        except UnrelatedTableError:
            continue
        except DataError as error:
            if "labels" in source and "size" in source:
                # A table that is there speaks of the images: folders are not taken for classes behind its back.
                raise DataError(f"{error}; or move {source['labels']} away for one class a folder") from None
            reasons.append(error)
    if not reasons:
        raise PlanError(
            f"--label-column: {label_column!r} given; {data} has no CSV in it, allowed: a column of one"
        )
    raise reasons[0]


def _with_persons(
    source: dict[str, Any], whole: Outline, data: Path, base: Path
) -> tuple[dict[str, Any], Outline]:
    """The same with `groups`, where a name in the data says whose the records are and persons have several."""
    request = request_of(DataSpec.model_validate(source), base, data_seeds(0))
    if source["name"] == "npz":
        names = [name for name in names_of_npz(request) if is_obvious(name)]
    elif "labels" in source:
        names = [name for name in column_names(data / source["labels"]) if is_obvious(name)]
    else:
        names = likely_patterns(paths_of_image_folder(request)[0])
    for name in names:
        try:
            found = _outline({**source, "groups": name}, base)
        except DataError:
            continue
        train = found.data.train
        if train.groups is not None and len(np.unique(train.groups)) < len(train):
            return {**source, "groups": name}, found
    return source, whole


def _file(data: Path) -> Path:
    """The one `.npz` of a folder that holds nothing else to read; else what was named."""
    inside = [entry for entry in sorted(data.iterdir()) if not entry.name.startswith(".")] if data.is_dir() else []
    return inside[0] if len(inside) == 1 and inside[0].suffix.lower() == ".npz" else data


def _ways(data: Path, base: Path, label_column: str | None) -> Iterator[dict[str, Any]]:
    """Ways of reading a folder or file, likeliest first: as it is, resized; by folders, by each CSV in it."""
    path = data.resolve()
    shown = str(path.relative_to(base)) if path.is_relative_to(base) else str(path)
    if not path.is_dir():
        # Where a record has several labels, the first label with two classes is taken.
        columns = [None, *range(100)] if label_column is None else [_number(label_column)]
        for column in columns:
            source = {"name": "npz", "path": shown} | ({} if column is None else {"label_column": column})
            yield source
            yield source | {"size": LARGEST_SIDE}
        return
    tables = sorted(
        entry.name for entry in os.scandir(path) if os.path.isfile(entry) and entry.name.lower().endswith(".csv")
    )
    named = {} if label_column is None else {"label_column": label_column}
    for labels in [*({"labels": table} | named for table in tables), *([] if named else [{}])]:
        yield {"name": "image_folder", "path": shown, **labels}
        yield {"name": "image_folder", "path": shown, **labels, "size": LARGEST_SIDE}


def _number(label_column: str) -> int:
    """The number of a column of an array."""
    if not label_column.isdecimal():
        raise PlanError(f"--label-column: {label_column!r} given; allowed for an .npz file: a whole number")
    return int(label_column)


def _data(source: dict[str, Any], whole: Outline) -> dict[str, Any]:
    """The section `data`: size and limit where they are needed, and shares of the roles."""
    section = dict(source)
    height, width, _ = whole.image
    if max(height, width) > LARGEST_SIDE:
        section["size"] = LARGEST_SIDE
    records = len(whole.data.train)
    if records < FEWEST:
        raise DataError(f"{whole.data.source}: holds {records} records to share out; allowed: {FEWEST} or more")
    if records > MOST_RECORDS:
        section["limit"] = MOST_RECORDS
    if whole.data.test is None:
        section["split"] = {"private": 0.3, "attacker": 0.4, "public": 0.15, "test": 0.15}
    else:
        section["split"] = {"private": 0.4, "attacker": 0.4, "public": 0.2}
    return section


def _clients_and_backbone(section: dict[str, Any], found: Outline) -> dict[str, Any]:
    """As many clients as the private records serve, and a backbone that the public ones can train."""
    sizes = role_sizes(DataSpec.model_validate(section), found)
    domains = len(found.data.train.domain_names)
    count = max(1, min(_CLIENTS, sizes.private // _RECORDS_A_CLIENT))
    if found.data.train.groups is not None:
        # A person is at one client; there are to be several at each.
        private = sizes.private / len(found.data.train) * len(np.unique(found.data.train.groups))
        count = max(1, min(count, int(private) // 2))
    clients: dict[str, Any] = {"count": count, "partition": "dirichlet", "alpha": 0.5}
    clients["min_records"] = min(_RECORDS_A_CLIENT, sizes.private // (2 * count))
    if domains > 1 and sizes.private >= domains * _RECORDS_A_CLIENT:
        clients = {"count": domains, "partition": "domains"}
        if found.data.train.groups is not None:
            clients["shared_persons"] = "one_client"
    enough = sizes.public >= max(FEWEST, 2 * found.data.train.classes)
    weights = "public" if enough else "random"
    return {"clients": clients, "backbone": {"name": "small_cnn_rectified", "weights": weights}}


def _head(sections: dict[str, Any], whole: Outline, original: bool) -> list[str]:
    height, width, channels = whole.image
    train, test = whole.data.train, whole.data.test
    counts = np.bincount(train.labels, minlength=train.classes)
    classes = [f"{name} ({count})" for name, count in zip(train.class_names, counts, strict=True)]
    more = f" and {len(classes) - _NAMED} more" if len(classes) > _NAMED else ""
    colour = "grey" if channels == 1 else "colour"
    size = "" if sections["data"].get("size") is None else f" (resized to {sections['data']['size']})"
    # What was outlined with a size has that size already, whatever the files have.
    shown = f"of {width}x{height} pixels{size}" if original else f"of several sizes{size}"
    lines = [
        f"# A plan for {whole.data.source}: {len(train)} {colour} images {shown}"
        f"{'' if test is None else f', and {len(test)} of an official test set'}.",
        f"# {len(classes)} classes: {', '.join(classes[:_NAMED])}{more}.",
    ]
    if sections["clients"]["partition"] == "domains":
        lines.append(f"# {len(train.domain_names)} domains: {', '.join(train.domain_names[:_NAMED])}.")
    if train.groups is not None:
        records = np.unique(train.groups, return_counts=True)[1]
        lines.append(
            f"# {len(records)} persons by `groups`, of {records.min()} to {records.max()} records: look at it."
        )
    if isinstance(sections["data"].get("label_column"), int):
        lines.append(
            "# Every record has several labels; label_column says which of them is the class: look at it."
        )
    steps = [
        "#",
        "#   fedassay run THIS_FILE --dry-run     check it, list what would be run, and how long it takes",
        "#",
    ]
    return [plain(line) for line in (*lines, *steps)]


_COMMENTS = {
    "size": "resized to squares of this side; larger ones take longer",
    "limit": "records of a first run, drawn at random, all classes alike",
    "split": "records: {private} clients', {attacker} the adversary's, {public} public (train the backbone), "
    "{test} for accuracy, {control} for controls",
    "label_column": "the column of labels, by name in a CSV, by number in an array",
    "groups": "whose each record is: roles and clients share no person, and audits count persons",
    "partition": "iid, dirichlet, disjoint_labels, domains",
    "weights": "public: trained on the public split; random: too few public records for that",
}


def _sections(sections: dict[str, Any], found: Outline) -> Iterator[str]:
    sizes = role_sizes(DataSpec.model_validate(sections["data"]), found)
    for name, value in sections.items():
        if name == "methods":
            continue
        if not isinstance(value, dict):
            yield f"{name}: {json.dumps(value)}"
            continue
        yield ""
        yield f"{name}:"
        for key, item in value.items():
            # JSON is YAML, and quotes whatever a path may hold.
            line = f"  {key}: {json.dumps(item)}"
            comment = _COMMENTS.get(key)
            if key == "split":
                comment = _COMMENTS[key].format(**sizes._asdict())
            yield line if comment is None else f"{line}   # {comment}"


def _name(data: Path) -> str:
    words = re.sub(r"[^A-Za-z0-9._-]+", "-", data.resolve().stem).strip("-._")
    return words or "my-plan"
