// libds.lowlevel has the calls of ds.h without the prefix ds_. A status becomes an exception,
// outputs become results, a handle is freed with its object, and arrays are sequences or buffers.
// The package libds is built on this module.
%module(package="libds", docstring="The calls of ds.h without the prefix ds_, made by SWIG; the package libds is written over them.") lowlevel
%{
#include "glue.h"
%}

%pythonbegin %{
from . import _lowlevel

_lowlevel.check_interpreter()
%}

%include <stdint.i>
%include <exception.i>
%rename("%(regex:/^(ds_|DS_)(.*)/\\2/)s") "";

%init %{
  if (find_functions() < 0) return NULL;
  elements_type = PyType_FromSpec(&elements_spec);
  if (!elements_type) return NULL;
  PyModule_AddObject(m, "Elements", Py_NewRef(elements_type));
%}
%pythoncode %{
Elements = _lowlevel.Elements
%}

// --- status ---------------------------------------------------------------------------------------------------------
%typemap(out) ds_status {
  if (raised($1)) SWIG_fail;
  $result = NULL;
}
%typemap(ret) ds_status "if (!$result) $result = SWIG_Py_Void();"

// --- handles --------------------------------------------------------------------------------------------------------
%define %ds_handle(type)
%nodefaultctor type;
struct type {};
%extend type {
  ~type() { type##_destroy($self); }
}
%ignore type##_destroy;
%typemap(in) type * (void *found = NULL), const type * (void *found = NULL) {
  if (!SWIG_IsOK(SWIG_ConvertPtr($input, &found, $descriptor(type *), $disown))) {
    refuse_type("$1_name", "a libds.lowlevel." #type, $input);
    SWIG_fail;
  }
  $1 = (type *)found;
}
%typemap(in, numinputs=0) type **out (type *made = NULL) "$1 = &made;"
%typemap(argout) type **out {
  %append_output(SWIG_NewPointerObj(*$1, $descriptor(type *), SWIG_POINTER_OWN));
}
%enddef
// These touch Python objects; the destructor does so through the deleter of a foreign tensor.
%nothread ds_tensor::~ds_tensor;
%nothread ds_tensor::memory;
%nothread tensor_from;
%nothread tensor_to_dlpack;
%nothread bind_elements;
%ds_handle(ds_comm)
%ds_handle(ds_tensor)
%ds_handle(ds_graph)
%ds_handle(ds_plan)
%ds_handle(ds_engine)
%ds_handle(ds_work)
%ds_handle(ds_stream)

// --- numbers --------------------------------------------------------------------------------------------------------
%typemap(in) int32_t (long long wide = 0), int (long long wide = 0), enum SWIGTYPE (long long wide = 0) {
  if (integer_argument($input, "$1_name", INT32_MAX, &wide) < 0) SWIG_fail;
  $1 = ($1_ltype)wide;
}
%typemap(in) int64_t (long long wide = 0) {
  if (integer_argument($input, "$1_name", INT64_MAX, &wide) < 0) SWIG_fail;
  $1 = wide;
}
%typemap(in) double {
  if (number_argument($input, "$1_name", &$1) < 0) SWIG_fail;
}

// --- texts ----------------------------------------------------------------------------------------------------------
%typemap(in) const char * {
  $1 = NULL;
  if ($input != Py_None && !($1 = (char *)text_argument($input, "$1_name"))) SWIG_fail;
}
%typemap(freearg) const char * "";

// --- outputs --------------------------------------------------------------------------------------------------------
%typemap(in, numinputs=0) int32_t *out (int32_t made = -1) "$1 = &made;"
%typemap(argout) int32_t *out { %append_output(PyLong_FromLong(*$1)); }
%typemap(in, numinputs=0) int32_t *out_failed (int32_t made = 0), int32_t *out_refused (int32_t made = 0) "$1 = &made;"
%typemap(argout) int32_t *out_failed, int32_t *out_refused { %append_output(PyLong_FromLong(*$1)); }
%typemap(in, numinputs=0) int64_t *out_first (int64_t made = 0), int64_t *out_count (int64_t made = 0), int64_t *out_steps (int64_t made = 0) "$1 = &made;"
%typemap(argout) int64_t *out_first, int64_t *out_count, int64_t *out_steps { %append_output(PyLong_FromLongLong(*$1)); }
%typemap(in, numinputs=0) double *out (double made = 0), double *out_loss (double made = 0) "$1 = &made;"
%typemap(argout) double *out, double *out_loss { %append_output(PyFloat_FromDouble(*$1)); }

%ignore ds_step_result;
%typemap(in, numinputs=0) (ds_step_result *out, size_t struct_size) (ds_step_result made) {
  memset(&made, 0, sizeof made);
  $1 = &made; $2 = sizeof made;
}
%typemap(argout) (ds_step_result *out, size_t struct_size) {
  %append_output(Py_BuildValue("{s:L,s:L,s:d,s:d,s:d,s:O,s:d,s:O}", "step", (long long)$1->step, "updates",
                               (long long)$1->updates, "loss", $1->loss, "grad_norm", $1->grad_norm, "lr", $1->lr,
                               "skipped", $1->skipped ? Py_True : Py_False, "loss_scale", $1->loss_scale,
                               "loss_scale_at_floor", $1->loss_scale_at_floor ? Py_True : Py_False));
}

%typemap(in, numinputs=0) char **out_text (char *made = NULL) "$1 = &made;"
%typemap(argout) char **out_text { %append_output(PyUnicode_FromString(*$1)); }
%typemap(freearg) char **out_text { ds_text_destroy(*$1); }
%ignore ds_text_destroy;
%ignore ds_last_error_details;

%typemap(in, numinputs=0) (ds_dtype *out_dtype, int64_t *out_dims, int64_t *out_strides, size_t dims_size, size_t *out_dims_count, const char **out_device, void **out_data)
    (ds_dtype dtype, int64_t dims[kMaxDims], size_t count = 0) {
  $1 = &dtype; $2 = dims; $3 = NULL; $4 = kMaxDims; $5 = &count; $6 = NULL; $7 = NULL;
}
%typemap(argout) (ds_dtype *out_dtype, int64_t *out_dims, int64_t *out_strides, size_t dims_size, size_t *out_dims_count, const char **out_device, void **out_data) {
  %append_output(PyLong_FromLong((long)*$1));
  %append_output(dims_list($2, *$5));
}
%typemap(in, numinputs=0) (ds_dtype *out_dtype, int64_t *out_dims, size_t dims_size, size_t *out_dims_count)
    (ds_dtype dtype, int64_t dims[kMaxDims], size_t count = 0) {
  $1 = &dtype; $2 = dims; $3 = kMaxDims; $4 = &count;
}
%typemap(argout) (ds_dtype *out_dtype, int64_t *out_dims, size_t dims_size, size_t *out_dims_count) {
  %append_output(PyLong_FromLong((long)*$1));
  %append_output(dims_list($2, *$4));
}
%typemap(in, numinputs=0) (const char **out_name, int64_t *out_dims, size_t dims_size, size_t *out_dims_count)
    (const char *name = NULL, int64_t dims[kMaxDims], size_t count = 0) {
  $1 = (char **)&name; $2 = dims; $3 = kMaxDims; $4 = &count;
}
%typemap(argout) (const char **out_name, int64_t *out_dims, size_t dims_size, size_t *out_dims_count) {
  %append_output(PyUnicode_FromString(*$1));
  %append_output(dims_list($2, *$4));
}

// --- arrays ---------------------------------------------------------------------------------------------------------
%define %ds_integers(type, name)
%typemap(in) (const type *name, size_t name##_count) {
  $1 = int_array($input, "$1_name", sizeof(type), &$2);
  if (!$1) SWIG_fail;
}
%typemap(freearg) (const type *name, size_t name##_count) { free((void *)$1); }
%enddef
%ds_integers(int64_t, dims)
%ds_integers(int32_t, inputs)
%ds_integers(int32_t, params)

%typemap(in) (const int32_t *values, size_t values_count, int32_t *out) {
  $1 = int_array($input, "$1_name", sizeof(int32_t), &$2);
  if (!$1) SWIG_fail;
  $3 = malloc($2 * sizeof(int32_t) + 1);
  if (!$3) SWIG_exception_fail(SWIG_MemoryError, "no memory for gradients");
}
%typemap(argout) (const int32_t *values, size_t values_count, int32_t *out) {
  PyObject *list = PyList_New((Py_ssize_t)$2);
  for (size_t i = 0; list && i < $2; ++i) PyList_SetItem(list, (Py_ssize_t)i, PyLong_FromLong($3[i]));
  %append_output(list);
}
%typemap(freearg) (const int32_t *values, size_t values_count, int32_t *out) { free((void *)$1); free($3); }

%typemap(in) (const ds_tensor *const *inputs, size_t inputs_count) (PyObject *items = NULL) {
  items = items_of($input, "$1_name", "a sequence of tensors");
  if (!items) SWIG_fail;
  $2 = (size_t)PyTuple_Size(items);
  const ds_tensor **array = malloc($2 * sizeof *array + 1);
  int good = array != NULL;
  for (size_t i = 0; good && i < $2; ++i) {
    void *tensor = NULL;
    good = SWIG_IsOK(SWIG_ConvertPtr(PyTuple_GetItem(items, (Py_ssize_t)i), &tensor, $descriptor(ds_tensor *), 0));
    array[i] = tensor;
  }
  $1 = (ds_tensor **)array;
  if (!good) SWIG_exception_fail(SWIG_TypeError, "$1_name must be a sequence of tensors");
}
%typemap(freearg) (const ds_tensor *const *inputs, size_t inputs_count) {
  free((void *)$1);
  Py_XDECREF(items$argnum);
}
// A tuple (params, grads): equally many numbers and tensors.
%typemap(in) (const int32_t *params, size_t params_count, const ds_tensor *const *grads) (PyObject *items = NULL) {
  PyObject *numbers = NULL, *tensors = NULL;
  if (!PyArg_ParseTuple($input, "OO", &numbers, &tensors)) SWIG_fail;
  $1 = int_array(numbers, "params", sizeof(int32_t), &$2);
  if (!$1) SWIG_fail;
  items = items_of(tensors, "grads", "a sequence of tensors");
  if (!items) SWIG_fail;
  if ((size_t)PyTuple_Size(items) != $2) SWIG_exception_fail(SWIG_ValueError, "grads must have a tensor for each of params");
  const ds_tensor **array = malloc($2 * sizeof *array + 1);
  int good = array != NULL;
  for (size_t i = 0; good && i < $2; ++i) {
    void *tensor = NULL;
    good = SWIG_IsOK(SWIG_ConvertPtr(PyTuple_GetItem(items, (Py_ssize_t)i), &tensor, $descriptor(ds_tensor *), 0));
    array[i] = tensor;
  }
  $3 = (ds_tensor **)array;
  if (!good) SWIG_exception_fail(SWIG_TypeError, "grads must be a sequence of tensors");
}
%typemap(freearg) (const int32_t *params, size_t params_count, const ds_tensor *const *grads) {
  free((void *)$1);
  free((void *)$3);
  Py_XDECREF(items$argnum);
}

// f32 buffers: array.array, memoryview, NumPy.
%define %ds_floats(type, flags)
%typemap(in) (type *data, size_t data_count) (Py_buffer view, int held = 0) {
  if (PyObject_GetBuffer($input, &view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | flags) < 0) SWIG_fail;
  held = 1;
  if (dtype_of_format(view.format, view.itemsize) != DS_DTYPE_F32) {
    SWIG_exception_fail(SWIG_TypeError, "$1_name must be a buffer of float32");
  }
  $1 = (float *)view.buf;
  $2 = (size_t)(view.len / 4);
}
%typemap(freearg) (type *data, size_t data_count) { if (held$argnum) PyBuffer_Release(&view$argnum); }
%enddef
%ds_floats(float, PyBUF_WRITABLE)
%ds_floats(const float, 0)

// In delegate mode, parameters begin as zeros; engine_write sets their values.
%typemap(in, numinputs=0) const float *data "$1 = NULL;"

// --- tensors --------------------------------------------------------------------------------------------------------
// tensor_create allocates memory; the others share that of NumPy, torch or any buffer.
%typemap(in, numinputs=0) void *data "$1 = NULL;"
%typemap(in, numinputs=0) const int64_t *strides "$1 = NULL;"
%typemap(default) ds_stream *stream "$1 = NULL;"
%ignore ds_tensor_from_dlpack;
%ignore ds_tensor_to_dlpack;
%typemap(newfree) ds_tensor * "";
%typemap(out) ds_tensor *tensor_from {
  if (!$1) SWIG_fail;
  $result = SWIG_NewPointerObj($1, $descriptor(ds_tensor *), SWIG_POINTER_OWN);
}
%typemap(out) PyObject * {
  if (!$1) SWIG_fail;
  $result = $1;
}
%nothread check_interpreter;
%feature("docstring") check_interpreter "Raises ImportError in a subinterpreter.";
%feature("docstring") tensor_from "A tensor over the memory of a buffer, of an object with __dlpack__ or of a capsule, which it keeps; nothing is copied.
dtype: DTYPE_NONE for the object's own, DTYPE_BF16 over 16-bit integers.";
%feature("docstring") tensor_to_dlpack "A DLPack capsule over a tensor's memory, which it keeps; versioned 1: of DLPack 1.x.";
%feature("docstring") bind_elements "Sets what an object of Elements is over.";
%inline %{
PyObject *check_interpreter(void) { return in_main_interpreter() ? Py_NewRef(Py_None) : NULL; }
ds_tensor *tensor_from(PyObject *object, int writable, int dtype) {
  return tensor_of_object(object, writable, (ds_dtype)dtype);
}
PyObject *tensor_to_dlpack(ds_tensor *tensor, int versioned) { return capsule_of_tensor(tensor, versioned); }
PyObject *bind_elements(PyObject *elements, ds_tensor *tensor) {
  if (!PyObject_TypeCheck(elements, (PyTypeObject *)elements_type)) {
    PyErr_SetString(PyExc_TypeError, "an object of libds.lowlevel.Elements is needed");
    return NULL;
  }
  return set_elements((Elements *)elements, tensor) < 0 ? NULL : Py_NewRef(Py_None);
}
%}
%feature("docstring") ds_tensor::memory "The elements as a writable memoryview of bytes, which keeps their memory. After the end of a lease it shows what the
engine left there.";
%extend ds_tensor {
  PyObject *memory() { return memory_of($self); }
  %pythoncode %{
    def __dlpack__(self, stream=None, max_version=None, dl_device=None, copy=None):
        return tensor_to_dlpack(self, int(max_version is not None and max_version[0] >= 1))

    def __dlpack_device__(self):
        return (1, 0)
  %}
}

// --- options --------------------------------------------------------------------------------------------------------
%define %ds_options(type)
%ignore type##_init;
%ignore type::struct_size;
%extend type {
  type() {
    type *made = malloc(sizeof *made);
    if (made) type##_init(made, sizeof *made);
    return made;
  }
  ~type() { free($self); }
}
%enddef
%ds_options(ds_comm_options)
%ignore ds_engine_options::init;
%ignore ds_engine_options::init_user_data;
%ignore ds_engine_options::update;
%ignore ds_engine_options::update_user_data;
%ignore ds_update;
%ignore ds_engine_options_init;
%ignore ds_engine_options::struct_size;
%exception ds_engine_options::set_init {
  $action
  if (PyErr_Occurred()) SWIG_fail;
}
%exception ds_engine_options::set_update {
  $action
  if (PyErr_Occurred()) SWIG_fail;
}
%nothread ds_engine_options::set_init;
%nothread ds_engine_options::set_update;
%nothread ds_engine_options::~ds_engine_options;
%feature("docstring") ds_engine_options::set_init "Gives initial values: a callable (param, name, first, values), which changes the memoryview of float32. Once
only. These options must live until the engine has started.";
%feature("docstring") ds_engine_options::set_update "Gives the update of optimizer.type Callback: a callable ((param, first, update, lr,
weight_decay, beta1, beta2, eps, momentum), [values, grads], states) over low-level tensors. Once only. These options must live
as long as the engine.";
%extend ds_engine_options {
  ds_engine_options() {
    ds_engine_options *made = malloc(sizeof *made);
    if (made) ds_engine_options_init(made, sizeof *made);
    return made;
  }
  void set_init(PyObject *callable) {
    if ($self->init_user_data) { // an engine may have it
      PyErr_SetString(PyExc_RuntimeError, "these options have an init already");
      return;
    }
    $self->init = callable == Py_None ? NULL : call_init;
    $self->init_user_data = callable == Py_None ? NULL : Py_NewRef(callable);
  }
  void set_update(PyObject *callable) {
    if ($self->update_user_data) {
      PyErr_SetString(PyExc_RuntimeError, "these options have an update already");
      return;
    }
    $self->update = callable == Py_None ? NULL : call_update;
    $self->update_user_data = callable == Py_None ? NULL : Py_NewRef(callable);
  }
  ~ds_engine_options() {
    Py_XDECREF((PyObject *)$self->init_user_data);
    Py_XDECREF((PyObject *)$self->update_user_data);
    free($self);
  }
}

// --- callbacks ------------------------------------------------------------------------------------------------------
%typemap(in) (ds_log_fn *fn, void *user_data) {
  $1 = $input == Py_None ? NULL : call_log;
  $2 = $input == Py_None ? NULL : $input;
}
%typemap(argout) (ds_log_fn *fn, void *user_data) {
  set_log_callable((PyObject *)$2);
}

// The text is always told, because this is where Control-C is noticed.
%typemap(in) (ds_run_text_fn *text, void *user_data) {
  $1 = call_text;
  $2 = $input == Py_None ? NULL : $input;
}
// (batch, progress, stop): callables and a buffer of int32; each may be None. Progress is always
// called, because this is where Control-C is noticed.
%typemap(in) (ds_run_batch_fn *batch, ds_run_progress_fn *progress, const volatile int32_t *stop, void *user_data)
    (RunCallbacks calls, Py_buffer flag, int held = 0) {
  PyObject *items[3] = {NULL, NULL, NULL};
  if (!PyArg_ParseTuple($input, "OOO", &items[0], &items[1], &items[2])) SWIG_fail;
  calls.batch = items[0] == Py_None ? NULL : items[0];
  calls.progress = items[1] == Py_None ? NULL : items[1];
  if (items[2] != Py_None && PyObject_GetBuffer(items[2], &flag, PyBUF_WRITABLE) < 0) SWIG_fail;
  held = items[2] != Py_None;
  if (held && flag.len != (Py_ssize_t)sizeof(int32_t)) {
    SWIG_exception_fail(SWIG_TypeError, "stop must be a buffer of one int32");
  }
  $1 = calls.batch ? call_batch : NULL;
  $2 = call_progress;
  $3 = held ? flag.buf : NULL;
  $4 = &calls;
}
%typemap(freearg) (ds_run_batch_fn *batch, ds_run_progress_fn *progress, const volatile int32_t *stop, void *user_data) {
  if (held$argnum) PyBuffer_Release(&flag$argnum);
}
%ignore ds_run_progress;
// (forward, backward or None, number of inputs, [(dtype, [dimensions])])
%ignore ds_custom_op;
%typemap(in) const ds_custom_op *op (CustomCall call, int held = 0) {
  if (set_custom(&call, $input) < 0) SWIG_fail;
  held = 1;
  $1 = &call.op;
}
%typemap(argout) const ds_custom_op *op "call$argnum.made = NULL;"
%typemap(freearg) const ds_custom_op *op { if (held$argnum && call$argnum.made) free_custom(call$argnum.made); }

// (size, all_to_all, all_gather, send, receive, abort); the last four may be None
%ignore ds_comm_callbacks;
%typemap(in) const ds_comm_callbacks *callbacks (CollectivesArgument argument, int held = 0) {
  if (set_collectives(&argument, $input) < 0) SWIG_fail;
  held = 1;
  $1 = &argument.callbacks;
}
%typemap(argout) const ds_comm_callbacks *callbacks "argument$argnum.made = NULL;"
%typemap(freearg) const ds_comm_callbacks *callbacks { if (held$argnum && argument$argnum.made) free_collectives(argument$argnum.made); }

// --- collectives ----------------------------------------------------------------------------------------------------
// (op, dtype, reduce, root, ins, outs, counts, blocks, out_blocks): ins and outs are lists of tensors or None, the others
// lists of integers or None. The caller has checked that the tensors have as many elements as the call counts.
%ignore ds_comm_call;
%ignore ds_comm_call_init;
%typemap(in) const ds_comm_call *call (ds_comm_call call, PyObject *parts[5], int bad) {
  int op = 0, dtype = 0, reduce = 0, root = 0;
  ds_comm_call_init(&call, sizeof call);
  if (!PyArg_ParseTuple($input, "iiiiOOOOO", &op, &dtype, &reduce, &root, &parts[0], &parts[1], &parts[2], &parts[3],
                        &parts[4])) {
    SWIG_fail;
  }
  call.op = (ds_comm_op)op;
  call.dtype = (ds_dtype)dtype;
  call.reduce = (ds_reduce_op)reduce;
  call.root = root;
  bad = 0;
  void **pointers[2] = {NULL, NULL};
  for (int which = 0; which < 2 && !bad; ++which) {
    if (parts[which] == Py_None) continue;
    Py_ssize_t count = PySequence_Size(parts[which]);
    bad = count < 0 || (which == 1 && pointers[0] && (size_t)count != call.buffers_count);
    pointers[which] = bad ? NULL : calloc((size_t)count + 1, sizeof(void *));
    call.buffers_count = (size_t)count;
    for (Py_ssize_t i = 0; pointers[which] && i < count && !bad; ++i) {
      void *tensor = NULL;
      PyObject *item = PySequence_GetItem(parts[which], i);
      bad = !item || !SWIG_IsOK(SWIG_ConvertPtr(item, &tensor, $descriptor(ds_tensor *), 0));
      if (!bad && tensor) bad = compact_data(tensor, which == 1 && call.op != DS_COMM_OP_BROADCAST ? "out" : "data", &pointers[which][i]) < 0;
      Py_XDECREF(item);
    }
  }
  call.ins = (const void *const *)pointers[0];
  call.outs = pointers[1];
  size_t numbers = 0, *lists[3] = {NULL, NULL, NULL};
  for (int which = 0; which < 3 && !bad; ++which) {
    if (parts[2 + which] == Py_None) continue;
    lists[which] = int_array(parts[2 + which], which == 0 ? "counts" : which == 1 ? "blocks" : "out_blocks", sizeof(int64_t), &numbers);
    bad = !lists[which];
    if (which > 0) call.blocks_count = numbers;
  }
  call.counts = lists[0];
  call.blocks = lists[1];
  call.out_blocks = lists[2];
  $1 = &call;
  if (bad) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a collective takes lists of tensors, equally many in and out");
    SWIG_fail;
  }
}
%typemap(freearg) const ds_comm_call *call {
  if ($1) {
    free((void *)$1->ins);
    free((void *)$1->outs);
    free((void *)$1->counts);
    free((void *)$1->blocks);
    free((void *)$1->out_blocks);
  }
}
// The argument says whether to only start the call; then the result is its ds_work.
%typemap(in) ds_work **out_work (ds_work *made = NULL) "$1 = PyObject_IsTrue($input) ? &made : NULL;"
%typemap(argout) ds_work **out_work {
  if ($1) {
    %append_output(SWIG_NewPointerObj(*$1, $descriptor(ds_work *), SWIG_POINTER_OWN));
    *$1 = NULL;
  }
}
%typemap(freearg) ds_work **out_work { if ($1) ds_work_destroy(*$1); }
%typemap(in, numinputs=0) int32_t *out_done (int32_t made = 0) "$1 = &made;"
%typemap(argout) int32_t *out_done { %append_output(PyBool_FromLong(*$1)); }

