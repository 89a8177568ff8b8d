/* ds_plugin.h: what a plugin of libds provides: a transport, so that ranks may run on many hosts,
 * or a device.
 *
 * A plugin is a shared object libds_NAME.so beside libds.so (or in a folder of DS_PLUGIN_PATH) that
 * exports ds_plugin_transport() or ds_plugin_devices(). Until 1.0 a plugin works with the build of
 * libds that it was made with (`build`). No function of a plugin may end the process or throw.
 */
#ifndef DS_PLUGIN_H
#define DS_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes with every change of this file. */
#define DS_PLUGIN_BUILD "ds-0.1-plugin-7"

/* A transport moves bytes between ranks and nothing else: collectives, the order of sums, time-outs
 * and messages are libds's own, so a transport cannot change results. libds calls a link from one
 * thread at a time, except `abort`, which any thread may call. Status: 0, or non-zero with a line
 * of text from `message`.
 */

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

  /* Joins as rank `rank` of `size`; collective. `address`: what follows :// in the comm url, ""
   * without; what it means is the transport's own. It waits for the others at most join_ms where it
   * can tell. After an error *out is NULL and message(NULL) says why; after a success message(link)
   * is "" or a line of warning.
   */
  int32_t (*open)(const char* address, int32_t rank, int32_t size, int64_t join_ms,
                  ds_plugin_link** out);
  /* Begins to send sends[r] to and to receive receives[r] from every other rank r; entry `rank` is
   * not looked at, nor are entries of size 0. A start is polled to its end before the next. Parts
   * from one rank to another arrive in the order of starts; ranks that exchange nothing with each
   * other need not start together. */
  int32_t (*start)(ds_plugin_link* link, const ds_plugin_part* sends,
                   const ds_plugin_part* receives);
  /* Moves what can be moved without waiting. *out_done: all of it has. arrived[r]: rank r is not
   * waited for: its part has come, and it has taken its own where the transport knows.
   * signs[r]: the last sign of life from rank r, 0 before any. */
  int32_t (*poll)(ds_plugin_link* link, int32_t* out_done, uint8_t* arrived, uint64_t* signs);
  /* A sign of life to every other rank, without waiting: 8 bytes, no two in a row alike. One may be
   * left out for a rank that has not answered the one before it with a sign of its own. */
  void (*beat)(ds_plugin_link* link, uint64_t sign);
  /* Tells every other rank that the group has ended, and why; without waiting. */
  void (*abort)(ds_plugin_link* link, const char* reason);
  /* The rank that told this one that the group has ended (its reason is message()), -1: none. */
  int32_t (*aborted_by)(ds_plugin_link* link);
  /* Whether rank r has closed its link. */
  int32_t (*has_left)(ds_plugin_link* link, int32_t rank);
  /* Changes while bytes of a part go to rank r or come from it, however slowly; 0 always where the
   * transport cannot tell. A rank whose parts move has not stood still. */
  uint64_t (*moved)(ds_plugin_link* link, int32_t rank);
  /* Why nothing gets through to rank r, as far as the wire shows: a clause with the addresses of
   * both ends;
   * "" where it shows nothing. Valid until the next call. */
  const char* (*stall)(ds_plugin_link* link, int32_t rank);
  /* About the last error of this thread's last call; valid until the next call. */
  const char* (*message)(ds_plugin_link* link);
  /* Leaves the group without waiting for anyone; the reason of an abort may take half a second to
   * go. link may be NULL. */
  void (*close)(ds_plugin_link* link);
} ds_plugin_transport_table;

/* The symbol of a transport. */
typedef const ds_plugin_transport_table* (*ds_plugin_transport_fn)(void);

/* A device is memory, and queues that work on it in order and apart from the thread that gives them
 * work. libds makes the objects of a device once and uses them again and again. It calls a queue
 * from one thread at a time, but `finish` from any; an event's `done` too. Objects end before their
 * device, an arena after what uses it. Where a device was opened several times, queues of one use
 * memory and events of the others.
 */
enum {
  DS_PLUGIN_OK = 0,
  DS_PLUGIN_REFUSED = 1,       /* what was asked for is not there: a device, a kernel */
  DS_PLUGIN_OUT_OF_MEMORY = 2, /* nothing was taken */
  DS_PLUGIN_FAILED = 3,        /* the contents of the device are unknown from here on */
  DS_PLUGIN_LOST = 4           /* nothing works on this device in this process from here on */
};

typedef struct ds_plugin_device ds_plugin_device;
typedef struct ds_plugin_arena ds_plugin_arena;
typedef struct ds_plugin_queue ds_plugin_queue;
typedef struct ds_plugin_event ds_plugin_event;
typedef struct ds_plugin_kernel ds_plugin_kernel;
typedef struct ds_plugin_graph ds_plugin_graph;

