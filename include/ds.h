/* ds.h: the public C interface of libds, and its specification.
 *
 * libds trains large models. In native mode it owns forward and backward: you define a graph (or
 * name a model family in the configuration), create an engine and call ds_train_batch. In delegate
 * mode (graph NULL) your own framework keeps forward and backward: it registers parameters, leases
 * whole parameters, hands over gradients and calls ds_step.
 *
 * The conventions below apply to every function. Comments cite them by name.
 *
 * Status. Every function that can fail returns a ds_status. {status.returned} After a failure,
 * ds_last_error_message() describes it in one line.
 *
 * Ownership. [owned]: you own the object and destroy it. [borrowed: x]: the object is valid as long
 * as x exists. You may destroy handles in any order, and on any thread, as long as no other thread
 * is using them. {ownership.order} Destroy functions accept NULL and never fail. {ownership.null}
 * An engine keeps its comm alive: the rank leaves the group when both have been destroyed.
 * {ownership.comm}
 *
 * Threads. Distinct handles are independent, but a comm and its engines count as one handle.
 * {threads.independent} Use a handle on one thread at a time, unless a function says [threadsafe].
 * Callbacks run on the thread that is inside the ds_ call, and on no other. {threads.callbacks}
 *
 * Forks. A handle belongs to the process that created it. In a forked child, every call on an
 * inherited handle that returns a status returns DS_ERROR_STATE, and destroying it does nothing.
 * {forks.inherited} The parent continues as if it had not forked. {forks.parent} The child may
 * create handles of its own if no other thread of the parent was inside a ds_ call at the time of
 * the fork. {forks.own}
 *
 * Descriptors. The file descriptors that libds keeps open have numbers of 3 or more and close on
 * exec, even if the program has closed its standard descriptors; MPI opens descriptors of its own.
 * {descriptors.numbers}
 *
 * Names. Names of graphs, inputs, parameters and outputs are 1 to 512 bytes of UTF-8 without
 * control characters, blanks and any of %{}=;". {names.form}
 *
 * Streams. A stream is a queue of work on the device of an engine. A call with a stream reads and
 * writes its tensors in the order of the stream: after the work that the stream has when you make
 * the call, and before the work that you give it afterwards. {streams.order} You may destroy such a
 * tensor at once, but memory that you have lent must stay until the stream has done that work.
 * {streams.lent} With NULL, the call reads and writes its tensors before it returns, and waits for
 * no stream. {streams.null} On a device whose memory is the host's ("cpu"), every stream must be
 * NULL. {streams.cpu}
 *
 * Collective. All ranks of the comm must call the function, in the same order. {collective.order}
 * The call blocks until its data has arrived. On every rank it ends with DS_ERROR_COMM if a rank
 * dies, aborts, stops making progress or makes a different call. {collective.failure}
 *
 * Strings. Strings are UTF-8 and end with NUL. A text that a call returns through out_text is new
 * and belongs to you; free it with ds_text_destroy. {strings.owned}
 *
 * Outputs. After an error, an out handle or text is NULL and out numbers are unchanged.
 * {outputs.after_error}
 *
 * Options. Structs begin with struct_size, and an _init function fills those that have defaults.
 * They hold no training options; those are JSON (docs/reference/config.md).
 *
 * Marks. [nullable] [out] [owned] [borrowed: x] [threadsafe] are part of the contract and reach the
 * bindings. In ds.h itself, a name in braces marks the sentence before it: the tests that say that
 * they prove this name prove the sentence.
 *
 * Dialect. C99, only <stddef.h> and <stdint.h>; named enums with 0 as default; opaque handles; no
 * typedef of a pointer, union, bit-field, varargs, inline function or by-value struct.
 */
#ifndef DS_H
#define DS_H

#include <stddef.h>
#include <stdint.h>

/* The version of this header, for #if. ds_version() tells the version of the library, which is the
 * same or later.
 */
#define DS_VERSION_MAJOR 0
#define DS_VERSION_MINOR 1
#define DS_VERSION_PATCH 0

#ifndef DS_API
#if defined(DS_BUILDING) && defined(__GNUC__)
#define DS_API __attribute__((visibility("default")))
#else
#define DS_API
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** Status of a call. Each negative code calls for a different reaction of the program. */
typedef enum ds_status {
  DS_OK = 0,
  DS_ERROR_INVALID_ARGUMENT = -1, /**< wrong call: change the argument that the message names */
  DS_ERROR_CONFIG = -2,           /**< wrong configuration: change the key that the message names */
  DS_ERROR_NOT_FOUND = -3,        /**< a name, file or folder does not exist */
  DS_ERROR_STATE = -4,         /**< right call, wrong moment: see the call order of the function */
  DS_ERROR_UNSUPPORTED = -5,   /**< known, but not available in this build, machine or version */
  DS_ERROR_OUT_OF_MEMORY = -6, /**< the plan exceeds a budget, or the system has no more memory */
  DS_ERROR_IO = -7,      /**< the file system failed: the message has the path and the errno text */
  DS_ERROR_CORRUPT = -8, /**< the content of a file contradicts itself or its hash */
  DS_ERROR_COMM = -9,    /**< a peer died, diverged or timed out: restart the group */
  DS_ERROR_NUMERIC = -10,  /**< NaN or infinity where a number is needed; the handle stays usable */
  DS_ERROR_POISONED = -11, /**< an earlier failure left this handle unusable: destroy it */
  DS_ERROR_USER = -12,     /**< a callback asked to stop */
  DS_ERROR_INTERNAL = -13, /**< a defect of libds: please report the message */
  DS_STATUS_FORCE_INT32 = 0x7FFFFFFF
} ds_status;

/** Element types of tensors. 16-bit floats cross this interface as uint16_t bit patterns. */
typedef enum ds_dtype {
  DS_DTYPE_NONE = 0,
  DS_DTYPE_F32 = 1,
  DS_DTYPE_BF16 = 2,
  DS_DTYPE_F16 = 3,
  DS_DTYPE_F64 = 4,
  DS_DTYPE_I32 = 5,
  DS_DTYPE_I64 = 6,
  DS_DTYPE_U8 = 7,
  DS_DTYPE_FORCE_INT32 = 0x7FFFFFFF
} ds_dtype;

/** Opaque handles. */
typedef struct ds_comm ds_comm;
typedef struct ds_work ds_work;
typedef struct ds_stream ds_stream;
typedef struct ds_tensor ds_tensor;
typedef struct ds_graph ds_graph;
typedef struct ds_plan ds_plan;
typedef struct ds_engine ds_engine;

/** DLPack's managed tensors, of versions 0.x and 1.x, which the <dlpack/dlpack.h> of the caller
 * declares. */
struct DLManagedTensor;
struct DLManagedTensorVersioned;

/* ---------------------------------------------------------------- runtime */

/** Returns the version of the library as "major.minor.patch". {runtime.version} [threadsafe] The
 * text lives as long as the process. */
DS_API const char* ds_version(void);

/** Returns the name of a status, for example "invalid argument". {runtime.status_name} [threadsafe]
 * The text lives as long as the process. */
DS_API const char* ds_status_name(ds_status status);

/** Returns the message of the last call that failed on this thread, or "" if none has.
 * {runtime.last_error} [threadsafe] The text is valid until the next failing call on this thread.
 */
DS_API const char* ds_last_error_message(void);

/** Tells programs what the last error message of this thread is about: the configuration key
 * (dotted), the parameter or tensor, and the rank, as far as the message names one; otherwise "",
 * "" and -1. {runtime.details} [threadsafe] The texts are valid as long as the message.
 * @param out_key [out] [nullable]  @param out_tensor [out] [nullable]
 * @param out_rank [out] [nullable] */
DS_API void ds_last_error_details(const char** out_key, const char** out_tensor, int32_t* out_rank);

/** Severity of a log line. */
typedef enum ds_log_level {
  DS_LOG_LEVEL_DEBUG = 0,
  DS_LOG_LEVEL_INFO = 1,
  DS_LOG_LEVEL_WARNING = 2,
  DS_LOG_LEVEL_ERROR = 3,
  DS_LOG_LEVEL_FORCE_INT32 = 0x7FFFFFFF
} ds_log_level;

/** Receives one log line. */
typedef void ds_log_fn(ds_log_level level, const char* line, void* user_data);

/** Sends the log lines of this process to fn. NULL restores the default: warnings and errors go to
 * stderr. {runtime.log}
 * @param fn [nullable]  @param user_data [nullable] passed to fn */
DS_API ds_status ds_log_set_fn(ds_log_fn* fn, void* user_data);

/** Frees a text that a call has returned. {runtime.text_destroy} @param text [nullable]
 * [threadsafe] */
DS_API void ds_text_destroy(char* text);

/** The form of a report. */
typedef enum ds_format {
  DS_FORMAT_TEXT = 0, /**< for people: its wording and layout change between versions */
  DS_FORMAT_JSON = 1, /**< for programs: docs/reference/reports.md names its members */
  DS_FORMAT_FORCE_INT32 = 0x7FFFFFFF
} ds_format;

/** Describes this machine and build: instruction sets, which kernels run and why, libraries, cores
 * and memory. */
DS_API ds_status ds_env_report(ds_format format, char** out_text);

/* ---------------------------------------------------------------- comm */

/** How to join a group. */
typedef struct ds_comm_options {
  size_t struct_size;
  int32_t rank;       /**< 0 to size - 1; "self" and "env" ignore it */
  int32_t size;       /**< number of ranks in the group */
  int64_t timeout_ms; /**< a peer without progress for this long is an error; default 300000 */
  int64_t join_ms;    /**< how long to wait until all ranks have joined; default 60000 */
} ds_comm_options;

/** Fills in the defaults: rank 0 of 1. @param struct_size sizeof(ds_comm_options) of the caller */
DS_API ds_status ds_comm_options_init(ds_comm_options* options, size_t struct_size);

