// The questions of 11.4, with numbers of the student's own: the bytes of the states of a matrix and of a
// vector, and the code of a v in an evenly spaced codebook.
#include <cmath>
#include <sstream>

#include "src/optim/adamw_8bit.h"
#include "src/tensor/context.h"
#include "tests/course/predict.h"

namespace gradus::predict {

struct Own11 {
  int64_t rows, cols, vector;
  int64_t largest, v;  // thousandths, hundred-thousandths
};

static Own11 own_run(const std::string& student) {
  Own own(student, "11.4");
  Own11 o{};
  o.rows = own.between(40, 90), o.cols = own.between(105, 300);
  o.vector = own.between(500, 4000);
  o.largest = own.between(20, 90), o.v = own.between(100, 900);
  const auto from_half = [&] {
    return std::abs(std::remainder(255.0 * double(o.v) / (100.0 * double(o.largest)) - 0.5, 1));
  };
  while (from_half() < 0.02) ++o.v;  // not near the middle between two codes
  return o;
}

static double bytes(const Shape& shape) {
  Context meta("meta");
  Parameters parameters;
  parameters.add("own", shape, {});
  const AdamW8bit optimizer(parameters);
  return double(meta.device.meter().now()[Kind::Optimizer]);
}

static double code(const Own11& o) {
  Context cpu("cpu");
  const Quantizer linear(cpu.device, {.name = "linear", .codebook = zero_point_codebook(8)});
  const std::vector<float> v{float(double(o.largest) / 1e3), float(double(o.v) / 1e5)};
  return to_host<double>(
      linear.quantize(from_host(cpu.device, v, {2}, DType::F32, Kind::Data, "v")).codes)[1];
}

static Quiz quiz(const std::string& student) {
  const Own11 o = own_run(student);
  std::ostringstream setting, code_of;
  setting << "Your model has a matrix of " << o.rows << " rows and " << o.cols << " columns, and a vector of "
          << o.vector << " elements. AdamW8bit trains it.";
  code_of << "The 256 values of a codebook are evenly spaced from 0 to 1. The largest v of a block is "
          << o.largest << " thousandths. Which code, from 0 to 255, has a v of " << o.v
          << " hundred-thousandths in this block?";
  const std::string id = "11.4";
  return {setting.str(),
          {{id, "matrix", "how many bytes do the states of the matrix take, scales included?", measured([o] {
              return bytes({o.rows, o.cols});
            })},
           {id, "vector", "how many bytes do the states of the vector take?",
            measured([o] { return bytes({o.vector}); })},
           {id, "code", code_of.str(), measured([o] { return code(o); })}}};
}

}  // namespace gradus::predict

int main(int argc, char** argv) { return gradus::predict::run(argc, argv, "11", gradus::predict::quiz); }
