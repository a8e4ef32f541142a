# course.mk: the part of the Makefile with which a course is taught. Makefile's head says what each target is for.
.PHONY: student check-course mutants

student:
	@sh $(COURSE)/student.sh '$(if $(filter 1,$(ALL)),all,$(LESSON))' '$(OUT)'

check-course:
	@$(SETUP) $(WANTED) gtest
	@sh $(COURSE)/check_course_selftest.sh
	@sh $(COURSE)/check_course.sh $(if $(filter file,$(origin LESSONS)),,$(LESSONS))

mutants:
	@$(SETUP) $(WANTED) gtest
	@sh $(COURSE)/mutants_selftest.sh
	@sh $(COURSE)/mutants.sh $(if $(filter file,$(origin LESSONS)),,$(LESSONS))

bug-%:
	@SEED='$(SEED)' sh $(COURSE)/bug.sh '$*' $(if $(filter 1,$(UNDO)),undo)

# Programs of a course: tests/course/NAME.cpp -> build/course/NAME.
$(BUILD)/course/%: $(BUILD)/obj/tests/course/%.o $(LIB)
	@mkdir -p $(@D)
	@echo 'link $@'
	@$(CXX) $^ $(LDLIBS) -o $@

-include $(patsubst %.cpp,$(BUILD)/obj/%.d,$(wildcard tests/course/*.cpp))
