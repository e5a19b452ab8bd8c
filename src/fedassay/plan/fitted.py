"""A plan to start from that fits the user's own images: what `fedassay init --data` writes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedassay.data.groups import is_obvious, likely_patterns
from fedassay.data.image_folder import paths_of_image_folder, recurring
from fedassay.data.npz import names_of_npz
from fedassay.data.outline import Outline
from fedassay.plan.own_images import check_images, data_seeds, outline, request_of, role_sizes
from fedassay.plan.record_claims import most_of_a_person
from fedassay.plan.schema import parse_data, parse_plan
from fedassay.support.errors import DataError, PlanError
from fedassay.support.text import plain

FEWEST = 20
"""Fewest records that a plan is written for."""
LARGEST_SIDE = 32
"""Images with a longer side are resized to squares of this one, which two cores manage in minutes."""
MOST_RECORDS = 4_000
"""More records than this are limited to it, for a first run."""
_CLIENTS, _RECORDS_A_CLIENT = 5, 10
_CONTROLS, _MANY_CLASSES, _MOST_CONTROLS = 64, 10, 1 / 3
"""Records of the control role that no audit finds too few for its controls, twice as many where there are more
classes than that, and the largest share of all records that is given away for them."""
_NAMED = 8
_DELTA = "\n  delta:"
"""Place of the unit of privacy in the starting plan's section `privacy`."""


def fitted_plan(
    data: Path,
    file: Path,
    starter: str,
    label_column: str | None = None,
    given: Mapping[str, Any] | None = None,
) -> str:
    """The starting plan with sections `data`, `clients` and `backbone` that fit what lies at `data`.

    Args:
        data: A folder of images, or an `.npz` file.
        file: Path of the plan to write; the path in it is relative to that, where it can be.
        starter: The starting plan; what follows its section `backbone` is kept as it is.
        label_column: Name of the column of labels of a CSV, or number of that of an array; None: what is there
            must tell.
        given: Further keys of `data`, which say how what is there is read.

    Returns:
        YAML, with what was found in comments.

    Raises:
        PlanError: Nothing is there.
        DataError: No way of reading it gives a data set; the message is that of the likeliest way.
    """
    if not data.exists():
        raise PlanError(f"--data: {data} does not exist; allowed: a folder of images, or an .npz file")
    base = file.resolve().parent
    keys = dict(given or {}) | ({} if label_column is None else {"label_column": label_column})
    source, whole = likeliest(data, base, keys)
    sections: dict[str, Any] = {
        "name": _name(data),
        "seeds": [0],
        "data": _data(source, whole),
        "methods": [{"raw_features": {}}],
    }
    found = _outline(sections["data"], base)
    sections |= _clients_and_backbone(sections["data"], found)
    check_images(parse_plan(sections, "the plan"), base)
    start = starter.index("\nprivacy:") + 1
    rest = starter[start:]
    most = most_of_a_person(whole)
    if most > 1:
        # Participation is a person's secret: a guarantee for one record of several would not keep it.
        whose = f"  unit: person           # all of a person together, up to {most} records; record: one at a time"
        rest = rest.replace(_DELTA, f"\n{whose}{_DELTA}", 1)
    return "\n".join([*_head(sections, whole, "size" not in source), *_sections(sections, found), "", rest])


def likeliest(data: Path, base: Path, keys: Mapping[str, Any]) -> tuple[dict[str, Any], Outline]:
    """The section `data` that reads what lies at `data`, without shares, and its outline.

    Args:
        data: As `fitted_plan`.
        base: Folder that its path is relative to, where it can be.
        keys: Keys of the section that are given.

    Raises:
        DataError: As `fitted_plan`.
    """
    return _with_persons(*_readable(_file(data), base, dict(keys)), _file(data), base)


def _outline(section: dict[str, Any], base: Path) -> Outline:
    spec = parse_data(section)
    found = outline(request_of(spec, base, data_seeds(0)))
    assert found is not None
    return found


def _readable(data: Path, base: Path, given: Mapping[str, Any]) -> tuple[dict[str, Any], Outline]:
    """Find a reading of the data and return it with the outline: as they are, else with images resized.

    Raises:
        DataError: It cannot be read, or in several ways.
    """
    reasons: list[DataError] = []
    for source in _ways(data, base, given):
        try:
            return source, _outline(source, base)
        except DataError as error:
            reasons.append(error)
    # Where only images of one size were missing, the error of the second try is raised.
    different = "different sizes" in str(reasons[0]) or "data.size resizes" in str(reasons[0])
    raise reasons[1] if different and len(reasons) > 1 else reasons[0]


