# `make demo` and `make test` install everything into .venv and change nothing else.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
FUZZ_VENV = .venv-fuzz
LITE_VENV = .venv-lite
SECONDS ?= 60
WORKERS ?= 3
PROVIDER ?= all
PIP = $(VENV)/bin/python -m pip --python $(BIN)/python
# uv installs in a third of the time; pip does it, and reports errors, where uv cannot, such as with a package index that only pip is configured for.
INSTALL = $(VENV)/bin/python -m pip install --quiet --constraint constraints.txt uv && $(VENV)/bin/uv pip install --quiet --python $(BIN)/python $(PINNED) 2>/dev/null || $(PIP) install --quiet $(PINNED)
NBVAL = AGENTLAB_FRONTEND=none $(BIN)/python -m pytest --nbval -p tests.notebooks.answered -p no:cacheprovider --nbval-current-env --override-ini addopts= --timeout 300 notebooks

# As pip does.
export UV_SYSTEM_CERTS = 1

# Dozens of tests start a Python process. If this variable were set, each process would compile agentlab again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: audit beside binder chromium compiled lite lowest versions soak demo lab test test-all test-unit notebooks docs docs-links refresh pictures lint bench peers kernels inspect test-live record-local fixtures fuzz clean

demo: $(VENV)/.lab ## run the quickstart on recorded fixtures: no key, no network
	$(BIN)/python notebooks/demo.py

lab: $(VENV)/.lab ## open the quickstart in JupyterLab
	$(BIN)/jupyter lab $(if $(filter 0,$(shell id -u)),--allow-root) --LabApp.default_url=/lab/tree/notebooks/01_quickstart.ipynb

test: $(VENV)/.dev chromium ## run every test: unit, kernel, browser, notebooks; lint and notebooks run in parallel with the others
	$(MAKE) --no-print-directory --jobs 2 test-all beside

chromium:
	tests/install_chromium

compiled: $(VENV)/.dev # otherwise each worker would rewrite the assertions of all tests
	-$(BIN)/python -m pytest --collect-only -qq > /dev/null # a fault is reported by the run itself

test-all: compiled
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --durations 20

beside: lint
	$(NBVAL)

test-unit: $(VENV)/.dev ## run the tests that need neither a kernel nor a browser nor Pyodide
	$(BIN)/python -m pytest -m "not kernel and not browser and not pyodide and not live and not inspect and not soak"

notebooks: $(VENV)/.dev ## check that the notebooks give their committed outputs
	$(NBVAL)

docs: $(VENV)/.dev ## build the documentation site: open build/docs/index.html
	$(BIN)/python -m sphinx -W --keep-going -n -q -c docs -d build/doctrees . build/docs

docs-links: $(VENV)/.dev ## check the external links in the documentation (needs a network); `make test` checks the internal ones
	$(BIN)/python -m sphinx -b linkcheck -q -D suppress_warnings=mystnb.mime_priority,misc.highlighting_failure -c docs -d build/doctrees . build/links

refresh: $(VENV)/.dev ## execute the notebooks and write their outputs back
	$(BIN)/python notebooks/refresh.py

pictures: $(VENV)/.dev ## take the panel's pictures for the README again, including the animation; look at them before you commit them
	$(BIN)/python -m pytest tests/browser/test_pictures.py tests/browser/test_animation.py
	cp $(addprefix test-output/pictures/panel, -idle.png -running.png -stopped.png -dark.png -error.png -parts.png -parts-ended.png .gif) notebooks/images/

lint: $(VENV)/.dev ## check style, types, and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.dev ## run the benchmarks: ratios to peers and lower bounds, measured in one run
	$(BIN)/python -m tests.benchmarks

peers: $(VENV)/.dev ## run other frameworks through the same scenarios and print the table (ARGS=--write: into README.md and docs/peers.md)
	$(BIN)/python -m tests.peers $(ARGS)

kernels: $(VENV)/.dev ## run the kernel tests on other versions of ipykernel too
	$(BIN)/python -m tests.kernel.matrix

inspect: $(VENV)/.dev ## test the importer on logs that Inspect writes, in a separate environment
	$(BIN)/python -m tests.interop.with_inspect

soak: $(VENV)/.dev ## run the tests that take many minutes, such as load tests at full size
	$(BIN)/python -m pytest -s -m soak tests

audit: $(VENV)/.dev ## look up known vulnerabilities of the pinned versions; says so if no advisory database can be reached
	$(BIN)/python -m tests.supply.audit $(ARGS)

binder: $(VENV)/.dev ## check what Binder would build (ARGS=install: install it over Binder's own packages and run the first notebook)
	$(BIN)/python -m tests.supply.binder $(ARGS)

lowest: $(VENV)/.dev ## run the tests with the lowest versions that pyproject.toml allows (ARGS=core: a subset; ARGS=lock: pin them again)
	$(BIN)/python -m tests.supply.lowest $(ARGS)

lite: $(LITE_VENV)/.lite ## build the course as a site that runs Python in the browser (JupyterLite), in build/lite
	$(LITE_VENV)/bin/python release/lite.py

versions: $(VENV)/.dev ## run the unit tests on Python 3.11 to 3.14, as far as they can be had (ARGS="3.13 tests/storage": one version, some tests)
	$(BIN)/python -m tests.supply.versions $(ARGS)

test-live: $(VENV)/.dev ## run agents against a real local model (downloads and builds it first)
	$(BIN)/python -m pytest -m live tests/live

record-local: $(VENV)/.dev ## repeat the recordings of the local models (downloads and builds them first); ARGS="--model gemma --wire chat": a part of the study
	$(if $(ARGS),,$(BIN)/python -m tests.live.record)
	$(BIN)/python -m tests.live.record_study $(ARGS)

fixtures: $(VENV)/.dev ## update the requests in the synthetic fixtures
	$(BIN)/python -m tests.fixtures.refresh

fuzz: $(FUZZ_VENV)/.fuzz ## fuzz the response readers, guided by coverage (SECONDS=60 PROVIDER=all)
	$(FUZZ_VENV)/bin/python -m tests.fuzz.with_atheris --seconds $(SECONDS) --provider $(PROVIDER)

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "agentlab needs Python 3.11 or newer: make PYTHON=python3.12 …")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.lab: PINNED = --constraint constraints.txt --editable ".[lab]"
$(VENV)/.lab: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(INSTALL)
	touch $@

$(VENV)/.dev: PINNED = --constraint constraints.txt --editable ".[lab,dev]"
$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(INSTALL)
	touch $@ $(VENV)/.lab

$(FUZZ_VENV)/.fuzz: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(FUZZ_VENV)
	$(FUZZ_VENV)/bin/python -m pip install --quiet --constraint constraints.txt atheris hypothesis pytest --editable ".[bedrock]"
	touch $@

$(LITE_VENV)/.lite: BIN = $(LITE_VENV)/bin
$(LITE_VENV)/.lite: PINNED = --constraint constraints.txt --requirement release/lite.txt
$(LITE_VENV)/.lite: release/lite.txt constraints.txt | $(VENV)/bin/python
	$(VENV)/bin/python -m venv --without-pip $(LITE_VENV)
	$(INSTALL)
	touch $@

clean: ## remove all generated files
	rm -rf $(VENV) .venv-peers .venv-peers-node .venv-local .venv-fuzz .venv-inspect .venv-lowest .venv-audit .venv-binder .venv-lite .venv-pyodide .venv-versions .venv-kernel-* demo-output test-output build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
