"""Folders of images."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
from material import RUN, Case, Special, image_folder, own_plan, picture
from PIL import Image, PngImagePlugin

from named.parts import ESCAPE, FIFO, FOLDER, ZERO, bomb_png


def cases() -> Iterator[Case]:
    def make(name: str, **files: bytes | Special) -> Case:
        plan = {"plan.yaml": own_plan("image_folder", "in")}
        return Case("image", name, RUN, {**plan, **image_folder(), **files})

    odd = "in/a/00.png"
    yield make("nothing wrong")
    yield make("a bomb of 20,000 pixels a side", **{odd: bomb_png(20_000)})
    yield make("a bomb of 12,000 pixels a side", **{odd: bomb_png(12_000)})
    yield make("a picture cut short", **{odd: picture()[:50]})
    yield make("text", **{odd: b"text"})
    yield make("nothing", **{odd: b""})
    yield make("2 GB", **{odd: Special("sparse", "x", 2 << 30)})
    yield make(
        "PostScript named png", **{odd: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n"}
    )
    yield make("a named pipe", **{odd: FIFO})
    yield make("a device", **{odd: ZERO})
    yield make("a link to itself", **{odd: Special("link", "00.png")})
    yield make("a folder named png", **{odd: FOLDER})
    yield make("class folders that link to themselves", **{"in/c": Special("link", "c")})
    yield make("a class folder that links to its parent", **{"in/c": Special("link", ".")})
    for form in ("GIF", "BMP", "TIFF", "PPM", "WEBP", "JPEG"):
        sound = picture(form=form)
        yield make(f"{form} named png", **{odd: sound})
        yield make(f"{form} cut short", **{odd: sound[: len(sound) * 2 // 3]})
    names = {"\udcff\udcfe": "not UTF-8", ESCAPE: "an escape", "n" * 255: "255 letters", "=1+1": "a formula"}
    for name, what in names.items():
        files = {f"in/{name}/{i}.png": picture(seed=i + 50) for i in range(8)}
        yield make(f"a class folder whose name is {what}", **files)
    yield make("a domain whose name is not UTF-8", **{f"in/\udcff/a/{i}.png": picture(seed=i) for i in range(4)})
    gif = io.BytesIO()
    frames = [picture(seed=i) for i in range(3)]
    opened = [Image.open(io.BytesIO(frame)) for frame in frames]
    opened[0].save(gif, "GIF", save_all=True, append_images=opened[1:])
    yield make("a film", **{odd: gif.getvalue()})
    for name, content in _unusual().items():
        yield make(name, **{odd: content})
    many = {f"in/c{i}/0.png": picture(seed=i) for i in range(1500)}
    yield make("1,500 classes of one image", **many)


def _unusual() -> dict[str, bytes]:
    """Pictures of other kinds than most, and pictures that say more than they hold."""
    rng = np.random.default_rng(0)
    colour = rng.integers(0, 256, (8, 8, 4), dtype=np.uint8)
    deep = Image.fromarray(rng.integers(0, 1 << 16, (8, 8), dtype=np.uint16))
    grey = Image.fromarray(colour[..., 0])
    frames = [Image.fromarray(colour[..., i]) for i in range(3)]
    orientation = Image.Exif()
    orientation[0x0112] = 8
    odd_orientation = Image.Exif()
    odd_orientation[0x0112] = 60_000
    text = PngImagePlugin.PngInfo()
    text.add_text("k", "t" * (20 << 20), zip=True)

    def saved(image: Image.Image, form: str, **options: Any) -> bytes:
        stream = io.BytesIO()
        image.save(stream, form, **options)
        return stream.getvalue()

    return {
        "16 bits": saved(deep, "PNG"),
        "16 bits, TIFF": saved(deep, "TIFF"),
        "floats": saved(Image.fromarray(rng.random((8, 8)).astype(np.float32)), "TIFF"),
        "CMYK": saved(Image.fromarray(colour, "CMYK"), "JPEG"),
        "transparency": saved(Image.fromarray(colour, "RGBA"), "PNG"),
        "grey and transparency": saved(Image.fromarray(colour[..., :2].copy(), "LA"), "PNG"),
        "a palette": saved(grey.convert("P"), "PNG", transparency=3),
        "one bit": saved(grey.convert("1"), "PNG"),
        "a film in PNG": saved(frames[0], "PNG", save_all=True, append_images=frames[1:]),
        "a film in WebP": saved(frames[0], "WEBP", save_all=True, append_images=frames[1:]),
        "several pages": saved(frames[0], "TIFF", save_all=True, append_images=frames[1:]),
        "turned": saved(grey, "JPEG", exif=orientation),
        "turned by 60,000": saved(grey, "JPEG", exif=odd_orientation),
        "EXIF that is none": saved(grey, "JPEG", exif=b"Exif\0\0" + b"\xff" * 60_000),
        "a profile that is none": saved(grey, "PNG", icc_profile=b"\xff" * 5_000_000),
        "a text of 20 MB in 20 kB": saved(grey, "PNG", pnginfo=text),
        "no side": picture().replace(b"\0\0\0\x08\0\0\0\x08", b"\0\0\0\0\0\0\0\x08", 1),
        "sides of 2^31": picture().replace(b"\0\0\0\x08" * 2, b"\x7f\xff\xff\xff" * 2, 1),
        "numbers in words": b"P3 8000 8000 255 " + b"0 " * 100,
        "a header that does not end": b"P6 " + b"#" * (20 << 20),
        "sides in words of 5,000 digits": b"P6 " + b"9" * 5_000 + b" 8 255 ",
    }
