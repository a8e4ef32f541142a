// The questions of 10.6, with numbers of the student's own: the bytes of a matrix in two formats, the code of
// a number, the byte of two codes.
#include <cmath>
#include <sstream>

#include "src/quant/quantized.h"
#include "src/tensor/context.h"
#include "tests/course/predict.h"

namespace gradus::predict {

struct Own10 {
  int64_t rows, cols, block;
  int64_t largest, x;  // hundredths
  int64_t first, second;
};

static Own10 own_run(const std::string& student) {
  Own own(student, "10.6");
  Own10 o{};
  o.rows = 64 * own.between(3, 40), o.cols = 64 * own.between(3, 40);
  o.block = int64_t(32) << own.between(0, 2);
  o.largest = own.between(200, 900), o.x = own.between(20, 180);
  const auto from_half = [&] {
    return std::abs(std::remainder(127.0 * double(o.x) / double(o.largest) - 0.5, 1));
  };
  while (from_half() < 0.02) ++o.x;  // not near the middle between two codes
  o.first = own.between(1, 14), o.second = own.between(1, 14);
  return o;
}

static double bytes(const Own10& o, const Codebook& codebook, int bits) {
  Context meta("meta");
  const Quantizer quantizer(meta.device,
                            {.name = "own", .codebook = codebook, .bits = bits, .block = o.block});
  return double(
      quantizer.quantize(Tensor(meta.device, {o.rows, o.cols}, DType::F32, Kind::Weight, "w")).bytes());
}

// The numbers as one quantization block, on the CPU.
static Quantized quantized(Context& cpu, const Codebook& codebook, int bits, const std::vector<float>& x) {
  const Quantizer quantizer(cpu.device, {.name = "own", .codebook = codebook, .bits = bits});
  return quantizer.quantize(from_host(cpu.device, x, {int64_t(x.size())}, DType::F32, Kind::Data, "x"));
}
static double code(const Own10& o) {
  Context cpu("cpu");
  return to_host<double>(
      quantized(cpu, absmax_codebook(8), 8, {float(o.x) / 100, -float(o.largest) / 100}).codes)[0];
}
static double byte(const Own10& o) {
  Context cpu("cpu");
  const Codebook nf4 = nf4_codebook();
  return to_host<double>(quantized(cpu, nf4, 4, {nf4.value[o.first], nf4.value[o.second], 1, -1}).codes)[0];
}

static std::string hundredths(int64_t n) {
  return std::to_string(n / 100) + "." + (n % 100 < 10 ? "0" : "") + std::to_string(n % 100);
}

static Quiz quiz(const std::string& student) {
  const Own10 o = own_run(student);
  std::ostringstream setting, code_of, byte_of;
  setting << "Your matrix has " << o.rows << " rows and " << o.cols
          << " columns. It is quantized in blocks of " << o.block
          << " elements, each with one scale in fp32.";
  code_of << "The number with the largest magnitude in a block is -" << hundredths(o.largest)
          << ". Which code does absmax with 8 bits give the number " << hundredths(o.x)
          << "? Codes go from 0 to 254; 127 is the code of 0.";
  byte_of << "Two neighboring elements in NF4 have the codes " << o.first << " and " << o.second
          << ", in this order. Which number is the byte that holds both?";
  const std::string id = "10.6";
  return {setting.str(),
          {{id, "bytes8", "how many bytes does the matrix take with absmax in 8 bits, scales included?",
            measured([o] { return bytes(o, absmax_codebook(8), 8); })},
           {id, "bytes4", "how many bytes does it take in NF4?",
            measured([o] { return bytes(o, nf4_codebook(), 4); })},
           {id, "code", code_of.str(), measured([o] { return code(o); })},
           {id, "byte", byte_of.str(), measured([o] { return byte(o); })}}};
}

}  // namespace gradus::predict

int main(int argc, char** argv) { return gradus::predict::run(argc, argv, "10", gradus::predict::quiz); }