def _with_persons(
    source: dict[str, Any], whole: Outline, data: Path, base: Path
) -> tuple[dict[str, Any], Outline]:
    """The same with `groups` and `sites`, where names in the data identify persons and sites."""
    request = request_of(parse_data(source), base, data_seeds(0))
    named = {key: value for key, value in whole.proposals.items() if key not in source}
    proposed = named.pop("groups", None)
    groups = [] if proposed is None else [proposed]
    source = {**source, **named}
    if source["name"] == "npz":
        groups = [name for name in names_of_npz(request) if is_obvious(name)]
    elif whole.data.train.groups is None:
        groups += likely_patterns(paths_of_image_folder(request)[0])
    for name in groups if "groups" not in source else ():
        try:
            found = _outline({**source, "groups": name}, base)
        except DataError as error:
            if name == proposed or source["name"] == "npz":
                raise DataError(f"{error}, or data.groups: null, for records without persons") from None
            continue
        train = found.data.train
        if train.groups is None or len(np.unique(train.groups)) == len(train):
            continue
        if train.domains is not None and (again := recurring(train.groups, train.domains, name)) is not None:
            raise DataError(again)
        return {**source, "groups": name}, found
    return source, _outline(source, base) if named else whole


def _file(data: Path) -> Path:
    """The one `.npz` of a folder that holds nothing else to read; else what was named."""
    inside = [entry for entry in sorted(data.iterdir()) if not entry.name.startswith(".")] if data.is_dir() else []
    return inside[0] if len(inside) == 1 and inside[0].suffix.lower() == ".npz" else data


def _ways(data: Path, base: Path, given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Ways of reading a folder or file, likeliest first: as it is, and resized."""
    path = data.resolve()
    shown = str(path.relative_to(base)) if path.is_relative_to(base) else str(path)
    if path.is_dir():
        yield {"name": "image_folder", "path": shown, **given}
        yield {"name": "image_folder", "path": shown, **given, "size": LARGEST_SIDE}
        return
    if path.suffix.lower() != ".npz":
        raise DataError(f"{data.name}: is no .npz file; allowed: a folder of images, unpacked, or an .npz file")
    # Where a record has several labels, the first label with two classes is taken.
    asked = given.get("label_column")
    columns = [None, *range(100)] if asked is None else [_number(str(asked))]
    for column in columns:
        source = {"name": "npz", "path": shown, **given} | ({} if column is None else {"label_column": column})
        yield source
        yield source | {"size": LARGEST_SIDE}


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
    needed = _CONTROLS * (1 + (whole.data.train.classes > _MANY_CLASSES)) / min(records, MOST_RECORDS)
    if 0.1 < needed <= _MOST_CONTROLS:
        # The tenth that controls have by default would leave silent audits undecided.
        others = {role: round(share * (1 - needed), 3) for role, share in section["split"].items()}
        section["split"] = others | {"control": round(1 - sum(others.values()), 3)}
    return section


def _clients_and_backbone(section: dict[str, Any], found: Outline) -> dict[str, Any]:
    """As many clients as the private records serve, and a backbone that the public ones can train."""
    sizes = role_sizes(parse_data(section), found)
    domains = len(found.data.train.domain_names)
    count = max(1, min(_CLIENTS, sizes.private // _RECORDS_A_CLIENT))
    persons: float = sizes.private
    if found.data.train.groups is not None:
        # A person is at one client; there are to be several at each.
        persons = sizes.private / len(found.data.train) * len(np.unique(found.data.train.groups))
        count = max(1, min(count, int(persons) // 2))
    clients: dict[str, Any] = {"count": count, "partition": "dirichlet", "alpha": 0.5}
    clients["min_records"] = min(_RECORDS_A_CLIENT, sizes.private // (2 * count))
    if 1 < domains <= persons // 2 and sizes.private >= domains * _RECORDS_A_CLIENT:
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
    # An outline with a size has that size already, whatever the files have.
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
    lines += [f"# {line}." for line in whole.data.account.lines()]
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
    "groups": "the person of each record: roles and clients share no person, and audits count persons",
    "partition": "iid, dirichlet, disjoint_labels, domains",
    "weights": "public: trained on the public split; random: too few public records for that",
}


def _sections(sections: dict[str, Any], found: Outline) -> Iterator[str]:
    sizes = role_sizes(parse_data(sections["data"]), found)
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
