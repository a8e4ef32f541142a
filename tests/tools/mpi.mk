# Ranks that are processes, part of the Makefile. Programs with MPI are linked separately, from the same objects.
MPI     ?= $(if $(shell command -v mpicxx),1)
MPICXX  := MPICH_CXX='$(CXX)' OMPI_CXX='$(CXX)' mpicxx
MPIEXEC := sh tests/tools/mpiexec.sh
WITH_MPI := $(patsubst lessons/%/main.cpp,$(BUILD)/mpi/lessons/%,$(shell grep -l parallel/comm/processes.h $(MAINS) /dev/null))
MPI_OBJ := $(call object,$(wildcard src/parallel/comm/mpi/*.cpp))
MPI_TESTS = $(if $(filter 1,$(MPI)),$(BUILD)/mpi/tests/mpi_program)

RANKS ?= 4
MPI_PROGRAM = $(filter $(BUILD)/mpi/lessons/$*_%,$(WITH_MPI))
mpi-%:
	@$(if $(MPI_PROGRAM),,echo 'lesson $* has no ranks; these have: $(notdir $(WITH_MPI))'; exit 1)
	@$(SETUP) $(WANTED) mpi
	@$(MAKE) MPI=1 $(MPI_PROGRAM)
	$(MPIEXEC) $(RANKS) $(MPI_PROGRAM) --comm=$(or $(COMM),mpi) --ranks=$(RANKS) $(ARGS)

# These objects come before the library, so the linker takes their functions instead of those of no_mpi.cpp.
$(MPI_OBJ): $(BUILD)/obj/%.o: %.cpp $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,$< with MPI)
	@$(MPICXX) $(CPPFLAGS) $(CXXFLAGS) -c $< -o $@
define link_with_mpi
	@mkdir -p $(@D)
	@echo 'link $@'
	@$(MPICXX) $^ $(LDLIBS) $(NCCL) $(GTEST) -o $@
endef
$(BUILD)/mpi/lessons/%: $(BUILD)/obj/lessons/%/main.o $(MPI_OBJ) $$(call of_lessons,lessons/$$*) $(LIB)
	$(link_with_mpi)
$(BUILD)/mpi/bench/%: $(BUILD)/obj/tests/bench/mpi/%.o $(MPI_OBJ) $$(call of_lessons,tests/bench/mpi/$$*.cpp) $(LIB)
	$(link_with_mpi)
$(BUILD)/mpi/tests/%: GTEST := -lgtest
$(BUILD)/mpi/tests/%: $(BUILD)/obj/tests/parallel/%.o $(MPI_OBJ) $$(call of_lessons,tests/parallel/$$*.cpp) $(LIB)
	$(link_with_mpi)
-include $(patsubst %.o,%.d,$(call object,$(wildcard tests/bench/mpi/*.cpp) tests/parallel/mpi_program.cpp))
