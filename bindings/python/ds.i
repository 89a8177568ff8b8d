// Python module over ds.h: the same calls without the ds_ prefix. A status becomes an exception, outputs become results,
// handles are freed with their object, arrays come as sequences or buffers.
%module(package="libds") libds
%{
#include <ds.h>
#include <stdlib.h>
#include <string.h>

static PyObject *DsError; /* ds.Error(code, message), with what it is about: key, tensor, rank */

static void set_attribute(PyObject *object, const char *name, PyObject *value) {
  if (value) PyObject_SetAttrString(object, name, value);
  Py_XDECREF(value);
}
/* Raises what the last call has ended with. */
static void raise_error(ds_status status) {
  const char *key = "", *tensor = "";
  int32_t rank = -1;
  ds_last_error_details(&key, &tensor, &rank);
  PyObject *error = PyObject_CallFunction(DsError, "is", (int)status, ds_last_error_message());
  if (!error) return;
  set_attribute(error, "key", *key ? PyUnicode_FromString(key) : Py_NewRef(Py_None));
  set_attribute(error, "tensor", *tensor ? PyUnicode_FromString(tensor) : Py_NewRef(Py_None));
  set_attribute(error, "rank", rank >= 0 ? PyLong_FromLong(rank) : Py_NewRef(Py_None));
  PyErr_SetObject(DsError, error);
  Py_DECREF(error);
}

enum { kMaxDims = 8 };
static PyObject *dims_list(const int64_t *dims, size_t count) {
  PyObject *out = PyList_New((Py_ssize_t)count);
  for (size_t i = 0; out && i < count; ++i) PyList_SetItem(out, (Py_ssize_t)i, PyLong_FromLongLong(dims[i]));
  return out;
}

/* Integers of a sequence as an array of element_size 4 or 8, which the caller frees; NULL with an exception set. */
static void *int_array(PyObject *object, size_t element_size, size_t *count) {
  PyObject *items = PySequence_Fast(object, "a sequence of integers is needed");
  if (!items) return NULL;
  *count = (size_t)PySequence_Fast_GET_SIZE(items);
  char *out = malloc(*count * element_size + 1);
  for (size_t i = 0; out && i < *count; ++i) {
    int64_t wide = PyLong_AsLongLong(PySequence_Fast_GET_ITEM(items, (Py_ssize_t)i));
    int32_t narrow = (int32_t)wide;
    if (!PyErr_Occurred() && element_size == 4 && narrow != wide) {
      PyErr_SetString(PyExc_OverflowError, "an integer of 32 bits is needed");
    }
    memcpy(out + i * element_size, element_size == 4 ? (void *)&narrow : (void *)&wide, element_size);
  }
  Py_DECREF(items);
  if (!out) PyErr_NoMemory();
  if (!PyErr_Occurred()) return out;
  free(out);
  return NULL;
}

/* The deleter runs when a tensor over the view is destroyed. */
static void free_capsule(PyObject *capsule) {
  ds_tensor *tensor = NULL;
  if (!PyCapsule_IsValid(capsule, "dltensor")) return;
  if (ds_tensor_from_dlpack(PyCapsule_GetPointer(capsule, "dltensor"), NULL, NULL, &tensor) == DS_OK) ds_tensor_destroy(tensor);
}

/* What a memoryview of a tensor's elements is over. It owns a DLPack export, which keeps the memory: the tensor, the
 * engine behind a view and their Python objects may all end before it. */
typedef struct Elements {
  PyObject_HEAD
  PyObject *capsule;
  void *data;
  Py_ssize_t size;
} Elements;
static void free_elements(PyObject *self) {
  Py_XDECREF(((Elements *)self)->capsule);
  PyObject_Free(self);
}
static int elements_buffer(PyObject *self, Py_buffer *view, int flags) {
  return PyBuffer_FillInfo(view, self, ((Elements *)self)->data, ((Elements *)self)->size, 0, flags);
}
static PyBufferProcs elements_procs = {elements_buffer, NULL};
static PyTypeObject ElementsType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "libds.Elements",
    .tp_basicsize = sizeof(Elements),
    .tp_dealloc = free_elements,
    .tp_as_buffer = &elements_procs,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Memory of a tensor's elements.",
};

static PyObject *log_callable;
static void call_log(ds_log_level level, const char *line, void *user_data) {
  PyGILState_STATE state = PyGILState_Ensure();
  PyObject *result = PyObject_CallFunction((PyObject *)user_data, "is", (int)level, line);
  if (!result) PyErr_WriteUnraisable((PyObject *)user_data);
  Py_XDECREF(result);
  PyGILState_Release(state);
}
%}

