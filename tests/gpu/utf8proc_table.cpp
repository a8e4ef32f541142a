// Writes utf8proc_category as C source: the categories of all characters, as runs of equal
// categories. For a machine without utf8proc (bundle.sh).
#include <utf8proc.h>

#include <cstdio>

int main() {
  std::printf(
      "#include <utf8proc.h>\n\nstatic const struct {\n  utf8proc_int32_t first;\n  unsigned char "
      "category;\n} "
      "kRuns[] = {\n");
  int runs = 0, before = -1;
  for (utf8proc_int32_t c = 0; c < 0x110000; ++c) {
    const int category = utf8proc_category(c);
    if (category == before) continue;
    std::printf("%s{%d, %d},", runs++ % 8 ? " " : "\n    ", c, category);
    before = category;
  }
  std::printf(
      "\n};\n\nutf8proc_category_t utf8proc_category(utf8proc_int32_t c) {\n"
      "  if (c < 0 || c >= 0x110000) return UTF8PROC_CATEGORY_CN;\n"
      "  int run = 0, end = %d;  /* it is in [run, end) */\n"
      "  while (end - run > 1) {\n    const int half = (run + end) / 2;\n"
      "    if (kRuns[half].first <= c) run = half; else end = half;\n  }\n"
      "  return (utf8proc_category_t)kRuns[run].category;\n}\n"
      "const char* utf8proc_unicode_version(void) { return \"%s\"; }\n",
      runs, utf8proc_unicode_version());
}
