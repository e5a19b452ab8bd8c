"""The user's own images in folders: what a table says of them, or else the folders that they lie in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedassay.data import dicom
from fedassay.data.account import Account, LeftOut
from fedassay.data.folder_images import with_classes, without_masks
from fedassay.data.folder_reading import folder_places, read_folders
from fedassay.data.groups import PERSON, numbered, persons_of
from fedassay.data.image_files import Reading, endings, facts_of, in_words, places_in, read_images, shared_shape
from fedassay.data.image_header import Place as Picture
from fedassay.data.images import ImageSet, LoadedData
from fedassay.data.layout import LAYOUTS, Layout, Place
from fedassay.data.loading import DataRequest, allow_only
from fedassay.data.outline import Outline, without_pixels
from fedassay.data.presence import Presence
from fedassay.data.sampling import stratified_sample, whole_persons
from fedassay.data.scanned import Scanned, scanned, states_of, tables_beside
from fedassay.data.spellings import as_one, listed, one_form
from fedassay.support.errors import DataError, PlanError
from fedassay.support.paths import find
from fedassay.support.registry import register
from fedassay.support.types import Images

if TYPE_CHECKING:
    from fedassay.data.found_tables import TableChoice

_SITE, _PERSON = "site", "person"
"""Words for the site and the person of the folders in `data.groups`, where no column has these names."""


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    domain: str
    label: str
    person: str = ""
    part: str = ""
    frame: int = 0


@dataclass(frozen=True)
class _Folder:
    """Which files are read, in order, and every class that the folder has."""

    root: Path
    train: list[_File]
    test: list[_File]
    classes: list[str]
    account: Account
    proposals: Mapping[str, Any] = field(default_factory=dict)

    @property
    def pictures(self) -> list[Picture]:
        """The pictures of both sets."""
        return [Picture(file.path, file.frame) for file in (*self.train, *self.test)]


def outline_of_image_folder(request: DataRequest) -> Outline:
    """What names, the table of labels, the images' headers and some decoded images tell.

    Raises:
        PlanError: As `image_folder`.
        DataError: As `image_folder`; images that are broken inside are found in a small set, or by chance.
    """
    folder, reading = _folder(request), _reading(request)
    shape = shared_shape(folder.pictures, folder.root, reading)
    return Outline(_outline(folder, reading), shape, folder.proposals)


def paths_of_image_folder(request: DataRequest) -> list[str]:
    """Paths of the images below their folder, with `/`.

    Raises:
        PlanError: As `image_folder`.
        DataError: As `outline_of_image_folder`.
    """
    folder = _folder(request)
    return [picture.path.relative_to(folder.root).as_posix() for picture in folder.pictures]


def pictures_of_image_folder(request: DataRequest) -> tuple[LoadedData, Path, list[Picture]]:
    """The outline of both sets, the folder, and where the pictures of both are, the training set's first.

    Raises:
        PlanError: As `image_folder`.
        DataError: As `outline_of_image_folder`; sizes may differ.
    """
    folder, reading = _folder(request), _reading(request)
    return _outline(folder, reading), folder.root, folder.pictures


@register("dataset", "image_folder", size=outline_of_image_folder)
def image_folder(request: DataRequest) -> LoadedData:
    """Images of your own in folders, with a table of labels or with one folder for each class.

    A table in the folder, or the one that `labels` names, says the class of each image (`label_column`, or `label`
    for one of several that a record may have), its person (`groups`) and its site (`sites`). Without one the
    folders say it: class/image, class/person/image, site/class/image, with `train` and `test` at any level;
    `layout` says which level is what where names do not. The test part is the official test set. Of all that can
    be read in two ways, nothing is read; of all that is not read, the account of the data says so.

    `groups` says whose each image is: columns, a pattern laid on the end of its path (`{person}_*` for
    `p12_left.png`), or `person` for the folders that `layout` calls so.

    Classes, domains and images come in the order of their names. All images are grey (1 channel) if every file is,
    else all are RGB (transparency is ignored); they are turned upright by their EXIF orientation. Sizes must
    agree, unless `size` has them all resized to a square (Lanczos).

    Raises:
        PlanError: No path is given, or `size` is too small.
        DataError: A folder that can be read in no way or in several, fewer than two classes, a broken or too small
            image, two sizes, a table or a pattern that does not belong to the images.
    """
    folder, reading = _folder(request), _reading(request)
    images = read_images(folder.pictures, folder.root, reading)
    outline = _outline(folder, reading)
    split = len(folder.train)
    return LoadedData(
        _with(images[:split], outline.train),
        None if outline.test is None else _with(images[split:], outline.test),
        outline.source,
        outline.account,
    )


def _folder(request: DataRequest) -> _Folder:
    allow_only(
        request,
        *("path", "labels", "file_column", "label_column", "groups", "sites", "layout", "label", "uncertain"),
        *("incomplete", "bits", "frames"),
    )
    if request.path is None:
        raise PlanError("data.path: not given; data set image_folder needs the path of a folder")
    if request.label_column is not None and isinstance(request.label_column, int):
        raise PlanError(
            f"data.label_column: {request.label_column} given; allowed: the name of a column of the table"
        )
    root = find(request.path, request.base, "data.path")
    if not root.is_dir():
        raise DataError(f"data.path: {root.name} is a file; allowed: a folder ({LAYOUTS})")
    scan = scanned(root)
    if not scan.images:
        lies = scan.lies_there()
        if not any(root.iterdir()):
            raise DataError(f"{root.name}: has no folders in it; allowed: {LAYOUTS}")
        leaf = " (pixels in JSON, as LEAF has them: make an .npz of x, y and persons)" if ".json" in lies else ""
        raise DataError(
            f"{root.name}: no images in its folders; {lies}{leaf}; allowed: {LAYOUTS}, of images ({endings()})"
        )
    _check_unread(scan, request)
    groups = request.groups if request.groups is None or isinstance(request.groups, str) else tuple(request.groups)
    asked = replace(request, limit=None, seed=None, size=None, features=None, groups=groups)
    whole = _read_folder(scan, asked, states_of(_tables_outside(root, request)))
    return replace(whole, train=_limited(whole.train, request), test=_limited(whole.test, request))


def _tables_outside(root: Path, request: DataRequest) -> list[Path]:
    """Tables outside the folder that may be read: those beside it, and the one that the plan names."""
    return [*tables_beside(root), *([] if request.labels is None else [_named(root, request)])]


def _named(root: Path, request: DataRequest) -> Path:
    assert request.labels is not None
    inside = root / request.labels
    return inside if inside.exists() else find(request.labels, request.base, "data.labels")


@lru_cache(maxsize=2)
def _read_folder(scan: Scanned, request: DataRequest, outside: object) -> _Folder:
    """All files with what is known of each; a plan's checks ask for it several times.

    Args:
        scan: Of the folder.
        request: Of the plan, without what decides nothing here.
        outside: States of tables that the scan has not.
    """
    del outside
    root = scan.root
    paths, beside = without_masks(scan.images)
    if request.layout is not None:
        paths, more = Layout(request.layout).fitting(paths, root.name, leave_out=request.incomplete == "leave_out")
        beside += more
    choice = _table(scan, paths, request)
    if request.layout is None and (choice is None or not choice.labels):
        paths, more = with_classes(paths)
        beside += more
    places, layout = _places(scan, paths, request, choice)
    files, notes, found = _files(root, paths, places, (choice, layout), request)
    files = _with_frames(files, root, request)
    classes = sorted({file.label for file in files})
    if len(classes) < 2:
        what = "one class folder" if choice is None else "one class"
        held = classes[0] if classes else "none"
        raise DataError(f"{root.name}: has {what}, {held}; allowed: two or more ({LAYOUTS})")
    train, test, parts = _parted(files)
    said = [*beside, *(_tables_passed(scan) if choice is None else choice.left_out)]
    said += [] if choice is None else choice.labelled.left_out
    account = Account(root=root).adding(
        *said,
        *scan.left_out(),
        read=_read(files, layout, choice, parts),
        notes=(*(choice.labelled.notes if choice else ()), *notes, *_copies(scan, paths)),
    )
    proposals = {**found, **({} if choice is None else choice.proposals)}
    return _Folder(root, train, test, classes, account, proposals)


def _check_unread(scan: Scanned, request: DataRequest) -> None:
    """Refuse pictures that cannot be read, unless they are to be left out: a class may be made of them."""
    if scan.unread and request.incomplete != "leave_out":
        held = Counter(Path(path).suffix.lower() for path in scan.unread)
        words = listed(f"{count:,} {ending}" for ending, count in held.most_common())
        folders = listed(sorted({path.rpartition("/")[0] or "the folder itself" for path in scan.unread}), 3)
        raise DataError(
            f"{scan.root.name}: {words} in {folders} hold pictures that are not read; allowed: {endings()}, or "
            "data.incomplete: leave_out, which leaves them out"
        )


def _table(scan: Scanned, paths: Sequence[str], request: DataRequest) -> TableChoice | None:
    """The table that says what the images are; None where folders do, or `layout` says that they do."""
    asked_of_it = {
        key: value
        for key in ("label_column", "file_column", "sites", "label")
        if (value := getattr(request, key)) is not None
    }
    # pandas takes long to import, and most commands look at no table.
    from fedassay.data.found_tables import chosen_table
    from fedassay.data.label_table import Columns

    presence = None if request.label is None else Presence(request.label, request.uncertain)
    asked = () if request.groups is None else request.groups
    persons = (asked,) if isinstance(asked, str) else tuple(asked)
    columns = Columns(
        request.file_column,
        request.label_column,
        presence,
        tuple(name for name in persons if PERSON not in name),
        request.sites,
        request.incomplete == "leave_out",
        request.layout is not None and "class" in Layout(request.layout).words,
    )
    named = None if request.labels is None else _named(scan.root, request)
    try:
        found = chosen_table(scan, paths, columns, named)
    except DataError:
        # Where the plan says that folders are the classes, a table that cannot be used is passed over.
        if not columns.folders_are_classes or named is not None or asked_of_it:
            raise
        return None
    if asked_of_it.get("sites") == dicom.SITE:
        del asked_of_it["sites"]
    if found is None and asked_of_it:
        key, value = next(iter(asked_of_it.items()))
        raise PlanError(
            f"data.{key}: {value} given, but {scan.root.name} has no table that names its images; allowed: one in "
            "the folder or beside it, or data.labels"
        )
    return found


def _places(
    scan: Scanned, paths: Sequence[str], request: DataRequest, choice: TableChoice | None
) -> tuple[list[Place], Layout | None]:
    """What the folders say of each image, and the layout that they were read by, if a layout is what they have."""
    if request.layout is not None:
        layout = Layout(request.layout)
        return layout.places(paths), layout
    if choice is not None and choice.labels:
        if not (request.labels or request.label_column or request.label):
            _check_agree(scan.root.name, paths, choice)
        rows = choice.labelled.rows
        kept = [path for path in paths if path in rows]
        found = dict(zip(kept, folder_places(kept, {row.label for row in rows.values()}), strict=True))
        return [found.get(path, Place()) for path in paths], None
    layout = read_folders(paths, scan.root.name).layout
    return layout.places(paths), layout


def _check_agree(where: str, paths: Sequence[str], choice: TableChoice) -> None:
    """Refuse a table that gives images other classes than folders which are named like classes.

    Raises:
        DataError: Both readings, with their counts.
    """
    rows = choice.labelled.rows
    try:
        layout, by_name = read_folders(paths, where)
    except DataError:
        return
    if not by_name:
        return
    pairs = {(one_form(place.label), one_form(rows[path].label)) for path in rows if (place := layout.place(path))}
    folders, labels = ({pair[side] for pair in pairs} for side in (0, 1))
    if len(pairs) > max(len(folders), len(labels)):
        raise DataError(
            f"{where}: folders and {choice.name} give other classes; allowed: data.layout: {layout.text} for "
            f"{len(folders):,} classes ({listed(sorted(folders))}), or data.labels: {choice.name} for "
            f"{len(labels):,} ({listed(sorted(labels))})"
        )


def _files(
    root: Path,
    paths: Sequence[str],
    places: Sequence[Place],
    by: tuple[TableChoice | None, Layout | None],
    request: DataRequest,
) -> tuple[list[_File], list[str], dict[str, str]]:
    """Every image with all that is known of it, what is to be said of spellings, and what headers propose."""
    choice, layout = by
    rows = choice.labelled.rows if choice is not None and choice.asked else None
    kept = [number for number, path in enumerate(paths) if rows is None or path in rows]
    notes: list[str] = []

    def spelled(values: Sequence[str], what: str) -> list[str]:
        once, more = as_one(values, what)
        notes.extend(more)
        return once

    labels = spelled([places[n].label or (rows[paths[n]].label if rows else "") for n in kept], "class")
    persons = spelled([places[n].person for n in kept], "person")
    facts = facts_of([root / paths[n] for n in kept], root, _reading(request))
    in_headers = request.sites in facts and (choice is None or request.sites not in choice.columns)
    sites = (
        dicom.of_headers("sites", facts[dicom.SITE], [paths[n] for n in kept])
        if in_headers
        else [(rows[paths[n]].site if rows else "") or places[n].site for n in kept]
    )
    sites = spelled(sites, "site")
    if request.sites is not None and not any(sites):
        raise DataError(
            f"data.sites: {request.sites} given, which neither a table nor headers of {root.name} have"
        )
    parts = [(rows[paths[n]].part if rows else "") or places[n].part for n in kept]
    groups = request.groups
    if groups is not None:
        names = [groups] if isinstance(groups, str) else groups
        asked = [name for name in names if name in facts]
        held = {name: dicom.of_headers("groups", facts[name], [paths[n] for n in kept]) for name in asked}
        held |= {_SITE: sites, _PERSON: persons}
        patterns = [name for name in names if PERSON in name]
        held |= {name: persons_of(name, [paths[n] for n in kept], root.name) for name in patterns}
        columns = () if choice is None else [name for name in names if name in choice.columns]
        for place, name in enumerate(columns):
            held[name] = [rows[paths[n]].persons[place] for n in kept] if rows else []
        if missing := next((name for name in names if not any(held.get(name, ()))), None):
            raise DataError(
                f"data.groups: {missing} given; allowed: a pattern of the path with {PERSON} in it"
                + (
                    f", or of {listed(choice.columns, 30)}"
                    if choice
                    else f", or {_SITE} and {_PERSON} of the folders"
                )
            )
        persons = [" / ".join(each) for each in zip(*(held[name] for name in names), strict=True)]
    elif (
        any(persons)
        and request.layout is None
        and (again := recurring(persons, sites) or _in_classes(persons, labels, layout))
    ):
        raise DataError(again)
    return (
        [
            _File(root / paths[n], site, label, person, part)
            for n, site, label, person, part in zip(kept, sites, labels, persons, parts, strict=True)
        ],
        notes,
        dicom.proposed(facts, {"groups": persons, "sites": sites}, notes),
    )


def _in_classes(persons: Sequence[str], labels: Sequence[str], layout: Layout | None) -> str | None:
    """Why persons of one name in several classes are asked about; None: there are none such below classes."""
    pairs, whole = len(set(zip(persons, labels, strict=True))), len(set(persons))
    words = [] if layout is None else layout.words
    if layout is None or pairs == whole or words.index(_PERSON) < words.index("class"):
        return None
    levels = layout.text.split("/")
    first = next(number for number, level in enumerate(levels) if "class" in level)
    apart = "/".join(PERSON if level in {"class", _PERSON} else "*" for level in levels[first:])
    return (
        f"data.groups: {pairs - whole:,} of {whole:,} names of persons recur in several classes; allowed: "
        f"data.layout: {layout.text} for {whole:,} persons of several classes, or data.groups: '{apart}' for "
        f"{pairs:,} persons, each of one class"
    )


def recurring(persons: Iterable[Any], sites: Iterable[Any], name: str = _PERSON, site: str = _SITE) -> str | None:
    """Why persons of one number at several sites have to be asked about; None: there are none such."""
    pairs = set(zip(persons, sites, strict=True))
    whole = len({person for person, _ in pairs})
    several = len(pairs) - whole
    if not several or len({site for _, site in pairs}) < 2:
        return None
    return (
        f"data.groups: {min(several, whole):,} of {whole:,} names in {name} recur at several sites, which may be "
        f"numbers of each site's own; allowed: [{site}, {name}] for {len(pairs):,} persons, each of one site, or "
        f"{name} for {whole:,} persons, some of them at several sites"
    )


def _parted(files: list[_File]) -> tuple[list[_File], list[_File], str]:
    """Training and test records by their official parts; validation is for testing where there is no test part."""
    counts = {part: sum(file.part == part for file in files) for part in ("train", "validation", "test")}
    held = "test" if counts["test"] else "validation"
    if not counts["train"] or not counts[held]:
        return files, [], ""
    words = ", ".join(f"{count:,} {part}" for part, count in counts.items() if count)
    train = [file for file in files if file.part != held]
    said = f"official parts: {words}; {held} is the test set"
    return train, [file for file in files if file.part == held], said


def _read(files: Sequence[_File], layout: Layout | None, choice: TableChoice | None, parts: str) -> list[str]:
    by = (
        f"labels by {choice.name}"
        if choice is not None and choice.labels
        else f"folders as {layout.text if layout else '-'}"
    )
    counts = {
        what: len({getattr(file, key) for file in files} - {""})
        for what, key in (("classes", "label"), ("sites", "domain"), ("persons", "person"))
    }
    words = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
    return [f"{len(files):,} images, {words}; {by}", *([parts] if parts else [])]


def _tables_passed(scan: Scanned) -> list[LeftOut]:
    return [LeftOut("table", 1, f"{path}, which is not used", (path,)) for path in scan.tables]


def _copies(scan: Scanned, paths: Sequence[str]) -> list[str]:
    many = scan.copies(paths)
    return [f"{many:,} images are equal to another to the byte"] if many else []


def _with_frames(files: list[_File], root: Path, request: DataRequest) -> list[_File]:
    """Every picture of the files; where nothing says whose they are, those of a file are one person's."""
    if request.frames != "each":
        return files
    by_path = {file.path: file for file in files}
    places = places_in(list(by_path), root, _reading(request))
    pictures = [replace(by_path[place.path], frame=place.frame) for place in places]
    if any(file.person for file in files):
        return pictures
    return [replace(each, person=each.path.relative_to(root).as_posix()) for each in pictures]


