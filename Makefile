# gradus: the targets of make.
#
#   make lessons     set up what is missing, build, run every lesson, print a table of results
#   make lesson-03   one lesson; ARGS="--steps=200" passes flags on, ARGS=--help lists them
#   make gradus      the trainer: build/gradus train, eval, sample or plan; build/gradus train --help
#   make curves      measure the expected loss curves of lesson 22 again: five runs with three seeds, 5 minutes
#   make test        set up what is missing, build, run every test; make test-03: those of lesson 03, by exercise;
#                    make test-03.2: those that judge this exercise
#   make fuzz        run the readers of files, flags and shapes on random inputs; SECONDS=60 for each, SEED=1, ONLY=json
#   make bench       time the kernels and whole steps; JSON lines under build/bench
#   make check       check layering, formatting, lengths, pages, words, exercise marks, and planted wrongs of the checks
#   make doctor      print what this machine has, and what will be skipped; make setup: install the missing packages
#   make progress    print which exercises are solved; make hint-02.2: the next hint for exercise 02.2
#   make predict-03  write questions with your own numbers (STUDENT=name), then judge your answers
#   make faster-01   is your kernel right, and how fast is it compared with the given one?
#   make slides-03   write the slides of lesson 03, one HTML file, to build/slides/03.html; make slides: of all lessons
#   make student LESSON=03 OUT=DIR   write the tree to hand out for lesson 03; ALL=1: every exercise open; GITHUB=1: with a
#                    workflow for GitHub that runs the exercises after each push
#   make check-course LESSONS="04 05"   every exercise fails when open and passes when solved; by default all lessons
#   make mutants LESSONS="02"   do the tests detect the mistakes of tests/mutants? by default all lessons
#   make bug-02      put a mistake into the code of lesson 02, for you to find; UNDO=1: take it out
#   make grade LESSON=03 SUBMISSION=DIR   grade a student's submission; the points are in build/grade/grade.json
#   make gradescope-zip LESSON=03   pack the same grader as an autograder for Gradescope
#   make check-grade LESSONS="02"   grade hostile submissions, and each exercise open; by default all lessons
#   make syllabus    compute the tables of tests/course/teacher/README.md from the lessons' pages
#   make readme      write the results of the last `make lessons` into README.md and the pages
#   make in-pytorch  run the Python of the lessons' pages, which prints the numbers of their examples (PYTHON=FILE has torch)
#   make mpi-17 RANKS=4   run lesson 17, 18, 19 or 20 (or 22: ARGS="train ...") on ranks that are processes, under MPI
#   make             build everything; make clean: remove build/; make compile_commands.json: for editors
#
#   Variables: ONEDNN=0 builds without oneDNN; MPI=0 without MPI, MPI=1 requires it; SANITIZE=1 builds into build/sanitize
#   with the address and undefined-behaviour sanitizers; CXX=clang++; ARCH=-march=haswell compiles for another machine.
#
#   CUDA=1 with any of these adds the device cuda: nvcc compiles every .cu, and everything is built in build/cuda. The
#   toolkit (12 or later) is that of the nvcc on PATH, or CUDA_HOME=FOLDER. SM="80 90a" builds for those
#   compute capabilities only, the first also as PTX for newer GPUs. All programs also run without a GPU.
#   CUDNN_FRONTEND=FOLDER CUDNN_HOME=FOLDER: cuDNN computes attention in 16 bits. make gpu-check: run everything on this
#   machine's GPU (tests/gpu/check.sh names the variables); make gpu-bundle OUT=DIR: write the sources and the packages that
#   a machine without a network needs for gpu-check.
#   make CUDA=1 ptxas: print registers, shared memory and stack of each kernel; fails if one spills registers.

# Plain GNU make; everything that is built goes to build/:
#   kernels/**.cpp, src/**.cpp                    -> build/libgradus.a
#   kernels/cuda/X.cu                             -> the same library, compiled as C++ for the device emu,
#                                                    and with CUDA=1 once more, by nvcc
#   lessons/NN_name/main.cpp                      -> build/lessons/NN_name, with the lesson's other files and those
#                                                    of the lessons that it includes
#   tests/FOLDER/NAME_test.cpp                    -> build/tests/FOLDER_test (FOLDER: what it tests); and, on request,
#                                                    build/tests/FOLDER/NAME_test with this file alone
#   tests/bench/NAME.cpp                          -> build/bench/NAME

