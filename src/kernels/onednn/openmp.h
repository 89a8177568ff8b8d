#pragma once

// Two functions of libgomp, the OpenMP run-time of Debian's oneDNN. libds has no OpenMP of its own,
// and the header <omp.h> belongs to a compiler: clang's comes with another run-time.
extern "C" {
int omp_get_max_threads() noexcept;
void omp_set_num_threads(int threads) noexcept;
}
