# make demo    installs into .venv, makes a clip, runs a real config on it with the best backend of this machine
# make test    all checks, then all tests (needs ffmpeg and ffprobe as the independent oracle, and prometheus)
# make check   formatting, lint, types, layering, Dockerfile
# make bench   measures this machine part by part, and the CPU path beside ffmpeg; writes to bench/results/
# make corpus  runs the corpus checker over every real file
#
# TORCH=...    the pip requirement for torch, installed before the package: a release, a CPU build, a local file.
# PYTHON=...   the interpreter for the environment; by default the first python >= 3.11 found.
# VENV=...     where the environment lives.    EXTRAS=...  extras of the package; gpu where an NVIDIA GPU is present.
# EDITABLE=    empty: install a copy of the package instead of a link to this tree.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VENV ?= .venv
EDITABLE ?= -e
BIN := $(VENV)/bin
PIP = $(BIN)/python -m pip --disable-pip-version-check --quiet

ifndef PYTHON
PYTHON := $(shell for p in python3 python3.11 python3.12 python3.13 python3.14 python; do \
  "$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { command -v "$$p"; break; }; done)
endif
ifndef EXTRAS
EXTRAS := $(shell nvidia-smi -L 2>/dev/null | grep -q '^GPU' && echo gpu)
endif
comma := ,
PACKAGE := .$(if $(EXTRAS),[$(EXTRAS)])

# The requirement that was installed last stays until another one is asked for.
HAVE_TORCH := $(shell cat $(VENV)/.torch 2>/dev/null)
TORCH ?= $(or $(HAVE_TORCH),torch==2.13.0)
ifneq ($(TORCH),$(HAVE_TORCH))
.PHONY: $(VENV)/.torch
endif

.PHONY: help
help:
	@sed -n '/^#/!q;s/^# \{0,1\}//p' Makefile

$(BIN)/python:
	@[ -n "$(PYTHON)" ] || { echo 'make: no python >= 3.11 found; name one with PYTHON=/path/to/python' >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip' 2>/dev/null || \
	  { echo 'make: $(PYTHON) has no ensurepip (Debian: apt-get install python3-venv)' >&2; exit 1; }
	"$(PYTHON)" -m venv "$(VENV)"

$(VENV)/.torch: $(BIN)/python
	@echo 'installing $(TORCH)'
	@$(PIP) install "$(TORCH)" || \
	  { echo 'make: no $(TORCH) for this machine; choose another with TORCH=, such as TORCH="torch>=2.11"' >&2; exit 1; }
	@echo "$(TORCH)" > $@

$(VENV)/.package: pyproject.toml gpupipe/__init__.py $(VENV)/.torch
	$(PIP) install $(EDITABLE) "$(PACKAGE)"
	@touch $@

$(VENV)/.tools: $(VENV)/.package
	$(PIP) install $(EDITABLE) ".[dev$(if $(EXTRAS),$(comma)$(EXTRAS))]"
	@touch $@

.PHONY: install ffmpeg prometheus sample demo test check bench corpus
install: $(VENV)/.package

# Only the tests need the ffmpeg programs; gpupipe itself carries FFmpeg's libraries in PyAV.
ffmpeg:
	@command -v ffmpeg >/dev/null && command -v ffprobe >/dev/null && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends ffmpeg >/dev/null; \
	else echo 'make: ffmpeg and ffprobe are missing; install them (Debian: apt-get install ffmpeg)' >&2; exit 1; fi

# Only one test needs it: the metrics are scraped by a real server and read by its promtool.
prometheus:
	@command -v prometheus >/dev/null && command -v promtool >/dev/null && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends prometheus >/dev/null; \
	else echo 'make: prometheus and promtool are missing; install them (Debian: apt-get install prometheus)' >&2; exit 1; fi

demo/sample.mov: gpupipe/sample.py | $(VENV)/.package
	@mkdir -p demo
	$(BIN)/gpupipe sample --overwrite --seconds 4 $@

demo: $(VENV)/.package demo/sample.mov
	@$(MAKE) --no-print-directory ffmpeg || echo 'make: going on without them; only the tests and the still picture need them' >&2
	$(BIN)/gpupipe plan configs/demo.yaml demo/sample.mov demo/demo.mp4
	$(BIN)/gpupipe run --overwrite configs/demo.yaml demo/sample.mov demo/demo.mp4
	@! command -v ffmpeg >/dev/null || ffmpeg -nostdin -v error -y -ss 3 -i demo/demo.mp4 -frames:v 1 demo/demo.png
	@echo; echo 'source  demo/sample.mov'; echo 'result  demo/demo.mp4'
	@[ ! -f demo/demo.png ] || echo 'still   demo/demo.png (at 3 s)'
	@echo 'look at it with: ffplay demo/demo.mp4   (or any player)'

check: $(VENV)/.tools
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/hadolint Dockerfile

test: check ffmpeg prometheus
	$(BIN)/python -m pytest -n 2 --dist worksteal $(PYTEST)

bench: $(VENV)/.tools ffmpeg
	$(BIN)/gpupipe bench --overwrite --json bench/results/here.json --chart bench/results/here.png $(BENCH)
	$(BIN)/python bench/cpu_vs_ffmpeg.py --json bench/results/cpu.json
