# make dev: build edgert/_core into the tree. Others: stubs docs test lint format fuzz interrupt neon kernels bench clean.
PYTHON ?= python3
override PYTHON := $(shell command -v $(PYTHON))
JOBS ?= $(shell nproc 2>/dev/null || sysctl -n hw.ncpu)
export PATH := $(dir $(PYTHON)):$(PATH)
CONFIGURE = cmake -G Ninja -S . -DPython_EXECUTABLE=$(PYTHON) -Dpybind11_DIR=$$($(PYTHON) -m pybind11 --cmakedir)
CPP_FILES = $(shell find csrc -name '*.cpp' -o -name '*.h')
AARCH64_CXX ?= aarch64-linux-gnu-g++
QEMU ?= qemu-aarch64 -L /usr/aarch64-linux-gnu
FUZZ_SECONDS ?= 600
FUZZ_MUTATIONS ?=
FUZZ_JOBS ?= $(JOBS)
FUZZ_SEED ?= 1
SHAPES ?= 1000
EMULATE ?= OFF

.PHONY: dev stubs docs test lint format fuzz interrupt digests neon kernels bench clean

# EMULATE=ON: with the levels avxvnni and amx on any processor that has AVX-512 VNNI and VBMI; for tests, slow.
dev:
	$(CONFIGURE) -B build/dev -DEDGERT_OUTPUT_DIR=$(CURDIR)/edgert -DEDGERT_EMULATE=$(EMULATE)
	cmake --build build/dev --parallel $(JOBS)

stubs: dev
	$(PYTHON) tools/make_stubs.py

docs: dev
	$(PYTHON) tools/make_cli_docs.py

test: dev
	$(PYTHON) -m pytest

lint:
	ruff check .
	ruff format --check .
	mypy
	clang-format --dry-run --Werror $(CPP_FILES)

format:
	ruff check --fix .
	ruff format .
	clang-format -i $(CPP_FILES)

# The digest program for this machine (avxvnni and amx emulated where AVX-512 VNNI and VBMI are there) and for aarch64.
digests:
	cmake -G Ninja -S . -B build/digest -DEDGERT_PYTHON=OFF -DEDGERT_EMULATE=ON
	cmake --build build/digest --parallel $(JOBS) --target edgert_digest
	cmake -G Ninja -S . -B build/neon -DEDGERT_PYTHON=OFF -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
	  -DCMAKE_CXX_COMPILER=$(AARCH64_CXX)
	cmake --build build/neon --parallel $(JOBS) --target edgert_digest

# The same digest of every kernel on this machine and on an emulated aarch64.
neon: digests
	$(PYTHON) tools/compare_digests.py --native build/digest/edgert_digest --foreign "$(QEMU) build/neon/edgert_digest"

# Every matrix product of every level against scalar on random shapes, SHAPES for each format.
kernels: digests
	$(PYTHON) tools/compare_digests.py --native "build/digest/edgert_digest --shapes $(SHAPES) --seed $(FUZZ_SEED)" \
	  --foreign "$(QEMU) build/neon/edgert_digest --shapes $(SHAPES) --seed $(FUZZ_SEED)"

# Mutated files through the Python readers and the C++ store, in a build with address and undefined-behaviour checks.
# FUZZ_MUTATIONS=200000: that many instead of as many as FUZZ_SECONDS allow.
fuzz:
	cd / && $(PYTHON) -c 'import edgert._core' 2>/dev/null || $(MAKE) -C $(CURDIR) dev
	$(CONFIGURE) -B build/fuzz -DEDGERT_SANITIZE=address,undefined -DEDGERT_FUZZ=ON -DEDGERT_TESTS=OFF \
	  -DCMAKE_CXX_FLAGS_RELEASE=-O1 -DEDGERT_OUTPUT_DIR=$(CURDIR)/build/fuzz/module
	cmake --build build/fuzz --parallel $(JOBS)
	build/fuzz/edgert_fuzz_store $$(($(FUZZ_SECONDS) / 4)) $(FUZZ_SEED)
	$(PYTHON) tests/fuzz/mutate.py --module build/fuzz/module --seed $(FUZZ_SEED) --jobs $(FUZZ_JOBS) \
	  $(if $(FUZZ_MUTATIONS),--count $(FUZZ_MUTATIONS),--seconds $(FUZZ_SECONDS))

# Conversions killed at 20 random moments and out of disk space at 5 (the small disks are tmpfs and need root).
interrupt:
	EDGERT_TEST_KILLS=20 EDGERT_TEST_FULL_DISKS=5 EDGERT_TEST_SEED=$(FUZZ_SEED) \
	  $(PYTHON) -m pytest -q -rs tests/convert/test_interrupted.py

bench:
	$(PYTHON) benchmarks/decode.py llama-1b/p4

clean:
	rm -rf build edgert/_core*.so
