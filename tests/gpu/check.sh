#!/bin/sh
# check.sh [STAGE...]: runs all checks on this machine's GPU, or those of some stages. `make gpu-check` calls it. A
# stage is a list of jobs. The result of a job is stored at once, in build/gpu/STAGE/JOB.log and .result, and a finished
# job is not repeated, so an interrupted check continues where it stopped. A failed job does not stop the others.
#
#   LIMIT=540   ends after this many seconds (a queue's limit); the next call repeats the job that was cut off
#   AGAIN=1     first deletes the results of the named stages
#   PYTHON=…    the interpreter that has PyTorch
#   SM=90a      builds for this compute capability; by default for that of this machine's GPU
#
# At the end it writes build/gpu/report.json and report.md. The exit code is 0 if no job failed. A job that this machine
# cannot run (no GPU, no PyTorch, no permission) is skipped, with its reason, and does not count as a failure.
set -u
all='doctor build kernels tests memcheck racecheck initcheck synccheck lessons bench pytorch counters'
results=build/gpu programs=build/cuda
began=$(date +%s)
export ONEDNN="${ONEDNN:-0}" MPI="${MPI:-0}" CUDA=1 PATH="$PATH:${CUDA_HOME:-/usr/local/cuda}/bin"
python=${PYTHON:-python3}
unset MAKEFLAGS MAKELEVEL # those of the calling make, which would allow one core

# The packages of a bundle (bundle.sh) replace installed ones.
if [ -d packages ]; then
  export CPLUS_INCLUDE_PATH="$PWD/packages/include${CPLUS_INCLUDE_PATH:+:$CPLUS_INCLUDE_PATH}"
  export LIBRARY_PATH="$PWD/build/packages${LIBRARY_PATH:+:$LIBRARY_PATH}"
  [ ! -d packages/cudnn ] || export CUDNN_FRONTEND="${CUDNN_FRONTEND:-$PWD/packages/cudnn}"
fi
# PyTorch brings its own cuDNN.
wheel=$("$python" -c 'import nvidia.cudnn as c; print(c.__path__[0])' 2>/dev/null) &&
  export CUDNN_HOME="${CUDNN_HOME:-$wheel}"

# gpu PROPERTY: of the GPU that programs use, the first that they see; "" without one. nvidia-smi writes its errors to
# the standard output.
export CUDA_DEVICE_ORDER=PCI_BUS_ID
visible=${CUDA_VISIBLE_DEVICES-0}
first=${visible%%,*}
gpu() {
  said=$(nvidia-smi --id="${first:-none}" --query-gpu="$1" --format=csv,noheader 2>/dev/null) && echo "$said" && return
  case $first in MIG*) nvidia-smi --query-gpu="$1" --format=csv,noheader 2>/dev/null | head -1 ;; esac
}
if [ -n "${CUDA_VISIBLE_DEVICES:-}" ]; then
  gpus=$(echo "$visible" | tr ',' '\n' | grep -c .)
else
  gpus=$(nvidia-smi --list-gpus 2>/dev/null | grep -c '^GPU')
fi
name=$(gpu name) sm=$(gpu compute_cap | tr -d .)
case $sm in 90) sm=90a ;; *[!0-9]*) sm= ;; esac
sm=${SM:-$sm}

# What a reader of the figures must know about this machine, in sentences.
machine() {
  [ "$gpus" -le 1 ] || echo "There are $gpus GPUs; all jobs but the ranks use one of them (CUDA_VISIBLE_DEVICES=K chooses it)."
  case $(gpu mig.mode.current) in Enabled*)
    echo "The GPU is divided (MIG): the figures are for one part, such as $(
    )$(nvidia-smi --list-gpus | sed -n 's/^ *\(MIG [^ ]*\).*/\1/p' | head -1)." ;;
  esac
  free=$(($(df -Pk . | awk 'END { print $4 }') / 1024))
  [ $free -ge 3000 ] || echo "The disk has $free MiB left; a build takes 3,000."
  [ -d packages ] || [ -e .git ] || echo "This is neither a clone nor a bundle (make gpu-bundle)."
}