/** Joins a group of ranks. Collective.
 * @param url "self" (one rank), "threads://NAME" (ranks are threads of this process), "shm://NAME"
 * (processes of one host), "mpi" (the job that mpirun or srun started, on any hosts; needs the
 * job's own rank and size), "tcp://HOST:PORT", with or without "/JOB" (rank 0 listens there while
 * the ranks of that job meet, on any hosts), "tcp:///PATH" (rank 0 writes its address to this file,
 * in a folder that all ranks see), "tcp" (as MASTER_ADDR and MASTER_PORT say), "env" (what `libds
 * launch`, torchrun, mpirun or srun put into the environment; one rank if they did not), "env:URL"
 * (rank and size from the environment, over URL). mpi and tcp are plugins, libds_NAME.so; any other
 * NAME or "NAME://ADDRESS" is looked for in the same way (ds_plugin.h)
 * @param options [nullable]  @param out [out] [owned]
 * @return DS_ERROR_COMM if a rank is missing after join_ms, if two ranks claim the same number, or
 * if ranks differ in size or version. {comm.create.refused} */
DS_API ds_status ds_comm_create(const char* url, const ds_comm_options* options, ds_comm** out);

/** Gathers as ds_comm_all_gather does, at most 1 GiB in all. `in` may be this rank's block of
 * `out`. {comm.callbacks.in_place} */
typedef ds_status ds_comm_all_gather_fn(const void* in, size_t in_size, void* out, void* user_data);
/** Sends in_sizes[r] bytes at ins[r] to rank r and receives out_sizes[r] bytes from rank r at
 * outs[r], at most 256 MiB each and 1 GiB in all. The entries of this rank, and those of ranks with
 * which it exchanges nothing, are NULL and 0. */
typedef ds_status ds_comm_all_to_all_fn(const void* const* ins, const size_t* in_sizes,
                                        void* const* outs, const size_t* out_sizes,
                                        void* user_data);
/** Sends data_size bytes, at most 256 MiB, to rank `to`, which receives as many. */
typedef ds_status ds_comm_send_fn(const void* data, size_t data_size, int32_t to, void* user_data);
/** Receives data_size bytes from rank `from`. */
typedef ds_status ds_comm_receive_fn(void* data, size_t data_size, int32_t from, void* user_data);
/** Ends the running collective and every later one, if possible on all ranks. It is called on any
 * thread, even while another callback runs. */
typedef void ds_comm_abort_fn(const char* reason, void* user_data);
/** Frees the user_data of a comm. */
typedef void ds_comm_destroy_fn(void* user_data);

/** The collectives of another library, with ranks 0 to size - 1. Each blocks until this rank has
 * sent and received its bytes. All ranks call them in the same order, except that a send and a
 * receive concern only two ranks. All ranks set the same members. Pointers are valid inside the
 * callback. With one rank, no callback but destroy is called. The struct has no defaults and no
 * _init function: fill it with zeros, set struct_size, then the members. */
typedef struct ds_comm_callbacks {
  size_t struct_size;
  ds_comm_all_gather_fn* all_gather; /**< [nullable] NULL: all_to_all is called instead */
  ds_comm_all_to_all_fn* all_to_all;
  ds_comm_send_fn* send; /**< [nullable] only together with receive, as are groups of a split */
  ds_comm_receive_fn* receive; /**< [nullable] */
  /** [nullable] NULL: the other ranks wait as long as their collectives do. */
  ds_comm_abort_fn* abort;
  /** [nullable] Called with user_data, see ds_comm_create_from_callbacks. */
  ds_comm_destroy_fn* destroy;
  void* user_data; /**< [nullable] passed to the callbacks */
} ds_comm_callbacks;

/** Creates a comm over the collectives of the caller, which keeps its own process groups. They only
 * move bytes. libds forms the sums, in its own order, and compares the calls of all ranks, so
 * results have the same bits as over every url. {comm.callbacks.bits} Callbacks run
 * on the thread that is inside a call of the comm, of a comm split from it, or of an engine on
 * either; a collective that ds_comm_submit starts has therefore ended when it returns.
 * {comm.callbacks.submit} A call with one of these handles inside a callback returns
 * DS_ERROR_STATE. {comm.callbacks.inside} A handle that a callback destroys ends with the outermost
 * call on that thread. {comm.callbacks.destroyed_inside} A device whose work has threads of its own
 * refuses such a comm. {comm.callbacks.device} Collective.
 *
 * libds cannot see a rank that the callbacks wait for, so time-outs are those of the callbacks, and
 * timeout_ms and join_ms of the options are not used. If a callback returns an error, the call ends
 * with DS_ERROR_COMM, and so does every later one. {comm.callbacks.error} `destroy` is called once,
 * inside the destroy call that ends the last handle that uses the comm. {comm.callbacks.destroy}
 * @param callbacks copied  @param options rank and size  @param out [out] [owned]
 * @return After an error, user_data remains yours. {comm.callbacks.refused} DS_ERROR_COMM if ranks
 * differ in size, version or callbacks, or if all_gather or all_to_all delivers other bytes than
 * were sent when they are tried here; the message names a rank. {comm.callbacks.tried} Without
 * `send` and `receive`, ds_comm_send, ds_comm_receive and ds_comm_split return
 * DS_ERROR_UNSUPPORTED. {comm.callbacks.pairs} */
DS_API ds_status ds_comm_create_from_callbacks(const ds_comm_callbacks* callbacks,
                                               const ds_comm_options* options, ds_comm** out);

/** Returns this rank, 0 to size - 1, or -1 if comm is NULL. {comm.rank} */
DS_API int32_t ds_comm_rank(const ds_comm* comm);
/** Returns the number of ranks, or -1 if comm is NULL. {comm.size} */
DS_API int32_t ds_comm_size(const ds_comm* comm);

/** Concatenates every rank's `in` (in_size bytes) in rank order into `out` (in_size * size bytes).
 * {comm.all_gather} Collective.
 */
DS_API ds_status ds_comm_all_gather(ds_comm* comm, const void* in, size_t in_size, void* out);
/** Sums `count` elements over all ranks as a balanced tree in rank order, so that every transport
 * gives the same bits. f32, bf16 and f16 are summed in f32, other types in their own type; integers
 * wrap around. {comm.all_reduce} Collective.
 * @param in f32, bf16, f16, f64, i32, i64 or u8
 * @param out f32 elements if `in` is bf16 or f16, in memory that does not overlap it; otherwise
 * elements of the type of `in`, and out may be the same buffer. {comm.all_reduce.in_place} */
DS_API ds_status ds_comm_all_reduce(ds_comm* comm, const void* in, size_t count, ds_dtype dtype,
                                    void* out);
/** Sums size * count elements as ds_comm_all_reduce does. Rank r gets the elements [r * count, (r +
 * 1) * count). {comm.reduce_scatter} Collective. */
DS_API ds_status ds_comm_reduce_scatter(ds_comm* comm, const void* in, size_t count, ds_dtype dtype,
                                        void* out);
/** Sends block b of `in` to rank b and receives block r of `out` from rank r. Each block has
 * block_size bytes. {comm.all_to_all} Collective. */
DS_API ds_status ds_comm_all_to_all(ds_comm* comm, const void* in, size_t block_size, void* out);
/** Copies data_size bytes from rank `root` to all ranks. {comm.broadcast} Collective. */
DS_API ds_status ds_comm_broadcast(ds_comm* comm, void* data, size_t data_size, int32_t root);
/** How elements of several ranks are combined into one. */
typedef enum ds_reduce_op {
  DS_REDUCE_OP_SUM = 0,
  DS_REDUCE_OP_MEAN = 1, /**< the sum divided by the number of ranks; floating-point types only */
  DS_REDUCE_OP_MAX = 2,  /**< if any rank has NaN, the maximum is NaN, and so is the minimum */
  DS_REDUCE_OP_MIN = 3,
  DS_REDUCE_OP_FORCE_INT32 = 0x7FFFFFFF
} ds_reduce_op;

/** Sends data_size bytes to rank `to`, which calls ds_comm_receive with the same size. {comm.send}
 * If two ranks send to each other at once, both get DS_ERROR_COMM. {comm.send.both} */
DS_API ds_status ds_comm_send(ds_comm* comm, const void* data, size_t data_size, int32_t to);
/** Receives data_size bytes that rank `from` sends. If the sizes differ, both ranks get
 * DS_ERROR_COMM. {comm.receive.size} */
DS_API ds_status ds_comm_receive(ds_comm* comm, void* data, size_t data_size, int32_t from);
/** Splits the group: the ranks that give the same color form a group, ordered by key, then by rank.
 * {comm.split} Collective. An abort of this group also ends the groups split from it.
 * {comm.split.abort} Over a plugin and over callbacks, whatever ends one of these groups ends all
 * of them.
 * @param color negative: this rank joins no group, and *out is NULL  @param out [out] [owned] */
DS_API ds_status ds_comm_split(ds_comm* comm, int32_t color, int32_t key, ds_comm** out);
/** Returns when every rank has called it. {comm.barrier} Collective. */
DS_API ds_status ds_comm_barrier(ds_comm* comm);
/** Ends the current and every later collective of all ranks with DS_ERROR_COMM and this reason.
 * {comm.abort} [threadsafe] */
DS_API ds_status ds_comm_abort(ds_comm* comm, const char* reason);
/** The operations of ds_comm_submit: the collectives above, and three in which the root gives or
 * gets all data. */
typedef enum ds_comm_op {
  DS_COMM_OP_ALL_REDUCE = 0,
  DS_COMM_OP_ALL_GATHER = 1,
  DS_COMM_OP_REDUCE_SCATTER = 2,
  DS_COMM_OP_ALL_TO_ALL = 3,
  DS_COMM_OP_BROADCAST = 4,
  DS_COMM_OP_BARRIER = 5,
  DS_COMM_OP_REDUCE = 6,  /**< an all_reduce whose result only the root gets */
  DS_COMM_OP_GATHER = 7,  /**< an all_gather whose result only the root gets */
  DS_COMM_OP_SCATTER = 8, /**< block r of the root's buffer goes to rank r */
  DS_COMM_OP_FORCE_INT32 = 0x7FFFFFFF
} ds_comm_op;

