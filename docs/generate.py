"""Pages that are made from the code: one a method, attack, audit, data set and backbone; command line; API.

A hook of mkdocs (mkdocs.yml). What a component says of itself stands in the docstring of its module and in the
comments of its parameters, where it cannot fall behind the code; so the pages are made of these, by reading the
source. Hand-written pages are picked up where they are.
"""

from __future__ import annotations

import ast
import inspect
import re
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import click
import yaml
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from fedassay.cli import cli
from fedassay.registry import Entry, entries, lookup

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PACKAGE = ROOT / "src" / "fedassay"

KINDS = {
    "method": ("methods", "What clients send, and how the server learns from it."),
    "attack": ("attacks", "What an adversary does with what it sees."),
    "audit": ("audits", "Verdicts: what was found, beside a leak that must be found and one that must not."),
    "dataset": ("datasets", "What `data.name` can be."),
    "backbone": ("backbones", "What `backbone.name` can be, beside torchvision's own names."),
}
FIRST = [
    {"Home": "index.md"},
    {"Tutorial": "tutorial.md"},
    {
        "How to": [
            {"Audit messages of your own system": "howto/audit-messages.md"},
            {"Record a Flower app": "howto/flower.md"},
            {"Use your own images": "howto/own-images.md"},
            {"Gate a deployment in CI": "howto/gate-ci.md"},
            {"Add an attack": "howto/add-attack.md"},
            {"Add a method": "howto/add-method.md"},
        ]
    },
    {"Threat models": "threat-models.md"},
    {"Reading a report": "reading-a-report.md"},
]
FORMATS = [
    {"Command line": "command-line.md"},
    {"Plans": "plans.md"},
    {"Policies": "policy.md"},
    {"Transcripts": "transcript.md"},
]
API = (
    "transcript",
    "release",
    "threat",
    "lab",
    "task",
    "record",
    "config",
    "scenario",
    "registry",
    "runner",
    "captured",
    "flower",
    "vectors",
    "privacy.ledger",
    "privacy.accounting",
    "privacy.gaussian",
    "privacy.sensitivities",
    "privacy.adjacency",
    "similarity.ssim",
    "similarity.psnr",
    "similarity.search",
    "seeds",
    "errors",
)
"""Modules of the corridor that those who add components, or use fedassay from Python, meet."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Lay out the navigation: fixed pages, one section a kind, every other page that somebody wrote."""
    written = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    sections = [
        {folder.capitalize(): [f"{folder}/index.md", *({e.name: f"{folder}/{e.name}.md"} for e in _all(kind))]}
        for kind, (folder, _) in KINDS.items()
    ]
    fixed = {page for page in written if page in _pages([*FIRST, *FORMATS])}
    others = [{_title(DOCS / page): page} for page in sorted(written - fixed)]
    notes = [{"Results and derivations": others}] if others else []
    api: list[Any] = ["api/index.md", *({name: f"api/{name}.md"} for name in API if _source(name))]
    config.nav = [*FIRST, *sections, {"Formats": FORMATS}, *notes, {"API": api}]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from the code."""
    pages = {"command-line.md": _command_line(), "plans.md": _plans(), "api/index.md": _api_index()}
    for kind, (folder, about) in KINDS.items():
        pages[f"{folder}/index.md"] = _index(kind, folder, about)
        for entry in _all(kind):
            pages[f"{folder}/{entry.name}.md"] = _component(kind, entry)
    for name in API:
        if _source(name):
            pages[f"api/{name}.md"] = f"# fedassay.{name}\n\n::: fedassay.{name}\n"
    for name, content in pages.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_post_page(output: str, page: object, config: MkDocsConfig) -> str:
    """Take out the one script that the theme would fetch from elsewhere."""
    return _self_contained(output)


def on_post_template(output_content: str, template_name: str, config: MkDocsConfig) -> str:
    """The same for pages that are no pages (404)."""
    return _self_contained(output_content)


def _self_contained(html: str) -> str:
    return re.sub(r"<script[^>]*src=[\"']?https?://[^>]*></script>", "", html)


def _all(kind: str) -> list[Entry]:
    return [entry for entry in entries(kind).values() if entry.module.startswith("fedassay.")]  # type: ignore[arg-type]


def _pages(nav: list[Any]) -> set[str]:
    found: set[str] = set()
    for entry in nav:
        for target in entry.values():
            found |= _pages(target) if isinstance(target, list) else {target}
    return found


def _title(page: Path) -> str:
    head = next((line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("# ")), "")
    return head.removeprefix("# ") or page.stem


def _source(name: str) -> Path | None:
    path = PACKAGE / f"{name.replace('.', '/')}.py"
    return path if path.is_file() else None


def _index(kind: str, folder: str, about: str) -> str:
    rows = "\n".join(f"| [`{entry.name}`]({entry.name}.md) | {_cell(entry.summary)} |" for entry in _all(kind))
    more = "\n\nAny of torchvision's classification models can be named as well." if kind == "backbone" else ""
    return f"# {folder.capitalize()}\n\n{about}\n\n| name | |\n|---|---|\n{rows}{more}\n"


def _component(kind: str, entry: Entry) -> str:
    """Everything that the source of a component says of it."""
    path = PACKAGE / Path(*entry.module.split(".")[1:]).with_suffix(".py")
    path = path if path.is_file() else PACKAGE / Path(*entry.module.split(".")[1:]) / "__init__.py"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    node = next(
        item
        for item in tree.body
        if isinstance(item, ast.ClassDef | ast.FunctionDef)
        and any(isinstance(part, ast.Call) and _registers(part, entry.name) for part in item.decorator_list)
    )
    own = (ast.get_docstring(node) or "").partition("\n")[2].strip()
    own = re.sub(r"^Attributes:\n(?:    .*\n|\n)*(?:    .*)?", "", own, flags=re.MULTILINE).strip()
    own = re.sub(r"^(Args|Returns|Raises):", r"*\1*:", own, flags=re.MULTILINE)
    table = _parameters(kind, entry.name)
    parts = [f"# {entry.name}", entry.summary, _prose(own), _prose(ast.get_docstring(tree) or "")]
    if table:
        parts += ["## Parameters", "Keys of its entry in a plan.", table]
    if kind == "attack":
        reads = [audit.name for audit in _all("audit") if _reads(audit, entry.name)]
        if reads:
            parts.append("Read by " + ", ".join(f"[`{name}`](../audits/{name}.md)" for name in reads) + ".")
    plans = _plans_with(kind, entry.name)
    if plans:
        parts += ["## Plans that ship with it", "\n".join(f"- `{plan}`" for plan in plans)]
    written = [page for page in (f"{entry.name}.md",) if (DOCS / page).is_file()]
    parts += [f"More on it: [{_title(DOCS / page)}](../{page})." for page in written]
    shown = path.relative_to(PACKAGE).as_posix()
    parts.append(
        f"Source: `{shown if shown.partition('/')[0] in {'methods', 'attacks', 'audits'} else path.name}`"
    )
    return "\n\n".join(part for part in parts if part) + "\n"


def _registers(call: ast.Call, name: str) -> bool:
    return (
        isinstance(call.func, ast.Name)
        and call.func.id == "register"
        and any(isinstance(argument, ast.Constant) and argument.value == name for argument in call.args)
    )


def _prose(docstring: str) -> str:
    """A docstring as Markdown: indented lines outside lists are code, the rest stands as it is."""
    out, lines = [], docstring.splitlines()
    for number, line in enumerate(lines):
        listed = re.match(r"\s*([-*]|\d+\.) ", line)
        before = lines[number - 1] if number else ""
        if listed and before.strip() and not re.match(r"\s*([-*]|\d+\.) ", before) and not before.startswith(" "):
            out.append("")
        out.append(line)
    return _escaped("\n".join(out))


def _escaped(text: str) -> str:
    """Stars, underscores and brackets of formulas stay what they are; code stays code."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        part if part.startswith("`") else re.sub(r"([_\[\]]|(?<=\S)\*(?=\S))", r"\\\1", part).replace("<", "&lt;")
        for part in parts
    )


def _cell(text: str) -> str:
    return " ".join(_escaped(text).split()).replace("|", "\\|")


def _parameters(kind: str, name: str) -> str:
    """Fields, inherited ones too, with their types, defaults, bounds and what the source says of them."""
    model = lookup(kind, name)  # type: ignore[arg-type]
    fields = getattr(model, "model_fields", {})
    texts: dict[str, str] = {}
    for owner in reversed(model.__mro__ if isinstance(model, type) else ()):
        if owner.__module__.startswith("fedassay."):
            texts |= _texts(owner)
    rows = []
    for key, about in fields.items():
        limits = [
            f"{sign} {getattr(item, attribute):g}"
            for item in about.metadata
            for attribute, sign in (("gt", ">"), ("ge", "≥"), ("lt", "<"), ("le", "≤"))
            if getattr(item, attribute, None) is not None
        ]
        shown = _code(_type(about.annotation)) + "".join(f", {limit}" for limit in limits)
        default = "" if about.is_required() else _code(repr(about.get_default(call_default_factory=True)))
        rows.append(f"| `{key}` | {shown} | {default} | {_cell(texts.get(key, ''))} |")
    return "\n".join(["| key | type | default | |", "|---|---|---|---|", *rows]) if rows else ""


def _texts(owner: type) -> dict[str, str]:
    """What stands below each field of a class, or beside its name under `Attributes:`."""
    node = ast.parse(inspect.getsource(owner)).body[0]
    assert isinstance(node, ast.ClassDef)
    found = {}
    listed = re.search(r"^Attributes:\n(.*?)(?:\n\S|\Z)", ast.get_docstring(node) or "", re.DOTALL | re.MULTILINE)
    for entry in re.finditer(
        r"^    (\w+): (.*?)(?=^    \w+: |\Z)", listed[1] if listed else "", re.DOTALL | re.MULTILINE
    ):
        found[entry[1]] = " ".join(entry[2].split())
    for item, after in pairwise(node.body):
        said = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and said:
            found[item.target.id] = str(after.value.value)  # type: ignore[union-attr, attr-defined]
    return found


def _type(annotation: Any) -> str:
    """A type as a reader needs it: no modules, no bounds (they stand beside it)."""
    if isinstance(annotation, type) and not get_args(annotation):
        return annotation.__name__
    text = re.sub(r"<class '([^']*)'>", r"\1", str(annotation))
    text = re.sub(r"typing\.|(?:fedassay|pydantic)(?:\.\w+)*\.", "", text)
    text = re.sub(r"Annotated\[(\w+), .*?\)(?:\])", r"\1", text)
    return text.replace("NoneType", "None").replace(" | ", " or ")


def _code(text: str) -> str:
    # A bar would end the cell of a table, even in code.
    return f"`{text}`".replace("|", "/")


def _reads(audit: Entry, attack: str) -> bool:
    path = PACKAGE / Path(*audit.module.split(".")[1:]).with_suffix(".py")
    found = re.search(r"reads: ClassVar\[[^=]*=\s*(\([^)]*\)|None)", path.read_text(encoding="utf-8"))
    return found is not None and f'"{attack}"' in found.group(1)


def _plans_with(kind: str, name: str) -> list[str]:
    found = []
    for path in sorted((ROOT / "configs").rglob("*.yaml")):
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        if kind in {"dataset", "backbone"}:
            named = {(content.get({"dataset": "data"}.get(kind, kind)) or {}).get("name")}
        else:
            listed = content.get(f"{kind}s") or []
            named = {key for item in listed for key in (item if isinstance(item, dict) else [item])}
        if name in named:
            found.append(f"configs/{path.relative_to(ROOT / 'configs').as_posix()}")
    return found


def _command_line() -> str:
    """Every command's own help."""
    parts = [
        "# Command line",
        "Exit codes: 0 done, 1 something in the work failed, 2 a plan, file or option is wrong.",
    ]
    parts.append("`check` has its own: 0 pass, 1 policy broken, 2 could not decide.")

    def add(command: click.Command, path: str) -> None:
        context = click.Context(command, info_name=path)
        parts.append(f"## {path}\n\n```text\n{command.get_help(context)}\n```")
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                add(command.commands[name], f"{path} {name}")

    add(cli, "fedassay")
    return "\n\n".join(parts) + "\n"


def _plans() -> str:
    """The starting plan, and every section's keys from its model."""
    starter = (PACKAGE / "starter.yaml").read_text(encoding="utf-8")
    parts = [
        "# Plans",
        "A plan says what is run: data, clients, backbone, what is asked of privacy, who the adversary is, and "
        "the methods, attacks and audits. Unknown keys are refused by name. `fedassay init` writes this one:",
        f"```yaml\n{starter}```",
        "## Every key",
        "`path`, `weights` and `trunk` are absolute, or beside the plan, or under `FEDASSAY_DATA`, or under "
        "`FEDASSAY_WEIGHTS`. Method entries take `label`, `epsilon`, `delta` and `adjacency` beside their own "
        "parameters. `--set a.b=c` overrides a key from the command line.",
    ]
    config, threat = import_module("fedassay.config"), import_module("fedassay.threat")
    for key, model in (
        ("", config.Plan),
        ("data", config.DataSpec),
        ("data.split", config.Split),
        ("data.attacker_from", config.AttackerData),
        ("clients", config.ClientsSpec),
        ("backbone", config.BackboneSpec),
        ("similarity.lpips", config.LpipsSpec),
        ("privacy", config.PrivacySpec),
        ("threat", threat.ThreatModel),
    ):
        rows, texts = [], _texts(model)
        for name, about in model.model_fields.items():
            section = re.search(r"Spec|ThreatModel|Split|AttackerData", str(about.annotation))
            shown = "a section" if section else _code(_type(about.annotation))
            default = "" if section or about.is_required() else _code(repr(about.default))
            rows.append(f"| `{name}` | {shown} | {default} | {_cell(texts.get(name, ''))} |")
        parts.append(
            f"### {key or 'Top level'}\n\n| key | type | default | |\n|---|---|---|---|\n" + "\n".join(rows)
        )
    return "\n\n".join(parts) + "\n"


def _api_index() -> str:
    rows = []
    for name in API:
        path = _source(name)
        if path:
            summary = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n\n")[0]
            rows.append(f"| [`fedassay.{name}`]({name}.md) | {_cell(summary)} |")
    return "# API\n\nMade from the docstrings.\n\n| module | |\n|---|---|\n" + "\n".join(rows) + "\n"
