#!/bin/sh
# The suites that are also built and run under ASan + UBSan (preset asan) and under TSan (preset tsan).
# usage: sanitize.sh list PRESET | build PRESET | run PRESET SUITE
# Each line of a table has a SUITE and a filter. If the filter begins with -, the short form leaves out these tests, otherwise it runs only
# these. DS_LONG=1 runs all tests. The tests that the short form leaves out repeat the others over more points.
set -eu
cd "$(dirname "$0")/.."
asan="
core -Config.Misspelt*
io
comm -*/post*:*/swaps*:*/caller2:*/*4:*/*1:*crowded:*2staged:*/shm3:All/CommLogs.*
exec
kernels
checkpoint -Checkpoint.StatesAreWrittenInWholeGranules
data
text
monitor
fuzz
engine
conformance -CpuAttention.EveryFormWorksOverBlocksOfKeys:Optimized.BitsDoNotDependOnTheTeam:CpuAllocation.*:AdamwCodes.LearnAsF32StatesDo:Optimized.RoundsOnceInF32AndBf16
training -SameBits.OverShardGroupsAndNodes:SameBits.WithReductionAtTheBoundary:Boundary.WorksWithEveryOptimizer:Rates.*:LossAverage.RandomStepsHaveTheSameMeanForEveryDivision:Freeze.StatesAreKeptByParameter*:SameBits.OfSgdOverStagesTiersAndOrders:All/SameBitsOver.EachTransportIfRanksAreNotAPowerOfTwo/shm:MeshTraining.EqualCopiesTrainAsOne:OneBit.SameBitsOver*:OneBit.HalfPrecisionHasTheSameBits*:All/Optimizers.SameBitsOverStagesTiersAndRanks/SGD*:All/Optimizers.SameBitsOverStagesTiersAndRanks/Lion*:All/Optimizers.SameBitsOverStagesTiersAndRanks/Adagrad*:All/Optimizers.SameBitsOverStagesTiersAndRanks/*_bf16*:All/Optimizers.SameBitsOverStagesTiersAndRanks/AdamW_u8:All/Optimizers.SameBitsOverStagesTiersAndRanks/Muon_standard:SameBits.OverStagesTiersOverlapThreadsAndOrders:SameBits.InProcessesAsInThreads:SameBits.OnAnyNumberOfRanksIfReproducible:Seeds/*:Ledger.*:Quantization.LossesStayCloseToUnquantizedTraining:Quantized*.BitsDoNotDependOn*:SparseGradients.HaveTheSameBitsAsWhole*:Layouts.AnyGrouping*:Layouts.LocalParts*:Delegate.HasTheBitsOfANativeEngineInShardGroups*:DelegateOrder.ARankThatDeparts*:Freeze.ThawingHasEqualBitsOnEveryLayout:Freeze.FreezingForAWhileHasEqualBitsOnEveryLayout:Join.UnevenRanks*:Models/*:QuantizedGradients.Feedback*:Freeze.ACheckpointKeeps*:Join.QuantizationErrors*:SameBits.OnNumbersOfRanksThatAreNotPowersOfTwo:LossScale.HasTheSameBits*:GradientTypes.HaveTheSameBits*:ZeroOne.SameBits*:OneBitLamb.SameBits*:GradientCompression.SameBits*:All/Optimizers.SameBitsOnAnyNumberOfRanks/*:RefusedLoadOfRanks.*:ZeroOne.ResumesExactly*:OneBitLamb.ResumesExactly*:All/SameBitsOver.ATransportWithOneBitOptimizers/*:All/Optimizers.SameBitsOverStagesTiersAndRanks/Muon:All/Optimizers.SameBitsOverStagesTiersAndRanks/Lamb:SameBits.WithRecomputedActivations:ZeroOne.WorksInHalfPrecision*:OptimizerSemantics.FollowRecordedTrajectories:ParamGroups.HaveTheSameBitsOnEveryLayout:OneBit.GroupsAndFrozenParametersHave*:Skipped.ARunContinues*:All/Optimizers.ResumesExactlyOnAnotherLayout/SGD*:All/Optimizers.ResumesExactlyOnAnotherLayout/Lion*:All/Optimizers.ResumesExactlyOnAnotherLayout/Adagrad*:All/Optimizers.ResumesExactlyOnAnotherLayout/Lamb:All/Optimizers.ResumesExactlyOnAnotherLayout/AdamW:All/Optimizers.ResumesExactlyOnAnotherLayout/AdamW_bf16_masters:All/Optimizers.ResumesExactlyOnAnotherLayout/AdamW_u8:All/Optimizers.ResumesExactlyOnAnotherLayout/Muon_standard
api"
tsan="
core -Json.*Texts*:Json.*Documents*:Config.*:DsConfigs.*:ProgramText.*
io
comm -*/post*:*/swaps*:*/caller2:*/*4:*/*1:*crowded:*2staged:*/shm3:All/CommLogs.*:TCP.*:*/tcp*
exec
training SameBits.OfSgdOverStagesTiersAndOrders:SameBits.OnADeviceWithSeparateMemory:Skipped.ANanWrittenAsGradient*
mutate --quick"

