# course.mk: the part of the Makefile with which a course is taught. Makefile's head says what each target is for.
.PHONY: student check-course mutants grade grade-rest grade-link check-grade gradescope-zip progress

student:
	@sh $(COURSE)/student.sh '$(if $(filter 1,$(ALL)),all,$(LESSON))' '$(OUT)'

progress:
	@sh $(COURSE)/progress.sh show

hint-%:
	@sh $(COURSE)/hint.sh '$*'

programs  = $(patsubst tests/%.cpp,$(BUILD)/%,$(sort $(wildcard tests/course/$(1)_*.cpp)))
PREDICTS := $(call programs,predict)
check-course:
	@$(SETUP) $(WANTED) gtest
	@$(MAKE) $(PREDICTS) $(BUILD)/course/faster_selftest
	@sh $(COURSE)/check_course_selftest.sh
	@sh $(COURSE)/predict_selftest.sh
	@$(BUILD)/course/faster_selftest
	@sh $(COURSE)/check_course.sh $(if $(filter file,$(origin LESSONS)),,$(LESSONS))

# The questions of a lesson, and their judge: STUDENT=name says whose, the first time.
predict-%:
	@$(if $(wildcard $(COURSE)/predict_$*.cpp),,echo 'lesson $* has nothing to predict'; exit 2)
	@$(SETUP) $(WANTED)
	@$(MAKE) $(BUILD)/course/predict_$*
	@sh $(COURSE)/predict.sh $* $(BUILD)/course/predict_$* '$(STUDENT)'

# Your kernel beside the given one.
faster-%:
	@$(if $(wildcard $(COURSE)/faster_$*.cpp),,echo 'lesson $* has nothing to make faster'; exit 2)
	@$(SETUP) $(WANTED)
	@$(MAKE) $(BUILD)/course/faster_$*
	@sh $(COURSE)/faster.sh $(BUILD)/course/faster_$* $(ARGS)

mutants:
	@$(SETUP) $(WANTED) gtest
	@sh $(COURSE)/mutants_selftest.sh
	@sh $(COURSE)/mutants.sh $(if $(filter file,$(origin LESSONS)),,$(LESSONS))

grade:
	@$(SETUP) $(WANTED) gtest
	@CXX='$(CXX)' ARCH='$(ARCH)' ONEDNN='$(ONEDNN)' sh $(COURSE)/grade.sh '$(LESSON)' '$(SUBMISSION)' '$(OUT)' '$(STUDENT)'

gradescope-zip:
	@$(SETUP) zip
	@sh $(COURSE)/gradescope.sh '$(LESSON)'

check-grade:
	@$(SETUP) $(WANTED) gtest
	@CXX='$(CXX)' ARCH='$(ARCH)' ONEDNN='$(ONEDNN)' sh $(COURSE)/grade_selftest.sh \
	  $(if $(filter file,$(origin LESSONS)),,$(LESSONS))

# For grade.sh, all objects in one library, TO, but those of the files WITHOUT; beside these, the files of a folder
# are compiled one by one.
object_of = $(patsubst %.cpp,$(BUILD)/obj/%.o,$(1:%.cu=$(BUILD)/obj/emu/%.o))
OPENED    = $(sort $(foreach f,$(WITHOUT),$(if $(filter %.cu,$(f)),emu/)$(call folders_of,$(f))))
REST      = $(filter-out $(OPENED:%=$(BUILD)/obj/%.o) $(call object_of,$(WITHOUT)), \
  $(OBJECTS) $(foreach f,$(OPENED),$(call object_of,$(call in_folder,$(f)))))
grade-rest: $$(REST)
	@rm -f $(TO)
	@ar rcs $(TO) $^

# A test program with a student's file in it, for grade.sh. The first of the objects has the grader's main.
grade-link:
	@$(CXX) $(LINKED) $(LDLIBS) -lgtest -o $(TO)

bug-%:
	@SEED='$(SEED)' sh $(COURSE)/bug.sh '$*' $(if $(filter 1,$(UNDO)),undo)

# Programs of a course: tests/course/NAME.cpp -> build/course/NAME; predict_NN and faster_NN share a file each.
$(BUILD)/course/%: $(BUILD)/obj/tests/course/%.o $$(call of_lessons,tests/course/$$*.cpp) $(LIB)
	@mkdir -p $(@D)
	@echo 'link $@'
	@$(CXX) $(filter %.o,$^) $(LIB) $(LDLIBS) -o $@
$(PREDICTS): $(BUILD)/obj/tests/course/predict.o
$(call programs,faster): $(BUILD)/obj/tests/course/faster.o

-include $(patsubst %.cpp,$(BUILD)/obj/%.d,$(wildcard tests/course/*.cpp))
