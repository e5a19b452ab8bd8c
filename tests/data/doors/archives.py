"""Archives as they are published: the folders, the tables and the files beside them that people download."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian
from worlds import LAYOUTS, Record, World, write_image, write_table

Place = Callable[[Record], str]


def named(names: Iterable[str], parts: bool = False, sites: tuple[str, ...] = ("a", "b")) -> list[Record]:
    """Twelve persons with three images each; one class a person."""
    classes = list(names)
    return [
        Record(3 * person + n, classes[person % len(classes)], f"{person + 1:03d}", sites[person // 6], part)
        for person in range(12)
        for part in ("test" if parts and person // len(classes) % 3 == 1 else "train",)
        for n in range(3)
    ]


def archive(
    name: str,
    records: Callable[[], list[Record]],
    place: Place,
    *tells: str,
    tables: dict[str, Callable[[list[Record]], list[list[str]]]] | None = None,
    beside: Callable[[World], object] = lambda w: None,
    **answers: Any,
) -> None:
    """An archive: where each image lies, and what lies beside the images."""

    def make(rng: np.random.Generator, base: Path) -> World:
        held = [replace(r, path=place(r)) for r in records()]
        made = World(base / name, held, frozenset(tells), answers=answers)

        def act(w: World) -> None:
            for path, rows in (tables or {}).items():
                write_table(w.root / path, rows(w.records))
            beside(w)

        made.after.append(act)
        return made

    LAYOUTS[name] = make


def rows(*columns: tuple[str, Place], only: str = "") -> Callable[[list[Record]], list[list[str]]]:
    """Rows of a table, for the records of one part or for all."""
    return lambda records: [
        [name for name, _ in columns],
        *([str(cell(r)) for _, cell in columns] for r in records if not only or r.part == only),
    ]


def texts(*paths: str) -> Callable[[World], None]:
    def act(w: World) -> None:
        for path in paths:
            (w.root / path).parent.mkdir(parents=True, exist_ok=True)
            (w.root / path).write_text("one 1\ntwo 2\n", encoding="utf-8")

    return act


def images(w: World, *paths: str) -> None:
    for path in paths:
        write_image(w.root / path, Record(9999, "x", "", "", ""))


def _unlabelled(folder: str, table: str, header: str, value: str = "", stem: str = "u") -> Callable[[World], None]:
    """Ten images of a competition's test set, and its form for answers, or its list."""

    def act(w: World) -> None:
        names = [f"{stem}{n:04x}" for n in range(10)]
        images(w, *(f"{folder}/{name}.png" for name in names))
        rows = [[name, *([value] if value else [])] for name in names]
        write_table(w.root / table, [header.split(","), *rows])

    return act


_GRADES = ("0", "1", "2")


def _id(r: Record) -> str:
    return f"{r.number * 7919 + 104729:08x}f"