# lacks NEED...: the first need of a job (gpu, several, torch, compiler, a program) that is not met; "" if all are.
lacks() {
  for need; do
    case $need in
      gpu) [ -n "$name" ] || echo "no GPU: nvidia-smi lists none" ;;
      several) [ "$gpus" -gt 1 ] || echo "each rank needs its own GPU, but there is only one" ;;
      torch) "$python" -c 'import torch; assert torch.cuda.is_available()' >/dev/null 2>&1 ||
        echo "no PyTorch that sees a GPU: $python; PYTHON= names a different Python" ;;
      compiler) (. tests/tools/setup.sh && is_there compiler) ||
        echo "${CXX:-g++} is missing, or does not have C++20 and OpenMP (g++ 11 or later); CXX= names a different compiler" ;;
      nvcc) command -v nvcc >/dev/null || echo "there is no nvcc; CUDA_HOME= names the folder of a CUDA toolkit" ;;
      *) command -v "$need" >/dev/null || echo "$need is missing" ;;
    esac
  done | head -1
}

# job STAGE/NAME SECONDS "NEEDS" COMMAND…
job() {
  job=$1 seconds=$2 needs=$3 file=$results/$1
  shift 3
  case $(cat "$file.result" 2>/dev/null) in passed* | failed*) return ;; esac
  left=$((${LIMIT:-1000000} + began - 20 - $(date +%s))) # the report takes a few seconds
  if [ $left -lt 60 ] && [ $left -lt "$seconds" ]; then
    later=$((later + 1))
    return
  fi
  mkdir -p "${file%/*}"
  printf '%s: ' "$job"
  hindered=$(lacks $needs)
  if [ -n "$hindered" ]; then
    result="skipped 0 $hindered"
  else
    start=$(date +%s)
    timeout -k 10 $((seconds < left ? seconds : left)) "$@" >"$file.log" 2>&1 &
    child=$!
    wait $child
    status=$? took=$(($(date +%s) - start)) child=
    case $status in
      0) result="passed $took" ;;
      124 | 137)
        if [ $status = 137 ] && [ $took -lt "$seconds" ] && [ $took -lt $left ]; then
          result="failed $took it was killed; is there too little memory?"
        elif [ $left -lt "$seconds" ]; then
          echo "stopped by LIMIT; the next run continues"
          later=$((later + 1))
          return
        else
          result="failed $took it was ended after $seconds s"
        fi
        ;;
      *) result="failed $took exit code $status" ;;
    esac
    if grep -qs ERR_NVGPUCTRPERM "$file.log"; then
      result="skipped $took no permission to read the GPU's counters; the machine's administrator can give it"
    fi
  fi
  echo "$result"
  { echo "$result" >"$file.result.tmp" && mv "$file.result.tmp" "$file.result"; } 2>/dev/null ||
    echo "$job: the result could not be stored; is the disk full?" >&2
}

# tests_of STAGE PROGRAM TESTS_IN_A_PART FILTER "NEEDS" [COMMAND…]: runs a test program in parts, under COMMAND
tests_of() {
  stage=$1 program=$2 filter=$4 needs=$5
  count=$("$program" --gtest_list_tests --gtest_filter="$filter" 2>/dev/null | grep -c '^  ')
  parts=$(((count + $3 - 1) / $3))
  shift 5
  [ $parts -gt 0 ] || # no test: the program is missing, or did not find the GPU
    job "$stage/${program##*/}" 10 "gpu $needs $program" sh -c "echo 'FAIL: it has no test $filter'; exit 1"
  for part in $(seq $parts); do
    job "$stage/${program##*/}_${part}_of_$parts" 500 "gpu $needs $program" env \
      GTEST_TOTAL_SHARDS=$parts GTEST_SHARD_INDEX=$((part - 1)) "$@" "$program" --gtest_filter="$filter"
  done
}

