# Every target does its own set-up: a fresh clone needs Python 3.11 or newer and make, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Folders that exist by now; a folder that is not there yet is not checked.
CODE := $(wildcard src tests benchmarks examples)
BENCH ?=
SEEDS ?= 5000
PROVE ?=
PYTHONS ?= python3.11 python3.12 python3.13
RELEASE := .venv-release/.installed
# Environments of tools: each file lists them, the .txt beside it locks them with their dependencies.
TOOLS := docs/requirements.in deploy/requirements-test.in deploy/requirements-release.in
COMPILE := $(BIN)/uv --quiet --no-config pip compile --universal --python-version 3.11 --generate-hashes \
	--no-annotate --no-header --no-emit-index-url --no-emit-find-links
PROVE_MINUTES ?= 90
TESTS ?=
# More than the cores: many tests wait for a database, a server or a timer.
TEST_PROCESSES ?= 4
# Some containers forbid bytecode files; every program that a test starts would compile the package.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help dev demo test test-all test-busy test-ui pictures test-deploy test-gcp test-nats coverage explore check fix docs reference bench simulate crash prove failover test-pgbouncer test-wheel sbom audit release-check lock clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

dev: $(STAMP) ## Create .venv with the locked dependencies and penstock itself, editable

demo: $(STAMP) ## Simulate a day of pipeline runs in your terminal: late data, failures, recovery
	$(BIN)/python -m penstock demo

