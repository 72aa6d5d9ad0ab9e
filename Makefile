# Everything below needs Python 3.11 or newer (PYTHON=… chooses one), pip and make; the rest goes into .venv.
PYTHON ?= python3
BIN := .venv/bin
# Bytecode is kept, whatever the shell says: else each process that a test starts compiles the whole package anew
export PYTHONDONTWRITEBYTECODE :=

.PHONY: run test quick test-slow test-models matrix bench bench-posterior bench-posteriordb docs release lint format clean

run: .venv/run.done
	$(BIN)/svrhmc fit
	$(BIN)/svrhmc compare-samplers --plot compare.png

# Two processes, so one thread of linear algebra in each: more would wait for each other
test: lint
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal --cov --cov-report=term

# A minute or two: the shape of the code, paths, laws of a few cells, and what outsiders may add
quick: .venv/test.done
	$(BIN)/ruff check
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -q tests/test_structure.py tests/test_chain_state.py tests/test_stored_draws.py tests/test_extensions.py \
		tests/test_gradients.py tests/test_dynamics.py tests/test_trace.py

test-slow: .venv/test.done
	$(BIN)/python -m pytest -m slow

# Models of NumPyro, PyMC and Bambi, in an environment of its own in build/models, as PyMC brings much with it
test-models:
	$(PYTHON) -m venv build/models
	build/models/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,models]'
	for tests in tests/test_models.py tests/test_models_numpyro.py tests/test_models_pymc.py tests/test_models_bambi.py \
		"tests/test_public_names.py::test_the_examples_of_the_pages_run[docs/models.md]"; do \
		build/models/bin/python -m pytest -m "slow or not slow" "$$tests" || exit 1; done

# The quick tests with the oldest and the newest dependencies on Python 3.11 to 3.13, each in an environment of its own
# in build/matrix. ARGS="--python 3.12 --only oldest tests" chooses
matrix:
	$(PYTHON) tools/matrix.py $(ARGS)

bench: .venv/bench.done
	$(BIN)/python benchmarks/bench.py
	$(BIN)/python benchmarks/posterior.py --only nuts

# ARGS="--covtype FILE --data DIR --reference FILE" for what does not come with the packages
bench-posterior: .venv/bench.done
	$(BIN)/python benchmarks/posterior.py $(ARGS)
	$(BIN)/python benchmarks/holdout.py --out benchmarks/results
	$(BIN)/python benchmarks/references.py
	$(BIN)/python benchmarks/honesty.py
	$(BIN)/python benchmarks/calibration.py

# posteriordb's posteriors beside their reference draws: ARGS="--folder DIR --seeds 0,1,2 --workers 8 --nuts"; without --nuts in a fraction of the time
bench-posteriordb: .venv/bench.done
	$(BIN)/python benchmarks/posteriordb.py $(ARGS)

# The documentation site, in site/: index.html is its first page. A warning or a link that leads nowhere is an error
docs: .venv/docs.done
	$(BIN)/python tools/site.py
	$(BIN)/zensical build --clean --strict
	$(BIN)/python tools/site.py --check

# A release as a dry run: fails where version, changelog, tag and pages disagree, and builds sdist and wheel in dist/
release: | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check build twine
	$(BIN)/python tools/release.py

lint: .venv/test.done
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: .venv/test.done
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:
	rm -rf .venv build site

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "svrhmc needs Python 3.11 or newer; try: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv .venv

.venv/run.done: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[arviz,cli,formula,plot]'
	@touch $@

.venv/bench.done: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	@touch $@

.venv/docs.done: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

.venv/test.done: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@ .venv/run.done
