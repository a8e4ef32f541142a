#include "tests/course/tree.h"

#include <algorithm>
#include <map>
#include <regex>

namespace gradus::course {

Lines lessons() {
  Lines names;
  if (fs::is_directory("lessons"))
    for (const fs::directory_entry& e : fs::directory_iterator("lessons"))
      if (std::regex_match(e.path().filename().string(), std::regex("[0-9][0-9]_.*")))
        names.push_back(e.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string folder_of(const std::string& nn) {
  Names numbers;
  for (const std::string& name : lessons()) {
    if (lesson_of(name) == nn) return "lessons/" + name;
    numbers.insert(lesson_of(name));
  }
  if (numbers.empty()) refuse("there are no lessons here; call it from the root of gradus");
  refuse("there is no lesson ", nn, "; the lessons are ", joined(numbers));
}

static std::string judge_of(const std::string& kind) {
  if (kind == "fill in" || kind == "derive, then write" || kind == "write a test") return "tests";
  if (kind == "predict the number" || kind == "trace by hand") return "predict";
  return kind == "make it faster" ? "faster" : "none";
}

bool Exercise::Part::has(const std::string& name) const {
  return test.ends_with("*") ? name.starts_with(test.substr(0, test.size() - 1)) : name == test;
}

// Adds the tests in a line of an exercise that have points of their own.
static void add_parts(const std::string& line, Exercise& e) {
  static const std::regex form("`([A-Za-z0-9_]+\\.[A-Za-z0-9_]+\\*?)` \\(([0-9]+) points?\\b");
  for (std::sregex_iterator i(line.begin(), line.end(), form), end; i != end; ++i)
    e.parts.push_back({(*i)[1], std::stoi((*i)[2])});
}

std::vector<Exercise> exercises_on(const std::string& page) {
  static const std::regex form("- ([0-9][0-9]\\.[0-9]+) \\*([^*]*)\\*(, ([0-9]+) points:)?.*");
  std::vector<Exercise> found;
  std::smatch part;
  for (const std::string& line : lines_of(read(page))) {
    if (line.starts_with("- ") && std::regex_match(line, part, form))
      found.push_back({part[1], part[2], judge_of(part[2]), part[4].matched ? std::stoi(part[4]) : 0, {}});
    if (!found.empty()) add_parts(line, found.back());
  }
  return found;
}
std::vector<Exercise> exercises() {
  std::vector<Exercise> all;
  for (const std::string& name : lessons())
    for (const Exercise& e : exercises_on("lessons/" + name + "/README.md")) all.push_back(e);
  return all;
}

Lines sources() { return files({"kernels", "src", "lessons"}, kCode); }

// Returns "08.5" for a line with "BEGIN SOLUTION 08.5".
static std::string id_of(const std::string& line, const std::string& mark) {
  return after(trimmed(after(line, mark)), "", " \t\r");
}

// Reads the marks of one file, line by line.
class MarkReader {
 public:
  MarkReader(const std::string& file, Marks& marks, Names& seen) : file_(file), marks_(marks), seen_(seen) {}
  void look_at(const std::string& line) {
    ++number_;
    static const std::regex mark(" *// (BEGIN|END) SOLUTION [^ ]*"), stub(" *// STUB: .*;");
    const bool begins = has(line, "BEGIN SOLUTION"), ends = has(line, "END SOLUTION"),
               stubs = has(line, "// STUB:");
    if (((begins || ends) && !std::regex_match(line, mark)) || (stubs && !std::regex_match(line, stub)))
      marks_.faults.push_back(say(here(), ": a mark has a line of its own, and a stub ends with ;"));
    if (begins)
      begin(id_of(line, "BEGIN SOLUTION"));
    else if (ends)
      end(id_of(line, "END SOLUTION"));
    else if (stubs && open_.id.empty())
      marks_.faults.push_back(say(here(), ": STUB outside an exercise"));
    else if (stubs)
      read_stub(line);
    else if (stubs_ == 0)
      ++lines_;
  }
  void finish() {
    if (!open_.id.empty()) fault("BEGIN SOLUTION ", open_.id, " has no END");
    open_.id = "";
  }

 private:
  std::string here() const { return say(file_, ":", number_); }
  template <class... Parts>
  void fault(const Parts&... parts) {  // at the first line of the current region
    marks_.faults.push_back(say(open_.file, ":", open_.line, ": ", parts...));
  }
  void begin(const std::string& id) {
    finish();
    open_ = {id, file_, number_};
    lines_ = stubs_ = 0;
    if (!std::regex_match(id, std::regex("[0-9][0-9]\\.[0-9]+")))
      fault("an exercise is named NN.k, not ", id);
    else if (!seen_.insert(id).second)
      fault("exercise ", id, " is marked twice");
  }
  void read_stub(const std::string& line) {
    ++stubs_;
    if (!has(line, "\"" + open_.id + "\"")) fault("the STUB of exercise ", open_.id, " does not name it");
  }
  void end(const std::string& id) {
    if (id != open_.id || id.empty())
      marks_.faults.push_back(
          say(here(), ": END SOLUTION ", id, " does not close ", open_.id.empty() ? "anything" : open_.id));
    else if (stubs_ != 1)
      fault("exercise ", id, " has ", stubs_, " STUB lines, not one");
    else if (lines_ > 15)
      fault("exercise ", id, " has ", lines_, " lines; the limit is 15");
    else
      marks_.places.push_back(open_);
    open_.id = "";
  }
  std::string file_;
  Marks& marks_;
  Names& seen_;
  Place open_;
  int number_ = 0, lines_ = 0, stubs_ = 0;
};

Marks marks(const Lines& files) {
  Marks found;
  Names seen;
  for (const std::string& file : files) {
    const std::string text = read(file);
    if (!has(text, "SOLUTION") && !has(text, "// STUB:")) continue;
    MarkReader reader(file, found, seen);
    for (const std::string& line : lines_of(text)) reader.look_at(line);
    reader.finish();
  }
  return found;
}

// "todo(…); return x;" becomes two lines, and a line that is too long is broken after a comma.
static std::string stub_lines(std::string stub, std::string indent) {
  std::string second;
  std::smatch part;
  if (std::regex_match(stub, part, std::regex("(.*\\);) *(return [^;]*;)"))) {
    second = indent + part.str(2) + "\n";
    stub = part.str(1);
  }
  if (indent.size() + stub.size() <= 110) return indent + stub + "\n" + second;
  const size_t comma = stub.rfind(", ", 109 - indent.size());
  const std::string below(indent.size() + stub.find('(') + 1, ' ');
  return indent + stub.substr(0, comma + 1) + "\n" + below + stub.substr(comma + 2) + "\n" + second;
}

std::string as_student(const std::string& text, const Names& open) {
  std::string result, id, indent, stub;
  for (const std::string& line : lines_of(text)) {
    if (has(line, "BEGIN SOLUTION")) {
      id = id_of(line, "BEGIN SOLUTION");
      indent = line.substr(0, line.find("//"));
      stub = "";
      if (open.contains(id))
        result += say(indent, "// EXERCISE ", id, ": see ", page_of(lesson_of(id)), "\n");
    } else if (!id.empty() && has(line, "// STUB:")) {
      stub = trimmed(after(line, "// STUB:"));
    } else if (!id.empty() && has(line, "END SOLUTION")) {
      if (open.contains(id)) result += stub_lines(stub, indent);
      id = "";
    } else if (id.empty() || (stub.empty() && !open.contains(id))) {
      result += line + "\n";
    }
  }
  return result;
}

std::vector<Recorded> recorded(const Lines& test_files) {
  static const std::regex test_begins("(TYPED_)?TEST(_F|_P)?\\(([A-Za-z0-9_]*), *([A-Za-z0-9_]*)\\).*");
  std::vector<Recorded> found;
  for (const std::string& file : test_files) {
    const std::string text = read(file);
    if (!has(text, "RecordProperty(\"exercise\"")) continue;
    std::string test;
    std::smatch part;
    for (const std::string& line : lines_of(text)) {
      if (has(line.substr(0, 10), "TEST") && std::regex_match(line, part, test_begins))
        test = part.str(3) + "." + part.str(4);
      if (const std::string id = after(line, "RecordProperty(\"exercise\", \"", "\""); !id.empty())
        found.push_back({id, fs::path(file).lexically_relative("tests").replace_extension().string(), test});
    }
  }
  return found;
}
std::vector<Recorded> recorded() {
  Lines tests;
  for (const std::string& file : files({"tests"}, {".cpp"}))
    if (file.ends_with("_test.cpp")) tests.push_back(file);
  return recorded(tests);
}

std::vector<Recorded> tests_of(const std::string& id, const std::vector<Recorded>& all) {
  std::vector<Recorded> mine;
  std::copy_if(all.begin(), all.end(), std::back_inserter(mine),
               [&](const Recorded& r) { return r.id == id; });
  return mine;
}

std::string filter_of(const std::vector<Recorded>& tests) {
  Lines patterns;
  for (const Recorded& r : tests) patterns.push_back(r.test + ":*/" + r.test + "/*");
  return joined(patterns, ":");
}

Lines hints_for(const std::string& id, const std::string& text) {
  std::string mine;
  bool inside = false;
  for (const std::string& line : lines_of(text)) {
    if (line.starts_with("**")) inside = line.starts_with("**" + id + "**");
    if (inside) mine += " " + line;
  }
  Lines hints;
  for (int k = 1; k <= 3; ++k) {
    const size_t begin = mine.find(say(" ", k, ". "));
    if (begin == mine.npos) break;
    const size_t end = k == 3 ? mine.npos : mine.find(say(" ", k + 1, ". "), begin);
    hints.push_back(trimmed(mine.substr(begin + 4, end - begin - 4)));
  }
  return hints;
}

std::vector<Mutant> mutants(const std::string& nn) {
  std::vector<Mutant> all;
  bool inside = false;
  for (const std::string& line : lines_of(read("tests/mutants/" + nn + ".txt"))) {
    if (line.empty() || line[0] == '#') {
      inside = false;
    } else if (!inside) {
      all.push_back({after(line, "", ":"), after(line, ": "), "", "", {}});
      inside = true;
    } else if (line.starts_with("survives: ")) {
      all.back().survives = line.substr(10);
    } else if (line.starts_with("says: ")) {
      all.back().says = line.substr(6);
    } else if (!has("-+ ", line.substr(0, 1))) {
      all.back().changes.push_back({line, "", ""});
    } else if (!all.back().changes.empty()) {
      Mutant::Change& c = all.back().changes.back();
      if (line[0] != '+') c.old_text += line.substr(1) + "\n";
      if (line[0] != '-') c.new_text += line.substr(1) + "\n";
    }
  }
  return all;
}

std::vector<std::pair<std::string, std::string>> Mutant::changed(const fs::path& tree) const {
  std::map<std::string, std::string> texts;
  for (const Change& c : changes) {
    auto [at, is_new] = texts.try_emplace(c.file);
    if (is_new) at->second = "\n" + read(tree / c.file);
    std::string& text = at->second;
    const size_t place = text.find("\n" + c.old_text);
    if (place == text.npos) refuse("does not apply: its old text is not in ", c.file);
    if (text.find("\n" + c.old_text, place + 1) != text.npos)
      refuse("does not apply: its old text occurs more than once in ", c.file);
    text.replace(place + 1, c.old_text.size(), c.new_text);
  }
  std::vector<std::pair<std::string, std::string>> files;
  for (const auto& [file, text] : texts) files.push_back({file, text.substr(1)});
  return files;
}

}  // namespace gradus::course
