"""The user's own images before they are read: what headers tell is checked against the plan, without torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, get_args

import numpy as np

from fedassay.data.domains import leave_out, only_domains
from fedassay.data.feature_archive import check_features, width_of
from fedassay.data.groups import typical
from fedassay.data.images import LoadedData, are_pictures
from fedassay.data.loading import (
    DataRequest,
    DataSize,
    check_request,
    check_usable,
    limited,
    only_classes,
    with_attributes,
)
from fedassay.data.official_roles import check_official
from fedassay.data.outline import Outline
from fedassay.data.partition import check_clients, check_persons
from fedassay.data.roles import Role, check_shares
from fedassay.data.sampling import apportion
from fedassay.plan.schema import DataSpec, ImageSource, Plan
from fedassay.support.errors import PlanError
from fedassay.support.paths import find
from fedassay.support.registry import entries, size_of
from fedassay.support.seeds import Seeds


class RoleSizes(NamedTuple):
    """Records of each role, in the order of `Role`."""

    private: int
    attacker: int
    public: int
    test: int
    control: int


def data_seeds(seed: int | None) -> Seeds:
    """The streams that a seed of the plan draws roles, clients and a limit from; a null seed is 0 here."""
    return Seeds(0 if seed is None else seed).child("data")


def request_of(source: ImageSource, base: Path, seeds: Seeds) -> DataRequest:
    """Return the request to a data set by `data` or `data.attacker_from`."""
    return DataRequest(
        name=source.name,
        root=None if source.root is None else Path(source.root).expanduser(),
        path=None if source.path is None else Path(source.path).expanduser(),
        limit=source.limit,
        seed=seeds.integer("limit"),
        base=base,
        size=source.size,
        labels=None if source.labels is None else Path(source.labels).expanduser(),
        file_column=source.file_column,
        label_column=source.label_column,
        classes=source.classes,
        domains=source.domains,
        features=None if source.features is None else Path(source.features).expanduser(),
        groups=source.groups,
        bits=source.bits,
        frames=source.frames,
        sites=source.sites,
        layout=source.layout,
        label=source.label,
        uncertain=source.uncertain,
        incomplete=source.incomplete,
        attributes=source.attributes,
        download=source.download,
    )


def published_size(name: str) -> DataSize | None:
    """The size of a data set that is known by name; None of the user's own."""
    known = size_of("dataset", name) if name in entries("dataset") else None
    return known if isinstance(known, DataSize) else None


def outline(request: DataRequest) -> Outline | None:
    """Outline of the user's own images from headers, after `size` and `limit`; None for any other data set.

    Raises:
        PlanError: A key is missing, or none of the data set's.
        DataError: The files cannot be used.
    """
    read = size_of("dataset", request.name) if request.name in entries("dataset") else None
    if not callable(read):
        return None
    check_request(request)
    whole: Outline = read(request.unlimited())
    data, image = whole.data, whole.image
    if request.features is not None:
        check_features(
            _features(request), data.source, len(data.train), None if data.test is None else len(data.test)
        )
    if request.classes is not None:
        data = only_classes(data, request.classes)
    if request.domains is not None:
        data = only_domains(data, request.domains)
    if request.features is None:
        data = with_attributes(data, request.attributes)
    if request.size is not None and not are_pictures(image):
        raise PlanError(f"data.size: {request.size} given, but there are features and no images; leave it out")
    if request.size is not None:
        image = (request.size, request.size, image[2])
    check_usable(data.train, image, data.source, features=request.features is not None)
    if request.limit is not None:
        train = limited(data.train, request.limit, request.seed)
        test = None if data.test is None else limited(data.test, request.limit, request.seed)
        data = replace(data, train=train, test=test)
    return replace(whole, data=data, image=image)


def check_images(plan: Plan, base: Path) -> None:
    """Refuse images that the plan could not be run on, as far as headers, names and labels tell.

    Of data sets that are known by name only the published size is looked at, and nothing is downloaded.

    Raises:
        PlanError: A role or a client is left without records, or the attacker's images are of another shape.
        DataError: A missing file or folder, wrong arrays or layouts, labels that do not belong to the images.
    """
    _check_limit(plan)
    # Only a limit makes what is read depend on the seed.
    for seed in plan.seeds if plan.data.limit is not None else plan.seeds[:1]:
        seeds = data_seeds(seed)
        found = outline(request_of(plan.data, base, seeds))
        if found is not None:
            _check_roles(plan, found)
        _check_features(plan, base, seeds)
        other = plan.data.attacker_from
        held = None if other is None else outline(request_of(other, base, seeds.child("attacker")))
        if found is not None and held is not None and held.image != found.image:
            raise PlanError(
                f"data.attacker_from: images of {held.data.source} are {held.image}, the private ones "
                f"{found.image}; they must be equal"
            )


def _check_limit(plan: Plan) -> None:
    """Refuse a limit that leaves a data set known by name fewer private records than clients need.

    Raises:
        PlanError: A client would be left without records.
    """
    known = published_size(plan.data.name)
    if known is None or plan.data.limit is None:
        return
    share = shares_of(plan.data, test_set=known.test > 0).get("private", 0.0)
    whole = known.test if plan.data.roles == "official" else known.records
    # Roles are drawn class by class, so that a role's number is known to within one record.
    most = math.floor(share * min(plan.data.limit, whole) + 1)
    if plan.clients.count > most:
        raise PlanError(
            f"clients.count: {plan.clients.count} given; allowed: at most {most}, for data.limit "
            f"{plan.data.limit} leaves no more private records"
        )