archive(
    "pcam",
    lambda: named(("0", "1")),
    lambda r: f"train/{_id(r)}.png",
    tables={"train_labels.csv": rows(("id", _id), ("label", lambda r: r.label))},
    beside=_unlabelled("test", "sample_submission.csv", "id,label", "0"),
)
archive(
    "aptos",
    lambda: named(_GRADES),
    lambda r: f"train_images/{_id(r)}.png",
    tables={"train.csv": rows(("id_code", _id), ("diagnosis", lambda r: r.label))},
    beside=_unlabelled("test_images", "test.csv", "id_code"),
)
archive(
    "cassava",
    lambda: named(_GRADES),
    lambda r: f"train_images/{r.number * 7 + 1000015157}.png",
    tables={
        "train.csv": rows(("image_id", lambda r: f"{r.number * 7 + 1000015157}.png"), ("label", lambda r: r.label))
    },
    beside=lambda w: (
        images(w, "test_images/2216849948.png"),
        write_table(w.root / "sample_submission.csv", [["image_id", "label"], ["2216849948.png", "4"]]),
    ),
)
archive(
    "plant_pathology",
    lambda: named(("healthy", "rust", "scab")),
    lambda r: f"images/Train_{r.number}.png",
    tables={
        "train.csv": rows(
            ("image_id", lambda r: f"Train_{r.number}"),
            *(
                (name, lambda r, name=name: str(int(r.label == name)))
                for name in ("healthy", "multiple_diseases", "rust", "scab")
            ),
        )
    },
    beside=_unlabelled("images", "test.csv", "image_id", stem="Test_"),
)
archive(
    "eyepacs",
    lambda: named(_GRADES),
    lambda r: f"train/{int(r.person) * 13}{r.number % 3}_left.png",
    tables={
        "trainLabels.csv": rows(
            ("image", lambda r: f"{int(r.person) * 13}{r.number % 3}_left"), ("level", lambda r: r.label)
        )
    },
)
archive(
    "padufes",
    lambda: named(("NEV", "BCC", "ACK")),
    lambda r: f"imgs_part_{r.number % 3 + 1}/PAT_{r.person}_{r.number}_{r.number * 3}.png",
    "person",
    tables={
        "metadata.csv": rows(
            ("patient_id", lambda r: f"PAT_{r.person}"),
            ("lesion_id", lambda r: str(r.number)),
            ("smoke", lambda r: str(r.number % 2 == 0)),
            ("age", lambda r: str(20 + int(r.person))),
            ("diagnostic", lambda r: r.label),
            ("img_id", lambda r: f"PAT_{r.person}_{r.number}_{r.number * 3}.png"),
        )
    },
)
archive(
    "food101",
    lambda: named(("apple_pie", "ramen", "sushi")),
    lambda r: f"food-101/images/{r.label}/{r.number * 37 + 1005649}.png",
    beside=texts(*(f"food-101/meta/{name}" for name in ("classes.txt", "train.txt", "train.json", "test.json"))),
)
archive(
    "dtd",
    lambda: named(("banded", "dotted", "woven")),
    lambda r: f"dtd/images/{r.label}/{r.label}_{r.number:04d}.png",
    beside=texts("dtd/labels/train1.txt", "dtd/imdb/imdb.mat"),
)
archive(
    "caltech101",
    lambda: named(("accordion", "BACKGROUND_Google", "wrench")),
    lambda r: f"101_ObjectCategories/{r.label}/image_{r.number:04d}.png",
)
archive(
    "office31",
    lambda: named(("back_pack", "bike", "mug"), sites=("amazon", "dslr")),
    lambda r: f"{r.site}/images/{r.label}/frame_{r.number:04d}.png",
    "site",
)
archive(
    "domainnet",
    lambda: named(("airplane", "zebra"), sites=("clipart", "sketch")),
    lambda r: f"{r.site}/{r.label}/{r.site}_{r.number:03d}_000{r.number}.png",
    "site",
    beside=texts("clipart_train.txt", "sketch_train.txt"),
)
archive(
    "pacs",
    lambda: named(("dog", "guitar", "person"), sites=("art_painting", "cartoon")),
    lambda r: f"kfold/{r.site}/{r.label}/pic_{r.number:03d}.png",
    "site",
)
archive(
    "stanford_cars",
    lambda: named(("Acura Integra Type R 2001", "BMW M3 Coupe 2012", "smart fortwo Convertible 2012"), True),
    lambda r: f"car_data/car_data/{r.part}/{r.label}/{r.number:05d}.png",
    "part",
    beside=lambda w: [
        write_table(
            w.root / f"anno_{part}.csv",
            [
                [f"{r.number:05d}.png", *(f"{39 + side * r.number}" for side in range(4)), str(r.number % 25)]
                for r in w.records
                if r.part == part
            ],
        )
        for part in ("train", "test")
    ],
)
archive(
    "fairface",
    lambda: named(("Black", "East Asian", "Indian"), True),
    lambda r: f"{r.part.replace('test', 'val')}/{r.number}.png",
    "part",
    tables={
        f"fairface_label_{name}.csv": rows(
            ("file", lambda r: r.path),
            ("age", lambda r: ("0-2", "3-9", "10-19")[r.number % 3]),
            ("gender", lambda r: ("Male", "Female")[r.number % 2]),
            ("race", lambda r: r.label),
            ("service_test", lambda r: str(r.number % 2 == 0)),
            only=part,
        )
        for name, part in (("train", "train"), ("val", "test"))
    },
    label_column="race",
)
archive(
    "celeba",
    lambda: named(("Smiling", "no Smiling")),
    lambda r: f"img_align_celeba/img_align_celeba/{r.number + 1:06d}.png",
    tables={
        "list_attr_celeba.csv": rows(
            ("image_id", lambda r: f"{r.number + 1:06d}.png"),
            ("Bald", lambda r: ("1", "-1")[r.number % 2]),
            ("Male", lambda r: ("1", "-1")[r.number // 2 % 2]),
            ("Smiling", lambda r: "1" if r.label == "Smiling" else "-1"),
        ),
        "list_bbox_celeba.csv": rows(
            ("image_id", lambda r: f"{r.number + 1:06d}.png"),
            ("x_1", lambda r: str(95 + r.number)),
            ("y_1", lambda r: str(71 + r.number)),
        ),
    },
    label="Smiling",
)
archive(
    "rsna",
    lambda: named(("0", "1")),
    lambda r: f"stage_2_train_images/{_id(r)}.png",
    tables={
        "stage_2_train_labels.csv": lambda records: [
            ["patientId", "x", "y", "width", "height", "Target"],
            *(
                [_id(r), *(["10", "2", "5", str(box)] if r.label == "1" else ["", "", "", ""]), r.label]
                for r in records
                for box in range(1 + int(r.label == "1" and r.number % 2))
            ),
        ],
    },
    beside=_unlabelled(
        "stage_2_test_images", "stage_2_sample_submission.csv", "patientId,PredictionString", "0.5 0 0 100 100"
    ),
)
archive(
    "lc25000",
    lambda: named(("colon_aca", "colon_n", "lung_aca", "lung_n")),
    lambda r: f"lung_colon_image_set/{r.label.split('_')[0]}_image_sets/{r.label}/{r.number}.png",
    layout="*/*/class/image",
)
archive(
    "crc100k",
    lambda: named(("ADI", "BACK", "TUM"), sites=("NCT-CRC-HE-100K", "CRC-VAL-HE-7K")),
    lambda r: f"{r.site}/{r.label}/{r.label}-{r.number:04d}.png",
    "site",
    layout="site/class/image",
)
archive(
    "br35h",
    lambda: named(("no", "yes")),
    lambda r: f"{r.label}/{r.label[0]}{r.number}.png",
    beside=lambda w: images(w, *(f"pred/pred{n}.png" for n in range(5))),
    classes=["no", "yes"],
    layout="class/image",
)
archive(
    "ham10000_whole",
    lambda: named(("nv", "mel", "bkl")),
    lambda r: f"HAM10000_images_part_{r.number % 2 + 1}/ISIC_{r.number + 24306:07d}.png",
    "person",
    tables={
        "HAM10000_metadata.csv": rows(
            ("lesion_id", lambda r: f"HAM_{r.person}"),
            ("image_id", lambda r: f"ISIC_{r.number + 24306:07d}"),
            ("dx", lambda r: r.label),
            ("dx_type", lambda r: ("histo", "consensus")[r.number % 2]),
            ("age", lambda r: "45.0"),
        ),
        "hmnist_8_8_L.csv": rows(
            *((f"pixel{n:04d}", lambda r, n=n: str((n * r.number) % 256)) for n in range(64)),
            ("label", lambda r: str(len(r.label))),
        ),
    },
)
archive(
    "idrid",
    lambda: named(_GRADES, True),
    lambda r: (
        f"1. Original Images/{'a. Training' if r.part == 'train' else 'b. Testing'} Set/IDRiD_{r.number}.png"
    ),
    "part",
    tables={
        f"2. Groundtruths/{letter}. IDRiD_Disease Grading_{word} Labels.csv": rows(
            ("Image name", lambda r: f"IDRiD_{r.number}"),
            ("Retinopathy grade", lambda r: r.label),
            ("Risk of macular edema ", lambda r: str(r.number % 3)),
            ("", lambda r: ""),
            only=part,
        )
        for letter, word, part in (("a", "Training", "train"), ("b", "Testing", "test"))
    },
    label_column="Retinopathy grade",
)
archive(
    "adni",
    lambda: named(("AD", "CN", "MCI")),
    lambda r: f"{r.label}/{r.person}_S_{int(r.person) + 4000}/MPRAGE/2006-0{r.number % 3 + 1}-01/x{r.number}.png",
    "person",
)
archive(
    "oasis",
    lambda: named(("Mild Dementia", "Non Demented", "Very mild Dementia")),
    lambda r: f"Data/{r.label}/OAS1_{r.person}_MR1_mpr-1_{r.number}.png",
)
archive(
    "kvasir",
    lambda: named(("dyed-lifted-polyps", "normal-cecum", "ulcerative-colitis")),
    lambda r: f"kvasir-dataset-v2/{r.label}/{_id(r)}.png",
)
archive(
    "uc_merced",
    lambda: named(("agricultural", "beach", "tenniscourt")),
    lambda r: f"UCMerced_LandUse/Images/{r.label}/{r.label}{r.number:02d}.png",
    beside=texts("UCMerced_LandUse/readme.txt"),
)
archive(
    "skin_isic",
    lambda: named(("actinic keratosis", "melanoma", "nevus"), True),
    lambda r: f"Skin cancer ISIC The Collaboration/{r.part.title()}/{r.label}/ISIC_{r.number + 25780:07d}.png",
    "part",
)
archive(
    "imagenette",
    lambda: named(("n01440764", "n02102040", "n03888257"), True),
    lambda r: f"imagenette2/{r.part.replace('test', 'val')}/{r.label}/ILSVRC2012_{r.number:08d}.png",
    "part",
    tables={
        "imagenette2/noisy_imagenette.csv": rows(
            ("path", lambda r: r.path.removeprefix("imagenette2/")),
            ("noisy_labels_0", lambda r: r.label),
            ("noisy_labels_25", lambda r: ("n01440764", "n02102040")[r.number % 2]),
            ("is_valid", lambda r: str(r.part == "test")),
        )
    },
    layout="*/split/class/image",
)
archive(
    "covid_ct",
    lambda: named(("COVID", "non-COVID")),
    lambda r: f"{r.label}/{r.label.title()} ({r.number}).png",
)
archive(
    "gtsrb",
    lambda: named(_GRADES, True),
    lambda r: (
        f"{r.part.title()}/" + (f"{r.label}/" if r.part == "train" else "") + f"0000{r.label}_{r.number:05d}.png"
    ),
    "part",
    tables={
        f"{part.title()}.csv": rows(
            ("Width", lambda r: "29"),
            ("Height", lambda r: "30"),
            ("Roi.X1", lambda r: str(5 + r.number % 2)),
            ("ClassId", lambda r: r.label),
            ("Path", lambda r: r.path),
            only=part,
        )
        for part in ("train", "test")
    },
    beside=lambda w: (
        images(w, *(f"Meta/{label}.png" for label in _GRADES)),
        write_table(
            w.root / "Meta.csv",
            [["Path", "ClassId", "ShapeId", "ColorId"], *([f"Meta/{n}.png", n, "1", "0"] for n in _GRADES)],
        ),
    ),
    incomplete="leave_out",
)
archive(
    "mvtec",
    lambda: named(("broken", "good", "scratch"), True),
    lambda r: f"bottle/{r.part}/{r.label}/{r.number:03d}.png",
    "part",
    beside=lambda w: [
        images(w, f"bottle/ground_truth/{r.label}/{r.number:03d}_mask.png")
        for r in w.records
        if r.part == "test" and r.label != "good"
    ],
)
archive(
    "isic2019",
    lambda: named(("BCC", "MEL", "NV")),
    lambda r: f"ISIC_2019_Training_Input/ISIC_{r.number:07d}.png",
    tables={
        "ISIC_2019_Training_GroundTruth.csv": rows(
            ("image", lambda r: f"ISIC_{r.number:07d}"),
            *((name, lambda r, name=name: f"{float(r.label == name)}") for name in ("MEL", "NV", "BCC", "UNK")),
        ),
        "ISIC_2019_Training_Metadata.csv": rows(
            ("image", lambda r: f"ISIC_{r.number:07d}"),
            ("age_approx", lambda r: "55.0"),
            ("anatom_site_general", lambda r: ("anterior torso", "head/neck")[r.number % 2]),
            ("lesion_id", lambda r: f"BCN_{r.person}"),
            ("sex", lambda r: ("female", "male")[r.number % 2]),
        ),
    },
)


def _as_dicom(w: World) -> None:
    """The same pictures as DICOM files, of which each says person and site in its header."""
    for r in w.records:
        meta = FileMetaDataset()
        meta.MediaStorageSOPClassUID = "1.2.840.10008.5.1.4.1.1.7"
        meta.MediaStorageSOPInstanceUID = f"1.2.3.{r.number}"
        meta.TransferSyntaxUID = ExplicitVRLittleEndian
        held = FileDataset("", {}, file_meta=meta, preamble=b"\0" * 128)
        values = np.asarray(Image.open(w.file(r)))
        held.Rows, held.Columns = values.shape
        held.SamplesPerPixel, held.PhotometricInterpretation, held.PixelRepresentation = 1, "MONOCHROME2", 0
        held.BitsAllocated, held.BitsStored, held.HighBit = 8, 8, 7
        held.PatientID, held.InstitutionName = f"P{r.person}", f"Hospital {r.site}"
        held.PixelData = values.tobytes()
        held.save_as(w.file(r), enforce_file_format=True)


archive(
    "dicom_export",
    lambda: named(("benign", "malignant")),
    lambda r: f"{r.label}/{r.number:04d}.dcm",
    "person",
    "site",
    beside=_as_dicom,
)
archive(
    "dicom_with_a_table",
    lambda: named(("0", "1")),
    lambda r: f"scans/IM{r.number:04d}.dcm",
    "person",
    "site",
    tables={"labels.csv": rows(("image", lambda r: f"IM{r.number:04d}"), ("label", lambda r: r.label))},
    beside=_as_dicom,
)