/** A collective as data: any operation, over a list of buffers or over blocks of unequal size. All
 * members except `ins` and `outs` are the same on all ranks. */
typedef struct ds_comm_call {
  size_t struct_size;
  ds_comm_op op;
  ds_dtype dtype; /**< type of the elements that counts and blocks count; default DS_DTYPE_U8 */
  ds_reduce_op reduce; /**< for all_reduce, reduce_scatter and reduce */
  int32_t root;        /**< for broadcast, reduce, gather and scatter */
  /** buffers_count buffers; [nullable] for a broadcast, and for a scatter except at the root. */
  const void* const* ins;
  /** buffers_count buffers; those of a broadcast hold its data; [nullable] for reduce and gather
   * except at the root. */
  void* const* outs;
  /** buffers_count numbers: the elements of each buffer, as the call of that name counts them; all
   * elements for reduce, one block for gather and scatter; [nullable] with blocks. */
  const size_t* counts;
  size_t buffers_count; /**< default 1; a barrier ignores it */
  /** [nullable] For all_gather, reduce_scatter and all_to_all of one buffer: blocks[r] elements
   * belong to rank r, one block after the other; an all_to_all sends them. */
  const size_t* blocks;
  /** [nullable] For an all_to_all with blocks: the elements that come from rank r. The blocks and
   * out_blocks of an all_to_all are those of this rank. */
  const size_t* out_blocks;
  size_t blocks_count; /**< length of blocks and out_blocks: the number of ranks */
} ds_comm_call;

/** Fills in the defaults. @param struct_size sizeof(ds_comm_call) of the caller */
DS_API ds_status ds_comm_call_init(ds_comm_call* call, size_t struct_size);

/** Runs a collective, or starts it. A list is one collective over its buffers, and each buffer gets
 * the bits of a call of its own. {comm.submit.list} A list is faster than single calls if its
 * buffers are small, except that reduce, gather, scatter and all_to_all run one buffer after the
 * other. Collective.
 *
 * With out_work, the call starts the collective and returns; a thread of the comm runs it after
 * everything that was started before. {comm.submit.start} Started collectives run in the order of
 * these calls. A direct collective on this comm, or on a comm related to it by a split, first waits
 * for them. {comm.submit.order} ds_comm_abort ends them like any other collective.
 * {comm.submit.abort} A rank that leaves the group by a destroy gives up its started collectives
 * that have not ended. {comm.submit.leave}
 *
 * The buffers are lent to the comm until ds_work_wait has returned, a later direct collective has
 * returned DS_OK, or the rank has left the group; then they are yours again. {comm.submit.loan}
 * The loan does not end with ds_comm_abort, with another started collective or with a call that
 * only tells facts about the comm. The call struct and its lists are copied. {comm.submit.copied}
 * @param out_work [out] [nullable] [owned] NULL: the call returns when the collective has ended.
 * {comm.submit.direct}
 * @return DS_ERROR_INVALID_ARGUMENT if the call contradicts itself; nothing is started then, and
 * the comm stays usable. {comm.submit.refused} DS_ERROR_COMM if a rank of an all_to_all sends
 * another number of elements than its peer expects; the message names both. {comm.submit.unequal}
 */
DS_API ds_status ds_comm_submit(ds_comm* comm, const ds_comm_call* call, ds_work** out_work);
/** Waits until a started collective has ended and returns its status. {comm.wait} You may call it
 * again. {comm.wait.again} [threadsafe] */
DS_API ds_status ds_work_wait(ds_work* work);
/** Tells whether a started collective has ended, well or not, without waiting. {comm.test}
 * @param out_done [out] 0 or 1  [threadsafe] */
DS_API ds_status ds_work_test(const ds_work* work, int32_t* out_done);
/** Destroys the handle; the collective goes on. {comm.work_destroy} @param work [nullable] */
DS_API void ds_work_destroy(ds_work* work);

/** Starts to time the collectives of this comm, and of comms that are split from it afterwards.
 * Collective: call it between the same collectives on all ranks. Every 1024th collective then also
 * compares times between ranks. */
DS_API ds_status ds_comm_log_start(ds_comm* comm);
/** Writes a table of what this rank's collectives have cost, by operation and size: calls, bytes,
 * time, algorithm and bus bandwidth, and time spent waiting for the slowest rank
 * (docs/reference/communication.md). Collective.
 * @return DS_ERROR_STATE before ds_comm_log_start. {comm.log.state} */
DS_API ds_status ds_comm_log(ds_comm* comm, ds_format format, char** out_text);
/** Lists the last 64 operations of this rank on this comm and on comms related to it by a split,
 * oldest first, each with its state (running, done or failed). If such a group ends with an error,
 * the text is also saved as rank_N.txt in the folder that the environment variable DS_FLIGHT_DIR
 * names. [threadsafe] */
DS_API ds_status ds_comm_flight_record(const ds_comm* comm, ds_format format, char** out_text);
/** Leaves the group. @param comm [nullable] */
DS_API void ds_comm_destroy(ds_comm* comm);

/* ---------------------------------------------------------------- stream */

/** Creates a stream on the device of an engine. The stream goes on working, and you may destroy it,
 * after the engine is gone. {stream.create.outlives} If the engine fails in a step, its streams are
 * unusable, too, and calls with them return DS_ERROR_POISONED. {stream.create.poisoned}
 * @param out [out] [owned]
 * @return DS_ERROR_UNSUPPORTED if the memory of the device is the host's, where every stream is
 * NULL. {stream.create.cpu} */
DS_API ds_status ds_stream_create(ds_engine* engine, ds_stream** out);
/** Returns when the stream has done all the work that it has been given. {stream.synchronize} */
DS_API ds_status ds_stream_synchronize(ds_stream* stream);
/** Finishes the work of the stream and destroys it. @param stream [nullable] */
DS_API void ds_stream_destroy(ds_stream* stream);

/* ---------------------------------------------------------------- tensor */

/** Creates a tensor of up to 8 dimensions, in memory of the host or, with a stream, of the stream's
 * device.
 * @param strides [nullable] distances between neighbours in each dimension, in elements and of any
 * sign; data is then the element at index 0. NULL: compact and row-major
 * @param data [nullable] borrowed memory; keep it until the tensor is destroyed. NULL: the tensor
 * has its own memory, compact and filled with zeros
 * @param stream [nullable] names the device  @param out [out] [owned] */
DS_API ds_status ds_tensor_create(ds_dtype dtype, const int64_t* dims, size_t dims_count,
                                  const int64_t* strides, void* data, ds_stream* stream,
                                  ds_tensor** out);
/** Creates a tensor from a DLPack tensor of f32, f64, bf16, f16, i32, i64 or u8 with any strides,
 * without a copy. Its memory is on the CPU or, with a stream, on the CPU or the stream's device.
 * Its deleter runs when the tensor is destroyed and streams that work with it have been
 * synchronized or destroyed; after an error it still belongs to you. {tensor.from_dlpack.owner}
 * Give exactly one of managed and versioned.
 * @param managed [nullable]
 * @param versioned [nullable] a tensor of DLPack 1.x. If it is read-only, a copy to it is refused.
 * {tensor.from_dlpack.readonly}
 * @param stream [nullable]  @param out [out] [owned] */
DS_API ds_status ds_tensor_from_dlpack(struct DLManagedTensor* managed,
                                       struct DLManagedTensorVersioned* versioned,
                                       ds_stream* stream, ds_tensor** out);
/** Creates a DLPack tensor over the same memory, without a copy. It keeps the memory alive after
 * ds_tensor_destroy. {tensor.to_dlpack.alive} Give exactly one of out and out_versioned. A tensor
 * on "cuda:N" gets device type 2 (kDLCUDA) and number N, one on another device type 12 (kDLExtDev).
 * @param out [out] [nullable] the consumer calls its deleter. A tensor that is read-only is
 * refused. {tensor.to_dlpack.readonly}
 * @param out_versioned [out] [nullable] the same in the form of DLPack 1.x */
DS_API ds_status ds_tensor_to_dlpack(ds_tensor* tensor, struct DLManagedTensor** out,
                                     struct DLManagedTensorVersioned** out_versioned);
/** Describes a tensor: element type, dimensions and strides (up to dims_size of each are written),
 * device ("cpu" or another name of the configuration's key `device`) and address. All outputs
 * [nullable].
 * @param out_strides [out] in elements  @param out_device [out] lives as long as the process
 * @param out_data [out] [borrowed: tensor] an address for the device; the host can use it on "cpu"
 * only */
DS_API ds_status ds_tensor_info(const ds_tensor* tensor, ds_dtype* out_dtype, int64_t* out_dims,
                                int64_t* out_strides, size_t dims_size, size_t* out_dims_count,
                                const char** out_device, void** out_data);
/** Copies all elements between tensors of one element type and shape, whatever their strides and
 * devices. The tensors may overlap if both are compact. {tensor.copy.overlap} A copy between two
 * devices is refused. {tensor.copy.devices}
 * @param stream [nullable] of the device that one of them is on */
DS_API ds_status ds_tensor_copy(ds_tensor* to, const ds_tensor* from, ds_stream* stream);
/** Destroys the tensor. @param tensor [nullable] */
DS_API void ds_tensor_destroy(ds_tensor* tensor);

/* ---------------------------------------------------------------- graph */

/** Creates an empty model graph. The calls below identify values by numbers. docs/reference/ops.md
 * lists the operations.
 * @param bound largest number of rows n of one micro-step  @param out [out] [owned] */
DS_API ds_status ds_graph_create(const char* name, int64_t bound, ds_graph** out);
/** Creates the graph that the `model` section of a configuration describes. @param config JSON text
 * @param size ranks that will train it: the micro-batch, and with it the bound, can depend on it
 * @param out [out] [owned] */
