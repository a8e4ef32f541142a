#include "tests/course/commands.h"

int main(int argc, char** argv) { return gradus::course::main_of({argv + 1, argv + argc}); }
