# The list of things one can do here. Each target does the set-up it needs; a second run is fast.
SHELL := /bin/bash -o pipefail
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
NATIVE := .venv/.native
PEERS := .venv/.peers
CORE := $(foreach kind,pyx pxd h,$(wildcard src/_core/*.$(kind) src/_core/*/*.$(kind)))
TESTS ?= tests

# Tests in as many processes as there are processors, four at most; tests/conftest.py says which stay together.
# Tests with peers in Java wait for most of their time: twice as many processes.
PROCESSORS := $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n < 4 ? n : 4)))
PARALLEL := --dist=loadgroup --no-loadscope-reorder -p no:benchmark

# Tests of $(2) in $(3) processes. Some go by the clock, as do peers in Java: what failed beside others runs once more
# by itself, and must pass then. `.ci/run` reads the lines that name stages.
define run_tests
@echo "stage: $(1)"
$(BIN)/python -m pytest -n $(3) $(PARALLEL) -m $(2) $(TESTS) || { [ $$? -eq 1 ] && echo "stage: $(1), what failed beside others" && \
$(BIN)/python -m pytest -n 1 $(PARALLEL) --last-failed --last-failed-no-failures=none -m $(2) $(TESTS); }
endef

# A line for each long step of pip: large downloads, what it builds, the installation.
SHOW_STEPS_OF_PIP := sed -unE '/^ *(Downloading|Using cached) .*[0-9]{2}(\.[0-9])? MB/s/^ */  /p; \
/^ *Building .*pyledger.*started/s/.*/  compiling the native module: half a minute to a minute/p; \
/^ *Building .*pyspark.*started/s/.*/  unpacking pyspark: half a minute/p; s/^(Installing collected packages):.*/  \L\1/p'

.DEFAULT_GOAL := help
.PHONY: demo-report chaos-dledger chaos-bookies kill-masters sim sim-soak help setup build build-debug annotate demo smoke test all-tests test-all interop interop-live bench bench-report \
	compare lint type check-macos tidy docs rewrite format package package-check wheels wheels-test workflows chroot clean sanitize

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "make %-13s %s\n", $$1, $$2 }'

setup: $(NATIVE)  ## create .venv with everything for development

$(READY): pyproject.toml setup.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "PyLedger needs Python 3.11 or newer: make PYTHON=python3.12")'
	@$(PYTHON) -c 'import ensurepip, venv' || { echo "venv is missing; on Debian or Ubuntu: apt install python3-venv"; exit 1; }
	@echo "step 1 of 2: create .venv, some seconds"
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=24"
	@echo "step 2 of 2: install the packages and compile the native module, one to three minutes"
	@$(BIN)/python -m pip install --disable-pip-version-check --progress-bar off --editable '.[dev]' | $(SHOW_STEPS_OF_PIP)
	@touch $@

# Right after the set-up, which built it too, there is nothing left to compile.
$(NATIVE): $(READY) $(CORE)
	@[ ! -e $@ -a -z "$$(find $(CORE) -newer $(READY))" ] || { echo "compiling the native module: half a minute to two minutes"; \
	$(BIN)/python setup.py --quiet build_ext --inplace; }
	@touch $@

build: $(NATIVE)  ## compile the native module in place

# What it leaves is marked as old, so that the next `make build` replaces it.
build-debug: $(READY)  ## compile it with bounds checks and assertions; `make build` undoes this
	PYLEDGER_DEBUG=1 $(BIN)/python setup.py --quiet build_ext --inplace --force
	@touch -d @0 $(NATIVE) build/lib*/pyledger/_core.*.so

sanitize: $(READY)  ## run the native tests with ASan, UBSan and assertions, in build/sanitized, for at most SECONDS=
	@echo "stage: sanitizers"
	$(BIN)/python tools/sanitize.py $(if $(SECONDS),--seconds $(SECONDS))

annotate: $(READY)  ## write build/cython/src/_core/_core.html: lines that use Python objects
	PYLEDGER_ANNOTATE=1 $(BIN)/python setup.py --quiet build_ext --inplace --force

sim: $(NATIVE)  ## simulate a DLedger group: SEED=7 NODES=5 TICKS=1000; PROTOCOL=ledger for ledgers, PROTOCOL=ha for a master and slaves
	$(BIN)/python -m pyledger sim --protocol $(or $(PROTOCOL),dledger) --seed $(or $(SEED),1) --nodes $(or $(NODES),5) --ticks $(or $(TICKS),1000)

chaos-dledger: $(NATIVE)  ## inject faults into a group of processes: SECONDS=300 SEED=1 NODES=3
	$(BIN)/python -m tests.chaos.group --seconds $(or $(SECONDS),300) --seed $(or $(SEED),1) --nodes $(or $(NODES),3)

chaos-bookies: $(NATIVE)  ## kill five bookies under load again and again: SECONDS=300 SEED=1
	$(BIN)/python -m tests.chaos.bookies --seconds $(or $(SECONDS),300) --seed $(or $(SEED),1)

kill-masters: $(NATIVE)  ## kill a master under synchronous load and check that its slave takes over without loss: ROUNDS=100
	PYLEDGER_KILL_ROUNDS=$(or $(ROUNDS),100) $(BIN)/python -m pytest -q tests/servers/ha/test_killed_master.py