DS_API ds_status ds_graph_from_config(const char* config, int32_t size, ds_graph** out);
/** Reads the text form that ds_graph_print writes. @param out [out] [owned] */
DS_API ds_status ds_graph_parse(const char* text, ds_graph** out);
/** Writes the text form of a graph. */
DS_API ds_status ds_graph_print(const ds_graph* graph, char** out_text);
/** Adds an input. At most one dimension is -1, which means n, the rows of a micro-step. In an
 * engine whose compute type is bf16 or f16, inputs declared as f32 have the compute type, unless
 * all operations read them as an operand of type A (docs/reference/ops.md).
 * @param out [out] its value */
DS_API ds_status ds_graph_input(ds_graph* graph, const char* name, ds_dtype dtype,
                                const int64_t* dims, size_t dims_count, int32_t* out);
/** Adds an f32 parameter. A parameter with a dimension of 0 is empty; no operation accepts it.
 * @param init "zeros", "ones", "normal" or "uniform"
 * @param scale standard deviation of "normal", or largest magnitude of "uniform"
 * @param out [out] its value */
DS_API ds_status ds_graph_param(ds_graph* graph, const char* name, const int64_t* dims,
                                size_t dims_count, const char* init, double scale, int32_t* out);
/** Describes the operations that ds_graph_op knows, as JSON: operands, results and attributes with
 * their types, defaults and meaning. docs/reference/ops.md names the members. [threadsafe] */
DS_API ds_status ds_op_schema(char** out_text);
/** Adds an operation. @param op name in docs/reference/ops.md  @param inputs values
 * @param attrs [nullable] JSON object, for example {"eps": 1e-5}
 * @param out [out] its first output; further outputs are the numbers after it */
DS_API ds_status ds_graph_op(ds_graph* graph, const char* op, const int32_t* inputs,
                             size_t inputs_count, const char* attrs, int32_t* out);
/** Computes the outputs of a custom operation: writes every element of `outputs`, whose contents
 * are undefined before. Tensors have as many rows as the micro-step. Floating inputs have the
 * compute type of the engine's configuration. Tensors and their memory are [borrowed: call]. Any
 * status but DS_OK ends the step. */
typedef ds_status ds_custom_forward_fn(const ds_tensor* const* inputs, ds_tensor* const* outputs,
                                       void* user_data);
/** Computes the gradients of a custom operation: writes every element of each tensor of
 * `input_grads`, which have the types and shapes of the inputs. output_grads[k] is NULL if the loss
 * does not depend on output k, and input_grads[i] is NULL if no gradient of input i is needed.
 * Tensors and status are as in ds_custom_forward_fn. */
typedef ds_status ds_custom_backward_fn(const ds_tensor* const* inputs,
                                        const ds_tensor* const* outputs,
                                        const ds_tensor* const* output_grads,
                                        ds_tensor* const* input_grads, void* user_data);
/** Frees the user_data of a custom operation. */
typedef void ds_custom_destroy_fn(void* user_data);

/** An operation whose work is done by callbacks. It has no defaults and no _init function: fill it
 * with zeros, set struct_size, then the members. */
typedef struct ds_custom_op {
  size_t struct_size;
  ds_custom_forward_fn* forward;
  ds_custom_backward_fn* backward; /**< [nullable] NULL: the operation is not differentiable */
  void* user_data;                 /**< [nullable] passed to the callbacks */
  ds_custom_destroy_fn* destroy;   /**< [nullable] called with user_data, see ds_graph_custom_op */
  size_t outputs_count;            /**< 1 to 64 */
  /** Type of each output. DS_DTYPE_NONE: the type of the first floating input, in an engine the
   * compute type. */
  const ds_dtype* dtypes;
  const size_t* dims_counts; /**< for each output, how many of `dims` belong to it, at most 4 */
  const int64_t*
      dims; /**< [nullable] dimensions of output 0, then of output 1 and so on; -1 is n */
} ds_custom_op;

/** Adds a custom operation. Its callbacks run on the thread that is inside a call of the engine, in
 * training, evaluation and inference, and again when a skipped step looks for its first bad tensor;
 * a rank without samples (ds_engine_join) does not call them. Calls with that engine return
 * DS_ERROR_STATE inside a callback. {graph.custom_inside} Let callbacks compute the same on all
 * ranks.
 *
 * If a callback fails, the call returns DS_ERROR_USER on this rank, the others get DS_ERROR_COMM as
 * soon as they communicate, and the engines are poisoned. {graph.custom_error}
 *
 * The graph, its copies in engines and plans share user_data. `destroy` is called once, inside the
 * destroy call that ends the last of them. An operation that is refused leaves user_data to you.
 * {graph.custom_refused} The text form shows the operation, but ds_graph_parse refuses it.
 * {graph.custom_text} On a device other than "cpu", whose threads are not yours, engines and plans
 * return DS_ERROR_UNSUPPORTED. {graph.custom_device}
 * @param name the name of the operation in texts and messages  @param op copied  @param inputs up
 * to 64 values
 * @param out [out] its first output; further outputs are the numbers after it
 * @return Engines and plans return DS_ERROR_INVALID_ARGUMENT if a gradient has to pass an operation
 * without `backward`. {graph.custom_backward} */
DS_API ds_status ds_graph_custom_op(ds_graph* graph, const char* name, const ds_custom_op* op,
                                    const int32_t* inputs, size_t inputs_count, int32_t* out);
/** Tells the element type and the dimensions of a value. At most dims_size dimensions are written;
 * -1 is n. All outputs are [nullable]. */
DS_API ds_status ds_graph_value_info(const ds_graph* graph, int32_t value, ds_dtype* out_dtype,
                                     int64_t* out_dims, size_t dims_size, size_t* out_dims_count);
/** Makes a value the next output. The value may also be an input or a parameter.
 * {graph.output_of_any} Output 0 of a graph that is trained is its scalar loss, and ds_infer
 * returns output 1. {graph.output_inferred}
 * @param name unlike the names of the other outputs */
DS_API ds_status ds_graph_output(ds_graph* graph, const char* name, int32_t value);
/** Finds a value by the name of an output, or else by the name of an input, a parameter or a
 * result.
 * @param out [out] its value  @return DS_ERROR_NOT_FOUND if there is none; the message names
 * the nearest name. {graph.find} */
DS_API ds_status ds_graph_find(const ds_graph* graph, const char* name, int32_t* out);
/** Appends the gradients of scalar `loss` by `values` (parameters, inputs or intermediate results),
 * once per graph. Training does not need this call, because an engine differentiates its copy by
 * itself; a differentiated graph is for printing and study.
 * @param out [out] values_count gradients, -1 where loss does not depend on the value */
DS_API ds_status ds_graph_grad(ds_graph* graph, int32_t loss, const int32_t* values,
                               size_t values_count, int32_t* out);
/** Destroys the graph. @param graph [nullable] */
DS_API void ds_graph_destroy(ds_graph* graph);

/* ---------------------------------------------------------------- plan */

/** Compiles the plan that an engine with this configuration and graph has on one rank of a group,
 * or a run of this configuration if graph is NULL. It can be done on any machine: the call neither
 * allocates the memory of the plan nor communicates. A plan that exceeds memory_budget is not an
 * error of the call; its report says so.
 * @param config JSON text  @param graph [nullable] NULL: the configuration's model  @param out
 * [out] [owned]
 */
DS_API ds_status ds_plan_create(const char* config, const ds_graph* graph, int32_t rank,
                                int32_t size, ds_plan** out);
/** Reports whether the plan fits this machine and memory_budget, and what would make it fit;
 * parameters, tokens per step, the largest tensors, bytes per tier and kind, instructions per
 * queue, and collectives. The first line of the text begins with "fits: " or "does not fit: ". */
DS_API ds_status ds_plan_report(const ds_plan* plan, ds_format format, char** out_text);
/** Prints the step program in its text form. */
DS_API ds_status ds_plan_print(const ds_plan* plan, char** out_text);
/** Draws an SVG document: what each queue of a rank does during a step, above the bytes in use, for
 * 1 to 16 plans side by side on the same scales. Order and memory are those of the plan. The times
 * are those of the machine that plans assume, which the picture names. */
DS_API ds_status ds_plan_picture(const ds_plan* const* plans, size_t count, char** out_text);
/** Prints the certificate of a plan: the programs of all ranks as text, and what they claim about
 * memory, lifetimes, traffic and the order of collectives. It is meant for a checker that shares no
 * code with the compiler (docs/concepts/certificate.md).
 * @param plans one for each rank, in the order of ranks */
DS_API ds_status ds_plan_certificate(const ds_plan* const* plans, size_t count, char** out_text);
/** Destroys the plan. @param plan [nullable] */
DS_API void ds_plan_destroy(ds_plan* plan);

/* ---------------------------------------------------------------- engine */

/** Sets initial values: `count` elements of a flattened parameter, from element `first` on. When
 * it is called, data holds the values that the graph's init has drawn, or zeros in delegate mode;
 * elements that you leave alone keep them. {engine.init.values} It is called only for elements
 * whose states this rank updates, in any number of parts. {engine.init.local} Give the same values
 * on all ranks that have the same elements. If it returns another status than DS_OK, the call that
 * needs the values ends with DS_ERROR_USER on all ranks. {engine.init.fails} */
typedef ds_status ds_init_fn(int32_t param, const char* name, int64_t first, float* data,
                             size_t count, void* user_data);

/** Consecutive elements of one parameter that a ds_update_fn updates. [borrowed: call] */
typedef struct ds_update {
  size_t struct_size;
  int32_t param;        /**< number of the parameter */
  int64_t first;        /**< the first element, counted in the flattened parameter */
  size_t count;         /**< elements of each array below */
  float* values;        /**< the f32 masters, to be changed in place */
  const float* grads;   /**< mean gradients over micro-steps and ranks, after clipping */
  float* const* states; /**< the elements of each state, to be changed in place; all 0 at first */
  size_t states_count;  /**< as many as optimizer.params.states has names, in that order */
  int64_t update;       /**< number of this update of the parameter, from 1 on */
  double lr;            /**< learning rate of the parameter's group, like the numbers below */
  double weight_decay;
  double beta1;
  double beta2;
  double eps;
  double momentum;
} ds_update;

