"""Arrays that stand under keys of classes, stacked to one array with a row for each class.

`{"means": {"cat": ..., "dog": ...}}`, `{"0": {"mean": ..., "count": ...}}` and counts by the name of a class have
their rows in one order in all messages, whatever the order of the keys. Where messages speak of different classes,
an array `class_ids` says which of them are in each.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from fedassay.exchange.kinds import called
from fedassay.recorders.files.grouping import Arrays
from fedassay.recorders.files.keys import BY_CLASS, PARTS

Sent = Mapping[tuple[int, str], Arrays]
Keyed = Mapping[tuple[int, str], Sequence[str]]
"""Names of classes by message, in the order of its rows."""
Template = tuple[str, ...]
"""Keys that lead to an array, with `*` for that of a class."""

IDS = "class_ids"
_NUMBER = re.compile(r"(?i)(?:class|label|cls)?[-_ ]?(\d{1,9})")
_BARE = "prototypes"
"""Name of vectors under nothing but numbers, as federated prototypes are sent."""


def by_class(sent: Sent) -> tuple[dict[tuple[int, str], Arrays], Keyed]:
    """Stack what stands under keys of classes; return the messages, and the classes of the rows of each.

    Args:
        sent: The messages by round and sender.
    """
    templates = _templates(sent)
    families: list[set[str]] = []
    for keys in templates.values():
        near = [family for family in families if family & keys]
        families = [family for family in families if not family & keys] + [keys.union(*near)]
    made, keyed = {}, {}
    for key, arrays in sent.items():
        made[key] = dict(arrays)
        held = _held(arrays, templates)
        for family in families:
            own = {template: rows for template, rows in held.items() if rows.keys() <= family}
            vectors = any(arrays[name].ndim for rows in own.values() for name in rows.values())
            order = sorted(_present(arrays, own) if len(families) == 1 else family, key=_place)
            if own and len(families) == 1:
                keyed[key] = order
            for template, rows in own.items():
                _stack(made[key], template, rows, order, counts_alone=not vectors)
    return made, keyed


def with_ids(sent: Sent, keyed: Keyed) -> tuple[dict[tuple[int, str], Arrays], tuple[str, ...]]:
    """Add the classes of its rows to every message where they are not the same in all; return all names as well.

    Args:
        sent: The messages by round and sender.
        keyed: The classes of their rows.
    """
    own = {
        key: names
        for key, names in keyed.items()
        if len(set(names)) == len(names) in {len(array) for array in sent.get(key, {}).values() if array.ndim}
    }
    names = tuple(sorted({name for each in own.values() for name in each}, key=_place))
    if all(tuple(each) == names for each in own.values()):
        return dict(sent), names
    made = dict(sent)
    for key, each in own.items():
        made[key] = {**sent[key], IDS: np.array([names.index(name) for name in each])}
    return made, names


def _templates(sent: Sent) -> dict[Template, set[str]]:
    """Return the templates of arrays by class with the classes of each, in all messages."""
    keys: dict[Template, set[str]] = {}
    shapes: dict[Template, set[tuple[int, ...]]] = {}
    for arrays in sent.values():
        for name, array in arrays.items():
            for template, key in _ways(name):
                keys.setdefault(template, set()).add(key)
                shapes.setdefault(template, set()).add(array.shape)
    # Beside a bias or a kernel stand the running means of a layer, and its number is that of no class.
    layers = {template[: template.index("*")] for template in keys if template[-1] in {"bias", "kernel"}}
    found = {
        template: own
        for template, own in keys.items()
        if len(own) > 1
        and len(shapes[template]) == 1
        and template[: template.index("*")] not in layers
        and _are_classes(template, own, *shapes[template])
    }
    # Beside means of mixtures stand the weights of these, whose name is also that of a network's.
    outer = {template[:-1] for template in found if template[-1] != "*"}
    weights = {template: own for template, own in keys.items() if template[-1] == "weights"}
    return {
        **{each: own for each, own in weights.items() if each[:-1] in outer and len(shapes[each]) == 1},
        **found,
    }


def _ways(name: str) -> Iterator[tuple[Template, str]]:
    """Yield every template of a name with the key that it leaves out, the innermost first."""
    parts = name.split("/")
    for place in reversed(range(len(parts))):
        if not parts[place].startswith("#"):
            yield (*parts[:place], "*", *parts[place + 1 :]), parts[place]


def _are_classes(template: Template, keys: Collection[str], shape: tuple[int, ...]) -> bool:
    """Whether keys are classes: of statistics by class, and of no parts of a network or single features."""
    numbered = all(map(_NUMBER.fullmatch, keys))
    if template == ("*",):
        return numbered and len(shape) == 1
    kinds = {kind for part in template if part != "*" for kind in called(part)} & BY_CLASS
    if "class_counts" in kinds:
        return len(shape) < 2
    return bool(kinds and shape) and (numbered or not any(map(PARTS.search, keys)))


def _held(arrays: Arrays, templates: Collection[Template]) -> dict[Template, dict[str, str]]:
    """Return the names of a message's arrays by class, by template and class; the innermost template counts."""
    held: dict[Template, dict[str, str]] = {}
    for name in arrays:
        found = next(((template, key) for template, key in _ways(name) if template in templates), None)
        if found is not None:
            held.setdefault(found[0], {})[found[1]] = name
    return held


def _stack(
    arrays: Arrays, template: Template, rows: Mapping[str, str], order: Sequence[str], *, counts_alone: bool
) -> None:
    """Replace arrays by class with one of all; they are left where a class has none, except counts alone: 0."""
    name = "/".join(part for part in template if part != "*") or _BARE
    if name in arrays or (set(order) - rows.keys() and not counts_alone):
        return
    none = np.zeros_like(arrays[next(iter(rows.values()))])
    values = [arrays[rows[key]] if key in rows else none for key in order]
    for each in rows.values():
        del arrays[each]
    arrays[name] = np.stack(values)


def _present(arrays: Arrays, held: Mapping[Template, Mapping[str, str]]) -> set[str]:
    """Return the classes of a message; where it has more than counts, a class with the count 0 is none of them."""
    names = [(key, arrays[name]) for rows in held.values() for key, name in rows.items()]
    vectors = any(array.ndim for _, array in names)
    return {key for key, array in names if not vectors or array.any() or array.ndim}


def _place(name: str) -> tuple[int, int, str]:
    """Return a sort key: classes by number, or by name."""
    found = _NUMBER.fullmatch(name)
    return (0, int(found[1]), name) if found else (1, 0, name)
