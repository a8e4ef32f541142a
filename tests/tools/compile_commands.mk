# make compile_commands.json: how each source is compiled, which editors and clangd read.
.PHONY: compile_commands.json
ALL_CPP = $(LIB_SRC) $(MAINS) $(TEST_SRC) $(BENCH_SRC)
compile_commands.json:
	@{ for f in $(ALL_CPP); do echo "$$f $(CXX) $(CPPFLAGS) $(CXXFLAGS)"; done; \
	  for f in $(GPU_SRC); do echo "$$f $(CXX) $(CPPFLAGS) $(CXXFLAGS) -Wno-unknown-pragmas -x c++"; done; } | \
	  awk -v folder='$(CURDIR)' '{ file = $$1; sub(/^[^ ]* /, ""); printf "%s{\"directory\": \"%s\", \"file\": \"%s\", \
	    \"command\": \"%s -c %s\"}", NR == 1 ? "[\n" : ",\n", folder, file, $$0, file } END { print "\n]" }' >$@
