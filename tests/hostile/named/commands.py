"""Command lines: numbers that are none, lists of releases, odd names of files, and places that nothing fits in."""

from __future__ import annotations

from collections.abc import Iterator

from material import (
    PLAN,
    REPORT,
    Case,
    Material,
    Special,
    archive,
    as_json,
    as_yaml,
    image_folder,
    images_npz,
    picture,
)

from named.parts import ESCAPE, FIFO, FOLDER, ZERO

_NUMBERS = ("nan", "inf", "-inf", "0", "-1", "5e-324", "1e-300", "1e-17", "1e300", "1e999", "9" * 400, "x", "")


def cases(material: Material) -> Iterator[Case]:
    """By command."""
    yield from _numbers()
    yield from _lists()
    yield from _outputs(material)
    yield from _starts()
    yield from _names(material)


def _numbers() -> Iterator[Case]:
    for number in _NUMBERS:
        for option in ("--sigma", "--epsilon"):
            sound = ("account", "gaussian", option, number, "--delta", "1e-5")
            for args in (sound, (*sound, "--json"), (*sound, "--sensitivity", "1e300")):
                yield Case("command", " ".join(args)[:80], args, {})
        for options in (("--sigma", "1", "--delta", number), ("--epsilon", "1", "--delta", number)):
            yield Case(
                "command", f"account {options[0]}, delta {number[:20]}", ("account", "gaussian", *options), {}
            )
        sensitive = ("account", "gaussian", "--sigma", "1", "--delta", "1e-5", "--sensitivity", number)
        yield Case("command", f"account, sensitivity {number[:20]}", sensitive, {})
        yield Case("command", f"cache --limit {number[:20]}", ("cache", "info", f"--limit={number}"), {})
        audit = ("audit", "in", "-o", "out", f"--minutes={number}")
        yield Case("command", f"audit --minutes {number[:20]}", audit, {"in": FOLDER})
        jobs = ("run", "plan.yaml", "-o", "out", "--dry-run", f"--jobs={number}")
        yield Case("command", f"run --jobs {number[:20]}", jobs, {"plan.yaml": as_yaml(PLAN)})


def _lists() -> Iterator[Case]:
    gaussian = {"mechanism": "gaussian", "sigma": 1.0}
    sgd = {"mechanism": "dp_sgd", "noise_multiplier": 1.0, "sampling_rate": 0.01, "steps": 10}
    lists = {
        "100,000 times 5,000": [{**gaussian, "count": 100_000}] * 5_000,
        "pure, 100,000 times 5,000": [{"mechanism": "pure", "epsilon": 1e-6, "count": 100_000}] * 5_000,
        "10,000 different ones": [{**gaussian, "sigma": 1 + i * 1e-6} for i in range(10_000)],
        "5,000 of DP-SGD": [{**sgd, "noise_multiplier": 1 + i * 1e-6} for i in range(5_000)],
        "DP-SGD of many steps": [{**sgd, "steps": 10_000_000}],
        "DP-SGD without subsampling": [{**sgd, "sampling_rate": 1.0}],
        "DP-SGD of a tiny rate": [{**sgd, "sampling_rate": 5e-324}],
        "no sensitivity": [{**gaussian, "sensitivity": 0}],
        "an overflow": [{**gaussian, "sensitivity": 1e308, "sigma": 1e-308}],
        "tiny noise": [{**gaussian, "sigma": 5e-324}],
        "huge noise": [{**gaussian, "sigma": 1e308}],
        "tiny noise in DP-SGD": [{**sgd, "noise_multiplier": 5e-324}],
        "huge noise in DP-SGD": [{**sgd, "noise_multiplier": 1e308}],
        "pure and huge": [{"mechanism": "pure", "epsilon": 1e308, "count": 2}],
        "pure and tiny": [{"mechanism": "pure", "epsilon": 5e-324}],
        "pure beside gaussian": [gaussian, {"mechanism": "pure", "epsilon": 1.0}, sgd],
        "an unknown mechanism": [{"mechanism": ESCAPE}],
        "a mapping": {"mechanism": "gaussian"},
        "nothing": [],
        "null": None,
        "a number": 5,
    }
    for name, tree in lists.items():
        for delta in ("1e-5", "1e-300"):
            args = ("account", "compose", "list.yaml", "--delta", delta)
            yield Case("command", f"compose: {name}, delta {delta}", args, {"list.yaml": as_json(tree)})
        args = ("account", "compose", "list.yaml", "--delta", "1e-5", "--second-opinion")
        yield Case("command", f"compose: {name}, a second opinion", args, {"list.yaml": as_json(tree)})


