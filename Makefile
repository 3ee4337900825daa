# Two commands for a fresh machine: `make demo` and `make test`. Both install what is missing (scripts/setup.sh).
# Day-to-day work uses CMake directly: cmake --preset release && cmake --build --preset release
.DEFAULT_GOAL := help
.PHONY: help demo demo-hosts test test-asan test-tsan test-ubsan format format-check lint perf-check torch-compat clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

demo:  ## build, train a small GPT on 2 ranks, show what its communication costs
	@bash scripts/demo.sh

demo-hosts:  ## the same trainer on two hosts with a link of 1 Gb/s between them, all on this machine
	@bash scripts/demo_hosts.sh

test:  ## build and pass every test; the last line is "N passed, N failed"
	@bash scripts/test.sh

test-asan:  ## the tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@bash scripts/sanitize.sh asan

test-tsan:  ## the tests under ThreadSanitizer
	@bash scripts/sanitize.sh tsan

test-ubsan:  ## the tests under UndefinedBehaviorSanitizer
	@bash scripts/sanitize.sh ubsan

format:  ## format the sources in place
	@bash scripts/setup.sh
	@bash scripts/format.sh

format-check:  ## fail where `make format` would change something
	@bash scripts/setup.sh
	@bash scripts/format.sh --check

lint:  ## clang-tidy
	@bash scripts/lint.sh

perf-check:  ## measure, and compare with the thresholds kept in perf/
	@bash scripts/setup.sh
	@bash perf/check.sh

torch-compat:  ## torch's own distributed tests on gloo and on weft, into docs/torch-compatibility.md
	@bash scripts/torch_compat.sh

clean:  ## remove every build folder
	rm -rf build
