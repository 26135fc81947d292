# make test    all tests that this machine has the tools for; needs only Go
# make race    the same under the race detector
# make lint    golangci-lint, gofumpt and go vet
# make fuzz    every fuzz target for FUZZTIME each
# make bench   the benchmarks whose figures stand in docs/BENCHMARKS.md
# make soak    the long runs: more crash points, more kills, longer fuzzing
# make mutants the tests against broken rules: MUTANTS=all, names (R14-*) or a part (2/3)
# make docs    the pages that are generated from code

GO        ?= go
FUZZTIME  ?= 5s
PKGS      ?= ./...
MUTANTS   ?= all
LINT       = $(GO) tool -modfile=.ci/tools.mod golangci-lint

.PHONY: all build test race lint fmt fuzz bench soak mutants demo docs s3srv tools clean

all: build test

build:
	$(GO) build -trimpath -o bin/strandline ./cmd/strandline

# The S3 server of the tests is versitygw, built from its Go module. It is built
# here, not inside a test, so that a slow first build cannot run into a test's
# time limit.
s3srv:
	@cd testenv/s3srv/server && $(GO) tool -n versitygw >/dev/null

test: s3srv tools
	$(GO) test -timeout 20m $(PKGS)

race: s3srv tools
	$(GO) test -race -timeout 30m $(PKGS)

# Tests that need a tool which is missing are left out; this names them.
tools:
	@command -v kcat >/dev/null 2>&1 || echo "left out: tests with kcat (librdkafka); to have them: apt-get install kcat"

lint:
	$(GO) vet $(PKGS)
	$(LINT) run $(PKGS)
	$(LINT) fmt --diff $(PKGS)

fmt:
	$(LINT) fmt $(PKGS)

fuzz:
	@.ci/fuzz $(FUZZTIME)

bench: s3srv
	$(GO) test -run '^$$' -bench . -benchmem $(PKGS)

soak: s3srv
	STRANDLINE_SOAK=1 $(GO) test -timeout 6h -count=1 $(PKGS)
	@.ci/fuzz 5m

# Each mutant is a build and a run of some tests: all of them take minutes.
mutants:
	STRANDLINE_MUTANTS='$(MUTANTS)' $(GO) test -count=1 -timeout 60m ./testenv/mutants

demo:
	$(GO) run ./cmd/strandline demo

docs:
	$(GO) run ./cmd/strandline config reference > docs/CONFIGURATION.md

clean:
	rm -rf bin
