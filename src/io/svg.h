// Writes SVG files, for the plots.
#pragma once
#include <sstream>
#include <string>
#include <string_view>

namespace gradus {

constexpr const char* kInk = "#28282d";  // the color of texts, axes and all that has no other color

// The elements of a picture, in the order in which they are drawn. Positions and lengths are in pixels,
// rounded to tenths; `look`: more attributes of an element, as text.
class Svg {
 public:
  template <class... Parts>  // texts and numbers
  void put(const Parts&... parts) {
    (write(parts), ...);
    body_ << "\n";
  }
  void line(double x0, double y0, double x1, double y1, const std::string& color, const char* look = "") {
    put("<line x1='", x0, "' y1='", y0, "' x2='", x1, "' y2='", y1, "' stroke='", color, "'", look, "/>");
  }
  void rect(double x, double y, double width, double height, const std::string& color) {
    put("<rect x='", x, "' y='", y, "' width='", width, "' height='", height, "' fill='", color, "'/>");
  }
  void path(const std::string& steps, const std::string& color) {
    put("<path d='", steps, "' fill='none' stroke-width='1.6' stroke-linejoin='round' stroke='", color,
        "'/>");
  }
  // anchor: which part of the text is at x: start, middle or end.
  void text(double x, double y, std::string_view s, const char* anchor, const char* look = "") {
    put("<text x='", x, "' y='", y, "' text-anchor='", anchor, "'", look, ">", escaped(s), "</text>");
  }
  std::string file(double width, double height) const;

  static double width_of(std::string_view text) { return 7.2 * double(text.size()); }  // about
  static std::string number(double v, int digits);
  static std::string px(double v);

 private:
  // Text in XML. Control characters, which XML does not have, and malformed UTF-8 become question marks.
  static std::string escaped(std::string_view text);
  void write(double v) { body_ << px(v); }
  void write(std::string_view text) { body_ << text; }
  std::ostringstream body_;
};

}  // namespace gradus
