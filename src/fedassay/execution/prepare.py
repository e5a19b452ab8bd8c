"""From the resolved plan to records: load, split into roles, partition over clients, extract features."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import numpy as np

from fedassay.backbones import build
from fedassay.backbones.base import Backbone, BackboneRequest
from fedassay.backbones.precomputed import is_precomputed, precomputed
from fedassay.data.candidates import KEY, candidates_of
from fedassay.data.images import ImageSet
from fedassay.data.loading import load
from fedassay.data.records import Records, joined, records_digest
from fedassay.data.roles import Role, Roles
from fedassay.exchange.message import COLLUDER
from fedassay.execution.deal import Dealt, deal
from fedassay.plan.own_images import data_seeds, named_groups, request_of
from fedassay.plan.schema import Plan
from fedassay.support.errors import PlanError
from fedassay.support.numerics import at_threads
from fedassay.support.paths import find
from fedassay.support.progress import Progress
from fedassay.support.seeds import Seeds
from fedassay.support.types import Floats, Images, Ints

ONE_EACH = "data.groups is not given: each record is taken to be of a person of its own"
UNKNOWN_TEST = (
    "the persons of the test records are not known: they are taken to be of none of the other roles' persons"
)


@dataclass(frozen=True)
class Prepared:
    """Everything that the cells of one seed share.

    Attributes:
        clients: The private role, partitioned, without those that collude; names `client/0` onwards.
        test: The test role.
        evaluation: Records that accuracy is measured on; those of `test` unless the plan says otherwise.
        public: The public role, or None where it has no records.
        fresh: Records of the private distribution that no client holds and nothing is scored on.
        control: Records in no other role, which controls are made of; may be empty.
        attacker: The adversary's records after `attacker_share`, and those of colluding clients; may be empty.
        classes: Number of classes C.
        backbone: The frozen feature extractor.
        facts: Counts and sources, for the record.
        gallery: Candidates that the adversary has (`knowledge.gallery`), or None.
        dealt: The data set that they are of, by who holds what.
        colluders: The last clients, which collude with the server (`threat.colluding`), named from `colluder/0`.
    """

    clients: tuple[Records, ...]
    test: Records
    evaluation: Records
    public: Records | None
    attacker: Records
    fresh: Records
    control: Records
    classes: int
    backbone: Backbone
    facts: dict[str, Any]
    dealt: Dealt
    gallery: Records | None = None
    colluders: tuple[Records, ...] = ()

    @property
    def senders(self) -> tuple[Records, ...]:
        """Participants of the method: clients, and those that collude."""
        return (*self.clients, *self.colluders)

    @cached_property
    def digests(self) -> dict[str, str]:
        """SHA-256 of the records of each role: images, labels, persons, and features that came with them."""
        own = is_precomputed(self.backbone)
        private = [records_digest(client, own) for client in self.senders]
        others = {"test": self.test, "evaluation": self.evaluation, "public": self.public, "control": self.control}
        others |= {"attacker": self.attacker or None, "fresh": self.fresh, "candidates": self.gallery}
        return {"private": hashlib.sha256(";".join(private).encode()).hexdigest()} | {
            role: records_digest(records, own) for role, records in others.items() if records is not None
        }


def prepare(
    plan: Plan, base: Path, seed: int | None, device: str, progress: Progress, threads: int | None = None
) -> Prepared:
    """Prepare the records of one seed.

    `threads` is what backbone and features are computed with, in every process of a run alike; None: as many as
    this process has.

    A null seed leaves only the noise unseeded: split, partition and initialisation then use seed 0,
    so that a killed run can be resumed.

    Raises:
        PlanError: A role that is needed has no records, or the partition cannot be made.
        DataError: A file cannot be used.
    """
    seeds = data_seeds(seed)
    dealt = deal(plan, base, seeds)
    data, roles, parts, measured = dealt.data, dealt.roles, dealt.parts, dealt.measured
    public = roles.public if len(roles.public) else None
    with at_threads(threads):
        backbone = (
            build(_backbone_request(plan, roles, seeds.integer("backbone"), device, base))
            if roles.private.features is None
            else precomputed(roles.private, data.source, device)
        )

    def extract(images: Images) -> Floats:
        with progress.step("features"), at_threads(threads):
            return backbone.features(images)

    private = _records("private", roles.private, extract)
    test = _records("test", roles.test, extract)
    own = np.concatenate(measured)
    evaluation = test if plan.clients.evaluate == "test" else private.take(own, "test")
    attacker, attacker_source = _attacker(plan, base, roles.attacker, seeds)
    gallery = _gallery(plan, base, roles.private, extract)
    honest = len(parts) - plan.threat.colluding
    colluders = tuple(private.take(part, f"{COLLUDER}{i}") for i, part in enumerate(parts[honest:]))
    held = [] if attacker is None else [_records("attacker", attacker, extract)]
    held += [each for each in colluders if len(each)]
    facts = {
        "source": data.source,
        "records": {role: len(getattr(roles, role)) for role in get_args(Role)},
        "attacker": {"records": sum(map(len, held)), "source": attacker_source},
        "duplicates_kept_together": roles.duplicates,
        "test_records_dropped_as_duplicates": roles.dropped,
        "image_shape": list(roles.private.image_shape),
        "class_names": list(roles.private.class_names),
        "client_records": [len(part) for part in parts],
        **({"account": data.account.facts()} if data.account else {}),
        **({"colluders": {"clients": len(colluders), "records": sum(map(len, colluders))}} if colluders else {}),
        "evaluated_on": {"records": plan.clients.evaluate, "count": len(evaluation)},
        "persons": _persons(plan, roles, parts, [*parts, *measured]),
        "backbone": {
            "description": backbone.description,
            "width": backbone.width,
            "fingerprint": backbone.fingerprint,
            "preprocessing": backbone.preprocessing,
        },
    }
    fresh = _fresh(roles, extract)
    return Prepared(
        clients=tuple(private.take(part, f"client/{i}") for i, part in enumerate(parts[:honest])),
        test=test,
        evaluation=evaluation,
        public=None if public is None else _records("public", public, extract),
        attacker=joined("attacker", held) if held else fresh.take(np.zeros(0, np.int64), "attacker"),
        fresh=fresh,
        control=_records("control", roles.control, extract),
        classes=roles.private.classes,
        backbone=backbone,
        facts=facts if gallery is None else {**facts, "candidates": len(gallery)},
        dealt=dealt,
        gallery=gallery,
        colluders=colluders,
    )


def _gallery(plan: Plan, base: Path, alike: ImageSet, extract: Callable[[Images], Floats]) -> Records | None:
    """The candidates of `knowledge.gallery`.

    Raises:
        PlanError: Their persons, or their features, are unknown.
        DataError: They cannot be used.
    """
    path = plan.knowledge.gallery
    if path is None:
        return None
    for what, given in (("data.groups", alike.groups), ("data.features", alike.features)):
        if given is not None:
            why = "persons of candidates" if what == "data.groups" else "features of candidates"
            raise PlanError(f"{KEY}: {path} given without the {why} that {what} gives; allowed: one of the two")
    return candidates_of(find(path, base, KEY), alike, extract)


def _backbone_request(plan: Plan, roles: Roles, seed: int, device: str, base: Path) -> BackboneRequest:
    return BackboneRequest(
        name=plan.backbone.name,
        weights=plan.backbone.weights,
        input_size=plan.backbone.input_size,
        image_shape=roles.private.image_shape,
        classes=roles.private.classes,
        public=roles.public if len(roles.public) else None,
        seed=seed,
        device=device,
        base=base,
        preprocessing=plan.backbone.preprocessing(),
    )


def _attacker(plan: Plan, base: Path, own: ImageSet, seeds: Seeds) -> tuple[ImageSet | None, str]:
    held, source = own, "the data set's attacker role"
    other = plan.data.attacker_from
    if other is not None:
        loaded = load(request_of(other, base, seeds.child("attacker")))
        held, source = loaded.train, f"out of distribution: {loaded.source}"
        if held.groups is not None:
            # These persons are numbered by themselves: none of them is a person of the data set.
            held = replace(held, groups=-1 - held.groups)
        if held.image_shape != own.image_shape:
            raise PlanError(
                f"data.attacker_from: images of {other.name} are {held.image_shape}, the private ones "
                f"{own.image_shape}; they must be equal"
            )
    if plan.threat.attacker_share < 1:
        size = round(plan.threat.attacker_share * len(held))
        chosen = np.sort(seeds.numpy("attacker_share").permutation(len(held))[:size])
        held = held.take(chosen)
    return (held if len(held) else None), source


def _persons(plan: Plan, roles: Roles, parts: Sequence[Ints], used: Sequence[Ints]) -> dict[str, Any]:
    """Facts on the records' persons, for the record; `used` are those that clients hold or are measured on."""
    groups = roles.private.groups
    if groups is None:
        return {"groups": None, "assumed": ONE_EACH}
    counts = np.unique(groups, return_counts=True)[1]
    return {
        "groups": named_groups(plan.data.groups) or "as the data set says",
        "persons": {
            role: 0 if (numbers := getattr(roles, role).groups) is None else len(np.unique(numbers))
            for role in get_args(Role)
        },
        "client_persons": [len(np.unique(groups[part])) for part in parts],
        "most_records": int(counts.max(initial=0)),
        "median_records": float(np.median(counts)) if len(counts) else 0.0,
        "records_left_out_of_shared_persons": len(groups) - len(np.unique(np.concatenate(used))),
        "assumed": "" if roles.test.groups is not None else UNKNOWN_TEST,
    }


def _fresh(roles: Roles, extract: Callable[[Images], Floats]) -> Records:
    """The attacker role: of the private distribution, even where the adversary's images are not."""
    held = roles.attacker if len(roles.attacker) else roles.test
    return _records("fresh", held, extract)


def _records(name: str, images: ImageSet, extract: Callable[[Images], Floats]) -> Records:
    """One owner's records; features that came with the images are theirs."""
    features = images.features
    own = extract if features is None else lambda _images: features
    return Records(name, images.images, images.labels, own, images.groups, images.attributes)
