# heyday: `make help` lists what there is.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.NOTPARALLEL:

# A run of CI must build exactly what Cargo.lock names.
LOCKED := $(if $(CI),--locked)
# What `make demo` passes on, for example: make demo DEMO="--seconds 60".
DEMO ?=
# What `make bench` passes on, for example: make bench BENCH="drain --rounds 3"; and `make bench-core`: make bench-core BENCH=reduce.
BENCH ?=
# How long `make chaos` runs, from which seed (none: a random one, which it prints), and the kinds of faults where it shall not be all.
MINUTES ?= 10
SEED ?=
KINDS ?=
# How many lives `make simulation` lives.
SEEDS ?= 10000
# Only these servers of tools/matrix.
SERVERS ?=

.PHONY: help demo test simulation chaos test-matrix bench bench-core fmt lint prepare

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1 \2/p' $(MAKEFILE_LIST) | awk '{ name = $$2; $$1 = $$2 = ""; printf "make %-13s%s\n", name, $$0 }'

demo: prepare ## a cluster, two workers, a killed worker, a failed-over primary, and the proof that nothing was lost
	@echo "== building heyday (the first time takes minutes)"
	@cargo build $(LOCKED) --quiet --release --bin heyday
	@target/release/heyday demo $(DEMO)

test: prepare ## everything CI checks: format, lints, light build, documentation, tests
	@echo "== format"
	@cargo fmt --check
	@echo "== lints"
	@cargo clippy $(LOCKED) --all-targets -- -D warnings
	@echo "== light library: without feature server"
	@tools/light
	@cargo clippy $(LOCKED) --no-default-features --lib -- -D warnings
	@echo "== documentation"
	@RUSTDOCFLAGS="-D warnings" cargo doc $(LOCKED) --no-deps --lib --features testing
	@echo "== documentation examples"
	@cargo test $(LOCKED) --doc
	@echo "== tests"
	@tools/tests $(LOCKED)

simulation: ## SEEDS=10000 lives of a cluster with every fault, on all cores; CI lives the first thousand
	@echo "== building the simulation (the first time takes minutes)"
	@cargo test $(LOCKED) --quiet --profile simulation --test main --no-run
	@echo "== $(SEEDS) lives"
	@HEYDAY_SEEDS=$(SEEDS) cargo test $(LOCKED) --quiet --profile simulation --test main -- --nocapture simulation::hard_lives

chaos: prepare ## faults at random for MINUTES=10 from SEED=…, and the proof that nothing was lost (docs/chaos.md)
	@tools/chaos "$(MINUTES)" "$(SEED)" "$(KINDS)"

test-matrix: prepare ## the tests on real servers and short rounds of faults on Valkey 9.1, Valkey 8.1 and Redis 8.2, fetched into target/
	@tools/matrix $(SERVERS)

bench: prepare ## what a change costs and how fast changes are applied, beside plain consumers; tables, JSON and plots in target/bench
	@echo "== building heyday (the first time takes minutes)"
	@cargo build $(LOCKED) --quiet --release --bin heyday
	@target/release/heyday bench --output target/bench $(BENCH)
	@echo "== target/bench/report.md, report.json and the plots beside them"

bench-core: ## what one batch costs the worker's own processor, stage by stage, without a server; BENCH=… chooses
	@cargo bench $(LOCKED) --bench core -- $(BENCH)

fmt: ## format the code
	@cargo fmt

lint: ## format and lints only; shellcheck and cargo-deny where they are installed
	@cargo fmt --check
	@cargo clippy --all-targets -- -D warnings
	@if command -v shellcheck >/dev/null; then shellcheck -x cluster/up cluster/down cluster/common.sh cluster/create.sh tools/* .ci/run benches/peers/*/run; fi
	@if cargo deny --version >/dev/null 2>&1; then cargo deny --log-level warn check; fi

prepare:
	@tools/prepare
