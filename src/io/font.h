// The letters of the pictures: 5 columns by 7 rows, drawn for this project. Each character is seven rows from
// the top, two hexadecimal digits each; in a row the highest of the 5 bits is the left column. g p q y begin
// two rows lower than they are stored, so that their tails hang below the line.
#pragma once
#include <array>
#include <cstdint>

namespace gradus {

constexpr int kGlyphColumns = 5, kGlyphRows = 7, kTail = 2;
constexpr char kFirstGlyph = ' ', kLastGlyph = '~';
// clang-format off
constexpr std::array<uint64_t, 95> kGlyphs{
    0x00000000000000, 0x04040404040004, 0x0A0A0A00000000, 0x0A0A1F0A1F0A0A, 0x040F140E051E04,  //   ! " # $
    0x18190204081303, 0x0C12140815120D, 0x04040800000000, 0x02040808080402, 0x08040202020408,  // % & ' ( )
    0x0004150E150400, 0x0004041F040400, 0x000000000C0408, 0x0000001F000000, 0x00000000000C0C,  // * + , - .
    0x01010204081010, 0x0E11111511110E, 0x040C040404040E, 0x0E11010204081F, 0x0E11010601110E,  // / 0 1 2 3
    0x02060A121F0202, 0x1F101E0101110E, 0x0608101E11110E, 0x1F010202040404, 0x0E11110E11110E,  // 4 5 6 7 8
    0x0E11110F01020C, 0x000C0C000C0C00, 0x000C0C000C0408, 0x02040810080402, 0x00001F001F0000,  // 9 : ; < =
    0x08040201020408, 0x0E110102040004, 0x0E11171517100E, 0x0E11111F111111, 0x1E11111E11111E,  // > ? @ A B
    0x0E11101010110E, 0x1C12111111121C, 0x1F10101E10101F, 0x1F10101E101010, 0x0E11101711110F,  // C D E F G
    0x1111111F111111, 0x0E04040404040E, 0x0702020202120C, 0x11121418141211, 0x1010101010101F,  // H I J K L
    0x111B1515111111, 0x11191915131311, 0x0E11111111110E, 0x1E11111E101010, 0x0E11111115120D,  // M N O P Q
    0x1E11111E141211, 0x0F10100E01011E, 0x1F040404040404, 0x1111111111110E, 0x11111111110A04,  // R S T U V
    0x11111115151B11, 0x11110A040A1111, 0x11110A04040404, 0x1F01020408101F, 0x0E08080808080E,  // W X Y Z [
    0x10100804020101, 0x0E02020202020E, 0x040A1100000000, 0x0000000000001F, 0x08040200000000,  // \ ] ^ _ `
    0x00000E010F110F, 0x10101E1111111E, 0x00000F1010100F, 0x01010F1111110F, 0x00000E111F100F,  // a b c d e
    0x0608081C080808, 0x0F1111110F010E, 0x10101E11111111, 0x04000C0404040E, 0x0200060202120C,  // f g h i j
    0x10101214181412, 0x0C04040404040E, 0x00001A15151515, 0x00001E11111111, 0x00000E1111110E,  // k l m n o
    0x1E1111111E1010, 0x0F1111110F0101, 0x00001618101010, 0x00000F100E011E, 0x08081C08080806,  // p q r s t
    0x0000111111110F, 0x00001111110A04, 0x0000151515150A, 0x0000110A040A11, 0x111111110F010E,  // u v w x y
    0x00001F0204081F, 0x02040408040402, 0x04040404040404, 0x08040402040408, 0x00000815020000,  // z { | } ~
};
// clang-format on

// Whether the pixel at (column, row) of the character is set, row < kGlyphRows + kTail; characters outside
// ASCII look like '?'.
constexpr bool glyph_pixel(char c, int column, int row) {
  const char known = c >= kFirstGlyph && c <= kLastGlyph ? c : '?';
  if (c == 'g' || c == 'p' || c == 'q' || c == 'y') row -= kTail;
  if (row < 0 || row >= kGlyphRows) return false;
  const uint64_t rows = kGlyphs[size_t(known - kFirstGlyph)];
  return (rows >> (8 * (kGlyphRows - 1 - row) + (kGlyphColumns - 1 - column))) & 1;
}

}  // namespace gradus
