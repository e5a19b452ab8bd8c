"""Folders of images."""

from __future__ import annotations

import io
from collections.abc import Iterator

from material import RUN, Case, Special, image_folder, own_plan, picture

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
    from PIL import Image

    opened = [Image.open(io.BytesIO(frame)) for frame in frames]
    opened[0].save(gif, "GIF", save_all=True, append_images=opened[1:])
    yield make("a film", **{odd: gif.getvalue()})
    many = {f"in/c{i}/0.png": picture(seed=i) for i in range(1500)}
    yield make("1,500 classes of one image", **many)
