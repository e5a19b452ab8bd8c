"""Pages that are made from the code: one a method, attack, audit, data set and backbone; command line; API.

A hook of mkdocs (mkdocs.yml). What a component says of itself stands in the docstring of its module and in the
comments of its parameters, where it cannot fall behind the code; so the pages are made of these, by reading the
source. Hand-written pages are picked up where they are.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import click
import yaml
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pydantic import BaseModel

from fedassay.cli import cli
from fedassay.plan.keys import SECTION, Key, entry_keys, every_key, keys
from fedassay.plan.schema import Plan
from fedassay.support.registry import RegistryEntry, entries, lookup

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
ENTRIES = ("method", "attack", "audit")
"""Kinds whose entries in a plan have keys of their own."""
FIRST = [
    {"Home": "index.md"},
    {"Tutorial": "tutorial.md"},
    {"From Python": "python.md"},
    {
        "How to": [
            {"Audit a file that a system left": "howto/audit-a-file.md"},
            {"Audit messages of your own system": "howto/audit-messages.md"},
            {"Record a Flower app": "howto/flower.md"},
            {"Record any training loop": "howto/record.md"},
            {"Use your own images": "howto/own-images.md"},
            {"Compare methods over epsilon": "howto/compare-methods.md"},
            {"Gate a deployment in CI": "howto/gate-ci.md"},
            {"Run large plans": "howto/large-runs.md"},
            {"Add an attack": "howto/add-attack.md"},
            {"Add a method": "howto/add-method.md"},
            {"Add an audit": "howto/add-audit.md"},
            {"Add a data set": "howto/add-dataset.md"},
            {"Add a backbone": "howto/add-backbone.md"},
        ]
    },
    {"Threat models": "threat-models.md"},
    {"Whose privacy": "units.md"},
    {"Reading a report": "reading-a-report.md"},
    {"Gallery of reports": "gallery.md"},
    {"Glossary": "glossary.md"},
    {"How this compares": "compared.md"},
]
FORMATS = [
    {"Command line": "command-line.md"},
    {"Every plan that ships": "plans.md"},
    {"Keys of a plan": "plan-keys.md"},
    {"Policies": "policy.md"},
    {"Transcripts": "transcript.md"},
]
API = (
    "api.calls",
    "api.run",
    "api.comparison",
    "api.similarity",
    "api.membership",
    "recorders.plain",
    "contracts.attack",
    "contracts.audit",
    "contracts.facts",
    "contracts.method",
    "contracts.registry",
    "exchange.release",
    "exchange.ledger",
    "exchange.message",
    "exchange.feature_sources",
    "exchange.view",
    "exchange.transcript",
    "execution.captured",
    "execution.runner",
    "plan.resolve",
    "plan.schema",
    "privacy.accounting",
    "privacy.loss_distributions",
    "privacy.gaussian",
    "privacy.sensitivities",
    "recorders.flower",
    "records.record",
    "similarity.ssim",
    "similarity.ssim_search",
    "support.registry",
    "support.errors",
    "support.adjacency",
    "support.seeds",
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
    pages = {"command-line.md": _command_line(), "plan-keys.md": _plans(), "api/index.md": _api_index()}
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


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Let every page show what a term of this house means where the pointer rests on it."""
    if page.file.src_uri == "glossary.md":
        return markdown
    return markdown + "".join(f"\n*[{term}]: {meaning}" for term, meaning in sorted(house_words().items()))


@cache
def house_words() -> dict[str, str]:
    """What each term of several words in the second table of docs/glossary.md means; one word may mean another."""
    _, _, house = (DOCS / "glossary.md").read_text(encoding="utf-8").partition("## Words of this house")
    rows = re.findall(r"^\| ([a-z-]+(?: [a-z-]+)+) \| (.+) \|$", house, re.MULTILINE)
    found = {term: re.sub(r"[`*]", "", meaning) for term, meaning in rows}
    return found | {f"{term}s": meaning for term, meaning in found.items() if not term.endswith("s")}


def on_post_page(output: str, page: object, config: MkDocsConfig) -> str:
    """Take out the one script that the theme would fetch from elsewhere."""
    return _self_contained(output)


def on_post_template(output_content: str, template_name: str, config: MkDocsConfig) -> str:
    """The same for pages that are no pages (404)."""
    return _self_contained(output_content)


def _self_contained(html: str) -> str:
    return re.sub(r"<script[^>]*src=[\"']?https?://[^>]*></script>", "", html)


def _all(kind: str) -> list[RegistryEntry]:
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


def _component(kind: str, entry: RegistryEntry) -> str:
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
    component = lookup(kind, entry.name)  # type: ignore[arg-type]
    table = _table(keys(component), "../plan-keys.md") if kind in ENTRIES else ""
    parts = [f"# {entry.name}", entry.summary, _prose(own), _prose(ast.get_docstring(tree) or "")]
    if table:
        more = " Every method's entry takes [some more](../plan-keys.md#methods)." if kind == "method" else ""
        parts += ["## Parameters", f"Keys of its entry in a plan.{more}", table]
    if kind == "attack":
        reads = [audit.name for audit in _all("audit") if _reads(audit, entry.name)]
        if reads:
            parts.append("Read by " + ", ".join(f"[`{name}`](../audits/{name}.md)" for name in reads) + ".")
    plans = _plans_with(kind, entry.name)
    if plans:
        parts += ["## Plans that ship with it", "\n".join(f"- `{plan}`" for plan in plans)]
    pages = (f"{entry.name}_attack.md", f"{entry.name}.md")
    written = [page for page in pages if (DOCS / page).is_file()][:1]
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