run_stage() {
  rm -f $(grep -ls '^skipped' "$results/$1"/*.result) # they may be possible now, e.g. after a build
  case $1 in
    doctor) job doctor/doctor 60 "" env CUDA= make doctor ;;
    build)
      if [ -d packages ]; then
        job build/packages 300 compiler env CUDA= make packages
      else
        job build/setup 300 "" sh tests/tools/setup.sh compiler stb json utf8proc gtest
      fi
      job build/programs 7200 "compiler nvcc" make -k SM="$sm" all
      ;;
    kernels) tests_of kernels $programs/tests/kernels_test 200 '*/cuda*' "" ;;
    tests)
      for program in $programs/tests/*_test; do
        case $program in */kernels_test | */gpu_test) ;; *) tests_of tests "$program" 100 '*' "" ;; esac
      done
      ;;
    # Small sizes: without the slowest tests.
    memcheck | racecheck | initcheck | synccheck)
      tests_of "$1" $programs/tests/kernels_test 20 '*/cuda-*OfAPartOfTheElements*:*OfEveryTypeSizeAndList*' \
        compute-sanitizer compute-sanitizer --tool="$1" --error-exitcode=1
      ;;
    lessons)
      for program in $programs/lessons/[0-9][0-9]_*; do
        lesson=${program##*/}
        if grep -qs parallel/comm/processes.h "lessons/$lesson/main.cpp"; then # its ranks are processes
          job "lessons/$lesson" 500 "gpu several mpicxx" make SM="$sm" "mpi-${lesson%%_*}" COMM=nccl RANKS="$gpus" ARGS=--device=cuda
        else
          job "lessons/$lesson" 500 "gpu $program" "$program" --device=cuda --json="$results/lessons/$lesson.json"
        fi
      done
      ;;
    bench)
      for dtype in fp32 bf16; do
        job bench/kernels_$dtype 300 "gpu $programs/bench/kernels" $programs/bench/kernels --device=cuda --dtype=$dtype
      done
      job bench/attention 300 "gpu $programs/bench/attention" $programs/bench/attention --device=cuda --dtype=bf16
      job bench/fusion 300 "gpu $programs/bench/fusion" $programs/bench/fusion --device=cuda
      ;;
    pytorch)
      export PYTHON="$python"
      job pytorch/steps 500 "gpu torch $programs/bench/step" sh tests/bench/beside_pytorch.sh cuda 2
      job pytorch/attention 500 "gpu torch $programs/bench/attention" sh tests/bench/beside_attention.sh cuda 2
      ;;
    counters)
      job counters/step 500 "gpu ncu $programs/bench/step" \
        env LC_ALL=C ncu --csv --print-units=base --print-kernel-base=function --profile-from-start=off \
        --metrics="gpu__time_duration.sum,dram__throughput.avg.pct_of_peak_sustained_elapsed,$(
        )sm__throughput.avg.pct_of_peak_sustained_elapsed" \
        $programs/bench/step --device=cuda --recipe=mixed --attention=flash --batch=4 --seq=1024 --steps=1
      ;;
  esac
}

stages=${*:-$all} later=0 child=
trap '[ -z "$child" ] || kill $child; exit 143' INT TERM HUP # timeout hands it on
for stage in $stages; do
  case " $all " in *" $stage "*) ;; *) echo "gpu-check: there is no stage $stage; the stages are: $all" >&2 && exit 2 ;; esac
done
[ "${LIMIT:-100}" -ge 100 ] || { echo "gpu-check: LIMIT=$LIMIT is too short for any job; the minimum is 100" >&2 && exit 2; }
# All results belong to one state of the sources and to one GPU.
commit=$(head -1 packages.commit 2>/dev/null || git rev-parse HEAD)
state="$commit $({ cat packages.commit || { git diff HEAD && git status --porcelain; }; } 2>/dev/null | cksum)"
before=$(cat $results/gpu 2>/dev/null)
if [ -e $results/state ]; then
  if [ "$(cat $results/state)" != "$state" ] || { [ -n "$before" ] && [ -n "$name" ] && [ "$before" != "$name" ]; }; then
    echo "The results in $results belong to different sources or to a different GPU: all stages start again."
    rm -rf $results
  fi
fi
mkdir -p $results && echo "$state" >$results/state && machine | tee $results/machine.txt
[ -z "$name" ] || echo "$name" >$results/gpu
for stage in $stages; do
  [ -z "${AGAIN:-}" ] || rm -rf "${results:?}/$stage"
  run_stage "$stage"
done
[ $later -eq 0 ] || echo "LIMIT is reached, $later jobs are left: the same command continues with them"

report=build/gpu_report
[ $report -nt tests/gpu/report.h ] || ${CXX:-g++} -std=c++20 -I. tests/gpu/report.cpp -o $report || {
  echo "gpu-check: no report, because that needs C++20 and nlohmann-json; the results are in $results/*/*.result" >&2
  exit 1
}
$report $results "${name:-no GPU}" "$commit" >$results/report.log || exit 1
echo "$results/report.md and $results/report.json contain the results"
! grep -qs '^failed' $results/*/*.result
