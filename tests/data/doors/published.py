"""More archives as they are published: the class in names of files or studies, tables of patients."""

from __future__ import annotations

from collections.abc import Callable

from archives import archive, images, named, rows, texts
from worlds import Record, World, write_table

Rows = Callable[[list[Record]], list[list[str]]]

archive(
    "dogs_vs_cats",
    lambda: named(("cat", "dog")),
    lambda r: f"train/{r.label}.{r.number}.png",
)
archive(
    "dogs_vs_cats_whole",
    lambda: named(("cat", "dog")),
    lambda r: f"train/{r.label}.{r.number}.png",
    beside=lambda w: images(w, *(f"test1/{n}.png" for n in range(1, 9))),
    incomplete="leave_out",
)
archive(
    "names_of_classes", lambda: named(("benign", "malignant", "normal")), lambda r: f"{r.label}_{r.number:03d}.png"
)
archive("names_in_brackets", lambda: named(("benign", "malignant")), lambda r: f"data/{r.label} ({r.number}).png")


def _pets(w: World) -> None:
    """A list of all images, with numbers of breed and species, and one of half of them."""
    breeds = sorted({r.label for r in w.records})
    rows = [f"{r.label}_{r.number} {breeds.index(r.label) + 1} {1 + r.label[0].islower()} 1" for r in w.records]
    (w.root / "annotations").mkdir(parents=True)
    head = "#Image CLASS-ID SPECIES BREED ID"
    (w.root / "annotations/list.txt").write_text("\n".join([head, *rows]) + "\n")
    (w.root / "annotations/trainval.txt").write_text("\n".join(rows[::2]) + "\n")


archive(
    "oxford_pets",
    lambda: named(("Abyssinian", "american_bulldog", "yorkshire_terrier")),
    lambda r: f"images/{r.label}_{r.number}.png",
    beside=lambda w: (
        _pets(w),
        images(w, *(f"annotations/trimaps/{r.label}_{r.number}.png" for r in w.records)),
    ),
    layout="{class}_#",
)
archive(
    "utkface",
    lambda: named(("0", "1")),
    lambda r: f"UTKFace/{20 + r.number}_{r.label}_{r.number % 5}_201701161745{r.number:05d}.png",
    layout="#_{class}_*",
)
archive(
    "mura_folders",
    lambda: named(("negative", "positive"), True),
    lambda r: (
        f"{r.part.replace('test', 'valid')}/XR_{('ELBOW', 'WRIST')[r.number % 2]}/patient{r.person}/"
        f"study{r.number % 2 + 1}_{r.label}/image{r.number}.png"
    ),
    "part",
    "person",
)


def _studies(part: str) -> Rows:
    """Paths of studies with their labels, of one part."""

    def made(records: list[Record]) -> list[list[str]]:
        folders = {f"MURA-v1.1/{r.path.rpartition('/')[0]}/": r.label for r in records if r.part == part}
        return [[folder, str(int(label == "positive"))] for folder, label in folders.items()]

    return made


archive(
    "mura",
    lambda: named(("negative", "positive"), True),
    lambda r: (
        f"{r.part.replace('test', 'valid')}/XR_{('ELBOW', 'WRIST')[r.number % 2]}/patient{r.person}/"
        f"study{r.number % 2 + 1}_{r.label}/image{r.number}.png"
    ),
    "part",
    "person",
    tables={
        "train_labeled_studies.csv": _studies("train"),
        "valid_labeled_studies.csv": _studies("test"),
        "train_image_paths.csv": lambda records: [[f"MURA-v1.1/{r.path}"] for r in records if r.part == "train"],
        "valid_image_paths.csv": lambda records: [[f"MURA-v1.1/{r.path}"] for r in records if r.part == "test"],
    },
)


def _persons(*columns: str) -> Rows:
    """One row a patient: number, age, and what is diagnosed."""

    def made(records: list[Record]) -> list[list[str]]:
        once = {r.person: r for r in records}
        return [list(columns), *([r.person, str(30 + int(r.person)), r.label] for r in once.values())]

    return made


