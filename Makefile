# Two commands for a stranger: `make quickstart` and `make test`. The rest is for contributors.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# Interpreters that tests start, and the next run, find bytecode and rewritten assertions, whatever the shell says.
TESTED := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest
RUNS := $(VENV)/.runs
STAMP := $(VENV)/.installed

.PHONY: quickstart test test-long test-slow test-wheel test-flower test-mlflow mutants faults check docs format bench bench-full release clean

# What a run needs, and no more.
$(RUNS): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch==$$(sed -n 's/^torch==//p' constraints.txt)
	$(PIP) -e .
	touch $(RUNS)

# The tools of tests and documentation on top of it.
$(STAMP): $(RUNS)
	$(PIP) -e '.[dev,docs,sign]'
	touch $(STAMP)

# The mission: FedPFT, FedCGS, FedLog and FedDiff over epsilon, attacked, on one screen; runs/quickstart/report.html.
quickstart: $(RUNS)
	$(BIN)/fedassay run configs/quickstart.yaml --jobs 2 --force -o runs/quickstart

test: $(STAMP)
	$(TESTED) -n 2 --dist loadfile

# What takes a second and more a test, which `make test` leaves out; CI runs both.
test-long: $(STAMP)
	$(TESTED) -n 2 --dist loadfile -m "long and not slow"

test-slow: $(STAMP)
	$(BIN)/python -m pytest -m slow

test-wheel: $(STAMP)
	$(BIN)/python -m pytest -m wheel

# Flower pins versions of packages that fedassay uses too, so it gets an environment of its own.
test-flower:
	$(PYTHON) -m venv .venv-flower
	.venv-flower/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-flower.txt -e '.[dev,flower-simulation]'
	FLWR_TELEMETRY_ENABLED=0 .venv-flower/bin/python -m pytest tests/recorders/test_flower.py

# MLflow is not needed by anything else, so only this installs it.
test-mlflow: $(STAMP)
	$(PIP) -e '.[mlflow]'
	$(BIN)/python -m pytest tests/api/test_tracking.py

# Breaks the methods one way at a time, in copies of the package, and scores what the audits of claims say of each:
# within 20 minutes on two cores. Fails where a leak is not found, or an honest variation is flagged.
mutants: $(STAMP)
	$(BIN)/python tests/mutants/score.py runs/mutants.json

# Draws faults by seed, audits those that an oracle counts, and writes a sample of them for `make mutants`: hours.
faults: $(STAMP)
	$(BIN)/python tests/mutants/generated/generate.py methods runs/methods.jsonl --number 80 --seed 6
	$(BIN)/python tests/mutants/generated/generate.py attacks runs/attacks.jsonl --number 110 --seed 3
	$(BIN)/python tests/mutants/generated/sample.py runs/methods.jsonl runs/attacks.jsonl

check: $(STAMP) docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The site, without a warning and without the network; mkdocs.yml.
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Every row of the performance table, peers on subsamples: within 15 minutes. runs/bench.json, runs/bench.md.
bench: $(STAMP)
	$(BIN)/python benchmarks/run_all.py

# Every row at its own size: an hour and more.
bench-full: $(STAMP)
	$(BIN)/python benchmarks/run_all.py --full

# The wheel and the sdist of this commit, tried in fresh environments; docs/release.md.
release: $(STAMP)
	$(BIN)/python docs/release.py $(ARGS)

clean:
	rm -rf $(VENV) .venv-flower site build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

# Pins and hashes of everything, from pyproject.toml, and the page of licences; needs uv and an installed locked.txt.
.PHONY: lock
lock: $(STAMP)
	python3 docs/lock.py $(LOCK)
	$(BIN)/python docs/licences.py

# The notebooks, run again from top to bottom, with their outputs.
.PHONY: notebooks
notebooks: $(STAMP)
	$(BIN)/python docs/notebooks.py

# Heads of the papers' plans and the tables of docs/papers.md, from docs/papers/*.yaml.
.PHONY: papers
papers: $(STAMP)
	$(BIN)/python docs/papers.py

.PHONY: schema
schema: $(STAMP)
	$(BIN)/fedassay schema record > docs/record.schema.json
