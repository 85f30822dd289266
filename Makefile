# Pharos: what you can do here. `make help` lists it. Every target makes the virtual environment it needs.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PY := .venv/bin/python
FLAGS ?=

.PHONY: e2e prometheus help run test check fmt bench bench-routing scenario sim kill roll fuzz clean lock docs live clients docker core-tests component-tests live-tests browser screenshots
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
	@hack/suite component tests --ignore tests/core --ignore tests/live --numprocesses 2 --dist worksteal

live-tests: .venv/dev
	@hack/suite live tests/live

kill: .venv/dev ## kill engines and clients at every byte of every protocol, read by the official SDKs (SEED=7 FLAGS="--only drain")
	@$(PY) hack/kill.py $(FLAGS)

roll: .venv/dev ## restart three instances in turn under traffic, or kill them (FLAGS="--times 20", FLAGS="--kill 50")
	@$(PY) hack/roll.py $(FLAGS)

fuzz: .venv/dev ## send 10,000 generated and spoiled requests through a whole proxy (SEED=7 REQUESTS=100000)
	@$(PY) hack/fuzz.py

live: .venv/dev ## test against real engines, built here once (ENGINES=ollama,mlx-lm VERSION=latest RECORD=1; see hack/live)
	@hack/live

clients: .venv/dev ## run real clients through Pharos against real engines (CLIENTS=openai-python,llm RECORD=1)
	@hack/setup-clients
	@PYTHONPATH=hack $(PY) -m clients.run

prometheus: .venv/dev ## check alert rules and dashboard with a real Prometheus that scrapes a live run (installs it where apt-get is)
	@hack/setup-prometheus
	@hack/suite prometheus tests/prometheus

e2e: .venv/dev ## test the chart on a real Kubernetes: the one of KUBECONFIG, else started here (CLUSTER=kind|light|plane FLAGS="-k install")
	@hack/e2e $(FLAGS)

docker: .venv/dev ## run Pharos before llama.cpp in containers of a real Docker engine, found by their labels (needs root)
	@hack/docker/run

browser: .venv/dev ## test the status page in Chromium without a screen (installed by hack/setup-chromium where missing)
	@hack/setup-chromium
	@hack/suite browser tests/browser

screenshots: .venv/dev ## renew the pictures of the status page in docs/: real engines under load, about 2 minutes
	@hack/setup-chromium
	@$(PY) hack/screenshots.py

fmt: .venv/dev ## format the code and apply the fixes that are safe
	@.venv/bin/ruff check --fix --quiet . ; .venv/bin/ruff format --quiet .

bench: .venv/dev ## measure Pharos beside HAProxy and the Rust routers, and renew docs/performance.md
	@hack/setup-haproxy 2>/dev/null || echo "pharos: without HAProxy or nginx: hack/setup-haproxy says why" >&2
	@$$(hack/bench/python) hack/bench/run.py $(FLAGS)

bench-routing: .venv/dev ## compare Pharos with nginx, SMG and vllm-router on the same engines, and renew docs/routing.md (FLAGS="--quick")
	@hack/setup-haproxy 2>/dev/null || echo "pharos: without nginx: hack/setup-haproxy says why" >&2
	@$(PY) -m hack.bench.routing $(FLAGS)

scenario: .venv/dev ## play conversations on real llama.cpp engines and compare three views of them (FLAGS="coding --repeat 3")
	@$(PY) -m hack.scenario $(FLAGS)

sim: .venv/dev ## compare policies on modelled engines, and renew the simulator's part of docs/routing.md (SEEDS=5 FLEETS=mixed)
	@$(PY) hack/sim.py

docs: .venv/dev ## renew the generated documents
	@$(PY) hack/generate_docs.py

lock: .venv/dev ## resolve the dependencies again and write requirements/*.txt
	@hack/lock

clean: ## remove what was made here: environments, caches, reports
	@rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage* dist build
