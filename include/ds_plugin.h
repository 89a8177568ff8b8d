/* ds_plugin.h: the interface of plugins of libds. A plugin provides a transport, so that ranks may
 * run on several hosts, a device, or text.
 *
 * A plugin is a shared object libds_NAME.so beside libds.so (or in a folder of DS_PLUGIN_PATH) that
 * exports ds_plugin_transport(), ds_plugin_devices() or ds_plugin_text(). Until 1.0 a plugin works
 * only with the build of libds for which it was made (`build`). No function of a plugin may end the
 * process or throw.
 */
#ifndef DS_PLUGIN_H
#define DS_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes with every change of this file. */
#define DS_PLUGIN_BUILD "ds-0.1-plugin-8"

/* A transport moves bytes between ranks and nothing else: collectives, the order of sums, time-outs
 * and messages belong to libds, so a transport cannot change results. libds calls a link from one
 * thread at a time, except `abort`, which any thread may call. Status: 0, or non-zero with a line
 * of text from `message`.
 */

/* The bytes that one rank sends to or receives from another. */
typedef struct ds_plugin_part {
  void* data;
  size_t size; /* in bytes, at most 1 GiB; 0 if nothing moves */
} ds_plugin_part;

/* One rank's place in a group. */
typedef struct ds_plugin_link ds_plugin_link;

typedef struct ds_plugin_transport_table {
  size_t struct_size;
  const char* name;  /* NAME of libds_NAME.so */
  const char* build; /* DS_PLUGIN_BUILD */

  /* Joins as rank `rank` of `size`; collective. `address` is the part of the comm url after ://, or
   * ""; the transport gives it its meaning. If the transport can tell who is missing, it waits for
   * the others for at most join_ms. After an error, *out is NULL and message(NULL) says why; after
   * a success, message(link) is "" or one line of warning.
   */
  int32_t (*open)(const char* address, int32_t rank, int32_t size, int64_t join_ms,
                  ds_plugin_link** out);
  /* Begins to send sends[r] to every other rank r and to receive receives[r] from it. The entry
   * `rank` and entries of size 0 are ignored. libds polls a start to its end before the next one.
   * Parts from one rank to another arrive in the order of starts. Ranks that exchange nothing with
   * each other need not start together. */
  int32_t (*start)(ds_plugin_link* link, const ds_plugin_part* sends,
                   const ds_plugin_part* receives);
  /* Moves bytes as far as that is possible without waiting. *out_done becomes 1 once all have
   * moved. arrived[r] becomes 1 once nothing waits for rank r: its part has arrived and, if the
   * transport knows, it has taken the part sent to it. signs[r] becomes the last sign of life from
   * rank r, 0 before the first. */
  int32_t (*poll)(ds_plugin_link* link, int32_t* out_done, uint8_t* arrived, uint64_t* signs);
  /* Sends a sign of life to every other rank, without waiting: 8 bytes that differ from those of
   * the previous sign. The sign may be left out for a rank that has not answered the previous one
   * with its own sign. */
  void (*beat)(ds_plugin_link* link, uint64_t sign);
  /* Tells every other rank, without waiting, that the group has ended and why. */
  void (*abort)(ds_plugin_link* link, const char* reason);
  /* Returns the rank that told this one that the group has ended (message() is its reason), or -1.
   */
  int32_t (*aborted_by)(ds_plugin_link* link);
  /* Tells whether rank `rank` has closed its link. */
  int32_t (*has_left)(ds_plugin_link* link, int32_t rank);
  /* Returns a number that changes while bytes of a part go to a rank or come from it, however
   * slowly; always 0 if the transport cannot tell. A rank whose parts move is making progress. */
  uint64_t (*moved)(ds_plugin_link* link, int32_t rank);
  /* Returns the reason for which no bytes reach a rank, as far as the transport can see: a clause
   * with the addresses of both ends, or "". Valid until the next call. */
  const char* (*stall)(ds_plugin_link* link, int32_t rank);
  /* Describes the error of this thread's last call. Valid until the next call. */
  const char* (*message)(ds_plugin_link* link);
  /* Leaves the group without waiting for anyone, except that sending the reason of an abort may
   * take half a second. `link` may be NULL. */
  void (*close)(ds_plugin_link* link);
} ds_plugin_transport_table;

/* The symbol of a transport. */
typedef const ds_plugin_transport_table* (*ds_plugin_transport_fn)(void);

/* A device is memory and queues, which work on the memory in order and asynchronously to the thread
 * that gives them work. libds creates the objects of a device once and reuses them. It calls a
 * queue from one thread at a time, except `finish` of a queue and `done` of an event, which any
 * thread may call.
 * Objects end before their device, and an arena after everything that uses it. If a device was
 * opened several times, queues of one opening use memory and events of the others.
 */
