// Lists of items that have names.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "kernels/check.h"

namespace gradus {

inline std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

template <class List>
std::vector<std::string> names_of(const List& list) {
  std::vector<std::string> names;
  for (const auto& x : list) names.push_back(x.name);
  return names;
}

// The item with this name. `what` says in the error what the items are.
template <class List>
auto& named(std::string_view name, List& list, const char* what) {
  for (auto& x : list)
    if (x.name == name) return x;
  fail(what, " '", name, "' is unknown; there are: ", joined(names_of(list)));
}

}  // namespace gradus
