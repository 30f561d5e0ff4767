# Every target does all of its own set-up (Debian packages, .venv), says what it does, and can be run again.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# One compiler everywhere, unless the environment names another.
ifeq ($(origin CC),default)
  CC := gcc-12
endif
ifeq ($(origin CXX),default)
  CXX := g++-12
endif
export CC CXX
export CMAKE_GENERATOR := Ninja
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(shell nproc)
# Clones in other places share what they compile.
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
PATH := $(CURDIR)/.venv/bin:$(PATH)

cpp_files = $(shell git ls-files '*.h' '*.c' '*.cc' '*.cu' '*.cuh')
fuzz_seconds ?= 30
cpp_options = --parallel 3 --timeout 600
compare_options ?=

.PHONY: help bench compare test lint format wheel install prove long sanitize sanitize-gpu fuzz clean setup-% test-cpp test-python

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

bench: install  ## set up, build, install into .venv, then every collective on 4 ranks, 8 B to 64 MB, checked
	.venv/bin/paceline bench all -n 4 --check

compare: install  ## bench/compare_cpu.py: Paceline beside the MPIs of PyPI (it installs them), about 20 minutes
	.venv/bin/python bench/compare_cpu.py $(compare_options)

test: wheel test-cpp test-python  ## set up, build, then the C++, C99, Python and wheel tests

# clang compiles the core for its warnings and clang-tidy checks each file on the way; ninja skips what they have seen.
# Highway's code is the same text for every instruction set: seen once.
lint: setup-build setup-lint  ## formatting and static checks: clang-format, ruff, mypy, clang-tidy
	@echo "clang-format-14 --dry-run -Werror on $(words $(cpp_files)) files"
	@clang-format-14 --dry-run -Werror $(cpp_files)
	ruff check .
	ruff format --check .
	mypy
	CC=clang-14 CXX=clang++-14 cmake -S . -B build/lint -DCMAKE_BUILD_TYPE=Debug -DPACELINE_TESTS=OFF \
	  "-DCMAKE_CXX_FLAGS=-Werror -DHWY_COMPILE_ONLY_STATIC" \
	  "-DCMAKE_CXX_CLANG_TIDY=clang-tidy-14;--quiet" >/dev/null
	cmake --build build/lint --target core nccl_door

format: setup-build setup-lint  ## apply clang-format and ruff format
	@echo "clang-format-14 -i on $(words $(cpp_files)) files"
	@clang-format-14 -i $(cpp_files)
	ruff check --fix --quiet . || true
	ruff format .

install: .venv/paceline.installed  ## the wheel, built incrementally, in .venv

wheel: setup-test install  ## dist/*.whl, self-contained
	rm -f dist/paceline-*.whl
	auditwheel repair build/raw/paceline-*.whl --wheel-dir dist
	@ls dist/paceline-*.whl

# Sources of the wheel; ninja decides what of them is compiled again.
wheel_sources = $(shell find src include plugins python cmake CMakeLists.txt pyproject.toml README.md LICENSE NOTICE \
                -not -path '*__pycache__*')

.venv/paceline.installed: $(wheel_sources) | setup-build
	@echo "building the wheel into build/raw and installing it into .venv (the first time takes minutes)"
	@rm -rf build/raw && mkdir -p build/raw && touch build/raw/begun
	pip wheel --quiet --no-build-isolation --no-deps --wheel-dir build/raw .
	pip install --quiet --no-deps --force-reinstall build/raw/paceline-*.whl
	@touch -r build/raw/begun $@  # what has changed since is not in it

# The tests join the wheel's tree: the core is compiled once.
test-cpp: setup-test install
	cmake -DPACELINE_TESTS=ON build/wheel >/dev/null
	cmake --build build/wheel --target paceline_tests
	ctest --test-dir build/wheel --output-on-failure $(cpp_options)

test-python: wheel
	pytest

# The layers that an algorithm needs, without engines and CUDA, with checks of indices. Proofs first: the formulas of
# what has none say nothing.
prove: setup-prove  ## prove all algorithms, or algorithm=NAME, and compare the formulas with them: no GPU, no wheel
	cmake -S . -B build/prove -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS=-D_GLIBCXX_ASSERTIONS >/dev/null
	cmake --build build/prove --target paceline_prove
	PACELINE_TEST_ALGORITHM=$(algorithm) build/prove/paceline_prove "--source-file=*/prove_all_test.cc"
	PACELINE_TEST_ALGORITHM=$(algorithm) build/prove/paceline_prove "--source-file-exclude=*/prove_all_test.cc"

# One group after the other: some tests are about time.
long: export PACELINE_TEST_LONG := 1
long: cpp_options = --timeout 3600
long: wheel test-cpp  ## the long tests: C++ with 16,384 GPUs and 9 GB of memory, Python with faults by the hundred
	pytest -m long --timeout 3600

# Neither tree has CUDA: sanitizers see the host code, and the runtime's own allocations stay out. What is too large is
# refused, as the C library does: tests ask for it. TSAN misjudges how long a thread's variables are in a library that is
# loaded late, with a C library as new as 2.36: it does not look.
sanitize: setup-test  ## the C++ tests under ASAN+UBSAN and under TSAN
	cmake -S . -B build/asan -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS=-O1 \
	  -DPACELINE_SANITIZE=address,undefined >/dev/null
	cmake --build build/asan --target paceline_tests
	ASAN_OPTIONS=allocator_may_return_null=1 build/asan/paceline_tests
	cmake -S . -B build/tsan -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS=-O1 \
	  -DPACELINE_SANITIZE=thread >/dev/null
	cmake --build build/tsan --target paceline_tests
	TSAN_OPTIONS=allocator_may_return_null=1:intercept_tls_get_addr=0 build/tsan/paceline_tests

sanitize-gpu: install  ## NVIDIA's compute-sanitizer over every kernel: memcheck, racecheck, synccheck, initcheck
	.venv/bin/python tests/python/sanitize_gpu.py

fuzz: setup-fuzz  ## every fuzz target of tests/fuzz with clang, 30 s each (fuzz_seconds=N)
	CC=clang-14 CXX=clang++-14 cmake -S . -B build/fuzz -DCMAKE_BUILD_TYPE=RelWithDebInfo -DPACELINE_TESTS=OFF \
	  -DPACELINE_FUZZ=ON -DPACELINE_SANITIZE=address,undefined,fuzzer-no-link >/dev/null
	cmake --build build/fuzz
	for target in build/fuzz/*_fuzz; do \
	  echo "$$target"; "$$target" -max_total_time=$(fuzz_seconds) -print_final_stats=1 -verbosity=0 -artifact_prefix=build/fuzz/; \
	done

clean:  ## remove what was built (.venv stays)
	rm -rf build dist .venv/paceline.installed

setup-%:
	@tools/setup.sh $*