/** Updates elements: the optimizer of "optimizer": {"type": "Callback"}. Let each element's update
 * depend on nothing but its value, gradient, states and the numbers of the struct, and compute the
 * same on all ranks: then stages, tiers and rank layouts have the same bits. {update.bits} It is
 * called for the elements whose states this rank keeps, in any number of parts, on the thread that
 * is inside ds_step or ds_train_batch. {update.thread} A skipped step does not call it.
 * {update.skipped} If it returns another status than DS_OK, the call ends with DS_ERROR_USER on
 * this rank and the engines of all ranks are poisoned, because some elements are updated and others
 * are not. {update.fails} */
typedef ds_status ds_update_fn(const ds_update* update, void* user_data);

/** The resources of an engine. Training options are JSON. */
typedef struct ds_engine_options {
  size_t struct_size;
  int32_t threads; /**< compute threads of this rank; 0: cores divided by the ranks of this host */
  int32_t trace;   /**< 1: record spans for ds_engine_trace */
  /** [nullable] Called inside ds_engine_create, in delegate mode inside ds_engine_start. */
  ds_init_fn* init;
  void* init_user_data; /**< [nullable] */
  /** [nullable] The update of optimizer.type "Callback", which needs it; every other type refuses
   * it. {engine.update.needed} It needs device "cpu". {engine.update.device} */
  ds_update_fn* update;
  void* update_user_data; /**< [nullable] */
} ds_engine_options;

/** Fills in the defaults. @param struct_size sizeof(ds_engine_options) of the caller */
DS_API ds_status ds_engine_options_init(ds_engine_options* options, size_t struct_size);

/** Creates a training engine. Plans its memory, checks the plan against memory_budget and allocates
 * the memory (in delegate mode, ds_engine_start does this). Collective.
 * @param comm [nullable] NULL: one rank. The engine uses it until it is destroyed.
 * @param config JSON text (docs/reference/config.md)
 * @param graph [nullable] copied; NULL: delegate mode, in which ds_engine_param_add adds the
 * parameters
 * @param options [nullable]  @param out [out] [owned]
 * @return DS_ERROR_CONFIG if the configuration is wrong, or if ranks have different ones.
 * {engine.create.config} DS_ERROR_OUT_OF_MEMORY, with a table in the message, if a budget is too
 * small. {engine.create.budget} */
DS_API ds_status ds_engine_create(ds_comm* comm, const char* config, const ds_graph* graph,
                                  const ds_engine_options* options, ds_engine** out);

/** Trains one step. Inputs are in graph order, each with gradient_accumulation_steps micro-batches
 * one after the other in the first dimension; give NULL for an input that the loss does not depend
 * on. They lie on the host, or compact on the engine's device. Collective.
 *
 * A step whose loss or gradients are not finite is skipped: the call returns DS_OK, parameters and
 * states stay as they were, ds_engine_last_step says so, and ds_engine_skip_reason names the first
 * such tensor. {engine.train.skipped} With loss_average "tokens", so is a step without any target.
 * @param stream [nullable]  @param out_loss [out] [nullable] mean loss over all ranks, as the
 * configuration's loss_average has it */
DS_API ds_status ds_train_batch(ds_engine* engine, const ds_tensor* const* inputs,
                                size_t inputs_count, ds_stream* stream, double* out_loss);
/** For a rank that has no data left in this epoch: takes part in the steps of the other ranks,
 * without samples of its own, until all ranks have called it. After that, all ranks can train on
 * data again. {engine.join} Loss and gradient of such a step are means over the samples, or
 * targets, of the ranks that have data. {engine.join.means} In its first such step, a rank must
 * have the same numbers (ds_engine_set) as the other ranks, set before its call, or all ranks get
 * DS_ERROR_CONFIG; in later steps it uses the numbers that the others set. {engine.join.set} Native
 * mode. Collective with the steps of the other ranks and with their call of this function.
 * @param out_steps [out] [nullable] steps that this rank took part in, including skipped ones */
DS_API ds_status ds_engine_join(ds_engine* engine, int64_t* out_steps);
/** A step in pieces: ds_forward and ds_backward gradient_accumulation_steps times, then ds_step. It
 * has the same bits as ds_train_batch. {engine.pieces} Any other order of these calls is
 * DS_ERROR_STATE. {engine.pieces.order} Collective. In delegate mode ds_forward is not used, and
 * ds_backward ends a micro-step: the gradient of a parameter that was not handed over counts as
 * zero. {engine.pieces.missing}
 * @param stream [nullable]  @param out_loss [out] [nullable] this rank's loss of this micro-batch
 */
DS_API ds_status ds_forward(ds_engine* engine, const ds_tensor* const* inputs, size_t inputs_count,
                            ds_stream* stream, double* out_loss);
DS_API ds_status ds_backward(ds_engine* engine);
DS_API ds_status ds_step(ds_engine* engine);
/** Computes the loss of one micro-batch without dropout, as the mean over ranks; with loss_average
 * "tokens" over the targets of all ranks, 0 if there are none. With adapters, it runs with the one
 * that ds_engine_set chose, as ds_infer does. Collective.
 * @param stream [nullable] */
DS_API ds_status ds_eval_batch(ds_engine* engine, const ds_tensor* const* inputs,
                               size_t inputs_count, ds_stream* stream, double* out_loss);
/** Computes output 1 of the graph for one micro-batch, as f32; with the key "inferred" the loss of
 * each target, -log p. Collective.
 * @param inputs in graph order; NULL for one that it does not depend on  @param stream [nullable]
 * @param out [out] [owned] on the host, or with a stream on the engine's device */
DS_API ds_status ds_infer(ds_engine* engine, const ds_tensor* const* inputs, size_t inputs_count,
                          ds_stream* stream, ds_tensor** out);

/** Delegate mode: registers a parameter. Parameters are numbered in the order of these calls. A
 * parameter with a dimension of 0 is empty. The values are zeros, or those that options.init sets.
 * @param dtype the type of its views and gradients: DS_DTYPE_NONE for the compute type of the
 * configuration, or DS_DTYPE_F32, for example for the router of a model in bf16.
 * {delegate.add.dtype}
 * @param out [out] number of the parameter
 * @return DS_ERROR_STATE after ds_engine_start. {delegate.add.state} */
DS_API ds_status ds_engine_param_add(ds_engine* engine, const char* name, ds_dtype dtype,
                                     const int64_t* dims, size_t dims_count, int32_t* out);
/** Delegate mode: ends the registration, plans the memory, checks the plan against memory_budget
 * and allocates the memory. Call it once, before every call below and all calls that read or change
 * parameters, states or checkpoints; until then these return DS_ERROR_STATE. {delegate.start.first}
 * Collective, with the same parameters on all ranks; otherwise all ranks get DS_ERROR_CONFIG.
 * {delegate.start.same} After DS_ERROR_USER the engine is poisoned. {delegate.start.user}
 * @return DS_ERROR_OUT_OF_MEMORY, with a table in the message, if a budget is too small.
 * {delegate.start.budget} */
DS_API ds_status ds_engine_start(ds_engine* engine);
/** Leases whole parameters in the compute type. A lease ends when the parameter has been released
 * as often as gathered. Collective: all ranks make the calls of delegate mode in the same order
 * with the same parameters. If the order differs between ranks, all of them get DS_ERROR_COMM, in
 * ds_step at the latest and before it updates anything; no rank hangs. {delegate.order.differs} The
 * order may change at any call and from step to step. {delegate.order.changes} A step is fastest if
 * it repeats the order of the one before.
 *
 * A step begins with its first gradient or ds_backward, so the leases before that can just as well
 * be those of an evaluation. Until then you may read and save parameters at any time, and load,
 * write, freeze and refresh them while none is leased. {delegate.between}
 * @param stream [nullable] its work from here on sees the values */
DS_API ds_status ds_gather_params(ds_engine* engine, const int32_t* params, size_t params_count,
                                  ds_stream* stream);
/** Returns a tensor over the leased values, which stay at the same address until the last release
 * of the parameter. {delegate.view.stays}
 *
 * A parameter that no rank partitions (all at ZeRO stages 0 to 2, small ones at stage 3) needs no
 * lease: a view of the engine's own memory shows its values at one address until the engine ends,
 * after every step, load, write and refresh. {delegate.view.lasting} On a GPU,
 * get such views anew after ds_engine_freeze. Use ds_engine_write to change the parameter: what you
 * write to a view reaches no master.
 * @param stream [nullable] NULL: a tensor on the host, which is a copy if the memory of the device
 * is not the host's; otherwise the device's own tensor, for work of this stream
 * @param out [out] [owned] tensor whose memory is [borrowed: lease]. After the lease, and even
 * after the engine, you may still read it, but its values are undefined. {delegate.view.later} */
DS_API ds_status ds_engine_param_view(ds_engine* engine, int32_t param, ds_stream* stream,
                                      ds_tensor** out);
/** Ends leases, at any time before ds_step, also after the last ds_backward. Collective.
 * @param stream [nullable] its work up to here still sees the values
 * @return DS_ERROR_STATE if a parameter is released more often than it has leases; nothing changes
 * then. {delegate.release.often} */
DS_API ds_status ds_release_params(ds_engine* engine, const int32_t* params, size_t params_count,
                                   ds_stream* stream);
/** Delegate mode, between steps and without leases: announces that what follows is an evaluation
 * (1), or training again (0). An engine begins with training. Leases of an evaluation do not count
 * as the order of a step, and gradients, ds_backward and ds_step return DS_ERROR_STATE.
 * {delegate.evaluate} An evaluation that you do not announce costs prefetches, but never changes
 * results. {delegate.evaluate.unannounced} Collective. */
DS_API ds_status ds_engine_evaluate(ds_engine* engine, int32_t on);
/** Delegate mode, without leases: forgets the gradients and micro-steps of the current step, for
 * example after an error in the host's backward pass. The next gradient begins the step anew, as if
 * the forgotten calls had not been made. {delegate.drop} Between steps it does nothing.
 * {delegate.drop.idle} Collective. */
