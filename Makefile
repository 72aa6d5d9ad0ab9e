# Everything below needs Python 3.11 or newer (PYTHON=… chooses one), pip and make; the rest goes into .venv.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: run test test-slow bench bench-posterior lint format clean

run: .venv/run.done
	$(BIN)/svrhmc compare --plot compare.png

test: lint
	$(BIN)/python -m pytest -n 2 --dist worksteal --cov --cov-report=term

test-slow: .venv/test.done
	$(BIN)/python -m pytest -m slow

bench: .venv/bench.done
	$(BIN)/python benchmarks/bench.py
	$(BIN)/python benchmarks/posterior.py --only nuts

# ARGS="--covtype FILE --data DIR --reference FILE" for what does not come with the packages
bench-posterior: .venv/bench.done
	$(BIN)/python benchmarks/posterior.py $(ARGS)

lint: .venv/test.done
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: .venv/test.done
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:
	rm -rf .venv

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "svrhmc needs Python 3.11 or newer; try: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv .venv

.venv/run.done: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[cli,plot]'
	@touch $@

.venv/bench.done: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	@touch $@

.venv/test.done: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@ .venv/run.done
