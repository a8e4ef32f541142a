#!/bin/sh
# bundle.sh OUT: the folder to take to a machine with a GPU and no network, where `make gpu-check` needs nvcc, g++ and
# make alone. Holds the sources as they are here, and under packages/ the sources of what that machine may lack.
set -eu
out=$1
fail() { echo "gpu-bundle: $*" >&2 && exit 1; }
[ -n "$out" ] || fail "name a folder: make gpu-bundle OUT=FOLDER"
[ ! -e "$out" ] || fail "'$out' is there already; name a new folder, or remove it"
git rev-parse --git-dir >/dev/null 2>&1 || fail "the sources are those that git keeps, and this is no clone"
gtest=/usr/src/googletest/googletest
[ -f $gtest/src/gtest-all.cc ] || fail "the sources of GoogleTest are not in $gtest; the package googletest has them"

mkdir -p "$out"
git ls-files -z | tar --null --files-from=- -cf - | tar -xf - -C "$out"
{ git rev-parse HEAD && git status --porcelain --untracked-files=no; } >"$out/packages.commit"

packages=$out/packages
mkdir -p "$packages/include" "$packages/gtest"
cp -r $gtest/src "$packages/gtest/"
# A header that is included by <NAME> is where the compiler finds it.
found() { printf '#include <%s>\n' "$1" | ${CXX:-g++} -x c++ -M - | tr ' ' '\n' | grep -m1 "/$1\$"; }
cp -r $gtest/include/gtest "$(dirname "$(found nlohmann/json.hpp)")" "$packages/include/"
mkdir "$packages/include/stb"
cp "$(found stb/stb_image.h)" "$(found stb/stb_image_write.h)" "$packages/include/stb/"

# Of cuDNN the headers, and its front end, which is headers alone (the library comes with PyTorch).
if [ -n "${CUDNN_FRONTEND:-}" ]; then
  cudnn=${CUDNN_HOME:-${CUDA_HOME:-/usr/local/cuda}}
  [ -f "$CUDNN_FRONTEND/include/cudnn_frontend.h" ] || fail "there is no include/cudnn_frontend.h in '$CUDNN_FRONTEND'"
  [ -f "$cudnn/include/cudnn.h" ] || fail "there is no include/cudnn.h in '$cudnn'; CUDNN_HOME= names another"
  mkdir "$packages/cudnn"
  cp -rL "$CUDNN_FRONTEND/include" "$packages/cudnn/"
  cp -L "$cudnn"/include/cudnn*.h "$packages/cudnn/include/"
fi

# Of utf8proc the categories of all characters, asked of the library that is here.
cp "$(found utf8proc.h)" "$packages/include/"
${CXX:-g++} -x c++ tests/gpu/utf8proc_table.cpp -o "$packages/table" -lutf8proc
"$packages/table" >"$packages/utf8proc.c"
rm "$packages/table"

kib=$(du -sk "$out" | cut -f1)
[ "$kib" -le $((60 * 1024)) ] || fail "'$out' has $((kib / 1024)) MiB, and may have 60"
echo "gpu-bundle: '$out', $((kib / 1024)) MiB${CUDNN_FRONTEND:+, with cuDNN}; there: make gpu-check"
