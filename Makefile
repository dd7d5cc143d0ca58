# The two commands of the README are `make demo` and `make test`; each sets itself up on first use.
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3)
VENV := .venv
PEERS := .venv-peers
PFL := .venv-pfl
FLOWER := .venv-flower
RELEASE := .venv-release
BIN := $(VENV)/bin
# A test of minutes may take an hour on a busy machine.
PATIENT := --timeout 7200 -o faulthandler_timeout=7500
INSTALL := -m pip install --quiet --disable-pip-version-check
# Tests start hundreds of processes: none compiles the package anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo demo-phone setup test format lint types unit test-all docs pages test-slow fuzz bench peers pfl flower sbom screenshots soak clean

# PROFILE=hardened plays the campaign with the paper's cryptosystem; PROFILE=paper a small one as printed.
PROFILE ?= shares
demo: $(VENV)/.demo
	$(BIN)/crowdfl demo --profile $(PROFILE)

# A campaign for a phone in this network; PHONE="--host 192.0.2.7 --phones 2" and the like go to `crowdfl demo-phone`.
demo-phone: $(VENV)/.demo
	$(BIN)/crowdfl demo-phone $(PHONE)

# All that `.ci/run` needs; with -j, at the same time.
setup: $(VENV)/.ready $(FLOWER)/.ready node_modules/.package-lock.json

# Each change must pass this. The type checker has one process, so that the tests begin beside it.
test: format lint
	$(MAKE) --no-print-directory -j 2 types unit

format: $(VENV)/.ready
	$(BIN)/ruff format --check .

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-cache

types: $(VENV)/.ready
	$(BIN)/mypy

unit: $(VENV)/.ready
	$(BIN)/pytest -n auto --dist worksteal -m "not second and not slow"

# The second tier: processes that are killed, clusters, benchmarks, pages in a browser, PostgreSQL where CROWDFL_TEST_POSTGRES
# names a server. Four at a time: they wait for processes more than they compute.
test-all: $(VENV)/.ready $(FLOWER)/.ready pages
	$(BIN)/pytest -n 4 --dist worksteal --durations 25 -m "second and not slow"

# The pages' scripts: types, and tests that need no browser. Node is for these checks only.
pages: node_modules/.package-lock.json
	npm run --silent types
	npm test --silent

# npm writes this file when it has installed. A link to packages that lie elsewhere is left alone.
node_modules/.package-lock.json: package-lock.json
	@command -v npm >/dev/null || { echo "the checks of the pages need node 20 or later, with npm"; exit 1; }
	@test -L node_modules || npm ci

# The documents as a site, in site/. The second tier builds it too, and follows its links. (The variable silences an advertisement.)
docs: $(VENV)/.ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Pictures of every page in every language, as the tests take them, in build/pictures; and of them those in the documents.
screenshots: $(VENV)/.ready node_modules/.package-lock.json
	mkdir -p build/pictures
	CROWDFL_SCREENSHOTS=build/pictures $(BIN)/pytest -n auto -m "second and not slow" tests/web
	$(BIN)/python tools/pictures.py build/pictures

test-slow: $(VENV)/.ready
	$(BIN)/pytest -n auto $(PATIENT) -m slow

# Eighty times as many examples as `make test`, other ones each time: more than 100,000 of decoders and routes alone.
fuzz: $(VENV)/.ready
	HYPOTHESIS_PROFILE=fuzz $(BIN)/pytest -n auto $(PATIENT) -vv tests/fuzz $(addprefix tests/crypto/test_,pctd.py packing.py integers.py) tests/campaigns

# With a release: what its image is made of, as CycloneDX has it, and whether a weakness of it is known, which takes an index.
sbom:
	"$(PYTHON)" -m venv $(RELEASE)
	$(RELEASE)/bin/python $(INSTALL) cyclonedx-bom pip-audit
	mkdir -p dist
	$(RELEASE)/bin/cyclonedx-py requirements --pyproject pyproject.toml --of JSON -o dist/crowdfl.cdx.json deploy/requirements.txt
	$(RELEASE)/bin/pip-audit --require-hashes --disable-pip -r deploy/requirements.txt

# Campaigns for an hour while things go wrong, and a page about it in crowdfl-soak/.
MINUTES ?= 60
soak: $(VENV)/.ready
	$(BIN)/python -m crowdfl_lab.soak --minutes $(MINUTES)

bench: $(VENV)/.ready $(PEERS)/.ready $(PFL)/.ready
	$(BIN)/crowdfl bench compare

peers: $(PEERS)/.ready

pfl: $(PFL)/.ready

flower: $(FLOWER)/.ready

# What the demos take, without torch. The rest is installed on top, so that either order of commands works.
$(VENV)/.demo: pyproject.toml lab/pyproject.toml constraints.txt
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "CrowdFL needs Python 3.11 or later; set PYTHON=..."; exit 1; }
	"$(PYTHON)" -m venv $(VENV)
	$(BIN)/python $(INSTALL) --constraint constraints.txt --editable '.[plots,services]' --editable ./lab
	@touch $@

$(VENV)/.ready: $(VENV)/.demo
	$(BIN)/python $(INSTALL) --constraint constraints.txt --editable '.[dask,dev,docs,learning,plots,s3,services,tracing]' --editable './lab[measure]'
	@touch $@

# What CrowdFL is compared with lives apart, so that it never bends the project's own dependencies.
$(PEERS)/.ready: constraints-peers.txt
	"$(PYTHON)" -m venv $(PEERS)
	$(PEERS)/bin/python $(INSTALL) --constraint constraints-peers.txt 'flwr[simulation]' gmpy2 numpy phe tenseal
	@touch $@

# A simulator that CrowdFL's is measured beside; it pins older versions of what the others use.
$(PFL)/.ready: constraints-pfl.txt
	"$(PYTHON)" -m venv $(PFL)
	$(PFL)/bin/python $(INSTALL) --constraint constraints-pfl.txt pfl
	@touch $@

# Flower pins older versions of packages that the services use too; with CrowdFL's own extras it fits.
$(FLOWER)/.ready: pyproject.toml constraints-flower.txt
	"$(PYTHON)" -m venv $(FLOWER)
	$(FLOWER)/bin/python $(INSTALL) --constraint constraints-flower.txt --editable '.[flower,learning,services]' 'flwr[simulation]' pytest pytest-timeout
	@touch $@

clean:
	rm -rf $(VENV) $(PEERS) $(PFL) $(FLOWER) $(RELEASE) node_modules build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis
