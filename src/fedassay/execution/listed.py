"""Pictures for `fedassay look`: a plan's records by holder, or the content of a folder or archive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import get_args

import numpy as np

from fedassay.data.account import Account
from fedassay.data.image_files import Reading, headers_of, is_image, one_image
from fedassay.data.image_folder import files_of_image_folder
from fedassay.data.image_header import Header, Place
from fedassay.data.images import ImageSet, LoadedData
from fedassay.data.listed_files import without_images
from fedassay.data.loading import DataRequest, load
from fedassay.data.roles import Role
from fedassay.data.sheet import Listed
from fedassay.execution.deal import Dealt, deal
from fedassay.plan.fitted import likeliest
from fedassay.plan.own_images import data_seeds, request_of
from fedassay.plan.resolve import load_plan
from fedassay.plan.schema import override, parse_data
from fedassay.support.errors import DataError, PlanError
from fedassay.support.types import Images, Ints

_PLANS = (".yaml", ".yml")


def listed_at(path: Path, assignments: Sequence[str] = ()) -> Listed:
    """Return the pictures at a path: a plan's data set, or one that is read as `fedassay init --data` would.

    Args:
        path: A plan (YAML), a folder of images, or an archive (`.npz`).
        assignments: Keys of the plan, or of its section `data`, as `data.frames=first`.

    Raises:
        PlanError: There is no such path, the plan is wrong, or it has no images.
        DataError: The data cannot be read.
    """
    if path.suffix.lower() in _PLANS:
        plan = load_plan(path, assignments)
        return listed_of(deal(plan, path.resolve().parent, data_seeds(plan.seeds[0])))
    if not path.exists():
        raise PlanError(f"look: {path} does not exist; allowed: a plan, a folder of images, or an .npz file")
    base = Path.cwd()
    keys = override({"data": {}}, assignments)
    if set(keys) - {"data"}:
        raise PlanError(f"--set: {', '.join(assignments)} given; allowed: keys of data, as data.frames=first")
    section, _ = likeliest(path, base, keys["data"])
    request = request_of(parse_data(section), base, data_seeds(0))
    return _of_folder(request) if request.name == "image_folder" else _of_sets(load(request))


def listed_of(dealt: Dealt) -> Listed:
    """The records that are dealt out, role by role.

    Raises:
        PlanError: There are no images.
    """
    roles = {role: held for role in get_args(Role) if len(held := getattr(dealt.roles, role))}
    clients = np.full(sum(map(len, roles.values())), -1, np.int64)
    for number, part in enumerate(dealt.parts):
        clients[part] = number
    return _of_arrays(dealt.data, list(roles.items()), clients)


def _of_sets(data: LoadedData) -> Listed:
    return _of_arrays(
        data, [("training", data.train), *([("official test", data.test)] if data.test else [])], None
    )


def _of_arrays(data: LoadedData, sets: Sequence[tuple[str, ImageSet]], clients: Ints | None) -> Listed:
    """Records in arrays; those of the private role come first where clients have them."""
    first = sets[0][1]
    if not first.pictures:
        raise PlanError("look: the data set holds features and no images; allowed: one of images")
    ends = np.cumsum([0, *(len(held) for _, held in sets)])
    parts = np.repeat(np.arange(len(sets)), np.diff(ends))

    def picture(row: int) -> Images:
        return np.asarray(sets[parts[row]][1].images[row - ends[parts[row]]])

    def name(row: int) -> str:
        held = sets[parts[row]]
        place = row - int(ends[parts[row]])
        whose = "" if held[1].groups is None else f", person {held[1].groups[place]}"
        return f"{held[0]}, {held[1].class_names[held[1].labels[place]]}{whose}, record {place}"

    def joined(values: Callable[[ImageSet], Ints | None]) -> Ints | None:
        every = [values(held) for _, held in sets]
        known = [each for each in every if each is not None]
        return np.concatenate(known) if len(known) == len(every) else None

    height, width, channels = first.image_shape
    labels = joined(lambda held: held.labels)
    assert labels is not None
    return Listed(
        source=data.source,
        labels=labels,
        class_names=first.class_names,
        kinds=[Header("", "", channels == 1, (width, height))] * len(labels),
        picture=picture,
        name=name,
        parts=parts if len(sets) > 1 else None,
        part_names=tuple(name for name, _ in sets),
        sites=joined(lambda held: held.domains),
        site_names=first.domain_names,
        persons=joined(lambda held: held.groups),
        clients=clients,
        account=data.account,
        unread=partial(_unread, data.account),
    )


def _of_folder(request: DataRequest) -> Listed:
    """The files of a folder as they are, whatever size the plan would give them."""
    reading = Reading(None, request.bits, request.frames)
    files = files_of_image_folder(request)
    data, root, places = without_images(files, request), files.root, files.places
    headers = headers_of(places, root, reading)
    sets = [data.train, *([] if data.test is None else [data.test])]

    def joined(values: Callable[[ImageSet], Ints | None]) -> Ints | None:
        known = [each for held in sets if (each := values(held)) is not None]
        return np.concatenate(known) if len(known) == len(sets) else None

    labels = joined(lambda held: held.labels)
    assert labels is not None
    return Listed(
        source=data.source,
        labels=labels,
        class_names=data.train.class_names,
        kinds=headers,
        picture=lambda row: one_image(places[row], root, reading),
        name=lambda row: _named(places[row], root),
        parts=None if data.test is None else np.repeat(np.arange(2), [len(data.train), len(data.test)]),
        part_names=("training", "official test"),
        sites=joined(lambda held: held.domains),
        site_names=data.train.domain_names,
        persons=joined(lambda held: held.groups),
        account=data.account,
        unread=partial(_unread, data.account),
    )


def _named(place: Place, root: Path) -> str:
    path = place.path.relative_to(root).as_posix()
    return path if not place.frame else f"{path}, picture {place.frame + 1}"


def _unread(account: Account, path: str) -> Images | None:
    """The picture of a file that was left out, if it is one."""
    if account.root is None:
        return None
    file = account.root / path
    try:
        return one_image(Place(file), account.root, Reading(None, None, "first")) if is_image(file) else None
    except DataError:
        return None
