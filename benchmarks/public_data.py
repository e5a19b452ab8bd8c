"""Images and networks that benchmarks take from others: public ones by their own names, or files of one's own.

`--data cifar10` is fetched on first use into the folder of data sets, as a plan's is; `--data FILE.npz` is read as
a plan's data set `npz`. `--weights imagenet` are those that torchvision publishes; `--weights FILE`, a state dict.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedassay.backbones import build
from fedassay.backbones.base import Backbone, BackboneRequest
from fedassay.data.images import LoadedData
from fedassay.data.loading import DataRequest, load
from fedassay.support.errors import DataError, FedassayError

Images = NDArray[np.uint8]
Labels = NDArray[np.int64]

SIZE = 64
"""Pixels that images are resized to for SqueezeNet."""

_FILE = ".npz"


def add_arguments(parser: argparse.ArgumentParser, *, weights: bool = True) -> None:
    """`--data`, and `--weights` where a network with one choice of them is used."""
    parser.add_argument(
        "--data",
        default="cifar10",
        metavar="NAME|FILE",
        help="a public data set (cifar10, fashion_mnist), fetched on first use, or an .npz with x_train, y_train",
    )
    if weights:
        parser.add_argument(
            "--weights", default="imagenet", metavar="NAME|FILE", help="SqueezeNet's, or the file of a state dict"
        )


def add_row_arguments(parser: argparse.ArgumentParser, *, draws: int, members: int) -> None:
    """`add_arguments`, and those of scripts that measure draws of members of a pool of images and keep rows."""
    add_arguments(parser)
    parser.add_argument("--draws", type=int, default=draws)
    parser.add_argument("--images", type=int, default=14_500)
    parser.add_argument("--members", type=int, default=members, help="Members, and as many others")
    parser.add_argument("--cache", type=Path, default=Path("/tmp"))
    parser.add_argument("--only", default="", help="Expression that the settings of a row match, as JSON")
    parser.add_argument("--rows", type=Path, help="a .jsonl of the script's name in the cache if not given")


def called(data: str) -> str:
    """A data set as results call it: a public one by its name, a file by its name without folders."""
    return Path(data).stem if data.endswith(_FILE) else data


def loaded(data: str, *, download: bool = True) -> LoadedData:
    """A whole data set.

    Raises:
        DataError: It is not there and cannot be fetched, or the file is none.
    """
    own = data.endswith(_FILE)
    path = Path(data) if own else None
    return load(DataRequest("npz" if own else data, None, path, None, 0, Path.cwd(), download=download))


def training(data: str, most: int | None = None, *, download: bool = True) -> tuple[Images, Labels]:
    """The first training images: (n, H, W, C) and (n,).

    Raises:
        DataError: As `loaded`.
    """
    train = loaded(data, download=download).train
    return train.images[:most], train.labels[:most]


def in_two(data: str, train: int, test: int, *, download: bool = True) -> tuple[Images, Labels]:
    """The first training images, and the first official test images behind them: (n, H, W, C) and (n,).

    Raises:
        DataError: As `loaded`; or there are fewer images.
    """
    whole = loaded(data, download=download)
    tests = whole.test
    held = (len(whole.train), 0 if tests is None else len(tests))
    if tests is None or held[0] < train or held[1] < test:
        held_words = f"{held[0]} training and {held[1]} test images"
        raise DataError(f"--data: {called(data)} has {held_words}; needed: {train} and {test}")
    return (
        np.concatenate([whole.train.images[:train], tests.images[:test]]),
        np.concatenate([whole.train.labels[:train], tests.labels[:test]]),
    )


def backbone(name: str, weights: str, input_size: int | None, images: Images, classes: int) -> Backbone:
    """A network for these images, on the CPU.

    Raises:
        DataError: The weights are not there and cannot be fetched, or are another network's.
    """
    shape = (int(images.shape[1]), int(images.shape[2]), int(images.shape[3]))
    return build(BackboneRequest(name, weights, input_size, shape, classes, None, 0, "cpu", Path.cwd()))


def ended(main: Callable[[], None]) -> None:
    """Run a script; what is missing ends it with the sentence that says how to get it."""
    try:
        main()
    except FedassayError as error:
        raise SystemExit(str(error)) from None
