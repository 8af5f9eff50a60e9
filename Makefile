# samplegate: run `make` to list the targets. Needs python3.11+ with venv, make and (for the tests) git; no compiler, no node.
.DEFAULT_GOAL := help
SHELL := /bin/sh

VENV := .venv
BIN := $(VENV)/bin
# PYTHON=... chooses the interpreter of a new environment; without it, the first suitable one on the PATH is used.
PYTHON ?=
# $(call pip_install,PYTHON,ARGUMENTS) shows pip's progress where stdout is a terminal; elsewhere it prints only errors.
pip_install = if [ -t 1 ]; then set -- --progress-bar on; else set -- --quiet --quiet --progress-bar off; fi; \
	$(1) -m pip install --no-input --disable-pip-version-check "$$@" $(2)
LOCKED := --require-hashes --only-binary :all:
# Tests run in parallel, even on fewer cores, because most of the time they wait for programs that they started; WORKERS=0 runs them in one process.
WORKERS ?= 4
PYTEST := -m pytest -n $(WORKERS)
# Levels of tests (tests/README.md).
UNIT := $(if $(filter 0,$(WORKERS)),-m pytest -n 0 tests/unit,-m tests.shards)
SLOW := tests/system tests/upgrade tests/faults tests/acceptance/sdk tests/acceptance/browser
DEPLOYMENT := tests/deployment
CONFORMANCE := tests/conformance
FLEET := tests/fleet
ADOPTION := tests/acceptance/ci tests/adoption
# A unit test fails if it takes more CPU time than this; tests with a longer wall time are listed.
BUDGET := --hypothesis-profile dev --cpu-budget 0.5 --durations 0 --durations-min 0.5
SOURCES := proxy tests docs $(wildcard bench)
ENVS := tests/acceptance/sdk/.envs
AGENTS := tests/adoption/agents
DASHBOARD := tests/deployment/grafana
CHART := tests/deployment/helm
SBOM := docs/.sbom
# each program that a test starts would compile the gate's modules first
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install dev counterparts packages demo demo-review demo-fleet test unit nightly conformance adoption pythons resolution deployment fleet soak faults check format style lint docs site types coverage bench structure lock lock-npm build sbom clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# --- environments: each has a stamp, so that a target with nothing to do does nothing -------------------------------------------------

install: $(VENV)/.installed ## create .venv/ with the gate and its dependencies
dev: $(VENV)/.dev ## the same, with the tools for checks and tests
counterparts: $(ENVS)/sdk1/.installed $(ENVS)/sdk2/.installed $(ENVS)/fastmcp/.installed tests/acceptance/sdk/node_modules/.installed ## install the real servers and clients of the acceptance tests
packages: ## install the Debian packages that the tests of the page, of deploy/, of fleets and with PostgreSQL need (as root)
	@tests/deployment/packages.sh

$(BIN)/python:
	@set -e; found=''; \
	for p in $(PYTHON) python3 python3.13 python3.12 python3.11; do \
	  if "$$p" -c 'import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2])' >/dev/null 2>&1; then found="$$p"; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	  echo "make: no python 3.11 or newer with venv was found on the PATH; Debian: apt-get install python3 python3-venv; macOS: brew install python@3.13" >&2; \
	  exit 1; \
	fi; \
	echo "making $(VENV) with $$("$$found" --version)"; "$$found" -m venv $(VENV)

$(VENV)/.installed: requirements.lock requirements-build.lock pyproject.toml | $(BIN)/python
	@echo "installing the dependencies (a minute or two the first time)"
	@$(call pip_install,$(BIN)/python,$(LOCKED) -r requirements.lock -r requirements-build.lock)
	@$(call pip_install,$(BIN)/python,--no-deps --no-build-isolation --no-index -e .)
	@touch $@

$(VENV)/.dev: requirements-dev.lock $(VENV)/.installed
	@echo "installing the tools for checks and tests"
	@$(call pip_install,$(BIN)/python,$(LOCKED) -r requirements-dev.lock)
	@touch $@

$(ENVS)/%/.installed: tests/acceptance/sdk/%.lock | $(BIN)/python
	@echo "installing the counterpart $*"
	@rm -rf $(@D) && $(BIN)/python -m venv $(@D)
	@$(call pip_install,$(@D)/bin/python,$(LOCKED) -r $<)
	@touch $@

$(SBOM)/.installed: docs/sbom.lock | $(BIN)/python
	@rm -rf $(@D) && $(BIN)/python -m venv $(@D)
	@$(call pip_install,$(@D)/bin/python,$(LOCKED) -r $<)
	@touch $@

$(CHART)/.envs/%/.installed: $(CHART)/%.lock | $(BIN)/python
	@echo "installing $* for the tests of the chart"
	@rm -rf $(@D) && $(BIN)/python -m venv $(@D)
	@$(call pip_install,$(@D)/bin/python,$(LOCKED) -r $<)
	@touch $@

