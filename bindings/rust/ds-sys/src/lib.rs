// Written by tools/bindings.py from include/ds.h; do not edit.
//! What include/ds.h declares, as it stands there. The crate `ds` is the one to use.
#![allow(non_camel_case_types)]

use std::ffi::c_void;
use std::marker::{PhantomData, PhantomPinned};
use std::os::raw::c_char;

pub const DS_VERSION_MAJOR: i32 = 0;
pub const DS_VERSION_MINOR: i32 = 1;
pub const DS_VERSION_PATCH: i32 = 0;

/// Status of a call. Each negative code calls for a different reaction of the program.
pub type ds_status = i32;
pub const DS_OK: ds_status = 0;
/// wrong call: change the argument that the message names
pub const DS_ERROR_INVALID_ARGUMENT: ds_status = -1;
/// wrong configuration: change the key that the message names
pub const DS_ERROR_CONFIG: ds_status = -2;
/// a name, file or folder does not exist
pub const DS_ERROR_NOT_FOUND: ds_status = -3;
/// right call, wrong moment: see the call order of the function
pub const DS_ERROR_STATE: ds_status = -4;
/// known, but not available in this build, machine or version
pub const DS_ERROR_UNSUPPORTED: ds_status = -5;
/// the plan exceeds a budget, or the system has no more memory
pub const DS_ERROR_OUT_OF_MEMORY: ds_status = -6;
/// the file system failed: the message has the path and the errno text
pub const DS_ERROR_IO: ds_status = -7;
/// the content of a file contradicts itself or its hash
pub const DS_ERROR_CORRUPT: ds_status = -8;
/// a peer died, diverged or timed out: restart the group
pub const DS_ERROR_COMM: ds_status = -9;
/// NaN or infinity where a number is needed; the handle stays usable
pub const DS_ERROR_NUMERIC: ds_status = -10;
/// an earlier failure left this handle unusable: destroy it
pub const DS_ERROR_POISONED: ds_status = -11;
/// a callback asked to stop
pub const DS_ERROR_USER: ds_status = -12;
/// a defect of libds: please report the message
pub const DS_ERROR_INTERNAL: ds_status = -13;

/// Element types of tensors. 16-bit floats cross this interface as uint16_t bit patterns.
pub type ds_dtype = i32;
pub const DS_DTYPE_NONE: ds_dtype = 0;
pub const DS_DTYPE_F32: ds_dtype = 1;
pub const DS_DTYPE_BF16: ds_dtype = 2;
pub const DS_DTYPE_F16: ds_dtype = 3;
pub const DS_DTYPE_F64: ds_dtype = 4;
pub const DS_DTYPE_I32: ds_dtype = 5;
pub const DS_DTYPE_I64: ds_dtype = 6;
pub const DS_DTYPE_U8: ds_dtype = 7;

/// Severity of a log line.
pub type ds_log_level = i32;
pub const DS_LOG_LEVEL_DEBUG: ds_log_level = 0;
pub const DS_LOG_LEVEL_INFO: ds_log_level = 1;
pub const DS_LOG_LEVEL_WARNING: ds_log_level = 2;
pub const DS_LOG_LEVEL_ERROR: ds_log_level = 3;

/// The form of a report.
pub type ds_format = i32;
/// for people: its wording and layout change between versions
pub const DS_FORMAT_TEXT: ds_format = 0;
/// for programs: docs/reference/reports.md names its members
pub const DS_FORMAT_JSON: ds_format = 1;

/// How elements of several ranks are combined into one.
pub type ds_reduce_op = i32;
pub const DS_REDUCE_OP_SUM: ds_reduce_op = 0;
/// the sum divided by the number of ranks; floating-point types only
pub const DS_REDUCE_OP_MEAN: ds_reduce_op = 1;
/// if any rank has NaN, the maximum is NaN, and so is the minimum
pub const DS_REDUCE_OP_MAX: ds_reduce_op = 2;
pub const DS_REDUCE_OP_MIN: ds_reduce_op = 3;

/// The operations of ds_comm_submit: the collectives above, and three in which the root gives or gets all
/// data.
pub type ds_comm_op = i32;
pub const DS_COMM_OP_ALL_REDUCE: ds_comm_op = 0;
pub const DS_COMM_OP_ALL_GATHER: ds_comm_op = 1;
pub const DS_COMM_OP_REDUCE_SCATTER: ds_comm_op = 2;
pub const DS_COMM_OP_ALL_TO_ALL: ds_comm_op = 3;
pub const DS_COMM_OP_BROADCAST: ds_comm_op = 4;
pub const DS_COMM_OP_BARRIER: ds_comm_op = 5;
/// an all_reduce whose result only the root gets
pub const DS_COMM_OP_REDUCE: ds_comm_op = 6;
/// an all_gather whose result only the root gets
pub const DS_COMM_OP_GATHER: ds_comm_op = 7;
/// block r of the root's buffer goes to rank r
pub const DS_COMM_OP_SCATTER: ds_comm_op = 8;

