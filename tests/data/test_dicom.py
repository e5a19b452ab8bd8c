"""DICOM files: grey values as a viewer shows them, frames, packing, and what the header says."""

from __future__ import annotations

import sys
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
import yaml
from numpy.typing import NDArray
from PIL import Image
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, JPEGLSLossless, RLELossless

from fedassay.data import DataRequest, load
from fedassay.data.dicom import BURNED_IN, PERSON, SITE, header_of_dicom, is_dicom
from fedassay.data.image_folder import image_folder
from fedassay.plan.fitted import fitted_plan
from fedassay.support.errors import DataError, MissingExtraError

_RNG = np.random.default_rng(0)
_STARTER = (resources.files("fedassay") / "starter.yaml").read_text(encoding="utf-8")
_EIGHT = _RNG.integers(60, 256, size=(12, 10), dtype=np.uint8)
_TWELVE = _EIGHT.astype(np.uint16) * 16 + 15


def _write(path: Path, values: NDArray[Any], kind: str = "MONOCHROME2", bits: int = 12, **facts: Any) -> None:
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = "1.2.840.10008.5.1.4.1.1.7"
    meta.MediaStorageSOPInstanceUID = "1.2.3"
    meta.TransferSyntaxUID = facts.pop("syntax", ExplicitVRLittleEndian)
    held = FileDataset(str(path), {}, file_meta=meta, preamble=b"\0" * 128)
    colour = kind in ("RGB", "YBR_FULL")
    frames = values.ndim - 2 - colour
    held.Rows, held.Columns = values.shape[frames : frames + 2]
    held.SamplesPerPixel, held.PhotometricInterpretation = (3 if colour else 1), kind
    if colour:
        held.PlanarConfiguration = 0
    if frames:
        held.NumberOfFrames = len(values)
    held.BitsAllocated, held.BitsStored, held.HighBit = 8 * values.dtype.itemsize, bits, bits - 1
    held.PixelRepresentation = int(values.dtype.kind == "i")
    held.PixelData = values.tobytes()
    for name, value in facts.items():
        setattr(held, name, value)
    if meta.TransferSyntaxUID == RLELossless:
        meta.TransferSyntaxUID = ExplicitVRLittleEndian
        held.compress(RLELossless)
    held.save_as(str(path), enforce_file_format=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes, the first with one grey image of eight bits."""
    root = tmp_path / "set"
    for name in ("a", "b"):
        (root / name).mkdir(parents=True)
    Image.fromarray(_EIGHT).save(root / "a" / "1.png")
    return root


def _request(root: Path, **given: Any) -> DataRequest:
    fields = {"root": None, "path": root, "limit": None, "seed": 0, "base": root.parent, **given}
    return DataRequest("image_folder", **fields)


def _second(root: Path, **given: Any) -> NDArray[np.int64]:
    image_folder.size(_request(root, **given))
    return load(_request(root, **given)).train.images[1].squeeze().astype(np.int64)


@pytest.mark.parametrize("name", ["x.dcm", "x.DCM", "IM0001", "1.2.840.7"])
def test_grey_values_of_all_stored_bits(folder: Path, name: str) -> None:
    _write(folder / "b" / name, _TWELVE)
    assert np.array_equal(_second(folder), _EIGHT)


def test_the_lowest_value_of_monochrome1_is_white(folder: Path) -> None:
    _write(folder / "b" / "x.dcm", 4095 - _TWELVE, "MONOCHROME1")
    assert np.array_equal(_second(folder), _EIGHT)


@pytest.mark.parametrize("signed", [False, True])
def test_a_window_is_laid_on_rescaled_values(folder: Path, signed: bool) -> None:
    # Stored values s mean 2 s - 1000; the window shows those from -200 to 200.
    meant = np.linspace(-600, 600, 120).reshape(12, 10)
    stored = np.round((meant + 1000) / 2).astype(np.int16 if signed else np.uint16)
    rescale = {"RescaleSlope": 2, "RescaleIntercept": -1000}
    _write(folder / "b" / "x.dcm", stored, WindowCenter=0.5, WindowWidth=401, **rescale)
    expected = np.clip((meant + 200) / 400, 0, 1) * 255
    assert np.abs(_second(folder) - expected).max() < 2


def test_colours(folder: Path) -> None:
    colours = _RNG.integers(0, 256, size=(12, 10, 3), dtype=np.uint8)
    _write(folder / "b" / "x.dcm", colours, "RGB", 8)
    assert np.array_equal(_second(folder), colours)


def test_frames_are_taken_as_asked(folder: Path) -> None:
    _write(folder / "b" / "x.dcm", np.stack([_TWELVE, _TWELVE[::-1]]))
    with pytest.raises(DataError, match=r"/b/x\.dcm: holds 2 pictures; allowed: data\.frames"):
        image_folder.size(_request(folder))
    assert np.array_equal(_second(folder, frames="first"), _EIGHT)
    each = load(_request(folder, frames="each")).train.images
    assert np.array_equal(each[2].squeeze(), _EIGHT[::-1])


def test_a_few_bits_of_many_are_asked_about(folder: Path) -> None:
    _write(folder / "b" / "x.dcm", _TWELVE, bits=16)
    with pytest.raises(DataError, match=r"needs more than 12 .*allowed: data\.bits: 12"):
        image_folder.size(_request(folder))
    assert np.array_equal(_second(folder, bits=12), _EIGHT)
    with pytest.raises(DataError, match=r"/b/x\.dcm: has a value of .*, which is more than data\.bits: 10 allows"):
        image_folder.size(_request(folder, bits=10))


def test_packed_pixels_are_read_where_something_unpacks_them(folder: Path) -> None:
    _write(folder / "b" / "x.dcm", _TWELVE, syntax=RLELossless)
    assert np.array_equal(_second(folder), _EIGHT)


def test_packed_pixels_that_nothing_unpacks_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(folder / "b" / "x.dcm", _TWELVE)
    held = pydicom.dcmread(folder / "b" / "x.dcm")
    held.file_meta.TransferSyntaxUID = JPEGLSLossless
    held.PixelData = pydicom.encaps.encapsulate([b"\0" * 40])
    held.save_as(folder / "b" / "x.dcm")
    decoder = pydicom.pixels.get_decoder(JPEGLSLossless)
    monkeypatch.setattr(type(decoder), "is_available", False)
    with pytest.raises(
        DataError, match=r"/b/x\.dcm: is packed as JPEG-LS .*finds no decoder; allowed: pip install"
    ):
        image_folder.size(_request(folder))


def test_a_file_without_a_picture_is_named(folder: Path) -> None:
    _write(folder / "b" / "x.dcm", _TWELVE)
    held = pydicom.dcmread(folder / "b" / "x.dcm")
    del held.PixelData, held.Rows
    held.save_as(folder / "b" / "x.dcm")
    with pytest.raises(DataError, match=r"/b/x\.dcm: is DICOM without a picture \(no Rows\); allowed: move it"):
        image_folder.size(_request(folder))


@pytest.mark.parametrize("share", [0.0, 0.5, 0.9])
def test_what_was_cut_off_is_named_before_a_run(folder: Path, share: float) -> None:
    _write(folder / "b" / "x.dcm", _TWELVE)
    content = (folder / "b" / "x.dcm").read_bytes()
    (folder / "b" / "x.dcm").write_bytes(content[: int(share * len(content))])
    with pytest.raises(DataError, match=r"set/b/x\.dcm: (cannot be read as an image|is DICOM without)"):
        image_folder.size(_request(folder))


def test_one_broken_file_of_many_is_named_by_its_length(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No picture is decoded for its pixels here, as in a set too large for it."""
    monkeypatch.setattr("fedassay.data.image_files._DECODED_FIRST", 0)
    _write(folder / "b" / "x.dcm", np.tile(_TWELVE, (10, 10)))
    content = (folder / "b" / "x.dcm").read_bytes()
    (folder / "b" / "x.dcm").write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=r"set/b/x\.dcm: cannot be read as an image"):
        image_folder.size(_request(folder))


