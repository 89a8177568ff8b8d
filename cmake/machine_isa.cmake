# DS_MACHINE_ISA: x86-64-v4 (AVX-512) or x86-64-v3 (AVX2), the best one that this machine can run, or empty if it can run neither.
include(CheckCXXSourceRuns)
check_cxx_source_runs("int main() {
  return !(__builtin_cpu_supports(\"avx512f\") && __builtin_cpu_supports(\"avx512bw\") &&
           __builtin_cpu_supports(\"avx512dq\") && __builtin_cpu_supports(\"avx512vl\") &&
           __builtin_cpu_supports(\"avx512cd\")); }" DS_MACHINE_HAS_AVX512)
check_cxx_source_runs("int main() { return !(__builtin_cpu_supports(\"avx2\") && __builtin_cpu_supports(\"fma\") &&
  __builtin_cpu_supports(\"bmi2\")); }" DS_MACHINE_HAS_AVX2)
set(DS_MACHINE_ISA)
if(DS_MACHINE_HAS_AVX512)
  set(DS_MACHINE_ISA x86-64-v4)
elseif(DS_MACHINE_HAS_AVX2)
  set(DS_MACHINE_ISA x86-64-v3)
endif()
