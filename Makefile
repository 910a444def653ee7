# make test is what every change has to pass; make all is everything, real ZooKeeper servers and other clients among it.
#
#   ZOOKEEPER_HOME=dir   start the servers of this unpacked release, folder of jars, or list of jars; scripts/newer.sh
#                        fetches a newer Debian suite's and prints its folder
#   HOMES="dir …"        the ones for make matrix
#   PKG=./zklock      the one package that make test or make stress runs
#   FOR=20m           how long make stress and make soak take; 10m by default
#   ZKLOCK_TEST_SERVERS=host:port,host:port,host:port   make all tests against this ensemble instead of starting servers
#   PARALLEL=1        packages tested at once; 3 by default, since tests of real servers wait much of their time
#   TESTFLAGS=-v      further flags for go test
#   FUZZTIME=10s      time for each fuzz target
#   BENCHFLAGS=-quick flags for make bench; -help lists them

PARALLEL  ?= 3
TESTFLAGS ?=
FUZZTIME  ?= 10s
FOR       ?= 10m
BENCHFLAGS ?=
BEGAN     := $(shell date +%s)
export PARALLEL PKG TESTFLAGS FUZZTIME FOR

.DEFAULT_GOAL := help
.PHONY: help test stress all servers check portable vuln unit model docs long release soak newer matrix bench fuzz image

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

test: ## what every change has to pass, in minutes; PKG=./zklock runs one package
	@scripts/test.sh

stress: ## the tests again and again for ten minutes (FOR), shuffled, beside a second copy; prints each failure with its rate
	@scripts/stress.sh

all: test servers check portable vuln unit newer ## make test, and the rest: real servers, other clients, chaos, every test with -race
	@echo "== make all took $$(($$(date +%s) - $(BEGAN))) s"

servers: ## find, or install through apt, what the tests start
	@scripts/servers.sh

check: ## gofmt, go vet, staticcheck, go mod tidy -diff in every module
	@scripts/check.sh

portable: ## build and vet for Linux on arm64 and 386, Windows, macOS, FreeBSD and js/wasm; short tests on 386; test with the oldest Go that go.mod allows
	@scripts/portable.sh

vuln: ## govulncheck, where it can be built and reach its database
	@scripts/vuln.sh

unit: ## the race tests of every module, and a thousand simulated runs without the race detector
	@go test -count=1 ./tests/simulation
	@scripts/gotest.sh -race -shuffle=on

model: servers ## the models of the queue and the lease in full, and their mutants, by spin: some minutes, 2 GB
	@go run ./tests/model -o tests/model/result.txt

docs: ## the documents: links, and code that compiles and runs
	@go test -count=1 ./tests/layout
	@go test -count=1 -run 'Fragment|TestingPages|SampleRuns' ./examples/quickstart

long: servers ## the tests with their long-running variants (ZKLOCK_LONG=1)
	@ZKLOCK_LONG=1 TEST_TIMEOUT=120m scripts/gotest.sh -race -shuffle=on

release: ## the commit and the tags of a release: make release VERSION=v0.1.0
	@scripts/release.sh $(VERSION)

soak: servers ## everything breaks for ten minutes (FOR), with a line of figures for each
	@go -C tests/e2e run ./soak -for $(FOR)

newer: servers ## a few tests of each suite on a newer Debian suite's ZooKeeper; says so where there is none to be had
	@scripts/newest.sh

matrix: servers ## the suites that need real servers, on every version that is there
	@scripts/matrix.sh $(abspath $(HOMES))

bench: servers ## this library beside other locks; BENCHFLAGS=-quick for one short round
	@scripts/bench.sh $(BENCHFLAGS)

image: ## the command-line tool as a Docker image for amd64 and arm64, without a registry; VERSION=v0.1.0
	@scripts/image.sh

fuzz: ## every fuzz target for a short time
	@scripts/fuzz.sh
