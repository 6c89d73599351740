# Needs make and Python 3.11 or newer; everything else is installed into .venv on first use.

PYTHON ?= python3
# Tests start hundreds of processes, which would each compile the package again.
unexport PYTHONDONTWRITEBYTECODE
BIN := .venv/bin
# Three for two cores, as the tests wait for other processes for a third of their time. Who is done first takes
# over half of what another has still to do.
WORKERS = $(shell echo $$((3 * $$(getconf _NPROCESSORS_ONLN) / 2)))
PYTEST = $(BIN)/pytest --numprocesses $(WORKERS) --maxprocesses 8 --dist worksteal

# The editable install links file by file, so it is renewed when a file comes or goes.
FILES := $(sort $(wildcard *.py *.pyi) $(shell find engine handlers -type f -not -name '*.pyc'))
KEY := $(shell { echo $(FILES); cat pyproject.toml constraints.txt $(wildcard locks/*); } | cksum | cut -d' ' -f1)
# With LOCKED=1, as in CI, all that is needed is installed by its hash when .venv is made, and nothing from
# the network afterwards: in one go, pip refuses hashes, since an editable install has none.
# Without --no-compile, pip spends most of its time on modules that nobody imports.
INSTALL = $(BIN)/pip install --quiet --no-compile --constraint constraints.txt \
	$(if $(LOCKED),--no-index --no-build-isolation)
HASHED = bin/pip install --quiet --no-compile --no-deps --no-build-isolation --require-hashes
EDITABLE = $(INSTALL) --config-settings editable_mode=strict --editable

# Where the tests of ignite and MONAI and their environment go: 1.5 GB, outside of this repository.
IGNITE_SUITE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/camshaft/ignite-suite
MONAI_SUITE ?= $(IGNITE_SUITE)

.PHONY: help demo test slow lint docs bench bench-here lowest lowest-installed newest dist locks ignite-suite \
	monai-suite crossings gpu gpu-wheels picture browser mutants soak clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile

demo: .venv/demo-$(KEY)  ## train a digits classifier, a few seconds on a CPU
	$(BIN)/python examples/digits.py
	@$(BIN)/camshaft report runs/digits --output runs/digits/report.html
	@echo 'Open runs/digits/report.html in a browser: curves, timeline and checkpoints of this run.'
	@echo 'TensorBoard: $(BIN)/pip install tensorboard; $(BIN)/tensorboard --logdir runs/digits'

test: .venv/dev-$(KEY)  ## run the tests that show each behaviour once, in a few minutes
	$(PYTEST)

slow: .venv/dev-$(KEY)  ## run the tests that show more of the same: combinations, kills, pages in a browser
	$(PYTEST) -m 'slow and not soak and not gpu'

lint: .venv/dev-$(KEY)  ## check style, format, types and size
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy --package camshaft
	$(BIN)/mypy examples
	$(BIN)/pyright --pythonpath $(BIN)/python
	@$(BIN)/python tests/complete_types.py
	$(BIN)/python docs/prose.py
	@$(BIN)/python tests/size.py

docs: .venv/docs-$(KEY)  ## build the documentation site, which also works without a server: build/docs/site/index.html
	@$(BIN)/python docs/build_site.py
	@echo 'Open build/docs/site/index.html in a browser.'

bench: .venv/bench-$(KEY)  ## measure the overhead, the saves and the start against others
	$(BIN)/python tests/benchmarks/run.py
	$(BIN)/python tests/benchmarks/checkpoints.py
	$(BIN)/python tests/benchmarks/start.py
	$(BIN)/python tests/benchmarks/thousands.py
	$(BIN)/python tests/benchmarks/ranks.py

bench-here: .venv/bench-$(KEY)  ## measure the same on this machine, with the figures of the page in brackets
	$(BIN)/python tests/benchmarks/run.py --here
	$(BIN)/python tests/benchmarks/checkpoints.py --quick
	$(BIN)/python tests/benchmarks/checkpoints.py --loop
	$(BIN)/python tests/benchmarks/ranks.py

# Tests of the core that need no other library, each in an environment of its own, without .venv.
CORE = tests/engine tests/handlers/averages tests/handlers/guards tests/handlers/metrics \
	tests/handlers/schedules tests/handlers/checkpoint/load \
	tests/distributed/checkpoints/test_sharded_checkpoints.py::test_a_sharded_run_resumes_to_the_same_bits

lowest: .versions/lowest-$(KEY)  ## run tests of the core with the lowest versions that are declared
	.versions/lowest/bin/pytest --numprocesses logical --maxprocesses 8 --timeout 120 $(CORE)

lowest-installed: .versions/lowest-$(KEY)

newest: .versions/newest-$(KEY)  ## run tests of the core with the newest versions there are
	.versions/newest/bin/pytest --numprocesses logical --maxprocesses 8 --timeout 120 $(CORE)

# The release has its tag in TAG.
dist: .versions/dist-$(KEY)  ## build the distributions into dist/ and check them; publishes nothing
	rm -rf dist
	.versions/dist/bin/python -m build --no-isolation
	.versions/dist/bin/twine check --strict dist/*
	@test -z "$$TAG" || test -f "dist/camshaft-$${TAG#v}.tar.gz" || { echo "The tag $$TAG is not" \
		'the version in pyproject.toml.'; exit 1; }
	@! grep -n 'camshaft\.example' pyproject.toml || { echo 'Built and checked, but not to be' \
		'published: the addresses above are examples. See "Release" in CONTRIBUTING.md.'; exit 1; }

crossings: .venv/dev-$(KEY)  ## try libraries beside Camshaft, and write docs/project/works-with.md; 20 minutes
	$(BIN)/python tests/crossings/run.py

gpu:  ## run the tests that need CUDA, and measure, with the torch of python3; 8 minutes at most
	@$(PYTHON) tests/gpu/run.py

gpu-wheels: .venv/dev-$(KEY)  ## fetch what make gpu needs besides torch, for a machine without network
	$(BIN)/python tests/gpu/wheels.py

ignite-suite: | .venv/bin/pip  ## run pytorch-ignite's own tests on Camshaft's loop, in IGNITE_SUITE=folder
	$(BIN)/python tests/ignite_suite/run.py ignite '$(IGNITE_SUITE)'

monai-suite: | .venv/bin/pip  ## run MONAI's own tests on ignite's loop and on Camshaft's, in MONAI_SUITE=folder
	$(BIN)/python tests/ignite_suite/run.py monai '$(MONAI_SUITE)'

picture: .venv/dev-$(KEY)  ## draw the engines that the docs show, and take their screenshots
	$(INSTALL) nbconvert
	$(BIN)/python docs/picture.py
	$(BIN)/python docs/screenshots.py

browser:  ## install Chromium for the tests that look at pages: on Debian, as root
	@command -v chromium || { apt-get update -q && \
		DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends chromium; }

mutants: .venv/dev-$(KEY)  ## put faults into the package, and list those that no test finds; hours
	$(INSTALL) coverage pytest-cov
	$(BIN)/python tests/mutants/run.py
	$(BIN)/python tests/mutants/run.py --again

soak: .venv/dev-$(KEY)  ## run the tests that take long, and still more of the same
	$(BIN)/pytest -m 'soak and not gpu'

clean:  ## remove what these targets made
	rm -rf .venv .versions .gpu .wheels build dist *.egg-info .*_cache .hypothesis tests/artefacts

.venv/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Camshaft needs Python 3.11 \
	or newer and $(PYTHON) is %d.%d: name another one, as in `make test PYTHON=python3.12`." \
	% sys.version_info[:2])'
	$(PYTHON) -m venv .venv
	$(if $(LOCKED),.venv/$(HASHED) --requirement locks/dist.txt)
	$(if $(LOCKED),.venv/$(HASHED) --requirement locks/ci.txt)

.venv/demo-$(KEY): | .venv/bin/pip
	$(EDITABLE) ".[examples,report]"
	@rm -f .venv/demo-* .venv/docs-* .venv/dev-* .venv/bench-*
	@touch $@

.venv/docs-$(KEY): | .venv/bin/pip
	$(EDITABLE) ".[docs]"
	@rm -f .venv/demo-* .venv/docs-* .venv/dev-* .venv/bench-*
	@touch $@

# The tests use timm's schedulers, not its models and the torchvision that they need.
# What is compiled when a test imports it may warn, and warnings are errors there.
.venv/dev-$(KEY): | .venv/bin/pip
	$(EDITABLE) ".[dev]"
	$(INSTALL) --no-deps timm
	@$(BIN)/python -W ignore -m compileall -qq -j 0 .venv/lib || true  # some hold templates, not Python
	@rm -f .venv/demo-* .venv/docs-* .venv/dev-* .venv/bench-*
	@touch .venv/demo-$(KEY) .venv/docs-$(KEY) $@

.venv/bench-$(KEY): .venv/dev-$(KEY)
	$(EDITABLE) ".[dev,bench]"
	@touch $@

.versions/dist-$(KEY):
	rm -rf .versions/dist*
	$(PYTHON) -m venv .versions/dist
	.versions/dist/$(HASHED) --only-binary :all: --requirement locks/dist.txt
	@touch $@

locks: COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11.5 --no-annotate \
	--generate-hashes --custom-compile-command 'make locks' --constraint constraints.txt
locks: | .venv/bin/pip  ## write the hashes of what constraints.txt names, after a change of it
	$(INSTALL) uv
	printf '%s\n' build setuptools twine | $(COMPILE) --output-file locks/dist.txt -
	echo timm | $(COMPILE) --extra dev --no-emit-package torchvision --output-file locks/ci.txt \
		pyproject.toml -

# uv knows how to take the lowest versions. The tools of the tests are the newest there are.
.versions/lowest-$(KEY): RESOLUTION = lowest-direct
.versions/newest-$(KEY): RESOLUTION = highest
.versions/lowest-$(KEY) .versions/newest-$(KEY): UV = $(@:-$(KEY)=)/bin/uv pip install --quiet
.versions/lowest-$(KEY) .versions/newest-$(KEY):
	rm -rf $(@:-$(KEY)=)*
	$(PYTHON) -m venv $(@:-$(KEY)=)
	$(@:-$(KEY)=)/bin/pip install --quiet uv
	$(UV) --python $(@:-$(KEY)=)/bin/python --resolution $(RESOLUTION) --requirements pyproject.toml
	$(UV) --python $(@:-$(KEY)=)/bin/python pytest pytest-timeout pytest-xdist hypothesis psutil \
		scikit-learn torchdata plotly rich nvidia-ml-py
	$(UV) --python $(@:-$(KEY)=)/bin/python --no-deps --config-settings editable_mode=strict --editable .
	@touch $@
