"""Small folders of random images in the layouts in which data sets are published."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.io import savemat

_RNG = np.random.default_rng(0)


def pictures(root: Path, names: Iterable[str], side: int = 9) -> None:
    """Random colour images of these names below a folder."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(_RNG.integers(0, 256, (side, side, 3), np.uint8)).save(root / name)


def write(path: Path, text: str) -> None:
    """A text, in folders that are made for it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def pacs(root: Path, each: int = 2) -> None:
    """`each` images of two classes in every domain, and a file that is no image."""
    for domain in ("art_painting", "cartoon", "photo", "sketch"):
        names = (f"{domain}/{label}/pic_{n}.jpg" for label in ("dog", "horse") for n in _numbers(each))
        pictures(root / "PACS" / "kfold", names)
    write(root / "PACS" / "kfold" / "notes.txt", "x")


def office_home(root: Path, each: int = 3) -> None:
    """`each` images of two classes in every domain; those of Art have another size."""
    for domain in ("Art", "Clipart", "Product", "Real World"):
        names = (f"{domain}/{label}/{n:05d}.jpg" for label in ("Alarm_Clock", "Mop") for n in _numbers(each))
        pictures(root / "OfficeHomeDataset_10072016", names, side=9 if domain == "Art" else 12)


def caltech101(root: Path, each: int = 2) -> None:
    """`each` images of one class, one more of another and larger, and a folder that is no class."""
    folder = root / "caltech101" / "101_ObjectCategories"
    labels = ("BACKGROUND_Google", "Faces", "ant")
    pictures(folder, (f"{label}/image_{n:04d}.jpg" for label in labels for n in _numbers(each)))
    pictures(folder, [f"ant/image_{each + 1:04d}.jpg"], side=11)


def stanford_cars(root: Path, each: int = 2) -> None:
    """`each` training images of two models, and half as many test images."""
    cars, half = root / "stanford_cars", each // 2
    pictures(cars, (f"cars_train/{n:05d}.jpg" for n in _numbers(2 * each)))
    pictures(cars, (f"cars_test/{n:05d}.jpg" for n in _numbers(2 * half)))
    (cars / "devkit").mkdir()
    savemat(cars / "devkit" / "cars_meta.mat", {"class_names": np.array(["Audi S6", "Ford GT"], dtype=object)})
    for path, labels in (
        (cars / "devkit" / "cars_train_annos.mat", [2, *[1] * each, *[2] * (each - 1)]),
        (cars / "cars_test_annos_withlabels.mat", [1, 2] * half),
    ):
        kind = [("bbox_x1", "O"), ("class", "O"), ("fname", "O")]
        rows = [(1, label, f"{number + 1:05d}.jpg") for number, label in enumerate(labels)]
        savemat(path, {"annotations": np.array([rows], dtype=kind)})


def oxford_pets(root: Path, each: int = 2) -> None:
    """`each` training images and one test image of two breeds; the lists are in no order."""
    pets, breeds = root / "oxford-iiit-pet", {"Abyssinian": 1, "american_bulldog": 2}
    pictures(pets / "images", (f"{breed}_{n}.jpg" for breed in breeds for n in _numbers(each + 1)))
    train = {"Abyssinian": range(each, 0, -1), "american_bulldog": range(each + 1, 1, -1)}
    rows = [f"{breed}_{n} {breeds[breed]} 1 1\n" for breed, numbers in train.items() for n in numbers]
    write(pets / "annotations" / "trainval.txt", f"#Image CLASS-ID SPECIES BREED ID\n{''.join(rows)}")
    write(pets / "annotations" / "test.txt", f"american_bulldog_1 2 2 1\nAbyssinian_{each + 1} 1 1 1\n")


def food101(root: Path, each: int = 2) -> None:
    """`each` training images and one test image of two dishes."""
    food, dishes = root / "food-101", ("waffles", "apple_pie")
    pictures(food / "images", (f"{name}/{n}.jpg" for name in dishes for n in _numbers(each + 1)))
    for part, numbers in (("train", _numbers(each)), ("test", [each + 1])):
        write(
            food / "meta" / f"{part}.json", json.dumps({name: [f"{name}/{n}" for n in numbers] for name in dishes})
        )


def celeba(root: Path, each: int = 2, people: int = 3) -> None:
    """`each` faces of each person, every other of them smiling; those of the last person are the test set."""
    folder = root / "celeba"
    names = [f"{n:06d}.jpg" for n in _numbers(each * people)]
    pictures(folder / "img_align_celeba", names)
    faces = "".join(f"{name} -1  {'-1' if n % 2 else '1'}  1\n" for n, name in enumerate(names))
    write(folder / "list_attr_celeba.txt", f"{len(names)}\nBald Smiling Young \n{faces}")
    owner = {name: n // each for n, name in enumerate(names)}
    parts = "".join(f"{name} {2 if own == people - 1 else own % 2}\n" for name, own in owner.items())
    write(folder / "list_eval_partition.txt", parts)
    # Numbers of people are in no order.
    whom = "".join(f"{name} {3 + 5 * own % (5 * people - 1)}\n" for name, own in owner.items())
    write(folder / "identity_CelebA.txt", whom)


def _numbers(count: int) -> range:
    return range(1, count + 1)


MADE: dict[str, Callable[..., None]] = {
    "pacs": pacs,
    "office_home": office_home,
    "caltech101": caltech101,
    "stanford_cars": stanford_cars,
    "oxford_pets": oxford_pets,
    "food101": food101,
    "celeba": celeba,
}
"""By the names under which the data sets are registered; `each` says how many images."""
