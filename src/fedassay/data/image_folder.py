"""The user's own images in folders: what a table says of them, or else the folders that they lie in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedassay.data import dicom
from fedassay.data.account import Account, LeftOut
from fedassay.data.folder_images import with_classes, without_masks
from fedassay.data.folder_reading import folder_places, read_folders
from fedassay.data.groups import PERSON, persons_of
from fedassay.data.image_files import Reading, endings, facts_of, places_in
from fedassay.data.layout import LAYOUTS, Layout, Place
from fedassay.data.listed_files import Listed, Picture, of_files
from fedassay.data.loading import DataRequest, allow_only
from fedassay.data.presence import Presence
from fedassay.data.scanned import Scanned, scanned, states_of, tables_beside
from fedassay.data.spellings import as_one, listed, one_form
from fedassay.data.text_lists import are_listed, as_filed, columns_of_lists, lists_in
from fedassay.support.errors import DataError, PlanError
from fedassay.support.paths import find
from fedassay.support.registry import register

if TYPE_CHECKING:
    from fedassay.data.label_table import TableReading

_SITE, _PERSON = "site", "person"
"""Words for the site and the person of the folders in `data.groups`, where no column has these names."""


@register("dataset", "image_folder")
@of_files
def image_folder(request: DataRequest) -> Listed:
    """Images of your own in folders, with a table of labels or with one folder for each class.

    A table in the folder, or the one that `labels` names, says the class of each image (`label_column`, or `label`
    for one of several that a record may have), its person (`groups`) and its site (`sites`). Without one the
    folders give it: class/image, class/person/image, site/class/image, with `train` and `test` at any level;
    `layout` names the levels where their names do not. The test part is the official test set. Ambiguous data are
    refused; the account of the data lists everything that is not read.

    `groups` gives the person of each image: columns, a pattern laid on the end of its path (`{person}_*` for
    `p12_left.png`), or `person` for the folders that `layout` calls so.

    Classes, domains and images come in the order of their names. All images are grey (1 channel) if every file is,
    else all are RGB (transparency is ignored); they are turned upright by their EXIF orientation. Sizes must
    agree, unless `size` has them all resized to a square (Lanczos).

    Raises:
        PlanError: No path is given, or `size` is too small.
        DataError: A folder that can be read in no way or in several, fewer than two classes, a broken or too small
            image, two sizes, a table or a pattern that does not belong to the images.
    """
    return files_of_image_folder(request)


def files_of_image_folder(request: DataRequest) -> Listed:
    """The files of both sets, with what is known of each; errors as `image_folder`."""
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
    asked = replace(request, limit=None, seed=None, size=None, features=None, classes=None, groups=groups)
    outside = [*tables_beside(root), *lists_in(scan), *([] if request.labels is None else [_named(root, request)])]
    try:
        return _read_folder(scan, asked, states_of(outside))
    except DataError as error:
        found = scan.others.get("of ending .json", ())
        if asked.labels is not None or asked.layout is not None or not found:
            raise
        raise DataError(f"{error}; {listed(found)} may hold the labels: name it by data.labels") from None


def paths_of_image_folder(request: DataRequest) -> list[str]:
    """Paths of the images below their folder, with `/`; errors as `image_folder`."""
    files = files_of_image_folder(request)
    return [place.path.relative_to(files.root).as_posix() for place in files.places]


def _named(root: Path, request: DataRequest) -> Path:
    assert request.labels is not None
    inside = root / request.labels
    return inside if inside.exists() else find(request.labels, request.base, "data.labels")


@lru_cache(maxsize=2)
def _read_folder(scan: Scanned, request: DataRequest, outside: object) -> Listed:
    """All files with what is known of each; a plan's checks ask for it several times.

    Args:
        scan: Of the folder.
        request: Of the plan, without what decides nothing here.
        outside: States of tables and lists that the scan has not.
    """
    root = scan.root
    paths, left = without_masks(scan.images)
    layout = None if request.layout is None else Layout(request.layout)
    if layout is not None:
        paths, more = layout.fitting(paths, root.name, leave_out=request.incomplete == "leave_out")
        left += more
    table = _table(scan, paths, request, layout)
    filed = {path: path for path in paths}
    if layout is None and (table is None or not table.labels):
        columns = columns_of_lists(scan, paths)
        filed = as_filed(paths, columns)
        shown, more = with_classes([*filed])
        left += more
        paths = [filed[path] for path in shown]
        layout = read_folders(shown, root.name, lambda words: are_listed(paths, words, columns)).layout
    if layout is None and table is not None and not (request.labels or request.label_column or request.label):
        _check_agree(root.name, paths, table)
    rows = table.rows if table is not None and table.asked else dict.fromkeys(paths, Place())
    paths = [path for path in paths if path in rows]
    lies = {path: shown for shown, path in filed.items()}
    places = (
        layout.places(lies[path] for path in paths)
        if layout
        else folder_places(paths, {row.label for row in rows.values()})
    )
    told = [_both(place, rows[path]) for path, place in zip(paths, places, strict=True)]
    pictures, notes, proposals = _pictures(root, paths, told, (table, layout), request)
    parts = Counter(place.part for place in told)
    # Validation records are for testing where there is no test part.
    held = next((part for part in ("test", "validation") if parts["train"] and parts[part]), None)
    train, test = (
        _with_frames(
            [each for each, place in zip(pictures, told, strict=True) if (place.part == held) == is_test],
            root,
            request,
        )
        for is_test in (False, True)
    )
    classes = tuple(sorted({picture.label for picture in pictures}))
    if len(classes) < 2:
        what = "one class folder" if table is None else "one class"
        raise DataError(f"{root.name}: has {what}, {''.join(classes) or 'none'}; allowed: two or more ({LAYOUTS})")
    by = (
        f"labels by {table.name}" if table is not None and table.labels else f"folders as {layout and layout.text}"
    )
    read = [f"{_counted([*train, *test])}; {by}"]
    if held is not None:
        words = ", ".join(f"{parts[part]:,} {part}" for part in ("train", "validation", "test") if parts[part])
        read.append(f"official parts: {words}; {held} is the test set")
    if moved := sum(lies[path] != path for path in paths):
        notes.append(f"{moved:,} images are of the classes that a list gives them, the names of other folders")
    if scan.empty:
        notes.append(f"empty folders, which are no classes ({len(scan.empty):,}): {listed(scan.empty)}")
    if many := scan.copies(paths):
        notes.append(f"{many:,} images are equal to another to the byte")
    tables = [LeftOut("table", 1, f"{path}, which is not used", (path,)) for path in scan.tables]
    account = Account(
        read=tuple(read),
        notes=(*(table.notes if table else ()), *notes),
        left_out=(*left, *(table.left_out if table else tables), *scan.left_out(request.labels)),
        root=root,
    )
    return Listed(root, train, test, classes, (), account, {**proposals, **(table.proposals if table else {})})


def _both(place: Place, row: Place) -> Place:
    """Merge the places by folders and by a table: folders give classes and persons, the table sites and parts."""
    return Place(
        place.label or row.label, place.person, row.site or place.site, row.part or place.part, row.persons
    )


def _counted(pictures: Sequence[Picture]) -> str:
    words = [f"{len(pictures):,} images"]
    for what, key in (("classes", "label"), ("sites", "domain"), ("persons", "person")):
        if count := len({getattr(picture, key) for picture in pictures} - {""}):
            words.append(f"{count:,} {what}")
    return ", ".join(words)


def _check_unread(scan: Scanned, request: DataRequest) -> None:
    """Refuse pictures that cannot be read, unless they are to be left out: a class may be made of them."""
    if scan.unread and request.incomplete != "leave_out":
        held = Counter(Path(path).suffix.lower() for path in scan.unread)
        words = listed(f"{count:,} {ending}" for ending, count in held.most_common())
        folders = listed(sorted({path.rpartition("/")[0] or "the folder itself" for path in scan.unread}), 3)
        raise DataError(
            f"{scan.root.name}: {words} in {folders} hold pictures in a format that is not read; allowed: convert "
            "them to PNG, or data.incomplete: leave_out, which leaves them out"
        )


def _table(
    scan: Scanned, paths: Sequence[str], request: DataRequest, layout: Layout | None
) -> TableReading | None:
    """The table that says what the images are; None where folders do, or `layout` says that they do."""
    asked_of_it = {
        key: value
        for key in ("label_column", "file_column", "sites", "label")
        if (value := getattr(request, key)) is not None and value != dicom.SITE
    }
    # pandas takes long to import, and most commands look at no table.
    from fedassay.data.found_tables import chosen_table
    from fedassay.data.label_table import Columns

    names = () if request.groups is None else request.groups
    names = (names,) if isinstance(names, str) else tuple(names)
    columns = Columns(
        request.file_column,
        request.label_column,
        None if request.label is None else Presence(request.label, request.uncertain),
        tuple(name for name in names if PERSON not in name),
        request.sites,
        request.incomplete == "leave_out",
        layout is not None and "class" in layout.words,
    )
    named = None if request.labels is None else _named(scan.root, request)
    try:
        found = chosen_table(scan, paths, columns, named)
    except DataError:
        # Where the plan says that folders are the classes, a table that cannot be used is passed over.
        if not columns.folders_are_classes or named is not None or asked_of_it:
            raise
        return None
    if found is None and asked_of_it:
        key, value = next(iter(asked_of_it.items()))
        raise PlanError(
            f"data.{key}: {value} given, but {scan.root.name} has no table that names its images; allowed: one in "
            "the folder or beside it, or data.labels"
        )
    return found


def _check_agree(where: str, paths: Sequence[str], table: TableReading) -> None:
    """Refuse a table that gives images other classes than folders which are named like classes.

    Raises:
        DataError: Both readings, with their counts.
    """
    rows = table.rows
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
            f"{where}: folders and {table.name} give other classes; allowed: data.layout: {layout.text} for "
            f"{len(folders):,} classes ({listed(sorted(folders))}), or data.labels: {table.name} for "
            f"{len(labels):,} ({listed(sorted(labels))})"
        )


def _pictures(
    root: Path,
    paths: Sequence[str],
    told: Sequence[Place],
    by: tuple[TableReading | None, Layout | None],
    request: DataRequest,
) -> tuple[list[Picture], list[str], dict[str, str]]:
    """Every image with all that is known of it, what is to be said of spellings, and what headers propose."""
    table, layout = by
    columns = () if table is None else table.columns
    facts = facts_of([root / path for path in paths], root, Reading(None, request.bits, request.frames))
    labels, notes = as_one([place.label for place in told], "class")
    persons, more = as_one([place.person for place in told], "person")
    notes += more
    sites = [place.site for place in told]
    if request.sites in facts and request.sites not in columns:
        sites = dicom.of_headers("sites", facts[request.sites], paths)
    sites, more = as_one(sites, "site")
    notes += more
    if request.sites is not None and not any(sites):
        raise DataError(
            f"data.sites: {request.sites} given, which neither a table nor headers of {root.name} have"
        )
    if request.groups is not None:
        names = [request.groups] if isinstance(request.groups, str) else request.groups
        held = {_SITE: sites, _PERSON: persons}
        held |= {name: dicom.of_headers("groups", facts[name], paths) for name in names if name in facts}
        held |= {name: persons_of(name, paths, root.name) for name in names if PERSON in name}
        for number, name in enumerate(name for name in names if name in columns):
            held[name] = [place.persons[number] for place in told]
        if missing := next((name for name in names if not any(held.get(name, ()))), None):
            others = f"of {listed(columns, 30)}" if columns else f"{_SITE} and {_PERSON} of the folders"
            raise DataError(
                f"data.groups: {missing} given; allowed: a pattern of the path with {PERSON} in it, or {others}"
            )
        persons = [" / ".join(each) for each in zip(*(held[name] for name in names), strict=True)]
    elif any(persons) and request.layout is None:
        again = recurring(persons, sites) or _in_classes(persons, labels, layout)
        if again is not None:
            raise DataError(again)
    pictures = [
        Picture(root / path, label, site, person)
        for path, label, site, person in zip(paths, labels, sites, persons, strict=True)
    ]
    return pictures, notes, dicom.proposed(facts, {"groups": persons, "sites": sites}, notes)


def _in_classes(persons: Sequence[str], labels: Sequence[str], layout: Layout | None) -> str | None:
    """Message that asks about persons of one name in several classes; None: there are none such below classes."""
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


def recurring(persons: Iterable[Any], sites: Iterable[Any], name: str = _PERSON) -> str | None:
    """Message that asks about persons of one number at several sites; None: there are none such."""
    pairs = set(zip(persons, sites, strict=True))
    whole = len({person for person, _ in pairs})
    several = len(pairs) - whole
    if not several or len({site for _, site in pairs}) < 2:
        return None
    return (
        f"data.groups: {min(several, whole):,} of {whole:,} names in {name} recur at several sites; allowed: "
        f"[{_SITE}, {name}] for {len(pairs):,} persons, each of one site, or {name} for {whole:,} persons, some "
        "of them at several"
    )


def _with_frames(pictures: list[Picture], root: Path, request: DataRequest) -> list[Picture]:
    """Every picture of the files; without known persons, those of one file are one person's."""
    if request.frames != "each":
        return pictures
    by_path = {picture.path: picture for picture in pictures}
    places = places_in(list(by_path), root, Reading(None, request.bits, request.frames))
    return [
        replace(
            by_path[place.path],
            frame=place.frame,
            person=by_path[place.path].person or place.path.relative_to(root).as_posix(),
        )
        for place in places
    ]
