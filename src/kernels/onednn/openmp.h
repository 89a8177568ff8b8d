#pragma once
// Declares two functions of libgomp, the OpenMP run-time of Debian's oneDNN. libds does not use
// OpenMP itself, and including <omp.h> would not be safe: the header belongs to the compiler, and
// clang's comes with another run-time.

extern "C" {
int omp_get_max_threads() noexcept;
void omp_set_num_threads(int threads) noexcept;
}