enum {
  DS_PLUGIN_OK = 0,
  DS_PLUGIN_REFUSED = 1,       /* the requested device or kernel does not exist */
  DS_PLUGIN_OUT_OF_MEMORY = 2, /* nothing was taken */
  DS_PLUGIN_FAILED = 3,        /* from now on the contents of the device are unknown */
  DS_PLUGIN_LOST = 4           /* from now on nothing works on this device in this process */
};

typedef struct ds_plugin_device ds_plugin_device;
typedef struct ds_plugin_arena ds_plugin_arena;
typedef struct ds_plugin_queue ds_plugin_queue;
typedef struct ds_plugin_event ds_plugin_event;
typedef struct ds_plugin_kernel ds_plugin_kernel;
typedef struct ds_plugin_graph ds_plugin_graph;

typedef struct ds_plugin_device_info {
  size_t struct_size;
  char name[128];      /* name of the product */
  char arch[32];       /* "sm_90" */
  char driver[64];     /* name and version */
  int64_t total, free; /* bytes of its memory */
  int64_t granularity; /* the size of an arena is a multiple of this many bytes */
  char identity[64];   /* identifies the hardware: no other device of any host has it */
  int32_t captures;    /* 1: the work of queues can be captured */
} ds_plugin_device_info;

/* One rank's place in a group of ranks, each with its own device, whose queues exchange bytes. */
typedef struct ds_plugin_device_link ds_plugin_device_link;

/* A dense row-major tensor; dtype is a ds_dtype. An absent operand has data NULL and rank 0. */
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

/* Elements [begin, end) that an operation covers, with the properties of an update of them
 * (src/core/base/element_run.h). An operation with runs covers only their elements, in this order.
 */
typedef struct ds_plugin_run {
  int64_t begin, end, missed, group, param, element;
} ds_plugin_run;

/* An operation of docs/reference/ops.md. Views have the largest extents that launches will have,
 * and no data. */
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
  const void* scalars; /* StepScalars on the device, read when the kernel runs */
  int64_t leaf;
  int64_t missed, param, element; /* for a run of an update */
  const void* group; /* GroupScalars on the host for that run; NULL: those of `scalars` */
  void* scratch;     /* device memory, scratch_bytes of the kernel, 256-byte aligned */
} ds_plugin_launch;