CXX   ?= g++
ARCH  ?= -march=native
BUILD := build
CPPFLAGS := -I. -MMD -MP
CXXFLAGS := -std=c++20 $(ARCH) -fopenmp -fno-math-errno -fno-trapping-math -ffp-contract=off -Wall -Wextra $(if $(findstring clang,$(CXX)),-Wno-pass-failed)
# g++ 12 for AVX-512 writes some constants wrongly (tests/kernels/compiler_test.cpp), unless it moves at most 16 bytes.
# For some processors it uses half of their vectors' width, if nothing is said.
CXXFLAGS += $(shell for x in '-mmove-max=128 -mstore-max=128' -mprefer-vector-width=512; do \
  $(CXX) $$x -x c -E /dev/null >/dev/null 2>&1 && echo $$x; done)
LDLIBS   := -fopenmp -pthread -lutf8proc -rdynamic  # -rdynamic: code that is compiled at run time calls emu
OPTIMIZE := -O3

# SANITIZE=1: AddressSanitizer and UndefinedBehaviorSanitizer, in a separate tree. -Og -g1 compiles in half the time of
# -O1 -g, and reports still have line numbers. Not all tests run: not_sanitized.mk.
ifeq ($(SANITIZE),1)
BUILD    := build/sanitize
include tests/tools/not_sanitized.mk
OPTIMIZE := -Og -g1 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
LDLIBS   += -fsanitize=address,undefined
CPPFLAGS += $(if $(findstring clang,$(CXX)),-D__SANITIZE_ADDRESS__)  # which g++ defines by itself
endif
CXXFLAGS += $(OPTIMIZE)

ifeq ($(CUDA),1)
include kernels/cuda/cuda.mk
endif

# How long OpenMP's threads spin while they wait for each other. With the default, hundreds of times longer, they take
# the cores of a busy machine from the thread that they wait for: lessons become ten times slower. With a third of this
# number, the small model's step takes 8 % longer on a quiet machine, and a quarter less on a busy one.
export GOMP_SPINCOUNT ?= 3000

# Use all cores, unless a -j is given.
ifeq ($(MAKELEVEL)$(findstring -j,$(MAKEFLAGS)),0)
MAKEFLAGS += -j$(shell nproc)
endif
MAKEFLAGS += --no-print-directory

# ---- what this machine has ----------------------------------------------------------------------------
# 1 if the compiler finds the header, else empty; `make doctor` and the first line of a build say what was found.
has = $(shell printf '\043if !__has_include(<$(1)>)\n\043error missing\n\043endif\n' \
        | $(CXX) -x c++ -E - >/dev/null 2>&1 && echo 1)
WANTED := compiler stb json utf8proc $(if $(filter 0,$(ONEDNN)),,onednn)
ifeq ($(ONEDNN),)
ONEDNN := $(call has,oneapi/dnnl/dnnl.hpp)
endif
ifeq ($(ONEDNN),1)
CPPFLAGS += -DGRADUS_ONEDNN
LDLIBS   += -ldnnl
FOUND    := with oneDNN
else
FOUND    := without oneDNN (not found, or switched off)
endif

