#pragma once
/* The counts kept by count_shim.c, and the functions with which a program running under it reads
 * them. All counts are of this process, and the amounts are in bytes. */

#ifdef __cplusplus
extern "C" {
#endif

struct shim_counts {
  /* Heap memory: malloc and related functions. */
  long heap, heap_peak;
  /* Private anonymous mappings, in whole pages. */
  long mapped, mapped_peak;
  /* Shared mappings, in whole pages. */
  long shared, shared_peak;
  /* Open files sized by fallocate or ftruncate, except for memory files. */
  long file, file_peak;
  /* The largest heap + mapped at one time. */
  long total_peak;
  /* The largest of these mappings and the largest heap chunk since the last reset. A chunk that
   * realloc has grown counts with its growth only. */
  long largest_mapping;
  long largest_chunk;
  /* Calls that sized a file since the last reset. */
  long file_calls;
  /* Stack pages now touched by threads other than the first. */
  long stacks;
};

struct shim_mapping {
  void* address;
  /* The size that was passed to mmap, or became accessible by mprotect. */
  long asked;
  /* The size in whole pages. */
  long bytes;
  int shared;
};

void shim_read(struct shim_counts* out);
/* Sets each peak to the current amount, and largest_mapping, largest_chunk and file_calls to
 * zero. */
void shim_reset_peaks(void);
/* Writes at most `capacity` of the live mappings to `out` and returns how many it has written. */
int shim_mappings(struct shim_mapping* out, int capacity);

#ifdef __cplusplus
}
#endif
