#include "src/train/chain_code.h"

#include <map>
#include <set>
#include <sstream>

namespace gradus {

// Without __fmul_rn a GPU's compiler would contract a product that is followed by a sum to an fma.
static constexpr ChainRule kRules[] = {
    {"add", "nn", "n", "x0 + x1", "__fadd_rn(x0, x1)"},
    {"multiply", "nn", "n", "x0 * x1", "__fmul_rn(x0, x1)"},
    {"scale", "n", "n", "a0 * x0", "__fmul_rn(a0, x0)"},
    {"gelu_fwd", "n", "n", "kGelu(x0)", "GeluFwd()(x0)"},
    {"gelu_bwd", "nn", "n", "kGeluBwd(x0, x1)", "GeluBwd()(x0, x1)"},
    {"gelu_erf_fwd", "n", "n", "kGeluErf(x0)", "GeluErfFwd()(x0)"},
    {"gelu_erf_bwd", "nn", "n", "kGeluErfBwd(x0, x1)", "GeluErfBwd()(x0, x1)"},
    {"bias_fwd", "nc", "n", "x0 + x1", "__fadd_rn(x0, x1)"},
    {"bias_bwd", "n", "c", "x0", nullptr},
    {"dropout", "n", "n", "uniform01(w) >= a0 ? x0 * (A(1) / (A(1) - a0)) : A(0)",
     "uniform01(w) >= a0 ? __fmul_rn(x0, 1.0f / (1.0f - a0)) : 0.0f"},
    {"layernorm_fwd", "ncc", "ns",
     "const auto s = row_statistics(row.cols, x0, a0);\n"
     "  layernorm_row<w0>(s, row.cols, x0, x1, x2, y0);\n"
     "  if (y1) store<w1>(y1, 0, s.mean), store<w1>(y1, 1, s.rstd);",
     "const auto s = row_statistics(row.cols, x0, a0);\n"
     "  layernorm_row<w0>(s, row.cols, x0, x1, x2, y0);\n"
     "  if (y1 && threadIdx.x == 0) store<w1>(y1, 0, s.mean), store<w1>(y1, 1, s.rstd);"},
    {"layernorm_bwd", "ncsn", "ncc",
     "const RowStatistics<A> s{x2[0], x2[1]};\n"
     "  layernorm_bwd_row<w0>(s, row.cols, x0, x1, x3, static_cast<const T*>(nullptr), y0);\n"
     "  add_parameter_sums(s, row.cols, x0, x3, y1, y2);",
     nullptr},
};

bool ChainRule::whole_rows() const { return code[std::string(code).size() - 1] == ';'; }

const ChainRule* chain_rule(const std::string& entry, ChainTarget target) {
  for (const ChainRule& rule : kRules)
    if (entry == rule.entry) return target == ChainTarget::Cpu || rule.gpu_code ? &rule : nullptr;
  return nullptr;
}

namespace {

std::string write_name(Write w) { return w == Write::Set ? "Write::Set" : "Write::Add"; }
std::string cpp_name(DType t) {
  return t == DType::F64 ? "double" : t == DType::F32 ? "float" : t == DType::BF16 ? "bf16" : "fp16";
}
template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream all;
  (all << ... << parts);
  return all.str();
}

// Writes a chain as parts, each a function of a row: either a loop over its elements with all calls up to the
// next call over whole rows, or such a call. A value that a call of the same loop has computed is not loaded.
class Writer {
 public:
  Writer(DType T, ChainTarget target) : rounds_(size_of(T) == 2), gpu_(target == ChainTarget::Gpu) {}
  std::string parts;
  std::string row_calls;  // calls of the parts, in order

  void element_call(int i, const ChainCall& call) {
    std::string parameters, values;
    for (size_t k = 0; k < call.inputs.size(); ++k) {
      parameters += text(k ? ", " : "", "A x", k);
      values += (k ? ", " : "") + value(call.inputs[k]);
    }
    if (std::string(call.rule->entry) == "dropout") {
      parameters += ", uint32_t w";
      values += gpu_ ? text(", row.random_word(", i, ", c)") : text(", w", i, "[c - at]");
      if (!gpu_)
        words_ +=
            text("    uint32_t w", i, "[kChunk];\n    row.random_words(", i, ", at, end - at, w", i, ");\n");
    }
    functions_ += text("  const auto ", call.rule->entry, i, " = [a0 = A(row.chain.number[", i, "])](",
                       parameters, ") -> A { return ", code_of(call), "; };\n");
    loop_ += text("      const A r", i, " = ", call.rule->entry, i, "(", values, ");\n");
    const int y = call.outputs[0];
    const Write write = call.arguments.outputs[0].w;
    if (call.rule->outputs[0] == 'c') {
      functions_ += text("  A* const sum", i, " = row.sum<A>(", call.first_sum, ");\n");
      loop_ += text("      sum", i, "[c] += r", i, ";\n");
      return;
    }
    if (call.stored)
      pointer(y), loop_ += text("      store<", write_name(write), ">(b", y, ", c, r", i, ");\n");
    values_[y] = write == Write::Add ? text("load(b", y, ", c)")
                 : rounds_           ? text("A(T(r", i, "))")
                                     : text("r", i);
  }