DS_API ds_status ds_engine_drop_step(ds_engine* engine);
/** Gives the place for this rank's gradient of a parameter in the running micro-step, in the
 * compute type. Write the gradient there and hand the tensor to ds_grad_ready, which then copies
 * nothing. The place has arbitrary values at first, and it is yours until ds_grad_ready or
 * ds_backward. Like a gradient, this call may begin a step; called again, it gives the same
 * place. {delegate.grad_view} Collective like the other calls of delegate mode.
 * @param stream [nullable] NULL: a place on the host, from which ds_grad_ready copies if the memory
 * of the device is not the host's; otherwise the device's own place, for work of this stream
 * @param out [out] [owned] tensor whose memory is like that of ds_engine_param_view */
DS_API ds_status ds_engine_grad_view(ds_engine* engine, int32_t param, ds_stream* stream,
                                     ds_tensor** out);
/** Hands over this rank's gradient of a parameter for the running micro-step, once per parameter
 * and micro-step and in any order. {delegate.grad.once} It is copied: from the host in the compute
 * type or f32, or from the engine's device, compact and in the compute type. Collective: either
 * all ranks hand over a gradient of a parameter, or none does; hand over zeros if only some ranks
 * have one. @param stream [nullable] */
DS_API ds_status ds_grad_ready(ds_engine* engine, int32_t param, const ds_tensor* grad,
                               ds_stream* stream);
/** Hands over the gradients of several parameters, as ds_grad_ready does for each in this order.
 * {delegate.grads} After an error, those before the one that the message names have been handed
 * over.
 * @param grads params_count tensors  @param stream [nullable] */
DS_API ds_status ds_grads_ready(ds_engine* engine, const int32_t* params, size_t params_count,
                                const ds_tensor* const* grads, ds_stream* stream);

/** Returns the number of parameters, or -1 if engine is NULL. {engine.param_count} */
DS_API int32_t ds_engine_param_count(const ds_engine* engine);
/** Finds the number of a parameter by its name.
 * @return DS_ERROR_NOT_FOUND if there is none; the message names the one with the nearest name.
 * {engine.param_find} */
DS_API ds_status ds_engine_param_find(const ds_engine* engine, const char* name, int32_t* out);
/** Gives the name and shape of a parameter; up to dims_size dimensions are written. All outputs
 * [nullable].
 * @param out_name [out] [borrowed: engine] */
DS_API ds_status ds_engine_param_info(const ds_engine* engine, int32_t param, const char** out_name,
                                      int64_t* out_dims, size_t dims_size, size_t* out_dims_count);
/** Enumerates the names of the states that ds_engine_read and ds_engine_write access. Index 0 is
 * "master". The states of the optimizer follow under PyTorch's names ("exp_avg" and "exp_avg_sq"
 * for Adam and AdamW, "momentum_buffer" for SGD), then "param" and "grad". For any other index, and
 * if engine is NULL, it returns NULL. {engine.state_name} [borrowed: engine]
 *
 * "param" is the compute copy; writing it also writes its master. {engine.state.param} "grad" is
 * the mean gradient over all samples of the step, before clipping. You may read it at any time,
 * except while a step has only some of its gradients; a frozen parameter has none.
 * {engine.state.grad_read} You may write it between the last backward of a step and ds_step; on
 * nvme that is DS_ERROR_UNSUPPORTED. {engine.state.grad_write} Clipping and the update use what you
 * wrote, and NaN or infinity skips the step. {engine.state.grad_used} */
DS_API const char* ds_engine_state_name(const ds_engine* engine, int32_t index);
/** Copies a whole tensor to data, as f32. Every rank gets all elements. Collective. */
DS_API ds_status ds_engine_read(ds_engine* engine, int32_t param, const char* state, float* data,
                                size_t data_count);
/** Replaces a whole tensor; the compute copy follows its master. {engine.write} Give the same
 * values on all ranks. Collective. */
DS_API ds_status ds_engine_write(ds_engine* engine, int32_t param, const char* state,
                                 const float* data, size_t data_count);
/** Tells which elements of a flattened parameter have states that this rank updates: *out_count
 * elements from *out_first on, where a count of 0 means none. All ranks together have the whole
 * parameter, once per copy. {engine.local_range} The call does not communicate.
 * @param out_first [out] @param out_count [out] */
DS_API ds_status ds_engine_local_range(ds_engine* engine, int32_t param, int64_t* out_first,
                                       int64_t* out_count);
/** Like ds_engine_read and ds_engine_write, but for the elements of ds_engine_local_range only and
 * without communication. data_count is the count of ds_engine_local_range. Give the same values on
 * all ranks that have the same elements.
 *
 * After a write of "param" or "master", even of no elements, the next step, evaluation, inference
 * or read of "param" returns DS_ERROR_STATE on this rank until ds_engine_refresh was called.
 * {engine.write_local.refresh} Write on all ranks, even if data_count is 0, and then refresh: a
 * rank that has written nothing would begin the step and wait for the others. */
DS_API ds_status ds_engine_read_local(ds_engine* engine, int32_t param, const char* state,
                                      float* data, size_t data_count);
DS_API ds_status ds_engine_write_local(ds_engine* engine, int32_t param, const char* state,
                                       const float* data, size_t data_count);
/** Computes all compute copies from their masters, including those of frozen parameters.
 * Collective.
 */
DS_API ds_status ds_engine_refresh(ds_engine* engine);
/** Between steps: from the next step on, the parameters are not trained (frozen 1), or trained
 * again (0). Parameters that have optimizer states keep them. A parameter that is trained for the
 * first time starts with zero states. The bias correction of each parameter counts its own updates,
 * as in PyTorch. {engine.freeze.states} Once the variance of a 1-bit optimizer is frozen, a
 * parameter without an update, whose variance would be 0, cannot be trained.
 * {engine.freeze.variance} The configuration's frozen_parameters says which parameters begin
 * frozen. The call compiles the step again, and it is refused while a parameter is leased.
 * {engine.freeze.leased} Collective, with the same arguments on all ranks. If the arguments of one
 * rank are wrong or different, all ranks get an error, and nothing changes. {engine.freeze.agree}
 */
DS_API ds_status ds_engine_freeze(ds_engine* engine, const int32_t* params, size_t params_count,
                                  int32_t frozen);
/** Between steps: from the next step on, these parameters form a group whose updates have their own
 * values; each leaves the group that it was in. Group 0 has all parameters that are in no other
 * group. Groups 1 and up are those of the configuration (optimizer.param_groups), then those of
 * this call. Checkpoints contain no groups: an engine that loads one keeps its own. The call
 * compiles the step again, and it is refused while a parameter is leased. {engine.group_add.leased}
 * Collective, with the same arguments on all ranks. If the arguments of one rank are wrong or
 * different, all ranks get an error, and nothing changes. {engine.group_add.agree}
 * @param options [nullable] JSON: "lr", "weight_decay", with Adam and AdamW "betas" (two numbers)
 * and "eps", with SGD and Muon "momentum", with Muon "muon_lr" and "adam_lr", which override "lr";
 * the default of each is the configuration's. A schedule begins from the group's lr; beside one
 * that names the rate of every group (warmup_max_lr, cycle_min_lr, lr_range_test_min_lr) a group's
 * lr is refused. {engine.group_add.rate}
 * @param out [out] number of the group */
DS_API ds_status ds_engine_group_add(ds_engine* engine, const int32_t* params, size_t params_count,
                                     const char* options, int32_t* out);
/** The outcome of the last step. */
typedef struct ds_step_result {
  size_t struct_size;
  int64_t step;     /**< steps made so far, including skipped ones */
  int64_t updates;  /**< optimizer updates so far */
  double loss;      /**< mean over all ranks, by loss_average */
  double grad_norm; /**< norm of the mean gradient, before clipping */
  double lr;        /**< rate of group 0, with Muon that of its matrices */
  int32_t skipped;  /**< 1: loss or gradients had NaN or infinity, or nothing counted: no update */
  int32_t reserved;
  double loss_scale;           /**< factor of the step's loss; 1 unless fp16 is enabled */
  int32_t loss_scale_at_floor; /**< 1: skipped, and the dynamic loss scale is at its minimum */
  int32_t reserved_2;
} ds_step_result;
/** Tells the outcome of the last step. Before the first step, all members but struct_size are zero.
 * {engine.last_step}
 * @param struct_size sizeof(ds_step_result) of the caller  @param out [out] */
DS_API ds_status ds_engine_last_step(const ds_engine* engine, ds_step_result* out,
                                     size_t struct_size);
/** Tells why the last step was skipped, with the first bad tensor of this rank. If it was not
 * skipped, the text is "". {engine.skip_reason} */
DS_API ds_status ds_engine_skip_reason(const ds_engine* engine, char** out_text);
/** Gives a number by its name: "step" (steps made, including skipped ones), "updates" (of the
 * optimizer), "loss" and "grad_norm" (of the last step), "device_bytes", "host_bytes" and
 * "nvme_bytes" (allocated), "overhead_bytes" (library memory outside the plan, measured at
 * creation), "param_groups" (number of groups), "loss_scale" (of the next step: with fp16, a host
 * in delegate mode multiplies its loss by it), "micro_weight" (delegate mode: what was set for the
 * running micro-step; NaN: nothing), "micro_steps" and "mean_micro_steps" (delegate mode), and the
 * numbers of ds_engine_set as the next step will use them; a name without a group means group 0,
 * and "lr" is with Muon the rate of matrices. */
