"""MedMNIST's small medical images under their public names, each one .npz as its authors publish it.

Names, addresses and MD5s are those of MedMNIST+ (Yang et al. 2023, doi:10.5281/zenodo.10519652). Reading such an
archive runs nothing, so that the published MD5 and an address with encryption do.
"""

from __future__ import annotations

from dataclasses import replace

from fedassay.data.download import Published, published, published_file
from fedassay.data.images import LoadedData
from fedassay.data.loading import DataRequest, DataSize, allow_only
from fedassay.data.npz import read_npz
from fedassay.support.errors import DataError
from fedassay.support.registry import register

_RECORD = "https://zenodo.org/records/10519652/files/"
_MD5 = {
    "pneumoniamnist": "28209eda62fecd6e6a2d98b1501bb15f",
    "breastmnist": "750601b1f35ba3300ea97c75c52ff8f6",
    "bloodmnist": "7053d0359d879ad8a5505303e11de1dc",
    "pathmnist": "a8b06965200029087d5bd730944a56c1",
}
_CLASSES = {
    "pneumoniamnist": ("normal", "pneumonia"),
    "breastmnist": ("malignant", "normal or benign"),
    "bloodmnist": (
        "basophil",
        "eosinophil",
        "erythroblast",
        "immature granulocyte",
        "lymphocyte",
        "monocyte",
        "neutrophil",
        "platelet",
    ),
    "pathmnist": (
        "adipose",
        "background",
        "debris",
        "lymphocytes",
        "mucus",
        "smooth muscle",
        "normal colon mucosa",
        "cancer-associated stroma",
        "colorectal adenocarcinoma epithelium",
    ),
}


@published(lambda: [_file("pneumoniamnist")])
@register("dataset", "pneumoniamnist", size=DataSize(5_232, 624, (28, 28, 1), 2))
def pneumoniamnist(request: DataRequest) -> LoadedData:
    """Chest X-rays of children, 5,232 + 624 grey images of 28x28, normal or pneumonia (`root`; CC BY 4.0).

    PneumoniaMNIST of MedMNIST (Yang et al. 2023), after Kermany et al. 2018. Training and validation images are
    the training set. The file does not identify persons: each image is taken to be of a person of its own.
    """
    return _medmnist(request, "pneumoniamnist")


@published(lambda: [_file("breastmnist")])
@register("dataset", "breastmnist", size=DataSize(624, 156, (28, 28, 1), 2))
def breastmnist(request: DataRequest) -> LoadedData:
    """Breast ultrasound, 624 + 156 grey images of 28x28, malignant or not (`root`; CC BY 4.0).

    BreastMNIST of MedMNIST (Yang et al. 2023), after Al-Dhabyani et al. 2020. Training and validation images are
    the training set.
    """
    return _medmnist(request, "breastmnist")


@published(lambda: [_file("bloodmnist")])
@register("dataset", "bloodmnist", size=DataSize(13_671, 3_421, (28, 28, 3), 8))
def bloodmnist(request: DataRequest) -> LoadedData:
    """Blood cells under the microscope, 13,671 + 3,421 colour images of 28x28 in 8 classes (`root`; CC BY 4.0).

    BloodMNIST of MedMNIST (Yang et al. 2023), after Acevedo et al. 2020. Training and validation images are the
    training set.
    """
    return _medmnist(request, "bloodmnist")


@published(lambda: [_file("pathmnist")])
@register("dataset", "pathmnist", size=DataSize(100_000, 7_180, (28, 28, 3), 9))
def pathmnist(request: DataRequest) -> LoadedData:
    """Colon tissue, 100,000 + 7,180 colour images of 28x28 in 9 classes (`root`; CC BY 4.0).

    PathMNIST of MedMNIST (Yang et al. 2023), after Kather et al. 2019. Training and validation images are the
    training set.
    """
    return _medmnist(request, "pathmnist")


def _file(name: str) -> Published:
    return Published(f"{name}.npz", (f"{_RECORD}{name}.npz?download=1",), _MD5[name], runs=False)


def _medmnist(request: DataRequest, name: str) -> LoadedData:
    allow_only(request, "root")
    data = read_npz(published_file(_file(name), request), request)
    names = _CLASSES[name]
    if data.train.class_names != tuple(str(label) for label in range(len(names))):
        held = ", ".join(data.train.class_names)
        raise DataError(f"{name}.npz: holds labels {held}; allowed: 0 to {len(names) - 1}")
    return LoadedData(
        replace(data.train, class_names=names),
        None if data.test is None else replace(data.test, class_names=names),
        f"{name}.npz, as published",
    )
