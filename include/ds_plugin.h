/* ds_plugin.h: what a transport plugin of libds provides, so that ranks may run on many hosts.
 *
 * A plugin is a shared object libds_NAME.so beside libds.so (or in a folder of DS_PLUGIN_PATH) that exports
 * ds_plugin_transport(). It moves bytes between ranks and nothing else: collectives, the order of sums,
 * time-outs and messages are libds's own, so a transport cannot change results. Until 1.0 a plugin works with
 * the build of libds that it was made with (`build`).
 *
 * Threads: libds calls a link from one thread at a time, except `abort`, which any thread may call. No
 * function may end the process or throw. Status: 0, or non-zero with a line of text from `message`.
 */
#ifndef DS_PLUGIN_H
#define DS_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes with every change of this file. */
#define DS_PLUGIN_BUILD "ds-0.1-transport-3"

/* What one rank is sent, or sends. */
typedef struct ds_plugin_part {
  void* data;
  size_t size; /* bytes, at most 1 GiB; 0: nothing moves */
} ds_plugin_part;

/* One rank's place in a group. */
typedef struct ds_plugin_link ds_plugin_link;

typedef struct ds_plugin_transport_table {
  size_t struct_size;
  const char* name;  /* NAME of libds_NAME.so */
  const char* build; /* DS_PLUGIN_BUILD */

  /* Joins as rank `rank` of `size`; collective. `address`: what follows :// in the comm url, "" without; what
   * it means is the transport's own. It waits for the others at most join_ms where it can tell. After an
   * error *out is NULL and message(NULL) says why; after a success message(link) is "" or a line of warning.
   */
  int32_t (*open)(const char* address, int32_t rank, int32_t size, int64_t join_ms, ds_plugin_link** out);
  /* Begins to send sends[r] to and to receive receives[r] from every other rank r; entry `rank` is not looked
   * at, nor are entries of size 0. A start is polled to its end before the next. Parts from one rank to
   * another arrive in the order of starts; ranks that exchange nothing with each other need not start
   * together. */
  int32_t (*start)(ds_plugin_link* link, const ds_plugin_part* sends, const ds_plugin_part* receives);
  /* Moves what can be moved without waiting. *out_done: all of it has. arrived[r]: rank r is not
   * waited for: its part has come, and it has taken its own where the transport knows.
   * signs[r]: the last sign of life from rank r, 0 before any. */
  int32_t (*poll)(ds_plugin_link* link, int32_t* out_done, uint8_t* arrived, uint64_t* signs);
  /* A sign of life to every other rank, without waiting: 8 bytes, no two in a row alike. One may be left out
   * for a rank that has not answered the one before it with a sign of its own. */
  void (*beat)(ds_plugin_link* link, uint64_t sign);
  /* Tells every other rank that the group has ended, and why; without waiting. */
  void (*abort)(ds_plugin_link* link, const char* reason);
  /* The rank that told this one that the group has ended (its reason is message()), -1: none. */
  int32_t (*aborted_by)(ds_plugin_link* link);
  /* Whether rank r has closed its link. */
  int32_t (*has_left)(ds_plugin_link* link, int32_t rank);
  /* About the last error of this thread's last call; valid until the next call. */
  const char* (*message)(ds_plugin_link* link);
  /* Leaves the group without waiting for anyone; the reason of an abort may take half a second to go. link
   * may be NULL. */
  void (*close)(ds_plugin_link* link);
} ds_plugin_transport_table;

/* The one symbol that libds looks up. */
typedef const ds_plugin_transport_table* (*ds_plugin_transport_fn)(void);

#ifdef __cplusplus
}
#endif

#endif
