"""JSON schemas of what users write, for editors and other programs, with the components of other packages.

Made from the models that check plans, with the words that `fedassay list` prints.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue, models_json_schema
from pydantic_core import core_schema

from fedassay.contracts.registry import ComponentKind, declared
from fedassay.plan.keys import described
from fedassay.plan.schema import RESERVED, STANDARD, Plan, PrivacySpec
from fedassay.support.errors import PlanError
from fedassay.support.registry import entries
from fedassay.support.types import Parameters, refuse_truth

_KINDS: tuple[tuple[ComponentKind, str], ...] = (("method", "methods"), ("attack", "attacks"), ("audit", "audits"))


class DescribedSchema(GenerateJsonSchema):
    """Pydantic's generator, with the words that stand under `Attributes:` as descriptions."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """The schema of one model."""
        made = super().model_schema(schema)
        model: type[BaseModel] = schema["cls"]
        for name, words in described(model).items():
            key = model.model_fields[name].alias or name
            made["properties"][key]["description"] = words
        return made

    def function_before_schema(self, schema: core_schema.BeforeValidatorFunctionSchema) -> JsonSchemaValue:
        """Allow one value for a list of one, and a name for its section, where lists are read before checks."""
        made = super().function_before_schema(schema)
        check: Any = schema["function"]["function"]
        if made.get("type") != "array" or getattr(check, "__func__", check) is refuse_truth:
            return made
        one = made["items"]
        if "$ref" in one:
            one = {"anyOf": [one, {"type": "string"}]}
        return {"anyOf": [{**made, "items": one}, one]}


def plan_schema() -> dict[str, Any]:
    """The JSON schema of a plan file, the parameters of every component that can be used among it."""
    found: dict[str, dict[str, type[BaseModel]]] = {key: {} for _, key in _KINDS}
    for kind, key in _KINDS:
        for name in entries(kind):
            try:
                found[key][name] = declared(kind, name).component
            except PlanError:
                continue  # another package's, and broken; the command says so
    mode: JsonSchemaMode = "validation"
    models: list[type[BaseModel]] = [Plan, PrivacySpec, _Label]
    models += [model for named in found.values() for model in named.values()]
    refs, definitions = models_json_schema([(model, mode) for model in models], schema_generator=DescribedSchema)
    parts: dict[str, Any] = definitions["$defs"]

    def properties(model: type[BaseModel]) -> dict[str, Any]:
        held: dict[str, Any] = parts[_name(refs[model, mode])]["properties"]
        return held

    # The keys of an entry that every method takes stand beside its own; a method may also be a section of another.
    reserved = {**properties(_Label), **properties(PrivacySpec)}
    assert set(reserved) == set(RESERVED)
    whole = parts.pop(_name(refs[Plan, mode]))
    for _, key in _KINDS:
        references: dict[str, JsonSchemaValue] = {}
        for name, model in found[key].items():
            own = parts[_name(refs[model, mode])]
            if key == "methods":
                own = {**own, "properties": {**own["properties"], **_beside(reserved, own["properties"])}}
            parts[f"{key}.{name}"] = own
            references[name] = {"$ref": f"#/$defs/{key}.{name}"}
        listed = {**whole["properties"][key], "items": _entry(references)}
        whole["properties"][key] = listed if key == "methods" else _or_standard(listed)
    seeds = whole["properties"]["seeds"]
    words = {key: seeds.pop(key) for key in ("default", "description", "title") if key in seeds}
    whole["properties"]["seeds"] = {**words, "anyOf": [seeds, {"type": "integer"}, {"type": "null"}]}
    return {"$schema": DescribedSchema.schema_dialect, **whole, "$defs": parts}


def _beside(reserved: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """The keys of every entry; one that is a method's own too takes the values of both, and has its words."""
    return {
        key: {"anyOf": [value, own[key]], "description": own[key]["description"]} if key in own else value
        for key, value in reserved.items()
    }


class _Label(Parameters):
    """Keys of an entry of `methods` beside its parameters and its privacy."""

    label: str | None = None
    """Names the entry in the report, where no other may have the name."""


def _or_standard(listed: dict[str, Any]) -> dict[str, Any]:
    """A list of components that may begin with `standard`, or that word alone."""
    words: dict[str, Any] = {key: listed[key] for key in ("default", "description", "title") if key in listed}
    whole = {key: value for key, value in listed.items() if key not in words}
    first: dict[str, Any] = {"anyOf": [{"const": STANDARD}, whole["items"]]}
    return {**words, "anyOf": [{**whole, "prefixItems": [first]}, {"const": STANDARD}]}


def _entry(models: dict[str, JsonSchemaValue]) -> dict[str, Any]:
    """One entry of a list of components: a name, or a name with its parameters."""
    named = {name: {"anyOf": [reference, {"type": "null"}]} for name, reference in models.items()}
    mapping = {
        "type": "object",
        "properties": named,
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    }
    return {"anyOf": [{"enum": list(models)}, mapping]}


def _name(reference: JsonSchemaValue) -> str:
    return str(reference["$ref"]).rpartition("/")[2]
