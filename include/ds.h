/* ds.h: the public C interface of libds, and its specification.
 *
 * libds trains large models. In native mode it owns forward and backward: define a graph (or name a model
 * family in the configuration), create an engine, call ds_train_batch. In delegate mode (graph NULL) a host
 * framework keeps forward and backward: it registers parameters, leases whole parameters, hands gradients
 * over, calls ds_step.
 *
 * Conventions, cited below by name:
 *
 * Status. Every function that can fail returns ds_status. ds_last_error_message() has one line about it.
 *
 * Ownership. [owned]: the caller destroys it. [borrowed: x]: valid as long as x. Handles may be destroyed in
 * any order and by any thread that is alone with them; destroy accepts NULL and never fails. An engine keeps
 * its comm: the rank leaves the group when the last of them is destroyed.
 *
 * Threads. Distinct handles are independent, but a comm and its engines count as one. One handle is used by
 * one thread at a time, unless a function says [threadsafe]. Callbacks run on the thread that is inside the
 * ds_ call, and nowhere else.
 *
 * Forks. Handles belong to the process that made them. In a forked child every call on an inherited handle
 * returns DS_ERROR_STATE and destroy does nothing, while the parent goes on as if it had not forked. The
 * child may make handles of its own, if no other thread of the parent was inside a ds_ call when it forked.
 *
 * Descriptors. Those that the library opens are 3 or more and closed on exec, also where the program has
 * closed its standard ones.
 *
 * Names. Those of graphs, inputs, parameters and outputs are 1 to 512 bytes of UTF-8, without control
 * characters, blanks and any of %{}=;".
 *
 * Streams. A stream is a queue of work on the device of an engine. A call with a stream reads and writes its
 * tensors in the order of the stream: after the work that the stream has when the call begins, and before the
 * work that it is given once the call has returned. Keep such a tensor until the stream has done that work.
 * With NULL the call reads and writes its tensors before it returns, and waits for no stream. On a device
 * whose memory is the host's ("cpu") every stream is NULL.
 *
 * Collective. Made by all ranks of the comm in the same order; blocks until the data is there; ends with
 * DS_ERROR_COMM on every rank when one dies, aborts or stops making progress.
 *
 * Strings. UTF-8, NUL-terminated. A text that comes out through out_text is made by that call and belongs to
 * the caller, who ends it with ds_text_destroy.
 *
 * Outputs. After an error an out handle or text is NULL and out numbers are as they were.
 *
 * Options. Structs begin with struct_size, and those with defaults are filled by their _init function; they
 * hold no training options: those are JSON (docs/reference/config.md).
 *
 * Tags. [nullable] [out] [owned] [borrowed: x] [threadsafe] are part of the contract and reach the bindings.
 *
 * Dialect. C99, only <stddef.h> and <stdint.h>; named enums with 0 as default; opaque handles; no typedef of
 * a pointer, union, bit-field, varargs, inline function or by-value struct.
 */
#ifndef DS_H
#define DS_H

#include <stddef.h>
#include <stdint.h>