%include <stdint.i>
%include <exception.i>
%rename("%(regex:/^(ds_|DS_)(.*)/\\2/)s") "";

%init %{
  DsError = PyErr_NewException("libds.Error", NULL, NULL);
  Py_INCREF(DsError);
  PyModule_AddObject(m, "Error", DsError);
  if (PyType_Ready(&ElementsType) < 0) return NULL;
%}
%pythoncode %{
Error = _libds.Error
%}

// --- status ---------------------------------------------------------------------------------------------------------
%typemap(out) ds_status {
  if ($1 != DS_OK) {
    raise_error($1);
    SWIG_fail;
  }
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
%typemap(in, numinputs=0) type **out (type *made = NULL) "$1 = &made;"
%typemap(argout) type **out {
  %append_output(SWIG_NewPointerObj(*$1, $descriptor(type *), SWIG_POINTER_OWN));
}
%enddef
// These touch Python objects, the destructor through the deleter of a foreign tensor.
%nothread ds_tensor::~ds_tensor;
%nothread ds_tensor::memory;
%ds_handle(ds_comm)
%ds_handle(ds_tensor)
%ds_handle(ds_graph)
%ds_handle(ds_plan)
%ds_handle(ds_engine)

// --- outputs --------------------------------------------------------------------------------------------------------
%typemap(in, numinputs=0) int32_t *out (int32_t made = -1) "$1 = &made;"
%typemap(argout) int32_t *out { %append_output(PyLong_FromLong(*$1)); }
%typemap(in, numinputs=0) int32_t *out_failed (int32_t made = 0) "$1 = &made;"
%typemap(argout) int32_t *out_failed { %append_output(PyLong_FromLong(*$1)); }
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
  %append_output(Py_BuildValue("{s:L,s:L,s:d,s:d,s:d,s:O}", "step", (long long)$1->step, "updates",
                               (long long)$1->updates, "loss", $1->loss, "grad_norm", $1->grad_norm, "lr", $1->lr,
                               "skipped", $1->skipped ? Py_True : Py_False));
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
  $1 = int_array($input, sizeof(type), &$2);
  if (!$1) SWIG_fail;
}
%typemap(freearg) (const type *name, size_t name##_count) { free((void *)$1); }
%enddef
%ds_integers(int64_t, dims)
%ds_integers(int32_t, inputs)
%ds_integers(int32_t, params)

%typemap(in) (const int32_t *values, size_t values_count, int32_t *out) {
  $1 = int_array($input, sizeof(int32_t), &$2);
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

%typemap(in) (const ds_tensor *const *inputs, size_t inputs_count) {
  PyObject *items = PySequence_Fast($input, "a sequence of tensors is needed");
  if (!items) SWIG_fail;
  $2 = (size_t)PySequence_Fast_GET_SIZE(items);
  const ds_tensor **array = malloc($2 * sizeof *array + 1);
  int good = array != NULL;
  for (size_t i = 0; good && i < $2; ++i) {
    void *tensor = NULL;
    good = SWIG_IsOK(SWIG_ConvertPtr(PySequence_Fast_GET_ITEM(items, (Py_ssize_t)i), &tensor, $descriptor(ds_tensor *), 0));
    array[i] = tensor;
  }
  Py_DECREF(items);
  $1 = (ds_tensor **)array;
  if (!good) SWIG_exception_fail(SWIG_TypeError, "a sequence of tensors is needed");
}
%typemap(freearg) (const ds_tensor *const *inputs, size_t inputs_count) { free((void *)$1); }

// f32 buffers: array.array, memoryview, NumPy.
%define %ds_floats(type, flags)
%typemap(in) (type *data, size_t data_count) (Py_buffer view) {
  view.obj = NULL;
  if (PyObject_GetBuffer($input, &view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | flags) < 0) SWIG_fail;
  if (view.itemsize != 4 || !view.format || strcmp(view.format, "f") != 0) {
    PyBuffer_Release(&view);
    view.obj = NULL;
    SWIG_exception_fail(SWIG_TypeError, "a buffer of float32 is needed");
  }
  $1 = (float *)view.buf;
  $2 = (size_t)(view.len / 4);
}
%typemap(freearg) (type *data, size_t data_count) { if (view$argnum.obj) PyBuffer_Release(&view$argnum); }
%enddef
%ds_floats(float, PyBUF_WRITABLE)
%ds_floats(const float, 0)

// Delegate mode: parameters begin as zeros; engine_write gives them values.
%typemap(in, numinputs=0) const float *data "$1 = NULL;"

// --- tensors --------------------------------------------------------------------------------------------------------
// tensor_create makes memory of its own; tensor_from_dlpack shares that of NumPy and others.
%typemap(in, numinputs=0) void *data "$1 = NULL;"
%typemap(in, numinputs=0) const int64_t *strides "$1 = NULL;"
%typemap(in, numinputs=0) ds_stream *stream "$1 = NULL;"
%typemap(in, numinputs=0) struct DLManagedTensorVersioned *versioned "$1 = NULL;"
%typemap(in, numinputs=0) struct DLManagedTensorVersioned **out_versioned "$1 = NULL;"
%typemap(in) struct DLManagedTensor *managed (PyObject *capsule) {
  capsule = PyCapsule_CheckExact($input) ? (Py_INCREF($input), $input) : PyObject_CallMethod($input, "__dlpack__", NULL);
  if (!capsule) SWIG_fail;
  $1 = PyCapsule_GetPointer(capsule, "dltensor");
  if (!$1) {
    Py_DECREF(capsule);
    capsule = NULL;
    SWIG_fail;
  }
}
%typemap(argout) struct DLManagedTensor *managed { PyCapsule_SetName(capsule$argnum, "used_dltensor"); }
%typemap(freearg) struct DLManagedTensor *managed { Py_XDECREF(capsule$argnum); }
%typemap(in, numinputs=0) struct DLManagedTensor **out (struct DLManagedTensor *made = NULL) "$1 = &made;"
%typemap(argout) struct DLManagedTensor **out { %append_output(PyCapsule_New(*$1, "dltensor", free_capsule)); }
%extend ds_tensor {
  // The elements as a writable memoryview of bytes, which keeps their memory. After the end of a lease it shows what
  // the engine left there.
  PyObject *memory() {
    static const size_t sizes[] = {0, 4, 2, 2, 8, 4, 8, 1};
    ds_dtype dtype = DS_DTYPE_NONE;
    int64_t dims[kMaxDims];
    size_t count = 0, bytes = 1;
    void *data = NULL;
    if (ds_tensor_info($self, &dtype, dims, NULL, kMaxDims, &count, NULL, &data) != DS_OK) {
      PyErr_SetString(DsError, ds_last_error_message());
      return NULL;
    }
    for (size_t i = 0; i < count; ++i) bytes *= (size_t)dims[i];
    struct DLManagedTensor *managed = NULL;
    if (ds_tensor_to_dlpack($self, &managed, NULL) != DS_OK) return PyErr_NoMemory();
    PyObject *capsule = PyCapsule_New(managed, "dltensor", free_capsule);
    Elements *elements = capsule ? PyObject_New(Elements, &ElementsType) : NULL;
    if (!elements) {
      Py_XDECREF(capsule);
      return NULL;
    }
    elements->capsule = capsule;
    elements->data = data;
    elements->size = (Py_ssize_t)(bytes * sizes[dtype]);
    PyObject *view = PyMemoryView_FromObject((PyObject *)elements);
    Py_DECREF(elements);
    return view;
  }
  %pythoncode %{
    def __dlpack__(self, stream=None):
        return tensor_to_dlpack(self)

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
%ds_options(ds_engine_options)

// --- callbacks ------------------------------------------------------------------------------------------------------
%typemap(in) (ds_log_fn *fn, void *user_data) {
  $1 = $input == Py_None ? NULL : call_log;
  $2 = $input == Py_None ? NULL : $input;
}
%typemap(argout) (ds_log_fn *fn, void *user_data) {
  Py_XINCREF((PyObject *)$2);
  Py_XDECREF(log_callable);
  log_callable = (PyObject *)$2;
}

%ignore ds_stream;
%ignore ds_stream_create;
%ignore ds_stream_synchronize;
%ignore ds_stream_destroy;
// Calls that do not cross yet: raw memory of unchecked size, and runs with their callbacks.
%ignore ds_comm_all_gather;
%ignore ds_comm_all_reduce;
%ignore ds_comm_reduce_scatter;
%ignore ds_comm_all_to_all;
%ignore ds_comm_broadcast;
%ignore ds_comm_send;
%ignore ds_comm_receive;
%ignore ds_comm_call;
%ignore ds_comm_call_init;
%ignore ds_comm_submit;
%ignore ds_work;
%ignore ds_custom_op;
%ignore ds_graph_custom_op;
%ignore ds_work_wait;
%ignore ds_work_test;
%ignore ds_work_destroy;
%ignore ds_run_progress;
%ignore ds_run_train;
%ignore ds_run_generate;

%include "ds.h"
