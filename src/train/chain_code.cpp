#include "src/train/chain_code.h"

#include <map>
#include <set>
#include <sstream>

namespace gradus {

static constexpr ChainRule kRules[] = {
    {"add", "nn", "n", "x0 + x1"},
    {"multiply", "nn", "n", "x0 * x1"},
    {"scale", "n", "n", "a0 * x0"},
    {"gelu_fwd", "n", "n", "kGelu(x0)"},
    {"gelu_bwd", "nn", "n", "kGeluBwd(x0, x1)"},
    {"gelu_erf_fwd", "n", "n", "kGeluErf(x0)"},
    {"gelu_erf_bwd", "nn", "n", "kGeluErfBwd(x0, x1)"},
    {"bias_fwd", "nc", "n", "x0 + x1"},
    {"bias_bwd", "n", "c", "x0"},
    {"dropout", "n", "n", "uniform01(w) >= a0 ? x0 * (A(1) / (A(1) - a0)) : A(0)"},
    {"layernorm_fwd", "ncc", "ns",
     "const auto s = row_statistics(row.cols, x0, a0);"
     "layernorm_row<w0>(s, row.cols, x0, x1, x2, y0);"
     "if (y1) store<w1>(y1, 0, s.mean), store<w1>(y1, 1, s.rstd);"},
    {"layernorm_bwd", "ncsn", "ncc",
     "const RowStatistics<A> s{x2[0], x2[1]};"
     "layernorm_bwd_row<w0>(s, row.cols, x0, x1, x3, static_cast<const T*>(nullptr), y0);"
     "add_parameter_sums(s, row.cols, x0, x3, y1, y2);"},
};

bool ChainRule::whole_rows() const { return code[std::string(code).size() - 1] == ';'; }

const ChainRule* chain_rule(const std::string& entry) {
  for (const ChainRule& rule : kRules)
    if (entry == rule.entry) return &rule;
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

// Writes a chain as parts, each a function of a row: a loop over its elements with as many calls as follow
// each other, or a call over whole rows. A number that a call of the same loop has made is not loaded.
class Writer {
 public:
  explicit Writer(DType T) : rounds_(size_of(T) == 2) {}
  std::string parts;
  std::string row_calls;  // of the parts, in turn

  void element_call(int i, const ChainCall& call) {
    std::string parameters, values;
    for (size_t k = 0; k < call.inputs.size(); ++k) {
      parameters += text(k ? ", " : "", "A x", k);
      values += (k ? ", " : "") + value(call.inputs[k]);
    }
    if (std::string(call.rule->entry) == "dropout") {
      words_ +=
          text("    uint32_t w", i, "[kChunk];\n    row.random_words(", i, ", at, end - at, w", i, ");\n");
      parameters += ", uint32_t w", values += text(", w", i, "[c - at]");
    }
    functions_ += text("  const auto ", call.rule->entry, i, " = [a0 = A(row.chain.number[", i, "])](",
                       parameters, ") -> A { return ", call.rule->code, "; };\n");
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
    part("static", call.rule->entry, body + "  " + call.rule->code + "\n");
  }

  void end_loop() {
    if (loop_.empty()) return;
    part("[[gnu::flatten, gnu::noinline]] static", "loop",
         pointers_ + functions_ +
             "  for (int64_t at = 0; at < row.cols; at += kChunk) {\n"
             "    const int64_t end = std::min(row.cols, at + kChunk);\n" +
             words_ + "#pragma omp simd\n    for (int64_t c = at; c < end; ++c) {\n" + loop_ +
             "    }\n  }\n");
    words_ = functions_ = loop_ = pointers_ = "", values_.clear(), loaded_.clear();
  }

 private:
  void pointer(int b) {
    if (loaded_.insert(b).second) pointers_ += text("  T* const b", b, " = row.at<T>(", b, ");\n");
  }
  std::string value(int b) {
    const auto [there, missing] = values_.try_emplace(b, text("v", b));
    if (missing) pointer(b), loop_ += text("      const A v", b, " = load(b", b, ", c);\n");
    return there->second;
  }
  void part(const std::string& kind, const std::string& name, const std::string& body) {
    parts += text(kind, " void ", name, "_part", ++parts_, "(const ChainRow& row) {\n", body, "}\n\n");
    row_calls += text("      ", name, "_part", parts_, "(row);\n");
  }

  const bool rounds_;  // what is stored
  int parts_ = 0;
  std::string pointers_, functions_, words_, loop_;  // of the open loop
  std::map<int, std::string> values_;                // the number of a buffer's element, if it is in hand
  std::set<int> loaded_;
};

}  // namespace

std::string chain_code(const std::vector<ChainCall>& calls, DType T) {
  Writer writer(T);
  bool rows = false;
  std::string names, sums_begin, sums_end;
  for (size_t i = 0; i < calls.size(); ++i) {
    const ChainCall& call = calls[i];
    const std::string entry = call.rule->entry, roles = std::string(call.rule->inputs) + call.rule->outputs;
    names += (i ? " + " : "") + entry;
    rows = rows || roles.find_first_not_of('n') != roles.npos || entry == "dropout";
    call.rule->whole_rows() ? writer.whole_rows_call(int(i), call) : writer.element_call(int(i), call);
    for (size_t k = 0, sum = size_t(call.first_sum); k < call.outputs.size(); ++k) {
      if (call.rule->outputs[k] != 'c') continue;
      const Out& out = call.arguments.outputs[k];
      sums_begin += text("    std::fill_n(column_sum<A>(ctx, s, ", sum, ", p), s.cols, A(0));\n");
      if (out.wanted())
        sums_end += text("  write_column_sum<", write_name(out.w), ", ", cpp_name(out.t), ", A>(ctx, s, ",
                         sum, ", chain.p[", call.outputs[k], "]);\n");
      ++sum;
    }
  }
  writer.end_loop();
  const std::string whole =
      rows ? "  for_partitions(s, [&](int64_t p, int64_t begin, int64_t end) {\n" + sums_begin +
                 "    for (int64_t r = begin; r < end; ++r) {\n"
                 "      const ChainRow row{ctx, chain, s, p, r, r * s.cols, s.cols};\n" +
                 writer.row_calls + "    }\n  });\n" + sums_end
           : "  parallel_for(s.cols, kGrain, [&](int64_t begin, int64_t end) {\n"
             "      const ChainRow row{ctx, chain, s, 0, 0, begin, end - begin};\n" +
                 writer.row_calls + "  });\n";
  return "// " + names +
         "\n#include \"kernels/cpu/chain.h\"\n\nusing namespace gradus;\nusing namespace gradus::cpu;\nusing "
         "T = " +
         cpp_name(T) + ";\nusing A = acc_t<T>;\n\n" + writer.parts +
         "extern \"C\" void gradus_chain(const Ctx& ctx, RowShape s, const Chain& chain) {\n" + whole + "}\n";
}

}  // namespace gradus
