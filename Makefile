# Every target makes its own environment in .venv on the first call and reuses it afterwards.
# TORCH chooses the build of torch: what "Get started" on pytorch.org prints after "pip install" for a CPU-only or a
# CUDA build, as in  make demo TORCH="torch==2.13.0 --index-url ..."
# All other versions, and torch's number once more, are in constraints.txt.

PYTHON  ?= python3
TORCH   ?= torch==2.13.0
WORKERS ?= 2
ARGS    ?=
# For the runs of real size: where the corpora or their archives are, and where the runs go.
DATA    ?=
VECTORS ?=
RUNS    ?= runs
ONLY    ?=

BIN     := .venv/bin
STAMPS  := .venv/.stamps
CSRC    := $(wildcard src/quasirnn/ops/csrc/*.cpp src/quasirnn/ops/csrc/*.h) src/quasirnn/ops/schemas.inc
SANITIZED := build/sanitize/quasirnn/_kernels.abi3.so
# Errors only: what pip downloads is in constraints.txt.
PIP     := $(BIN)/python -m pip --disable-pip-version-check -qq
# One thread per test worker, or the workers fight over the cores. Tests of one group share what is costly to set up.
# Compiled files are kept, whatever the environment says: the second pass and the processes that tests start read them.
PYTEST  := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup

.DEFAULT_GOAL := help
.PHONY: help demo docs notebooks wheel test-install test test-full test-browser stress torture check bench reproduce-language-model reproduce-sentiment reproduce-translation sanitize format clean FORCE

help:  ## this list
	@echo "quasirnn: the Quasi-Recurrent Neural Network for PyTorch. Start with: make demo"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-26s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  ARGS=...   more arguments for the program, e.g. make test ARGS='-k split' or make demo ARGS='--minutes 1'"
	@echo "  PYTHON=... another interpreter, 3.11 or newer      TORCH=... another build of torch (see the Makefile)"

demo: $(STAMPS)/train $(STAMPS)/kernels  ## see trained models at work, then train a QRNN and an LSTM on each task: about four minutes
	@$(BIN)/quasirnn demo $(ARGS)

test: $(STAMPS)/dev $(STAMPS)/kernels  ## all tests, then those marked for back ends again without the kernels
	$(PYTEST) tests $(ARGS)
	QUASIRNN_BACKEND=plain $(PYTEST) -m "backends and not full" tests/ops tests/nn $(ARGS)

test-full: $(STAMPS)/dev $(STAMPS)/kernels  ## the same with the whole grids: takes long
	$(PYTEST) --hypothesis-profile=full -m "not browser" tests $(ARGS)
	QUASIRNN_BACKEND=plain $(PYTEST) -m backends tests/ops tests/nn $(ARGS)

# Chromium and its driver come from the system: on Debian and Ubuntu, apt install chromium chromium-driver.
test-browser: $(STAMPS)/browser $(STAMPS)/kernels  ## the page in a real Chromium
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m browser tests/browser $(ARGS)

wheel: $(STAMPS)/core  ## a wheel with the kernels for any Python and torch from 3.11 and 2.10 on, that of the trained models, and the sources, in dist/
	@rm -rf dist build/lib* build/bdist* && $(PIP) wheel --no-build-isolation --no-deps -w dist . ./models
	@$(BIN)/python setup.py -q sdist 2>/dev/null
	@ls dist

# In an environment of its own under build/install; TORCH=... chooses another torch, ARGS=--quick compiles once only.
test-install: wheel  ## the wheel without a compiler, pip install ., the sources: each in an environment of its own
	@TORCH="$(TORCH)" sh scripts/test-install.sh $(ARGS)

stress: $(STAMPS)/dev $(STAMPS)/kernels  ## the server under load, disconnects, mutated requests and SIGTERM
	@$(BIN)/python tests/stress/run.py $(ARGS)

torture: $(STAMPS)/dev $(STAMPS)/train $(STAMPS)/kernels  ## kills, malformed files and requests, sanitizers, known faults: 30 minutes
	@$(BIN)/python tests/torture/run.py $(ARGS)

check: $(STAMPS)/dev  ## formatting, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy --strict tests/nn/typed_model.py

bench: $(STAMPS)/core $(STAMPS)/kernels  ## time the layer against nn.LSTM on this machine
	@$(BIN)/quasirnn bench layer --quick $(ARGS)

# Starts the runs of docs/results.md or goes on with them, one after the other; Ctrl-C stops, the next call continues.
REPRODUCE = @DATA="$(DATA)" RUNS="$(RUNS)" VECTORS="$(VECTORS)" ONLY="$(ONLY)" sh scripts/reproduce.sh

reproduce-language-model: $(STAMPS)/train $(STAMPS)/kernels  ## the Penn Treebank for real: DATA=folder [RUNS=runs] [ONLY=status]
	$(REPRODUCE) language-model $(ARGS)

reproduce-sentiment: $(STAMPS)/train $(STAMPS)/kernels  ## IMDb for real: DATA=folder [RUNS=runs] [VECTORS=file] [ONLY=status]
	$(REPRODUCE) sentiment $(ARGS)

reproduce-translation: $(STAMPS)/train $(STAMPS)/kernels  ## German to English for real: DATA=folder [RUNS=runs] [ONLY=status]
	$(REPRODUCE) translation $(ARGS)

# The process itself is not sanitized, so both runtimes come first: ASan's own, and libstdc++, whose exceptions
# ASan must find at start-up although Python does not link it. Leaks are the interpreter's, not the kernels'.
sanitize: $(STAMPS)/dev $(SANITIZED)  ## the kernels under AddressSanitizer and UndefinedBehaviorSanitizer
	LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so)" \
	ASAN_OPTIONS=detect_leaks=0 QUASIRNN_KERNELS="$(CURDIR)/$(SANITIZED)" $(BIN)/python tests/sanitize/run.py $(ARGS)

docs: $(STAMPS)/docs  ## the documentation as a site, in build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -q --strict && echo "build/site/index.html"

notebooks: $(STAMPS)/docs $(STAMPS)/kernels  ## run docs/notebooks again and keep what they print
	@$(BIN)/jupyter execute --inplace docs/notebooks/*.ipynb

format: $(STAMPS)/dev  ## put the code into shape
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## remove builds and caches; .venv stays
	rm -rf build dist src/*.egg-info src/quasirnn/_kernels.* $(STAMPS)/core $(STAMPS)/train $(STAMPS)/dev $(STAMPS)/docs $(STAMPS)/browser $(STAMPS)/kernels
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests examples -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMPS)/venv:
	@command -v $(PYTHON) >/dev/null || \
	  { echo "quasirnn: $(PYTHON) not found. Install Python 3.11 or newer, or name one: make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "quasirnn: needs Python 3.11 or newer, $(PYTHON) is older. Name another: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "quasirnn: $(PYTHON) has no venv module. On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@echo "making .venv"
	@$(PYTHON) -m venv .venv && mkdir -p $(STAMPS) && touch $@

# torch goes first and alone: asked for together with the rest, pip may choose another build of it.
$(STAMPS)/torch: $(STAMPS)/venv
	@echo "installing $(TORCH)"
	@$(PIP) install $(TORCH) && touch $@

# The kernels have their own rule below, which rebuilds only what changed.
$(STAMPS)/core: $(STAMPS)/torch pyproject.toml constraints.txt
	@echo "installing quasirnn"
	@QUASIRNN_NO_KERNELS=1 $(PIP) install --no-build-isolation -c constraints.txt -e . && \
	  $(PIP) install --no-build-isolation --no-deps -e models && touch $@

$(STAMPS)/train: $(STAMPS)/core
	@echo "installing what training needs"
	@QUASIRNN_NO_KERNELS=1 $(PIP) install --no-build-isolation -c constraints.txt -e '.[train,translate,demo,plot,serve]' && touch $@

$(STAMPS)/dev: $(STAMPS)/core
	@echo "installing what development needs"
	@QUASIRNN_NO_KERNELS=1 $(PIP) install --no-build-isolation -c constraints.txt -e '.[dev]' && touch $@

$(STAMPS)/docs: $(STAMPS)/core
	@echo "installing what the documentation needs"
	@QUASIRNN_NO_KERNELS=1 $(PIP) install --no-build-isolation -c constraints.txt -e '.[docs]' && touch $@

$(STAMPS)/browser: $(STAMPS)/dev
	@echo "installing what drives a browser"
	@$(PIP) install -c constraints.txt selenium
# Only for the axe-core inside it, so without Playwright; without axe-core its tests are skipped.
	@$(PIP) install -c constraints.txt --no-deps axe-playwright-python || echo "no axe-core: its tests will be skipped"
	@touch $@

# Where a compiler is there, a failing build stops everything; where there is none, that is said on every call.
$(STAMPS)/kernels: $(STAMPS)/core setup.py $(CSRC) $(if $(wildcard src/quasirnn/_kernels.*),,FORCE)
	@if [ "$${QUASIRNN_NO_KERNELS:-0}" != 0 ]; then \
	  echo "quasirnn: QUASIRNN_NO_KERNELS is set: not building the kernels" >&2; \
	elif ! command -v $(firstword $(CXX)) >/dev/null; then \
	  echo "quasirnn: no C++ compiler ($(CXX)): running on plain PyTorch, slower. On Debian and Ubuntu: apt install g++" >&2; \
	else \
	  echo "building the kernels"; \
	  $(BIN)/python setup.py -q build_ext --inplace; \
	fi && touch $@

$(SANITIZED): $(STAMPS)/dev setup.py $(CSRC)
	@echo "building the sanitized kernels"
	@QUASIRNN_SANITIZE=1 $(BIN)/python setup.py -q build_ext \
	  --build-lib build/sanitize --build-temp build/sanitize-temp && touch $@