/// Opaque handles.
#[repr(C)]
pub struct ds_comm {
    _data: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

#[repr(C)]
pub struct ds_work {
    _data: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

#[repr(C)]
pub struct ds_stream {
    _data: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

#[repr(C)]
pub struct ds_tensor {
    _data: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

#[repr(C)]
pub struct ds_graph {
    _data: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

#[repr(C)]
pub struct ds_plan {
    _data: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

#[repr(C)]
pub struct ds_engine {
    _data: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// DLPack's managed tensors, of versions 0.x and 1.x, which the \<dlpack/dlpack.h> of the caller declares.
#[repr(C)]
pub struct DLManagedTensor {
    _data: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

#[repr(C)]
pub struct DLManagedTensorVersioned {
    _data: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// Receives one log line.
pub type ds_log_fn =
    Option<unsafe extern "C" fn(level: ds_log_level, line: *const c_char, user_data: *mut c_void)>;

/// Gathers as ds_comm_all_gather does, at most 1 GiB in all. `in` may be this rank's block of `out`.
pub type ds_comm_all_gather_fn =
    Option<unsafe extern "C" fn(r#in: *const c_void, in_size: usize, out: *mut c_void, user_data: *mut c_void) -> ds_status>;

/// Sends in_sizes\[r\] bytes at ins\[r\] to rank r and receives out_sizes\[r\] bytes from rank r at
/// outs\[r\], at most 256 MiB each and 1 GiB in all. The entries of this rank, and those of ranks with which
/// it exchanges nothing, are NULL and 0.
pub type ds_comm_all_to_all_fn =
    Option<unsafe extern "C" fn(ins: *const *const c_void, in_sizes: *const usize, outs: *const *mut c_void, out_sizes: *const usize, user_data: *mut c_void) -> ds_status>;

/// Sends data_size bytes, at most 256 MiB, to rank `to`, which receives as many.
pub type ds_comm_send_fn =
    Option<unsafe extern "C" fn(data: *const c_void, data_size: usize, to: i32, user_data: *mut c_void) -> ds_status>;

/// Receives data_size bytes from rank `from`.
pub type ds_comm_receive_fn =
    Option<unsafe extern "C" fn(data: *mut c_void, data_size: usize, from: i32, user_data: *mut c_void) -> ds_status>;

/// Ends the running collective and every later one, if possible on all ranks. It is called on any thread,
/// even while another callback runs.
pub type ds_comm_abort_fn =
    Option<unsafe extern "C" fn(reason: *const c_char, user_data: *mut c_void)>;

/// Frees the user_data of a comm.
pub type ds_comm_destroy_fn =
    Option<unsafe extern "C" fn(user_data: *mut c_void)>;

/// Computes the outputs of a custom operation: writes every element of `outputs`, whose contents are
/// undefined before. Tensors have as many rows as the micro-step. Floating inputs have the compute type of
/// the engine's configuration. Tensors and their memory are \[borrowed: call\]. Any status but DS_OK ends the
/// step.
pub type ds_custom_forward_fn =
    Option<unsafe extern "C" fn(inputs: *const *const ds_tensor, outputs: *const *mut ds_tensor, user_data: *mut c_void) -> ds_status>;

/// Computes the gradients of a custom operation: writes every element of each tensor of `input_grads`, which
/// have the types and shapes of the inputs. output_grads\[k\] is NULL if the loss does not depend on output
/// k, and input_grads\[i\] is NULL if no gradient of input i is needed. Tensors and status are as in
/// ds_custom_forward_fn.
pub type ds_custom_backward_fn =
    Option<unsafe extern "C" fn(inputs: *const *const ds_tensor, outputs: *const *const ds_tensor, output_grads: *const *const ds_tensor, input_grads: *const *mut ds_tensor, user_data: *mut c_void) -> ds_status>;

/// Frees the user_data of a custom operation.
pub type ds_custom_destroy_fn =
    Option<unsafe extern "C" fn(user_data: *mut c_void)>;

/// Sets initial values: `count` elements of a flattened parameter, from element `first` on. When it is
/// called, data holds the values that the graph's init has drawn, or zeros in delegate mode; elements that
/// you leave alone keep them. It is called only for elements whose states this rank updates, in any number of
/// parts. Give the same values on all ranks that have the same elements. If it returns another status than
/// DS_OK, the call that needs the values ends with DS_ERROR_USER on all ranks.
pub type ds_init_fn =
    Option<unsafe extern "C" fn(param: i32, name: *const c_char, first: i64, data: *mut f32, count: usize, user_data: *mut c_void) -> ds_status>;

/// Updates elements: the optimizer of "optimizer": {"type": "Callback"}. Let each element's update depend on
/// nothing but its value, gradient, states and the numbers of the struct, and compute the same on all ranks:
/// then stages, tiers and rank layouts have the same bits. It is called for the elements whose states this
/// rank keeps, in any number of parts, on the thread that is inside ds_step or ds_train_batch. A skipped step
/// does not call it. If it returns another status than DS_OK, the call ends with DS_ERROR_USER on this rank
/// and the engines of all ranks are poisoned, because some elements are updated and others are not.
pub type ds_update_fn =
    Option<unsafe extern "C" fn(update: *const ds_update, user_data: *mut c_void) -> ds_status>;

/// Called after each step that was not skipped, on the thread of rank 0. If it returns another status than
/// DS_OK, the run saves a checkpoint and stops, and ds_run_train returns DS_ERROR_USER.
pub type ds_run_progress_fn =
    Option<unsafe extern "C" fn(progress: *const ds_run_progress, user_data: *mut c_void) -> ds_status>;

/// Fills `tokens` and `targets` (tokens_count elements each) for one micro-batch of this rank, which is leaf
/// micro_step * size + rank of the step. Both numbers count from 0: `step` is how many steps were made
/// before. If it returns another status than DS_OK, the run stops as with ds_run_progress_fn.
pub type ds_run_batch_fn =
    Option<unsafe extern "C" fn(step: i64, micro_step: i32, tokens: *mut i32, targets: *mut i32, tokens_count: usize, user_data: *mut c_void) -> ds_status>;

/// Called with each new part of a text, in whole UTF-8 characters, on the thread inside ds_run_generate. If
/// it returns another status than DS_OK on any rank, the text ends there, and ds_run_generate returns
/// DS_ERROR_USER on all ranks.
pub type ds_run_text_fn =
    Option<unsafe extern "C" fn(part: *const c_char, user_data: *mut c_void) -> ds_status>;

/// How to join a group.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ds_comm_options {
    pub struct_size: usize,
    /// 0 to size - 1; "self" and "env" ignore it
    pub rank: i32,
    /// number of ranks in the group
    pub size: i32,
    /// a peer without progress for this long is an error; default 300000
    pub timeout_ms: i64,
    /// how long to wait until all ranks have joined; default 60000
    pub join_ms: i64,
}

/// The collectives of another library, with ranks 0 to size - 1. Each blocks until this rank has sent and
/// received its bytes. All ranks call them in the same order, except that a send and a receive concern only
/// two ranks. All ranks set the same members. Pointers are valid inside the callback. With one rank, no
/// callback but destroy is called. The struct has no defaults and no _init function: fill it with zeros, set
/// struct_size, then the members.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ds_comm_callbacks {
    pub struct_size: usize,
    /// \[nullable\] NULL: all_to_all is called instead
    pub all_gather: ds_comm_all_gather_fn,
    pub all_to_all: ds_comm_all_to_all_fn,
    /// \[nullable\] only together with receive, as are groups of a split
    pub send: ds_comm_send_fn,
    /// \[nullable\]
    pub receive: ds_comm_receive_fn,
    /// \[nullable\] NULL: the other ranks wait as long as their collectives do.
    pub abort: ds_comm_abort_fn,
    /// \[nullable\] Called with user_data, see ds_comm_create_from_callbacks.
    pub destroy: ds_comm_destroy_fn,
    /// \[nullable\] passed to the callbacks
    pub user_data: *mut c_void,
}

/// A collective as data: any operation, over a list of buffers or over blocks of unequal size. All members
/// except `ins` and `outs` are the same on all ranks.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ds_comm_call {
    pub struct_size: usize,
    pub op: ds_comm_op,
    /// type of the elements that counts and blocks count; default DS_DTYPE_U8
    pub dtype: ds_dtype,
    /// for all_reduce, reduce_scatter and reduce
    pub reduce: ds_reduce_op,
    /// for broadcast, reduce, gather and scatter
    pub root: i32,
    /// buffers_count buffers; \[nullable\] for a broadcast, and for a scatter except at the root.
    pub ins: *const *const c_void,
    /// buffers_count buffers; those of a broadcast hold its data; \[nullable\] for reduce and gather except
    /// at the root.
    pub outs: *const *mut c_void,
    /// buffers_count numbers: the elements of each buffer, as the call of that name counts them; all elements
    /// for reduce, one block for gather and scatter; \[nullable\] with blocks.
    pub counts: *const usize,
    /// default 1; a barrier ignores it
    pub buffers_count: usize,
    /// \[nullable\] For all_gather, reduce_scatter and all_to_all of one buffer: blocks\[r\] elements belong
    /// to rank r, one block after the other; an all_to_all sends them.
    pub blocks: *const usize,
    /// \[nullable\] For an all_to_all with blocks: the elements that come from rank r. The blocks and
    /// out_blocks of an all_to_all are those of this rank.
    pub out_blocks: *const usize,
    /// length of blocks and out_blocks: the number of ranks
    pub blocks_count: usize,
}

/// An operation whose work is done by callbacks. It has no defaults and no _init function: fill it with
/// zeros, set struct_size, then the members.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ds_custom_op {
    pub struct_size: usize,
    pub forward: ds_custom_forward_fn,
    /// \[nullable\] NULL: the operation is not differentiable
    pub backward: ds_custom_backward_fn,
    /// \[nullable\] passed to the callbacks
    pub user_data: *mut c_void,
    /// \[nullable\] called with user_data, see ds_graph_custom_op
    pub destroy: ds_custom_destroy_fn,
    /// 1 to 64
    pub outputs_count: usize,
    /// Type of each output. DS_DTYPE_NONE: the type of the first floating input, in an engine the compute
    /// type.
    pub dtypes: *const ds_dtype,
    /// for each output, how many of `dims` belong to it, at most 4
    pub dims_counts: *const usize,
    /// \[nullable\] dimensions of output 0, then of output 1 and so on; -1 is n
    pub dims: *const i64,
}

/// Consecutive elements of one parameter that a ds_update_fn updates. \[borrowed: call\]
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ds_update {
    pub struct_size: usize,
    /// number of the parameter
    pub param: i32,
    /// the first element, counted in the flattened parameter
    pub first: i64,
    /// elements of each array below
    pub count: usize,
    /// the f32 masters, to be changed in place
    pub values: *mut f32,
    /// mean gradients over micro-steps and ranks, after clipping
    pub grads: *const f32,
    /// the elements of each state, to be changed in place; all 0 at first
    pub states: *const *mut f32,
    /// as many as optimizer.params.states has names, in that order
    pub states_count: usize,
    /// number of this update of the parameter, from 1 on
    pub update: i64,
    /// learning rate of the parameter's group, like the numbers below
    pub lr: f64,
    pub weight_decay: f64,
    pub beta1: f64,
    pub beta2: f64,
    pub eps: f64,
    pub momentum: f64,
}

/// The resources of an engine. Training options are JSON.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ds_engine_options {
    pub struct_size: usize,
    /// compute threads of this rank; 0: cores divided by the ranks of this host
    pub threads: i32,
    /// 1: record spans for ds_engine_trace
    pub trace: i32,
    /// \[nullable\] Called inside ds_engine_create, in delegate mode inside ds_engine_start.
    pub init: ds_init_fn,
    /// \[nullable\]
    pub init_user_data: *mut c_void,
    /// \[nullable\] The update of optimizer.type "Callback", which needs it; every other type refuses it. It
    /// needs device "cpu".
    pub update: ds_update_fn,
    /// \[nullable\]
    pub update_user_data: *mut c_void,
}

/// The outcome of the last step.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ds_step_result {
    pub struct_size: usize,
    /// steps made so far, including skipped ones
    pub step: i64,
    /// optimizer updates so far
    pub updates: i64,
    /// mean over all ranks, by loss_average
    pub loss: f64,
    /// norm of the mean gradient, before clipping
    pub grad_norm: f64,
    /// rate of group 0, with Muon that of its matrices
    pub lr: f64,
    /// 1: loss or gradients had NaN or infinity, or nothing counted: no update
    pub skipped: i32,
    pub reserved: i32,
    /// factor of the step's loss; 1 unless fp16 is enabled
    pub loss_scale: f64,
    /// 1: skipped, and the dynamic loss scale is at its minimum
    pub loss_scale_at_floor: i32,
    pub reserved_2: i32,
}

/// State of a run after a step.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ds_run_progress {
    pub struct_size: usize,
    /// steps made: 1 after the first one of a new run
    pub step: i64,
    /// steps that the run will have made at its end
    pub steps: i64,
    pub loss: f64,
    /// NaN if this step was not evaluated
    pub heldout_loss: f64,
    pub grad_norm: f64,
    pub lr: f64,
    pub tokens_per_second: f64,
    /// \[out\] The learning rate of the next step, as configuration and schedule have it, or as it was set
    /// here before. If the callback changes it, all ranks use the new value, for all groups and with Muon for
    /// both rates, from that step on until it is changed again, even after a save and a resume; NaN gives the
    /// rate back to the schedule. Dynamic batching multiplies what is set as it does what is configured. A
    /// negative or infinite value ends the run with DS_ERROR_INVALID_ARGUMENT on all ranks.
    pub next_lr: *mut f64,
    /// Samples that the run has taken from the data, over every resume.
    pub samples: i64,
    /// factor of the step's loss; 1 unless fp16 is enabled
    pub loss_scale: f64,
}

extern "C" {
    /// Returns the version of the library as "major.minor.patch". \[threadsafe\] The text lives as long as
    /// the process.
    pub fn ds_version() -> *const c_char;
    /// Returns the name of a status, for example "invalid argument". \[threadsafe\] The text lives as long as
    /// the process.
    pub fn ds_status_name(status: ds_status) -> *const c_char;
    /// Returns the message of the last call that failed on this thread, or "" if none has. \[threadsafe\] The
    /// text is valid until the next failing call on this thread.
    pub fn ds_last_error_message() -> *const c_char;
    /// Tells programs what the last error message of this thread is about: the configuration key (dotted),
    /// the parameter or tensor, and the rank, as far as the message names one; otherwise "", "" and -1.
    /// \[threadsafe\] The texts are valid as long as the message.
    ///
    /// - `out_key`: \[out\] \[nullable\]
    ///
    /// - `out_tensor`: \[out\] \[nullable\]
    ///
    /// - `out_rank`: \[out\] \[nullable\]
    pub fn ds_last_error_details(out_key: *mut *const c_char, out_tensor: *mut *const c_char, out_rank: *mut i32);
    /// Sends the log lines of this process to fn. NULL restores the default: warnings and errors go to
    /// stderr.
    ///
    /// - `fn`: \[nullable\]
    ///
    /// - `user_data`: \[nullable\] passed to fn
    pub fn ds_log_set_fn(r#fn: ds_log_fn, user_data: *mut c_void) -> ds_status;
    /// Frees a text that a call has returned.
    ///
    /// - `text`: \[nullable\] \[threadsafe\]
    pub fn ds_text_destroy(text: *mut c_char);
    /// Describes this machine and build: instruction sets, which kernels run and why, libraries, cores and
    /// memory.
    pub fn ds_env_report(format: ds_format, out_text: *mut *mut c_char) -> ds_status;
    /// Fills in the defaults: rank 0 of 1.
    ///
    /// - `struct_size`: sizeof(ds_comm_options) of the caller
    pub fn ds_comm_options_init(options: *mut ds_comm_options, struct_size: usize) -> ds_status;
    /// Joins a group of ranks. Collective.
    ///
    /// - `url`: "self" (one rank), "threads://NAME" (ranks are threads of this process), "shm://NAME"
    ///   (processes of one host), "mpi" (the job that mpirun or srun started, on any hosts; needs the job's
    ///   own rank and size), "tcp://HOST:PORT", with or without "/JOB" (rank 0 listens there while the ranks
    ///   of that job meet, on any hosts), "tcp:///PATH" (rank 0 writes its address to this file, in a folder
    ///   that all ranks see), "tcp" (as MASTER_ADDR and MASTER_PORT say), "env" (what `libds launch`,
    ///   torchrun, mpirun or srun put into the environment; one rank if they did not), "env:URL" (rank and
    ///   size from the environment, over URL). mpi and tcp are plugins, libds_NAME.so; any other NAME or
    ///   "NAME://ADDRESS" is looked for in the same way (ds_plugin.h)
    ///
    /// - `options`: \[nullable\]
    ///
    /// - `out`: \[out\] \[owned\]
    ///
    /// Returns DS_ERROR_COMM if a rank is missing after join_ms, if two ranks claim the same number, or if
    /// ranks differ in size or version.
    pub fn ds_comm_create(url: *const c_char, options: *const ds_comm_options, out: *mut *mut ds_comm) -> ds_status;
    /// Creates a comm over the collectives of the caller, which keeps its own process groups. They only move
    /// bytes. libds forms the sums, in its own order, and compares the calls of all ranks, so results have
    /// the same bits as over every url. Callbacks run on the thread that is inside a call of the comm, of a
    /// comm split from it, or of an engine on either; a collective that ds_comm_submit starts has therefore
    /// ended when it returns. A call with one of these handles inside a callback returns DS_ERROR_STATE. A
    /// handle that a callback destroys ends with the outermost call on that thread. A device whose work has
    /// threads of its own refuses such a comm. Collective. libds cannot see a rank that the callbacks wait
    /// for, so time-outs are those of the callbacks, and timeout_ms and join_ms of the options are not used.
    /// If a callback returns an error, the call ends with DS_ERROR_COMM, and so does every later one.
    /// `destroy` is called once, inside the destroy call that ends the last handle that uses the comm.
    ///
    /// - `callbacks`: copied
    ///
    /// - `options`: rank and size
    ///
    /// - `out`: \[out\] \[owned\]
    ///
    /// Returns After an error, user_data remains yours. DS_ERROR_COMM if ranks differ in size, version or
    /// callbacks, or if all_gather or all_to_all delivers other bytes than were sent when they are tried
    /// here; the message names a rank. Without `send` and `receive`, ds_comm_send, ds_comm_receive and
    /// ds_comm_split return DS_ERROR_UNSUPPORTED.
    pub fn ds_comm_create_from_callbacks(callbacks: *const ds_comm_callbacks, options: *const ds_comm_options, out: *mut *mut ds_comm) -> ds_status;
    /// Returns this rank, 0 to size - 1, or -1 if comm is NULL.
    pub fn ds_comm_rank(comm: *const ds_comm) -> i32;
    /// Returns the number of ranks, or -1 if comm is NULL.
    pub fn ds_comm_size(comm: *const ds_comm) -> i32;
    /// Concatenates every rank's `in` (in_size bytes) in rank order into `out` (in_size * size bytes).
    /// Collective.
    pub fn ds_comm_all_gather(comm: *mut ds_comm, r#in: *const c_void, in_size: usize, out: *mut c_void) -> ds_status;
    /// Sums `count` elements over all ranks as a balanced tree in rank order, so that every transport gives
    /// the same bits. f32, bf16 and f16 are summed in f32, other types in their own type; integers wrap
    /// around. Collective.
    ///
    /// - `in`: f32, bf16, f16, f64, i32, i64 or u8
    ///
    /// - `out`: f32 elements if `in` is bf16 or f16, in memory that does not overlap it; otherwise elements
    ///   of the type of `in`, and out may be the same buffer.
    pub fn ds_comm_all_reduce(comm: *mut ds_comm, r#in: *const c_void, count: usize, dtype: ds_dtype, out: *mut c_void) -> ds_status;
    /// Sums size * count elements as ds_comm_all_reduce does. Rank r gets the elements \[r * count, (r + 1) *
    /// count). Collective.
    pub fn ds_comm_reduce_scatter(comm: *mut ds_comm, r#in: *const c_void, count: usize, dtype: ds_dtype, out: *mut c_void) -> ds_status;
    /// Sends block b of `in` to rank b and receives block r of `out` from rank r. Each block has block_size
    /// bytes. Collective.
    pub fn ds_comm_all_to_all(comm: *mut ds_comm, r#in: *const c_void, block_size: usize, out: *mut c_void) -> ds_status;
    /// Copies data_size bytes from rank `root` to all ranks. Collective.
    pub fn ds_comm_broadcast(comm: *mut ds_comm, data: *mut c_void, data_size: usize, root: i32) -> ds_status;
    /// Sends data_size bytes to rank `to`, which calls ds_comm_receive with the same size. If two ranks send
    /// to each other at once, both get DS_ERROR_COMM.
    pub fn ds_comm_send(comm: *mut ds_comm, data: *const c_void, data_size: usize, to: i32) -> ds_status;
    /// Receives data_size bytes that rank `from` sends. If the sizes differ, both ranks get DS_ERROR_COMM.
    pub fn ds_comm_receive(comm: *mut ds_comm, data: *mut c_void, data_size: usize, from: i32) -> ds_status;
    /// Splits the group: the ranks that give the same color form a group, ordered by key, then by rank.
    /// Collective. An abort of this group also ends the groups split from it. Over a plugin and over
    /// callbacks, whatever ends one of these groups ends all of them.
    ///
    /// - `color`: negative: this rank joins no group, and *out is NULL
    ///
    /// - `out`: \[out\] \[owned\]
    pub fn ds_comm_split(comm: *mut ds_comm, color: i32, key: i32, out: *mut *mut ds_comm) -> ds_status;
    /// Returns when every rank has called it. Collective.
    pub fn ds_comm_barrier(comm: *mut ds_comm) -> ds_status;
    /// Ends the current and every later collective of all ranks with DS_ERROR_COMM and this reason.
    /// \[threadsafe\]
    pub fn ds_comm_abort(comm: *mut ds_comm, reason: *const c_char) -> ds_status;
    /// Fills in the defaults.
    ///
    /// - `struct_size`: sizeof(ds_comm_call) of the caller
    pub fn ds_comm_call_init(call: *mut ds_comm_call, struct_size: usize) -> ds_status;
    /// Runs a collective, or starts it. A list is one collective over its buffers, and each buffer gets the
    /// bits of a call of its own. A list is faster than single calls if its buffers are small, except that
    /// reduce, gather, scatter and all_to_all run one buffer after the other. Collective. With out_work, the
    /// call starts the collective and returns; a thread of the comm runs it after everything that was started
    /// before. Started collectives run in the order of these calls. A direct collective on this comm, or on a
    /// comm related to it by a split, first waits for them. ds_comm_abort ends them like any other
    /// collective. A rank that leaves the group by a destroy gives up its started collectives that have not
    /// ended. The buffers are lent to the comm until ds_work_wait has returned, a later direct collective has
    /// returned DS_OK, or the rank has left the group; then they are yours again. The loan does not end with
    /// ds_comm_abort, with another started collective or with a call that only tells facts about the comm.
    /// The call struct and its lists are copied.
    ///
    /// - `out_work`: \[out\] \[nullable\] \[owned\] NULL: the call returns when the collective has ended.
    ///
    /// Returns DS_ERROR_INVALID_ARGUMENT if the call contradicts itself; nothing is started then, and the
    /// comm stays usable. DS_ERROR_COMM if a rank of an all_to_all sends another number of elements than its
    /// peer expects; the message names both.
    pub fn ds_comm_submit(comm: *mut ds_comm, call: *const ds_comm_call, out_work: *mut *mut ds_work) -> ds_status;
    /// Waits until a started collective has ended and returns its status. You may call it again.
    /// \[threadsafe\]
    pub fn ds_work_wait(work: *mut ds_work) -> ds_status;
    /// Tells whether a started collective has ended, well or not, without waiting.
    ///
    /// - `out_done`: \[out\] 0 or 1 \[threadsafe\]
    pub fn ds_work_test(work: *const ds_work, out_done: *mut i32) -> ds_status;
    /// Destroys the handle; the collective goes on.
    ///
    /// - `work`: \[nullable\]
    pub fn ds_work_destroy(work: *mut ds_work);
    /// Starts to time the collectives of this comm, and of comms that are split from it afterwards.
    /// Collective: call it between the same collectives on all ranks. Every 1024th collective then also
    /// compares times between ranks.
    pub fn ds_comm_log_start(comm: *mut ds_comm) -> ds_status;
    /// Writes a table of what this rank's collectives have cost, by operation and size: calls, bytes, time,
    /// algorithm and bus bandwidth, and time spent waiting for the slowest rank
    /// (docs/reference/communication.md). Collective.
    ///
    /// Returns DS_ERROR_STATE before ds_comm_log_start.
    pub fn ds_comm_log(comm: *mut ds_comm, format: ds_format, out_text: *mut *mut c_char) -> ds_status;
    /// Lists the last 64 operations of this rank on this comm and on comms related to it by a split, oldest
    /// first, each with its state (running, done or failed). If such a group ends with an error, the text is
    /// also saved as rank_N.txt in the folder that the environment variable DS_FLIGHT_DIR names.
    /// \[threadsafe\]
    pub fn ds_comm_flight_record(comm: *const ds_comm, format: ds_format, out_text: *mut *mut c_char) -> ds_status;
    /// Leaves the group.
    ///
    /// - `comm`: \[nullable\]
    pub fn ds_comm_destroy(comm: *mut ds_comm);
    /// Creates a stream on the device of an engine. The stream goes on working, and you may destroy it, after
    /// the engine is gone. If the engine fails in a step, its streams are unusable, too, and calls with them
    /// return DS_ERROR_POISONED.
    ///
    /// - `out`: \[out\] \[owned\]
    ///
    /// Returns DS_ERROR_UNSUPPORTED if the memory of the device is the host's, where every stream is NULL.
    pub fn ds_stream_create(engine: *mut ds_engine, out: *mut *mut ds_stream) -> ds_status;
    /// Returns when the stream has done all the work that it has been given.
    pub fn ds_stream_synchronize(stream: *mut ds_stream) -> ds_status;
    /// Finishes the work of the stream and destroys it.
    ///
    /// - `stream`: \[nullable\]
    pub fn ds_stream_destroy(stream: *mut ds_stream);
    /// Creates a tensor of up to 8 dimensions, in memory of the host or, with a stream, of the stream's
    /// device.
    ///
    /// - `strides`: \[nullable\] distances between neighbours in each dimension, in elements and of any sign;
    ///   data is then the element at index 0. NULL: compact and row-major
    ///
    /// - `data`: \[nullable\] borrowed memory; keep it until the tensor is destroyed. NULL: the tensor has
    ///   its own memory, compact and filled with zeros
    ///
    /// - `stream`: \[nullable\] names the device
    ///
    /// - `out`: \[out\] \[owned\]
    pub fn ds_tensor_create(dtype: ds_dtype, dims: *const i64, dims_count: usize, strides: *const i64, data: *mut c_void, stream: *mut ds_stream, out: *mut *mut ds_tensor) -> ds_status;
    /// Creates a tensor from a DLPack tensor of f32, f64, bf16, f16, i32, i64 or u8 with any strides, without
    /// a copy. Its memory is on the CPU or, with a stream, on the CPU or the stream's device. Its deleter
    /// runs when the tensor is destroyed and streams that work with it have been synchronized or destroyed;
    /// after an error it still belongs to you. Give exactly one of managed and versioned.
    ///
    /// - `managed`: \[nullable\]
    ///
    /// - `versioned`: \[nullable\] a tensor of DLPack 1.x. If it is read-only, a copy to it is refused.
    ///
    /// - `stream`: \[nullable\]
    ///
    /// - `out`: \[out\] \[owned\]
    pub fn ds_tensor_from_dlpack(managed: *mut DLManagedTensor, versioned: *mut DLManagedTensorVersioned, stream: *mut ds_stream, out: *mut *mut ds_tensor) -> ds_status;
    /// Creates a DLPack tensor over the same memory, without a copy. It keeps the memory alive after
    /// ds_tensor_destroy. Give exactly one of out and out_versioned. A tensor on "cuda:N" gets device type 2
    /// (kDLCUDA) and number N, one on another device type 12 (kDLExtDev).
    ///
    /// - `out`: \[out\] \[nullable\] the consumer calls its deleter. A tensor that is read-only is refused.
    ///
    /// - `out_versioned`: \[out\] \[nullable\] the same in the form of DLPack 1.x
    pub fn ds_tensor_to_dlpack(tensor: *mut ds_tensor, out: *mut *mut DLManagedTensor, out_versioned: *mut *mut DLManagedTensorVersioned) -> ds_status;
    /// Describes a tensor: element type, dimensions and strides (up to dims_size of each are written), device
    /// ("cpu" or another name of the configuration's key `device`) and address. All outputs \[nullable\].
    ///
    /// - `out_strides`: \[out\] in elements
    ///
    /// - `out_device`: \[out\] lives as long as the process
    ///
    /// - `out_data`: \[out\] \[borrowed: tensor\] an address for the device; the host can use it on "cpu"
    ///   only
    pub fn ds_tensor_info(tensor: *const ds_tensor, out_dtype: *mut ds_dtype, out_dims: *mut i64, out_strides: *mut i64, dims_size: usize, out_dims_count: *mut usize, out_device: *mut *const c_char, out_data: *mut *mut c_void) -> ds_status;
    /// Copies all elements between tensors of one element type and shape, whatever their strides and devices.
    /// The tensors may overlap if both are compact. A copy between two devices is refused.
    ///
    /// - `stream`: \[nullable\] of the device that one of them is on
    pub fn ds_tensor_copy(to: *mut ds_tensor, from: *const ds_tensor, stream: *mut ds_stream) -> ds_status;
    /// Destroys the tensor.
    ///
    /// - `tensor`: \[nullable\]
    pub fn ds_tensor_destroy(tensor: *mut ds_tensor);
    /// Creates an empty model graph. The calls below identify values by numbers. docs/reference/ops.md lists
    /// the operations.
    ///
    /// - `bound`: largest number of rows n of one micro-step
    ///
    /// - `out`: \[out\] \[owned\]
    pub fn ds_graph_create(name: *const c_char, bound: i64, out: *mut *mut ds_graph) -> ds_status;
    /// Creates the graph that the `model` section of a configuration describes.
    ///
    /// - `config`: JSON text
    ///
    /// - `size`: ranks that will train it: the micro-batch, and with it the bound, can depend on it
    ///
    /// - `out`: \[out\] \[owned\]
    pub fn ds_graph_from_config(config: *const c_char, size: i32, out: *mut *mut ds_graph) -> ds_status;
    /// Reads the text form that ds_graph_print writes.
    ///
    /// - `out`: \[out\] \[owned\]
    pub fn ds_graph_parse(text: *const c_char, out: *mut *mut ds_graph) -> ds_status;
    /// Writes the text form of a graph.
    pub fn ds_graph_print(graph: *const ds_graph, out_text: *mut *mut c_char) -> ds_status;
    /// Adds an input. At most one dimension is -1, which means n, the rows of a micro-step. In an engine
    /// whose compute type is bf16 or f16, inputs declared as f32 have the compute type, unless all operations
    /// read them as an operand of type A (docs/reference/ops.md).
    ///
    /// - `out`: \[out\] its value
    pub fn ds_graph_input(graph: *mut ds_graph, name: *const c_char, dtype: ds_dtype, dims: *const i64, dims_count: usize, out: *mut i32) -> ds_status;
    /// Adds an f32 parameter. A parameter with a dimension of 0 is empty; no operation accepts it.
    ///
    /// - `init`: "zeros", "ones", "normal" or "uniform"
    ///
    /// - `scale`: standard deviation of "normal", or largest magnitude of "uniform"
    ///
    /// - `out`: \[out\] its value
    pub fn ds_graph_param(graph: *mut ds_graph, name: *const c_char, dims: *const i64, dims_count: usize, init: *const c_char, scale: f64, out: *mut i32) -> ds_status;
    /// Describes the operations that ds_graph_op knows, as JSON: operands, results and attributes with their
    /// types, defaults and meaning. docs/reference/ops.md names the members. \[threadsafe\]
    pub fn ds_op_schema(out_text: *mut *mut c_char) -> ds_status;
    /// Adds an operation.
    ///
    /// - `op`: name in docs/reference/ops.md
    ///
    /// - `inputs`: values
    ///
    /// - `attrs`: \[nullable\] JSON object, for example {"eps": 1e-5}
    ///
    /// - `out`: \[out\] its first output; further outputs are the numbers after it
    pub fn ds_graph_op(graph: *mut ds_graph, op: *const c_char, inputs: *const i32, inputs_count: usize, attrs: *const c_char, out: *mut i32) -> ds_status;
    /// Adds a custom operation. Its callbacks run on the thread that is inside a call of the engine, in
    /// training, evaluation and inference, and again when a skipped step looks for its first bad tensor; a
    /// rank without samples (ds_engine_join) does not call them. Calls with that engine return DS_ERROR_STATE
    /// inside a callback. Let callbacks compute the same on all ranks. If a callback fails, the call returns
    /// DS_ERROR_USER on this rank, the others get DS_ERROR_COMM as soon as they communicate, and the engines
    /// are poisoned. The graph, its copies in engines and plans share user_data. `destroy` is called once,
    /// inside the destroy call that ends the last of them. An operation that is refused leaves user_data to
    /// you. The text form shows the operation, but ds_graph_parse refuses it. On a device other than "cpu",
    /// whose threads are not yours, engines and plans return DS_ERROR_UNSUPPORTED.
    ///
    /// - `name`: the name of the operation in texts and messages
    ///
    /// - `op`: copied
    ///
    /// - `inputs`: up to 64 values
    ///
    /// - `out`: \[out\] its first output; further outputs are the numbers after it
    ///
    /// Returns Engines and plans return DS_ERROR_INVALID_ARGUMENT if a gradient has to pass an operation
    /// without `backward`.
    pub fn ds_graph_custom_op(graph: *mut ds_graph, name: *const c_char, op: *const ds_custom_op, inputs: *const i32, inputs_count: usize, out: *mut i32) -> ds_status;
    /// Tells the element type and the dimensions of a value. At most dims_size dimensions are written; -1 is
    /// n. All outputs are \[nullable\].
    pub fn ds_graph_value_info(graph: *const ds_graph, value: i32, out_dtype: *mut ds_dtype, out_dims: *mut i64, dims_size: usize, out_dims_count: *mut usize) -> ds_status;
    /// Makes a value the next output. The value may also be an input or a parameter. Output 0 of a graph that
    /// is trained is its scalar loss, and ds_infer returns output 1.
    ///
    /// - `name`: unlike the names of the other outputs
    pub fn ds_graph_output(graph: *mut ds_graph, name: *const c_char, value: i32) -> ds_status;
    /// Finds a value by the name of an output, or else by the name of an input, a parameter or a result.
    ///
    /// - `out`: \[out\] its value
    ///
    /// Returns DS_ERROR_NOT_FOUND if there is none; the message names the nearest name.
    pub fn ds_graph_find(graph: *const ds_graph, name: *const c_char, out: *mut i32) -> ds_status;
    /// Appends the gradients of scalar `loss` by `values` (parameters, inputs or intermediate results), once
    /// per graph. Training does not need this call, because an engine differentiates its copy by itself; a
    /// differentiated graph is for printing and study.
    ///
    /// - `out`: \[out\] values_count gradients, -1 where loss does not depend on the value
    pub fn ds_graph_grad(graph: *mut ds_graph, loss: i32, values: *const i32, values_count: usize, out: *mut i32) -> ds_status;
    /// Destroys the graph.
    ///
    /// - `graph`: \[nullable\]
    pub fn ds_graph_destroy(graph: *mut ds_graph);
    /// Compiles the plan that an engine with this configuration and graph has on one rank of a group, or a
    /// run of this configuration if graph is NULL. It can be done on any machine: the call neither allocates
    /// the memory of the plan nor communicates. A plan that exceeds memory_budget is not an error of the
    /// call; its report says so.
    ///
    /// - `config`: JSON text
    ///
    /// - `graph`: \[nullable\] NULL: the configuration's model
    ///
    /// - `out`: \[out\] \[owned\]
    pub fn ds_plan_create(config: *const c_char, graph: *const ds_graph, rank: i32, size: i32, out: *mut *mut ds_plan) -> ds_status;
    /// Reports whether the plan fits this machine and memory_budget, and what would make it fit; parameters,
    /// tokens per step, the largest tensors, bytes per tier and kind, instructions per queue, and
    /// collectives. The first line of the text begins with "fits: " or "does not fit: ".
    pub fn ds_plan_report(plan: *const ds_plan, format: ds_format, out_text: *mut *mut c_char) -> ds_status;
    /// Prints the step program in its text form.
    pub fn ds_plan_print(plan: *const ds_plan, out_text: *mut *mut c_char) -> ds_status;
    /// Draws an SVG document: what each queue of a rank does during a step, above the bytes in use, for 1 to
    /// 16 plans side by side on the same scales. Order and memory are those of the plan. The times are those
    /// of the machine that plans assume, which the picture names.
    pub fn ds_plan_picture(plans: *const *const ds_plan, count: usize, out_text: *mut *mut c_char) -> ds_status;
    /// Prints the certificate of a plan: the programs of all ranks as text, and what they claim about memory,
    /// lifetimes, traffic and the order of collectives. It is meant for a checker that shares no code with
    /// the compiler (docs/concepts/certificate.md).
    ///
    /// - `plans`: one for each rank, in the order of ranks
    pub fn ds_plan_certificate(plans: *const *const ds_plan, count: usize, out_text: *mut *mut c_char) -> ds_status;
    /// Destroys the plan.
    ///
    /// - `plan`: \[nullable\]
    pub fn ds_plan_destroy(plan: *mut ds_plan);
    /// Fills in the defaults.
    ///
    /// - `struct_size`: sizeof(ds_engine_options) of the caller
    pub fn ds_engine_options_init(options: *mut ds_engine_options, struct_size: usize) -> ds_status;
    /// Creates a training engine. Plans its memory, checks the plan against memory_budget and allocates the
    /// memory (in delegate mode, ds_engine_start does this). Collective.
    ///
    /// - `comm`: \[nullable\] NULL: one rank. The engine uses it until it is destroyed.
    ///
    /// - `config`: JSON text (docs/reference/config.md)
    ///
    /// - `graph`: \[nullable\] copied; NULL: delegate mode, in which ds_engine_param_add adds the parameters
    ///
    /// - `options`: \[nullable\]
    ///
    /// - `out`: \[out\] \[owned\]
    ///
    /// Returns DS_ERROR_CONFIG if the configuration is wrong, or if ranks have different ones.
    /// DS_ERROR_OUT_OF_MEMORY, with a table in the message, if a budget is too small.
    pub fn ds_engine_create(comm: *mut ds_comm, config: *const c_char, graph: *const ds_graph, options: *const ds_engine_options, out: *mut *mut ds_engine) -> ds_status;
    /// Trains one step. Inputs are in graph order, each with gradient_accumulation_steps micro-batches one
    /// after the other in the first dimension; give NULL for an input that the loss does not depend on. They
    /// lie on the host, or compact on the engine's device. Collective. A step whose loss or gradients are not
    /// finite is skipped: the call returns DS_OK, parameters and states stay as they were,
    /// ds_engine_last_step says so, and ds_engine_skip_reason names the first such tensor. With loss_average
    /// "tokens", so is a step without any target.
    ///
    /// - `stream`: \[nullable\]
    ///
    /// - `out_loss`: \[out\] \[nullable\] mean loss over all ranks, as the configuration's loss_average has
    ///   it
    pub fn ds_train_batch(engine: *mut ds_engine, inputs: *const *const ds_tensor, inputs_count: usize, stream: *mut ds_stream, out_loss: *mut f64) -> ds_status;
    /// For a rank that has no data left in this epoch: takes part in the steps of the other ranks, without
    /// samples of its own, until all ranks have called it. After that, all ranks can train on data again.
    /// Loss and gradient of such a step are means over the samples, or targets, of the ranks that have data.
    /// In its first such step, a rank must have the same numbers (ds_engine_set) as the other ranks, set
    /// before its call, or all ranks get DS_ERROR_CONFIG; in later steps it uses the numbers that the others
    /// set. Native mode. Collective with the steps of the other ranks and with their call of this function.
    ///
    /// - `out_steps`: \[out\] \[nullable\] steps that this rank took part in, including skipped ones
    pub fn ds_engine_join(engine: *mut ds_engine, out_steps: *mut i64) -> ds_status;
    /// A step in pieces: ds_forward and ds_backward gradient_accumulation_steps times, then ds_step. It has
    /// the same bits as ds_train_batch. Any other order of these calls is DS_ERROR_STATE. Collective. In
    /// delegate mode ds_forward is not used, and ds_backward ends a micro-step: the gradient of a parameter
    /// that was not handed over counts as zero.
    ///
    /// - `stream`: \[nullable\]
    ///
    /// - `out_loss`: \[out\] \[nullable\] this rank's loss of this micro-batch
    pub fn ds_forward(engine: *mut ds_engine, inputs: *const *const ds_tensor, inputs_count: usize, stream: *mut ds_stream, out_loss: *mut f64) -> ds_status;
    pub fn ds_backward(engine: *mut ds_engine) -> ds_status;
    pub fn ds_step(engine: *mut ds_engine) -> ds_status;
    /// Computes the loss of one micro-batch without dropout, as the mean over ranks; with loss_average
    /// "tokens" over the targets of all ranks, 0 if there are none. With adapters, it runs with the one that
    /// ds_engine_set chose, as ds_infer does. Collective.
    ///
    /// - `stream`: \[nullable\]
    pub fn ds_eval_batch(engine: *mut ds_engine, inputs: *const *const ds_tensor, inputs_count: usize, stream: *mut ds_stream, out_loss: *mut f64) -> ds_status;
    /// Computes output 1 of the graph for one micro-batch, as f32; with the key "inferred" the loss of each
    /// target, -log p. Collective.
    ///
    /// - `inputs`: in graph order; NULL for one that it does not depend on
    ///
    /// - `stream`: \[nullable\]
    ///
    /// - `out`: \[out\] \[owned\] on the host, or with a stream on the engine's device
    pub fn ds_infer(engine: *mut ds_engine, inputs: *const *const ds_tensor, inputs_count: usize, stream: *mut ds_stream, out: *mut *mut ds_tensor) -> ds_status;
    /// Delegate mode: registers a parameter. Parameters are numbered in the order of these calls. A parameter
    /// with a dimension of 0 is empty. The values are zeros, or those that options.init sets.
    ///
    /// - `dtype`: the type of its views and gradients: DS_DTYPE_NONE for the compute type of the
    ///   configuration, or DS_DTYPE_F32, for example for the router of a model in bf16.
    ///
    /// - `out`: \[out\] number of the parameter
    ///
    /// Returns DS_ERROR_STATE after ds_engine_start.
    pub fn ds_engine_param_add(engine: *mut ds_engine, name: *const c_char, dtype: ds_dtype, dims: *const i64, dims_count: usize, out: *mut i32) -> ds_status;
    /// Delegate mode: ends the registration, plans the memory, checks the plan against memory_budget and
    /// allocates the memory. Call it once, before every call below and all calls that read or change
    /// parameters, states or checkpoints; until then these return DS_ERROR_STATE. Collective, with the same
    /// parameters on all ranks; otherwise all ranks get DS_ERROR_CONFIG. After DS_ERROR_USER the engine is
    /// poisoned.
    ///
    /// Returns DS_ERROR_OUT_OF_MEMORY, with a table in the message, if a budget is too small.
    pub fn ds_engine_start(engine: *mut ds_engine) -> ds_status;
    /// Leases whole parameters in the compute type. A lease ends when the parameter has been released as
    /// often as gathered. Collective: all ranks make the calls of delegate mode in the same order with the
    /// same parameters. If the order differs between ranks, all of them get DS_ERROR_COMM, in ds_step at the
    /// latest and before it updates anything; no rank hangs. The order may change at any call and from step
    /// to step. A step is fastest if it repeats the order of the one before. A step begins with its first
    /// gradient or ds_backward, so the leases before that can just as well be those of an evaluation. Until
    /// then you may read and save parameters at any time, and load, write, freeze and refresh them while none
    /// is leased.
    ///
    /// - `stream`: \[nullable\] its work from here on sees the values
    pub fn ds_gather_params(engine: *mut ds_engine, params: *const i32, params_count: usize, stream: *mut ds_stream) -> ds_status;
    /// Returns a tensor over the leased values, which stay at the same address until the last release of the
    /// parameter. A parameter that no rank partitions (all at ZeRO stages 0 to 2, small ones at stage 3)
    /// needs no lease: a view of the engine's own memory shows its values at one address until the engine
    /// ends, after every step, load, write and refresh. On a GPU, get such views anew after ds_engine_freeze.
    /// Use ds_engine_write to change the parameter: what you write to a view reaches no master.
    ///
    /// - `stream`: \[nullable\] NULL: a tensor on the host, which is a copy if the memory of the device is
    ///   not the host's; otherwise the device's own tensor, for work of this stream
    ///
    /// - `out`: \[out\] \[owned\] tensor whose memory is \[borrowed: lease\]. After the lease, and even after
    ///   the engine, you may still read it, but its values are undefined.
    pub fn ds_engine_param_view(engine: *mut ds_engine, param: i32, stream: *mut ds_stream, out: *mut *mut ds_tensor) -> ds_status;
    /// Ends leases, at any time before ds_step, also after the last ds_backward. Collective.
    ///
    /// - `stream`: \[nullable\] its work up to here still sees the values
    ///
    /// Returns DS_ERROR_STATE if a parameter is released more often than it has leases; nothing changes then.
    pub fn ds_release_params(engine: *mut ds_engine, params: *const i32, params_count: usize, stream: *mut ds_stream) -> ds_status;
    /// Delegate mode, between steps and without leases: announces that what follows is an evaluation (1), or
    /// training again (0). An engine begins with training. Leases of an evaluation do not count as the order
    /// of a step, and gradients, ds_backward and ds_step return DS_ERROR_STATE. An evaluation that you do not
    /// announce costs prefetches, but never changes results. Collective.
    pub fn ds_engine_evaluate(engine: *mut ds_engine, on: i32) -> ds_status;
    /// Delegate mode, without leases: forgets the gradients and micro-steps of the current step, for example
    /// after an error in the host's backward pass. The next gradient begins the step anew, as if the
    /// forgotten calls had not been made. Between steps it does nothing. Collective.
    pub fn ds_engine_drop_step(engine: *mut ds_engine) -> ds_status;
    /// Gives the place for this rank's gradient of a parameter in the running micro-step, in the compute
    /// type. Write the gradient there and hand the tensor to ds_grad_ready, which then copies nothing. The
    /// place has arbitrary values at first, and it is yours until ds_grad_ready or ds_backward. Like a
    /// gradient, this call may begin a step; called again, it gives the same place. Collective like the other
    /// calls of delegate mode.
    ///
    /// - `stream`: \[nullable\] NULL: a place on the host, from which ds_grad_ready copies if the memory of
    ///   the device is not the host's; otherwise the device's own place, for work of this stream
    ///
    /// - `out`: \[out\] \[owned\] tensor whose memory is like that of ds_engine_param_view
    pub fn ds_engine_grad_view(engine: *mut ds_engine, param: i32, stream: *mut ds_stream, out: *mut *mut ds_tensor) -> ds_status;
    /// Hands over this rank's gradient of a parameter for the running micro-step, once per parameter and
    /// micro-step and in any order. It is copied: from the host in the compute type or f32, or from the
    /// engine's device, compact and in the compute type. Collective: either all ranks hand over a gradient of
    /// a parameter, or none does; hand over zeros if only some ranks have one.
    ///
    /// - `stream`: \[nullable\]
    pub fn ds_grad_ready(engine: *mut ds_engine, param: i32, grad: *const ds_tensor, stream: *mut ds_stream) -> ds_status;
    /// Hands over the gradients of several parameters, as ds_grad_ready does for each in this order. After an
    /// error, those before the one that the message names have been handed over.
    ///
    /// - `grads`: params_count tensors
    ///
    /// - `stream`: \[nullable\]
    pub fn ds_grads_ready(engine: *mut ds_engine, params: *const i32, params_count: usize, grads: *const *const ds_tensor, stream: *mut ds_stream) -> ds_status;
    /// Returns the number of parameters, or -1 if engine is NULL.
    pub fn ds_engine_param_count(engine: *const ds_engine) -> i32;
    /// Finds the number of a parameter by its name.
    ///
    /// Returns DS_ERROR_NOT_FOUND if there is none; the message names the one with the nearest name.
    pub fn ds_engine_param_find(engine: *const ds_engine, name: *const c_char, out: *mut i32) -> ds_status;
    /// Gives the name and shape of a parameter; up to dims_size dimensions are written. All outputs
    /// \[nullable\].
    ///
    /// - `out_name`: \[out\] \[borrowed: engine\]
    pub fn ds_engine_param_info(engine: *const ds_engine, param: i32, out_name: *mut *const c_char, out_dims: *mut i64, dims_size: usize, out_dims_count: *mut usize) -> ds_status;
    /// Enumerates the names of the states that ds_engine_read and ds_engine_write access. Index 0 is
    /// "master". The states of the optimizer follow under PyTorch's names ("exp_avg" and "exp_avg_sq" for
    /// Adam and AdamW, "momentum_buffer" for SGD), then "param" and "grad". For any other index, and if
    /// engine is NULL, it returns NULL. \[borrowed: engine\] "param" is the compute copy; writing it also
    /// writes its master. "grad" is the mean gradient over all samples of the step, before clipping. You may
    /// read it at any time, except while a step has only some of its gradients; a frozen parameter has none.
    /// You may write it between the last backward of a step and ds_step; on nvme that is
    /// DS_ERROR_UNSUPPORTED. Clipping and the update use what you wrote, and NaN or infinity skips the step.
    pub fn ds_engine_state_name(engine: *const ds_engine, index: i32) -> *const c_char;
    /// Copies a whole tensor to data, as f32. Every rank gets all elements. Collective.
    pub fn ds_engine_read(engine: *mut ds_engine, param: i32, state: *const c_char, data: *mut f32, data_count: usize) -> ds_status;
    /// Replaces a whole tensor; the compute copy follows its master. Give the same values on all ranks.
    /// Collective.
    pub fn ds_engine_write(engine: *mut ds_engine, param: i32, state: *const c_char, data: *const f32, data_count: usize) -> ds_status;
    /// Tells which elements of a flattened parameter have states that this rank updates: *out_count elements
    /// from *out_first on, where a count of 0 means none. All ranks together have the whole parameter, once
    /// per copy. The call does not communicate.
    ///
    /// - `out_first`: \[out\]
    ///
    /// - `out_count`: \[out\]
    pub fn ds_engine_local_range(engine: *mut ds_engine, param: i32, out_first: *mut i64, out_count: *mut i64) -> ds_status;
    /// Like ds_engine_read and ds_engine_write, but for the elements of ds_engine_local_range only and
    /// without communication. data_count is the count of ds_engine_local_range. Give the same values on all
    /// ranks that have the same elements. After a write of "param" or "master", even of no elements, the next
    /// step, evaluation, inference or read of "param" returns DS_ERROR_STATE on this rank until
    /// ds_engine_refresh was called. Write on all ranks, even if data_count is 0, and then refresh: a rank
    /// that has written nothing would begin the step and wait for the others.
    pub fn ds_engine_read_local(engine: *mut ds_engine, param: i32, state: *const c_char, data: *mut f32, data_count: usize) -> ds_status;
    pub fn ds_engine_write_local(engine: *mut ds_engine, param: i32, state: *const c_char, data: *const f32, data_count: usize) -> ds_status;
    /// Computes all compute copies from their masters, including those of frozen parameters. Collective.
    pub fn ds_engine_refresh(engine: *mut ds_engine) -> ds_status;
    /// Between steps: from the next step on, the parameters are not trained (frozen 1), or trained again (0).
    /// Parameters that have optimizer states keep them. A parameter that is trained for the first time starts
    /// with zero states. The bias correction of each parameter counts its own updates, as in PyTorch. Once
    /// the variance of a 1-bit optimizer is frozen, a parameter without an update, whose variance would be 0,
    /// cannot be trained. The configuration's frozen_parameters says which parameters begin frozen. The call
    /// compiles the step again, and it is refused while a parameter is leased. Collective, with the same
    /// arguments on all ranks. If the arguments of one rank are wrong or different, all ranks get an error,
    /// and nothing changes.
    pub fn ds_engine_freeze(engine: *mut ds_engine, params: *const i32, params_count: usize, frozen: i32) -> ds_status;
    /// Between steps: from the next step on, these parameters form a group whose updates have their own
    /// values; each leaves the group that it was in. Group 0 has all parameters that are in no other group.
    /// Groups 1 and up are those of the configuration (optimizer.param_groups), then those of this call.
    /// Checkpoints contain no groups: an engine that loads one keeps its own. The call compiles the step
    /// again, and it is refused while a parameter is leased. Collective, with the same arguments on all
    /// ranks. If the arguments of one rank are wrong or different, all ranks get an error, and nothing
    /// changes.
    ///
    /// - `options`: \[nullable\] JSON: "lr", "weight_decay", with Adam and AdamW "betas" (two numbers) and
    ///   "eps", with SGD and Muon "momentum", with Muon "muon_lr" and "adam_lr", which override "lr"; the
    ///   default of each is the configuration's. A schedule begins from the group's lr; beside one that names
    ///   the rate of every group (warmup_max_lr, cycle_min_lr, lr_range_test_min_lr) a group's lr is refused.
    ///
    /// - `out`: \[out\] number of the group
    pub fn ds_engine_group_add(engine: *mut ds_engine, params: *const i32, params_count: usize, options: *const c_char, out: *mut i32) -> ds_status;
    /// Tells the outcome of the last step. Before the first step, all members but struct_size are zero.
    ///
    /// - `struct_size`: sizeof(ds_step_result) of the caller
    ///
    /// - `out`: \[out\]
    pub fn ds_engine_last_step(engine: *const ds_engine, out: *mut ds_step_result, struct_size: usize) -> ds_status;
    /// Tells why the last step was skipped, with the first bad tensor of this rank. If it was not skipped,
    /// the text is "".
    pub fn ds_engine_skip_reason(engine: *const ds_engine, out_text: *mut *mut c_char) -> ds_status;
    /// Gives a number by its name: "step" (steps made, including skipped ones), "updates" (of the optimizer),
    /// "loss" and "grad_norm" (of the last step), "device_bytes", "host_bytes" and "nvme_bytes" (allocated),
    /// "overhead_bytes" (library memory outside the plan, measured at creation), "param_groups" (number of
    /// groups), "loss_scale" (of the next step: with fp16, a host in delegate mode multiplies its loss by
    /// it), "micro_weight" (delegate mode: what was set for the running micro-step; NaN: nothing),
    /// "micro_steps" and "mean_micro_steps" (delegate mode), and the numbers of ds_engine_set as the next
    /// step will use them; a name without a group means group 0, and "lr" is with Muon the rate of matrices.
    pub fn ds_engine_get(engine: *const ds_engine, name: *const c_char, out: *mut f64) -> ds_status;
    /// Changes a number from the next step on, in place of configuration and schedule, until it is changed
    /// again: "lr", "weight_decay", with Adam and AdamW "beta1", "beta2" and "eps", with SGD and Muon
    /// "momentum". NaN gives it back to configuration and schedule. Such a name changes all groups of
    /// parameters, "param_groups\[1\].lr" one. With Muon, "lr" changes both rates of a group, "muon_lr" that
    /// of its matrices and "adam_lr" that of its other parameters; of two calls for one rate the later one
    /// counts. A checkpoint saves what was set. Call it between the same steps and with the same value on all
    /// ranks; it does not communicate. In delegate mode you may also call it within a step: the update of
    /// that step uses the value. "micro_steps" is the number of micro-steps of the current step in delegate
    /// mode, if it is not gradient_accumulation_steps; NaN means that number again. Set it before the first
    /// gradient of a micro-step, at the latest of the last one. If the last micro-step has ended already, set
    /// it to the number that were made; ds_step then reduces once more. Such a step runs call by call. The
    /// gradients are divided by the number of micro-steps that were made, or by "mean_micro_steps", which
    /// holds until it is changed; NaN means that number again. Set the same values on all ranks.
    /// "micro_weight" is another kind of number: with loss_average "tokens" in delegate mode, what this
    /// rank's gradients of the running micro-step count for, 0 or more, for example its number of targets.
    /// Hand over gradients that are to be added up as they are, those of the sum of the losses of the
    /// targets; the step divides their sum by the sum of the weights of all its micro-steps and ranks. Set it
    /// in each micro-step, on every rank, before ds_backward, which otherwise returns DS_ERROR_STATE.
    /// "adapter.NAME" with the value 1 chooses the adapter with which ds_eval_batch and ds_infer run from now
    /// on: one of adapter.others, "adapter.default" for the one that is trained, or "adapter.base" for the
    /// model without adapters; NaN gives the choice back. Steps always train the own adapter. Make the same
    /// choice on all ranks.
    ///
    /// Returns DS_ERROR_NOT_FOUND for any other name. DS_ERROR_INVALID_ARGUMENT for a value that the
    /// configuration would refuse.
    pub fn ds_engine_set(engine: *mut ds_engine, name: *const c_char, value: f64) -> ds_status;
    /// Prints the step program in its text form; in delegate mode the recorded one, from the second step on.
    pub fn ds_engine_plan_print(engine: *const ds_engine, out_text: *mut *mut c_char) -> ds_status;
    /// Reports bytes per tier and kind, and the overhead outside the plan by part.
    pub fn ds_engine_plan_report(engine: *const ds_engine, format: ds_format, out_text: *mut *mut c_char) -> ds_status;
    /// Writes the spans recorded since the last call to `path` as Chrome trace-event JSON, with this rank's
    /// queues as tracks.
    ///
    /// Returns DS_ERROR_STATE if options.trace was 0.
    pub fn ds_engine_trace(engine: *mut ds_engine, path: *const c_char) -> ds_status;
    /// Destroys the engine. Never communicates.
    ///
    /// - `engine`: \[nullable\]
    pub fn ds_engine_destroy(engine: *mut ds_engine);
    /// Saves masters, moments, the step and the numbers of ds_engine_set below `folder`
    /// (docs/reference/checkpoint_format.md). When the call returns DS_OK, the checkpoint is complete and on
    /// disk. Collective.
    ///
    /// - `options`: \[nullable\] JSON: "client_state" (null; any value, which ds_checkpoint_load hands out
    ///   again; the options of rank 0 are used), "tag" (none; 1 to 32 of A-Z a-z 0-9 . _ - by which
    ///   ds_checkpoint_load finds it), "keep" (0: keep all checkpoints of the folder; n: keep the newest n,
    ///   this one included, the newest whole one of each tag and the one with a tag that was loaded last),
    ///   "async" (false). With "async" true, the call returns as soon as the state is copied to memory of the
    ///   host, and a thread of each rank writes it while steps go on.
    pub fn ds_checkpoint_save(engine: *mut ds_engine, folder: *const c_char, options: *const c_char) -> ds_status;
    /// Waits until the save that "async" began has ended and returns its status; DS_OK if there was none
    /// since the last wait. The next save or load waits as well and returns the error of a save that failed.
    /// ds_engine_destroy waits and logs the error. Collective.
    pub fn ds_checkpoint_wait(engine: *mut ds_engine) -> ds_status;
    /// Loads the newest complete checkpoint below `folder`, or the checkpoint at `folder`. It may come from
    /// any world size, stage and tier. If the newest one is damaged or cannot be read, the one before it is
    /// loaded, with a warning; a checkpoint that you name itself is loaded or refused. A refused load changes
    /// nothing, but if a file stops being readable after it was checked, while its states are copied in, the
    /// engine is poisoned. If both configurations list the same frozen_parameters and this engine never
    /// called ds_engine_freeze, it adopts the frozen set of the checkpoint. Otherwise it keeps its own and
    /// logs a warning where they differ. Collective.
    ///
    /// - `options`: \[nullable\] JSON: "tag" (none; loads the newest checkpoint that was saved with this tag)
    ///
    /// - `out_text`: \[out\] \[nullable\] the saved client state as JSON, or "null" if there is none
    ///
    /// Returns DS_ERROR_NOT_FOUND if there is no checkpoint. DS_ERROR_CORRUPT with the name of the damaged
    /// file.
    pub fn ds_checkpoint_load(engine: *mut ds_engine, folder: *const c_char, options: *const c_char, out_text: *mut *mut c_char) -> ds_status;
    /// Attaches a tensor to the next ds_checkpoint_save of this engine: what a program needs besides
    /// parameters and states, such as the buffers of its modules or the state of its random numbers. Each
    /// rank attaches its own tensors, or none. The value is copied at once, to memory outside the plan; a
    /// later one of the same name replaces it. A save that fails keeps them for the next save.
    ///
    /// - `name`: not empty
    pub fn ds_checkpoint_attach(engine: *mut ds_engine, name: *const c_char, value: *const ds_tensor) -> ds_status;
    /// Reads what a rank attached to the checkpoint that this engine loaded last. Any rank reads the
    /// attachments of all ranks.
    ///
    /// - `rank`: 0 to one less than the number of ranks that saved the checkpoint
    ///
    /// - `out`: \[out\] \[owned\] on the host
    ///
    /// Returns DS_ERROR_NOT_FOUND if that rank attached nothing of that name. DS_ERROR_STATE before the first
    /// load.
    pub fn ds_checkpoint_attachment(engine: *const ds_engine, name: *const c_char, rank: i32, out: *mut *mut ds_tensor) -> ds_status;
    /// Loads the weights of a Hugging Face model folder (docs/reference/models.md) or of a GGUF file
    /// (docs/guides/gguf.md) into the engine's parameters, by name. Optimizer states and the step stay as
    /// they are. An engine with an adapter (docs/guides/adapters.md) also loads the folder of an adapter.
    /// Collective.
    ///
    /// Returns DS_ERROR_NOT_FOUND for a missing file. DS_ERROR_CONFIG with the name of a tensor that is
    /// missing or of another shape; a tensor that the engine does not have is left out with a warning.
    /// DS_ERROR_CORRUPT with the name of a damaged file.
    pub fn ds_checkpoint_load_model(engine: *mut ds_engine, folder: *const c_char) -> ds_status;
    /// Writes the masters to `folder` as a Hugging Face model. An engine with an adapter writes the folder of
    /// the adapter, as PEFT does. Each file appears at once and whole. Collective.
    ///
    /// - `like`: \[nullable\] the model folder or GGUF file that gives names, dtypes, configuration and
    ///   tokenizer; NULL, or a folder without weights: a single model.safetensors of f32
    pub fn ds_checkpoint_save_model(engine: *mut ds_engine, folder: *const c_char, like: *const c_char) -> ds_status;
    /// Describes as JSON a checkpoint, or the newest one of a run or of a folder of checkpoints: path, tag,
    /// step, seed, numerics key, payload hash and configuration. Reads all of its content and compares the
    /// content with the hashes of its manifest.
    ///
    /// Returns DS_ERROR_CORRUPT with the names of the file and of the tensor that differs.
    pub fn ds_checkpoint_info(path: *const c_char, out_text: *mut *mut c_char) -> ds_status;
    /// Converts a checkpoint or a model in this process alone. `from` is a folder that DeepSpeed saved with
    /// ZeRO 1, 2 or 3 or in its universal layout (the folder with the file "latest", or that of a tag), a
    /// checkpoint of libds as for ds_checkpoint_info, or a GGUF file, a model folder or the folder of an
    /// adapter for the forms that say so. Pickles are parsed as data; nothing in them is run. A checkpoint
    /// can become "libds", "universal" and "fp32", whichever of the three layouts it has.
    ///
    /// - `to`: a folder. With "libds" it gets one more checkpoint; with "gguf" it is a file that must not
    ///   exist; with the other forms it must not exist or must be empty.
    ///
    /// - `options`: \[nullable\] JSON: "to" ("libds": a checkpoint; "universal": what DeepSpeed loads with
    ///   load_universal_checkpoint; "fp32": masters, buffers and second names as in the output of
    ///   zero_to_fp32; "model": the folder of a GGUF file; "gguf": a GGUF file of a model, an adapter or a
    ///   checkpoint; "merged" and "unmerged": the model of an adapter's base with the adapter added to its
    ///   weights or taken out; by default "gguf" if `to` ends with .gguf, "model" for a GGUF file, and
    ///   otherwise "libds"), "tag" (none; for "libds"), "like" (none; for "fp32", as for
    ///   ds_checkpoint_save_model; for "gguf" of a checkpoint its model; for "merged", "unmerged" and
    ///   adapters the base, by default the one that the adapter names), "file_bytes" (5e9; for "fp32": more
    ///   bytes become several files), "step_tensor" (false; for "universal": steps are tensors, as in torch),
    ///   "type" (for "model" and "gguf": "f32", "f16", "bf16" or, in a GGUF file, "q8_0"; by default one that
    ///   loses nothing, or bf16 for codes)
    ///
    /// - `out_text`: \[out\] \[nullable\] JSON: path, form, steps, parameters and states of what was
    ///   converted
    ///
    /// Returns DS_ERROR_NOT_FOUND if `from` cannot be converted or lacks the file of a rank. DS_ERROR_CORRUPT
    /// with the name of a damaged file. DS_ERROR_UNSUPPORTED for what libds cannot represent, such as tensor
    /// parallelism, and for a pickle that names a function of the system.
    pub fn ds_checkpoint_convert(from: *const c_char, to: *const c_char, options: *const c_char, out_text: *mut *mut c_char) -> ds_status;
    /// Lays `patch` over `config`, both JSON texts: members of patch replace those of config, objects are
    /// merged, and null removes a member (JSON merge patch, RFC 7396).
    pub fn ds_config_merge(config: *const c_char, patch: *const c_char, out_text: *mut *mut c_char) -> ds_status;
    /// Describes what `config`, JSON text, means for `size` ranks: each value with its origin ("config",
    /// "auto", "derived", "default" or "refused"), keys without effect, warnings, refusals. A refused
    /// configuration is described, too; this is not an error of the call.
    ///
    /// - `format`: DS_FORMAT_JSON: an object of schema, config, origins, without_effect, warnings and
    ///   refusals
    ///
    /// - `out_refused`: \[nullable\] how many refusals the text has; 0: the library takes this configuration
    pub fn ds_config_describe(config: *const c_char, size: i32, format: ds_format, out_refused: *mut i32, out_text: *mut *mut c_char) -> ds_status;
    /// Returns the url, for ds_comm_create, of the group that a run joins: the key `communicator` of
    /// `config`, else that of the run that `resume` names, else "env". The call does not communicate, and it
    /// ignores a folder that this host cannot see.
    ///
    /// - `config`: \[nullable\] JSON text
    ///
    /// - `resume`: \[nullable\] as for ds_run_train
    pub fn ds_run_communicator(config: *const c_char, resume: *const c_char, out_text: *mut *mut c_char) -> ds_status;
    /// Trains as `libds train` does, with data, model, run folder, checkpoints and report. Collective.
    ///
    /// - `comm`: \[nullable\] NULL: one rank
    ///
    /// - `config`: JSON text
    ///
    /// - `resume`: \[nullable\] a run folder, which continues from its newest checkpoint, or one of its
    ///   checkpoints; config is then \[nullable\] and laid over the run's own as by ds_config_merge
    ///
    /// - `quiet`: 1: plain lines instead of a progress bar, 2: no output
    ///
    /// - `batch`: \[nullable\] replaces the configured data
    ///
    /// - `progress`: \[nullable\]
    ///
    /// - `stop`: \[nullable\] when you make it non-zero, which you may do at any time and in a signal
    ///   handler, the run saves a checkpoint and ends.
    ///
    /// Returns DS_OK when all steps are done. DS_ERROR_USER if the stop flag or a callback ended the run
    /// early: it is saved, and a call with `resume` continues it. DS_ERROR_STATE if the stop flag ended it
    /// before anything was created. DS_ERROR_NUMERIC if run.max_skipped_steps steps in a row were not finite,
    /// or if the loss of the finished model is not; the run is saved all the same. DS_ERROR_CONFIG if the
    /// finished run misses one of its run.bars.
    pub fn ds_run_train(comm: *mut ds_comm, config: *const c_char, resume: *const c_char, quiet: i32, batch: ds_run_batch_fn, progress: ds_run_progress_fn, stop: *const i32, user_data: *mut c_void) -> ds_status;
    /// Writes the text or jsonl that `data` of a configuration means as one token file, as `libds tokenize`
    /// does, for runs with data.format "tokens". The path is replaced when the file is complete and on disk.
    ///
    /// - `config`: JSON text
    ///
    /// - `path`: the token file
    ///
    /// - `stop`: \[nullable\] when you make it non-zero, the call ends with DS_ERROR_USER and writes nothing.
    ///
    /// - `out_text`: one line that describes the file
    pub fn ds_run_tokenize(config: *const c_char, path: *const c_char, stop: *const i32, out_text: *mut *mut c_char) -> ds_status;
    /// Continues a text with caches of keys and values, as `libds generate` does. Collective; all ranks get
    /// the same text.
    ///
    /// - `model`: a run folder (for its newest checkpoint), a checkpoint, the folder of a Hugging Face model,
    ///   or a GGUF file
    ///
    /// - `prompt`: \[nullable\] text to continue; NULL with "ids". An empty text is continued from the tokens
    ///   that the tokenizer puts before every text
    ///
    /// - `options`: \[nullable\] JSON: "ids" (token numbers in place of a prompt, continued with numbers),
    ///   "tokens" (256), "temperature" (0.8; 0: the most probable token), "top_k" (0: all), "seed" (0),
    ///   "dtype" ("f32", "bf16", "f16"; default: that of the run, f32 for a model folder), "threads" (0),
    ///   "stage" (default: that of the run, 0 for a model folder), "device" ("cpu"; "cuda", "cuda:0"),
    ///   "adapters" (none; adapters on a model folder, as texts NAME=DIR), "adapter" (the name of the one to
    ///   use, of "adapters" or of the run, "base" for none; default: the only one), "base" (the model folder
    ///   of a run with an adapter, if it has moved), "ignore_eos" (false)
    ///
    /// - `text`: \[nullable\] called on every rank
    pub fn ds_run_generate(comm: *mut ds_comm, model: *const c_char, prompt: *const c_char, options: *const c_char, text: ds_run_text_fn, user_data: *mut c_void, out_text: *mut *mut c_char) -> ds_status;
    /// Computes the numbers that are recorded beside a model (golden.json and golden.safetensors,
    /// docs/reference/verify.md) and compares them, as `libds verify` does. The text has one line per
    /// comparison with the largest error, its tolerance and where it is. Collective; all ranks get the same
    /// result.
    ///
    /// - `model`: folder of a Hugging Face model, or a GGUF file with golden.* beside it
    ///
    /// - `options`: \[nullable\] JSON: "stage" (0), "tier" ("device", "cpu", "nvme"), "dtype" ("f32", "bf16",
    ///   "both"), "kinds" (all that are recorded), "nvme_path" ("."), "threads" (0)
    ///
    /// - `out_failed`: \[out\] number of comparisons beyond their tolerance
    pub fn ds_run_verify(comm: *mut ds_comm, model: *const c_char, options: *const c_char, format: ds_format, out_failed: *mut i32, out_text: *mut *mut c_char) -> ds_status;
    /// Trains a few steps on random tokens and tells where their time goes, as `libds profile` does: calls,
    /// time, floating-point operations, bytes and the share of what this machine can reach, by operation
    /// (docs/reference/profile.md). Collective; every rank gets its own table.
    ///
    /// - `config`: \[nullable\] JSON text; NULL: defaults, bf16, stage 0
    ///
    /// - `model`: \[nullable\] folder of a Hugging Face model or GGUF file, which replaces the model of the
    ///   configuration; its weights are drawn at random. You must give config, model or both.
    ///
    /// - `options`: \[nullable\] JSON: "micro_batch" and "sequence" (default: those of the configuration,
    ///   without one 4 and 128), "dtype" ("f32", "bf16", "f16"), "threads" (0), "steps" (3), "by" ("op",
    ///   "instruction")
    pub fn ds_run_profile(comm: *mut ds_comm, config: *const c_char, model: *const c_char, options: *const c_char, format: ds_format, out_text: *mut *mut c_char) -> ds_status;
    /// Trains a few steps and runs each instruction of the last one again, alone, as `libds audit` does
    /// (docs/reference/audit.md). It compares kernels with the reference in double, and collectives, copies
    /// and files bit by bit. The text has a line for each instruction with its error and bound, largest
    /// first, and ends with the verdict. Collective; all ranks get the same result.
    ///
    /// - `config`: JSON text
    ///
    /// - `options`: \[nullable\] JSON: "steps" (2), "top" (20 lines; 0: all), "threads" (0)
    ///
    /// - `out_failed`: \[out\] number of instructions beyond their bound or with other bits, on any rank
    pub fn ds_run_audit(comm: *mut ds_comm, config: *const c_char, options: *const c_char, format: ds_format, out_failed: *mut i32, out_text: *mut *mut c_char) -> ds_status;
}