# ---- sources and what they become ---------------------------------------------------------------------
MAINS    := $(sort $(wildcard lessons/[0-9][0-9]_*/main.cpp))
GPU_SRC  := $(sort $(wildcard kernels/cuda/*.cu lessons/*/*.cu))
USE_CUBLAS := kernels/cuda/matmul.cu  # tested on a stand-in for cuBLAS; all other kernels run on emu
EMU_SRC  := $(filter-out $(USE_CUBLAS),$(GPU_SRC))
TEST_SRC := $(filter-out $(NOT_SANITIZED),$(sort $(shell find tests -name '*_test.cpp')))
BENCH_SRC := $(sort $(wildcard tests/bench/*.cpp))

# The sources of a folder are compiled as one file, build/one/FOLDER.cpp, which includes them: that takes a third
# of the time. The CPU's kernels are compiled separately, because one has its own flags; so is the file that MPI replaces.
BY_FILE  := $(sort $(wildcard kernels/cpu/*.cpp)) src/parallel/comm/no_mpi.cpp
AS_ONE   := $(sort $(filter-out $(BY_FILE),$(shell find kernels src lessons -name '*.cpp' \
  ! -path 'lessons/*/main.cpp' ! -path 'src/parallel/comm/mpi/*')))
folders_of = $(sort $(patsubst %/,%,$(dir $(1))))
FOLDERS  := $(addprefix emu/,$(call folders_of,$(EMU_SRC))) $(call folders_of,$(AS_ONE))  # the slowest first
in_folder = $(if $(filter emu/%,$(1)),$(filter $(wildcard $(1:emu/%=%)/*.cu),$(EMU_SRC)),$(filter $(wildcard $(1)/*.cpp),$(AS_ONE)))

object   = $(patsubst %.cpp,$(BUILD)/obj/%.o,$(1))
OBJECTS := $(FOLDERS:%=$(BUILD)/obj/%.o) $(call object,$(BY_FILE))
ifeq ($(CUDA),1)
CUDA_OBJ := $(patsubst %.cu,$(BUILD)/obj/cuda/%.o,$(GPU_SRC))
OBJECTS += $(CUDA_OBJ)
endif
LESSON_OBJ := $(foreach o,$(OBJECTS),$(if $(findstring /lessons/,$(o)),$(o)))
LIB     := $(BUILD)/libgradus.a
LIB_OBJ := $(filter-out $(LESSON_OBJ),$(OBJECTS))

# A>B: A, the folder of a lesson or a file of tests, includes a file of lesson B, or the header B of tests. From these,
# make finds the objects of lessons that A needs.
INCLUDES := $(shell grep -rE --include=*.h --include=*.cpp --include=*.cu '^.include "(lessons|tests)/' lessons tests | \
  sed -E 's|^(lessons/[^/]*)/[^:]*|\1|; s|:.*"(lessons/[^/]*)/.*|>\1|; s|:.*"(tests/.*)"|>\1|' | sort -u)
reach    = $(1) $(foreach b,$(filter-out $(1),$(patsubst $(1)>%,%,$(filter $(1)>%,$(INCLUDES)))),$(call reach,$(b)))
of_lessons = $(foreach l,$(filter lessons/%,$(sort $(foreach f,$(1),$(call reach,$(f))))), \
  $(filter $(BUILD)/obj/$(l).o $(BUILD)/obj/emu/$(l).o $(BUILD)/obj/cuda/$(l)/%.o,$(LESSON_OBJ)))

LESSONS := $(patsubst lessons/%/main.cpp,$(BUILD)/lessons/%,$(MAINS))
TESTS   := $(patsubst tests/%,$(BUILD)/tests/%_test,$(call folders_of,$(TEST_SRC)))
BENCHES := $(patsubst tests/bench/%.cpp,$(BUILD)/bench/%,$(BENCH_SRC))
STANDIN_OBJ := $(patsubst %.cu,$(BUILD)/obj/standin/%.o,$(USE_CUBLAS)) \
  $(call object,$(wildcard tests/standin/*.cpp))
TOOLS   := tests/tools
COURSE  := tests/course

.DEFAULT_GOAL := all
.PHONY: all programs run-by-tests lessons gradus curves test counted bench check doctor setup ptxas readme in-pytorch clean help no-tests FORCE
.SECONDARY:
.DELETE_ON_ERROR:
.SECONDEXPANSION:  # in rules with %, the includes of the target say what it needs

include $(TOOLS)/mpi.mk

# ---- what a user types --------------------------------------------------------------------------------
# Targets that must work on a bare machine first set it up, and then call make a second time, because the variables
# above were set before the set-up.
SETUP   := CXX='$(CXX)' sh $(TOOLS)/setup.sh
PROGRAM  = $(filter $(BUILD)/lessons/$*_%,$(LESSONS))

all: programs $(if $(call has,gtest/gtest.h),$(TESTS) $(MPI_TESTS),no-tests)
programs: $(LESSONS) $(BENCHES) $(if $(filter 1,$(MPI)),$(WITH_MPI))
no-tests:
	@echo "GoogleTest was not found, so the tests are not built; 'make setup' installs it"

lessons:
	@$(SETUP) $(WANTED)
	$(call build,$(LESSONS))
	@sh $(TOOLS)/run_lessons.sh $(BUILD)/lessons $(LESSONS)

lesson-%:
	@$(if $(PROGRAM),,echo 'there is no lesson $*; the lessons are: $(notdir $(LESSONS))'; exit 1)
	@$(SETUP) $(WANTED)
	$(call build,$(PROGRAM))
	$(PROGRAM) $(ARGS)

gradus:
	@$(SETUP) $(WANTED)
	$(call build,$(BUILD)/lessons/22_scoreboard)
	@ln -sf lessons/22_scoreboard $(BUILD)/gradus

curves: gradus
	@sh lessons/22_scoreboard/curves.sh $(BUILD)/gradus

bench:
	@$(SETUP) $(WANTED)
	$(call build,$(BENCHES))
	@for b in $(BENCHES); do echo "---- $$b > $$b.jsonl"; $$b > $$b.jsonl || exit 1; done

check:
	@$(SETUP) compiler json clang-format cmark-gfm
	@$(MAKE) -s $(TOOL)
	@TOOL=$(CURDIR)/$(TOOL) sh $(TOOLS)/check_selftest.sh
	@sh $(COURSE)/slides_selftest.sh
	@TOOL=$(TOOL) sh $(TOOLS)/check.sh

doctor:
	@CXX='$(CXX)' sh $(TOOLS)/doctor.sh '$(ARCH)' $(words $(LESSONS)) $(words $(TESTS))

setup:
	@SUDO=sudo $(SETUP) $(WANTED) gtest mpi clang-format cmark-gfm

ptxas: $(if $(filter 1,$(CUDA)),$(CUDA_OBJ))
	@$(if $(filter 1,$(CUDA)),,echo 'ptxas compiles for GPUs only: make CUDA=1 ptxas'; exit 2)
	@sh -c 'for o; do c++filt <$$o.log >$$o.names.log; done' - $^ && awk -f $(TOOLS)/ptxas.awk $(^:=.names.log)

readme:
	@sh $(TOOLS)/readme.sh $(BUILD)/lessons/results.tsv

in-pytorch:
	@sh $(TOOLS)/in_pytorch.sh $(or $(PYTHON),python3) lessons/[0-9][0-9]_*/README.md

clean:
	rm -rf build

help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

# The tests; the course: handing out, hints, checking, grading; make fuzz; checks of a GPU.
include $(TOOLS)/tests.mk $(COURSE)/course.mk tests/fuzz/fuzz.mk tests/gpu/gpu.mk $(TOOLS)/compile_commands.mk

# ---- rules --------------------------------------------------------------------------------------------
# Files that change only when their text does: flags (then all objects are out of date), sources (then the library is),
# and the files that include the sources of a folder. They are written here, so that make -n counts what is left to build.
HASH   := \#
define NEWLINE


endef
same   = $(if $(subst x$(strip $(1))x,,x$(strip $(2))x),,same)
update = $(if $(call same,$(file <$(1)),$(2)),,$(shell mkdir -p $(dir $(1)))$(file >$(1),$(2))$(if $(3),$(info $(3))))
$(call update,$(BUILD)/flags,$(CXX) $(CPPFLAGS) $(CXXFLAGS) $(LDLIBS) $(NVCCFLAGS) $(CUDNN_INCLUDE),building into $(BUILD) with \
  $(CXX) $(CXXFLAGS); $(FOUND)$(CHOICE))
$(call update,$(BUILD)/sources,$(LIB_OBJ))
$(foreach f,$(FOLDERS),$(call update,$(BUILD)/one/$(f).cpp,$(foreach s,$(call in_folder,$(f)),$(HASH)include "$(s)"$(NEWLINE))))

# build GOALS: builds them; each compilation prints its number: compile 3 of 20.
build = +@rm -f $(BUILD)/compiled; OF=$$($(MAKE) -n $(1) | grep -c "^echo 'compile"); $(MAKE) -s OF=$$OF $(1)
say   = @echo 'compile $(if $(OF),'$$(echo >>$(BUILD)/compiled; wc -l <$(BUILD)/compiled)' of $(OF): )$(1)'

$(BUILD)/obj/%.o: %.cpp $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,$<)
	@$(CXX) $(CPPFLAGS) $(CXXFLAGS) -c $< -o $@
$(BUILD)/obj/%.o: $(BUILD)/one/%.cpp $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,$* ($(words $(call in_folder,$*)) files))
	@$(CXX) $(CPPFLAGS) $(CXXFLAGS) -c $< -o $@

