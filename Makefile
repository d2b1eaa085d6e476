# `make demo` and `make test` set up what they need in .venv and touch nothing else.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
FUZZ_VENV = .venv-fuzz
SECONDS ?= 60
WORKERS ?= 3
PROVIDER ?= all
NBVAL = AGENTLAB_FRONTEND=none $(BIN)/python -m pytest --nbval -p no:cacheprovider --nbval-current-env --override-ini addopts= --timeout 300 notebooks

# Dozens of tests start a Python of their own, and would compile agentlab anew each time where a machine's variables say so.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: audit beside binder lowest soak demo lab test test-all test-unit notebooks docs docs-links refresh pictures lint bench peers kernels inspect test-live record-local fixtures fuzz clean

demo: $(VENV)/.lab ## run the quickstart on recorded fixtures: no key, no network
	$(BIN)/python notebooks/demo.py

lab: $(VENV)/.lab ## open the quickstart in JupyterLab
	$(BIN)/jupyter lab $(if $(filter 0,$(shell id -u)),--allow-root) --LabApp.default_url=/lab/tree/notebooks/01_quickstart.ipynb

test: $(VENV)/.dev ## every test: unit, kernel, browser, notebooks; lint and notebooks run while other tests wait
	tests/install_chromium
	$(MAKE) --no-print-directory --jobs 2 test-all beside

test-all: $(VENV)/.dev
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --durations 20

beside: lint
	$(NBVAL)

test-unit: $(VENV)/.dev ## the tests that need neither a kernel nor a browser
	$(BIN)/python -m pytest -m "not kernel and not browser and not live and not inspect"

notebooks: $(VENV)/.dev ## the notebooks give the outputs that they were committed with
	$(NBVAL)

docs: $(VENV)/.dev ## the documentation site, in build/docs: open build/docs/index.html
	$(BIN)/python -m sphinx -W --keep-going -n -q -c docs -d build/doctrees . build/docs

docs-links: $(VENV)/.dev ## whether the addresses in the documentation answer, where there is a network; links within it are tested by `make test`
	$(BIN)/python -m sphinx -b linkcheck -q -D suppress_warnings=mystnb.mime_priority,misc.highlighting_failure -c docs -d build/doctrees . build/links

refresh: $(VENV)/.dev ## execute the notebooks and write their outputs back
	$(BIN)/python notebooks/refresh.py

pictures: $(VENV)/.dev ## take the panel's pictures for the README anew, the moving one too; look at them before they are committed
	$(BIN)/python -m pytest tests/browser/test_pictures.py tests/browser/test_moving_picture.py
	cp $(addprefix test-output/pictures/panel, -idle.png -running.png -stopped.png -dark.png -error.png .gif) notebooks/images/

lint: $(VENV)/.dev ## style, types, and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.dev ## figures as ratios against peers and floors, measured in one run
	$(BIN)/python -m tests.benchmarks

peers: $(VENV)/.dev ## other frameworks through the same scenarios, and the table of it (ARGS=--write: into README.md and docs/peers.md)
	$(BIN)/python -m tests.peers $(ARGS)

kernels: $(VENV)/.dev ## the kernel tests on other versions of ipykernel too
	$(BIN)/python -m tests.kernel.matrix

inspect: $(VENV)/.dev ## the importer of Inspect's logs on logs that Inspect makes, in an environment of its own
	$(BIN)/python -m tests.interop.with_inspect

soak: $(VENV)/.dev ## what takes many minutes: load at its largest sizes, and the like
	$(BIN)/python -m pytest -s -m soak tests

audit: $(VENV)/.dev ## known vulnerabilities of the pinned versions, where an advisory database can be reached; it says where not
	$(BIN)/python -m tests.supply.audit $(ARGS)

binder: $(VENV)/.dev ## what Binder would build (ARGS=install: install that over Binder's own packages, and run the first notebook there)
	$(BIN)/python -m tests.supply.binder $(ARGS)

lowest: $(VENV)/.dev ## the tests with the lowest versions that pyproject.toml allows (ARGS=core: a part of them; ARGS=lock: pin these anew)
	$(BIN)/python -m tests.supply.lowest $(ARGS)

test-live: $(VENV)/.dev ## agents against a real local model (downloads and builds it first)
	$(BIN)/python -m pytest -m live tests/live

record-local: $(VENV)/.dev ## repeat the recording of the local model (downloads and builds it first)
	$(BIN)/python -m tests.live.record

fixtures: $(VENV)/.dev ## bring the requests in the synthetic fixtures up to date
	$(BIN)/python -m tests.fixtures.refresh

fuzz: $(FUZZ_VENV)/.fuzz ## look for faults in the readers of responses, led by coverage (SECONDS=60 PROVIDER=all)
	$(FUZZ_VENV)/bin/python -m tests.fuzz.with_atheris --seconds $(SECONDS) --provider $(PROVIDER)

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "agentlab needs Python 3.11 or newer: make PYTHON=python3.12 …")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.lab: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[lab]"
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[lab,dev]"
	touch $@ $(VENV)/.lab

$(FUZZ_VENV)/.fuzz: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(FUZZ_VENV)
	$(FUZZ_VENV)/bin/python -m pip install --quiet --constraint constraints.txt atheris hypothesis pytest --editable ".[bedrock]"
	touch $@

clean: ## remove what was made here
	rm -rf $(VENV) .venv-peers .venv-peers-node .venv-local .venv-fuzz .venv-inspect .venv-lowest .venv-audit .venv-binder .venv-kernel-* demo-output test-output build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