def test_a_header_says_who_and_where(tmp_path: Path) -> None:
    facts = {PERSON: "P7", SITE: "St. Elsewhere", BURNED_IN: "YES"}
    _write(tmp_path / "x.dcm", _TWELVE, **facts)
    header = header_of_dicom(tmp_path / "x.dcm")
    assert dict(header.facts) == facts
    assert (header.size, header.bits, header.grey, header.frames) == ((10, 12), 12, True, (0,))


def test_a_table_of_contents_is_no_image(tmp_path: Path) -> None:
    _write(tmp_path / "DICOMDIR", _TWELVE)
    assert not is_dicom(tmp_path / "DICOMDIR")


def test_the_extra_is_named_where_it_is_missing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(folder / "b" / "x.dcm", _TWELVE)
    monkeypatch.setitem(sys.modules, "pydicom", None)
    with pytest.raises(MissingExtraError, match=r"x\.dcm: needs pydicom, .*pip install 'fedassay\[dicom\]'"):
        image_folder.size(_request(folder))


def test_headers_are_proposed_as_persons_and_sites(tmp_path: Path) -> None:
    for number in range(24):
        (tmp_path / "set" / "ab"[number % 2]).mkdir(parents=True, exist_ok=True)
        facts = {PERSON: f"P{number // 2}", SITE: f"Hospital {number // 12}"}
        _write(tmp_path / "set" / "ab"[number % 2] / f"{number}.dcm", _TWELVE, **facts)
    plan = yaml.safe_load(fitted_plan(tmp_path / "set", tmp_path / "plan.yaml", _STARTER))["data"]
    assert (plan["groups"], plan["sites"]) == (PERSON, SITE)
    train = load(_request(tmp_path / "set", groups=PERSON, sites=SITE)).train
    assert train.groups is not None
    assert train.domain_names == ("Hospital 0", "Hospital 1")
    assert len(set(train.groups.tolist())) == 12


def test_headers_without_a_person_propose_none_and_are_refused_where_asked(tmp_path: Path) -> None:
    for number in range(8):
        (tmp_path / "set" / "ab"[number % 2]).mkdir(parents=True, exist_ok=True)
        facts = {PERSON: f"P{number // 2}"} if number else {}
        _write(tmp_path / "set" / "ab"[number % 2] / f"{number}.dcm", _TWELVE, **facts)
    found = image_folder.size(_request(tmp_path / "set"))
    assert not found.proposals
    assert "7 of 8 headers have PatientID, which is not used" in found.data.account.notes
    with pytest.raises(DataError, match=r"data\.groups: a/0\.dcm does not say it in its header"):
        image_folder.size(_request(tmp_path / "set", groups=PERSON))


def test_a_key_of_headers_needs_headers(folder: Path) -> None:
    Image.fromarray(_EIGHT).save(folder / "b" / "1.png")
    with pytest.raises(DataError, match=r"data\.sites: InstitutionName given, which neither a table nor headers"):
        image_folder.size(_request(folder, sites=SITE))