action=$1
preset=$2
case $preset in
  asan) suites=$asan ;;
  tsan) suites=$tsan ;;
  *) echo "sanitize.sh: preset $preset: not asan or tsan" >&2; exit 2 ;;
esac

# Prints the suites whose folder has tests.
names() {
  echo "$suites" | while read -r suite _; do
    [ "$suite" != mutate ] || echo mutate
    [ -z "$suite" ] || [ -z "$(find "tests/$suite" -name '*_test.c*' 2> /dev/null | head -n 1)" ] || echo "$suite"
  done
}

# Prints the program of a suite. TSan's short form of training has a program of its own.
program_of() {
  if [ "$preset $1" = "tsan training" ] && [ -z "${DS_LONG:-}" ]; then echo test_training_short; else echo "test_$1"; fi
}

# Prints ninja's targets for the programs of suites.
targets() {
  for suite in "$@"; do
    case $suite in
      api) echo tests/api/all ;;
      mutate) echo mutate ;;
      *) program_of "$suite" ;;
    esac
  done
}

# build JOBS TARGET...: builds targets. Two tests of a preset may run at once; they build one after the other.
build() {
  jobs=$1
  shift
  mkdir -p "build/$preset"
  exec 9> "build/$preset/lock"
  flock 9
  [ -f "build/$preset/build.ninja" ] || cmake --preset "$preset"
  ninja -C "build/$preset" -j "$jobs" "$@"
  exec 9>&-
}

# skip_after MINUTES: skips this test in CI, which ends after 90 minutes, if more than MINUTES of them have passed. ./run test
# says when it began. On 2 cores the sanitizers take as long as everything before them.
skip_after() {
  [ -z "${DS_LONG:-}" ] && [ "${CI:-}" = true ] && [ -n "${DS_STARTED:-}" ] || return 0
  passed=$((($(date +%s) - DS_STARTED) / 60))
  [ "$passed" -gt "$1" ] || return 0
  echo "skipped: this machine is too slow for CI's 90 minutes: $passed have passed, more than $1; run ./run test $preset"
  exit 77
}

case $action in
  list) names ;;
  build)
    skip_after 38
    # shellcheck disable=SC2046
    build $((($(nproc) + 1) / 2)) $(targets $(names)) ;;
  run)
    suite=$3
    case $suite in training) limit=60 ;; *) limit=72 ;; esac
    skip_after $limit
    # If it was too late for the build of the preset, its suites are skipped, too.
    [ -f "build/$preset/build.ninja" ] || skip_after 38
    log=build/$preset/$suite.log
    mkdir -p "build/$preset"
    # shellcheck disable=SC2046
    build "$(nproc)" $(targets "$suite") > "$log" || { cat "$log"; exit 1; }
    skip_after $limit  # it may have waited for the build of the preset
    export OMP_NUM_THREADS=1
    # gcc 12 puts vectors of 64 bytes at wrong addresses in frames that it keeps to find uses after return (its bug 110027).
    case $suite in core|io|comm|data|text|monitor|fuzz) after_return=1 ;; *) after_return=0 ;; esac
    export ASAN_OPTIONS="strict_string_checks=1:detect_stack_use_after_return=$after_return"
    export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
    export TSAN_OPTIONS="suppressions=$PWD/tools/tsan.supp:halt_on_error=1"
    # TSan of gcc 12 needs a fixed address layout on kernels with much mmap randomness.
    fixed=
    [ "$preset" != tsan ] || ! setarch -R true 2> /dev/null || fixed="setarch -R"
    if [ "$suite" = api ]; then  # programs in C
      root=$PWD
      cd "build/$preset/tests/api"
      for source in "$root"/tests/api/*_test.c; do
        program=api_$(basename "$source" .c)
        echo "$program"
        # The children of this program call exit() in frames whose objects the parent's threads still use, so leaks are not checked.
        leaks=1
        [ "$program" != api_fork_test ] || leaks=0
        # A request for more memory than any machine has is refused, as the C library does.
        ASAN_OPTIONS="$ASAN_OPTIONS:detect_leaks=$leaks:allocator_may_return_null=1" "$root/build/$preset/bin/$program" "$PWD" "$root/tests/data/models"
      done
      exit
    fi
    filter=$(echo "$suites" | sed -n "s/^$suite //p")
    [ -z "${DS_LONG:-}" ] || filter=
    # This program drops waits, and each drop must be found. --quick drops every tenth wait.
    # shellcheck disable=SC2086
    [ "$suite" != mutate ] || exec $fixed "build/$preset/bin/mutate" --separate $filter
    # The command has no --gtest_brief, because skips are read from the output.
    exec $fixed "build/$preset/bin/$(program_of "$suite")" --gtest_print_time=1 --gtest_filter="${filter:-*}" ;;
  *) echo "sanitize.sh: $action: not list, build or run" >&2; exit 2 ;;
esac
