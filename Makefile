# Pharos: what you can do here. `make help` lists it. Every target makes the virtual environment it needs.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PY := .venv/bin/python
FLAGS ?=

.PHONY: help run test check fmt bench clean lock docs live core-tests component-tests live-tests
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

.venv/run: requirements/run.txt requirements/demo.txt hack/venv
	@hack/venv run

.venv/dev: requirements/run.txt requirements/demo.txt requirements/dev.txt hack/venv
	@hack/venv dev

run: .venv/run ## serve ./pharos.yaml, or the demo with two real engines when there is none (FLAGS="--tiny")
	@if [ -f pharos.yaml ]; then exec $(PY) -m pharos serve $(FLAGS); else exec $(PY) -m pharos demo $(FLAGS); fi

check: .venv/dev ## lint, types, contracts, sizes, documents, core tests (under 2 minutes)
	@hack/check

test: check component-tests live-tests ## everything that needs no cluster: check, components, real llama.cpp (under 5 minutes)
	@hack/report

component-tests: .venv/dev
	@hack/suite component tests --ignore tests/core --ignore tests/live

live-tests: .venv/dev
	@hack/suite live tests/live

live: .venv/dev ## test against real engines, built here once (ENGINES=ollama,mlx-lm VERSION=latest RECORD=1; see hack/live)
	@hack/live

fmt: .venv/dev ## format the code and apply the fixes that are safe
	@.venv/bin/ruff check --fix --quiet . ; .venv/bin/ruff format --quiet .

bench: .venv/dev ## measure Pharos beside HAProxy and the Rust routers, and renew docs/performance.md
	@command -v haproxy >/dev/null || [ -x /usr/sbin/haproxy ] || hack/setup-haproxy
	@$(PY) hack/bench/run.py $(FLAGS)

docs: .venv/dev ## renew the generated documents
	@$(PY) hack/generate_docs.py

lock: .venv/dev ## resolve the dependencies again and write requirements/*.txt
	@hack/lock

clean: ## remove what was made here: environments, caches, reports
	@rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage* dist build
