"""Tables of labels beside images."""

from __future__ import annotations

from collections.abc import Iterator

import yaml
from material import RUN, Case, Special, as_yaml, own_plan, picture

from named.parts import ESCAPE, FIFO, FOLDER, ZERO


def cases() -> Iterator[Case]:
    """A table of everything that is none, and of more than there are images."""
    names = [f"{i:02d}.png" for i in range(16)]
    rows = b"".join(f"{name},{i % 2}\n".encode() for i, name in enumerate(names))
    contents: dict[str, bytes | Special] = {
        "sound": b"file,label\n" + rows,
        "a named pipe": FIFO,
        "a device": ZERO,
        "a folder": FOLDER,
        "a link to itself": Special("link", "labels.csv"),
        "200 MB of nothing": Special("sparse", "file,label\n", 200 << 20),
        "20 GB of nothing": Special("sparse", "file,label\n", 20 << 30),
        "nothing": b"",
        "only names of columns": b"file,label\n",
        "5 million rows": b"file,label\n" + rows + b"a,b\n" * 5_000_000,
        "5 million rows of one image": b"file,label\n" + b"00.png,1\n" * 5_000_000,
        "20 million empty rows": b"file,label\n" + rows + b"\n" * 20_000_000,
        "20 million rows of commas": b"file,label\n" + rows + b",\n" * 10_000_000,
        "a row of 30 million columns": b"file,label\n" + b"," * 30_000_000,
        "5 million names of columns": b",".join(b"%d" % i for i in range(2_000_000)) + b"\n" + rows,
        "names of columns without an end": b"a," * 20_000_000,
        "a field of 20 MB": b"file,label\n" + rows + b"x" * (20 << 20),
        "an open quote": b'file,label\n"' + rows * 10,
        "null characters": b"file,label\n" + rows.replace(b",0", b",\0"),
        "no text": b"\xff\xfe\0\xd8",
        "UTF-16": ("file,label\n" + rows.decode()).encode("utf-16"),
        "carriage returns": b"file,label\r" + rows.replace(b"\n", b"\r"),
        "labels that a terminal acts on": ("file,label\n" + rows.decode().replace(",0", f",{ESCAPE}")).encode(),
        "labels that are formulas": b"file,label\n" + rows.replace(b",0", b",=1+1"),
        "labels of 100,000 letters": b"file,label\n" + rows.replace(b",0", b"," + b"l" * 100_000),
        "columns of one name": b"file,file\n" + rows,
        "columns without a name": b",\n" + rows,
        "paths that lead outside": b"file,label\n../../etc/passwd,1\n" + rows,
        "semicolons": b"file;label\n" + rows.replace(b",", b";"),
        "every image a class": b"file,label\n" + b"".join(f"{name},{name}\n".encode() for name in names),
    }
    section = {"labels": "labels.csv"}
    tree = yaml.safe_load(own_plan("image_folder", "in"))
    plan = as_yaml({**tree, "data": {**tree["data"], **section}})
    pictures = {f"in/{name}": picture(seed=i) for i, name in enumerate(names)}
    for name, content in contents.items():
        yield Case("image", f"a table: {name}", RUN, {"plan.yaml": plan, **pictures, "in/labels.csv": content})
    deep = "in/" + "d/" * 400
    yield Case(
        "image",
        "images 400 folders deep",
        RUN,
        {
            "plan.yaml": plan,
            "in/labels.csv": contents["sound"],
            **{deep + n: p for n, p in zip(names, pictures.values(), strict=True)},
        },
    )
    for column in ("../x", ESCAPE, "x" * 100_000, 5, -1, [], True):
        for key in ("label_column", "file_column"):
            asked = as_yaml({**tree, "data": {**tree["data"], **section, key: column}})
            yield Case(
                "image",
                f"{key} = {str(column)[:20]!r}",
                RUN,
                {"plan.yaml": asked, **pictures, "in/labels.csv": contents["sound"]},
            )
