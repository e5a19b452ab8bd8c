# Two commands for a stranger: `make quickstart` and `make test`. The rest is for contributors.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: quickstart test test-slow test-wheel check format bench clean

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch==$$(sed -n 's/^torch==//p' constraints.txt)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(STAMP)

quickstart: $(STAMP)
	$(BIN)/fedassay run configs/quickstart.yaml --force -o runs/quickstart

test: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

test-slow: $(STAMP)
	$(BIN)/python -m pytest -m slow

test-wheel: $(STAMP)
	$(BIN)/python -m pytest -m wheel

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)
	$(BIN)/python benchmarks/ssim_search.py
	$(BIN)/python benchmarks/memorization_search.py

clean:
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

.PHONY: schema
schema: $(STAMP)
	$(BIN)/python -c "import json; from fedassay.record import RunRecord; print(json.dumps(RunRecord.model_json_schema(by_alias=True, mode='serialization'), indent=1))" > docs/record.schema.json
