# Checks on a GPU, part of the Makefile: make gpu-check runs them (check.sh); make gpu-bundle writes a folder for a
# machine without a network (bundle.sh).
.PHONY: gpu-bundle gpu-check packages
gpu-bundle:
	@$(SETUP) $(filter-out onednn,$(WANTED)) gtest
	@CXX='$(CXX)' sh tests/gpu/bundle.sh '$(OUT)'
gpu-check:
	@CXX='$(CXX)' sh tests/gpu/check.sh $(STAGES)

# The libraries of a bundle, in place of installed packages.
packages: $(addprefix build/packages/lib,$(addsuffix .a,gtest gtest_main utf8proc))
build/packages/libgtest.a: packages/gtest/src/gtest-all.cc
build/packages/libgtest_main.a: packages/gtest/src/gtest_main.cc
build/packages/libutf8proc.a: packages/utf8proc.c
build/packages/lib%.a:
	@mkdir -p $(@D)
	@echo 'compile $<'
	@$(CXX) -Ipackages/gtest -Ipackages/include -O1 -DUTF8PROC_STATIC -c $(if $(filter %.c,$<),-x c) $< -o $(@:.a=.o)
	@ar rcs $@ $(@:.a=.o)