def _outputs(material: Material) -> Iterator[Case]:
    """Where something is to be written, and something else stands; the record that is read is one of these."""
    record = {"run/record.json": as_json(material.record)}
    plan = {"plan.yaml": as_yaml(PLAN)}
    files: dict[str, bytes | Special] = {
        "out/file": b"mine",
        "out/pipe": FIFO,
        "out/device": ZERO,
        "out/loop": Special("link", "loop"),
        "out/nowhere": Special("link", "nothing/there"),
    }
    for where in (
        *files,
        "out/file/below",
        "out/loop/below",
        "out/" + "n" * 300,
        "out/" + "d/" * 2_100,
        "/dev/null/x",
    ):
        for args in (
            ("run", "plan.yaml", "--quiet", "-o", where),
            ("run", "plan.yaml", "--quiet", "--force", "-o", where),
            (*REPORT, "csv", "-o", where),
            (*REPORT, "evidence", "-o", where),
            (*REPORT, "html", "-o", where),
            ("check", "run", "--policy", "configs/policies/strict.yaml", "--sarif", where),
            ("compare", "run", "run", "-o", where),
            ("init", where),
        ):
            yield Case("command", f"{args[0]} {args[-2]} {where[:30]}", args, {**plan, **record, **files})
    for name in ("out/a\nb", "out/\udcff", f"out/{ESCAPE}", "out/<script>", "out/=1+1", "out/ "):
        yield Case("command", f"run -o {name!r}", ("run", "plan.yaml", "--quiet", "-o", name), {**plan})
        yield Case("command", f"report -o {name!r}", (*REPORT, "html", "-o", name), {**record})
        yield Case("command", f"compare -o {name!r}", ("compare", "run", "run", "-o", name), {**record})
        yield Case("command", f"init {name!r}", ("init", name), {})


def _starts() -> Iterator[Case]:
    """`init --data` on what is no data."""
    archives = {"sound": archive(**images_npz()), "nothing": b"", "text": b"text"}
    for name, content in archives.items():
        files = {"in.npz": content}
        yield Case("command", f"init on an archive: {name}", ("init", "out/p.yaml", "--data", "in.npz"), files)
    for name, special in {"a named pipe": FIFO, "a device": ZERO, "a link": Special("link", "in")}.items():
        yield Case("command", f"init on {name}", ("init", "out/p.yaml", "--data", "in"), {"in": special})
    tables: dict[str, bytes | Special] = {
        "a named pipe": FIFO,
        "a device": ZERO,
        "nothing": b"",
        "no text": b"\xff\xfe\0",
        "a sound one": b"file,label\n" + b"".join(b"%02d.png,%d\n" % (i, i % 2) for i in range(40)),
    }
    pictures = {f"in/{i:02d}.png": picture(seed=i) for i in range(40)}
    for name, special in tables.items():
        files = {**pictures, "in/labels.csv": special}
        yield Case(
            "command", f"init on a folder whose table is {name}", ("init", "out/p.yaml", "--data", "in"), files
        )
    for name in (ESCAPE, "a\nb: c", "#", "'", "%", "\u2028"):
        files = {f"in/{name}/{i}.png": picture(seed=i) for i in range(20)} | image_folder(20)
        yield Case("command", f"init on a class named {name!r}", ("init", "out/p.yaml", "--data", "in"), files)
        files = {f"{name}/{file[3:]}": data for file, data in image_folder(40).items()}
        yield Case("command", f"init on a folder named {name!r}", ("init", "out/p.yaml", "--data", name), files)


def _names(material: Material) -> Iterator[Case]:
    """Arguments that are no UTF-8, or that a terminal would act on."""
    for name in ("\udcff", ESCAPE, "a\nb", "<script>", "-", "%s{0}"):
        record = {f"{name}/record.json": as_json(material.record)}
        for form in ("html", "sarif", "junit", "csv"):
            args = ("report", f"./{name}", "-o", "out/page", "--format", form)
            yield Case("command", f"report on a folder named {name!r} as {form}", args, record)
        yield Case("command", f"compare {name!r}", ("compare", f"./{name}", f"./{name}", "-o", "out/page"), record)
        yield Case("command", f"verify {name!r}", ("verify", f"./{name}"), record)
        strict = ("--policy", "configs/policies/strict.yaml")
        yield Case("command", f"check {name!r}", ("check", f"./{name}", *strict), record)
        plan = {f"{name}.yaml": as_yaml(PLAN)}
        yield Case("command", f"a plan named {name!r}", ("run", f"./{name}.yaml", "-o", "out", "--quiet"), plan)
        sent = {f"{name}/{file}": data for file, data in material.messages.items()}
        manifest = {f"{name}/transcript.json": as_json(material.transcript)}
        args = ("audit", f"./{name}", "-o", "out", "--quiet")
        yield Case("command", f"a transcript named {name!r}", args, {**sent, **manifest})
        for key in ("name", "data.path", "methods.0.fedcgs.label", "backbone.weights", name):
            args = ("run", "plan.yaml", "-o", "out", "--quiet", "--set", f'{key}="{name}"')
            yield Case("command", f"--set {key}={name!r}", args, {"plan.yaml": as_yaml(PLAN)})
        for command in (("list", "methods", name), ("validate", "plan", name), ("run", name), ("report", name)):
            yield Case("command", f"{command[0]} {name!r}", command, {})
