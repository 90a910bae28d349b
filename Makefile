# tally: one Makefile, not recursive. `make help` lists the targets.
#
# Two things decide its shape. A fresh machine has git and make and nothing else, so reading this file needs no compiler:
# `make demo` and `make test` first install what tools/packages.txt names and then start make again. And every folder is
# globbed, so that a new op, verb or test is one new file and no line here.
#
#   BUILD=build/asan SANITIZE=address,undefined   another build beside the plain one (test-asan, test-tsan and fuzz do this)
#   CC=clang-14                                   another compiler; a change of compiler or flags rebuilds everything

ifeq ($(origin CC),default)
CC := gcc
endif
BUILD ?= build
SANITIZE ?=
PREFIX ?= /usr/local
DESTDIR ?=
FUZZ_SECONDS ?= 20
FUZZ_CC ?= clang-14
TEST_TIMEOUT ?= $(if $(SANITIZE),900,300)
WASM_CC ?= clang-14

VERSION := $(shell sed -n 's/^.define TL_VERSION "\(.*\)"/\1/p' include/tally/base.h)
SONAME := libtally.so.0
MACHINE := $(shell uname -m)

# ---- flags ----------------------------------------------------------------------------------------------------------
# -ffp-contract=off: + − × ÷ √ agree bit for bit across instruction sets. -fno-math-errno: √ is one instruction.
# -fno-trapping-math: selections vectorise (values stay the same); without it exp and gelu are 5 times slower in gcc.
OPTIMIZE := $(if $(SANITIZE),-O1,-O2) -g
BODY_OPTIMIZE := $(if $(SANITIZE),-O1,-O3)
WARNINGS := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Werror
FLOATING := -ffp-contract=off -fno-math-errno -fno-trapping-math
# gcc would let another library replace our own functions at run time; saying no keeps -fPIC as fast as without.
PIC := -fPIC -fno-semantic-interposition
SANITIZE_FLAGS := $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-omit-frame-pointer $(if $(findstring undefined,$(SANITIZE)),-fno-sanitize-recover=all))
CFLAGS ?=
ALL_CFLAGS = -std=c11 -D_GNU_SOURCE $(OPTIMIZE) $(WARNINGS) $(FLOATING) $(PIC) $(SANITIZE_FLAGS) $(HAVE) $(CFLAGS)
DEPENDENCIES = -MMD -MP

# A header found is a macro and a library; without oneDNN the reference product serves, without hwloc the topology is
# read from sysfs. Everything else is required, and a compile error names it.
have = $(shell printf '\043include <%s>\n' '$1' | $(CC) -E -x c - >/dev/null 2>&1 && echo yes)
HAVE_DNNL := $(call have,dnnl.h)
HAVE_HWLOC := $(call have,hwloc.h)
HAVE := $(if $(HAVE_DNNL),-DTL_HAVE_DNNL) $(if $(HAVE_HWLOC),-DTL_HAVE_HWLOC)
LIB_LDLIBS := $(if $(HAVE_DNNL),-ldnnl -l:libgomp.so.1) $(if $(HAVE_HWLOC),-lhwloc) -ljansson -lxxhash -lz -lpcre2-8 -lm -lpthread
CLI_LDLIBS := -lsmartcols
CLI_CFLAGS := $(shell pkg-config --cflags smartcols 2>/dev/null)
LDFLAGS ?=

