# Needs Python 3.11 or later with its venv module (Debian: python3, python3-venv) and make. `make help` lists the targets.

SHELL := /bin/sh
PYTHON ?= python3
WORKERS ?= 2
SEED ?= 0
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO := runs/demo

# The real data sets, where a copy lies beside the checkout; tests that need one skip without it.
ifndef GEODAX_DATA
ifneq ($(wildcard ../shared/data/.),)
export GEODAX_DATA := $(abspath ../shared/data)
endif
else # the docs and some tests run programs in other folders; abspath would cut a name at its spaces
export override GEODAX_DATA := $(shell NAMED='$(GEODAX_DATA)' $(PYTHON) -c "import os; print(os.path.abspath(os.environ['NAMED']))")
endif

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-thorough test-slow sabotage known-targets soak docs bench lint clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

venv: $(STAMP) ## Make .venv with the package (editable) and everything a developer needs

$(STAMP): pyproject.toml
	@echo "Making $(VENV) with everything a developer needs; the first time this takes some minutes."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

demo: $(STAMP) ## Fit Bayesian PCA to the wine data and write a report
	$(BIN)/geodax fit pca geodax/data/files/wine.csv --n-components 3 --out $(DEMO) --overwrite --seed 0
	$(BIN)/geodax report $(DEMO)
	@echo "The report: $(CURDIR)/$(DEMO)/report.html"

# Fast tests compile much and compute little; without optimisation, and in one piece, a program compiles in a third of the
# time. Workers begin with half of the tests each, so that fixtures and programs of a file are made once.
# XLA ends the process at a flag that it does not know: then go without that flag.
QUICK := --xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1

define quickly
	@flags="$$XLA_FLAGS"; for flag in $(QUICK); do \
		XLA_FLAGS="$$flags $$flag" JAX_PLATFORMS=cpu $(BIN)/python -c "import jax; jax.devices()" 2>/dev/null && flags="$$flags $$flag"; \
	done; \
	XLA_FLAGS="$$flags" $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "$(1)" --timeout=600 --timeout-method=thread
endef

test: $(STAMP) ## Run the fast tests
	$(call quickly,not thorough and not slow and not soak)

test-thorough: $(STAMP) ## Run the tests that take a second or more each
	$(call quickly,thorough and not slow and not soak)

test-slow: $(STAMP) ## Run the slow tests; SEED=1 with other random numbers
	$(BIN)/python -m pytest -n $(WORKERS) -m "slow and not soak" --seed=$(SEED)

sabotage: $(STAMP) ## Plant faults in the code, each of which its check must catch
	$(BIN)/python -m pytest -n $(WORKERS) tests/test_sabotage.py

known-targets: $(STAMP) ## Run the exact samplers on every target whose expectations are known
	$(BIN)/python -m pytest -n $(WORKERS) tests/suites/test_known_targets.py --seed=$(SEED)

soak: $(STAMP) ## Kill runs 256 times, and run samplers for a million steps
	$(BIN)/python -m pytest -m soak

docs: $(STAMP) ## Build the documentation, warnings as errors
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html
	@echo "The documentation: $(CURDIR)/docs/_build/html/index.html"

bench: $(STAMP) ## Run every benchmark (peers: .venv/bin/pip install -e '.[bench]')
	@set -e; for script in benchmarks/[!_]*.py; do \
		test -e "$$script" || { echo "There is no benchmark yet."; exit 0; }; \
		echo "== $$script"; $(BIN)/python "$$script"; \
	done; echo "The figures (JSON): $(CURDIR)/benchmarks/results/"

lint: $(STAMP) ## Check style, format, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

clean: ## Remove what the other targets made, except .venv
	rm -rf build dist docs/_build $(DEMO) .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
