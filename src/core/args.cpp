#include "src/core/args.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <iostream>

#include "src/core/named.h"
#include "src/core/nearest.h"
#include "src/core/table.h"

namespace gradus {

constexpr size_t kHelpColumn = 26;
constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};  // each is 1024 of the one before it

template <class... Parts>
static void require(bool ok, const Parts&... parts) {
  if (ok) return;
  std::ostringstream text;
  (text << ... << parts);
  throw BadArguments(text.str());
}

Args::Args(int argc, char** argv, std::string program, std::string about)
    : program_(std::move(program)), about_(std::move(about)) {
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--help" || arg == "-h") {
      wants_help_ = true;
      continue;
    }
    require(arg.size() > 2 && arg.starts_with("--"), "argument '", arg,
            "' is not a flag; flags are --name=value; try --help");
    const size_t equals = std::min(arg.find('='), arg.size());
    Given g{arg.substr(2, equals - 2), "", equals < arg.size()};
    if (g.has_value) g.value = arg.substr(equals + 1);
    for (const Given& other : given_) require(other.name != g.name, "--", g.name, " is given twice");
    given_.push_back(g);
  }
}

// Adds a line to the help text. Returns the flag as given, or nullptr (always with --help).
Args::Given* Args::declare(const std::string& name, const std::string& left, const std::string& help) {
  declared_.push_back(name);
  help_ += left + std::string(left.size() < kHelpColumn ? kHelpColumn - left.size() : 1, ' ') + help + "\n";
  if (wants_help_) return nullptr;
  for (Given& g : given_)
    if (g.name == name) {
      g.known = true;
      return &g;
    }
  return nullptr;
}

// Declares a flag that has a value; returns the value if it was given.
const std::string* Args::take(const std::string& name, const std::string& fallback, const std::string& help) {
  const Given* given = declare(name, "  --" + name + "=" + (fallback.empty() ? "..." : fallback), help);
  if (!given) return nullptr;
  require(given->has_value && !given->value.empty(), "--", name, " needs a value: --", name, "=",
          fallback.empty() ? "..." : fallback);
  return &given->value;
}

template <class T>
static T parse_number(const std::string& name, const std::string& text, const char* kind) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  require(error != std::errc::result_out_of_range, "--", name, "=", text, " has too many digits for ", kind);
  require(error == std::errc() && end == text.data() + text.size(), "--", name, "=", text, " is not ", kind);
  return value;
}

int64_t Args::integer(const std::string& name, int64_t fallback, const std::string& help, int64_t least,
                      int64_t most) {
  const std::string* text = take(name, std::to_string(fallback), help);
  const int64_t value = text ? parse_number<int64_t>(name, *text, "a whole number") : fallback;
  require(value >= least && value <= most, "--", name, "=", value, " is out of range; it can be ", least,
          " to ", most);
  return value;
}

double Args::number(const std::string& name, double fallback, const std::string& help, double least,
                    double most) {
  const std::string* text = take(name, number_text(fallback), help);
  const double value = text ? parse_number<double>(name, *text, "a number") : fallback;
  require(value >= least && value <= most, "--", name, "=", value, " is out of range; it can be ", least,
          " to ", most);  // rejects nan, too
  return value;
}

// The size as a user would type it: in the largest unit that needs no fraction.
static std::string typed_bytes(int64_t bytes) {
  size_t unit = 0;
  for (; bytes != 0 && bytes % 1024 == 0 && unit + 1 < std::size(kUnits); ++unit) bytes /= 1024;
  return std::to_string(bytes) + (unit > 0 ? kUnits[unit] : "");
}

int64_t Args::bytes(const std::string& name, int64_t fallback, const std::string& help) {
  const std::string* text = take(name, typed_bytes(fallback), help);
  if (!text) return fallback;
  const size_t digits = std::min(text->find_first_not_of("0123456789."), text->size());
  const std::string unit = digits < text->size() ? text->substr(digits) : "B";
  const auto* found = std::find(std::begin(kUnits), std::end(kUnits), unit);
  require(digits > 0 && found != std::end(kUnits), "--", name, "=", *text,
          " is not a size; write 4096, 64MiB or 1.5GiB");
  double value = parse_number<double>(name, text->substr(0, digits), "a number");
  for (const auto* u = std::begin(kUnits); u != found; ++u) value *= 1024;
  require(value == 0 || value >= 1, "--", name, "=", *text, " is less than a byte");
  require(value <= 0x1p60, "--", name, "=", *text, " is more than any machine has");
  return int64_t(value);
}

std::string Args::text(const std::string& name, const std::string& fallback, const std::string& help) {
  const std::string* text = take(name, fallback, help);
  return text ? *text : fallback;
}

std::string Args::choice(const std::string& name, const std::string& fallback, const std::string& help,
                         const std::vector<std::string>& words) {
  const std::string list = joined(words);
  const std::string* text = take(name, fallback, help + " (" + list + ")");
  if (!text) return fallback;
  require(std::find(words.begin(), words.end(), *text) != words.end(), "--", name, "=", *text,
          " is unknown; it can be: ", list);
  return *text;
}

bool Args::flag(const std::string& name, const std::string& help) {
  const Given* given = declare(name, "  --" + name, help);
  require(!given || !given->has_value, "--", name, " takes no value");
  return given != nullptr;
}

void Args::done() {
  flag("help", "show this help");
  if (wants_help_) {
    std::cout << program_ << ": " << about_ << "\n\n" << help_ << std::flush;
    std::exit(0);
  }
  for (const Given& g : given_) {
    if (g.known) continue;
    require(false, "--", g.name, " is unknown; did you mean --", nearest(g.name, declared_),
            "? (--help lists all flags)");
  }
}

}  // namespace gradus
