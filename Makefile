# The door: one word for each thing that people do here. Each target first installs with apt what it lacks (Debian 12,
# Ubuntu 24.04; as root or with sudo), then does its work with the presets of CMakePresets.json.
# HALOTAP_NO_INSTALL=1 installs nothing; JOBS=n sets how much runs at once.

JOBS ?= $(shell nproc)
# Compiles again only what changed, when ccache is there.
export CMAKE_CXX_COMPILER_LAUNCHER ?= $(shell command -v ccache 2>/dev/null)
export CMAKE_CUDA_COMPILER_LAUNCHER ?= $(CMAKE_CXX_COMPILER_LAUNCHER)

# Says nothing but the one line of what was found and chosen, warnings and errors.
configure = @cmake --preset $(1) >/dev/null
build = @cmake --build --preset $(1) --parallel $(JOBS)

.DEFAULT_GOAL := help
.PHONY: help packages build demo test test-levels test-cuda bench bench-peers sanitize fuzz format lint clean

help:
	@echo "make demo         replay speech and music through the cochlea model: figures, and pictures in out/"
	@echo "make test         build, then run every test"
	@echo "make test-levels  the tests again at every SIMD level of this processor"
	@echo "make test-cuda    build and run what needs a card, under Compute Sanitizer too (installs nothing)"
	@echo "make build        build the command line: build/bin/halotap"
	@echo "make bench        measure one block and a stack of eight on this machine"
	@echo "make bench-peers  the same nets in halotap, ONNX Runtime and PyTorch, in turn (fetches 3 GB into build-peers/)"
	@echo "make sanitize     build and test under asan with ubsan, tsan and rtsan"
	@echo "make fuzz         fuzz every reader for FUZZ_SECONDS (60) each"
	@echo "make format       format the sources in place"
	@echo "make lint         check format, names and common mistakes"
	@echo "make packages     only install what build, test and demo need"
	@echo "make clean        remove what the others built (build*/, out/)"

packages:
	@scripts/install-packages.sh build demo

build:
	@scripts/install-packages.sh build
	$(call configure,release)
	$(call build,release) --target halotap

demo:
	@scripts/install-packages.sh build demo
	$(call configure,release)
	$(call build,release) --target halotap
	@scripts/demo.sh

test:
	@scripts/install-packages.sh build
	$(call configure,release)
	$(call build,release)
	@ctest --preset release --parallel $(JOBS)

test-levels:
	@scripts/install-packages.sh build
	$(call configure,release)
	$(call build,release)
	@scripts/test-simd-levels.sh --parallel $(JOBS)

test-cuda:
	@JOBS=$(JOBS) tests/cuda/run.sh

bench: build
	@build/bin/halotap bench block
	@build/bin/halotap bench stack --layers 8 --channels 128 --kernel 5 --chunk 1
	@build/bin/halotap bench stack --layers 8 --channels 128 --kernel 5 --chunk 64

bench-peers: build
	@scripts/install-packages.sh peers
	@test -x build-peers/bin/python || python3 -m venv build-peers
	@build-peers/bin/python -m pip install --quiet --requirement bench/requirements.txt
	@build-peers/bin/python bench/peers_cpu.py

sanitize:
	@scripts/install-packages.sh build sanitizers
	$(call configure,asan)
	$(call build,asan)
	@ctest --preset asan --parallel $(JOBS)
	$(call configure,tsan)
	$(call build,tsan)
	@ctest --preset tsan --parallel $(JOBS)
	$(call configure,rtsan)
	$(call build,rtsan)
	@ctest --preset rtsan --parallel $(JOBS)

fuzz:
	@scripts/install-packages.sh build sanitizers
	$(call configure,fuzz)
	$(call build,fuzz)
	@scripts/fuzz.sh

format:
	@scripts/install-packages.sh lint
	@git ls-files '*.cpp' '*.hpp' '*.h' '*.cu' '*.cuh' | xargs clang-format-14 -i

lint:
	@scripts/install-packages.sh build lint
	$(call configure,dev)
	@JOBS=$(JOBS) scripts/lint.sh

clean:
	rm -rf build build-* out
