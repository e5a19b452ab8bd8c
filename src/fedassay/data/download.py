"""Published files of data sets: taken where they lie, checked by their digest, downloaded only if absent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from fedassay.data.loading import DataRequest
from fedassay.support.download import MD5, download, hashes_to, in_words
from fedassay.support.errors import DataError
from fedassay.support.paths import data_root, root_in_words

SHA256 = {
    # MNIST
    "f68b3c2dcbeaaa9fbdd348bbdeb94873": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "d53e105ee54ea40749a09fcbcd1e9432": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "9fb629c4189551a2d022fa330f9573f3": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "ec29112dd5afa0611ce80d1b7f02629c": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    # Fashion-MNIST
    "8d4fb7e6c68d591d4c3dfef9ec88bf0d": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
    "25c81989df183df01b3e8a0aad5dffbe": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    "bef4ecab320f06d8554ea6380940ec79": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    "bb300cfdad3c16e7a12a480ee83cd310": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    # CIFAR-10, CIFAR-100
    "c58f30108f718f92721af3b95e74349a": "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    "eb9058c3a382ffc7106e4002c42a8d85": "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
    # SVHN: train, test
    "e26dedcc434d2e4c54c9b2d4a06d8373": "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
    "eb5a983be6a315427106f1b164d9cef3": "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
}
"""SHA-256 of the files that torchvision knows by their MD5, which an attacker on the network could forge."""

_SAFE = {
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/": (
        "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/"
    ),
    "http://ufldl.stanford.edu/": "https://ufldl.stanford.edu/",
    "http://www.idiap.ch/": "https://www.idiap.ch/",
}
"""Addresses that torchvision has without encryption, and where their files are published with it."""


@dataclass(frozen=True)
class Published:
    """A file of a data set, under its publisher's name.

    Attributes:
        name: Its path below the folder of the data sets, as torchvision lays it out.
        urls: Addresses where it is published.
        md5: Published with it: the file's name in `SHA256`, or all that is known of it.
        instead: Replacement where it is there: a file or a folder that somebody unpacked.
        runs: Whether reading it could run code, so that an MD5, which can be forged, does not do.
    """

    name: str
    urls: tuple[str, ...]
    md5: str
    instead: str = ""
    runs: bool = True

    def is_there(self, root: Path) -> bool:
        """Whether it, or what stands in its place, lies under `root`."""
        return (root / self.name).exists() or (bool(self.instead) and (root / self.instead).exists())

    @property
    def digest(self) -> str | None:
        """Digest that a download is held against; None where no known one applies."""
        return SHA256.get(self.md5) or (None if self.runs else MD5 + self.md5)


Lister = Callable[[], Sequence[Published]]
"""Gives the files of a data set."""

_Loader = TypeVar("_Loader", bound=Callable[..., object])
_files: dict[object, Lister] = {}


def published(files: Lister) -> Callable[[_Loader], _Loader]:
    """Say of a data set's loader which files it reads, so that a dry run can tell what is missing."""

    def keep(loader: _Loader) -> _Loader:
        _files[loader] = files
        return loader

    return keep


def missing(loader: object, root: Path) -> list[Published]:
    """The published files of a data set that are not under `root`; none of one that reads no such files."""
    lister = _files.get(loader)
    return [] if lister is None else [file for file in lister() if not file.is_there(root)]


def published_file(file: Published, request: DataRequest) -> Path:
    """A published file, downloaded if it is not there.

    Args:
        file: As it is published.
        request: Says where data sets lie, and whether they may be downloaded.

    Returns:
        The file, which has been checked.

    Raises:
        DataError: The file is not the published one, may not be downloaded, or cannot be.
    """
    root = data_root(request.root, request.base)
    path = root / file.name
    addresses = [address for url in file.urls if (address := _encrypted(url)) is not None]
    if path.exists():
        if not _is_published(path, file):
            kind, value = in_words(file.digest or MD5 + file.md5).split(" ")
            raise DataError(
                f"{file.name}: is not the published file (its {kind} is not {value}); delete it, "
                f"or place the file from {(addresses or file.urls)[0]} there"
            )
        return path
    try:
        if not request.download:
            raise DataError("data.download is false")
        if file.digest is None or not addresses:
            raise DataError("the download failed: no address with encryption, or no SHA-256 of it, is known")
        download(path, addresses, file.digest)
    except DataError as error:
        where = root_in_words(request.root, request.base)
        raise DataError(f"{file.name}: not under {where}, and {error}; allowed: place the file there") from None
    return path


def matches(path: Path, md5: str) -> bool:
    """Whether a file has this MD5, which detects a damaged copy (not a forged one)."""
    with path.open("rb") as stream:
        return hashes_to(stream, MD5 + md5)


def _is_published(path: Path, file: Published) -> bool:
    with path.open("rb") as stream:
        return hashes_to(stream, file.digest or MD5 + file.md5)


def _encrypted(url: str) -> str | None:
    """The address with encryption; None where there is none."""
    for plain, safe in _SAFE.items():
        url = url.replace(plain, safe)
    return None if url.startswith("http://") else url