FROM ?= 1
COUNT ?= 10000
sim-soak: $(NATIVE)  ## simulate COUNT=10000 groups of 3 and of 5 members from seed FROM=1, COUNT/5 sets of ledgers, COUNT/2 masters and slaves
	$(BIN)/python -m pyledger sim --seed $(FROM) --seeds $$(($(COUNT) / 2)) --nodes 3 > /dev/null
	$(BIN)/python -m pyledger sim --seed $$(($(FROM) + $(COUNT) / 2)) --seeds $$(($(COUNT) / 2)) --nodes 5 > /dev/null
	$(BIN)/python -m pyledger sim --protocol ledger --seed $(FROM) --seeds $$(($(COUNT) / 5)) --nodes 5 > /dev/null
	$(BIN)/python -m pyledger sim --protocol ha --seed $(FROM) --seeds $$(($(COUNT) / 2)) --nodes 3 > /dev/null

demo: $(NATIVE)  ## write real flights to a store, query them with Spark SQL, draw a chart
	$(BIN)/python examples/flights.py

demo-report: $(NATIVE)  ## stream the flights while they are written; one HTML page with charts of delays
	$(BIN)/python -m examples.flights_report

smoke: $(NATIVE)  ## send a million messages through a broker that is killed midway; check that none is lost
	$(BIN)/python examples/kill_broker.py

test: $(NATIVE)  ## lint, types, house rules, all tests without a JDK, benchmark smoke
	@$(MAKE) --no-print-directory -j3 lint type all-tests
	@echo "stage: benchmarks smoke"
	$(BIN)/python -m pytest -q -m "not java and not spark" --benchmark-columns=min benchmarks

all-tests: $(NATIVE)
	$(call run_tests,tests,"not java",$(PROCESSORS))

test-all: test interop interop-live build-debug  ## the same, interop with Java, and the native tests on the checked build
	$(BIN)/python -m pytest -m "not java and not spark and not slow" $(TESTS)
	$(BIN)/python setup.py --quiet build_ext --inplace && touch $(NATIVE)

interop: $(NATIVE)  ## test against RocketMQ's store, servers and clients; needs Java 17 or newer, Maven, and Go for its client
	$(call run_tests,interop,"java and not live",$(shell echo $$((2 * $(PROCESSORS)))))

interop-live: $(NATIVE)  ## timed tests of mixed masters and slaves; needs an idle machine
	$(BIN)/python -m pytest -m "java and live" $(TESTS)

# The stores that ours is measured against.
$(PEERS): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	@touch $@

bench: $(NATIVE) $(PEERS)  ## full benchmarks; K=expression selects
	$(BIN)/python -m pytest benchmarks --scale=full --timeout=1800 $(if $(K),-k "$(K)") --benchmark-autosave

bench-report: $(NATIVE) $(PEERS)  ## run three times with all peers; rewrite the table of docs/design/benchmarking.md
	$(BIN)/python -m benchmarks.report

compare: $(READY)  ## ratio table of two saved runs: A=file B=file; BOUND=1.2 fails beyond it
	$(BIN)/python benchmarks/report/compare.py $(A) $(B) $(if $(BOUND),--bound $(BOUND))

lint: $(READY)  ## ruff and cython-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PATH="$(CURDIR)/$(BIN):$$PATH" cython-lint src/_core

type: $(READY)  ## mypy, strict, as on Linux and as on macOS
	$(BIN)/mypy
	$(BIN)/mypy --platform darwin --cache-dir .mypy_cache/darwin src/pyledger spark_ext/pyspark_pyledger

check-macos: $(NATIVE)  ## compile the native module for macOS with ziglang, and check what it calls; nothing runs
	$(BIN)/python -m pip install --quiet --disable-pip-version-check ziglang
	$(BIN)/python tools/check_macos.py

tidy: $(NATIVE)  ## run the house rules, which are tests
	$(BIN)/python -m pytest -q tests/test_tidy*.py

docs: $(NATIVE)  ## regenerate reference pages, diagrams, keywords and synchronous clients; fail if any was out of date
	$(BIN)/python tools/generate_settings.py
	$(BIN)/python tools/generate_blocking.py
	$(BIN)/python tools/generate_docs.py

rewrite: $(NATIVE)  ## accept new output of the text tests; review the diff
	$(BIN)/python -m pytest -m "not slow and not java and not spark" $(TESTS) --rewrite

format: $(READY)  ## format the code with ruff
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

WHEEL_TOOLS := .venv/.wheel-tools
$(WHEEL_TOOLS): $(READY)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[wheels]'
	@touch $@

wheels: $(WHEEL_TOOLS)  ## build wheels for Linux in dist/, for glibc and musl on x86-64 and 64-bit Arm; ONLY=cp312 selects
	$(BIN)/python tools/build_wheels.py $(if $(ONLY),--only $(ONLY))

wheels-test: wheels  ## test them: natively, and in QEMU with pages of 4 and 64 KiB; needs Maven, qemu-user-static, debootstrap
	$(BIN)/python tools/try_wheels.py

package: $(READY)  ## build an sdist and a wheel from it, in dist/
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -m build

package-check: $(READY)  ## build both twice; compare their bytes, check size, metadata and bill of materials
	$(BIN)/python tools/check_package.py

workflows:  ## check .github/workflows with actionlint (needs Go)
	go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12 .github/workflows/*.yml

chroot: $(READY)  ## the first minute in a fresh Debian with a clock, by the wheel in dist/ (needs root, debootstrap)
	$(BIN)/python tools/first_minute.py

clean:  ## delete everything that was built, .venv included
	rm -rf .venv build dist src/*.egg-info src/pyledger/*.so
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks demo-out spark-warehouse