DS_API ds_status ds_engine_get(const ds_engine* engine, const char* name, double* out);
/** Changes a number from the next step on, in place of configuration and schedule, until it is
 * changed again: "lr", "weight_decay", with Adam and AdamW "beta1", "beta2" and "eps", with SGD and
 * Muon "momentum". NaN gives it back to configuration and schedule. Such a name changes all groups
 * of parameters, "param_groups[1].lr" one. With Muon, "lr" changes both rates of a group, "muon_lr"
 * that of its matrices and "adam_lr" that of its other parameters; of two calls for one rate the
 * later one counts. A checkpoint saves what was set. {engine.set} Call it between the same steps
 * and with the same value on all ranks; it does not communicate. In delegate mode you may also call
 * it within a step: the update of that step uses the value. {delegate.set}
 *
 * "micro_steps" is the number of micro-steps of the current step in delegate mode, if it is not
 * gradient_accumulation_steps; NaN means that number again. Set it before the first gradient of a
 * micro-step, at the latest of the last one. If the last micro-step has ended already, set it to
 * the number that were made; ds_step then reduces once more. Such a step runs call by call.
 * {delegate.micro_steps} The gradients are divided by the number of micro-steps that were made, or
 * by "mean_micro_steps", which holds until it is changed; NaN means that number again.
 * {delegate.mean_micro_steps} Set the same values on all ranks.
 *
 * "micro_weight" is another kind of number: with loss_average "tokens" in delegate mode, what this
 * rank's gradients of the running micro-step count for, 0 or more, for example its number of
 * targets. Hand over gradients that are to be added up as they are, those of the sum of the losses
 * of the targets; the step divides their sum by the sum of the weights of all its micro-steps and
 * ranks. {delegate.weight} Set it in each micro-step, on every rank, before ds_backward, which
 * otherwise returns DS_ERROR_STATE. {delegate.weight.missing}
 *
 * "adapter.NAME" with the value 1 chooses the adapter with which ds_eval_batch and ds_infer run
 * from now on: one of adapter.others, "adapter.default" for the one that is trained, or
 * "adapter.base" for the model without adapters; NaN gives the choice back. {engine.set.adapter}
 * Steps always train the own adapter. Make the same choice on all ranks.
 * @return DS_ERROR_NOT_FOUND for any other name. {engine.set.name} DS_ERROR_INVALID_ARGUMENT for a
 * value that the configuration would refuse. {engine.set.value} */
DS_API ds_status ds_engine_set(ds_engine* engine, const char* name, double value);

/** Prints the step program in its text form; in delegate mode the recorded one, from the second
 * step on.
 */
DS_API ds_status ds_engine_plan_print(const ds_engine* engine, char** out_text);
/** Reports bytes per tier and kind, and the overhead outside the plan by part. */
DS_API ds_status ds_engine_plan_report(const ds_engine* engine, ds_format format, char** out_text);
/** Writes the spans recorded since the last call to `path` as Chrome trace-event JSON, with this
 * rank's queues as tracks.
 * @return DS_ERROR_STATE if options.trace was 0. {engine.trace.state} */
DS_API ds_status ds_engine_trace(ds_engine* engine, const char* path);
/** Destroys the engine. Never communicates. @param engine [nullable] */
DS_API void ds_engine_destroy(ds_engine* engine);

/* ---------------------------------------------------------------- checkpoint */

/** Saves masters, moments, the step and the numbers of ds_engine_set below `folder`
 * (docs/reference/checkpoint_format.md). When the call returns DS_OK, the checkpoint is complete
 * and on disk. {checkpoint.save.complete} Collective.
 * @param options [nullable] JSON: "client_state" (null; any value, which ds_checkpoint_load hands
 * out again; the options of rank 0 are used), "tag" (none; 1 to 32 of A-Z a-z 0-9 . _ - by which
 * ds_checkpoint_load finds it), "keep" (0: keep all checkpoints of the folder; n: keep the newest
 * n, this one included, the newest whole one of each tag and the one with a tag that was loaded
 * last), "async" (false). {checkpoint.save.keep} With "async" true, the call returns as soon as the
 * state is copied to memory of the host, and a thread of each rank writes it while steps go on.
 * {checkpoint.save.async} */
DS_API ds_status ds_checkpoint_save(ds_engine* engine, const char* folder, const char* options);
/** Waits until the save that "async" began has ended and returns its status; DS_OK if there was
 * none since the last wait. {checkpoint.wait} The next save or load waits as well and returns the
 * error of a save that failed. {checkpoint.wait.next} ds_engine_destroy waits and logs the error.
 * {checkpoint.wait.end} Collective. */
DS_API ds_status ds_checkpoint_wait(ds_engine* engine);
/** Loads the newest complete checkpoint below `folder`, or the checkpoint at `folder`. It may come
 * from any world size, stage and tier. {checkpoint.load.any} If the newest one is damaged or cannot
 * be read, the one before it is loaded, with a warning; a checkpoint that you name itself is loaded
 * or refused. {checkpoint.load.damaged} A refused load changes nothing, but if a file stops being
 * readable after it was checked, while its states are copied in, the engine is poisoned.
 * {checkpoint.load.refused} If both configurations list the same frozen_parameters and this engine
 * never called ds_engine_freeze, it adopts the frozen set of the checkpoint. Otherwise it keeps its
 * own and logs a warning where they differ. {checkpoint.load.frozen} Collective.
 * @param options [nullable] JSON: "tag" (none; loads the newest checkpoint that was saved with this
 * tag) {checkpoint.load.tag}
 * @param out_text [out] [nullable] the saved client state as JSON, or "null" if there is none
 * {checkpoint.load.client}
 * @return DS_ERROR_NOT_FOUND if there is no checkpoint. {checkpoint.load.none} DS_ERROR_CORRUPT
 * with the name of the damaged file. {checkpoint.load.corrupt} */
DS_API ds_status ds_checkpoint_load(ds_engine* engine, const char* folder, const char* options,
                                    char** out_text);
/** Attaches a tensor to the next ds_checkpoint_save of this engine: what a program needs besides
 * parameters and states, such as the buffers of its modules or the state of its random numbers.
 * {checkpoint.attach.kept} Each rank attaches its own tensors, or none.
 * {checkpoint.attach.own} The value is copied at once, to memory outside the plan; a later one of
 * the same name replaces it. {checkpoint.attach.copied} A save that fails keeps them for the next
 * save. {checkpoint.attach.again}
 * @param name not empty */
DS_API ds_status ds_checkpoint_attach(ds_engine* engine, const char* name, const ds_tensor* value);
/** Reads what a rank attached to the checkpoint that this engine loaded last. Any rank reads the
 * attachments of all ranks. {checkpoint.attachment.any}
 * @param rank 0 to one less than the number of ranks that saved the checkpoint
 * @param out [out] [owned] on the host
 * @return DS_ERROR_NOT_FOUND if that rank attached nothing of that name.
 * {checkpoint.attachment.none} DS_ERROR_STATE before the first load. {checkpoint.attachment.early}
 */
DS_API ds_status ds_checkpoint_attachment(const ds_engine* engine, const char* name, int32_t rank,
                                          ds_tensor** out);
/** Loads the weights of a Hugging Face model folder (docs/reference/models.md) or of a GGUF file
 * (docs/guides/gguf.md) into the engine's parameters, by name. Optimizer states and the step stay
 * as they are. {checkpoint.load_model} An engine with an adapter (docs/guides/adapters.md) also
 * loads the folder of an adapter. Collective.
 * @return DS_ERROR_NOT_FOUND for a missing file. {checkpoint.load_model.none} DS_ERROR_CONFIG with
 * the name of a tensor that is missing or of another shape; a tensor that the engine does not have
 * is left out with a warning. {checkpoint.load_model.config} DS_ERROR_CORRUPT with the name of a
 * damaged file. {checkpoint.load_model.corrupt} */
DS_API ds_status ds_checkpoint_load_model(ds_engine* engine, const char* folder);
/** Writes the masters to `folder` as a Hugging Face model. An engine with an adapter writes the
 * folder of the adapter, as PEFT does. Each file appears at once and whole. Collective.
 * @param like [nullable] the model folder or GGUF file that gives names, dtypes, configuration and
 * tokenizer; NULL, or a folder without weights: a single model.safetensors of f32 */
DS_API ds_status ds_checkpoint_save_model(ds_engine* engine, const char* folder, const char* like);
/** Describes as JSON a checkpoint, or the newest one of a run or of a folder of checkpoints: path,
 * tag, step, seed, numerics key, payload hash and configuration. Reads all of its content and
 * compares the content with the hashes of its manifest.
 * @return DS_ERROR_CORRUPT with the names of the file and of the tensor that differs.
 * {checkpoint.info.corrupt} */
DS_API ds_status ds_checkpoint_info(const char* path, char** out_text);
/** Converts a checkpoint or a model in this process alone. `from` is a folder that DeepSpeed saved
 * with ZeRO 1, 2 or 3 or in its universal layout (the folder with the file "latest", or that of a
 * tag), a checkpoint of libds as for ds_checkpoint_info, or a GGUF file, a model folder or the
 * folder of an adapter for the forms that say so. Pickles are parsed as data; nothing in them is
 * run. {checkpoint.convert.data} A checkpoint can become "libds", "universal" and "fp32", whichever
 * of the three layouts it has. {checkpoint.convert.forms}
 * @param to a folder. With "libds" it gets one more checkpoint; with "gguf" it is a file that must
 * not exist; with the other forms it must not exist or must be empty. {checkpoint.convert.place}
 * @param options [nullable] JSON: "to" ("libds": a checkpoint; "universal": what DeepSpeed loads
 * with load_universal_checkpoint; "fp32": masters, buffers and second names as in the output
 * of zero_to_fp32; "model": the folder of a GGUF file; "gguf": a GGUF file of a model, an adapter
 * or a checkpoint; "merged" and "unmerged": the model of an adapter's base with the adapter added
 * to its weights or taken out; by default "gguf" if `to` ends with .gguf, "model" for a GGUF file,
 * and otherwise "libds"), "tag" (none; for "libds"), "like" (none; for "fp32", as for
 * ds_checkpoint_save_model; for "gguf" of a checkpoint its model; for "merged", "unmerged" and
 * adapters the base, by default the one that the adapter names), "file_bytes" (5e9; for "fp32":
 * more bytes become several files), "step_tensor" (false; for "universal": steps are tensors, as in
 * torch), "type" (for "model" and "gguf": "f32", "f16", "bf16" or, in a GGUF file, "q8_0"; by
 * default one that loses nothing, or bf16 for codes)
 * @param out_text [out] [nullable] JSON: path, form, steps, parameters and states of what was
 * converted {checkpoint.convert.report}
 * @return DS_ERROR_NOT_FOUND if `from` cannot be converted or lacks the file of a rank.
 * {checkpoint.convert.none} DS_ERROR_CORRUPT with the name of a damaged file.
 * {checkpoint.convert.corrupt} DS_ERROR_UNSUPPORTED for what libds cannot represent, such as tensor
 * parallelism, and for a pickle that names a function of the system.
 * {checkpoint.convert.unsupported} */
