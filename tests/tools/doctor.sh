#!/bin/sh
# doctor.sh ARCH LESSONS TESTS: prints what this machine has, and what will be skipped. CXX names the compiler.
. tests/tools/setup.sh
arch=$1 lessons=$2 tests=$3

# The widest vector units that the compiler will use.
simd() {
  macros=$($CXX $arch -dM -E -x c++ /dev/null 2>/dev/null | awk '{ print $2 }')
  for pair in __AMX_BF16__:AMX-bf16 __AVX512BF16__:AVX-512-bf16 __AVX512F__:AVX-512 __AVX2__:AVX2 \
              __FMA__:FMA __F16C__:F16C __ARM_FEATURE_SVE:SVE __ARM_NEON:NEON; do
    if echo "$macros" | grep -qx "${pair%:*}"; then printf '%s ' "${pair#*:}"; fi
  done
}
found() { if is_there "$1"; then echo "found"; else echo "not found"; fi; }
onednn_version() {
  printf '#include <oneapi/dnnl/dnnl_version.h>\nDNNL_VERSION_MAJOR.DNNL_VERSION_MINOR\n' |
    $CXX -x c++ -E -P - 2>/dev/null | tail -1 | tr -d ' '
}
nvcc=$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")
cuda_version() {
  release=$("$nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\).*/\1/p')
  if [ -n "$release" ]; then echo "found $release, $nvcc"; else echo "not found, so 'make CUDA=1' is not possible"; fi
}
cudnn() {
  if [ -z "$CUDNN_FRONTEND" ]; then
    echo "not requested (CUDNN_FRONTEND=FOLDER): attention on a GPU uses our own kernel, which is slower in 16 bits"
  elif [ -f "$CUDNN_FRONTEND/include/cudnn_frontend.h" ]; then
    echo "front end found, $CUDNN_FRONTEND"
  else
    echo "front end not found, $CUDNN_FRONTEND"
  fi
}
gpu() {
  nvidia-smi --query-gpu=name,compute_cap,memory.total,driver_version --format=csv,noheader 2>/dev/null ||
    echo "not found; --device=emu runs the GPU's kernels on the CPU"
}
consequence() {
  is_there compiler || printf 'nothing can be built; '
  is_there stb || printf 'nothing with pictures can be built; '
  is_there json || printf 'nothing with reports can be built; '
  is_there utf8proc || printf 'nothing can be linked; '
  is_there onednn || printf 'no comparison with oneDNN; '
  is_there mpi || printf 'ranks cannot be processes; '
  is_there gtest || printf 'tests cannot be built; '
  is_there clang-format || printf "'make check' cannot compare the formatting; "
  is_there cmark-gfm || printf "'make slides' cannot convert the pages, 'make check' cannot test it; "
}

compiler=$($CXX --version 2>/dev/null | head -1)
is_there compiler || compiler="$compiler $CXX: missing, or without C++20 and OpenMP"
echo "compiler      $compiler"
echo "cores         $(nproc)"
echo "memory        $(awk '/^MemTotal/ { printf "%.1f GiB", $2 / 1048576 }' /proc/meminfo 2>/dev/null)"
echo "SIMD          $(simd)"
echo "oneDNN        $(found onednn) $(is_there onednn && onednn_version)"
echo "MPI           $(found mpi) $(is_there mpi && mpiexec --version 2>/dev/null | grep -m1 -oE '[0-9]+\.[0-9.]+')"
echo "CUDA          $(cuda_version)"
echo "cuDNN         $(cudnn)"
echo "GPU           $(gpu | head -1)"
echo "GoogleTest    $(found gtest)"
echo "stb           $(found stb)"
echo "nlohmann-json $(found json)"
echo "utf8proc      $(found utf8proc)"
echo "clang-format  $(found clang-format)"
echo "cmark-gfm     $(found cmark-gfm)"
echo "sources       $lessons lessons, $tests test programs"
lacks=$(consequence)
if [ -n "$lacks" ]; then lacks="${lacks%; } ('make setup' installs what it can)"; fi
echo "skipped       ${lacks:-nothing}"
