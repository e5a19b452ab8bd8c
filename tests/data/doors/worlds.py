"""Data sets with known classes, persons, sites, parts and brightness, in layouts that people publish.

Each image holds the number of its record, so that what is loaded can be held against what was written, record by
record. A layout says what of the truth it tells, and what a person would answer where it leaves two readings.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

SIDE = 12


@dataclass(frozen=True)
class Record:
    """One image: its number, and what is true of it."""

    number: int
    label: str
    person: str
    site: str
    part: str
    path: str = ""

    @property
    def brightness(self) -> int:
        """Grey level of most pixels, which goes with the class."""
        return 40 + 50 * (sum(map(ord, self.label)) % 4) + self.number % 7


@dataclass
class World:
    """What is true, where it was written, what of it is told there, and answers to what may be asked.

    Attributes:
        root: What `--data` names.
        records: With the path of each.
        tells: Of person, site and part, what the layout tells.
        table: Rows of the table, the first with the names; empty where folders tell.
        table_at: Where it is to be written.
        columns: What the columns of the table are.
        answers: Keys of `data` with what a person who knows the data would give.
    """

    root: Path
    records: list[Record]
    tells: frozenset[str] = frozenset()
    table: list[list[str]] = field(default_factory=list)
    table_at: Path = Path("labels.csv")
    columns: dict[str, str] = field(default_factory=dict)
    answers: dict[str, Any] = field(default_factory=dict)
    after: list[Callable[[World], None]] = field(default_factory=list)

    def file(self, record: Record) -> Path:
        """Where the image of a record lies."""
        return self.root / record.path

    def write(self) -> None:
        """Write images and the table."""
        for record in self.records:
            write_image(self.file(record), record)
        if self.table:
            write_table(self.table_at, self.table)
        for act in self.after:
            act(self)


def write_image(path: Path, record: Record) -> None:
    pixels = np.full((SIDE, SIDE), record.brightness, np.uint8)
    pixels[0, :2] = divmod(record.number, 256)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, format="PNG")


def write_table(path: Path, rows: Iterable[Iterable[str]], delimiter: str = ",", encoding: str = "utf-8") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding=encoding) as stream:
        csv.writer(stream, delimiter=delimiter, lineterminator="\n").writerows(rows)


_CLASSES = (
    ("benign", "malignant"),
    ("NORMAL", "PNEUMONIA"),
    ("healthy", "ill"),
    ("glioma", "meningioma", "notumor"),
    ("0", "1"),
    ("cats", "dogs"),
)


def truth(rng: np.random.Generator, parts: bool = False) -> list[Record]:
    """Persons of two or three sites with one class and several images each."""
    classes = _CLASSES[int(rng.integers(len(_CLASSES)))]
    sites = [f"{('site', 'hospital_', 'center')[int(rng.integers(3))]}{n}" for n in range(int(rng.integers(2, 4)))]
    sites = [f"{sites[0][:-1]}{n}" for n in range(len(sites))]
    persons = int(rng.integers(12, 18))
    out: list[Record] = []
    for person in range(persons):
        for _ in range(int(rng.integers(2, 5))):
            out.append(
                Record(
                    len(out),
                    classes[person % len(classes)],
                    f"{person + 1:03d}",
                    sites[(person // len(classes)) % len(sites)],
                    "test" if parts and person % 4 == 3 - person // 4 % 2 else "train",
                )
            )
    return out


def _placed(records: list[Record], place: Callable[[Record], str]) -> list[Record]:
    return [replace(record, path=place(record)) for record in records]


Layout = Callable[[np.random.Generator, Path], World]
LAYOUTS: dict[str, Layout] = {}


def layout(make: Layout) -> Layout:
    LAYOUTS[make.__name__] = make
    return make


def _folders(name: str, place: Callable[[Record], str], *tells: str, **answers: Any) -> None:
    def make(rng: np.random.Generator, base: Path) -> World:
        records = truth(rng, "part" in tells)
        return World(base / name, _placed(records, place), frozenset(tells), answers=answers)

    LAYOUTS[name] = make


_folders("class_image", lambda r: f"{r.label}/img_{r.number:04d}.png")
_folders("class_person_image", lambda r: f"{r.label}/P{r.person}/{r.number}.png", "person")
_folders("class_patient_study_image", lambda r: f"{r.label}/patient{r.person}/study1/v{r.number}.png", "person")
_folders("site_class_image", lambda r: f"{r.site}/{r.label}/{r.number}.png", "site")
_folders("class_site_image", lambda r: f"{r.label}/{r.site}/{r.number}.png", "site")
_folders(
    "site_class_person_image", lambda r: f"{r.site}/{r.label}/pat_{r.person}/{r.number}.png", "site", "person"
)
_folders("train_test", lambda r: f"{r.part}/{r.label}/{r.number}.png", "part")
_folders("training_testing", lambda r: f"{r.part.title()}ing/{r.label}/Te_{r.number}.png", "part")
_folders("upper_split", lambda r: f"{r.part.upper()}/{r.label}/{r.number}.png", "part")
_folders("archive_dataset", lambda r: f"archive/dataset/{r.part}/{r.label}/{r.number}.png", "part")
_folders("seg_train", lambda r: f"seg_{r.part}/seg_{r.part}/{r.label}/{r.number}.png", "part")
_folders("site_split_class", lambda r: f"{r.site}/{r.part}/{r.label}/{r.number}.png", "site", "part")
_folders("split_site_class", lambda r: f"{r.part}/{r.site}/{r.label}/{r.number}.png", "site", "part")
_folders("class_split", lambda r: f"{r.label}/{r.part}/{r.number}.png", "part")
_folders("split_class_person", lambda r: f"{r.part}/{r.label}/subject-{r.person}/{r.number}.png", "part", "person")
_folders("class_magnification", lambda r: f"{r.label}/{(40, 100, 200)[r.number % 3]}X/{r.number}.png")
_folders("class_visit", lambda r: f"{r.label}/visit{r.number % 3}/{r.number}.png")
_folders("class_images", lambda r: f"{r.label}/images/{r.number}.png")
_folders("parts_of_a_download", lambda r: f"images_{r.number % 3 + 1:03d}/{r.label}/{r.number}.png")
_folders("person_class", lambda r: f"{int(r.person) * 37 + 10250}/{r.label}/x{r.number}.png", "person")


@layout
def train_val_test(rng: np.random.Generator, base: Path) -> World:
    records = truth(rng, parts=True)

    def place(r: Record) -> str:
        part = "val" if r.part == "train" and int(r.person) % 5 == 0 else r.part
        return f"{part}/{r.label}/{r.number}.png"

    return World(base / "train_val_test", _placed(records, place), frozenset({"part"}))


@layout
def covid_masks(rng: np.random.Generator, base: Path) -> World:
    made = LAYOUTS["class_images"](rng, base)
    made.after.append(
        lambda w: [
            write_image(w.root / r.path.replace("/images/", "/masks/"), replace(r, number=9999)) for r in w.records
        ]  # type: ignore[func-returns-value]
    )
    return made


@layout
def busi_masks(rng: np.random.Generator, base: Path) -> World:
    records = _placed(truth(rng), lambda r: f"{r.label}/{r.label} ({r.number}).png")
    made = World(base / "busi", records)
    made.after.append(
        lambda w: [
            write_image(w.root / r.path.replace(").png", ")_mask.png"), replace(r, number=9999)) for r in w.records
        ]  # type: ignore[func-returns-value]
    )
    return made


_FILE_COLUMNS = ("image", "file_name", "id_code", "image_id", "image_name", "path")


def _tabled(
    name: str,
    place: Callable[[Record], str],
    columns: dict[str, Callable[[Record], str]],
    *tells: str,
    at: str = "labels.csv",
    **answers: Any,
) -> None:
    """A layout with a table; names of columns to what they hold of a record, the first naming its file."""

    def make(rng: np.random.Generator, base: Path) -> World:
        records = _placed(truth(rng, "part" in tells), place)
        rng.shuffle(records)  # type: ignore[arg-type]
        rows = [list(columns), *([cell(r) for cell in columns.values()] for r in records)]
        kinds = {"file": next(name for name in columns if name in _FILE_COLUMNS)}
        for column in columns:
            known = {
                "patient": "person",
                "patient_id": "person",
                "lesion_id": "person",
                "site": "site",
                "hospital": "site",
                "split": "part",
            }
            kinds |= {known[column]: column} if column in known else {}
            kinds |= {"label": column} if column in {"label", "dx", "diagnosis", "target", "finding"} else {}
        root = base / name
        return World(root, records, frozenset(tells), rows, root / at, kinds, answers)

    LAYOUTS[name] = make


_label = ("label", lambda r: r.label)
_patient = ("patient", lambda r: r.person)
_site = ("site", lambda r: r.site)
_path = ("image", lambda r: r.path)
_age = ("age", lambda r: str(20 + 7 * int(r.person) % 60))

_tabled("flat_csv", lambda r: f"images/{r.number:05d}a.png", dict([_path, _label]))
_tabled("flat_csv_patient", lambda r: f"images/x{r.number:05d}.png", dict([_path, _label, _patient]), "person")
_tabled(
    "csv_of_names",
    lambda r: f"pics/scan_{r.number}.png",
    {"file_name": lambda r: f"scan_{r.number}.png", **dict([_label])},
)
_tabled(
    "csv_of_stems",
    lambda r: f"train_images/{r.number:04x}q.png",
    {"id_code": lambda r: f"{r.number:04x}q", "diagnosis": lambda r: r.label},
    at="train.csv",
)
_tabled(
    "site_patient_csv",
    lambda r: f"{r.site}/pat{r.person}/k{r.number}.png",
    dict([_path, _label, _patient]),
    "person",
    "site",
)
_tabled(
    "csv_site_column", lambda r: f"all/{r.number}z.png", dict([_path, _site, _patient, _label]), "person", "site"
)
_tabled(
    "csv_hospital_age",
    lambda r: f"{r.number}z.png",
    dict([_path, ("hospital", lambda r: r.site), _age, _label]),
    "site",
)
_tabled(
    "csv_split_column",
    lambda r: f"all/{r.number}z.png",
    dict([_path, _label, ("split", lambda r: r.part)]),
    "part",
)
_tabled("csv_beside", lambda r: f"{r.number}z.png", dict([_path, _label]), at="../labels.csv")
_tabled(
    "ham10000",
    lambda r: f"HAM10000_images_part_{r.number % 2 + 1}/ISIC_{r.number:07d}.png",
    {
        "lesion_id": lambda r: f"HAM_{r.person}",
        "image_id": lambda r: f"ISIC_{r.number:07d}",
        "dx": lambda r: r.label,
        "dx_type": lambda r: "histo",
        "age": lambda r: "45.0",
        "sex": lambda r: "male",
    },
    "person",
    at="HAM10000_metadata.csv",
)
_tabled(
    "isic2020",
    lambda r: f"train/ISIC_{r.number:07d}.png",
    {
        "image_name": lambda r: f"ISIC_{r.number:07d}",
        "patient_id": lambda r: f"IP_{r.person}",
        "sex": lambda r: "male",
        "age_approx": lambda r: "45",
        "target": lambda r: r.label,
    },
    "person",
    at="train.csv",
)
_tabled(
    "patients_with_finding",
    lambda r: f"PAT{r.person}/{r.number}.png",
    {"path": lambda r: r.path, "patient_id": lambda r: f"PAT{r.person}", "finding": lambda r: r.label},
    "person",
)
_tabled(
    "csv_of_several_labels",
    lambda r: f"{r.number}z.png",
    dict([_path, ("colour", lambda r: "rgb"[r.number % 3]), ("kind", lambda r: r.label)]),
    label_column="kind",
)


@layout
def same_numbers_at_sites(rng: np.random.Generator, base: Path) -> World:
    records = _placed(truth(rng), lambda r: f"{r.site}/{r.number}z.png")
    short = {person: n for n, person in enumerate(sorted({(r.site, r.person) for r in records}))}
    firsts = {site: min(n for (s, _), n in short.items() if s == site) for site in {r.site for r in records}}
    rows = [["image", "label", "patient"]]
    rows += [[r.path, r.label, str(short[r.site, r.person] - firsts[r.site])] for r in records]
    root = base / "same_numbers"
    columns = {"file": "image", "label": "label"}
    answers = {"groups": ["site", "patient"]}
    return World(root, records, frozenset({"site", "person"}), rows, root / "labels.csv", columns, answers)


@layout
def one_hot(rng: np.random.Generator, base: Path) -> World:
    records = _placed(truth(rng), lambda r: f"ISIC_2019_Training_Input/ISIC_{r.number:07d}.png")
    names = sorted({r.label for r in records})
    names += [f"other{n}" for n in range(3)]
    rows = [["image", *names]]
    rows += [[f"ISIC_{r.number:07d}", *("1.0" if n == r.label else "0.0" for n in names)] for r in records]
    root = base / "one_hot"
    return World(root, records, frozenset(), rows, root / "GroundTruth.csv", {"file": "image"})


@layout
def nih_joined(rng: np.random.Generator, base: Path) -> World:
    records = _placed(truth(rng), lambda r: f"images_{r.number % 3 + 1:03d}/images/{r.number:08d}_000.png")
    names = sorted({r.label for r in records})
    has = ["No Finding", "Effusion", "Effusion|Mass", "Mass", "Edema"]
    rows = [["Image Index", "Finding Labels", "Patient ID"]]
    rows += [
        [Path(r.path).name, has[names.index(r.label) if r.number > 4 else r.number], r.person] for r in records
    ]
    records = [
        replace(r, label="Effusion" if "Effusion" in row[1] else "no Effusion")
        for r, row in zip(records, rows[1:], strict=True)
    ]
    root = base / "nih"
    columns = {"file": "Image Index", "person": "Patient ID"}
    return World(
        root, records, frozenset({"person"}), rows, root / "Data_Entry.csv", columns, {"label": "Effusion"}
    )


@layout
def chexpert(rng: np.random.Generator, base: Path) -> World:
    records = _placed(truth(rng), lambda r: f"train/patient{r.person}/study1/view{r.number}.png")
    names = sorted({r.label for r in records})
    rows = [["Path", "Sex", "Edema", "Pleural Effusion", "Fracture"]]
    for r in records:
        value = ("1.0", "0.0")[names.index(r.label) % 2] if r.number % 5 else ("", "-1.0")[r.number % 2]
        rows.append([f"CheXpert-v1.0-small/{r.path}", "Male", "10"[r.number % 2], value, ""])
    kept = [
        replace(r, label="Pleural Effusion" if row[3] == "1.0" else "no Pleural Effusion")
        for r, row in zip(records, rows[1:], strict=True)
        if row[3] in {"1.0", "0.0"}
    ]
    root = base / "chexpert"
    made = World(
        root,
        kept,
        frozenset({"person"}),
        rows,
        root / "train.csv",
        {"file": "Path"},
        {"label": "Pleural Effusion", "uncertain": "drop"},
    )
    others = [r for r in records if r.number not in {k.number for k in kept}]
    made.after.append(lambda w: [write_image(w.root / r.path, r) for r in others])  # type: ignore[func-returns-value]
    return made


@layout
def camelyon(rng: np.random.Generator, base: Path) -> World:
    records = _placed(
        truth(rng),
        lambda r: (
            f"patches/patient_{r.person}/patch_patient_{r.person}_node_{r.number % 2}_x_{1000 + r.number}_y_7.png"
        ),
    )
    rows = [["", "patient", "node", "x_coord", "y_coord", "tumor"]]
    rows += [
        [str(n), r.person, str(r.number % 2), str(1000 + r.number), "7", r.label] for n, r in enumerate(records)
    ]
    root = base / "camelyon17"
    return World(
        root, records, frozenset({"person"}), rows, root / "metadata.csv", {"label": "tumor", "person": "patient"}
    )


@layout
def hf_csv(rng: np.random.Generator, base: Path) -> World:
    records = _placed(truth(rng, parts=True), lambda r: f"{r.part}/{r.number:04d}.png")
    made = World(base / "hf_csv", records, frozenset({"part"}))

    def act(w: World) -> None:
        for part in ("train", "test"):
            rows = [[r.path.split("/")[1], r.label] for r in w.records if r.part == part]
            write_table(w.root / part / "metadata.csv", [["file_name", "label"], *rows])

    made.after.append(act)
    return made


@layout
def hf_jsonl(rng: np.random.Generator, base: Path) -> World:
    records = _placed(truth(rng, parts=True), lambda r: f"{r.part}/{r.number:04d}.png")
    made = World(base / "hf_jsonl", records, frozenset({"part"}))

    def act(w: World) -> None:
        for part in ("train", "test"):
            rows = [{"file_name": r.path.split("/")[1], "label": r.label} for r in w.records if r.part == part]
            (w.root / part / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    made.after.append(act)
    return made


@layout
def a_table_a_site(rng: np.random.Generator, base: Path) -> World:
    records = _placed(truth(rng), lambda r: f"{r.site}/scans/{r.number}z.png")
    made = World(base / "a_table_a_site", records, frozenset({"site", "person"}), answers={"groups": "patient"})

    def act(w: World) -> None:
        for site in sorted({r.site for r in w.records}):
            rows = [[f"scans/{r.number}z.png", r.label, r.person] for r in w.records if r.site == site]
            write_table(w.root / site / "labels.csv", [["image", "label", "patient"], *rows])

    made.after.append(act)
    return made


@layout
def classes_with_a_table_of_persons(rng: np.random.Generator, base: Path) -> World:
    records = _placed(truth(rng), lambda r: f"{r.label}/{r.number}z.png")
    rows = [["image", "patient", "sex"], *([r.path, r.person, "m"] for r in records)]
    root = base / "classes_and_persons"
    return World(
        root,
        records,
        frozenset({"person"}),
        rows,
        root / "patients.csv",
        {"file": "image", "person": "patient"},
        {"layout": "class/image", "labels": "patients.csv", "groups": "patient"},
    )


@layout
def digits(rng: np.random.Generator, base: Path) -> World:
    records = [replace(r, label=str(r.number % 5)) for r in truth(rng, parts=True)]
    return World(
        base / "digits", _placed(records, lambda r: f"{r.part}ing/{r.label}/{r.number}.png"), frozenset({"part"})
    )