# node and npm come from a wheel, in the version the lock names: the machine needs no installation of its own, and an existing one is not touched
NODE := $(BIN)/python tests/acceptance/sdk/node.py
NPM := $(NODE) npm --prefix tests/acceptance/sdk
tests/acceptance/sdk/node_modules/.installed: tests/acceptance/sdk/package.json tests/acceptance/sdk/package-lock.json $(ENVS)/node/.installed
	@echo "installing the counterparts from npm"
	@$(NPM) ci --ignore-scripts
	@touch $@

# npm runs no scripts of packages; the one that puts Claude Code's binary for the platform in its place is run by name
$(AGENTS)/node_modules/.installed: $(AGENTS)/package.json $(AGENTS)/package-lock.json $(ENVS)/node/.installed
	@echo "installing the agents from npm (900 MB)"
	@$(NODE) npm --prefix $(AGENTS) ci --ignore-scripts
	@$(NODE) node $(AGENTS)/node_modules/@anthropic-ai/claude-code/install.cjs
	@touch $@

$(DASHBOARD)/node_modules/.installed: $(DASHBOARD)/package.json $(DASHBOARD)/package-lock.json $(ENVS)/node/.installed
	@echo "installing the types of Grafana's dashboards from npm"
	@$(NODE) npm --prefix $(DASHBOARD) ci --ignore-scripts
	@touch $@

$(CHART)/node_modules/.installed: $(CHART)/package.json $(CHART)/package-lock.json $(ENVS)/node/.installed
	@echo "installing the types of custom resources from npm"
	@$(NODE) npm --prefix $(CHART) ci --ignore-scripts
	@touch $@

CHARTED := $(CHART)/.envs/helm/.installed $(CHART)/.envs/checkov/.installed $(CHART)/node_modules/.installed

# --- using it -------------------------------------------------------------------------------------------------------------------------

demo: install ## run a server that asks and a client that cannot answer, with the gate between them
	@$(BIN)/samplegate demo

demo-review: install ## run servers whose requests you decide on a page or the command line (ARGS=--answer-by-itself decides for you)
	@$(BIN)/samplegate demo --review $(ARGS)

demo-fleet: dev packages ## PostgreSQL, HAProxy and three gates that are killed in turn, while clients spend one dollar and ask a reviewer (ARGS='--turns N')
	@$(BIN)/python -m tests.fleet.fleet_demo $(ARGS)

bench: dev $(ENVS)/node/.installed ## measure the gate against the floor, the bare server and other proxies (BASE=v0.1.0: also an earlier version)
	@$(BIN)/python bench/run.py $(if $(BASE),--base $(BASE)) $(ARGS)

structure: dev ## modules, lines, files that a request enters, CPU time and memory at the start (ARGS='--tree DIR': of another checkout)
	@$(BIN)/python bench/structure.py $(ARGS)

# --- checks ---------------------------------------------------------------------------------------------------------------------------

check: style unit ## format, lint, and the unit tests, which check imports and documentation too (one minute)

test: dev counterparts packages ## all tests except those of the targets below (ten minutes); installs what they need
	@failed=; \
	$(BIN)/python $(UNIT) $(ARGS) || [ $$? = 5 ] || failed=1; \
	$(BIN)/python $(PYTEST) $(SLOW) $(ARGS) || [ $$? = 5 ] || failed=1; \
	[ -z "$$failed" ]

unit: dev ## the unit tests: they start no program, and each takes at most half a second of CPU time
	@$(BIN)/python $(UNIT) $(BUDGET) $(ARGS)

nightly: dev ## the property tests with 2,000 examples each instead of 25 (`ci`: 100; tests/profiles.py)
	@$(BIN)/python $(PYTEST) -m 'hypothesis and not real and not soak' --hypothesis-profile nightly -o faulthandler_timeout=7200 $(ARGS)

conformance: dev counterparts ## the official MCP conformance suites, with the gate in front of a server and as the client
	@$(BIN)/python $(PYTEST) $(CONFORMANCE) $(ARGS)

adoption: dev counterparts packages $(AGENTS)/node_modules/.installed $(SBOM)/.installed ## the documentation site and its search; the CI actions and the GitLab component; the wheel, installed by uvx, uv, pipx and pip; agents from npm (Claude Code, Codex, Gemini CLI), headless and without an account, with gates as their servers (LONG=1: 20 runs of each)
	@LONG="$(LONG)" $(BIN)/python $(PYTEST) $(ADOPTION) $(ARGS)

pythons: dev ## the unit tests on the other Python versions of this machine (PYTHONS='PATH ...' names interpreters; ARGS=... replaces tests/unit)
	@$(BIN)/python -m tests.adoption.pythons.run $(or $(ARGS),-n auto tests/unit)

resolution: dev ## whether the dependencies resolve to wheels, by platform and Python version (asks the package index)
	@$(BIN)/python -m tests.adoption.pythons.resolution

deployment: dev packages $(DASHBOARD)/node_modules/.installed $(CHARTED) ## what deploy/ ships, with Prometheus, promtool, systemd's tools, the types of Grafana's dashboards, Helm and checkov
	@$(BIN)/python $(PYTEST) $(DEPLOYMENT) $(ARGS)