DS_API ds_status ds_checkpoint_convert(const char* from, const char* to, const char* options,
                                       char** out_text);

/* ---------------------------------------------------------------- run */

/** State of a run after a step. */
typedef struct ds_run_progress {
  size_t struct_size;
  int64_t step;  /**< steps made: 1 after the first one of a new run {run.progress.step} */
  int64_t steps; /**< steps that the run will have made at its end */
  double loss;
  double heldout_loss; /**< NaN if this step was not evaluated */
  double grad_norm;
  double lr;
  double tokens_per_second;
  /** [out] The learning rate of the next step, as configuration and schedule have it, or as it was
   * set here before. If the callback changes it, all ranks use the new value, for all groups and
   * with Muon for both rates, from that step on until it is changed again, even after a save and a
   * resume; NaN gives the rate back to the schedule. Dynamic batching multiplies what is set as it
   * does what is configured. {run.progress.lr} A negative or infinite value ends the run with
   * DS_ERROR_INVALID_ARGUMENT on all ranks. {run.progress.lr_invalid} */
  double* next_lr;
  /** Samples that the run has taken from the data, over every resume. {run.progress.samples} */
  int64_t samples;
  double loss_scale; /**< factor of the step's loss; 1 unless fp16 is enabled */
} ds_run_progress;
/** Called after each step that was not skipped, on the thread of rank 0. If it returns another
 * status than DS_OK, the run saves a checkpoint and stops, and ds_run_train returns DS_ERROR_USER.
 * {run.progress.stop} */
typedef ds_status ds_run_progress_fn(const ds_run_progress* progress, void* user_data);
/** Fills `tokens` and `targets` (tokens_count elements each) for one micro-batch of this rank,
 * which is leaf micro_step * size + rank of the step. Both numbers count from 0: `step` is how many
 * steps were made before. {run.batch.step} If it returns another status than DS_OK, the run stops
 * as with ds_run_progress_fn. {run.batch.stop} */
typedef ds_status ds_run_batch_fn(int64_t step, int32_t micro_step, int32_t* tokens,
                                  int32_t* targets, size_t tokens_count, void* user_data);

/** Lays `patch` over `config`, both JSON texts: members of patch replace those of config, objects
 * are merged, and null removes a member (JSON merge patch, RFC 7396). */
DS_API ds_status ds_config_merge(const char* config, const char* patch, char** out_text);
/** Describes what `config`, JSON text, means for `size` ranks: each value with its origin
 * ("config", "auto", "derived", "default" or "refused"), keys without effect, warnings, refusals.
 * {config.describe.origins} A refused configuration is described, too; this is not an error of the
 * call. {config.describe.refused}
 * @param format DS_FORMAT_JSON: an object of schema, config, origins, without_effect, warnings and
 * refusals
 * @param out_refused [nullable] how many refusals the text has; 0: the library takes this
 * configuration */
DS_API ds_status ds_config_describe(const char* config, int32_t size, ds_format format,
                                    int32_t* out_refused, char** out_text);
/** Returns the url, for ds_comm_create, of the group that a run joins: the key `communicator` of
 * `config`, else that of the run that `resume` names, else "env". {run.communicator} The call does
 * not communicate, and it ignores a folder that this host cannot see.
 * @param config [nullable] JSON text  @param resume [nullable] as for ds_run_train */
DS_API ds_status ds_run_communicator(const char* config, const char* resume, char** out_text);
/** Trains as `libds train` does, with data, model, run folder, checkpoints and report. Collective.
 * @param comm [nullable] NULL: one rank  @param config JSON text
 * @param resume [nullable] a run folder, which continues from its newest checkpoint, or one of its
 * checkpoints; config is then [nullable] and laid over the run's own as by ds_config_merge
 * @param quiet 1: plain lines instead of a progress bar, 2: no output
 * @param batch [nullable] replaces the configured data  @param progress [nullable]
 * @param stop [nullable] when you make it non-zero, which you may do at any time and in a signal
 * handler, the run saves a checkpoint and ends. {run.train.stop}
 * @return DS_OK when all steps are done. {run.train.ok} DS_ERROR_USER if the stop flag or a
 * callback ended the run early: it is saved, and a call with `resume` continues it.
 * {run.train.user} DS_ERROR_STATE if the stop flag ended it before anything was created.
 * {run.train.state} DS_ERROR_NUMERIC if run.max_skipped_steps steps in a row were not finite, or if
 * the loss of the finished model is not; the run is saved all the same. {run.train.numeric}
 * DS_ERROR_CONFIG if the finished run misses one of its run.bars. {run.train.bars} */
DS_API ds_status ds_run_train(ds_comm* comm, const char* config, const char* resume, int32_t quiet,
                              ds_run_batch_fn* batch, ds_run_progress_fn* progress,
                              const volatile int32_t* stop, void* user_data);
/** Writes the text or jsonl that `data` of a configuration means as one token file, as `libds
 * tokenize` does, for runs with data.format "tokens". The path is replaced when the file is
 * complete and on disk.
 * @param config JSON text  @param path the token file
 * @param stop [nullable] when you make it non-zero, the call ends with DS_ERROR_USER and writes
 * nothing. {run.tokenize.stop} @param out_text one line that describes the file */
DS_API ds_status ds_run_tokenize(const char* config, const char* path, const volatile int32_t* stop,
                                 char** out_text);
/** Called with each new part of a text, in whole UTF-8 characters, on the thread inside
 * ds_run_generate. If it returns another status than DS_OK on any rank, the text ends there, and
 * ds_run_generate returns DS_ERROR_USER on all ranks. {run.generate.stop} */
typedef ds_status ds_run_text_fn(const char* part, void* user_data);
/** Continues a text with caches of keys and values, as `libds generate` does. Collective; all ranks
 * get the same text.
 * @param model a run folder (for its newest checkpoint), a checkpoint, the folder of a Hugging Face
 * model, or a GGUF file
 * @param prompt [nullable] text to continue; NULL with "ids". An empty text is
 * continued from the tokens that the tokenizer puts before every text
 * @param options [nullable] JSON: "ids" (token numbers in place of a prompt, continued with
 * numbers), "tokens" (256), "temperature" (0.8; 0: the most probable token), "top_k" (0: all),
 * "seed" (0), "dtype"
 * ("f32", "bf16", "f16"; default: that of the run, f32 for a model folder), "threads" (0), "stage"
 * (default: that of the run, 0 for a model folder), "device" ("cpu"; "cuda", "cuda:0"),
 * "adapters" (none; adapters on a model folder, as texts NAME=DIR), "adapter" (the name of the one
 * to use, of "adapters" or of the run, "base" for none; default: the only one), "base" (the model
 * folder of a run with an adapter, if it has moved), "ignore_eos" (false)
 * @param text [nullable] called on every rank */
DS_API ds_status ds_run_generate(ds_comm* comm, const char* model, const char* prompt,
                                 const char* options, ds_run_text_fn* text, void* user_data,
                                 char** out_text);
/** Computes the numbers that are recorded beside a model (golden.json and golden.safetensors,
 * docs/reference/verify.md) and compares them, as `libds verify` does. The text has one line per
 * comparison with the largest error, its tolerance and where it is. Collective; all ranks get the
 * same result.
 * @param model folder of a Hugging Face model, or a GGUF file with golden.* beside it
 * @param options [nullable] JSON: "stage" (0), "tier" ("device", "cpu", "nvme"), "dtype" ("f32",
 * "bf16", "both"), "kinds" (all that are recorded), "nvme_path" ("."), "threads" (0)
 * @param out_failed [out] number of comparisons beyond their tolerance */
DS_API ds_status ds_run_verify(ds_comm* comm, const char* model, const char* options,
                               ds_format format, int32_t* out_failed, char** out_text);
/** Trains a few steps on random tokens and tells where their time goes, as `libds profile` does:
 * calls, time, floating-point operations, bytes and the share of what this machine can reach, by
 * operation (docs/reference/profile.md). Collective; every rank gets its own table.
 * @param config [nullable] JSON text; NULL: defaults, bf16, stage 0
 * @param model [nullable] folder of a Hugging Face model or GGUF file, which replaces the model of
 * the configuration; its weights are drawn at random. You must give config, model or both.
 * {run.profile.model}
 * @param options [nullable] JSON: "micro_batch" and "sequence" (default: those of the
 * configuration, without one 4 and 128), "dtype" ("f32", "bf16", "f16"), "threads" (0), "steps"
 * (3), "by" ("op", "instruction")
 */
DS_API ds_status ds_run_profile(ds_comm* comm, const char* config, const char* model,
                                const char* options, ds_format format, char** out_text);
/** Trains a few steps and runs each instruction of the last one again, alone, as `libds audit` does
 * (docs/reference/audit.md). It compares kernels with the reference in double, and collectives,
 * copies and files bit by bit. The text has a line for each instruction with its error and bound,
 * largest first, and ends with the verdict. Collective; all ranks get the same result.
 * @param config JSON text
 * @param options [nullable] JSON: "steps" (2), "top" (20 lines; 0: all), "threads" (0)
 * @param out_failed [out] number of instructions beyond their bound or with other bits, on any rank
 */
DS_API ds_status ds_run_audit(ds_comm* comm, const char* config, const char* options,
                              ds_format format, int32_t* out_failed, char** out_text);

#ifdef __cplusplus
}
#endif

#endif /* DS_H */