# ---- sources --------------------------------------------------------------------------------------------------------
# src/dist needs MPI and is not part of the plain library.
LIB_SOURCES := $(filter-out src/dist/%,$(wildcard src/*/*.c))
BODY_SOURCES := $(wildcard src/kernel/body/*.c)
CLI_SOURCES := $(wildcard cli/*.c)
GENERATORS := $(wildcard tools/gen_*.sh)
GENERATED := $(GENERATORS:tools/gen_%.sh=$(BUILD)/gen/%.c)
GENERATOR_INPUTS := $(wildcard src/op/*.c models/* hardware/* tools/*.awk)
TEST_SOURCES := $(wildcard tests/test_*.c)
TEST_SCRIPTS := $(wildcard tests/*.sh)
TEST_HELPERS := $(filter-out tests/test_%,$(wildcard tests/*.c))
BENCH_SOURCES := $(wildcard bench/bench_*.c)
EXHAUSTIVE_SOURCES := $(wildcard tests/exhaustive/*.c)
FUZZ_SOURCES := $(wildcard fuzz/fuzz_*.c)
CONFORMANCE_SOURCES := $(wildcard tests/conformance/*.c)
EXAMPLE_SOURCES := $(wildcard examples/*.c)
HEADERS := $(wildcard include/tally/*.h)
MAN_PAGES := $(wildcard man/*.1)

# One body, compiled once per instruction set; the table is chosen at run time.
ISAS := portable $(if $(filter x86_64,$(MACHINE)),avx2 avx512) $(if $(filter aarch64,$(MACHINE)),neon)
ISA_FLAGS_portable :=
ISA_FLAGS_tiny := -DTL_TASK_ELEMENTS=16
ISA_FLAGS_avx2 := -mavx2 -mfma -mf16c
ISA_FLAGS_neon := -march=armv8-a+simd
ISA_FLAGS_avx512 := -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -mf16c -mprefer-vector-width=512

LIB_OBJECTS := $(LIB_SOURCES:%.c=$(BUILD)/obj/%.o) $(GENERATED:$(BUILD)/gen/%.c=$(BUILD)/obj/gen/%.o) \
  $(foreach isa,$(ISAS),$(BODY_SOURCES:src/kernel/body/%.c=$(BUILD)/obj/body/$(isa)/%.o))
CLI_OBJECTS := $(CLI_SOURCES:%.c=$(BUILD)/obj/%.o)
CONFORMANCE_OBJECTS := $(CONFORMANCE_SOURCES:%.c=$(BUILD)/obj/%.o)
# For tests: the portable body with tasks of 16 elements, so that small cases are cut among threads too.
TINY_OBJECTS := $(BODY_SOURCES:src/kernel/body/%.c=$(BUILD)/obj/body/tiny/%.o)
HELPER_OBJECTS := $(TEST_HELPERS:%.c=$(BUILD)/obj/%.o) $(TINY_OBJECTS)
TESTS := $(TEST_SOURCES:tests/%.c=$(BUILD)/tests/%)
BENCHES := $(BENCH_SOURCES:bench/%.c=$(BUILD)/bench/%)
EXHAUSTIVE := $(EXHAUSTIVE_SOURCES:tests/exhaustive/%.c=$(BUILD)/exhaustive/%)
EXAMPLES := $(EXAMPLE_SOURCES:examples/%.c=$(BUILD)/examples/%)
FUZZERS := $(FUZZ_SOURCES:fuzz/%.c=$(BUILD)/bin/%)

TALLY := $(if $(CLI_SOURCES),$(BUILD)/tally)
# A sanitizer's runtime belongs to the program, so those builds make no shared library.
SHARED := $(if $(SANITIZE),,$(BUILD)/$(SONAME))

# One short line a file; V=1 shows the commands.
V ?= 0
say = $(if $(filter 0,$(V)),@printf '  %-5s %s\n' $1 '$@';)

.DELETE_ON_ERROR:
# Made by one rule and used by another, and kept all the same.
.SECONDARY: $(GENERATED)
.SUFFIXES:
.PHONY: all conformance conformance-run examples demo demo-run test test-run build-tests test-exhaustive test-exhaustive-run \
  test-asan test-tsan bench bench-run validate neon neon-run lint fuzz fuzz-run install uninstall \
  clean wasm wasm-run help packages FORCE

all: $(TALLY) $(BUILD)/libtally.a $(SHARED)

# ---- compiling ------------------------------------------------------------------------------------------------------
# The two lists change only when their content does: then everything (flags) or the archive and generated sources (a file
# that came or went) is made again.
write_if_changed = mkdir -p $(@D); printf '%s\n' '$1' >$@.new; if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi

$(BUILD)/flags: FORCE
	@$(call write_if_changed,$(CC) $(ALL_CFLAGS) $(LDFLAGS) $(LIB_LDLIBS))

$(BUILD)/sources: FORCE
	@$(call write_if_changed,$(sort $(LIB_OBJECTS) $(HELPER_OBJECTS) $(CONFORMANCE_OBJECTS) $(CLI_OBJECTS) $(GENERATOR_INPUTS)))

$(BUILD)/gen/%.c: tools/gen_%.sh $(GENERATOR_INPUTS) $(BUILD)/sources
	@mkdir -p $(@D)
	$(call say,GEN)sh $< >$@

$(BUILD)/obj/src/%.o: src/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC)$(CC) $(ALL_CFLAGS) $(DEPENDENCIES) -Iinclude -Isrc -c $< -o $@

$(BUILD)/obj/gen/%.o: $(BUILD)/gen/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC)$(CC) $(ALL_CFLAGS) $(DEPENDENCIES) -Iinclude -Isrc -c $< -o $@

$(BUILD)/obj/cli/%.o: cli/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC)$(CC) $(ALL_CFLAGS) $(DEPENDENCIES) -Iinclude -I. $(CLI_CFLAGS) -c $< -o $@

$(BUILD)/obj/tests/%.o: tests/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC)$(CC) $(ALL_CFLAGS) $(DEPENDENCIES) -Iinclude -Isrc -Itests -c $< -o $@

define body_rule
$(BUILD)/obj/body/$1/%.o: src/kernel/body/%.c $(BUILD)/flags
	@mkdir -p $$(@D)
	$$(call say,CC)$$(CC) $$(ALL_CFLAGS) $(BODY_OPTIMIZE) -DTL_ISA=$1 $(ISA_FLAGS_$1) $$(DEPENDENCIES) -Iinclude -Isrc -c $$< -o $$@
endef
$(foreach isa,$(ISAS) tiny,$(eval $(call body_rule,$(isa))))

# ---- linking --------------------------------------------------------------------------------------------------------
$(BUILD)/libtally.a: $(LIB_OBJECTS) $(BUILD)/sources
	@rm -f $@
	$(call say,AR)ar rcsD $@ $(LIB_OBJECTS)

$(BUILD)/$(SONAME): $(LIB_OBJECTS) $(BUILD)/sources tools/libtally.map
	$(call say,CC)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -shared -Wl,-soname,$(SONAME) -Wl,--version-script=tools/libtally.map \
	  -o $@ $(LIB_OBJECTS) $(LIB_LDLIBS)
	@ln -sf $(SONAME) $(BUILD)/libtally.so

# The command holds the library: it runs from where it was built and from where it is copied to.
$(BUILD)/tally: $(CLI_OBJECTS) $(BUILD)/libtally.a $(BUILD)/sources
	$(call say,LINK)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $(CLI_OBJECTS) $(BUILD)/libtally.a $(CLI_LDLIBS) $(LIB_LDLIBS)

# What tests/*.c beyond test_*.c define is linked into every test that uses it.
$(BUILD)/tests/libhelpers.a: $(HELPER_OBJECTS) $(BUILD)/sources
	@mkdir -p $(@D)
	@rm -f $@
	$(call say,AR)ar rcsD $@ $(HELPER_OBJECTS)

$(TESTS): $(BUILD)/tests/%: $(BUILD)/obj/tests/%.o $(BUILD)/tests/libhelpers.a $(BUILD)/libtally.a
	$(call say,LINK)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $< $(BUILD)/tests/libhelpers.a $(BUILD)/libtally.a -lcmocka $(LIB_LDLIBS)

$(BUILD)/conformance: $(CONFORMANCE_OBJECTS) $(BUILD)/libtally.a
	$(call say,LINK)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $(CONFORMANCE_OBJECTS) $(BUILD)/libtally.a $(LIB_LDLIBS)

$(BENCHES): $(BUILD)/bench/%: bench/%.c $(BUILD)/libtally.a $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,LINK)$(CC) $(ALL_CFLAGS) $(DEPENDENCIES) $(LDFLAGS) -Iinclude -Isrc -o $@ $< $(BUILD)/libtally.a $(LIB_LDLIBS)

$(BUILD)/bench/validate: $(wildcard bench/validate*.c) bench/validate.h $(BUILD)/libtally.a $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,LINK)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -Iinclude -o $@ $(filter %.c,$^) $(BUILD)/libtally.a $(LIB_LDLIBS)

$(EXHAUSTIVE): $(BUILD)/exhaustive/%: $(BUILD)/obj/tests/exhaustive/%.o $(BUILD)/tests/libhelpers.a $(BUILD)/libtally.a
	@mkdir -p $(@D)
	$(call say,LINK)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $< $(BUILD)/tests/libhelpers.a $(BUILD)/libtally.a $(LIB_LDLIBS)

$(EXAMPLES): $(BUILD)/examples/%: examples/%.c $(BUILD)/libtally.a $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,LINK)$(CC) $(ALL_CFLAGS) $(DEPENDENCIES) $(LDFLAGS) -Iinclude -o $@ $< $(BUILD)/libtally.a $(LIB_LDLIBS)

$(FUZZERS): $(BUILD)/bin/%: fuzz/%.c $(BUILD)/libtally.a $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC)$(CC) $(ALL_CFLAGS) -fsanitize=fuzzer,address,undefined $(DEPENDENCIES) $(LDFLAGS) -Wno-missing-prototypes \
	  -Iinclude -Isrc -o $@ $< $(BUILD)/libtally.a $(LIB_LDLIBS)

# ---- running --------------------------------------------------------------------------------------------------------
# `packages` may install the compiler that the rest needs, so what follows is a make that starts after it.
CC_SECTION := $(if $(findstring clang,$(CC)),clang)
# Whoever types `make demo` has not thought of -j.
SUBMAKE = +@$(MAKE) --no-print-directory $(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell nproc 2>/dev/null || echo 1))

packages:
	@sh tools/install-packages.sh build test $(CC_SECTION)

demo:
	@sh tools/install-packages.sh build $(CC_SECTION)
	$(SUBMAKE) demo-run

demo-run: all
	@TALLY=$(BUILD)/tally sh tools/demo.sh

test: packages
	$(SUBMAKE) test-run

# A script that never runs the command says nothing new under a sanitizer.
SCRIPTS_TO_RUN = $(if $(SANITIZE),$(if $(TEST_SCRIPTS),$(shell grep -lE 'TALLY|verb\.inc' $(TEST_SCRIPTS))),$(TEST_SCRIPTS))

# TESTS_ONLY='test_pool test_tensor' runs those alone.
test-run: build-tests
	@BUILD=$(BUILD) CC='$(CC)' SANITIZE=$(SANITIZE) TEST_TIMEOUT=$(TEST_TIMEOUT) TESTS_ONLY='$(TESTS_ONLY)' \
	  sh tools/run-tests.sh $(TESTS) $(BUILD)/conformance $(SCRIPTS_TO_RUN)

# Everything compiled and nothing run.
build-tests: all $(TESTS) $(BUILD)/conformance $(EXHAUSTIVE) $(EXAMPLES) $(BENCHES)

# What is too much for every day: all 2^32 inputs of a conversion, in minutes.
test-exhaustive: packages
	$(SUBMAKE) test-exhaustive-run

test-exhaustive-run: $(EXHAUSTIVE)
	@for program in $(EXHAUSTIVE); do echo "== $$program"; $$program || exit 1; done

examples: $(EXAMPLES)

# Cases of others against our ops, from any folder of the form of ../shared/suites.
SUITES ?= $(if $(TALLY_SHARED),$(TALLY_SHARED),../shared)/suites

conformance:
	@sh tools/install-packages.sh build test $(CC_SECTION)
	$(SUBMAKE) conformance-run

conformance-run: $(BUILD)/conformance
	@$(BUILD)/conformance '$(SUITES)'

test-asan: packages
	$(SUBMAKE) test-run BUILD=build/asan SANITIZE=address,undefined

test-tsan: packages
	$(SUBMAKE) test-run BUILD=build/tsan SANITIZE=thread

bench:
	@sh tools/install-packages.sh build $(CC_SECTION)
	@sh tools/install-packages.sh bench || echo 'bench: no PyTorch to compare with; ours alone'
	$(SUBMAKE) bench-run

# The planner beside single-device memory that others measured: docs/validation.md.
DATA ?= $(or $(TALLY_SHARED),../shared)/data/measured

validate: $(BUILD)/bench/validate
	@$(BUILD)/bench/validate '$(DATA)'

bench-run: all $(BENCHES)
	@for program in $(BENCHES); do echo "== $$program"; $$program || exit 1; done
	@echo '== bench/bench_plan.sh'; TALLY=$(BUILD)/tally sh bench/bench_plan.sh

# Every kernel body for 64-bit ARM, with warnings as errors, on any machine: it shows that NEON's table compiles.
neon:
	@sh tools/install-packages.sh neon
	$(SUBMAKE) neon-run

NEON_OBJECTS := $(foreach isa,portable neon,$(BODY_SOURCES:src/kernel/body/%.c=$(BUILD)/neon/$(isa)/%.o)) \
  $(patsubst %.c,$(BUILD)/neon/%.o,$(wildcard src/kernel/*.c))
NEON_CC := clang-14 --target=aarch64-linux-gnu -isystem /usr/aarch64-linux-gnu/include

neon-run: $(NEON_OBJECTS)
	@echo "ok neon: $(words $(NEON_OBJECTS)) objects for aarch64"

define neon_rule
$(BUILD)/neon/$1/%.o: src/kernel/body/%.c Makefile
	@mkdir -p $$(@D)
	$$(call say,NEON)$(NEON_CC) -std=c11 -D_GNU_SOURCE -O3 $(WARNINGS) $(FLOATING) $(ISA_FLAGS_$1) -DTL_ISA=$1 $$(DEPENDENCIES) -Iinclude -Isrc -c $$< -o $$@
endef
$(foreach isa,portable neon,$(eval $(call neon_rule,$(isa))))

$(BUILD)/neon/src/%.o: src/%.c Makefile
	@mkdir -p $(@D)
	$(call say,NEON)$(NEON_CC) -std=c11 -D_GNU_SOURCE -O2 $(WARNINGS) $(FLOATING) $(DEPENDENCIES) -Iinclude -Isrc -c $< -o $@

lint:
	@sh tools/install-packages.sh build lint
	@sh tools/lint.sh

fuzz:
	@sh tools/install-packages.sh build fuzz
	$(SUBMAKE) fuzz-run BUILD=build/fuzz CC=$(FUZZ_CC) SANITIZE=fuzzer-no-link,address,undefined

fuzz-run: $(FUZZERS)
	@BUILD=$(BUILD) FUZZ_SECONDS=$(FUZZ_SECONDS) sh tools/run-fuzz.sh $(FUZZERS)

# ---- wasm -----------------------------------------------------------------------------------------------------------
# The planner core, without kernels, data, threads, random numbers, libm and JSON: what the page runs.
# Measuring a machine is for a machine; reading what was measured is arithmetic.
HOST_HW_SOURCES := $(filter-out src/hw/machine_rates.c,$(wildcard src/hw/machine*.c))
WASM_SOURCES := $(filter-out src/base/pool% src/base/random% src/base/worker%,$(wildcard src/base/*.c)) \
  $(wildcard src/tensor/*.c src/account/*.c src/op/*.c src/axes/*.c src/grad/*.c src/nn/*.c) \
  $(filter-out src/optim/schedule%,$(wildcard src/optim/*.c)) \
  $(filter-out $(HOST_HW_SOURCES),$(wildcard src/hw/*.c)) $(wildcard src/train/*.c src/plan/*.c)
WASM_OBJECTS := $(WASM_SOURCES:%.c=$(BUILD)/wasm/%.o) $(GENERATED:$(BUILD)/gen/%.c=$(BUILD)/wasm/gen/%.o) \
  $(BUILD)/wasm/tools/wasm_stack.o
WASM_TARGET := --target=wasm32-wasi --sysroot=/usr
WASM_CFLAGS := $(WASM_TARGET) -std=c11 -D_GNU_SOURCE -O2 -g0 $(WARNINGS) $(FLOATING)

wasm:
	@sh tools/install-packages.sh build wasm
	$(SUBMAKE) wasm-run

wasm-run: $(BUILD)/tally-core.wasm

$(BUILD)/wasm/src/%.o: src/%.c Makefile
	@mkdir -p $(@D)
	$(call say,WASM)$(WASM_CC) $(WASM_CFLAGS) $(DEPENDENCIES) -Iinclude -Isrc -c $< -o $@

$(BUILD)/wasm/tools/%.o: tools/%.c Makefile
	@mkdir -p $(@D)
	$(call say,WASM)$(WASM_CC) $(WASM_CFLAGS) $(DEPENDENCIES) -c $< -o $@

$(BUILD)/wasm/gen/%.o: $(BUILD)/gen/%.c Makefile
	@mkdir -p $(@D)
	$(call say,WASM)$(WASM_CC) $(WASM_CFLAGS) $(DEPENDENCIES) -Iinclude -Isrc -c $< -o $@

$(BUILD)/tally-core.wasm: $(WASM_OBJECTS) tools/wasm-exports.txt tools/link-wasm.sh $(BUILD)/sources
	$(call say,LINK)WASM_CC='$(WASM_CC)' sh tools/link-wasm.sh $@ $(WASM_OBJECTS)

# ---- installing -----------------------------------------------------------------------------------------------------
INSTALLED := $(DESTDIR)$(PREFIX)
EXTRA_PRIVATE_LIBS := $(LIB_LDLIBS)

install: all
	install -d '$(INSTALLED)/bin' '$(INSTALLED)/lib/pkgconfig' '$(INSTALLED)/include/tally' '$(INSTALLED)/share/man/man1'
	$(if $(TALLY),install -m 755 $(TALLY) '$(INSTALLED)/bin/tally')
	install -m 644 $(BUILD)/libtally.a '$(INSTALLED)/lib/libtally.a'
	install -m 755 $(BUILD)/$(SONAME) '$(INSTALLED)/lib/$(SONAME)'
	ln -sf $(SONAME) '$(INSTALLED)/lib/libtally.so'
	install -m 644 $(HEADERS) '$(INSTALLED)/include/tally/'
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' -e 's|@PRIVATE_LIBS@|$(EXTRA_PRIVATE_LIBS)|' tally.pc.in \
	  >'$(INSTALLED)/lib/pkgconfig/tally.pc'
	$(if $(MAN_PAGES),install -m 644 $(MAN_PAGES) '$(INSTALLED)/share/man/man1/')
	@printf '%s\n' 'Installed below $(INSTALLED). A program of yours: cc mine.c $$(pkg-config --cflags --libs tally)' \
	  '  pkg-config  finds it, unless it looks there already, with PKG_CONFIG_PATH=$(PREFIX)/lib/pkgconfig' \
	  '  the loader  finds libtally.so.0 after ldconfig (as root), with -Wl,-rpath,$(PREFIX)/lib, or LD_LIBRARY_PATH=$(PREFIX)/lib'

uninstall:
	rm -f '$(INSTALLED)/bin/tally' '$(INSTALLED)/lib/libtally.a' '$(INSTALLED)/lib/$(SONAME)' '$(INSTALLED)/lib/libtally.so' \
	  '$(INSTALLED)/lib/pkgconfig/tally.pc' $(HEADERS:include/tally/%='$(INSTALLED)/include/tally/%') \
	  $(MAN_PAGES:man/%='$(INSTALLED)/share/man/man1/%')
	-rmdir '$(INSTALLED)/include/tally'

# --one-file-system: a chroot that tools/clean-machine.sh could not leave may still have /dev mounted in it.
clean:
	rm -rf --one-file-system build

help:
	@echo 'make            build/tally, build/libtally.a, build/$(SONAME)'
	@echo 'make demo       install what is missing, build, and show what tally does'
	@echo 'make test       install what is missing, build, run every test; the last line is the count'
	@echo 'make test-asan  the same under AddressSanitizer and UndefinedBehaviorSanitizer (in build/asan)'
	@echo 'make test-tsan  the same under ThreadSanitizer (in build/tsan)'
	@echo 'make conformance  ONNX cases through our ops; SUITES=$(SUITES)'
	@echo 'make test-exhaustive  every float32 to every narrower format, on every instruction set (minutes)'
	@echo 'make lint       formatting, static analysis, layers, banned calls, sizes'
	@echo 'make fuzz       each fuzzer for FUZZ_SECONDS=$(FUZZ_SECONDS) seconds'
	@echo 'make bench      benchmarks, beside PyTorch where it can be had'
	@echo 'make validate   the planner beside memory that others measured; DATA=$(DATA)'
	@echo 'make neon       the kernels compiled for 64-bit ARM (they do not run here)'
	@echo 'make examples   examples/*.c'
	@echo 'make wasm       the planner core for the page: build/tally-core.wasm'
	@echo 'make install    PREFIX=$(PREFIX) DESTDIR=$(DESTDIR); make uninstall takes it away'
	@echo 'make clean      remove build/'
	@echo 'Variables: CC=$(CC) CFLAGS LDFLAGS BUILD=$(BUILD) SANITIZE TESTS_ONLY="test_pool ..." TEST_TIMEOUT=$(TEST_TIMEOUT) (seconds per program)'

FORCE:

-include $(shell find $(addprefix $(BUILD)/,obj wasm neon bench examples bin) -name '*.d' 2>/dev/null)
