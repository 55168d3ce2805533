# Two commands:  `make run`   two models share one device; watch them on a page.  Ctrl-C ends everything.
#                `make test`  the whole suite, with linters and types.
# Elsewhere than in .venv: `make test VENV=/path`.  Another interpreter: `make run PYTHON=python3.12`.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
MODELS := smollm2 gemma3-270m
BUILT_FROM := pyproject.toml $(shell find cffi_build -type f -not -path '*/__pycache__/*')
TYPED := src/lsm/machines src/lsm/arena src/lsm/config src/lsm/api.py src/lsm/errors.py src/lsm/values.py src/lsm/models.py \
         src/lsm/doctor.py src/lsm/tuning.py src/lsm/keeping.py src/lsm/speculating.py src/lsm/batching.py src/lsm/verify transports/lsm_cli

.PHONY: run test test-vulkan peer models docs clean
.NOTPARALLEL:

run: $(VENV)/installed models
	@exec $(BIN)/lsm demo

test: $(VENV)/installed-for-tests models
	$(BIN)/ruff check
	$(BIN)/mypy --strict $(TYPED)
	$(BIN)/pytest -n auto --dist worksteal

# Optional: what moves memory, on Vulkan. Any device does; Mesa's software device (GGML_VK_VISIBLE_DEVICES=0) where there is no GPU.
test-vulkan: export GGML_VK_VISIBLE_DEVICES ?= 0
test-vulkan: $(VENV)-vulkan/installed
	$(VENV)-vulkan/bin/pytest tests/native/test_vulkan.py tests/e2e/test_starved.py  # in one process: each compiles the shaders anew

$(VENV)-vulkan/installed: $(BUILT_FROM)
	@echo "installing with Vulkan; the first time this compiles 200 shaders and llama.cpp, which takes about half an hour on two cores"
	test -x $(VENV)-vulkan/bin/python || $(PYTHON) -m venv $(VENV)-vulkan
	CMAKE_ARGS="-DGGML_VULKAN=on $(CMAKE_ARGS)" $(VENV)-vulkan/bin/python -m pip install --disable-pip-version-check --editable '.[test]'
	@touch $@

# Optional: llama-server of the pinned source, for tests/differential and tests/bench.
peer: $(VENV)/installed-for-tests
	@$(BIN)/python -m tests.peer

models: $(VENV)/installed
	@$(BIN)/lsm pull $(MODELS)

docs: $(VENV)/installed
	$(BIN)/python -m lsm.config > docs/cli.md

# An editable install: edits of Python count at once, edits below cffi_build/ with the next `make`.
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --editable

$(VENV)/installed: $(BUILT_FROM) | $(VENV)/bin/python
	@echo "installing; the first time this compiles llama.cpp, which takes 5 to 12 minutes on two cores, and is kept for later"
	$(INSTALL) .
	@touch $@

$(VENV)/installed-for-tests: $(BUILT_FROM) | $(VENV)/bin/python
	@echo "installing; the first time this compiles llama.cpp, which takes 5 to 12 minutes on two cores, and is kept for later"
	$(INSTALL) '.[test]'
	@touch $(VENV)/installed $@

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "lsm needs Python 3.11 or later as $(PYTHON); name another one: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' \
		|| { echo "this Python cannot make virtual environments; on Debian: apt-get install python3-venv"; exit 1; }
	@command -v c++ > /dev/null || { echo "there is no C++ compiler; on Debian: apt-get install g++"; exit 1; }
	@test -f "$$($(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" \
		|| { echo "the headers of Python are missing; on Debian: apt-get install python3-dev"; exit 1; }
	$(PYTHON) -m venv $(VENV)

clean:
	rm -rf build dist $(VENV)/installed $(VENV)/installed-for-tests