typedef struct ds_plugin_device_table {
  size_t struct_size;
  const char* name;  /* NAME of libds_NAME.so */
  const char* build; /* DS_PLUGIN_BUILD */

  /* Describes the error of this thread's last call. Valid until the next call. */
  const char* (*message)(void);
  int32_t (*count)(int32_t* out); /* number of devices */
  /* Opens device `index`, which may be opened several times. With tf32 = 1, products of f32 may
   * round their operands to TF32. */
  int32_t (*open)(int32_t index, int32_t tf32, ds_plugin_device** out);
  void (*close)(ds_plugin_device* device);
  int32_t (*info)(ds_plugin_device* device, ds_plugin_device_info* out);
  /* Writes a text that names everything on which the bits of the kernels and products depend. The
   * call may open a library, which takes a while. */
  int32_t (*numerics)(ds_plugin_device* device, char out[128]);

  /* Allocates memory of the device, filled with zeros. `arena_grow` extends it in place to `bytes`
   * bytes, and the new bytes are zero. */
  int32_t (*arena_create)(ds_plugin_device* device, int64_t bytes, ds_plugin_arena** out,
                          void** address);
  int32_t (*arena_grow)(ds_plugin_arena* arena, int64_t bytes);
  void (*arena_destroy)(ds_plugin_arena* arena);
  /* Pins memory of the host, so that copies from and to it need not wait for the host. */
  int32_t (*pin)(ds_plugin_device* device, void* host, int64_t bytes);
  void (*unpin)(ds_plugin_device* device, void* host);
  /* Sets *out to 1 for memory of this device, whoever took it, and to 0 for any other address. */
  int32_t (*owns)(ds_plugin_device* device, const void* address, int32_t* out);

  int32_t (*queue_create)(ds_plugin_device* device, const char* name, ds_plugin_queue** out);
  void (*queue_destroy)(ds_plugin_queue* queue); /* waits for its work */
  int32_t (*copy)(ds_plugin_queue* queue, void* to, const void* from, int64_t bytes);
  int32_t (*fill)(ds_plugin_queue* queue, void* to, int32_t byte, int64_t bytes);
  /* Sets out[i] to the sum of element i of all parts, in f32. Each part has `count` elements of
   * f32, bf16 or f16 (`dtype`). Neighbouring parts are added first, an odd last one is carried up,
   * and nothing is rounded in between. At most 64 parts. `out` may be one of them if they are f32.
   */
  int32_t (*sum)(ds_plugin_queue* queue, const void* const* parts, int32_t parts_count,
                 int32_t dtype, float* out, int64_t count);

  /* With timed = 1, the event notes the time at which its queue reaches it. */
  int32_t (*event_create)(ds_plugin_device* device, int32_t timed, ds_plugin_event** out);
  void (*event_destroy)(ds_plugin_event* event);
  int32_t (*record)(ds_plugin_queue* queue, ds_plugin_event* event);
  /* Makes the queue wait until the work before the latest record, on any queue of the device, has
   * finished. */
  int32_t (*wait)(ds_plugin_queue* queue, ds_plugin_event* event);
  int32_t (*done)(ds_plugin_event* event, int32_t* out);
  /* Returns the nanoseconds between two timed events of any queues of the device, both done. */
  int32_t (*elapsed)(ds_plugin_event* from, ds_plugin_event* to, int64_t* out);
  /* Waits until the work of the queue has finished. */
  int32_t (*finish)(ds_plugin_queue* queue);

  /* Returns DS_PLUGIN_REFUSED, with the reason as message(), if the device has no such kernel. */
  int32_t (*kernel_create)(ds_plugin_device* device, const ds_plugin_query* query,
                           int64_t* scratch_bytes, ds_plugin_kernel** out);
  int32_t (*kernel_launch)(ds_plugin_kernel* kernel, ds_plugin_queue* queue,
                           const ds_plugin_launch* launch);
  void (*kernel_destroy)(ds_plugin_kernel* kernel);

  /* Names the library that links devices of several ranks, with its version, which must be the same
   * on all ranks of a group. Without such a library, returns DS_PLUGIN_REFUSED, with the reason as
   * message(). */
  int32_t (*link_library)(ds_plugin_device* device, char out[128]);
  /* Creates the id with which all ranks of a new group open their links. One rank calls it. */
  int32_t (*link_id)(ds_plugin_device* device, uint8_t out[128]);
  /* Begins to join, without waiting. No two ranks of a group are on one device. All ranks make the
   * same calls of their links in the same order, from one thread at a time, except `link_abort`. */
  int32_t (*link_open)(ds_plugin_device* device, const uint8_t id[128], int32_t rank, int32_t size,
                       ds_plugin_device_link** out);
  /* Sets *out to 1 once all ranks have joined and the work given to the link is in its queue. Until
   * then, libds makes no other call of this link and records no event after that work. An error
   * concerns the link, including work that a queue does later: the group must then be ended on
   * every rank. */
  int32_t (*link_poll)(ds_plugin_device_link* link, int32_t* out);
  /* Copies `bytes` bytes from `in` of each rank r to out + r * bytes. `in` may be this rank's place
   * in `out`. */
  int32_t (*link_gather)(ds_plugin_device_link* link, ds_plugin_queue* queue, const void* in,
                         void* out, int64_t bytes);
  /* Sends sends[r] to every other rank r and receives receives[r] from it; the entry `rank` is
   * ignored. Parts of this call may have any size. */
  int32_t (*link_swap)(ds_plugin_device_link* link, ds_plugin_queue* queue,
                       const ds_plugin_part* sends, const ds_plugin_part* receives);
  /* Ends the work of this link in all queues, whether or not the other ranks come. Data that it
   * should have received is undefined. Later calls fail. */
  void (*link_abort)(ds_plugin_device_link* link);
  /* Called after all work of the link has finished or after link_abort(). It may wait until other
   * ranks of this host close theirs. */
  void (*link_close)(ds_plugin_device_link* link);

  /* From capture_begin to capture_end, the copies, fills, sums and launches that this thread gives
   * the queue are recorded and not done; libds gives the queue nothing else. After an error of
   * either call nothing is recorded, and the queue accepts work as before. A graph is the record,
   * with every argument as it was passed. It is launched on queues of its device and destroyed when
   * none of its launches is running. */
  int32_t (*capture_begin)(ds_plugin_queue* queue);
  int32_t (*capture_end)(ds_plugin_queue* queue, ds_plugin_graph** out);
  int32_t (*graph_launch)(ds_plugin_graph* graph, ds_plugin_queue* queue);
  void (*graph_destroy)(ds_plugin_graph* graph);

  /* Makes the queue write `number` to its word of host memory once the work before has finished.
   * The word can be read even after an error. The host may write it while the queue is idle. */
  int32_t (*mark)(ds_plugin_queue* queue, uint32_t number);
  uint32_t* (*marked)(ds_plugin_queue* queue);

  /* Named ranges for a tool that watches this process. `ranges` tells whether there is such a tool.
   * `range_push` begins a range of the calling thread, and `range_pop` ends the latest one. */
  int32_t (*ranges)(void);
  void (*range_push)(const char* name);
  void (*range_pop)(void);
} ds_plugin_device_table;

