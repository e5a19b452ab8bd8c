"""Files as other people have them: depths, frames, endings, and what is broken."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray
from PIL import Image

from fedassay.data import DataRequest, LoadedData, load
from fedassay.data.image_folder import image_folder
from fedassay.support.errors import DataError

_RNG = np.random.default_rng(0)
_EIGHT = _RNG.integers(60, 256, size=(12, 10), dtype=np.uint8)
"""A picture that fills the upper range of eight bits, so that its depth is no matter of doubt."""
_COLOURS = _RNG.integers(60, 256, size=(12, 10, 3), dtype=np.uint8)


def _deep(picture: NDArray[np.uint8], bits: int) -> NDArray[np.uint16]:
    """The picture in so many bits, with noise in those below the highest eight."""
    low = _RNG.integers(0, 2 ** (bits - 8), picture.shape)
    return (picture.astype(np.uint16) << (bits - 8)) + low.astype(np.uint16)


def _png16(path: Path, values: NDArray[np.uint16]) -> None:
    """A PNG of 16 bits a channel, grey or colour, which Pillow writes in grey alone."""
    height, width = values.shape[:2]
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    kind = 0 if values.ndim == 2 else 2

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 16, kind, 0, 0, 0))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def _tiff(path: Path, values: NDArray[Any], **how: Any) -> None:
    tifffile.imwrite(path, values, photometric=how.pop("photometric", "minisblack"), **how)


def _jp2(path: Path, values: NDArray[Any]) -> None:
    Image.fromarray(values).save(path)


def _pgm(path: Path, values: NDArray[np.uint16]) -> None:
    head = f"P5\n{values.shape[1]} {values.shape[0]}\n{2 ** int(values.max()).bit_length() - 1}\n"
    path.write_bytes(head.encode() + values.astype(">u2").tobytes())


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


def _load(root: Path, **given: Any) -> LoadedData:
    image_folder.size(_request(root, **given))
    return load(_request(root, **given))


def _refused(root: Path, words: str, **given: Any) -> None:
    """What headers and a look at some pixels tell is what `init` and a dry run say."""
    with pytest.raises(DataError, match=words):
        image_folder.size(_request(root, **given))


@pytest.mark.parametrize(
    ("name", "write", "values"),
    [
        ("x.png", _png16, _deep(_EIGHT, 16)),
        ("x.png", _png16, _deep(_COLOURS, 16)),
        ("x.tif", _tiff, _deep(_EIGHT, 16)),
        ("x.tiff", lambda path, values: _tiff(path, values, byteorder=">"), _deep(_EIGHT, 16)),
        ("x.tif", lambda path, values: _tiff(path, 65535 - values, photometric="miniswhite"), _deep(_EIGHT, 16)),
        ("x.tif", lambda path, values: _tiff(path, values, photometric="rgb"), _deep(_COLOURS, 16)),
        (
            "x.tif",
            lambda path, values: _tiff(path, values, photometric="rgb", compression="zlib", predictor=True),
            _deep(_COLOURS, 16),
        ),
        ("x.pgm", _pgm, _deep(_EIGHT, 12)),
        ("x.pgm", _pgm, _deep(_EIGHT, 16)),
        ("x.jp2", _jp2, _deep(_EIGHT, 16)),
    ],
)
def test_the_highest_eight_bits_are_kept(folder: Path, name: str, write: Any, values: NDArray[np.uint16]) -> None:
    write(folder / "b" / name, values)
    images = _load(folder).train.images
    expected = values >> (int(values.max()).bit_length() - 8)
    # Pillow stretches a PGM of twelve bits to sixteen, which may move a value by one.
    assert np.abs(images[1].squeeze().astype(int) - expected).max() <= (name == "x.pgm")


@pytest.mark.parametrize(
    ("name", "write", "picture"),
    [
        ("x.png", _png16, _EIGHT),
        ("x.png", _png16, _COLOURS),
        ("x.tif", _tiff, _EIGHT),
        ("x.tif", lambda path, values: _tiff(path, values, photometric="rgb"), _COLOURS),
        ("x.tif", lambda path, values: _tiff(path, values, photometric="rgb", compression="zlib"), _COLOURS),
    ],
)
def test_twelve_bits_stored_as_sixteen_are_asked_about(
    folder: Path, name: str, write: Any, picture: NDArray[np.uint8]
) -> None:
    write(folder / "b" / name, _deep(picture, 12))
    _refused(folder, rf"no value in them needs more than 12 \(set/b/{name}.*data\.bits: 12, or data\.bits: 16")
    with pytest.raises(DataError, match=r"data\.bits: 12"):
        load(_request(folder))
    assert np.array_equal(_load(folder, bits=12).train.images[1].squeeze(), picture)
    assert _load(folder, bits=16).train.images[1].max() < 16
    _refused(folder, rf"/b/{name}: has a value of .*; data\.bits: 10 allows up to 1,023", bits=10)


def test_colours_of_which_the_lower_bits_cannot_be_had_are_refused(folder: Path) -> None:
    values = _deep(_COLOURS, 12)
    (folder / "b" / "x.ppm").write_bytes(b"P6\n10 12\n65535\n" + values.astype(">u2").tobytes())
    _refused(folder, r"no value in them needs more than 12")
    _refused(folder, r"/b/x\.ppm: is of mode RGB; only its highest 8 bits can be read", bits=12)


@pytest.mark.parametrize(
    "values", [np.ones((9, 9), np.int16), np.ones((9, 9), np.float32), np.ones((9, 9), np.int32)]
)
def test_signed_and_broken_numbers_are_refused(folder: Path, values: NDArray[Any]) -> None:
    _tiff(folder / "b" / "x.tif", values)
    _refused(
        folder, r"/b/x\.tif: is of mode (I|F) with (16|32) bits a channel; allowed: up to 16 bits without a sign"
    )


def test_a_deep_image_is_turned_upright(folder: Path) -> None:
    values = _deep(_EIGHT, 16)
    sideways = np.ascontiguousarray(np.rot90(values))
    _tiff(folder / "b" / "x.tif", sideways, extratags=[(274, "H", 1, 6, True)])
    assert np.array_equal(_load(folder).train.images[1].squeeze(), values >> 8)


def test_transparency_of_grey_is_ignored(folder: Path) -> None:
    both = Image.merge("LA", (Image.fromarray(_EIGHT), Image.new("L", _EIGHT.shape[::-1], 9)))
    both.save(folder / "b" / "x.png")
    images = _load(folder).train.images
    assert np.array_equal(images[0], images[1])


@pytest.mark.parametrize("name", ["x.jfif", "x.jpe", "x.jp2", "x.j2k", "x.pbm", "x.pnm", "x.dib", "x.apng", "x"])
def test_endings_that_are_read(folder: Path, name: str) -> None:
    form = {"jfif": "JPEG", "jpe": "JPEG", "dib": "BMP", "pnm": "PPM", "pbm": "PPM"}.get(name.partition(".")[2])
    picture = Image.fromarray(_EIGHT).convert("1" if name == "x.pbm" else "L")
    picture.save(folder / "b" / name, format=form or ("JPEG2000" if ".j" in name else "PNG"))
    difference = _load(folder).train.images[1].astype(int).squeeze() - np.asarray(picture.convert("L"))
    assert np.abs(difference).max() < 90


def test_a_file_without_an_ending_that_is_no_image_is_none(folder: Path) -> None:
    Image.fromarray(_EIGHT).save(folder / "b" / "1.png")
    (folder / "b" / "LICENSE").write_text("Nobody may copy this.")
    assert len(_load(folder).train) == 2


def _pages(path: Path, pages: list[NDArray[np.uint8]]) -> None:
    first, *more = map(Image.fromarray, pages)
    first.save(path, save_all=True, append_images=more)


@pytest.mark.parametrize("name", ["x.tif", "x.gif", "x.png", "x.webp"])
def test_pages_and_frames_are_taken_as_asked(folder: Path, name: str) -> None:
    pages = [np.full((12, 10), value, np.uint8) for value in (200, 100, 30)]
    _pages(folder / "b" / name, pages)
    _refused(folder, rf"/b/{name}: holds 3 pictures; allowed: data\.frames: first takes .*, each takes all")
    first = _load(folder, frames="first").train
    assert first.labels.tolist() == [0, 1]
    assert abs(float(first.images[1].mean()) - 200) < 2
    each = _load(folder, frames="each").train
    assert each.labels.tolist() == [0, 1, 1, 1]
    assert np.abs(each.images[1:].mean(axis=(1, 2, 3)) - [200, 100, 30]).max() < 2
    # Pages of one file are nothing that two roles may share.
    assert each.groups is not None
    assert each.groups.tolist() == [0, 1, 1, 1]


def test_smaller_copies_of_a_page_are_no_pictures(folder: Path) -> None:
    with tifffile.TiffWriter(folder / "b" / "x.tif") as file:
        file.write(_EIGHT, photometric="minisblack")
        file.write(_EIGHT[::2, ::2], photometric="minisblack", subfiletype=1)
    assert np.array_equal(_load(folder).train.images[1].squeeze(), _EIGHT)


@pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "JPEG2000", "PPM"])
@pytest.mark.parametrize("share", [0.0, 0.6, 0.9])
def test_what_was_cut_off_is_named_before_a_run(folder: Path, form: str, share: float) -> None:
    whole = io.BytesIO()
    picture = Image.fromarray(_RNG.integers(0, 256, size=(12, 10, 3), dtype=np.uint8))
    picture.save(whole, format=form, **({"lossless": True} if form == "WEBP" else {}))
    content = whole.getvalue()
    (folder / "b" / "x.jpg").write_bytes(content)
    assert len(_load(folder).train) == 2
    (folder / "b" / "x.jpg").write_bytes(content[: int(share * len(content))])
    _refused(folder, r"set/b/x\.jpg: cannot be read as an image \(")


def test_one_broken_file_of_many_is_named_by_its_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No picture is decoded for its pixels here, as in a set too large for it."""
    monkeypatch.setattr("fedassay.data.image_files._DECODED_FIRST", 0)
    for number in range(20):
        Image.fromarray(_EIGHT).save(folder / "b" / f"{number}.jpg")
    image_folder.size(_request(folder))
    broken = folder / "b" / "7.jpg"
    broken.write_bytes(broken.read_bytes()[:-40])
    _refused(folder, r"set/b/7\.jpg: cannot be read as an image")


def test_what_follows_the_end_of_a_file_is_no_matter(folder: Path) -> None:
    Image.fromarray(_EIGHT).save(folder / "b" / "1.jpg")
    with (folder / "b" / "1.jpg").open("ab") as stream:
        stream.write(b"\0" * 500)
    assert len(_load(folder).train) == 2
