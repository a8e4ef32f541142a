# course.mk: the targets for teaching a course, part of the Makefile, whose head says what each target is for.
.PHONY: student syllabus check-course mutants grade grade-rest grade-link check-grade gradescope-zip progress marks slides

# The program `course` does not use the engine. It is compiled as one file without optimization, which takes seconds.
TOOL     := $(BUILD)/course/course
TOOL_OBJ := $(BUILD)/obj/course.o
TOOL_SRC := $(patsubst %,$(COURSE)/%.cpp,text tree trees student workflow check mutants report progress feedback grade_reports cell graded_build grade course)
$(TOOL_OBJ): $(TOOL_SRC) $(wildcard $(COURSE)/*.h)
	@mkdir -p $(@D)
	$(call say,$(COURSE) ($(words $(TOOL_SRC)) files))
	@printf '#include "%s"\n' $(TOOL_SRC) | $(CXX) -I. $(CXXFLAGS) -O0 -x c++ -c - -o $@
$(TOOL): $(COURSE)/main.cpp $(TOOL_OBJ)
	@mkdir -p $(@D)
	@$(CXX) -I. $(CXXFLAGS) -O0 $^ $(LDLIBS) -o $@
$(BUILD)/tests/course_test $(patsubst tests/%.cpp,$(BUILD)/tests/%,$(wildcard $(COURSE)/*_test.cpp)): $(TOOL_OBJ)
# $(call course,COMMAND,NEEDS): runs a command after setup.sh has installed NEEDS.
course = +@$(SETUP) compiler json $(2) && $(MAKE) -s $(TOOL) && CXX='$(CXX)' ARCH='$(ARCH)' ONEDNN='$(ONEDNN)' $(TOOL) $(1)

student:
	$(call course,student '$(if $(filter 1,$(ALL)),all,$(LESSON))' '$(OUT)' '$(if $(filter 1,$(GITHUB)),github)')

# Computes the tables and the graph of the teachers' page.
FOR_TEACHERS := $(COURSE)/teacher/README.md
syllabus:
	@mkdir -p build
	@awk -f $(TOOLS)/syllabus.awk lessons/README.md lessons/[0-9][0-9]_*/README.md $(FOR_TEACHERS) >build/syllabus.md
	@cp build/syllabus.md $(FOR_TEACHERS) && echo 'syllabus: $(FOR_TEACHERS)'

progress:
	$(call course,progress)

marks:
	$(call course,marks)

hint-%:
	$(call course,hint '$*')

ASKED     = $(if $(filter file,$(origin LESSONS)),,$(LESSONS))
programs  = $(patsubst tests/%.cpp,$(BUILD)/%,$(sort $(wildcard tests/course/$(1)_*.cpp)))
PREDICTS := $(call programs,predict)
check-course:
	@$(SETUP) $(WANTED) gtest
	@$(MAKE) $(PREDICTS) $(BUILD)/course/faster_selftest
	@sh $(COURSE)/predict_selftest.sh
	@$(BUILD)/course/faster_selftest
	$(call course,check $(ASKED))

# Writes the questions of a lesson for STUDENT=name (default: git's user.email); after that, judges the answers.
predict-%:
	@$(if $(wildcard $(COURSE)/predict_$*.cpp),,echo 'lesson $* has nothing to predict'; exit 2)
	@$(SETUP) $(WANTED)
	@$(MAKE) $(BUILD)/course/predict_$*
	$(call course,predict $* $(BUILD)/course/predict_$* '$(STUDENT)')

# Compares your kernel with the given one.
faster-%:
	@$(if $(wildcard $(COURSE)/faster_$*.cpp),,echo 'lesson $* has nothing to make faster'; exit 2)
	@$(SETUP) $(WANTED)
	@$(MAKE) $(BUILD)/course/faster_$*
	$(call course,faster $(BUILD)/course/faster_$* $(ARGS))

mutants:
	$(call course,mutants $(ASKED),$(WANTED) gtest)

grade:
	$(call course,grade '$(LESSON)' '$(SUBMISSION)' '$(OUT)' '$(STUDENT)',$(WANTED) gtest)

gradescope-zip:
	@$(SETUP) zip
	@sh $(COURSE)/gradescope.sh '$(LESSON)'

slides:
	@$(SETUP) cmark-gfm
	@sh $(COURSE)/slides.sh

slides-%:
	@$(SETUP) cmark-gfm
	@sh $(COURSE)/slides.sh '$*'

check-grade:
	@$(SETUP) $(WANTED) gtest
	@$(MAKE) $(BUILD)/course/grade_check
	@CXX='$(CXX)' ARCH='$(ARCH)' ONEDNN='$(ONEDNN)' $(BUILD)/course/grade_check $(ASKED)
$(BUILD)/course/grade_check: $(COURSE)/grade_check.cpp $(COURSE)/grade_trial.h $(TOOL_OBJ)
	@mkdir -p $(@D)
	@$(CXX) -I. $(CXXFLAGS) -O0 $< $(TOOL_OBJ) $(LDLIBS) -o $@

# For graded_build.cpp: all objects, except those of the files WITHOUT, as the library TO. The other files in the
# folders of WITHOUT are compiled one by one.
object_of = $(patsubst %.cpp,$(BUILD)/obj/%.o,$(1:%.cu=$(BUILD)/obj/emu/%.o))
OPENED    = $(sort $(foreach f,$(WITHOUT),$(if $(filter %.cu,$(f)),emu/)$(call folders_of,$(f))))
REST      = $(filter-out $(OPENED:%=$(BUILD)/obj/%.o) $(call object_of,$(WITHOUT)), \
  $(OBJECTS) $(foreach f,$(OPENED),$(call object_of,$(call in_folder,$(f)))))
grade-rest: $$(REST)
	@rm -f $(TO)
	@ar rcs $(TO) $^

# For graded_build.cpp: links a test program with a student's file. The first object has the grader's main.
grade-link:
	@$(CXX) $(LINKED) $(LDLIBS) -lgtest -o $(TO)

bug-%:
	$(call course,bug '$*' '$(if $(filter 1,$(UNDO)),undo)' '$(SEED)')

# Programs of a course: tests/course/NAME.cpp -> build/course/NAME. All predict_NN share predict.cpp, all faster_NN faster.cpp.
$(BUILD)/course/%: $(BUILD)/obj/tests/course/%.o $$(call of_lessons,tests/course/$$*.cpp) $(LIB)
	@mkdir -p $(@D)
	@echo 'link $@'
	@$(CXX) $(filter %.o,$^) $(LIB) $(LDLIBS) -o $@
$(PREDICTS): $(BUILD)/obj/tests/course/predict.o
$(call programs,faster): $(BUILD)/obj/tests/course/faster.o

-include $(patsubst %.cpp,$(BUILD)/obj/%.d,$(wildcard tests/course/*.cpp))