fleet: dev counterparts packages ## the gates behind load balancers (HAProxy, nginx) and on a shared database
	@$(BIN)/python $(PYTEST) $(FLEET) $(ARGS)

soak: dev counterparts ## real clients of four SDKs at one gate for minutes, and many requests that wait for reviewers (SOAK_SECONDS=120; LONG=1 adds 2,000 rounds on each event loop)
	@LONG="$(LONG)" $(BIN)/python -m pytest -m soak -o faulthandler_timeout=7200 tests/soak tests/system/serve $(ARGS)

faults: dev ## check that the tests notice each seeded fault (tests/faults/README.md; ARGS='NUMBERS --tests PATHS -j JOBS')
	@$(BIN)/python -m tests.faults.run $(ARGS)

format: dev ## format the code and apply the fixes of lint
	@$(BIN)/ruff check --quiet --fix-only $(SOURCES)
	@$(BIN)/ruff format $(SOURCES)

style: dev ## check format and lint; changes no file
	@$(BIN)/ruff format --check $(SOURCES) || { echo "lint: the files above are not formatted; run 'make format'" >&2; exit 1; }
	@$(BIN)/ruff check $(SOURCES)

lint: style ## the same, and the import rules
	@$(BIN)/python -m pytest -q -n 0 tests/unit/project/test_imports.py

docs: dev ## regenerate the tables in the documentation from the descriptions in the code, and the chart's copies of alerts and dashboard
	@$(BIN)/python -m docs.generate
	@$(BIN)/python -m docs.stable

# SITE=FOLDER builds in another folder
SITE ?= build/site
site: dev ## build the documentation site in build/site/, with search; needs no network, and a broken link is an error
	@$(BIN)/python -m docs.site $(SITE)
	@echo "$(SITE)/index.html"

types: dev ## mypy --strict and pyright
	@$(BIN)/mypy
	@$(BIN)/python -m pyright

coverage: dev counterparts packages $(DASHBOARD)/node_modules/.installed $(CHARTED) ## run the tests and report the lines that they do not reach
	@$(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest $(addprefix --ignore ,$(ADOPTION)) $(ARGS)
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report

# --- locks ----------------------------------------------------------------------------------------------------------------------------

COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	--fork-strategy fewest --no-emit-index-url --no-emit-find-links $(UPGRADE)

lock: dev lock-npm ## regenerate the lock files (UPGRADE=--upgrade takes the newest releases)
	@$(COMPILE) pyproject.toml -o requirements.lock
	@$(COMPILE) --group build -c requirements.lock -o requirements-build.lock
	@$(COMPILE) pyproject.toml --extra otel --extra postgres -c requirements.lock -o requirements-extras.lock
	@$(COMPILE) pyproject.toml --extra otel --extra postgres --group dev -c requirements-extras.lock -o requirements-dev.lock
	@for name in $(CHART)/helm $(CHART)/checkov tests/acceptance/sdk/sdk1 tests/acceptance/sdk/sdk2 tests/acceptance/sdk/node docs/sbom bench/requirements-peer bench/requirements-mcp-proxy; do $(COMPILE) $$name.in -o $$name.lock || exit 1; done
	@$(COMPILE) --no-strip-extras tests/acceptance/sdk/fastmcp.in -o tests/acceptance/sdk/fastmcp.lock # pip needs the extras to find the pins

lock-npm: dev $(ENVS)/node/.installed ## regenerate the npm lock files
	@rm -f tests/acceptance/sdk/package-lock.json
	@$(NPM) install --package-lock-only --ignore-scripts
	@rm -rf $(AGENTS)/package-lock.json $(AGENTS)/node_modules # what is installed would go into the lock without its hashes
	@$(NODE) npm --prefix $(AGENTS) install --package-lock-only --ignore-scripts
	@rm -f $(DASHBOARD)/package-lock.json
	@$(NODE) npm --prefix $(DASHBOARD) install --package-lock-only --ignore-scripts
	@rm -f $(CHART)/package-lock.json
	@$(NODE) npm --prefix $(CHART) install --package-lock-only --ignore-scripts
	@rm -f bench/package-lock.json
	@$(NODE) npm --prefix bench install --package-lock-only --ignore-scripts

# The same sources give the same bytes: every file in them has this time, which is hatchling's own default.
BUILD_TIME := 1580601600
build: dev ## build the wheel and the source archive in dist/, reproducibly
	@SOURCE_DATE_EPOCH=$(BUILD_TIME) $(BIN)/python -m hatchling build

sbom: build $(SBOM)/.installed ## write the SBOM of the wheel (CycloneDX JSON) beside it in dist/
	@$(BIN)/python -m docs.sbom $$(ls -t dist/samplegate-*.whl | head -n 1)

clean: ## remove everything that make created, including the environments
	rm -rf $(VENV) $(ENVS) $(SBOM) $(CHART)/.envs $(CHART)/node_modules tests/adoption/pythons/.envs tests/acceptance/sdk/node_modules $(AGENTS)/node_modules $(DASHBOARD)/node_modules bench/node_modules bench/.peer bench/.base dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage .coverage.* htmlcov build
	find proxy tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
