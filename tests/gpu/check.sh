#!/bin/sh
# check.sh [STAGE...]: whether everything holds on this machine's GPU, by default in all stages. `make gpu-check`
# calls it. A stage is a list of jobs. What a job found is kept at once, in build/gpu/STAGE/JOB.log and .result, and
# is not run again, so that what was interrupted goes on where it was. A job that fails stops no other.
#
#   LIMIT=540   ends after so many seconds (a queue's limit): no job begins that may take longer than what is left
#   AGAIN=1     forgets the results of the stages that are named
#   PYTHON=…    the interpreter that has PyTorch
#   SM=90a      builds for this compute capability; by default for that of the GPU that is here
#
# Ends with build/gpu/report.json and report.md. The exit code is 0 if no job failed: what cannot be done on this
# machine (there is no GPU, no PyTorch, no permission) is not run, which is said, and is no failure.
set -u
all='doctor build kernels tests memcheck racecheck initcheck synccheck lessons bench pytorch counters'
results=build/gpu programs=build/cuda
began=$(date +%s)
export ONEDNN="${ONEDNN:-0}" MPI="${MPI:-0}" CUDA=1 PATH="$PATH:${CUDA_HOME:-/usr/local/cuda}/bin"
python=${PYTHON:-python3}
unset MAKEFLAGS MAKELEVEL # of the make that calls this, which would lend one core

# What is carried along (bundle.sh) takes the place of packages.
if [ -d packages ]; then
  export CPLUS_INCLUDE_PATH="$PWD/packages/include${CPLUS_INCLUDE_PATH:+:$CPLUS_INCLUDE_PATH}"
  export LIBRARY_PATH="$PWD/build/packages${LIBRARY_PATH:+:$LIBRARY_PATH}"
  [ ! -d packages/cudnn ] || export CUDNN_FRONTEND="${CUDNN_FRONTEND:-$PWD/packages/cudnn}"
fi
# PyTorch brings a cuDNN of its own.
wheel=$("$python" -c 'import nvidia.cudnn as c; print(c.__path__[0])' 2>/dev/null) &&
  export CUDNN_HOME="${CUDNN_HOME:-$wheel}"

# Of the first GPU that programs may use; "" if there is none, or nobody knows.
gpu() {
  nvidia-smi --id="${CUDA_VISIBLE_DEVICES:-0}" --query-gpu="$1" --format=csv,noheader 2>/dev/null ||
    nvidia-smi --query-gpu="$1" --format=csv,noheader 2>/dev/null
}
gpus=$(nvidia-smi --list-gpus 2>/dev/null | grep -c '^GPU')
name=$(gpu name | head -1) sm=$(gpu compute_cap | head -1 | tr -d .)
[ "$sm" != 90 ] || sm=90a
sm=${SM:-$sm}

# What a reader of the figures must know of this machine, a sentence each.
machine() {
  [ "$gpus" -le 1 ] || echo "There are $gpus GPUs; one is used (CUDA_VISIBLE_DEVICES=K names another)."
  case $(gpu mig.mode.current | head -1) in Enabled*)
    echo "The GPU is divided (MIG): figures are those of a part, $(nvidia-smi --list-gpus | sed -n 's/^ *\(MIG [^ ]*\).*/\1/p' | head -1)." ;;
  esac
  free=$(($(df -Pk . | awk 'END { print $4 }') / 1024))
  [ $free -ge 3000 ] || echo "The disk has $free MiB left; a build takes 3,000."
  [ -d packages ] || [ -d .git ] || echo "This is neither a clone nor a bundle (make gpu-bundle)."
}

# What hinders a job that needs these: gpu, torch, compiler, a program. "" if nothing does.
lacks() {
  for need; do
    case $need in
      gpu) [ -n "$name" ] || echo "no GPU: nvidia-smi names none" ;;
      several) [ "$gpus" -gt 1 ] || echo "each rank needs a GPU of its own, and there is one" ;;
      torch) "$python" -c 'import torch; assert torch.cuda.is_available()' >/dev/null 2>&1 ||
        echo "no PyTorch that sees a GPU: $python; PYTHON= names another" ;;
      compiler) (. tests/tools/setup.sh && is_there compiler) ||
        echo "${CXX:-g++} is not there, or too old: C++20 and OpenMP (g++ 11 or later); CXX= names another" ;;
      nvcc) command -v nvcc >/dev/null || echo "there is no nvcc; CUDA_HOME= names the folder of a CUDA toolkit" ;;
      *) command -v "$need" >/dev/null || echo "$need is not there" ;;
    esac
  done | head -1
}