def _reading(request: DataRequest) -> Reading:
    return Reading(request.size, request.bits, request.frames)


def _outline(folder: _Folder, reading: Reading) -> LoadedData:
    """Both sets without their pixels."""
    domains = sorted({file.domain for file in (*folder.train, *folder.test)} - {""})
    domains = domains if len(domains) > 1 else []
    train, test = (_image_set(files, folder.classes, domains) for files in (folder.train, folder.test))
    if any(file.person for file in folder.train):
        whose = numbered(*([file.person for file in files] for files in (folder.train, folder.test)))
        train, test = (replace(each, groups=numbers) for each, numbers in zip((train, test), whose, strict=True))
    account = folder.account.adding(notes=in_words(folder.pictures, folder.root, reading))
    return LoadedData(train, test if folder.test else None, f"folder {folder.root.name}", account)


def _limited(files: list[_File], request: DataRequest) -> list[_File]:
    """Draw before reading, so that a limit also limits what is decoded."""
    if request.limit is None or len(files) <= request.limit:
        return files
    (labels,), rng = numbered([file.label for file in files]), np.random.default_rng(request.seed)
    if not any(file.person for file in files):
        return [files[i] for i in stratified_sample(labels, request.limit, rng)]
    (persons,) = numbered([file.person for file in files])
    return [files[i] for i in whole_persons(labels, persons, request.limit, rng)]


def _image_set(files: Sequence[_File], classes: list[str], domains: list[str]) -> ImageSet:
    position = {label: number for number, label in enumerate(classes)}
    return without_pixels(
        np.array([position[file.label] for file in files], dtype=np.int64),
        tuple(classes),
        np.array([domains.index(file.domain) for file in files], dtype=np.int64) if domains else None,
        tuple(domains),
    )


def _with(images: Images, records: ImageSet) -> ImageSet:
    return replace(records, images=images)
