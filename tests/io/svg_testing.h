// SVG read back: its elements, each of which must be closed, with their attributes and texts.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

namespace gradus {

struct SvgElement {
  std::string tag, text;
  std::map<std::string, std::string> attributes;
  const std::string& operator[](const char* name) const {
    static const std::string none;
    const auto found = attributes.find(name);
    return found == attributes.end() ? none : found->second;
  }
  double number(const char* name) const { return std::atof((*this)[name].c_str()); }
};

struct SvgText {
  std::vector<SvgElement> elements;

  explicit SvgText(const std::string& svg) {
    read(svg);
    for (const char* none : {"nan", "inf"})
      for (const SvgElement& e : elements)
        for (const auto& [name, value] : e.attributes)
          EXPECT_EQ(value.find(none), std::string::npos) << e.tag << " " << name << " " << value;
  }
  void read(const std::string& svg) {
    std::vector<std::string> open;
    for (size_t at = 0; at < svg.size();) {
      const size_t end = svg.find(svg[at] == '<' ? '>' : '<', at);
      if (svg[at] != '<') {
        if (!open.empty() && open.back() == "text") elements.back().text += svg.substr(at, end - at);
        at = end;
        continue;
      }
      ASSERT_NE(end, std::string::npos) << "a tag without an end";
      std::string tag = svg.substr(at + 1, end - at - 1);
      at = end + 1;
      if (tag[0] == '/') {
        ASSERT_TRUE(!open.empty() && open.back() == tag.substr(1)) << tag;
        open.pop_back();
        continue;
      }
      const bool closed = tag.back() == '/';
      if (closed) tag.pop_back();
      elements.push_back({tag.substr(0, tag.find(' ')), "", {}});
      for (size_t from = tag.find(' '); from != std::string::npos;) {
        const size_t is = tag.find("='", from), to = tag.find('\'', is + 2);
        if (is == std::string::npos) break;
        ASSERT_NE(to, std::string::npos) << tag;
        elements.back().attributes[tag.substr(from + 1, is - from - 1)] = tag.substr(is + 2, to - is - 2);
        from = to + 1;
      }
      if (!closed) open.push_back(elements.back().tag);
    }
    EXPECT_TRUE(open.empty());
  }
  std::vector<SvgElement> all(const std::string& tag) const {
    std::vector<SvgElement> found;
    for (const SvgElement& e : elements)
      if (e.tag == tag) found.push_back(e);
    return found;
  }
  // The texts with this content.
  std::vector<SvgElement> says(const std::string& text) const {
    std::vector<SvgElement> found;
    for (const SvgElement& e : all("text"))
      if (e.text == text) found.push_back(e);
    return found;
  }
};

}  // namespace gradus