archive(
    "table_of_patients",
    lambda: named(("healthy", "ill")),
    lambda r: f"{r.person}/scan_{r.number}.png",
    "person",
    tables={"patients.csv": _persons("patient_id", "age", "diagnosis")},
)
archive(
    "table_of_patients_in_numbers",
    lambda: named(("healthy", "ill")),
    lambda r: f"scans/patient_{r.person}/visit{r.number % 2}/{r.number}.png",
    "person",
    tables={
        "clinical.csv": lambda records: [
            ["subject", "age", "label"],
            *([str(int(p)), str(30 + int(p)), label] for p, label in {r.person: r.label for r in records}.items()),
        ]
    },
)
archive(
    "kermany_oct",
    lambda: named(("CNV", "DME", "DRUSEN", "NORMAL"), True),
    lambda r: f"OCT2017/{r.part}/{r.label}/{r.label}-{int(r.person) * 1601}-{r.number}.png",
    "part",
)
archive(
    "breakhis",
    lambda: named(("benign", "malignant")),
    lambda r: (
        f"BreaKHis_v1/histology_slides/breast/{r.label}/SOB/{r.label[0]}_kind{'ab'[int(r.person) // 2 % 2]}/"
        f"SOB_{r.label[0].upper()}_A_14-{int(r.person) * 911}/{(40, 100, 200)[r.number % 3]}X/SOB_{r.number}.png"
    ),
    "person",
    layout="class/*/*/person/*/image",
)
archive(
    "stanford_dogs",
    lambda: named(("n02085620-Chihuahua", "n02085782-Japanese_spaniel", "n02116738-African_hunting_dog")),
    lambda r: f"images/Images/{r.label}/{r.label.split('-')[0]}_{r.number * 7}.png",
    beside=texts("annotations/Annotation/n02085620-Chihuahua/n02085620_10074"),
)
archive(
    "cub_200",
    lambda: named(("001.Black_footed_Albatross", "002.Laysan_Albatross", "003.Sooty_Albatross")),
    lambda r: f"CUB_200_2011/images/{r.label}/{r.label[4:]}_{r.number:04d}_{r.number * 3}.png",
    beside=lambda w: (
        texts(
            *(f"CUB_200_2011/{n}.txt" for n in ("images", "image_class_labels", "train_test_split", "classes")),
            "CUB_200_2011/parts/part_locs.txt",
        )(w),
    ),
)
archive(
    "eurosat",
    lambda: named(("AnnualCrop", "Forest", "SeaLake")),
    lambda r: f"2750/{r.label}/{r.label}_{r.number}.png",
)


def _tiny(w: World) -> None:
    """Classes of the validation images in a list, with boxes; names of all classes; test images without any."""
    held = [r for r in w.records if r.part == "test"]
    rows = [f"{r.path.rpartition('/')[2]}\t{r.label}\t0\t{r.number}\t44\t62" for r in held]
    (w.root / "val/val_annotations.txt").write_text("\n".join(rows) + "\n")
    texts("wnids.txt", "words.txt")(w)
    images(w, *(f"test/images/test_{n}.png" for n in range(9)))


archive(
    "tiny_imagenet",
    lambda: named(("n01443537", "n01629819", "n02124075"), True),
    lambda r: (
        f"train/{r.label}/images/{r.label}_{r.number}.png"
        if r.part == "train"
        else f"val/images/val_{r.number}.png"
    ),
    "part",
    beside=_tiny,
    layout="split/class/*/image",
    incomplete="leave_out",
)
archive(
    "lfw",
    lambda: named(("Aaron_Eckhart", "Abba_Eban", "Zico")),
    lambda r: f"lfw/{r.label}/{r.label}_{r.number:04d}.png",
)
archive(
    "kermany_pneumonia",
    lambda: named(("NORMAL", "PNEUMONIA"), True),
    lambda r: f"chest_xray/{r.part}/{r.label}/person{r.person}_bacteria_{r.number}.png",
    "part",
    "person",
)


def _voc(w: World) -> None:
    """Lists of each class, and a table that a person makes of them."""
    lists = w.root / "VOCdevkit/VOC2012/ImageSets/Main"
    lists.mkdir(parents=True)
    for label in ("cat", "dog"):
        lines = (f"2007_{r.number:06d} {'1' if r.label == label else '-1'}\n" for r in w.records)
        (lists / f"{label}_train.txt").write_text("".join(lines))
    table = w.root.parent / "made" / "labels.csv"
    write_table(table, [["image", "label"], *([r.path, r.label] for r in w.records)])
    w.answers["labels"] = str(table)


archive(
    "voc",
    lambda: named(("cat", "dog")),
    lambda r: f"VOCdevkit/VOC2012/JPEGImages/2007_{r.number:06d}.png",
    beside=_voc,
)
archive(
    "asl_alphabet",
    lambda: named(("A", "B", "nothing")),
    lambda r: f"asl_alphabet_train/asl_alphabet_train/{r.label}/{r.label}{r.number}.png",
    beside=lambda w: images(
        w, *(f"asl_alphabet_test/asl_alphabet_test/{x}_test.png" for x in ("A", "B", "nothing"))
    ),
)
archive(
    "data_and_test",
    lambda: named(("cats", "dogs"), True),
    lambda r: f"dataset{'_test' if r.part == 'test' else ''}/{r.label}/{r.number}.png",
    "part",
)
archive(
    "chest_xray14_folders",
    lambda: named(("Effusion", "No Finding")),
    lambda r: f"images_{r.number % 3 + 1:03d}/images/{int(r.person):08d}_{r.number:03d}.png",
    "person",
    tables={
        "Data_Entry_2017.csv": rows(
            ("Image Index", lambda r: r.path.rpartition("/")[2]),
            ("Finding Labels", lambda r: r.label),
            ("Follow-up #", lambda r: str(r.number % 3)),
            ("Patient ID", lambda r: str(int(r.person))),
            ("Patient Age", lambda r: str(40 + int(r.person))),
            ("Patient Gender", lambda r: "MF"[int(r.person) % 2]),
            ("View Position", lambda r: ("PA", "AP")[r.number % 2]),
        ),
        "BBox_List_2017.csv": lambda records: [
            ["Image Index", "Finding Label", "Bbox [x"],
            *([r.path.rpartition("/")[2], r.label, str(r.number * 3.5)] for r in records if r.number % 6 == 0),
        ],
    },
    beside=texts("train_val_list.txt", "test_list.txt"),
)
