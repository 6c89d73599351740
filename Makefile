# Needs make and Python 3.11 or newer; everything else is installed into .venv on first use.

PYTHON ?= python3
BIN := .venv/bin
# A process a core. The one that is done first takes over half of what another has still to do.
PYTEST = $(BIN)/pytest --numprocesses logical --maxprocesses 8 --dist worksteal

# The editable install links module by module, so it is renewed when one comes or goes.
MODULES := $(sort $(wildcard *.py) $(shell find engine handlers -type f -not -name '*.pyc'))
KEY := $(shell { echo $(MODULES); cat pyproject.toml constraints.txt; } | cksum | cut -d' ' -f1)
INSTALL = $(BIN)/pip install --quiet --constraint constraints.txt \
	--config-settings editable_mode=strict --editable

.PHONY: help demo test slow lint bench picture browser soak clean

help:  ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile

demo: .venv/dev-$(KEY)  ## train a digits classifier, a few seconds on a CPU
	$(BIN)/python examples/digits.py

test: .venv/dev-$(KEY)  ## run the tests that show each behaviour once, in a few minutes
	$(PYTEST)

slow: .venv/dev-$(KEY)  ## run the tests that show more of the same: combinations, kills, browsers
	$(PYTEST) -m 'slow and not soak'

lint: .venv/dev-$(KEY)  ## check style, format and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy --package camshaft
	$(BIN)/mypy examples
	$(BIN)/pyright --pythonpath $(BIN)/python

bench: .venv/bench-$(KEY)  ## measure the overhead and the saves against others
	$(BIN)/python tests/benchmarks/run.py
	$(BIN)/python tests/benchmarks/checkpoints.py

picture: .venv/dev-$(KEY)  ## draw the engine of docs/order.md
	$(BIN)/python docs/picture.py

browser:  ## install Chromium for the tests that look at pages: on Debian, as root
	@command -v chromium || { apt-get update -q && \
		DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends chromium; }

soak: .venv/dev-$(KEY)  ## run the tests that take long
	$(BIN)/pytest -m soak

clean:  ## remove what these targets made
	rm -rf .venv build *.egg-info .*_cache .hypothesis tests/artefacts

.venv/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Camshaft needs Python 3.11 \
	or newer and $(PYTHON) is %d.%d: name another one, as in `make test PYTHON=python3.12`." \
	% sys.version_info[:2])'
	$(PYTHON) -m venv .venv

# The tests use timm's schedulers, not its models and the torchvision that they need.
.venv/dev-$(KEY): | .venv/bin/pip
	$(INSTALL) ".[dev]"
	$(BIN)/pip install --quiet --constraint constraints.txt --no-deps timm
	@rm -f .venv/dev-* .venv/bench-*
	@touch $@

.venv/bench-$(KEY): .venv/dev-$(KEY)
	$(INSTALL) ".[dev,bench]"
	@touch $@
