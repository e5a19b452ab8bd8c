"""Error messages for files of the user, in one sentence: where, what was given, what is allowed.

The models define what is allowed. The wording of the validation library is for programmers, and reaches no user.
The models of this project give no kind of problem but those named here, which a test holds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from fedassay.support.text import cut, shown

_LONGEST_KEY = 200
"""Characters of a path of keys that are shown."""

_WHOLE_FILE = "top level"

# Names of the branches of a union in the location of an error.
_BRANCH = re.compile(r"(constrained-|tuple\[|list\[|dict\[|function-|literal\[|int$|float$|str$|bool$|none$)")


def _bound(value: float) -> str:
    """A bound as a person writes it: 0 and not 0.0."""
    return f"{int(value) if float(value).is_integer() else value:,}"


_NUMBER = "a number"
_WHOLE = "a whole number"
_TRUTH = "true or false"
_TEXT = "text"
_LIST = "a list"
_SECTION = "a section of keys"

_ALLOWED: Mapping[str, str | Callable[[Mapping[str, Any]], str]] = {
    "literal_error": lambda given: str(given["expected"]).replace("'", "").replace(" or ", ", "),
    "greater_than": lambda given: f"a number above {_bound(given['gt'])}",
    "greater_than_equal": lambda given: f"{_bound(given['ge'])} or more",
    "less_than": lambda given: f"a number below {_bound(given['lt'])}",
    "less_than_equal": lambda given: f"{_bound(given['le'])} or less",
    "finite_number": "a finite number",
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_parsing_size": "a smaller whole number",
    "int_from_float": _WHOLE,
    "bool_type": _TRUTH,
    "bool_parsing": _TRUTH,
    "string_type": _TEXT,
    "string_unicode": "text in UTF-8",
    "string_too_short": lambda given: f"text of {given['min_length']:,} or more characters",
    "string_too_long": lambda given: f"text of {given['max_length']:,} characters or less",
    "string_pattern_mismatch": lambda given: f"text of the form {given['pattern']}",
    "none_required": "null",
    "list_type": _LIST,
    "tuple_type": _LIST,
    "set_type": _LIST,
    "too_short": lambda given: f"{given['min_length']:,} or more entries",
    "too_long": lambda given: f"{given['max_length']:,} entries or less",
    "dict_type": _SECTION,
    "mapping_type": _SECTION,
    "model_type": _SECTION,
    "model_attributes_type": _SECTION,
    "union_tag_invalid": lambda given: str(given["expected_tags"]).replace("'", ""),
}
"""The allowed input for each kind of problem, from the facts that the library gives of it."""


def explain(error: ValidationError, model: type[BaseModel] | None, where: str, whole: str = "top level") -> str:
    """Return one message for a validation error: where, what was given, what is allowed.

    Args:
        error: The error of the validation library.
        model: The model of the keys, to name the existing ones; None: they are not named.
        where: Names the file.
        whole: Stands for the key where the whole file is no such document.
    """
    # An unknown key is the likeliest typing mistake; a missing one is often its shadow. Of the branches
    # of a union, the one that got past the type says more.
    problems = sorted(
        error.errors(include_url=False),
        key=lambda item: (item["type"] != "extra_forbidden", item["type"].endswith("_type")),
    )
    problem = problems[0]
    location = [part for part in problem["loc"] if not (isinstance(part, str) and _BRANCH.match(part))]
    # A union's branch may be called like its key.
    location = [
        part for place, part in enumerate(location) if isinstance(part, int) or [part] != location[:place][-1:]
    ]
    if problem["type"] in ("union_tag_invalid", "union_tag_not_found"):
        location.append(str(problem["ctx"]["discriminator"]).strip("'"))
    key = cut(".".join(str(part) for part in location), _LONGEST_KEY) or whole
    words = _said(problem, model, location)
    # A file that is not JSON has no level.
    return (
        f"{where}: {words}"
        if key == _WHOLE_FILE and problem["type"] == "json_invalid"
        else f"{where}: {key}: {words}"
    )


def _said(problem: ErrorDetails, model: type[BaseModel] | None, location: Sequence[Any]) -> str:
    """Return the problem without its location."""
    kind, context = problem["type"], problem.get("ctx", {})
    keys = [] if model is None else _keys_at(model, location[:-1] if kind == "extra_forbidden" else location)
    if kind == "extra_forbidden":
        return f"unknown key; allowed: {', '.join(keys)}" if keys else "unknown key"
    if kind in ("missing", "union_tag_not_found"):
        return "missing; it must be given"
    if kind == "json_invalid":
        return f"not valid JSON: {context['error']}"
    given = problem["input"]
    if kind == "union_tag_invalid":
        given = given.get(location[-1]) if isinstance(given, Mapping) else context["tag"]
    if kind in ("value_error", "assertion_error"):
        message = problem["msg"].partition(", ")[2]
        whole = isinstance(given, dict | list | tuple | BaseModel) or message.startswith("given ")
        return message if whole else f"given {shown(given)}; {message}"
    if (
        kind in ("model_type", "model_attributes_type")
        and keys
        and all(isinstance(part, str) for part in location)
    ):
        return f"given {shown(given)}; allowed: a section with keys {', '.join(keys)}"
    allowed = _ALLOWED.get(kind, problem["msg"].removeprefix("Input should be "))
    return f"given {shown(given)}; allowed: {allowed if isinstance(allowed, str) else allowed(context)}"


def _keys_at(model: type[BaseModel], location: Sequence[str | int]) -> list[str]:
    """The keys of the section at a place of a model; of none where the place is in no section."""
    current = model
    for part in location:
        if str(part).isdigit():
            continue
        field = next(
            (found for name, found in current.model_fields.items() if str(part) in (name, found.alias)), None
        )
        nested = [] if field is None else list(_models(field.annotation))
        if not nested:
            return []
        current = nested[0]
    return [field.alias or name for name, field in current.model_fields.items()]


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The models that an annotation holds, outermost first."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models(part)]