  void whole_rows_call(int i, const ChainCall& call) {
    end_loop();
    std::string body = text("  const A a0(row.chain.number[", i, "]);\n");
    int sum = call.first_sum;
    const auto pointer = [&](const char* x, size_t k, char role, int b, bool summed) {
      body += text("  ", role == 'n' || (!summed && role == 'c') ? "T" : "A", "* const ", x, k, " = row.",
                   summed        ? "sum<A>"
                   : role == 's' ? "statistics<A>"
                                 : "at<T>",
                   "(", summed ? sum++ : b, ");\n");
    };
    for (size_t k = 0; k < call.inputs.size(); ++k)
      pointer("x", k, call.rule->inputs[k], call.inputs[k], false);
    for (size_t k = 0; k < call.outputs.size(); ++k) {
      const char role = call.rule->outputs[k];
      pointer("y", k, role, call.outputs[k], role == 'c');
      body += text("  [[maybe_unused]] constexpr Write w", k, " = ", write_name(call.arguments.outputs[k].w),
                   ";\n");
    }
    part("static", call.rule->entry, body + "  " + code_of(call) + "\n");
  }

  void end_loop() {
    if (loop_.empty()) return;
    const std::string before = pointers_ + functions_,
                      c_loop = gpu_ ? "  for (int64_t c = threadIdx.x; c < row.cols; c += blockDim.x) {\n" +
                                          loop_ + "  }\n"
                                    : "  for (int64_t at = 0; at < row.cols; at += kChunk) {\n"
                                      "    const int64_t end = std::min(row.cols, at + kChunk);\n" +
                                          words_ +
                                          "#pragma omp simd\n    for (int64_t c = at; c < end; ++c) {\n" +
                                          loop_ + "    }\n  }\n";
    part(gpu_ ? "static" : "[[gnu::flatten, gnu::noinline]] static", "loop", before + c_loop);
    words_ = functions_ = loop_ = pointers_ = "", values_.clear(), loaded_.clear();
  }

 private:
  const char* code_of(const ChainCall& call) const { return gpu_ ? call.rule->gpu_code : call.rule->code; }
  void pointer(int b) {
    if (loaded_.insert(b).second) pointers_ += text("  T* const b", b, " = row.at<T>(", b, ");\n");
  }
  std::string value(int b) {
    const auto [there, missing] = values_.try_emplace(b, text("v", b));
    if (missing) pointer(b), loop_ += text("      const A v", b, " = load(b", b, ", c);\n");
    return there->second;
  }
  void part(const std::string& kind, const std::string& name, const std::string& body) {
    parts += text(kind, gpu_ ? " __device__ void " : " void ", name, "_part", ++parts_,
                  "(const ChainRow& row) {\n", body, "}\n\n");
    row_calls += text("    ", name, "_part", parts_, "(row);\n");
  }

  const bool rounds_, gpu_;  // rounds_: storing a value rounds it
  int parts_ = 0;
  std::string pointers_, functions_, words_, loop_;  // of the open loop
  std::map<int, std::string> values_;                // by buffer: the variable with its element
  std::set<int> loaded_;
};

}  // namespace

std::string chain_code(const std::vector<ChainCall>& calls, DType T, ChainTarget target) {
  const bool gpu = target == ChainTarget::Gpu;
  Writer writer(T, target);
  bool rows = false;
  std::string names, write_sums;
  int sums = 0;
  for (size_t i = 0; i < calls.size(); ++i) {
    const ChainCall& call = calls[i];
    const std::string entry = call.rule->entry, roles = std::string(call.rule->inputs) + call.rule->outputs;
    names += (i ? " + " : "") + entry;
    // The CPU draws all of dropout's random bits for a sample at once; a GPU draws them per element.
    rows = rows || roles.find_first_not_of('n') != roles.npos || (entry == "dropout" && !gpu);
    call.rule->whole_rows() ? writer.whole_rows_call(int(i), call) : writer.element_call(int(i), call);
    for (size_t k = 0; k < call.outputs.size(); ++k) {
      if (call.rule->outputs[k] != 'c') continue;
      const Out& out = call.arguments.outputs[k];
      if (out.wanted())
        write_sums += text("  write_column_sum<", write_name(out.w), ", ", cpp_name(out.t), ", A>(ctx, s, ",
                           sums, ", chain.p[", call.outputs[k], "]);\n");
      ++sums;
    }
  }
  writer.end_loop();
  const char* const space = gpu ? "GRADUS_GPU" : "cpu";
  std::string code = text("// ", names, "\n#include \"kernels/", gpu ? "cuda" : "cpu",
                          "/chain.h\"\n\nusing namespace gradus;\n", "using namespace gradus::", space,
                          ";\nusing T = ", cpp_name(T), ";\nusing A = acc_t<T>;\n\n", writer.parts);
  if (gpu)
    code +=
        "static __global__ void chain_kernel(RowShape s, int64_t piece, KernelChain chain, const "
        "StepScalars* "
        "scalars) {\n"
        "  const ChainRow row(s, piece, chain, scalars);\n" +
        writer.row_calls + "}\n\n";
  code += "extern \"C\" void gradus_chain(const Ctx& ctx, RowShape s, const KernelChain& chain) {\n";
  if (gpu)
    code += text("  launch_chain(ctx, s, ", rows ? "s.cols" : "kChainPiece", ", chain, chain_kernel);\n");
  else
    code += text("  run_", rows ? "rows<A>" : "elements", "(ctx, s, chain, ", rows ? text(sums, ", ") : "",
                 "[](const ChainRow& row) {\n", writer.row_calls, "  });\n", write_sums);
  return code + "}\n";
}

}  // namespace gradus