# CUDA C++ as C++: kernels/emu/emu.h defines its keywords. One test calls functions of such kernels. For emu, -O2 compiles
# in two thirds of the time of -O3, and GPU threads run no slower.
$(BUILD)/obj/tests/kernels/param_list_test.o: private CXXFLAGS += -Wno-unknown-pragmas
$(BUILD)/obj/emu/%.o: private CXXFLAGS += -Wno-unknown-pragmas $(OPTIMIZE:-O3=-O2)
$(BUILD)/obj/emu/%.o: %.cu $(BUILD)/flags  # one file, for graded_build.cpp
	@mkdir -p $(@D)
	@$(CXX) $(CPPFLAGS) $(CXXFLAGS) -x c++ -c $< -o $@

# CUDA C++ by nvcc; the output of ptxas for each kernel is kept for `make ptxas`. The program knows for which compute
# capabilities it was built, to name them on other GPUs.
$(BUILD)/obj/cuda/%.o: %.cu $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,$< for cuda)
	@$(NVCC) $(CPPFLAGS) $(NVCCFLAGS) -Xptxas -v -c $< -o $@ 2>$@.log; status=$$?; \
	  grep -vE '^ptxas info|bytes stack frame' $@.log >&2; exit $$status
$(BUILD)/obj/src/memory.o: private CPPFLAGS += -DGRADUS_SM='"$(SM_LIST)"'

