#include <sstream>

#include "src/memory/cuda.h"

namespace gradus {

constexpr int64_t kLeastFree = int64_t(64) << 20;  // the workspace and a few segments

Runs runs_on(const std::string& built_for, int sm) {
  std::istringstream list(built_for);
  Runs runs = Runs::No;
  std::string each;
  for (bool first = true; list >> each; first = false) {
    size_t digits = 0;
    const int built = std::stoi(each, &digits);
    const bool with_letter = digits < each.size();
    if (with_letter ? built == sm : built / 10 == sm / 10 && built <= sm) return Runs::AsBuilt;
    if (first && !with_letter && built <= sm) runs = Runs::Translated;
  }
  return runs;
}

struct Version {
  int cuda;
};
static std::ostream& operator<<(std::ostream& out, Version v) {
  return out << v.cuda / 1000 << "." << v.cuda % 1000 / 10;
}

std::string cuda_problem(const CudaFacts& f) {
  std::ostringstream text;
  text << "device: cuda cannot be used: ";
  const Runs runs = runs_on(f.built_for, f.sm);
  if (f.built_for.empty())
    text << "this build has no cuda; build with `make CUDA=1` where the CUDA toolkit is";
  else if (f.driver == 0)
    text << "there is no NVIDIA driver; install one, until `nvidia-smi` lists the GPU";
  else if (f.driver / 1000 < f.runtime / 1000)
    text << "the NVIDIA driver is made for CUDA " << Version{f.driver} << ", this program for CUDA "
         << Version{f.runtime} << "; install a newer driver, or build with CUDA " << f.driver / 1000;
  else if (f.gpu.empty())
    text << "there is no GPU (" << (f.error.empty() ? "CUDA counts none" : f.error)
         << "); `nvidia-smi` must list one, and CUDA_VISIBLE_DEVICES must not hide it";
  else if (runs == Runs::No)
    text << "the " << f.gpu << " is an sm_" << f.sm << " and this build is for SM=\"" << f.built_for
         << "\"; build with `make CUDA=1 SM=" << f.sm << "`";
  else if (runs == Runs::Translated && f.driver < f.runtime)
    text << "the kernels must be translated for the " << f.gpu << ", and the driver (CUDA "
         << Version{f.driver} << ") is too old to translate those of CUDA " << Version{f.runtime}
         << "; build with `make CUDA=1 SM=" << f.sm << "`, or install a newer driver";
  else if (!f.error.empty())
    text << "the " << f.gpu << " does not start (CUDA says: " << f.error
         << "); `nvidia-smi` shows whether another program holds it";
  else if (f.free < kLeastFree)
    text << "the " << f.gpu << " has " << (f.free >> 20) << " MiB of its " << (f.all >> 20)
         << " MiB free; `nvidia-smi` shows which programs hold the rest";
  else
    return "";
  text << ". --device=emu runs the same kernels on the CPU";
  return text.str();
}

}  // namespace gradus
