#!/bin/sh
# bundle.sh OUT: writes a folder for a machine with a GPU and without a network, where `make gpu-check` then needs only
# nvcc, g++ and make. It has the sources in their present state and, in packages/, the sources of missing packages.
set -eu
out=$1
fail() { echo "gpu-bundle: $*" >&2 && exit 1; }
[ -n "$out" ] || fail "name a folder: make gpu-bundle OUT=FOLDER"
[ ! -e "$out" ] || fail "'$out' already exists; name a new folder, or remove it"
git rev-parse --git-dir >/dev/null 2>&1 || fail "the sources are the files that git tracks, but this is not a clone"
gtest=/usr/src/googletest/googletest
[ -f $gtest/src/gtest-all.cc ] || fail "the sources of GoogleTest are not in $gtest; the package googletest has them"

mkdir -p "$out"
git ls-files -z | tar --null --files-from=- -cf - | tar -xf - -C "$out"
{ git rev-parse HEAD && git status --porcelain --untracked-files=no; } >"$out/packages.commit"

packages=$out/packages
mkdir -p "$packages/include" "$packages/gtest"
cp -r $gtest/src "$packages/gtest/"
# found NAME: the path at which the compiler finds the header <NAME>.
found() { printf '#include <%s>\n' "$1" | ${CXX:-g++} -x c++ -M - | tr ' ' '\n' | grep -m1 "/$1\$"; }
cp -r $gtest/include/gtest "$(dirname "$(found nlohmann/json.hpp)")" "$packages/include/"
mkdir "$packages/include/stb"
cp "$(found stb/stb_image.h)" "$(found stb/stb_image_write.h)" "$packages/include/stb/"

# The headers of cuDNN and of its front end (cuDNN's library comes with PyTorch).
if [ -n "${CUDNN_FRONTEND:-}" ]; then
  cudnn=${CUDNN_HOME:-${CUDA_HOME:-/usr/local/cuda}}
  [ -f "$CUDNN_FRONTEND/include/cudnn_frontend.h" ] || fail "there is no include/cudnn_frontend.h in '$CUDNN_FRONTEND'"
  [ -f "$cudnn/include/cudnn.h" ] || fail "there is no include/cudnn.h in '$cudnn'; CUDNN_HOME= names a different folder"
  mkdir "$packages/cudnn"
  cp -rL "$CUDNN_FRONTEND/include" "$packages/cudnn/"
  cp -L "$cudnn"/include/cudnn*.h "$packages/cudnn/include/"
fi

# For utf8proc, the categories of all characters, from the installed library.
cp "$(found utf8proc.h)" "$packages/include/"
${CXX:-g++} -x c++ tests/gpu/utf8proc_table.cpp -o "$packages/table" -lutf8proc
"$packages/table" >"$packages/utf8proc.c"
rm "$packages/table"

kib=$(du -sk "$out" | cut -f1)
[ "$kib" -le $((60 * 1024)) ] || fail "'$out' has $((kib / 1024)) MiB; the limit is 60"
echo "gpu-bundle: '$out', $((kib / 1024)) MiB${CUDNN_FRONTEND:+, with cuDNN}; there: make gpu-check"
