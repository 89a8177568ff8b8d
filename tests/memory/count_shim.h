#pragma once
/* What count_shim.c counts, and how a program under it asks. All in bytes, of this process. */

#ifdef __cplusplus
extern "C" {
#endif

struct shim_counts {
  long heap, heap_peak;     /* malloc and its kin */
  long mapped, mapped_peak; /* private anonymous mappings, in whole pages */
  long shared, shared_peak; /* shared mappings, in whole pages */
  long file, file_peak;     /* open files sized by fallocate or ftruncate, memory files apart */
  long total_peak;          /* most of heap + mapped at one time */
  long largest_mapping;     /* since the last reset: the largest mmap, the largest malloc, */
  long largest_chunk;
  long file_calls; /* and calls that sized a file */
  long stacks;     /* touched now by threads other than the first */
};

struct shim_mapping {
  void* address;
  long asked; /* as given to mmap */
  long bytes; /* in whole pages */
  int shared;
};

void shim_read(struct shim_counts* out);
/* Peaks start anew from what is live. */
void shim_reset_peaks(void);
/* Live mappings, at most `capacity`; returns how many. */
int shim_mappings(struct shim_mapping* out, int capacity);

#ifdef __cplusplus
}
#endif