typedef struct ds_plugin_device_info {
  size_t struct_size;
  char name[128];      /* of the product */
  char arch[32];       /* "sm_90" */
  char driver[64];     /* name and version */
  int64_t total, free; /* bytes of its memory */
  int64_t granularity; /* arenas take multiples of so many bytes */
  char identity[64];   /* of the hardware: no other device of any host has it */
  int32_t captures;    /* 1: the work of queues can be captured */
} ds_plugin_device_info;

/* One rank's place in a group of ranks on devices of their own, whose queues give each other bytes.
 */
typedef struct ds_plugin_device_link ds_plugin_device_link;

/* A dense row-major tensor; dtype is a ds_dtype. data NULL and rank 0: an operand that is absent.
 */
typedef struct ds_plugin_view {
  void* data;
  int32_t dtype, rank;
  int64_t dims[4];
} ds_plugin_view;

/* One attribute of an operation. kind 0: integer, 1: real, 2: text, 3: integers. */
typedef struct ds_plugin_attr {
  const char* key;
  int32_t kind;
  int64_t integer;
  double real;
  const char* text;
  const int64_t* integers;
  size_t integers_count;
} ds_plugin_attr;

/* Elements [begin, end) of an operation that takes elements in an order of its own. */
typedef struct ds_plugin_run {
  int64_t begin, end, missed, group, param, element;
} ds_plugin_run;

/* An operation as docs/reference/ops.md has it. Views have the largest extents that launches will
 * have, and no data. */
typedef struct ds_plugin_query {
  size_t struct_size;
  const char* op;
  const ds_plugin_view *in, *out;
  size_t in_count, out_count;
  const ds_plugin_attr* attrs;
  size_t attrs_count;
  const ds_plugin_run* runs;
  size_t runs_count;
} ds_plugin_query;

/* One launch. Everything but the data of views, `scalars` and `scratch` is read before `launch`
 * returns. */
typedef struct ds_plugin_launch {
  size_t struct_size;
  const ds_plugin_view *in, *out;
  size_t in_count, out_count;
  const void* scalars; /* StepScalars, on the device, as they are when it runs */
  int64_t leaf;
  int64_t missed, param, element; /* of a run of an update */
  const void* group; /* GroupScalars of the host for that run; NULL: those of `scalars` */
  void* scratch;     /* of the device, scratch_bytes of the kernel, 256-byte aligned */
} ds_plugin_launch;

