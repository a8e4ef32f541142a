# The tests, part of the Makefile: make test and make test-NN.

# The programs that test programs run, if they run any.
THEY_RUN = $(if $(shell grep -l program_testing.h $(foreach t,$(1),$(call tests_of,$(t:$(BUILD)/tests/%=%))) /dev/null),run-by-tests)
run-by-tests: programs $(MPI_TESTS)
test:
	@$(SETUP) $(WANTED) gtest $(if $(filter 0,$(MPI)),,mpi)
	$(call build,$(TESTS) $(call THEY_RUN,$(TESTS)))
	@sh $(TOOLS)/run_tests.sh $(filter %/lessons_test,$(TESTS)) $(filter-out %/lessons_test,$(TESTS))

# test-08: the exercises of a lesson and its other tests; test-08.2: one exercise.
test-%:
	@$(if $(filter $(BUILD)/lessons/$(firstword $(subst ., ,$*))_%,$(LESSONS)),,echo 'there is no lesson $*; the lessons are: $(notdir $(LESSONS))'; exit 1)
	+$(call course,test $*,$(WANTED) gtest)
counted:
	$(call build,$(GOALS) $(call THEY_RUN,$(GOALS)))

# ---- rules --------------------------------------------------------------------------------------------
# Tests are compiled more often than they are run: -Og takes half the time of -O3. AddressSanitizer finds the use of a
# null or misaligned pointer without UndefinedBehaviorSanitizer's checks at each access. One test checks the compiler's
# optimizer. The headers that most tests include, a third of the remaining time, are compiled once, before the tests.
TEST_FLAGS := -Og -fno-sanitize=null,alignment,vptr
PRECOMPILED := $(BUILD)/obj/tests/precompiled.h
$(PRECOMPILED).gch: $(BUILD)/flags
	@mkdir -p $(@D)
	@printf '#include <%s>\n' gtest/gtest.h filesystem fstream functional map random set >$(PRECOMPILED)
	@$(CXX) $(CPPFLAGS) $(CXXFLAGS) $(TEST_FLAGS) -x c++-header $(PRECOMPILED) -o $@
$(call object,$(TEST_SRC)): $(PRECOMPILED).gch
$(BUILD)/obj/tests/%_test.o: private CXXFLAGS += $(TEST_FLAGS) -include $(PRECOMPILED)
$(BUILD)/obj/tests/kernels/compiler_test.o: private CXXFLAGS := $(CXXFLAGS) -O3

# The sources that call NVIDIA's libraries, compiled for the stand-ins in tests/standin.
$(BUILD)/obj/standin/%.o: %.cu $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,$< for tests without a GPU)
	@$(CXX) -Itests/standin -DGRADUS_GPU=standin $(CPPFLAGS) $(CXXFLAGS) -Wno-unknown-pragmas \
	  -x c++ -c $< -o $@

# The files of a test program: those of a folder (nn_test), those with tests of a lesson (08) or of an exercise
# (08.2), or a single file.
RECORDED = $(shell grep -lF '"exercise", "$(1)"' $(TEST_SRC))
tests_of = $(sort $(or $(filter tests/$(1:_test=)/%,$(TEST_SRC)),$(filter tests/$(1).cpp,$(TEST_SRC)), \
  $(if $(findstring .,$(1)),$(call RECORDED,$(1)),$(shell grep -l '^[TYPED_]*TEST[_FP]*.L$(1)_' $(TEST_SRC)))))
with_tests = $(call object,$(1)) $(call of_lessons,$(1)) \
  $(if $(shell grep -lE 'tests/standin/' $(1)),$(STANDIN_OBJ))
# For tests that make allocations fail: tests/fault_injection.h.
WRAP := -Wl,--wrap=_ZN6gradus9Allocator8allocateElNS_4KindESt17basic_string_viewIcSt11char_traitsIcEERKNS_5ShapeE
$(BUILD)/tests/%: $$(call with_tests,$$(call tests_of,$$*)) $(LIB)
	@mkdir -p $(@D)
	@echo 'link $@'
	@$(CXX) $(filter %.o,$^) $(LIB) $(LDLIBS) $(if $(shell grep -l tests/fault_injection $(call tests_of,$*)),$(WRAP)) \
	  -lgtest_main -lgtest -o $@

# The stand-ins as a library, for graded_build.cpp, which links such tests by itself.
$(BUILD)/standins.a: $(STANDIN_OBJ)
	@rm -f $@
	@ar rcs $@ $^
