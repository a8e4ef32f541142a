#include "src/io/svg.h"

#include <cmath>
#include <cstdint>
#include <cstdio>

#include "src/core/utf8.h"

namespace gradus {

std::string Svg::number(double v, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*g", digits, v + 0.0);  // -0 becomes 0
  return text;
}

std::string Svg::px(double v) { return number(std::round(v * 10) / 10, 6); }

std::string Svg::escaped(std::string_view text) {
  std::string made;
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    const std::string_view c = text.substr(0, length == 0 ? 1 : length);
    text.remove_prefix(c.size());
    if (length == 0 || uint8_t(c[0]) < ' ')
      made += '?';
    else
      made += c == "<" ? "&lt;" : c == "&" ? "&amp;" : c;
  }
  return made;
}

std::string Svg::file(double width, double height) const {
  Svg all;
  all.put("<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 ", width, " ", height, "' width='", width,
          "' height='", height, "' font-family='system-ui, sans-serif' font-size='13' fill='", kInk, "'>");
  all.put("<rect width='100%' height='100%' rx='6' fill='#fff'/>");
  all.put(body_.str(), "</svg>");
  return all.body_.str();
}

}  // namespace gradus
