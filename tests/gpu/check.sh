#!/bin/sh
# check.sh [STAGE...]: whether everything holds on this machine's GPU, by default in all stages. `make gpu-check`
# calls it. A stage is a list of jobs. What a job found is kept at once, in build/gpu/STAGE/JOB.log and .result, and
# is not run again, so that what was interrupted goes on where it was. A job that fails stops no other.
#
#   LIMIT=540   no job begins that may take longer than is left of so many seconds (a queue's limit); by default all
#   AGAIN=1     forgets the results of the stages that are named
#   PYTHON=…    the interpreter that has PyTorch
#
# Ends with build/gpu/report.json and report.md. The exit code is 0 if no job failed: what cannot be done on this
# machine (there is no GPU, no PyTorch, no permission) is not run, which is said, and is no failure.
set -u
all='doctor build kernels tests memcheck racecheck initcheck synccheck lessons bench pytorch counters'
stages=${*:-$all}
results=build/gpu programs=build/cuda
began=$(date +%s)
export ONEDNN=${ONEDNN:-0} MPI=${MPI:-0} CUDA=1
python=${PYTHON:-python3}
unset MAKEFLAGS MAKELEVEL  # of the make that calls this, which would lend one core

# What is carried along (bundle.sh) takes the place of packages.
if [ -d packages ]; then
  export CPLUS_INCLUDE_PATH="$PWD/packages/include${CPLUS_INCLUDE_PATH:+:$CPLUS_INCLUDE_PATH}"
  export LIBRARY_PATH="$PWD/build/packages${LIBRARY_PATH:+:$LIBRARY_PATH}"
fi

# Of the first GPU that the program may use. "" if there is none.
gpu() { nvidia-smi --id="${CUDA_VISIBLE_DEVICES:-0}" --query-gpu="$1" --format=csv,noheader 2>/dev/null | head -1; }
name=$(gpu name) sm=$(gpu compute_cap | tr -d .)

# What hinders a job that needs these: gpu, python, a program. "" if nothing does.
lacks() {
  for need; do
    case $need in
      gpu) [ -n "$name" ] || echo "no GPU: nvidia-smi names none" ;;
      torch) "$python" -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null ||
        echo "no PyTorch that sees a GPU: $python; PYTHON= names another" ;;
      *) command -v "$need" >/dev/null || [ -x "$need" ] || echo "$need is not there" ;;
    esac
  done | head -1
}

# job STAGE/NAME SECONDS "NEEDS" COMMAND…
job() {
  job=$1 seconds=$2 needs=$3 file=$results/$1
  shift 3
  case $(cat "$file.result" 2>/dev/null) in passed* | failed*) return ;; esac
  if [ -n "${LIMIT:-}" ] && [ $(($(date +%s) - began + seconds)) -gt "$LIMIT" ]; then
    later=$((later + 1))
    return
  fi
  mkdir -p "${file%/*}"
  hindered=$(lacks $needs)
  if [ -n "$hindered" ]; then
    result="skipped 0 $hindered"
  else
    start=$(date +%s)
    timeout -k 10 "$seconds" "$@" >"$file.log" 2>&1
    status=$? took=$(($(date +%s) - start))
    case $status in
      0) result="passed $took" ;;
      124 | 137) result="failed $took it was ended after $seconds s" ;;
      *) result="failed $took exit code $status" ;;
    esac
  fi
  echo "$job: $result"
  echo "$result" >"$file.result.tmp" && mv "$file.result.tmp" "$file.result" ||
    echo "$job: the result cannot be kept; is the disk full?" >&2
}

tests_of() { # STAGE SECONDS NEEDS FILTER SHARDS COMMAND…: kernels_test in parts
  stage=$1 seconds=$2 needs=$3 filter=$4 shards=$5
  shift 5
  for shard in $(seq 0 $((shards - 1))); do
    job "$stage/part_$((shard + 1))_of_$shards" "$seconds" "gpu $needs $programs/tests/kernels_test" env \
      GTEST_TOTAL_SHARDS="$shards" GTEST_SHARD_INDEX="$shard" \
      "$@" $programs/tests/kernels_test --gtest_filter="$filter"
  done
}
# Small sizes: those tests of kernels that a sanitizer ends within minutes.
sanitizer() {
  tests_of "$1" 500 compute-sanitizer '*/cuda' 4 compute-sanitizer --tool="$1" --error-exitcode=1
}

run_stage() {
  case $1 in
    doctor) job doctor/doctor 60 "" env CUDA= make doctor ;;
    build)
      [ ! -d packages ] || job build/packages 300 "" env CUDA= make packages
      job build/programs 3600 nvcc make SM="$sm" all
      ;;
    kernels) tests_of kernels 500 "" '*/cuda*' 1 ;;
    tests)
      for program in $programs/tests/*_test; do
        job "tests/${program##*/}" 500 "gpu $program" "$program"
      done
      ;;
    memcheck | racecheck | initcheck | synccheck) sanitizer "$1" ;;
    lessons)
      for program in $programs/lessons/[0-9][0-9]_*; do
        job "lessons/${program##*/}" 500 "gpu $program" \
          "$program" --device=cuda --json="$results/lessons/${program##*/}.json"
      done
      ;;
    bench)
      for bench in kernels attention fusion; do
        job "bench/$bench" 300 "gpu $programs/bench/$bench" "$programs/bench/$bench" --device=cuda
      done
      ;;
    pytorch) job pytorch/steps 500 "gpu torch $programs/bench/step" env PYTHON="$python" \
      sh tests/bench/beside_pytorch.sh cuda 2 ;;
    counters) job counters/kernels 500 "gpu ncu $programs/bench/kernels" \
      ncu --csv --set=speedOfLight $programs/bench/kernels --device=cuda ;;
    *) echo "gpu-check: there is no stage $1; the stages are: $all" >&2 && exit 2 ;;
  esac
}

later=0
mkdir -p $results || exit 1
for stage in $stages; do
  [ -z "${AGAIN:-}" ] || rm -rf "${results:?}/$stage"
  run_stage "$stage"
done
[ $later -eq 0 ] || echo "$later jobs are left, because LIMIT is over: the same command goes on with them"

[ -x $results/report ] || ${CXX:-g++} -std=c++20 -I. tests/gpu/report.cpp -o $results/report || exit 1
commit=$(head -1 packages.commit 2>/dev/null || git rev-parse HEAD)
$results/report $results "${name:-no GPU}" "$commit" >$results/report.log || exit 1
echo "$results/report.md and $results/report.json hold what was found"
! grep -qs '^failed' $results/*/*.result
