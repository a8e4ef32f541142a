#include "src/parallel/layout.h"

namespace gradus {

Layout Layout::place_of(int64_t rank) const {
  return {.pipeline = rank / (tensor * context * data),
          .data = rank / (tensor * context) % data,
          .tensor = rank % tensor,
          .context = rank / tensor % context};
}

std::string Layout::text() const {
  std::ostringstream text;
  text << "p" << pipeline << " d" << data << " t" << tensor << " c" << context;
  return text.str();
}

LayoutGroups::LayoutGroups(Comm& all, const Layout& layout) : place(layout.place_of(all.rank())) {
  check(all.size() == layout.ranks(), "layout ", layout.text(), ": it has ", layout.ranks(),
        " ranks; there are ", all.size());
  // Ranks of the same color are a group: those whose places differ in that direction alone.
  const auto group = [&](const char* name, Layout at) {
    return all.split(
        name,
        ((at.pipeline * layout.data + at.data) * layout.context + at.context) * layout.tensor + at.tensor);
  };
  Layout at = place;
  at.pipeline = 0, pipeline = group("pipeline", at);
  at = place, at.tensor = 0, tensor = group("tensor", at);
  at = place, at.context = 0, context = group("context", at);
  at.data = 0, replicas = group("replicas", at);
}

}  // namespace gradus