test: $(STAMP) ## Run the tests on both engines (TESTS="path -k name" to choose)
	$(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist worksteal -m "not slow and not seeded and not repository" $(TESTS)

test-all: $(STAMP) ## Run all tests of this environment, the slow ones too, each with its full effort
	PENSTOCK_TEST_FULL=1 $(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist worksteal -m "not gcp" --timeout 1200 $(TESTS)

test-busy: $(STAMP) ## Run make test twice beside eight busy processes, with ports 8080 and 5432 taken
	$(BIN)/python -m tests.harness.busy --times 2 -- $(MAKE) test

test-ui: $(STAMP) ## Test the dashboard in a real Chromium (CHROMIUM=path), with Playwright
	$(BIN)/python -m pytest -n 2 -m ui tests/web

pictures: $(STAMP) ## Retake the screenshots of README and tutorial from the demo, in Chromium
	$(BIN)/python -m tests.web.pictures docs/pictures

test-deploy: ## Check the Dockerfile and the Helm chart with their own tools, in a separate environment
	@test -x .venv-deploy/bin/python || $(PYTHON) -m venv .venv-deploy
	.venv-deploy/bin/python -m pip install --quiet --disable-pip-version-check -r deploy/requirements-test.txt
	.venv-deploy/bin/python -m pytest -q -c /dev/null --rootdir . --noconftest -p no:cacheprovider tests/deploy/test_charts.py

test-wheel: $(STAMP) ## Try the built wheel in clean environments (PYTHONS="python3.11 python3.13")
	$(BIN)/python -m tests.release.wheels --pythons "$(PYTHONS)"

sbom: $(RELEASE) ## Write the software bill of materials of the image to dist/sbom.cdx.json
	@mkdir -p dist
	.venv-release/bin/python -W ignore -m cyclonedx_py requirements deploy/requirements.lock --pyproject pyproject.toml \
		--sv 1.6 --output-reproducible -o dist/sbom.cdx.json
	@echo 'wrote dist/sbom.cdx.json'

audit: $(STAMP) $(RELEASE) ## Compare the locked dependencies with published advisories (needs the network)
	$(BIN)/python -m tests.release.audit --pip-audit .venv-release/bin/pip-audit

release-check: $(STAMP) $(RELEASE) ## Check what a release needs, as far as this machine can; see docs/operations/release.md
	$(BIN)/python -m tests.release

test-nats: $(STAMP) ## Kill the leader of three NATS servers under load, and report what happened
	$(BIN)/python -m pytest -n 0 -s -m slow tests/bus/transports/nats $(TESTS)

test-gcp: $(STAMP) ## Test BigQuery with Google's client against an emulator, which gets its own environment
	@test -x .venv-gcp/bin/python || $(PYTHON) -m venv .venv-gcp
	.venv-gcp/bin/python -m pip install --quiet --disable-pip-version-check -r tests/gcp/requirements.txt
	@mkdir -p .venv-gcp/home
	HOME=$(CURDIR)/.venv-gcp/home .venv-gcp/bin/python -c "from duckdb_extensions import import_extension; import_extension('spatial')"
	$(BIN)/python -m pytest -n 0 -m gcp tests/gcp $(TESTS)

coverage: $(STAMP) ## Run the tests under coverage; fail below the floor in pyproject.toml
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n $(TEST_PROCESSES) --dist worksteal -m "not slow" --timeout 1200 $(TESTS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

explore: $(STAMP) ## Look for counterexamples of the rules at random, with many more examples
	$(BIN)/python -m pytest -n 2 --hypothesis-profile=explore -m "not slow" --timeout 1200 \
		tests/core tests/access tests/egress tests/schedules tests/limits tests/consumer \
		tests/flows/gates tests/flows/test_cascade_properties.py tests/runs/test_attempt_result.py \
		tests/runs/test_queue_model.py tests/bus $(TESTS)

check: $(STAMP) ## Check formatting, lint, types, and our own rules for every file
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy $(CODE)
	$(BIN)/python -m pytest -q -n 2 -m repository tests/tidy

fix: $(STAMP) ## Format the code and apply the safe lint fixes
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

docs: ## Build the documentation as a searchable site in build/site; a broken link fails
	@test -x .venv-docs/bin/python || $(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check -r docs/requirements.txt
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --quiet
	@echo 'Built build/site, to be served over HTTP; to read it here: .venv-docs/bin/mkdocs serve'

reference: $(STAMP) ## Regenerate docs/reference from the code
	$(BIN)/python -m penstock.cli.reference docs/reference
	$(BIN)/python -m penstock.assembly.api_reference docs/reference

bench: $(STAMP) ## Measure (BENCH=name for one), one JSON line per result
	$(BIN)/python -m benchmarks $(BENCH)

simulate: $(STAMP) ## Run the long simulation (SEEDS=n histories)
	$(BIN)/python -m tests.harness.simulate --seeds $(SEEDS)

crash: $(STAMP) ## Kill a flow's process at every commit; kill backfills, publishers, consumers and servers
	$(BIN)/python -m tests.harness.crashing
	$(BIN)/python -m tests.harness.crash_backfill
	$(BIN)/python -m tests.harness.crash_bus
	$(BIN)/python -m benchmarks limit_crash

prove: $(STAMP) ## Run every proof for PROVE_MINUTES (90) and write docs/operations/proof.md; PROVE="--only chaos"
	$(BIN)/python -m tests.prove --minutes $(PROVE_MINUTES) $(PROVE)

failover: $(STAMP) ## Kill PostgreSQL's primary under load, promote its standby, report; read from a replica
	$(BIN)/python -m tests.harness.failover
	$(BIN)/python -m pytest -q -n 0 -s -m slow tests/db $(TESTS)

test-pgbouncer: $(STAMP) ## Run queue, bus and flows through a real PgBouncer (PENSTOCK_TEST_PGBOUNCER=program)
	@test -n "$$PENSTOCK_TEST_PGBOUNCER" || test -x build/pgbouncer/usr/sbin/pgbouncer || { mkdir -p build/pgbouncer && \
		cd build/pgbouncer && apt-get download pgbouncer libc-ares2 libevent-2.1-7 && for one in *.deb; do dpkg -x $$one .; done; }
	PENSTOCK_TEST_PGBOUNCER=$${PENSTOCK_TEST_PGBOUNCER:-$(CURDIR)/build/pgbouncer/usr/sbin/pgbouncer} \
		$(BIN)/python -m pytest -n 0 tests/db/test_pgbouncer.py $(TESTS)

lock: $(STAMP) ## Resolve all lock files again (upgrades everything)
	$(COMPILE) pyproject.toml --extra postgres --extra duckdb --extra bigquery --extra firestore --extra oidc --extra pubsub --extra nats \
		--extra otel --extra sentry --extra dev --upgrade --output-file requirements.lock
	$(COMPILE) pyproject.toml --extra postgres --extra oidc --extra alerts --extra otel \
		--upgrade --constraint requirements.lock --output-file deploy/requirements.lock
	echo hatchling | $(COMPILE) - --constraint requirements.lock --output-file deploy/requirements-build.lock
	for tools in $(TOOLS); do $(COMPILE) $$tools --upgrade --output-file $${tools%.in}.txt || exit 1; done
	@! grep -nE '://|^-|@ ' requirements.lock deploy/requirements.lock $(TOOLS:.in=.txt) || { echo 'a lock file names an address'; exit 1; }

clean: ## Remove the environment, builds and caches
	rm -rf $(VENV) .venv-deploy .venv-docs .venv-release .venv-gcp build dist .coverage .coverage.* .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

$(RELEASE): deploy/requirements-release.txt
	@test -x .venv-release/bin/python || $(PYTHON) -m venv .venv-release
	.venv-release/bin/python -m pip install --quiet --disable-pip-version-check -r deploy/requirements-release.txt
	@touch $@

$(STAMP): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo 'Penstock needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3.11'; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --only-binary :all: \
		--require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
		--editable .
	@touch $@
