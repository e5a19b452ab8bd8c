"""CelebA (Liu et al. 2015): faces of known people with 40 attributes, as torchvision unpacks them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fedassay.data.listed_files import Listed, home, of_files, of_lists, rows_of, text_of
from fedassay.data.loading import DataRequest, allow_only
from fedassay.support.errors import DataError, PlanError
from fedassay.support.registry import register

_TEST = 2
"""Code of the test set in the list of partitions; 0 is the training set, 1 the validation set."""


@register("dataset", "celeba")
@of_files
def celeba(request: DataRequest) -> Listed:
    """CelebA (Liu et al. 2015): 182,637 + 19,962 faces of 10,177 people, 178x218 (`root` or `path`).

    `label_column` names the attribute that is the class, one of 40, such as `Smiling`; the classes are then
    `not Smiling` and `Smiling`. Training and validation set are one. Folder `celeba` with `img_align_celeba`,
    `list_attr_celeba.txt`, `list_eval_partition.txt` and, where it is there, `identity_CelebA.txt`: then the
    records of one person are a group.

    Raises:
        PlanError: No attribute is given, or one that is not there.
        DataError: A file is not there, or is broken.
    """
    allow_only(request, "root", "path", "label_column")
    root = home(request, ("celeba", "CelebA"), "CelebA, mmlab.ie.cuhk.edu.hk/projects/CelebA.html")
    attributes = root / "list_attr_celeba.txt"
    names, labels = _labels(attributes, request.label_column)
    parts = _column(root / "list_eval_partition.txt")
    people = root / "identity_CelebA.txt"
    whom = _column(people) if people.exists() else {}
    pictures = {
        file.path.name: file for file in of_lists(root / "img_align_celeba", labels.items(), attributes.name)
    }
    for what, column in (("partition", parts), *((("identity", whom),) if whom else ())):
        if missing := next((name for name in pictures if name not in column), ""):
            raise DataError(f"{root.name}: {missing} has no {what}; allowed: the data set as it is published")
    files = [replace(file, person=str(whom.get(name, ""))) for name, file in pictures.items()]
    train, test = ([file for file in files if (parts[file.path.name] == _TEST) == held] for held in (False, True))
    return Listed(root, train, test, names)


def _labels(path: Path, asked: object) -> tuple[tuple[str, str], dict[str, str]]:
    """Names of the two classes, and the class of each file, from a table of attributes that are 1 or -1."""
    lines = text_of(path).splitlines()
    known = lines[1].split() if len(lines) > 1 else []
    if not isinstance(asked, str) or asked not in known:
        given = "not given" if asked is None else f"{asked} given"
        raise PlanError(f"data.label_column: {given}; allowed: an attribute, of {', '.join(known[:60])}")
    place = known.index(asked) + 1
    names = {"-1": f"not {asked}", "1": asked}
    found = {}
    for where, row in rows_of(path, 3):
        if len(row) != len(known) + 1 or row[place] not in names:
            raise DataError(f"{where}; allowed: a file's name and {len(known)} times 1 or -1")
        found[row[0]] = names[row[place]]
    return (f"not {asked}", asked), found


def _column(path: Path) -> dict[str, int]:
    """A list of file names and whole numbers."""
    found = {}
    for where, row in rows_of(path):
        if len(row) != 2 or not row[1].isdecimal() or len(row[1]) > 9:
            raise DataError(f"{where}; allowed: a file's name and a number")
        found[row[0]] = int(row[1])
    return found
