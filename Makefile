# The everyday commands; plain `make` lists them. CMake does the work.
BUILD  ?= build
STRICT ?= $(if $(CI),ON,OFF)
JOBS   ?= $(shell nproc)
TESSERA = $(BUILD)/tessera

.PHONY: help build demo test tpu check bench format clean configure
help:
	@echo 'make demo    set up, build, then plan, picture and run packed documents'
	@echo 'make test    the same for the tests; brings .venv (TESSERA_NO_PYTHON=1: not)'
	@echo 'make tpu     fetch libtpu and the plugins into .venv, then build'
	@echo 'make build   build Release into build/ (installs nothing)'
	@echo 'make bench   time the planner and attention on this machine'
	@echo 'make check   all that must hold before a change lands (dev/check)'
	@echo 'make format  format the C++ files'
	@echo 'make clean   remove build/ and build-*/'
	@echo
	@echo 'HACKING.md tells how the project is made and how to change it.'

configure:
	@cmake --preset release -B $(BUILD) \
	  -DCMAKE_COMPILE_WARNING_AS_ERROR=$(STRICT) >/dev/null

build: configure
	@cmake --build $(BUILD) -j $(JOBS)

DOCS = --docs lognormal:mean=1024,seed=0
demo:
	@dev/setup
	@$(MAKE) --no-print-directory configure
	@cmake --build $(BUILD) -j $(JOBS) --target tessera-cli
	@echo
	$(TESSERA) plan --mask 'causal & documents' --q-len 8192 $(DOCS) \
	  -o $(BUILD)/demo.plan
	@echo
	$(TESSERA) show $(BUILD)/demo.plan
	@echo
	$(TESSERA) show $(BUILD)/demo.plan -o $(BUILD)/demo.html
	@echo
	@echo 'The same picture to zoom and hover over, in any browser:'
	@echo '  $(CURDIR)/$(BUILD)/demo.html'
	@echo
	$(TESSERA) run --plan $(BUILD)/demo.plan --heads 8 --head-dim 64 \
	  --dtype f32 --check --receipt $(BUILD)/demo.receipt.json
	@echo
	@cat $(BUILD)/demo.receipt.json
	@echo
	@echo 'Try next:'
	@echo "  $(TESSERA) explain --mask 'causal & documents' --q-len 8192 \\"
	@echo '    $(DOCS) --query 5000 --key 4000'
	@echo "  $(TESSERA) plan --mask 'causal & window(1023, 0) & documents' \\"
	@echo '    --q-len 8192 $(DOCS)'
	@echo '  make tpu     # the TPU kernel, compiled and counted with no TPU'
	@echo '  $(TESSERA) --help'

# Runs all tests. PJRT plugins and JAX, which some tests need, are fetched into
# .venv; with TESSERA_NO_PYTHON=1, or no network, these tests are skipped. A tenth
# of the cases runs, and plugins compile for the CPU without slow optimisations.
# dev/check --full runs all, as does TESSERA_CASES=100% XLA_FLAGS= make test.
test: export TESSERA_CASES ?= 10%
test: export XLA_FLAGS ?= --xla_backend_optimization_level=0
test:
	@dev/setup
	@dev/python_setup --for-tests
	@$(MAKE) --no-print-directory build
	@ctest --test-dir $(BUILD) --output-on-failure --no-tests=error -j $(JOBS)
	@dev/skipped $(BUILD)

# Compiling for TPUs needs no TPU. The rest of the project works without this.
tpu:
	@dev/setup
	@dev/python_setup
	@$(MAKE) --no-print-directory configure
	@cmake --build $(BUILD) -j $(JOBS) --target tessera-cli
	@echo
	TESSERA_PYTHON=.venv/bin/python $(TESSERA) schedule \
	  --mask 'causal & documents' --q-len 8192 --heads 8 $(DOCS)

# A peer runs if the variable of its Python interpreter is set (bench/README.md).
# PLAN_FLAGS and BENCH_FLAGS are for smaller runs.
RESULTS ?= $(BUILD)/results
bench: configure
	@cmake --build $(BUILD) -j $(JOBS) --target tessera-bench
	$(TESSERA)-bench plan $(PLAN_FLAGS)
	$(TESSERA)-bench attention --backward --peers bench/peers \
	  --results $(RESULTS) $(BENCH_FLAGS)
	for f in $(RESULTS)/*/attention.json; do bench/plot_attention.py $$f; done

# CHECK_FLAGS: arguments of dev/check.
check:
	@dev/check $(CHECK_FLAGS)

format:
	@dev/format

clean:
	rm -rf build build-*
