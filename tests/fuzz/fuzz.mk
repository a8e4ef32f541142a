# make fuzz: tests/fuzz/NAME.cpp with driver.cpp -> fuzz/NAME, always under the sanitizers; ONLY=NAME runs one alone.
SECONDS ?= 60
SEED    ?= 1
PLANTED := $(BUILD)/fuzz/planted
DRIVER  := $(BUILD)/obj/tests/fuzz/driver.o
FUZZ_SRC := $(sort $(wildcard tests/fuzz/*.cpp))
FUZZERS := $(patsubst tests/fuzz/%.cpp,$(BUILD)/fuzz/%,$(filter-out tests/fuzz/driver.cpp tests/fuzz/planted.cpp,$(FUZZ_SRC)))
CHOSEN  := $(if $(ONLY),$(BUILD)/fuzz/$(ONLY),$(FUZZERS))

.PHONY: fuzz run-fuzzers
fuzz:
	@$(SETUP) $(WANTED) gtest
	@$(MAKE) SANITIZE=1 run-fuzzers
run-fuzzers: $(PLANTED) $(CHOSEN)
	@sh tests/fuzz/run.sh $(SECONDS) $(SEED) $(PLANTED) $(CHOSEN)

$(PLANTED) $(FUZZERS): $(BUILD)/fuzz/%: $(BUILD)/obj/tests/fuzz/%.o $(DRIVER) $$(call of_lessons,tests/fuzz/$$*.cpp) $(LIB)
	@mkdir -p $(@D)
	@echo 'link $@'
	@$(CXX) $(filter %.o,$^) $(filter-out %.o,$^) $(LDLIBS) -lgtest -o $@

# The main functions of the lessons, each with a different name, and their objects; and the judge of answers.
MAIN_OBJ := $(patsubst lessons/%/main.cpp,$(BUILD)/fuzz/main_%.o,$(MAINS))
$(MAIN_OBJ): $(BUILD)/fuzz/main_%.o: $(BUILD)/obj/lessons/%/main.o
	@mkdir -p $(@D)
	@objcopy --redefine-sym main=main_$* $< $@
$(BUILD)/obj/tests/fuzz/lessons.o: CPPFLAGS += '-DGRADUS_MAINS=$(MAIN_OBJ:$(BUILD)/fuzz/%.o=X(%))'
$(BUILD)/fuzz/lessons: $(MAIN_OBJ) $(LESSON_OBJ)
$(BUILD)/fuzz/answers: $(BUILD)/obj/tests/course/predict.o

-include $(patsubst %.cpp,$(BUILD)/obj/%.d,$(FUZZ_SRC))