/* The symbol of a device. */
typedef const ds_plugin_device_table* (*ds_plugin_devices_fn)(void);

/* A text plugin has tokenizers and chat encoders, and learns vocabularies. Several threads may use
 * one tokenizer or chat encoder at once. Status: 0, or a ds_status of ds.h with a line of text from
 * `message`.
 */
typedef struct ds_plugin_tokenizer ds_plugin_tokenizer;
typedef struct ds_plugin_chat ds_plugin_chat;

/* Any bytes: a text need not be UTF-8, and may have NULs. */
typedef struct ds_plugin_chars {
  const char* data;
  size_t size;
} ds_plugin_chars;

/* The result of a call, valid until `release`. */
typedef struct ds_plugin_result {
  ds_plugin_chars text;
  const int32_t* tokens;
  const uint8_t* targets; /* for each token: 1 if a loss counts it */
  size_t count;           /* number of tokens */
  void* owner;            /* the plugin's own */
} ds_plugin_result;

/* Facts about a tokenizer, valid as long as the tokenizer. A token that its files do not name is
 * -1. */
typedef struct ds_plugin_tokenizer_info {
  size_t struct_size;
  ds_plugin_chars name;
  int64_t vocab;
  int32_t end_of_text, mask_token;
  const int32_t *before, *after; /* the tokens that `special` of `encode` puts around a text */
  size_t before_count, after_count;
} ds_plugin_tokenizer_info;

/* Bits of a token. */
enum {
  DS_PLUGIN_TOKEN_SPECIAL = 1,   /* the token represents no text */
  DS_PLUGIN_TOKEN_JOINS_NEXT = 2 /* the next token may change its text */
};

typedef struct ds_plugin_text_table {
  size_t struct_size;
  const char* name;  /* NAME of libds_NAME.so */
  const char* build; /* DS_PLUGIN_BUILD */

  /* Describe the last error of this thread. Both are valid until the thread's next error. `message`
   * is "" if there was not enough memory for a line. `key` is the configuration key that the error
   * is about, or "". */
  const char* (*message)(void);
  const char* (*key)(void);
  void (*release)(ds_plugin_result* result);

  /* `name` names a tokenizer: "bytes", a file or a folder. */
  int32_t (*open)(const ds_plugin_chars* name, ds_plugin_tokenizer** out);
  void (*close)(ds_plugin_tokenizer* tokenizer);
  void (*info)(const ds_plugin_tokenizer* tokenizer, ds_plugin_tokenizer_info* out);
  int32_t (*token_bits)(const ds_plugin_tokenizer* tokenizer, int32_t token);
  int32_t (*encode)(const ds_plugin_tokenizer* tokenizer, const ds_plugin_chars* text,
                    int32_t special, ds_plugin_result* out);
  int32_t (*decode)(const ds_plugin_tokenizer* tokenizer, const int32_t* tokens, size_t count,
                    int32_t skip_special, ds_plugin_result* out);
  /* Lists the files from which a tokenizer is read: for each, its path and its name in a copy, each
   * followed by a NUL. */
  int32_t (*files)(const ds_plugin_chars* name, ds_plugin_result* out);
  int32_t (*hash)(const ds_plugin_chars* name, ds_plugin_result* out);

  /* Learns a vocabulary of at most `vocab` tokens, which must be at least `least_learned`, from a
   * text whose documents are separated by NUL bytes, and writes its files into `folder`. The result
   * is one line that describes the vocabulary. A non-zero value at `stop`, which may be NULL, ends
   * the call. */
  int32_t (*learn)(const ds_plugin_chars* text, int64_t vocab, const ds_plugin_chars* folder,
                   const volatile int32_t* stop, ds_plugin_result* out);
  int64_t least_learned;

  /* Turn lines of jsonl into tokens and targets. `tokenizer`, opened by `name`, must outlive the
   * encoder. `chosen` is a file with a template, the name of a template of the tokenizer, or empty.
   * `where` names the line in messages. */
  int32_t (*chat_open)(const ds_plugin_tokenizer* tokenizer, const ds_plugin_chars* name,
                       const ds_plugin_chars* chosen, int32_t loss_on_all, ds_plugin_chat** out);
  void (*chat_close)(ds_plugin_chat* chat);
  int32_t (*chat_encode)(const ds_plugin_chat* chat, const ds_plugin_chars* line,
                         const ds_plugin_chars* where, ds_plugin_result* out);
} ds_plugin_text_table;

/* The symbol of text. */
typedef const ds_plugin_text_table* (*ds_plugin_text_fn)(void);

#ifdef __cplusplus
}
#endif

#endif