def _check_features(plan: Plan, base: Path, seeds: Seeds) -> None:
    """Hold features beside a data set that is known by name against its published size, and both owners' together.

    Raises:
        PlanError: The attacker's have another width, or only one of both has any.
        DataError: Rows that are not the data set's.
    """
    request, other = request_of(plan.data, base, seeds), plan.data.attacker_from
    known = published_size(plan.data.name)
    if request.features is not None and known is not None:
        check_features(_features(request), plan.data.name, known.records, known.test or None)
    if other is None:
        return
    theirs = request_of(other, base, seeds)
    if (theirs.features is None) != (request.features is None):
        raise PlanError(
            "data.features, data.attacker_from.features: one given without the other; allowed: both or neither"
        )
    if request.features is not None and (ours := width_of(_features(request))) != (
        width := width_of(_features(theirs))
    ):
        raise PlanError(f"data.attacker_from.features: {width} columns given, data.features has {ours}")


def _features(request: DataRequest) -> Path:
    assert request.features is not None
    return find(request.features, request.base, "data.features")


def outline_of(plan: Plan, base: Path) -> Outline | None:
    """The outline of a plan's data, for its first seed; arguments and errors as `outline`."""
    return outline(request_of(plan.data, base, data_seeds(plan.seeds[0])))


def persons_in_words(plan: Plan, found: Outline | None) -> str:
    """Sentence on the assumed persons of the records, as far as they are known without reading an image.

    Args:
        plan: Names the persons, or does not.
        found: Its `outline_of`.
    """
    words = f"data.groups: {named_groups(plan.data.groups)}"
    if plan.data.groups is None:
        if found is None or found.data.train.groups is None:
            return "data.groups is not given: each record is taken to be of a person of its own"
        words = "data.groups is not given: persons are those that the data set names"
    if found is None or found.data.train.groups is None:
        return f"{words}; persons are counted when the data set is read"
    counts = np.unique(found.data.train.groups, return_counts=True)[1]
    return f"{words}; {len(counts)} persons with {counts.min()} to {counts.max()} records each"


def named_groups(groups: str | Sequence[str] | None) -> str | None:
    """Names of the columns or arrays of persons, in words."""
    return groups if groups is None or isinstance(groups, str) else " and ".join(groups)


def role_sizes(spec: DataSpec, found: Outline) -> RoleSizes:
    """Records of each role, to within duplicates and persons, which stay together.

    Raises:
        PlanError: The shares do not fit the data set, or a domain that is not there is left out.
    """
    data = found.data if spec.test_domain is None else leave_out(found.data, spec.test_domain)
    shares = shares_of(spec, test_set=data.test is not None)
    if spec.roles == "official":
        return _official_sizes(data, shares)
    check_shares(shares, official_test=data.test is not None)
    parts = np.array([shares.get(role, 0.0) for role in get_args(Role)] + [0.0])
    parts[-1] = max(0.0, 1.0 - parts.sum())
    counts = apportion(np.bincount(data.train.labels, minlength=data.train.classes), parts).sum(axis=0)
    sizes = RoleSizes(*(int(count) for count in counts[:-1]))
    return sizes if data.test is None else sizes._replace(test=len(data.test))


def _official_sizes(data: LoadedData, shares: dict[Role, float]) -> RoleSizes:
    check_official(data)
    assert data.test is not None
    counts = {role: round(share * len(data.train)) for role, share in shares.items()}
    counts["private"] = round(shares["private"] * len(data.test))
    return RoleSizes(*(counts.get(role, 0) for role in get_args(Role)))


def shares_of(spec: DataSpec, *, test_set: bool) -> dict[Role, float]:
    """The share of every role; the test share of the default split gives way to an official test set."""
    return spec.split.shares(
        test_set="split" not in spec.model_fields_set and test_set, official=spec.roles == "official"
    )


def _check_roles(plan: Plan, found: Outline) -> None:
    sizes = role_sizes(plan.data, found)
    split = plan.data.split
    total = f"{len(found.data.train)} records of {found.data.source}"
    for role, share in (("private", split.private), ("attacker", split.attacker), ("public", split.public)):
        if share > 0 and sizes._asdict()[role] == 0:
            raise PlanError(f"data.split.{role}: {share:g} of {total} is no record; allowed: a larger share")
    if sizes.test == 0:
        why = (
            "whose test set is the clients'"
            if plan.data.roles == "official"
            else "which have no test set of their own"
        )
        raise PlanError(f"data.split.test: no records; allowed: a share above 0 of the {total}, {why}")
    clients = plan.clients
    check_clients(sizes.private, clients.count, clients.alpha, clients.min_records)
    if found.data.train.groups is not None and plan.data.roles == "drawn":
        _check_persons(plan, found)
    if plan.clients.partition == "domains" and found.data.train.domains is None:
        raise PlanError(f"clients.partition: domains given, but {found.data.source} has none")


def _check_persons(plan: Plan, found: Outline) -> None:
    """Refuse roles and clients that so few persons cannot fill, to within the draw of the roles.

    Raises:
        PlanError: A role with a share would have no person, or a client none.
    """
    train = found.data.train
    assert train.groups is not None
    persons = len(np.unique(train.groups))
    shares = shares_of(plan.data, test_set=found.data.test is not None)
    parts = np.array([shares.get(role, 0.0) for role in get_args(Role)] + [0.0])
    parts[-1] = max(0.0, 1.0 - parts.sum())
    classes = np.bincount(typical(train.labels, train.groups), minlength=train.classes)
    counts = dict(zip(get_args(Role), apportion(classes, parts).sum(axis=0).tolist(), strict=False))
    for role in ("private", "attacker", "public", "test"):
        if shares.get(role, 0.0) > 0 and not counts[role]:
            raise PlanError(
                f"data.split.{role}: {shares[role]:.3g} of {persons} persons is none; allowed: a larger share"
            )
    check_persons(counts["private"], plan.clients.count, plan.clients.min_records)