/* The version of this header, for #if. ds_version() is that of the library, which is the same or a later one.
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

/** Status of a call: each negative code asks something else of the caller. */
typedef enum ds_status {
  DS_OK = 0,
  DS_ERROR_INVALID_ARGUMENT = -1, /**< the call is wrong: change the argument named in the message */
  DS_ERROR_CONFIG = -2,           /**< the configuration is wrong: change the key named in the message */
  DS_ERROR_NOT_FOUND = -3,        /**< a name, file or folder does not exist */
  DS_ERROR_STATE = -4,            /**< right call, wrong moment: see the call order of the function */
  DS_ERROR_UNSUPPORTED = -5,      /**< known, but not in this build, machine or version */
  DS_ERROR_OUT_OF_MEMORY = -6,    /**< the plan exceeds a budget or the system refuses memory */
  DS_ERROR_IO = -7,               /**< the file system refused: the message has path and errno text */
  DS_ERROR_CORRUPT = -8,          /**< a file's content contradicts itself or its hash */
  DS_ERROR_COMM = -9,             /**< a peer died, diverged or timed out: restart the group */
  DS_ERROR_NUMERIC = -10,         /**< NaN or infinity where a number is needed; the handle is usable */
  DS_ERROR_POISONED = -11,        /**< an earlier failure left this handle unusable: destroy it */
  DS_ERROR_USER = -12,            /**< a callback asked to stop */
  DS_ERROR_INTERNAL = -13,        /**< a defect of libds: report the message */
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

/** DLPack's managed tensors, of versions 0.x and 1.x, declared by <dlpack/dlpack.h> of the caller. */
struct DLManagedTensor;
struct DLManagedTensorVersioned;

/* ---------------------------------------------------------------- runtime */

/** Version of the library as "major.minor.patch". [threadsafe] Process lifetime. */
DS_API const char* ds_version(void);

/** Name of a status, for example "invalid argument". [threadsafe] Process lifetime. */
DS_API const char* ds_status_name(ds_status status);

/** Message of the last call that failed on this thread, "" before any. [threadsafe] Valid until the next
 * failing call of this thread. */
DS_API const char* ds_last_error_message(void);

/** What that call's error is about, for programs: the configuration key (dotted), the parameter or tensor,
 * the rank, each as far as the message names one; "", "" and -1 otherwise. [threadsafe] Valid as long as the
 * message.
 * @param out_key [out] [nullable]  @param out_tensor [out] [nullable]  @param out_rank [out] [nullable] */
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

/** Sends the process's log lines to fn; NULL restores the default (warnings and errors to stderr).
 * @param fn [nullable]  @param user_data [nullable] passed to fn */
DS_API ds_status ds_log_set_fn(ds_log_fn* fn, void* user_data);

/** Ends a text that a call has made. @param text [nullable]  [threadsafe] */
DS_API void ds_text_destroy(char* text);

/** How a report comes out. */
typedef enum ds_format {
  DS_FORMAT_TEXT = 0, /**< for reading: its wording and layout may change */
  DS_FORMAT_JSON = 1, /**< for programs: docs/reference/reports.md names its members */
  DS_FORMAT_FORCE_INT32 = 0x7FFFFFFF
} ds_format;

/** Facts of this machine and build: instruction sets, which kernels run and why, libraries, cores,
 * memory. */
DS_API ds_status ds_env_report(ds_format format, char** out_text);

/* ---------------------------------------------------------------- comm */

/** Joining a group. */
typedef struct ds_comm_options {
  size_t struct_size;
  int32_t rank;       /**< 0 .. size-1; ignored by "self" and "env" */
  int32_t size;       /**< ranks of the group */
  int64_t timeout_ms; /**< a peer without progress for this long is an error; default 300000 */
  int64_t join_ms;    /**< waiting for all ranks to join; default 60000 */
} ds_comm_options;

/** Fills the defaults: rank 0 of 1. @param struct_size sizeof(ds_comm_options) of the caller */
DS_API ds_status ds_comm_options_init(ds_comm_options* options, size_t struct_size);

/** Joins a group of ranks. Collective.
 * @param url "self" (one rank), "threads://NAME" (ranks are threads of this process), "shm://NAME" (processes
 * of one host), "mpi" (the job that mpirun or srun started, on any hosts; needs the job's own rank and size),
 * "gloo://HOST:PORT", with or without "/JOB" (rank 0 listens there while the ranks of that job meet, on any
 * hosts), "gloo:///PATH" (a file of a folder that all ranks see says where), "gloo" (MASTER_ADDR and
 * MASTER_PORT do), "env" (as `libds launch`, torchrun, mpirun or srun set the environment; one rank without
 * any), "env:URL" (rank and size of the environment, over URL). mpi and gloo are plugins, libds_NAME.so; any
 * other NAME or "NAME://ADDRESS" is looked for likewise (ds_plugin.h)
 * @param options [nullable]  @param out [out] [owned]
 * @return DS_ERROR_COMM when a rank is missing after join_ms, given twice, or differs in size or version */
DS_API ds_status ds_comm_create(const char* url, const ds_comm_options* options, ds_comm** out);

/** This rank, 0 .. size-1; -1 for NULL. */
DS_API int32_t ds_comm_rank(const ds_comm* comm);
/** Number of ranks; -1 for NULL. */
DS_API int32_t ds_comm_size(const ds_comm* comm);

/** Concatenates every rank's `in` (in_size bytes) in rank order into `out` (in_size * size bytes).
 * Collective.
 */
DS_API ds_status ds_comm_all_gather(ds_comm* comm, const void* in, size_t in_size, void* out);
/** Sums `count` elements over all ranks as a balanced tree in rank order: the same bits on any transport.
 * f32, bf16 and f16 are summed in f32, other types in their own, integers wrapping around. Collective.
 * @param in f32, bf16, f16, f64, i32, i64 or u8
 * @param out f32 for bf16 and f16, not overlapping in; else of the type of in, and may be in */
DS_API ds_status ds_comm_all_reduce(ds_comm* comm, const void* in, size_t count, ds_dtype dtype, void* out);
/** The same sum of size * count elements; rank r gets elements [r * count, (r + 1) * count). Collective. */
DS_API ds_status ds_comm_reduce_scatter(ds_comm* comm, const void* in, size_t count, ds_dtype dtype,
                                        void* out);
/** Block b of `in` goes to rank b, block r of `out` comes from rank r; block_size bytes each. Collective. */
DS_API ds_status ds_comm_all_to_all(ds_comm* comm, const void* in, size_t block_size, void* out);
/** Copies data_size bytes from rank `root` to all. Collective. */
DS_API ds_status ds_comm_broadcast(ds_comm* comm, void* data, size_t data_size, int32_t root);
/** How elements of several ranks become one. */
typedef enum ds_reduce_op {
  DS_REDUCE_OP_SUM = 0,
  DS_REDUCE_OP_MEAN = 1, /**< the sum divided by the ranks; of floating types */
  DS_REDUCE_OP_MAX = 2,  /**< a NaN of any rank is the maximum, and the minimum */
  DS_REDUCE_OP_MIN = 3,
  DS_REDUCE_OP_FORCE_INT32 = 0x7FFFFFFF
} ds_reduce_op;

/** Sends data_size bytes to rank `to`, which calls ds_comm_receive with the same size; returns when they are
 * there. Two ranks that send to each other at once are an error. */
DS_API ds_status ds_comm_send(ds_comm* comm, const void* data, size_t data_size, int32_t to);
/** Receives data_size bytes that rank `from` sends. */
DS_API ds_status ds_comm_receive(ds_comm* comm, void* data, size_t data_size, int32_t from);
/** Makes groups of the ranks that give the same color, ordered by key, then by rank. Collective. An abort of
 * this group ends them too; over a plugin, whatever ends one of them ends all.
 * @param color negative: this rank is in none, *out is NULL  @param out [out] [owned] */
DS_API ds_status ds_comm_split(ds_comm* comm, int32_t color, int32_t key, ds_comm** out);
/** Returns when every rank has called it. Collective. */
DS_API ds_status ds_comm_barrier(ds_comm* comm);
/** Ends this and every later collective of all ranks with DS_ERROR_COMM and this reason. [threadsafe] */
DS_API ds_status ds_comm_abort(ds_comm* comm, const char* reason);
/** What ds_comm_submit makes: the calls above, and three whose root gives or gets everything. */
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

/** A collective as data: of any operation, over a list of buffers, or over blocks of unequal size. Besides
 * `ins` and `outs`, all members are the same on all ranks. */
typedef struct ds_comm_call {
  size_t struct_size;
  ds_comm_op op;
  ds_dtype dtype;         /**< of the elements that counts and blocks count; default DS_DTYPE_U8 */
  ds_reduce_op reduce;    /**< of all_reduce, reduce_scatter and reduce */
  int32_t root;           /**< of broadcast, reduce, gather and scatter */
  const void* const* ins; /**< buffers_count buffers; [nullable] for a broadcast, and for a scatter elsewhere
                             than at the root */
  void* const* outs;    /**< buffers_count buffers, of a broadcast its data; [nullable] for reduce and gather
                           elsewhere than at the root */
  const size_t* counts; /**< buffers_count numbers: elements of each buffer as the call of that name counts
                           them; of reduce all, of gather and scatter those of a block; [nullable] with
                           blocks */
  size_t buffers_count; /**< default 1; a barrier has none and ignores it */
  const size_t* blocks; /**< [nullable] for all_gather, reduce_scatter and all_to_all of one buffer: blocks[r]
                           elements belong to rank r, one behind the other; an all_to_all sends them */
  const size_t* out_blocks; /**< [nullable] of an all_to_all with blocks: elements that come from rank r; its
                               blocks and out_blocks are of this rank */
  size_t blocks_count;      /**< of blocks and out_blocks: number of ranks */
} ds_comm_call;

/** Fills the defaults. @param struct_size sizeof(ds_comm_call) of the caller */
DS_API ds_status ds_comm_call_init(ds_comm_call* call, size_t struct_size);

/** Makes a collective, or starts it. A list is one collective over its buffers, each with the bits of a call
 * of its own, and faster than single calls where buffers are small (reduce, gather, scatter and all_to_all
 * are made one after the other). Collective.
 *
 * With out_work the call starts it and returns; it is made on a thread of the comm, after what was started
 * before. Its place among the collectives of all ranks is that of this call, and every collective that is
 * made, of this comm, of the one it was split from and of those split from either, first waits for what was
 * started. ds_comm_abort ends it as any other. Leaving the group by a destroy gives up what is unfinished.
 * Buffers are lent: they are the caller's again when ds_work_wait has returned, or a collective that is made
 * has returned DS_OK, or the rank has left the group. ds_comm_abort, another start and calls that only ask do
 * not end the loan. The call itself and its lists are copied.
 * @param out_work [out] [nullable] [owned] NULL: returns when the collective is made
 * @return DS_ERROR_INVALID_ARGUMENT for what is refused before anything is started; DS_ERROR_COMM when a rank
 * of an all_to_all sends other elements than its peer expects, and both are named */
DS_API ds_status ds_comm_submit(ds_comm* comm, const ds_comm_call* call, ds_work** out_work);
/** Waits for the end of a started collective and returns its status; also again. [threadsafe] */
DS_API ds_status ds_work_wait(ds_work* work);
/** Whether it has ended, well or not, without waiting. @param out_done [out] 0 or 1  [threadsafe] */
DS_API ds_status ds_work_test(const ds_work* work, int32_t* out_done);
/** Forgets it; the collective goes on. @param work [nullable] */
DS_API void ds_work_destroy(ds_work* work);

/** Times the collectives of this comm from now on, and of those split from it afterwards. Collective: between
 * the same calls on all ranks. Every 1024th call then also compares times between ranks. */
DS_API ds_status ds_comm_log_start(ds_comm* comm);
/** A table of what this rank's collectives have cost by operation and size: calls, bytes, time, algorithm and
 * bus bandwidth, time spent waiting for the slowest rank (docs/reference/communication.md). Collective.
 * @return DS_ERROR_STATE before ds_comm_log_start */
DS_API ds_status ds_comm_log(ds_comm* comm, ds_format format, char** out_text);
/** The last 64 operations of this rank in this comm, the one it was split from and those split from either,
 * oldest first, each with its state (running, done, failed). When such a group ends by an error, the text is
 * also left as rank_N.txt in the folder that the environment variable DS_FLIGHT_DIR names.
 * [threadsafe] */
DS_API ds_status ds_comm_flight_record(const ds_comm* comm, ds_format format, char** out_text);
/** Leaves the group. @param comm [nullable] */
DS_API void ds_comm_destroy(ds_comm* comm);

/* ---------------------------------------------------------------- stream */

/** Makes a stream of the engine's device. It works on, and may be destroyed later, when the engine is gone.
 * After a failed engine (DS_ERROR_POISONED) its streams are unusable, too.
 * @param out [out] [owned]
 * @return DS_ERROR_UNSUPPORTED where the memory of the device is the host's: streams are NULL there */
DS_API ds_status ds_stream_create(ds_engine* engine, ds_stream** out);
/** Waits until the stream has done all the work that it has been given. */
DS_API ds_status ds_stream_synchronize(ds_stream* stream);
/** Finishes the work of the stream and ends it. @param stream [nullable] */
DS_API void ds_stream_destroy(ds_stream* stream);

/* ---------------------------------------------------------------- tensor */

/** Makes a tensor of up to 8 dimensions, in memory of the host or, with a stream, of the stream's device.
 * @param strides [nullable] distance of neighbours in each dimension, in elements, of any sign; data is then
 * the element at index 0. NULL: compact row-major
 * @param data [nullable] borrowed memory that must outlive the tensor; NULL: the tensor has memory of its
 * own, zero-filled and compact
 * @param stream [nullable] names the device  @param out [out] [owned] */
DS_API ds_status ds_tensor_create(ds_dtype dtype, const int64_t* dims, size_t dims_count,
                                  const int64_t* strides, void* data, ds_stream* stream, ds_tensor** out);
/** Takes a DLPack tensor of f32, f64, bf16, f16, i32, i64 or u8 with any strides, without a copy: one on the
 * CPU, or with a stream also one of the stream's device. Its deleter runs when the tensor is destroyed. On an
 * error the caller keeps it. Exactly one of managed and versioned is given.
 * @param managed [nullable]  @param versioned [nullable] of DLPack 1.x. One that is read-only may not be
 * copied to  @param stream [nullable]  @param out [out] [owned] */
DS_API ds_status ds_tensor_from_dlpack(struct DLManagedTensor* managed,
                                       struct DLManagedTensorVersioned* versioned, ds_stream* stream,
                                       ds_tensor** out);
/** Makes a DLPack tensor over the same memory, without a copy; it keeps the memory alive after
 * ds_tensor_destroy. Exactly one of out and out_versioned is given. A tensor of a device that DLPack has no
 * number for is on device type 12 (kDLExtDev).
 * @param out [out] [nullable] the consumer calls its deleter; refused for a tensor that is read-only
 * @param out_versioned [out] [nullable] the same in the form of DLPack 1.x */
DS_API ds_status ds_tensor_to_dlpack(ds_tensor* tensor, struct DLManagedTensor** out,
                                     struct DLManagedTensorVersioned** out_versioned);
/** Element type, dimensions and strides (up to dims_size of each are written), device ("cpu" or another name
 * of the configuration's key `device`) and address. All outputs [nullable].
 * @param out_strides [out] in elements  @param out_device [out] process lifetime
 * @param out_data [out] [borrowed: tensor] host code must not use it on a device other than "cpu" */
DS_API ds_status ds_tensor_info(const ds_tensor* tensor, ds_dtype* out_dtype, int64_t* out_dims,
                                int64_t* out_strides, size_t dims_size, size_t* out_dims_count,
                                const char** out_device, void** out_data);
/** Copies elements between tensors of one element type and shape, whatever their strides and devices. They
 * may overlap only where both are compact. A copy between two devices is refused.
 * @param stream [nullable] of the device that one of them is on */
DS_API ds_status ds_tensor_copy(ds_tensor* to, const ds_tensor* from, ds_stream* stream);
/** @param tensor [nullable] */
DS_API void ds_tensor_destroy(ds_tensor* tensor);

/* ---------------------------------------------------------------- graph */

/** Makes an empty model graph. The calls below give values as numbers. docs/reference/ops.md lists
 * operations.
 * @param bound largest number of rows n of one micro-step  @param out [out] [owned] */
DS_API ds_status ds_graph_create(const char* name, int64_t bound, ds_graph** out);
/** Makes the graph that the `model` section of a configuration describes. @param config JSON text
 * @param size ranks that will train it: the micro-batch, and with it the bound, can depend on it
 * @param out [out] [owned] */
DS_API ds_status ds_graph_from_config(const char* config, int32_t size, ds_graph** out);
/** Reads the text form that ds_graph_print writes. @param out [out] [owned] */
DS_API ds_status ds_graph_parse(const char* text, ds_graph** out);
/** Writes the text form of a graph. */
DS_API ds_status ds_graph_print(const ds_graph* graph, char** out_text);
/** Adds an input. A dimension of -1 is n, the rows of a micro-step. @param out [out] its value */
DS_API ds_status ds_graph_input(ds_graph* graph, const char* name, ds_dtype dtype, const int64_t* dims,
                                size_t dims_count, int32_t* out);
/** Adds an f32 parameter. A parameter with a dimension of 0 is empty; no operation takes it. @param init
 * "zeros", "ones" or "normal"  @param scale standard deviation of "normal"
 * @param out [out] its value */
DS_API ds_status ds_graph_param(ds_graph* graph, const char* name, const int64_t* dims, size_t dims_count,
                                const char* init, double scale, int32_t* out);
/** Describes the operations that ds_graph_op knows, as JSON: operands, results and attributes with their
 * types, defaults and meaning. docs/reference/ops.md names the members. [threadsafe] */
DS_API ds_status ds_op_schema(char** out_text);
/** Adds an operation. @param op name in docs/reference/ops.md  @param inputs values
 * @param attrs [nullable] JSON object, for example {"eps": 1e-5}
 * @param out [out] its first output; further outputs are the numbers after it */
DS_API ds_status ds_graph_op(ds_graph* graph, const char* op, const int32_t* inputs, size_t inputs_count,
                             const char* attrs, int32_t* out);
/** Computes the outputs of a custom operation: writes every element of `outputs`, whose contents mean nothing
 * before. Tensors have as many rows as the micro-step. Floating inputs have the compute type of the engine's
 * configuration. Tensors and their memory are [borrowed: call]. Any status but DS_OK ends the step. */
typedef ds_status ds_custom_forward_fn(const ds_tensor* const* inputs, ds_tensor* const* outputs,
                                       void* user_data);
/** Computes the gradients of a custom operation: writes every element of each tensor of `input_grads`, which
 * have the types and shapes of the inputs. output_grads[k] is NULL if the loss does not depend on output k,
 * and input_grads[i] is NULL if nobody needs a gradient of input i. Tensors are as in ds_custom_forward_fn,
 * and so is the status. */
typedef ds_status ds_custom_backward_fn(const ds_tensor* const* inputs, const ds_tensor* const* outputs,
                                        const ds_tensor* const* output_grads, ds_tensor* const* input_grads,
                                        void* user_data);
/** Frees the user_data of a custom operation. */
typedef void ds_custom_destroy_fn(void* user_data);

/** An operation whose work is done by callbacks. It has no defaults and no _init function: fill it with
 * zeros, set struct_size, then the members. */
typedef struct ds_custom_op {
  size_t struct_size;
  ds_custom_forward_fn* forward;
  ds_custom_backward_fn* backward; /**< [nullable] NULL: the operation is not differentiable */
  void* user_data;                 /**< [nullable] passed to the callbacks */
  ds_custom_destroy_fn* destroy;   /**< [nullable] called with user_data, see ds_graph_custom_op */
  size_t outputs_count;            /**< 1 to 64 */
  const ds_dtype* dtypes;    /**< of each output; DS_DTYPE_NONE: the type of the first floating input, in an
                                engine the compute type */
  const size_t* dims_counts; /**< of each output: how many of `dims` belong to it, at most 4 */
  const int64_t* dims;       /**< [nullable] dimensions of output 0, then of output 1 and so on; -1 is n */
} ds_custom_op;

/** Adds a custom operation. Its callbacks run on the thread that is inside a call of the engine, in training,
 * evaluation and inference, and again when a skipped step looks for its first bad tensor; a rank without
 * samples (ds_engine_join) does not call them. Keep them away from that engine, and let them compute the same
 * on all ranks.
 *
 * If a callback fails, the call returns DS_ERROR_USER on this rank and DS_ERROR_COMM on the others, and their
 * engines are poisoned. {graph.custom_error}
 *
 * The graph, its copies in engines and plans share user_data. `destroy` is called once, inside the destroy
 * call that ends the last of them. An operation that is refused leaves user_data to you.
 * {graph.custom_refused} The text form shows the operation, but ds_graph_parse refuses it.
 * {graph.custom_text}
 * @param name what texts and messages call the operation  @param op copied  @param inputs up to 64 values
 * @param out [out] its first output; further outputs are the numbers after it
 * @return Engines and plans return DS_ERROR_INVALID_ARGUMENT if a gradient has to pass an operation without
 * `backward`, {graph.custom_backward} and DS_ERROR_UNSUPPORTED on another device than "cpu", whose threads
 * are not yours. {graph.custom_device} */
DS_API ds_status ds_graph_custom_op(ds_graph* graph, const char* name, const ds_custom_op* op,
                                    const int32_t* inputs, size_t inputs_count, int32_t* out);
/** Tells the element type and the dimensions of a value. At most dims_size dimensions are written; -1 is n.
 * All outputs are [nullable]. */
DS_API ds_status ds_graph_value_info(const ds_graph* graph, int32_t value, ds_dtype* out_dtype,
                                     int64_t* out_dims, size_t dims_size, size_t* out_dims_count);
/** Makes a value the next output. The value may also be an input or a parameter. {graph.output_of_any} Output
 * 0 of a graph that is trained is its scalar loss. ds_infer returns output 1. {graph.output_inferred}
 * @param name unlike the names of the other outputs */
DS_API ds_status ds_graph_output(ds_graph* graph, const char* name, int32_t value);
/** Finds a value by the name of an output, or else by the name of an input, a parameter or a result.
 * @param out [out] its value  @return DS_ERROR_NOT_FOUND with the nearest name {graph.find} */
DS_API ds_status ds_graph_find(const ds_graph* graph, const char* name, int32_t* out);
/** Appends the gradients of scalar `loss` by `values` (parameters, inputs or intermediate results), once per
 * graph. Training does not need this call, because an engine differentiates its copy by itself; a
 * differentiated graph is for printing and study.
 * @param out [out] values_count gradients, -1 where loss does not depend on the value */
DS_API ds_status ds_graph_grad(ds_graph* graph, int32_t loss, const int32_t* values, size_t values_count,
                               int32_t* out);
/** @param graph [nullable] */
DS_API void ds_graph_destroy(ds_graph* graph);

/* ---------------------------------------------------------------- plan */

/** Compiles a configuration for one rank of a group without taking memory or communicating.
 * @param config JSON text  @param graph [nullable] NULL: the configuration's model  @param out [out] [owned]
 */
DS_API ds_status ds_plan_create(const char* config, const ds_graph* graph, int32_t rank, int32_t size,
                                ds_plan** out);
/** Parameters, tokens a step, the largest tensors, bytes per tier and kind, instructions per queue,
 * collectives. */
DS_API ds_status ds_plan_report(const ds_plan* plan, ds_format format, char** out_text);
/** The step program in its text form. */
DS_API ds_status ds_plan_print(const ds_plan* plan, char** out_text);
/** An SVG document: what each queue of a rank does over a step, above the bytes in use, for 1 to 16 plans
 * side by side with the same scales. Order and memory are the plan's; times are those of the machine that
 * plans assume, which the picture names. */
DS_API ds_status ds_plan_picture(const ds_plan* const* plans, size_t count, char** out_text);
/** The certificate of a plan: the programs of all ranks as text, and what they claim about memory, lifetimes,
 * traffic and the order of collectives, for a checker that shares no code with the compiler
 * (docs/concepts/certificate.md). plans: one for each rank, in the order of ranks. */
DS_API ds_status ds_plan_certificate(const ds_plan* const* plans, size_t count, char** out_text);
/** @param plan [nullable] */
DS_API void ds_plan_destroy(ds_plan* plan);

/* ---------------------------------------------------------------- engine */

/** Gives initial values: `count` elements of a flattened parameter from `first` on. data has what the graph's
 * init has drawn, zeros in delegate mode; what is left as it is stays. Called only for elements of which this
 * rank updates the states, in any number of parts; ranks that have the same elements must give the same
 * values. Any other status than DS_OK ends the call with DS_ERROR_USER on all ranks. */
typedef ds_status ds_init_fn(int32_t param, const char* name, int64_t first, float* data, size_t count,
                             void* user_data);

/** What an engine runs on; training options are JSON. */
typedef struct ds_engine_options {
  size_t struct_size;
  int32_t threads;  /**< compute threads of this rank; 0: cores divided by ranks of this host */
  int32_t trace;    /**< 1: record spans for ds_engine_trace */
  ds_init_fn* init; /**< [nullable] called inside ds_engine_create, in delegate mode inside ds_engine_start */
  void* init_user_data; /**< [nullable] */
} ds_engine_options;

/** Fills the defaults. @param struct_size sizeof(ds_engine_options) of the caller */
DS_API ds_status ds_engine_options_init(ds_engine_options* options, size_t struct_size);

/** Creates a training engine. Collective. The memory is planned, checked against memory_budget and taken here
 * (in delegate mode by ds_engine_start).
 * @param comm [nullable] NULL: one rank. It is used until the engine is destroyed.
 * @param config JSON text (docs/reference/config.md)
 * @param graph [nullable] copied; NULL: delegate mode, parameters come by ds_engine_param_add
 * @param options [nullable]  @param out [out] [owned]
 * @return DS_ERROR_CONFIG also when ranks have different configurations; DS_ERROR_OUT_OF_MEMORY with a table
 * when a budget is too small */
DS_API ds_status ds_engine_create(ds_comm* comm, const char* config, const ds_graph* graph,
                                  const ds_engine_options* options, ds_engine** out);

/** One step: inputs in graph order, each with gradient_accumulation_steps micro-batches one after the other
 * in the first dimension; NULL for one that the loss does not depend on. Inputs lie on the host or on the
 * engine's device, where they are compact. A step whose loss or gradients are not finite is skipped: DS_OK,
 * parameters and states are as before, ds_engine_last_step says so and ds_engine_skip_reason names the first
 * such tensor. Collective.
 * @param stream [nullable]  @param out_loss [out] [nullable] mean loss over all ranks */
DS_API ds_status ds_train_batch(ds_engine* engine, const ds_tensor* const* inputs, size_t inputs_count,
                                ds_stream* stream, double* out_loss);
/** For a rank that has no data left in this epoch: takes part in the steps of the other ranks, without
 * samples of its own, until all ranks have called this; then data may come again. Loss and gradient of such a
 * step are means over the samples that there are. Native mode. Collective with the steps and this call of the
 * others.
 * @param out_steps [out] [nullable] steps that this rank took part in, skipped ones included */
DS_API ds_status ds_engine_join(ds_engine* engine, int64_t* out_steps);
/** A step in pieces: (ds_forward, ds_backward) x gradient_accumulation_steps, ds_step; the same bits.
 * Collective. In delegate mode ds_forward is not used and ds_backward ends a micro-step: parameters whose
 * gradient did not come count as zero.
 * @param stream [nullable]  @param out_loss [out] [nullable] this rank's loss of this micro-batch */
DS_API ds_status ds_forward(ds_engine* engine, const ds_tensor* const* inputs, size_t inputs_count,
                            ds_stream* stream, double* out_loss);
DS_API ds_status ds_backward(ds_engine* engine);
DS_API ds_status ds_step(ds_engine* engine);
/** Loss of one micro-batch without dropout, mean over ranks. Collective. @param stream [nullable] */
DS_API ds_status ds_eval_batch(ds_engine* engine, const ds_tensor* const* inputs, size_t inputs_count,
                               ds_stream* stream, double* out_loss);
/** Output 1 of the graph for one micro-batch, as f32. Collective. @param inputs in graph order; NULL for one
 * that output 1 does not depend on  @param stream [nullable]
 * @param out [out] [owned] on the host, with a stream on the engine's device */
DS_API ds_status ds_infer(ds_engine* engine, const ds_tensor* const* inputs, size_t inputs_count,
                          ds_stream* stream, ds_tensor** out);

/** Delegate mode: registers a parameter; the order of calls is its number. One with a dimension of 0 is
 * empty. Its values are zeros, or what options.init gives. @param out [out] parameter number
 * @return DS_ERROR_STATE after ds_engine_start */
DS_API ds_status ds_engine_param_add(ds_engine* engine, const char* name, const int64_t* dims,
                                     size_t dims_count, int32_t* out);
/** Delegate mode: ends the registration, plans the memory, checks it against memory_budget and takes it.
 * Once, before every call below and all that read or change parameters, states or checkpoints: DS_ERROR_STATE
 * until then. Collective: the same parameters on all ranks. After DS_ERROR_USER the engine is poisoned.
 * @return DS_ERROR_OUT_OF_MEMORY with a table when a budget is too small */
DS_API ds_status ds_engine_start(ds_engine* engine);
/** Leases whole parameters in the compute type, until released as often as gathered. Collective: all ranks
 * make the calls of delegate mode in the same order with the same parameters. An order that differs between
 * ranks is DS_ERROR_COMM on all, at the latest in ds_step and before it updates; it is not a hang. The order
 * may change at any call and from step to step; the fastest step repeats the one before. A step begins with
 * its first gradient or ds_backward: leases before that may as well be an evaluation. Until then parameters
 * can be read and saved at any time, and loaded, written, frozen and refreshed while none is leased.
 * @param stream [nullable] its work from here on sees the values */
DS_API ds_status ds_gather_params(ds_engine* engine, const int32_t* params, size_t params_count,
                                  ds_stream* stream);
/** The leased values; they stay where they are until the last release of the parameter.
 * @param stream [nullable] NULL: a tensor on the host, which is a copy where memory of the device is not the
 * host's; else the device's own, for work of this stream
 * @param out [out] [owned] tensor whose memory is [borrowed: lease]: later, also when the engine is gone, it
 * may be read, but its values mean nothing */
DS_API ds_status ds_engine_param_view(ds_engine* engine, int32_t param, ds_stream* stream, ds_tensor** out);
/** Ends leases: at any time before ds_step, also behind the last ds_backward. Collective.
 * @param stream [nullable] its work up to here still sees the values
 * @return DS_ERROR_STATE, and nothing changes, when a parameter is released more often than it has leases */
DS_API ds_status ds_release_params(ds_engine* engine, const int32_t* params, size_t params_count,
                                   ds_stream* stream);
/** Between steps and without leases: says that what follows is an evaluation (1), or training again (0),
 * which an engine begins with. Nothing that is leased in an evaluation counts as the order of a step, and
 * gradients, ds_backward and ds_step are DS_ERROR_STATE. An evaluation that is not announced costs
 * prefetches, never results. Delegate mode. Collective. */
DS_API ds_status ds_engine_evaluate(ds_engine* engine, int32_t on);
/** Where this rank's gradient of a parameter in the running micro-step goes, in the compute type: write it
 * there and hand the tensor to ds_grad_ready, which then copies nothing. What is there before means nothing,
 * and the place is the caller's until ds_grad_ready or ds_backward. Like a gradient it may begin a step;
 * called again, it shows the same place. Collective: a call of delegate mode like the others.
 * @param stream [nullable] NULL: a place on the host, from which ds_grad_ready copies after all where memory
 * of the device is not the host's; else the device's own, for work of this stream
 * @param out [out] [owned] tensor whose memory is as that of ds_engine_param_view */
DS_API ds_status ds_engine_grad_view(ds_engine* engine, int32_t param, ds_stream* stream, ds_tensor** out);
/** Hands over this rank's gradient of a parameter for the running micro-step, copied: on the host in the
 * compute type or f32, or compact on the engine's device in the compute type. Once per parameter and
 * micro-step, in any order. Collective: a gradient that does not come, does not come on any rank; hand over
 * zeros where only some ranks have it. @param stream [nullable] */
DS_API ds_status ds_grad_ready(ds_engine* engine, int32_t param, const ds_tensor* grad, ds_stream* stream);

/** Number of parameters; -1 for NULL. */
DS_API int32_t ds_engine_param_count(const ds_engine* engine);
/** Number of a name. @return DS_ERROR_NOT_FOUND with the nearest name */
DS_API ds_status ds_engine_param_find(const ds_engine* engine, const char* name, int32_t* out);
/** Name and shape. All outputs [nullable]. @param out_name [out] [borrowed: engine] */
DS_API ds_status ds_engine_param_info(const ds_engine* engine, int32_t param, const char** out_name,
                                      int64_t* out_dims, size_t dims_size, size_t* out_dims_count);
/** Names of what ds_engine_read and _write access, one after the other from index 0: "master", then the
 * states of the optimizer by PyTorch's names ("exp_avg" and "exp_avg_sq" of Adam and AdamW, "momentum_buffer"
 * of SGD), "param" and "grad"; NULL behind the last, and for NULL. [borrowed: engine]
 *
 * "param" is the compute copy; writing it writes its master. "grad" is the mean gradient over the samples
 * that there are, before clipping. Read: refused while a step has some of its gradients. Written: between the
 * last backward of a step and ds_step, not on nvme; clipping sees what was written, and NaN or infinity skips
 * the step. */
DS_API const char* ds_engine_state_name(const ds_engine* engine, int32_t index);
/** Copies a whole tensor out (f32, numel elements on every rank). Collective. */
DS_API ds_status ds_engine_read(ds_engine* engine, int32_t param, const char* state, float* data,
                                size_t data_count);
/** Replaces a whole tensor; the compute copy follows its master. The same values on all ranks. Collective. */
DS_API ds_status ds_engine_write(ds_engine* engine, int32_t param, const char* state, const float* data,
                                 size_t data_count);
/** Elements of a flattened parameter of which this rank updates the states: [*out_first, *out_first +
 * *out_count), count 0 where it has none. Over the ranks they are the whole parameter, once per copy; ranks
 * that have the same elements must write the same values. No communication.
 * @param out_first [out] @param out_count [out] */
DS_API ds_status ds_engine_local_range(ds_engine* engine, int32_t param, int64_t* out_first,
                                       int64_t* out_count);
/** The same as ds_engine_read and _write of these elements only; no communication. data_count: that of
 * ds_engine_local_range. After a write of "param" or "master", also one of no element, ds_engine_refresh must
 * be called before the next step, evaluation, inference or read of "param", which are DS_ERROR_STATE on this
 * rank until then. Write on all ranks, also where data_count is 0, then refresh: a rank that has written
 * nothing would begin the step and wait for the others. */
DS_API ds_status ds_engine_read_local(ds_engine* engine, int32_t param, const char* state, float* data,
                                      size_t data_count);
DS_API ds_status ds_engine_write_local(ds_engine* engine, int32_t param, const char* state, const float* data,
                                       size_t data_count);
/** Makes all compute copies from their masters, those of frozen parameters too. Collective. */
DS_API ds_status ds_engine_refresh(ds_engine* engine);
/** Between steps: from the next step on the parameters are not trained (frozen 1), or trained again (0).
 * Parameters that have optimizer states keep them. A parameter trained for the first time starts with zero
 * states. The bias correction of each counts its own updates, as in PyTorch.
 * Compiles the step again; refused while a parameter is leased. Collective, the same arguments on all ranks:
 * what one rank asks wrongly or otherwise is an error on all, and nothing changes. Which parameters begin
 * frozen: configuration, frozen_parameters. */
DS_API ds_status ds_engine_freeze(ds_engine* engine, const int32_t* params, size_t params_count,
                                  int32_t frozen);
/** Between steps: from the next step on these parameters are a group whose updates have values of their own;
 * each leaves the group that it was in. Group 0 has all parameters of no other group, 1 and further ones are
 * those of the configuration (optimizer.param_groups), then those of this call. Checkpoints have no groups:
 * an engine that loads has its own. Compiles the step again; refused while a parameter is leased. Collective,
 * the same arguments on all ranks: what one rank asks wrongly or otherwise is an error on all, and nothing
 * changes.
 * @param options [nullable] JSON: "lr", "weight_decay", with Adam and AdamW "betas" (two numbers) and "eps",
 * with SGD "momentum"; without one the configuration's. A schedule begins from the group's lr
 * @param out [out] number of the group */
DS_API ds_status ds_engine_group_add(ds_engine* engine, const int32_t* params, size_t params_count,
                                     const char* options, int32_t* out);
/** What became of the last step. */
typedef struct ds_step_result {
  size_t struct_size;
  int64_t step;     /**< steps made so far, skipped ones included */
  int64_t updates;  /**< optimizer updates taken so far */
  double loss;      /**< mean over all ranks */
  double grad_norm; /**< of the mean gradient, before clipping */
  double lr;        /**< of group 0 */
  int32_t skipped;  /**< 1: loss or gradients had NaN or infinity, nothing was updated */
  int32_t reserved;
} ds_step_result;
/** Fills zeros before the first step. @param struct_size sizeof(ds_step_result) of the caller
 * @param out [out] */
DS_API ds_status ds_engine_last_step(const ds_engine* engine, ds_step_result* out, size_t struct_size);
/** Why the last step was skipped, with the first bad tensor of this rank; "" when it was not. */
DS_API ds_status ds_engine_skip_reason(const ds_engine* engine, char** out_text);
/** A number by name: "step" (steps made, skipped ones included), "updates" (of the optimizer), "loss",
 * "grad_norm" (of the last step), "device_bytes", "host_bytes", "nvme_bytes" (allocated), "overhead_bytes"
 * (library memory outside the plan, measured at creation), "param_groups" (groups of parameters), and those
 * of ds_engine_set, as the next step uses them; without a group they are those of group 0. */
DS_API ds_status ds_engine_get(const ds_engine* engine, const char* name, double* out);
/** Changes a number from the next step on, in place of configuration and schedule; NaN gives it back to them:
 * "lr", "weight_decay", with Adam and AdamW "beta1", "beta2" and "eps", with SGD "momentum". Such a name is
 * of all groups of parameters, "param_groups[1].lr" of one. What is set is part of a checkpoint. Between the
 * same steps, with the same value on all ranks; no communication.
 * @return DS_ERROR_NOT_FOUND for another name, DS_ERROR_INVALID_ARGUMENT for a value that the configuration
 * would refuse */
DS_API ds_status ds_engine_set(ds_engine* engine, const char* name, double value);

/** The step program in its text form; in delegate mode the recorded one, from the second step on.
 */
DS_API ds_status ds_engine_plan_print(const ds_engine* engine, char** out_text);
/** Bytes per tier and kind, and the overhead outside the plan by part. */
DS_API ds_status ds_engine_plan_report(const ds_engine* engine, ds_format format, char** out_text);
/** Writes the spans recorded since the last call to `path` as Chrome trace-event JSON, this rank's queues as
 * tracks.
 * @return DS_ERROR_STATE when options.trace was 0 */
DS_API ds_status ds_engine_trace(ds_engine* engine, const char* path);
/** @param engine [nullable] Never communicates. */
DS_API void ds_engine_destroy(ds_engine* engine);

/* ---------------------------------------------------------------- checkpoint */

/** Saves masters, moments, the step and what ds_engine_set has set below `folder`
 * (docs/reference/checkpoint_format.md); complete and on disk on return. Collective.
 * @param options [nullable] JSON: "client_state" (null: any value, which ds_checkpoint_load hands out again;
 * that of rank 0 is saved), "tag" (none: 1 to 32 of A-Z a-z 0-9 . _ - by which ds_checkpoint_load finds it),
 * "keep" (0: all; n: the newest n of the folder, with this one, and the newest one of each tag are left) */
DS_API ds_status ds_checkpoint_save(ds_engine* engine, const char* folder, const char* options);
/** Loads the newest complete checkpoint below `folder`, or the one at `folder`; made at any world size, stage
 * and tier. When the newest one is damaged or cannot be read, the one before is loaded, with a warning; a
 * checkpoint that is named itself is loaded or refused. A load that is refused changes nothing. Where
 * frozen_parameters of both configurations are the same and ds_engine_freeze was not called here, what it had
 * frozen or thawed when the checkpoint was saved is frozen or thawed here too; otherwise this engine's own
 * setting stands, and a warning says where they differ. Collective.
 * @param options [nullable] JSON: "tag" (none: the newest checkpoint that was saved with it)
 * @param out_text [out] [nullable] the client state that was saved, as JSON; "null" without
 * @return DS_ERROR_NOT_FOUND when there is none, DS_ERROR_CORRUPT naming the file */
DS_API ds_status ds_checkpoint_load(ds_engine* engine, const char* folder, const char* options,
                                    char** out_text);
/** Takes the weights of a Hugging Face model folder (docs/reference/models.md) for the engine's parameters,
 * by name; optimizer states and the step stay. Collective. @return DS_ERROR_NOT_FOUND for a missing file,
 * DS_ERROR_CONFIG naming a tensor that is missing, too many or of another shape, DS_ERROR_CORRUPT naming a
 * damaged file */
DS_API ds_status ds_checkpoint_load_model(ds_engine* engine, const char* folder);
/** Writes the masters to `folder` as a Hugging Face model, each file at once and whole. Collective.
 * @param like [nullable] the model folder whose files, names, dtypes, configuration and tokenizer it gets;
 * none, or one without weights: a single model.safetensors of f32 */
DS_API ds_status ds_checkpoint_save_model(ds_engine* engine, const char* folder, const char* like);
/** JSON about a checkpoint, or the newest one of a folder of them or of a run: path, tag, step, seed,
 * numerics key, payload hash, configuration. All of its content is read and compared with the hashes of its
 * manifest.
 * @return DS_ERROR_CORRUPT naming the file, and the tensor that differs */
DS_API ds_status ds_checkpoint_info(const char* path, char** out_text);

/* ---------------------------------------------------------------- run */

/** State of a run after a step. */
typedef struct ds_run_progress {
  size_t struct_size;
  int64_t step;
  int64_t steps;
  double loss;
  double heldout_loss; /**< NaN when this step was not evaluated */
  double grad_norm;
  double lr;
  double tokens_per_second;
} ds_run_progress;
/** Called after each step on rank 0's thread. Returning another status than DS_OK stops the run after a
 * checkpoint; ds_run_train then returns DS_ERROR_USER. */
typedef ds_status ds_run_progress_fn(const ds_run_progress* progress, void* user_data);
/** Fills `tokens` and `targets` (tokens_count elements each) for one micro-batch of this rank: leaf
 * micro_step * size + rank of the step. */
typedef ds_status ds_run_batch_fn(int64_t step, int32_t micro_step, int32_t* tokens, int32_t* targets,
                                  size_t tokens_count, void* user_data);

/** Lays `patch` over `config`, both JSON texts: members of patch replace those of config, objects are merged,
 * null removes (JSON merge patch, RFC 7396). */
DS_API ds_status ds_config_merge(const char* config, const char* patch, char** out_text);
/** The url for ds_comm_create of the group that a run joins: key `communicator` of `config`, else of the run
 * that `resume` names, else "env". No communication; a folder that this host cannot see says nothing.
 * @param config [nullable] JSON text  @param resume [nullable] as for ds_run_train */
DS_API ds_status ds_run_communicator(const char* config, const char* resume, char** out_text);
/** Trains as `libds train` does: data, model, run folder, checkpoints, report. Collective.
 * @param comm [nullable] NULL: one rank  @param config JSON text
 * @param resume [nullable] run folder to go on with, from its newest checkpoint, or one of its checkpoints;
 * config is then [nullable] and laid over the run's own as ds_config_merge does
 * @param quiet 1: plain lines instead of a progress bar, 2: no output
 * @param batch [nullable] replaces the configured data  @param progress [nullable]
 * @param stop [nullable] may become non-zero at any time (also in a signal handler): the run saves and ends
 * @return DS_OK when all steps are done; DS_ERROR_USER when the stop flag or a callback ended the run before:
 * it is saved, and a call with `resume` goes on; DS_ERROR_STATE when the stop flag ended it before anything
 * was made; DS_ERROR_NUMERIC when run.max_skipped_steps in a row were not finite: saved likewise;
 * DS_ERROR_CONFIG: run.bars
 */
DS_API ds_status ds_run_train(ds_comm* comm, const char* config, const char* resume, int32_t quiet,
                              ds_run_batch_fn* batch, ds_run_progress_fn* progress,
                              const volatile int32_t* stop, void* user_data);
/** Called with each new part of a text, whole UTF-8 characters, on the thread inside ds_run_generate. */
typedef void ds_run_text_fn(const char* part, void* user_data);
/** Continues a text over caches of keys and values, as `libds generate` does. Collective; the same text on
 * all ranks.
 * @param model run folder (its newest checkpoint), checkpoint, or folder of a Hugging Face model
 * @param prompt [nullable] text to continue; NULL or empty when options has "ids"
 * @param options [nullable] JSON: "ids" (token numbers instead of a prompt, continued with numbers), "tokens"
 * (256), "temperature" (0.8; 0: the most probable token), "top_k" (0: all), "seed" (0), "dtype" ("f32",
 * "bf16"; a run's own, f32 for a model folder), "threads" (0), "stage" (a run's own, 0 for a model folder),
 * "ignore_eos" (false)
 * @param text [nullable] called on every rank */
DS_API ds_status ds_run_generate(ds_comm* comm, const char* model, const char* prompt, const char* options,
                                 ds_run_text_fn* text, void* user_data, char** out_text);
/** Computes the numbers that are recorded beside a model (golden.json and golden.safetensors,
 * docs/reference/verify.md) and compares, as `libds verify` does: one line per comparison with the largest
 * error, its tolerance and where it is. Collective; the same result on all ranks.
 * @param model folder of a Hugging Face model
 * @param options [nullable] JSON: "stage" (0), "tier" ("device", "cpu", "nvme"), "dtype" ("f32", "bf16",
 * "both"), "kinds" (all that are recorded), "nvme_path" ("."), "threads" (0)
 * @param out_failed [out] comparisons beyond their tolerance */
DS_API ds_status ds_run_verify(ds_comm* comm, const char* model, const char* options, ds_format format,
                               int32_t* out_failed, char** out_text);
/** Trains a few steps on random tokens and says where their time goes, as `libds profile` does: calls, time,
 * floating-point operations, bytes and the share of what this machine can reach, by operation
 * (docs/reference/profile.md). Collective; every rank gets its own table.
 * @param config [nullable] JSON text; NULL: defaults, bf16, stage 0
 * @param model [nullable] folder of a Hugging Face model in place of the configuration's; weights are drawn.
 * One of config and model must be given
 * @param options [nullable] JSON: "micro_batch" and "sequence" (the configuration's, without one 4 and 128),
 * "dtype" ("f32", "bf16"), "threads" (0), "steps" (3), "by" ("op", "instruction")
 */
DS_API ds_status ds_run_profile(ds_comm* comm, const char* config, const char* model, const char* options,
                                ds_format format, char** out_text);
/** Trains a few steps and runs each instruction of the last one again, alone, as `libds audit` does
 * (docs/reference/audit.md): kernels against the reference in double, collectives, copies and files bit by
 * bit. The text has a line for each instruction with its error and bound, largest first, and ends with the
 * verdict. Collective; the same result on all ranks.
 * @param config JSON text
 * @param options [nullable] JSON: "steps" (2), "top" (20 lines; 0: all), "threads" (0)
 * @param out_failed [out] instructions beyond their bound or with other bits, on any rank */
DS_API ds_status ds_run_audit(ds_comm* comm, const char* config, const char* options, ds_format format,
                              int32_t* out_failed, char** out_text);

#ifdef __cplusplus
}
#endif

#endif /**< DS_H */