$(BUILD)/obj/src/io.o $(BUILD)/obj/src/io/memory_page.o: src/io/memory_page.html  # by .incbin
# Programs compile code at run time (src/io/run_time_compiler.h) with the same flags.
$(BUILD)/obj/src/io.o $(BUILD)/alone/src/io/run_time_compiler.cpp: private CPPFLAGS += -DGRADUS_ROOT='"$(CURDIR)"' \
  -DGRADUS_COMPILE='"$(CXX) -I$(CURDIR) $(CXXFLAGS) -shared -fPIC"' \
  -DGRADUS_NVCC='"$(NVCC) -I$(CURDIR) $(subst ',,$(NVCCFLAGS)) -shared -Xcompiler -fPIC -x cu"'
# Fused multiply-add instructions, only in the file whose speed depends on them.
$(BUILD)/obj/kernels/cpu/gemm_tile.o: private CXXFLAGS += -ffp-contract=fast

# make includes: each source that is compiled together with others also compiles alone, with its own includes.
.PHONY: includes
includes: $(patsubst %,$(BUILD)/alone/%,$(AS_ONE) $(EMU_SRC))
$(BUILD)/alone/%: % FORCE
	@$(CXX) $(filter-out -M%,$(CPPFLAGS)) $(CXXFLAGS) -Wno-unknown-pragmas -x c++ -fsyntax-only $<

$(LIB): $(LIB_OBJ) $(BUILD)/sources
	@rm -f $@
	@ar rcs $@ $(filter %.o,$^)

$(BUILD)/lessons/%: $(BUILD)/obj/lessons/%/main.o $$(call of_lessons,lessons/$$*) $(LIB)
	@mkdir -p $(@D)
	@echo 'link $@'
	@$(CXX) $^ $(LDLIBS) -o $@

$(BUILD)/bench/%: $(BUILD)/obj/tests/bench/%.o $$(call of_lessons,tests/bench/$$*.cpp) $(LIB)
	@mkdir -p $(@D)
	@echo 'link $@'
	@$(CXX) $^ $(LDLIBS) -o $@

-include $(patsubst %.o,%.d,$(OBJECTS) $(MPI_OBJ) $(STANDIN_OBJ) $(call object,$(MAINS) $(TEST_SRC) $(BENCH_SRC)))
