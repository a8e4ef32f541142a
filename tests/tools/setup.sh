#!/bin/sh
# setup.sh NEED...: installs the needs that are missing: compiler, stb, json, utf8proc, gtest, onednn, mpi, clang-format,
# cmark-gfm, zip. Root on Debian or Ubuntu: with apt-get. Other users: it tells them to run 'make setup', which has
# SUDO=sudo. On other systems: it prints what to install by hand. The exit code is 0 if nothing that is required is
# missing. CXX names the compiler. doctor.sh sources this file for its functions.

CXX=${CXX:-g++}

# Does the preprocessor accept these lines?
preprocesses() { printf '%s\n' "$@" | $CXX -std=c++20 -fopenmp -x c++ -E - >/dev/null 2>&1; }
header() { preprocesses "#if !__has_include(<$1>)" '#error missing' '#endif'; }

is_there() {
  case $1 in
    compiler) preprocesses '#if __cplusplus < 202002L || !defined _OPENMP || !__has_include(<omp.h>)' \
                           '#error too old' '#endif' ;;
    stb) header stb/stb_image_write.h ;;
    json) header nlohmann/json.hpp ;;
    utf8proc) header utf8proc.h ;;
    gtest) header gtest/gtest.h ;;
    onednn) header oneapi/dnnl/dnnl.hpp ;;
    mpi) command -v mpicxx >/dev/null && command -v mpiexec >/dev/null ;;
    clang-format | cmark-gfm | zip) command -v "$1" >/dev/null ;;
  esac
}

package_of() {
  case $1 in
    compiler) case $CXX in *clang*) echo clang libomp-dev ;; *) echo g++ ;; esac ;;
    stb) echo libstb-dev ;;
    json) echo nlohmann-json3-dev ;;
    utf8proc) echo libutf8proc-dev ;;
    gtest) echo libgtest-dev ;;
    onednn) echo libdnnl-dev ;;
    mpi) echo mpich libmpich-dev ;;
    clang-format | cmark-gfm | zip) echo "$1" ;;
  esac
}

# What a need is, and what it is needed for.
about() {
  case $1 in
    compiler) echo "a C++20 compiler with OpenMP (g++ 11 or later); nothing can be built without it" ;;
    stb) echo "stb_image_write.h; the lessons write their pictures with it" ;;
    json) echo "nlohmann/json.hpp; reports and the headers of weight files are JSON" ;;
    utf8proc) echo "utf8proc; tokenizers divide text into words by Unicode's classes of characters" ;;
    gtest) echo "GoogleTest; the tests need it" ;;
    onednn) echo "oneDNN; without it our kernels are not compared with a library" ;;
    mpi) echo "MPI, with mpicxx and mpiexec; without it ranks are only simulated, in one process" ;;
    clang-format) echo "clang-format; 'make check' compares the formatting with it" ;;
    cmark-gfm) echo "cmark-gfm; 'make slides' converts the pages with it, and 'make check' tests this" ;;
    zip) echo "zip; 'make gradescope-zip' packs with it" ;;
  esac
}
can_do_without() { [ "$1" = onednn ] || [ "$1" = mpi ]; }

missing_of() { for need; do is_there "$need" || echo "$need"; done; }
packages_of() { for need; do package_of "$need"; done | tr '\n' ' '; }

is_root() { [ "$(id -u)" = 0 ]; }
as_root() { if is_root; then "$@"; else $SUDO "$@"; fi; }
apt_install() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" \
    </dev/null >>build/setup.log 2>&1
}

# Tries with the present package lists, then with updated ones, then one package at a time, so that a package
# that this release does not have does not prevent the others from being installed.
install() {
  mkdir -p build
  echo "setup: installing $* with apt-get (log: build/setup.log)"
  apt_install "$@" && return
  as_root apt-get update >>build/setup.log 2>&1
  apt_install "$@" && return
  for package; do apt_install "$package" || echo "setup: apt-get could not install $package"; done
}

main() {
  missing=$(missing_of "$@")
  [ -n "$missing" ] || return 0
  if command -v apt-get >/dev/null && { is_root || command -v ${SUDO:-no-sudo} >/dev/null; }; then
    install $(packages_of $missing)
    missing=$(missing_of $missing)
  fi
  status=0
  for need in $missing; do
    echo "setup: missing: $(about "$need")" >&2
    can_do_without "$need" || status=1
  done
  if [ -n "$missing" ] && ! is_root && [ -z "$SUDO" ] && command -v apt-get >/dev/null; then
    echo "setup: please run 'make setup', which installs it with sudo" >&2
  elif [ -n "$missing" ]; then
    echo "setup: please install the missing packages by hand; on Debian or Ubuntu:" \
      "sudo apt-get install -y $(packages_of $missing)" >&2
  fi
  return $status
}

case $0 in *setup.sh) main "$@" ;; esac
