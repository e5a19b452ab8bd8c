"""Asks one extra of an installed fedassay for what it is there for; docs/release.py runs a copy of this file.

    python -I release_extras.py EXTRA

It works in the current folder, where `run` is a run. It fails where the extra does not do its work, and where
fedassay is imported from anywhere but the environments that were made for the release.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

import fedassay
from fedassay.cli import cli

_DRAW = np.random.default_rng(0)
SMALL = """\
name: small
data: {name: digits, limit: 300, split: {private: 0.5, test: 0.3, control: 0.2}}
clients: {count: 2, partition: iid}
backbone: {name: pixels}
methods: [fedcgs]
attacks: [message_algebra]
audits: [message]
"""


def notebook() -> None:
    """A figure of a run."""
    from matplotlib import pyplot

    fedassay.load("run").plot.tradeoff()
    pyplot.savefig("tradeoff.pdf")


def sign() -> None:
    """An archive that is signed and verified."""
    from cryptography.hazmat.primitives import serialization as forms
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key, pem = Ed25519PrivateKey.generate(), forms.Encoding.PEM
    Path("key").write_bytes(key.private_bytes(pem, forms.PrivateFormat.PKCS8, forms.NoEncryption()))
    Path("key.pub").write_bytes(key.public_key().public_bytes(pem, forms.PublicFormat.SubjectPublicKeyInfo))
    _command("pack", "run", "--key", "key", "-o", "signed.zip")
    _command("verify", "signed.zip", "--key", "key.pub")


def tables() -> None:
    """A plan for images with labels in an .xlsx file."""
    from openpyxl import Workbook
    from PIL import Image

    book = Workbook()
    book.active.append(("file", "label"))
    Path("set").mkdir()
    for number in range(40):
        Image.fromarray(_pixels()).save(f"set/{number}.png")
        book.active.append((f"{number}.png", "ab"[number % 2]))
    book.save("set/labels.xlsx")
    _command("init", "plan.yaml", "--data", "set")


def dicom() -> None:
    """A plan for DICOM files."""
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian, SecondaryCaptureImageStorage

    for number in range(40):
        meta = FileMetaDataset()
        meta.TransferSyntaxUID = ExplicitVRLittleEndian
        meta.MediaStorageSOPClassUID = SecondaryCaptureImageStorage
        meta.MediaStorageSOPInstanceUID = f"1.2.{number}"
        image = FileDataset("", {}, file_meta=meta, preamble=bytes(128))
        image.Rows = image.Columns = 8
        image.SamplesPerPixel, image.PhotometricInterpretation, image.PixelRepresentation = 1, "MONOCHROME2", 0
        image.BitsAllocated = image.BitsStored = 8
        image.HighBit, image.PixelData = 7, _pixels().tobytes()
        path = Path("set", "ab"[number % 2], f"{number}.dcm")
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save_as(path, enforce_file_format=True)
    _command("init", "plan.yaml", "--data", "set")


def pdf() -> None:
    """A page that is printed without a browser."""
    from weasyprint import HTML

    HTML(string="<p>printed").write_pdf("printed.pdf")


def flower() -> None:
    """The recorder of Flower apps."""
    from fedassay.recorders.flower import Recorder

    assert callable(Recorder)


def mlflow() -> None:
    """A run in a tracking folder."""
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    fedassay.load("run").to_mlflow("audits", uri="file:tracked", name="release")


def ray() -> None:
    """A plan on the engine Ray."""
    Path("small.yaml").write_text(SMALL)
    _command("run", "small.yaml", "-o", "on-ray", "--engine", "ray", "--jobs", "1")
    _command("verify", "on-ray")


EXTRAS = (notebook, sign, tables, dicom, pdf, flower, mlflow, ray)
"""One function an extra, of its name; `dev`, `docs`, `bench` and `flower-simulation` are for contributors."""


def _command(*words: str) -> None:
    code = cli(list(words), standalone_mode=False)
    assert not code, (words, code)


def _pixels() -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    return _DRAW.integers(0, 256, (8, 8), np.uint8)


if __name__ == "__main__":
    assert Path(fedassay.__file__).is_relative_to(Path(sys.prefix).parents[1]), fedassay.__file__
    {extra.__name__: extra for extra in EXTRAS}[sys.argv[1]]()