// Bytes of a point-to-point message: any contiguous buffer.
%define %ds_bytes(type, flags)
%typemap(in) (type *data, size_t data_size) (Py_buffer view, int held = 0) {
  if (PyObject_GetBuffer($input, &view, PyBUF_C_CONTIGUOUS | flags) < 0) SWIG_fail;
  held = 1;
  $1 = view.buf;
  $2 = (size_t)view.len;
}
%typemap(freearg) (type *data, size_t data_size) { if (held$argnum) PyBuffer_Release(&view$argnum); }
%enddef
%ds_bytes(void, PyBUF_WRITABLE)
%ds_bytes(const void, 0)

// These calls are left out, because they take raw memory of unchecked size. ds_comm_submit replaces
// them.
%ignore ds_comm_all_gather;
%ignore ds_comm_all_reduce;
%ignore ds_comm_reduce_scatter;
%ignore ds_comm_all_to_all;

// --- plans ----------------------------------------------------------------------------------------------------------
%typemap(in) (const ds_plan *const *plans, size_t count) (PyObject *items = NULL) {
  items = items_of($input, "$1_name", "a sequence of plans");
  if (!items) SWIG_fail;
  $2 = (size_t)PyTuple_Size(items);
  const ds_plan **array = malloc($2 * sizeof *array + 1);
  int good = array != NULL;
  for (size_t i = 0; good && i < $2; ++i) {
    void *plan = NULL;
    good = SWIG_IsOK(SWIG_ConvertPtr(PyTuple_GetItem(items, (Py_ssize_t)i), &plan, $descriptor(ds_plan *), 0));
    array[i] = plan;
  }
  $1 = (ds_plan **)array;
  if (!good) SWIG_exception_fail(SWIG_TypeError, "$1_name must be a sequence of plans");
}
%typemap(freearg) (const ds_plan *const *plans, size_t count) {
  free((void *)$1);
  Py_XDECREF(items$argnum);
}

// ds.h describes each of these calls together with the call before it.
%feature("docstring") ds_backward "The second piece of a step: gradients of the last forward; in delegate mode the end of a micro-step. See forward.";
%feature("docstring") ds_step "The last piece of a step: clipping and the update. See forward.";
%feature("docstring") ds_engine_write_local "Replaces the elements of local_range only, without communication; refresh must follow. See engine_read_local.";

%include "ds.h"

// The tests of ds.h need its tags; readers of help() do not.
%pythoncode %{
def _without_tags():
    import re
    for name, one in list(globals().items()):
        if hasattr(one, "__code__") and one.__doc__:
            one.__doc__ = re.sub(r"\s*\{[a-z_0-9]+(\.[a-z_0-9]+)+\}", "", one.__doc__)


_without_tags()
%}