# job STAGE/NAME SECONDS "NEEDS" COMMAND…
job() {
  job=$1 seconds=$2 needs=$3 file=$results/$1 result=
  shift 3
  case $(cat "$file.result" 2>/dev/null) in passed* | failed*) return ;; esac
  left=$((${LIMIT:-1000000} + began - $(date +%s)))
  if [ $left -lt "$seconds" ]; then
    case $job in build/*) seconds=$left ;; esac # make goes on where it was
    [ $left -ge 60 ] && [ "$seconds" = $left ] || { later=$((later + 1)) && return; }
  fi
  mkdir -p "${file%/*}"
  printf '%s: ' "$job"
  hindered=$(lacks $needs)
  if [ -n "$hindered" ]; then
    result="skipped 0 $hindered"
  else
    start=$(date +%s)
    timeout -k 10 "$seconds" "$@" >"$file.log" 2>&1 &
    child=$!
    wait $child
    status=$? took=$(($(date +%s) - start))
    case $status in
      0) result="passed $took" ;;
      124 | 137) result="failed $took it was ended after $seconds s" ;;
      *) result="failed $took exit code $status" ;;
    esac
    if grep -qs ERR_NVGPUCTRPERM "$file.log"; then
      result="skipped $took no permission to read the GPU's counters; its administrator gives it"
    elif [ "$seconds" = $left ] && [ $status = 124 ]; then
      later=$((later + 1))
      echo "goes on the next time"
      return
    fi
  fi
  echo "$result"
  { echo "$result" >"$file.result.tmp" && mv "$file.result.tmp" "$file.result"; } 2>/dev/null ||
    echo "$job: the result could not be kept; is the disk full?" >&2
}

# tests_of STAGE PROGRAM TESTS_IN_A_PART FILTER "NEEDS" [COMMAND…]: a test program in parts, by that command
tests_of() {
  stage=$1 program=$2 filter=$4 needs=$5
  count=$("$program" --gtest_list_tests --gtest_filter="$filter" 2>/dev/null | grep -c '^  ')
  parts=$(((count + $3 - 1) / $3))
  shift 5
  [ $parts -gt 0 ] || # of tests there are none: the program is missing, or has not found the GPU
    job "$stage/${program##*/}" 10 "gpu $needs $program" sh -c "echo 'FAIL: it has no test $filter'; exit 1"
  for part in $(seq $parts); do
    job "$stage/${program##*/}_${part}_of_$parts" 500 "gpu $needs $program" env \
      GTEST_TOTAL_SHARDS=$parts GTEST_SHARD_INDEX=$((part - 1)) "$@" "$program" --gtest_filter="$filter"
  done
}

run_stage() {
  case $1 in
    doctor) job doctor/doctor 60 "" env CUDA= make doctor ;;
    build)
      [ ! -d packages ] || job build/packages 300 compiler env CUDA= make packages
      job build/programs 7200 "compiler nvcc" make -k SM="$sm" all
      ;;
    kernels) tests_of kernels $programs/tests/kernels_test 200 '*/cuda*' "" ;;
    tests)
      for program in $programs/tests/*_test; do
        case $program in */kernels_test | */gpu_test) ;; *) tests_of tests "$program" 100 '*' "" ;; esac
      done
      ;;
    # At small sizes: without the tests that take longest.
    memcheck | racecheck | initcheck | synccheck)
      tests_of "$1" $programs/tests/kernels_test 20 '*/cuda-*OfAPartOfTheElements*:*OfEveryTypeSizeAndList*' \
        compute-sanitizer compute-sanitizer --tool="$1" --error-exitcode=1
      ;;
    lessons)
      for program in $programs/lessons/[0-9][0-9]_*; do
        lesson=${program##*/}
        if grep -qs parallel/comm/processes.h "lessons/$lesson/main.cpp"; then # its ranks are processes
          job "lessons/$lesson" 500 "gpu several mpicxx" make "mpi-${lesson%%_*}" COMM=nccl RANKS="$gpus" ARGS=--device=cuda
        else
          job "lessons/$lesson" 500 "gpu $program" "$program" --device=cuda --json="$results/lessons/$lesson.json"
        fi
      done
      ;;
    bench)
      for dtype in fp32 bf16; do
        job bench/kernels_$dtype 300 "gpu $programs/bench/kernels" $programs/bench/kernels --device=cuda --dtype=$dtype
      done
      for bench in attention fusion; do
        job bench/$bench 300 "gpu $programs/bench/$bench" $programs/bench/$bench --device=cuda
      done
      ;;
    pytorch)
      export PYTHON="$python"
      job pytorch/steps 500 "gpu torch $programs/bench/step" sh tests/bench/beside_pytorch.sh cuda 2
      job pytorch/attention 500 "gpu torch $programs/bench/attention" sh tests/bench/beside_attention.sh cuda 2
      ;;
    counters)
      job counters/step 500 "gpu ncu $programs/bench/step" \
        ncu --csv --print-units=base --launch-count=4000 --metrics="gpu__time_duration.sum,$(
        )dram__throughput.avg.pct_of_peak_sustained_elapsed,sm__throughput.avg.pct_of_peak_sustained_elapsed" \
        $programs/bench/step --device=cuda --recipe=mixed --attention=flash --batch=4 --seq=1024 --steps=1
      ;;
  esac
}

stages=${*:-$all} later=0 child=
trap '[ -z "$child" ] || kill $child; exit 143' INT TERM # timeout hands it on
for stage in $stages; do
  case " $all " in *" $stage "*) ;; *) echo "gpu-check: there is no stage $stage; the stages are: $all" >&2 && exit 2 ;; esac
done
# Results are of one state of the sources, and of one GPU.
commit=$(head -1 packages.commit 2>/dev/null || git rev-parse HEAD)
state="$commit $(git diff HEAD 2>/dev/null | cksum) $name"
if [ -e $results/state ] && [ "$(cat $results/state)" != "$state" ]; then
  echo "The results in $results are of other sources, or of another GPU: all stages begin anew."
  rm -rf $results
fi
mkdir -p $results && echo "$state" >$results/state && machine | tee $results/machine.txt
for stage in $stages; do
  [ -z "${AGAIN:-}" ] || rm -rf "${results:?}/$stage"
  run_stage "$stage"
done
[ $later -eq 0 ] || echo "LIMIT is over, $later jobs are left: the same command goes on with them"

report=build/gpu_report
[ $report -nt tests/gpu/report.h ] || ${CXX:-g++} -std=c++20 -I. tests/gpu/report.cpp -o $report || exit 1
$report $results "${name:-no GPU}" "$commit" >$results/report.log || exit 1
echo "$results/report.md and $results/report.json hold what was found"
! grep -qs '^failed' $results/*/*.result