typedef struct ds_plugin_device_table {
  size_t struct_size;
  const char* name;  /* NAME of libds_NAME.so */
  const char* build; /* DS_PLUGIN_BUILD */

  /* About the last error of this thread's last call; valid until the next call. */
  const char* (*message)(void);
  int32_t (*count)(int32_t* out); /* devices that there are */
  /* Device `index`. It may be opened several times. tf32 = 1: products of f32 may round their
   * operands to TF32. */
  int32_t (*open)(int32_t index, int32_t tf32, ds_plugin_device** out);
  void (*close)(ds_plugin_device* device);
  int32_t (*info)(ds_plugin_device* device, ds_plugin_device_info* out);
  /* What the bits of its kernels and products depend on. It may open a library, which takes a
   * while. */
  int32_t (*numerics)(ds_plugin_device* device, char out[128]);

  /* Memory of the device that starts as zero bytes. It grows in place; the new bytes are zero. */
  int32_t (*arena_create)(ds_plugin_device* device, int64_t bytes, ds_plugin_arena** out,
                          void** address);
  int32_t (*arena_grow)(ds_plugin_arena* arena, int64_t bytes);
  void (*arena_destroy)(ds_plugin_arena* arena);
  /* Memory of the host, so that copies from and to it need not wait for the host. */
  int32_t (*pin)(ds_plugin_device* device, void* host, int64_t bytes);
  void (*unpin)(ds_plugin_device* device, void* host);
  /* *out = 1: memory of this device, whoever took it; 0: any other address. */
  int32_t (*owns)(ds_plugin_device* device, const void* address, int32_t* out);

  int32_t (*queue_create)(ds_plugin_device* device, const char* name, ds_plugin_queue** out);
  void (*queue_destroy)(ds_plugin_queue* queue); /* waits for its work */
  int32_t (*copy)(ds_plugin_queue* queue, void* to, const void* from, int64_t bytes);
  int32_t (*fill)(ds_plugin_queue* queue, void* to, int32_t byte, int64_t bytes);
  /* out[i] = the sum of element i of all parts in f32, `count` elements of f32, bf16 or f16
   * (`dtype`) each: neighbours first, an odd last one is carried up, nothing is rounded in between.
   * At most 64 parts. out may be one of them where they are f32. */
  int32_t (*sum)(ds_plugin_queue* queue, const void* const* parts, int32_t parts_count,
                 int32_t dtype, float* out, int64_t count);

  /* timed = 1: an event that notes the time when its queue comes to it. */
  int32_t (*event_create)(ds_plugin_device* device, int32_t timed, ds_plugin_event** out);
  void (*event_destroy)(ds_plugin_event* event);
  int32_t (*record)(ds_plugin_queue* queue, ds_plugin_event* event);
  /* The queue goes on when the work before the latest record has finished, of any queue of the
   * device. */
  int32_t (*wait)(ds_plugin_queue* queue, ds_plugin_event* event);
  int32_t (*done)(ds_plugin_event* event, int32_t* out);
  /* Nanoseconds between timed events, of any queues of the device, that are done. */
  int32_t (*elapsed)(ds_plugin_event* from, ds_plugin_event* to, int64_t* out);
  int32_t (*finish)(ds_plugin_queue* queue); /* returns when its work has finished */

  /* DS_PLUGIN_REFUSED, and the reason as message(), where the device has no kernel for it. */
  int32_t (*kernel_create)(ds_plugin_device* device, const ds_plugin_query* query,
                           int64_t* scratch_bytes, ds_plugin_kernel** out);
  int32_t (*kernel_launch)(ds_plugin_kernel* kernel, ds_plugin_queue* queue,
                           const ds_plugin_launch* launch);
  void (*kernel_destroy)(ds_plugin_kernel* kernel);

  /* The library that links devices of several ranks: its name and version, which are the same on
   * all ranks of a group. DS_PLUGIN_REFUSED, and the reason as message(), where there is none. */
  int32_t (*link_library)(ds_plugin_device* device, char out[128]);
  /* What the ranks of a new group open their links with: one of them makes it. */
  int32_t (*link_id)(ds_plugin_device* device, uint8_t out[128]);
  /* Begins to join, and does not wait. No two ranks of a group are on one device. All ranks use
   * their link for the same calls in the same order, from one thread at a time, except
   * `link_abort`. */
  int32_t (*link_open)(ds_plugin_device* device, const uint8_t id[128], int32_t rank, int32_t size,
                       ds_plugin_device_link** out);
  /* *out = 1: all ranks have joined, and what was given is in its queue; the next call of this link
   * waits for that, and so does whoever records an event behind what was given. An error is one of
   * the link, also of work that a queue does later: the group is then to be ended on every rank. */
  int32_t (*link_poll)(ds_plugin_device_link* link, int32_t* out);
  /* out + r * bytes = `bytes` bytes of rank r at its `in`, which may be that place of `out`. */
  int32_t (*link_gather)(ds_plugin_device_link* link, ds_plugin_queue* queue, const void* in,
                         void* out, int64_t bytes);
  /* Sends sends[r] to and receives receives[r] from every other rank r; entry `rank` is not looked
   * at. Parts of this call may have any size. */
  int32_t (*link_swap)(ds_plugin_device_link* link, ds_plugin_queue* queue,
                       const ds_plugin_part* sends, const ds_plugin_part* receives);
  /* Ends what queues hold of this link, whether the other ranks come or not; what it should have
   * received is unknown. Later calls fail. */
  void (*link_abort)(ds_plugin_device_link* link);
  /* After all its work has finished, or after link_abort(). May wait for other ranks of this host
   * to do so.
   */
  void (*link_close)(ds_plugin_device_link* link);

  /* From capture_begin to capture_end the copies, fills, sums and launches that this thread gives
   * the queue are kept and not done; nothing else is asked of the queue. After an error of either
   * call nothing is kept, and the queue takes work as before. A graph is what was kept, with every
   * argument as it was given; it is launched on queues of its device, and ends when no launch of it
   * is running. */
  int32_t (*capture_begin)(ds_plugin_queue* queue);
  int32_t (*capture_end)(ds_plugin_queue* queue, ds_plugin_graph** out);
  int32_t (*graph_launch)(ds_plugin_graph* graph, ds_plugin_queue* queue);
  void (*graph_destroy)(ds_plugin_graph* graph);

  /* The queue writes `number` to its word of host memory when the work before has finished. What it
   * has written can be read there after any error, too. The host may write it while the queue has
   * nothing to do.
   */
  int32_t (*mark)(ds_plugin_queue* queue, uint32_t number);
  uint32_t* (*marked)(ds_plugin_queue* queue);

  /* Names for a tool that watches this process. ranges: whether there is one. A range of the
   * calling thread begins, and the latest one that has begun ends. */
  int32_t (*ranges)(void);
  void (*range_push)(const char* name);
  void (*range_pop)(void);
} ds_plugin_device_table;

/* The symbol of a device. */
typedef const ds_plugin_device_table* (*ds_plugin_devices_fn)(void);

#ifdef __cplusplus
}
#endif

#endif
