"""The published JSON Schema of record.json is the one that the code has."""

from __future__ import annotations

import json
from pathlib import Path

from fedassay.records.record import RunRecord

PUBLISHED = Path(__file__).resolve().parents[2] / "docs" / "record.schema.json"


def test_the_published_schema_is_current() -> None:
    current = RunRecord.model_json_schema(by_alias=True, mode="serialization")
    assert json.loads(PUBLISHED.read_text()) == current, "write docs/record.schema.json anew: make schema"