def _table(rows: Iterable[Key], page: str = "") -> str:
    """Keys with their types, defaults and what is said of them; sections are links into `page`."""
    lines = [f"| `{key.name}` | {_kind(key, page)} | {_default(key)} | {_cell(key.about)} |" for key in rows]
    head = "| key | type | default | what it does |\n|---|---|---|---|\n"
    return f'<div class="keys" markdown>\n\n{head}' + "\n".join(lines) + "\n\n</div>" if lines else ""


def _kind(key: Key, page: str) -> str:
    text = key.allowed.replace("<", "&lt;")
    text = re.sub(
        r"(?<=one of )[\w.]+( \| [\w.]+)+", lambda found: f"`{found[0]}`".replace(" | ", "` \\| `"), text
    )
    # A bound does not break.
    text = re.sub(r"(?<= in )(\S+), ", r"\1,&nbsp;", text)
    text = re.sub(r"(>=?|&lt;=?) (?=\d)", r"\1&nbsp;", text)
    text = re.sub(r"\b(null|\.inf)|(?<= )\.inf", lambda found: f"`{found[0]}`", text)
    if key.allowed == "list of: entry":
        return f"list of [entries]({page}#{key.name})"
    return text.replace(SECTION, f"[section]({page}#{_places()[key.sections[0]]})") if key.sections else text


def _default(key: Key) -> str:
    return "required" if key.default is None else f"`{key.default}`".replace("|", "\\|")


@cache
def _places() -> dict[type[BaseModel], str]:
    """Where the page of plan keys has the table of each model: an anchor."""
    found: dict[type[BaseModel], str] = {section: path.replace(".", "-") for path, section in _plan_sections()}
    for kind in ENTRIES:
        found |= {lookup(kind, entry.name): f"{kind}-{entry.name}" for entry in _all(kind)}  # type: ignore[arg-type]
    for section in _shared():
        found.setdefault(section, section.__name__.lower())
    return found


def _plan_sections() -> list[tuple[str, type[BaseModel]]]:
    """The plan's own sections by their paths, in the order of its keys."""
    return [(key.name, section) for key in every_key(Plan) for section in key.sections]


@cache
def _shared() -> dict[type[BaseModel], list[str]]:
    """Sections of entries, each with the places where it stands."""
    found: dict[type[BaseModel], list[str]] = {}
    for kind in ENTRIES:
        for entry in _all(kind):
            component = lookup(kind, entry.name)  # type: ignore[arg-type]
            for key in every_key(component):
                for section in key.sections:
                    found.setdefault(section, []).append(f"[{entry.name}](#{kind}-{entry.name}) `{key.name}`")
    return found


def _reads(audit: RegistryEntry, attack: str) -> bool:
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
    """The starting plan, and every key: the plan's own, those of what it lists, those of sections of these."""
    starter = (PACKAGE / "starter.yaml").read_text(encoding="utf-8")
    parts = [
        "# Keys of a plan",
        "A plan says what is run: data, clients, backbone, what is asked of privacy, who the adversary is, and "
        "the methods, attacks and audits. Unknown keys are refused by name. `fedassay init` writes this one:",
        f"```yaml\n{starter}```",
        "`path`, `weights` and `trunk` are absolute, or beside the plan, or under `FEDASSAY_DATA`, or under "
        "`FEDASSAY_WEIGHTS`. `--set a.b=c` overrides a key from the command line. "
        "A section whose default is `{}` has its own keys' defaults.",
        "## Keys of the whole plan",
        _table(keys(Plan)),
    ]
    for path, section in _plan_sections():
        parts += [_heading("###", path, _places()[section]), _table(keys(section))]
    for kind in ENTRIES:
        folder, about = KINDS[kind]
        parts += [_heading("##", folder.capitalize(), folder), _entry_note(kind, about)]
        if kind == "method":
            parts += ["Every entry takes these beside its own:", _table(entry_keys())]
        for entry in _all(kind):
            component = lookup(kind, entry.name)  # type: ignore[arg-type]
            parts += [
                _heading("###", entry.name, _places()[component]),
                f"{_cell(entry.summary)} [More]({folder}/{entry.name}.md).",
                _table(keys(component)) or "No keys.",
            ]
    parts += ["## Sections of entries", "An entry's key whose type is a section holds the keys of one of these."]
    for section, places in _shared().items():
        if _places()[section] == section.__name__.lower():
            summary = (section.__doc__ or "").partition("\n")[0]
            parts += [_heading("###", section.__name__, _places()[section]), _cell(summary)]
            parts += [f"Stands in: {', '.join(places)}.", _table(keys(section))]
    return "\n\n".join(parts) + "\n"


def _entry_note(kind: str, about: str) -> str:
    return f"{about} On the command line, `fedassay list {KINDS[kind][0]} NAME` prints the keys of one."


def _heading(level: str, title: str, anchor: str) -> str:
    return f"{level} {_escaped(title)} {{#{anchor}}}"


def _api_index() -> str:
    rows = []
    for name in API:
        path = _source(name)
        if path:
            summary = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n\n")[0]
            rows.append(f"| [`fedassay.{name}`]({name}.md) | {_cell(summary)} |")
    return "# API\n\nMade from the docstrings.\n\n| module | |\n|---|---|\n" + "\n".join(rows) + "\n"
