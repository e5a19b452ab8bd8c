"""Published files of data sets: taken where they lie, checked by their SHA-256, downloaded only if absent."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from fedassay.support.download import download, hashes_to
from fedassay.support.errors import DataError

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
"""SHA-256 of the files that torchvision knows by their MD5, which whoever is on the way could forge."""

_SAFE = {
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/": (
        "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/"
    ),
    "http://ufldl.stanford.edu/": "https://ufldl.stanford.edu/",
}
"""Addresses that torchvision has without encryption, and where their files are published with it."""


def published_file(root: Path, name: str, urls: Sequence[str], md5: str) -> Path:
    """A published file under `root`, downloaded if it is not there.

    Args:
        root: Folder of the data sets.
        name: Path of the file below `root`, as torchvision lays it out.
        urls: Where it is published, according to torchvision.
        md5: As torchvision lists it: the file's name in `SHA256`.

    Returns:
        The file, which has been checked.

    Raises:
        DataError: The file is not the published one, or cannot be downloaded.
    """
    path = root / name
    addresses = [address for url in urls if (address := _encrypted(url)) is not None]
    if path.exists():
        if not _is_published(path, md5):
            raise DataError(
                f"{name}: is not the published file (its SHA-256 is not {SHA256.get(md5, 'known')}); delete it, "
                f"or place the file from {(addresses or urls)[0]} there"
            )
        return path
    sha256 = SHA256.get(md5)
    try:
        if sha256 is None or not addresses:
            raise DataError("the download failed: no address with encryption, or no SHA-256 of it, is known")
        download(path, addresses, sha256)
    except DataError as error:
        raise DataError(f"{name}: not under data.root, and {error}; allowed: place the file there") from None
    return path


def matches(path: Path, md5: str) -> bool:
    """Whether a file has this MD5, which tells a damaged copy (not a forged one)."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest() == md5


def _is_published(path: Path, md5: str) -> bool:
    sha256 = SHA256.get(md5)
    if sha256 is None:
        return matches(path, md5)
    with path.open("rb") as stream:
        return hashes_to(stream, sha256)


def _encrypted(url: str) -> str | None:
    """The address with encryption; None where there is none."""
    for plain, safe in _SAFE.items():
        url = url.replace(plain, safe)
    return None if url.startswith("http://") else url
