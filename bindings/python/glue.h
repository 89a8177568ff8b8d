/* The C side of libds.lowlevel: errors, tensors over the buffer protocol and DLPack, callbacks. Included by
 * ds.i alone. */
#include <ds.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kMaxDims = 8 };

/* ---------------------------------------------------------------- errors */

/* The exception that a callback has raised, until the ds_ call around it has returned on the same thread. */
static __thread PyObject *raised_type, *raised_value, *raised_trace;

static void keep_exception(void) {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  if (raised_type) { /* the first one counts */
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return;
  }
  raised_type = type;
  raised_value = value;
  raised_trace = trace;
}

/* The error of the last call as an object of libds.errors; NULL with an exception set. */
static PyObject* error_object(ds_status status) {
  const char *key = "", *tensor = "", *message = ds_last_error_message();
  int32_t rank = -1;
  ds_last_error_details(&key, &tensor, &rank);
  PyObject* module = PyImport_ImportModule("libds.errors");
  if (!module) return NULL;
  PyObject* text = PyUnicode_DecodeUTF8(message, (Py_ssize_t)strlen(message), "replace");
  PyObject* error = text ? PyObject_CallMethod(module, "of_status", "iOzzi", (int)status, text,
                                               *key ? key : NULL, *tensor ? tensor : NULL, (int)rank)
                         : NULL;
  Py_XDECREF(text);
  Py_DECREF(module);
  return error;
}

/* Behind every call: raises what a callback has raised, else what the status says. Returns 1 when it has
 * raised. */
static int raised(ds_status status) {
  if (status == DS_OK && !raised_type) return 0;
  PyObject* error = status == DS_OK ? NULL : error_object(status);
  if (!raised_type) {
    if (error) PyErr_SetObject((PyObject*)Py_TYPE(error), error);
    Py_XDECREF(error);
    return 1;
  }
  PyErr_Clear();
  if (error && raised_value &&
      PyExceptionInstance_Check(raised_value)) { /* "during handling of": what the call said */
    PyObject* context = PyException_GetContext(raised_value);
    if (context) {
      Py_DECREF(context);
    } else {
      PyException_SetContext(raised_value, error);
      error = NULL;
    }
  }
  Py_XDECREF(error);
  PyErr_Restore(raised_type, raised_value, raised_trace);
  raised_type = raised_value = raised_trace = NULL;
  return 1;
}

/* ---------------------------------------------------------------- the way into Python */

/* Holds a thread that Python ends at the end of the program: unwinding the library's frames would abort. */
static void stand_still(void* none) {
  (void)none;
  for (;;) pause();
}

/* Whether no callback may enter Python any more. */
static int python_ends(void) { return !Py_IsInitialized() || _Py_IsFinalizing(); }

/* Every callback's way into Python: calls body with the interpreter's lock. DS_ERROR_USER without it once the
 * program ends. */
static ds_status in_python(ds_status (*body)(void* call), void* call) {
  if (python_ends()) return DS_ERROR_USER;
  ds_status status;
  pthread_cleanup_push(stand_still, NULL);
  PyGILState_STATE state = PyGILState_Ensure();
  status = body(call);
  PyGILState_Release(state);
  pthread_cleanup_pop(0);
  return status;
}

/* ---------------------------------------------------------------- DLPack */

/* The bytes of DLPack's public structs. */
typedef struct DLTensor {
  void* data;
  int32_t device_type, device_id;
  int32_t ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} DLTensor;
typedef struct DLManagedTensor {
  DLTensor tensor;
  void* context;
  void (*deleter)(struct DLManagedTensor* self);
} DLManagedTensor;
enum { kReadOnly = 1 }; /* of flags */
typedef struct DLManagedTensorVersioned {
  uint32_t major, minor;
  void* context;
  void (*deleter)(struct DLManagedTensorVersioned* self);
  uint64_t flags;
  DLTensor tensor;
} DLManagedTensorVersioned;

static const struct {
  const char* format; /* of the buffer protocol; bf16 has none and crosses as uint16 */
  uint8_t size, code;
} kDtypes[] = {{NULL, 0, 0}, {"f", 4, 2}, {"H", 2, 4}, {"e", 2, 2},
               {"d", 8, 2},  {"i", 4, 0}, {"q", 8, 0}, {"B", 1, 1}};
enum { kDtypesCount = sizeof kDtypes / sizeof *kDtypes };

/* An element type by the format and size of a buffer; DS_DTYPE_NONE for others. */
static ds_dtype dtype_of_format(const char* format, Py_ssize_t size) {
  if (!format) return size == 1 ? DS_DTYPE_U8 : DS_DTYPE_NONE;
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  if (strcmp(format, "l") == 0) format = size == 8 ? "q" : "i";
  for (int i = 1; i < kDtypesCount; ++i) {
    if (i != DS_DTYPE_BF16 && strcmp(format, kDtypes[i].format) == 0 && size == kDtypes[i].size)
      return (ds_dtype)i;
  }
  return DS_DTYPE_NONE;
}

/* A DLPack tensor over a Python buffer, which it holds. */
typedef struct HeldBuffer {
  DLManagedTensorVersioned managed;
  Py_buffer view;
  int64_t shape[kMaxDims], strides[kMaxDims];
} HeldBuffer;

static ds_status python_release_buffer(void* context) {
  PyBuffer_Release(&((HeldBuffer*)context)->view);
  free(context);
  return DS_OK;
}

/* At the end of the program the buffer ends with its owner. */
static void release_buffer(DLManagedTensorVersioned* self) {
  in_python(python_release_buffer, self->context);
}

/* A tensor over the memory of a buffer. dtype: DS_DTYPE_NONE, that of the format; or DS_DTYPE_BF16 over
 * 16-bit integers. NULL with an exception set. */
static ds_tensor* tensor_of_buffer(PyObject* object, int writable, ds_dtype dtype) {
  HeldBuffer* held = calloc(1, sizeof *held);
  if (!held) return (void*)PyErr_NoMemory();
  Py_buffer* view = &held->view;
  if (PyObject_GetBuffer(object, view, PyBUF_STRIDES | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0)) < 0) {
    free(held);
    return NULL;
  }
  ds_tensor* out = NULL;
  ds_dtype found = dtype_of_format(view->format, view->itemsize);
  if (dtype == DS_DTYPE_BF16 && view->itemsize == 2) found = dtype;
  if (found == DS_DTYPE_NONE || (dtype != DS_DTYPE_NONE && dtype != found)) {
    PyErr_Format(PyExc_TypeError,
                 "the elements must be float32, float16, float64, int32, int64 or uint8 (uint16 as bf16), "
                 "got a buffer of format '%s'",
                 view->format ? view->format : "B");
  } else if (view->ndim > kMaxDims) {
    PyErr_Format(PyExc_ValueError, "an array may have %d dimensions, got %d", kMaxDims, view->ndim);
  } else {
    int compact = !view->strides || PyBuffer_IsContiguous(view, 'C'), whole = 1;
    for (int i = 0; i < view->ndim; ++i) {
      held->shape[i] = view->shape[i];
      if (!view->strides) continue; /* ctypes has none */
      held->strides[i] = view->strides[i] / view->itemsize;
      whole &= view->strides[i] % view->itemsize == 0;
    }
    held->managed.tensor = (DLTensor){.data = view->buf,
                                      .device_type = 1,
                                      .ndim = view->ndim,
                                      .code = kDtypes[found].code,
                                      .bits = (uint8_t)(8 * kDtypes[found].size),
                                      .lanes = 1,
                                      .shape = held->shape,
                                      .strides = compact ? NULL : held->strides};
    held->managed.major = 1;
    held->managed.flags = view->readonly ? kReadOnly : 0;
    held->managed.context = held;
    held->managed.deleter = release_buffer;
    if (!whole)
      PyErr_SetString(PyExc_ValueError, "the strides of the array are no multiples of its element size");
    else
      raised(ds_tensor_from_dlpack(NULL, &held->managed, NULL, &out));
  }
  if (!out) {
    PyBuffer_Release(view);
    free(held);
  }
  return out;
}

/* The capsule of an object with __dlpack__: of DLPack 1.x if it can make one. */
static PyObject* capsule_of(PyObject* object) {
  PyObject *method = PyObject_GetAttrString(object, "__dlpack__"), *capsule = NULL;
  PyObject *none = method ? PyTuple_New(0) : NULL,
           *version = none ? Py_BuildValue("{s:(ii)}", "max_version", 1, 0) : NULL;
  if (version) capsule = PyObject_Call(method, none, version);
  if (!capsule && version &&
      PyErr_ExceptionMatches(PyExc_TypeError)) { /* an older object does not know the argument */
    PyErr_Clear();
    capsule = PyObject_CallNoArgs(method);
  }
  Py_XDECREF(version);
  Py_XDECREF(none);
  Py_XDECREF(method);
  return capsule;
}

/* A tensor over the memory of an object with __dlpack__, or of a capsule. */
static ds_tensor* tensor_of_dlpack(PyObject* object) {
  PyObject* capsule = PyCapsule_CheckExact(object) ? Py_NewRef(object) : capsule_of(object);
  if (!capsule) return NULL;
  ds_tensor* out = NULL;
  if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    DLManagedTensorVersioned* managed = PyCapsule_GetPointer(capsule, "dltensor_versioned");
    if (!raised(ds_tensor_from_dlpack(NULL, managed, NULL, &out)))
      PyCapsule_SetName(capsule, "used_dltensor_versioned");
  } else {
    DLManagedTensor* managed = PyCapsule_GetPointer(capsule, "dltensor");
    if (managed && !raised(ds_tensor_from_dlpack(managed, NULL, NULL, &out)))
      PyCapsule_SetName(capsule, "used_dltensor");
  }
  Py_DECREF(capsule);
  return out;
}

/* A tensor over whatever shares its memory. dtype as in tensor_of_buffer. */
static ds_tensor* tensor_of_object(PyObject* object, int writable, ds_dtype dtype) {
  if (PyObject_CheckBuffer(object)) return tensor_of_buffer(object, writable, dtype);
  if (PyCapsule_CheckExact(object) || PyObject_HasAttrString(object, "__dlpack__"))
    return tensor_of_dlpack(object);
  PyErr_Format(PyExc_TypeError,
               "an array is needed: a libds.Tensor, a buffer such as a NumPy array, or an object with "
               "__dlpack__ such as a torch tensor; got %s",
               Py_TYPE(object)->tp_name);
  return NULL;
}

/* Ends a capsule that nobody has taken. */
static void free_capsule(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, "dltensor")) {
    DLManagedTensor* managed = PyCapsule_GetPointer(capsule, "dltensor");
    if (managed->deleter) managed->deleter(managed);
  } else if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    DLManagedTensorVersioned* managed = PyCapsule_GetPointer(capsule, "dltensor_versioned");
    if (managed->deleter) managed->deleter(managed);
  }
}

static PyObject* capsule_of_tensor(ds_tensor* tensor, int versioned) {
  DLManagedTensor* managed = NULL;
  DLManagedTensorVersioned* made = NULL;
  if (raised(ds_tensor_to_dlpack(tensor, versioned ? NULL : &managed, versioned ? &made : NULL))) return NULL;
  return PyCapsule_New(versioned ? (void*)made : managed, versioned ? "dltensor_versioned" : "dltensor",
                       free_capsule);
}

/* ---------------------------------------------------------------- elements of a tensor */

/* What buffers of a tensor's elements are over: the base of libds.Tensor. It owns a DLPack export, which
 * keeps the memory: the tensor, the engine behind a view and their Python objects may all end before it. */
typedef struct Elements {
  PyObject_HEAD DLManagedTensorVersioned* managed; /* NULL: closed, or not set yet */
  Py_ssize_t size, exports;
  Py_ssize_t shape[kMaxDims], strides[kMaxDims];
  int ndim;
  ds_dtype dtype;
  int readonly, flat, closing;
} Elements;

static void drop_elements(Elements* self) {
  DLManagedTensorVersioned* managed = self->managed;
  self->managed = NULL;
  if (managed && managed->deleter) managed->deleter(managed);
}

static void free_elements(PyObject* self) {
  drop_elements((Elements*)self);
  Py_TYPE(self)->tp_free(self);
}

/* Sets the memory. Returns -1 with an exception set. */
static int set_elements(Elements* self, ds_tensor* tensor) {
  ds_dtype dtype = DS_DTYPE_NONE;
  int64_t dims[kMaxDims], strides[kMaxDims];
  size_t count = 0;
  const char* device = NULL;
  if (raised(ds_tensor_info(tensor, &dtype, dims, strides, kMaxDims, &count, &device, NULL))) return -1;
  if (strcmp(device, "cpu") != 0) {
    PyErr_Format(PyExc_BufferError, "the tensor is on the device '%s', whose memory Python cannot reach",
                 device);
    return -1;
  }
  if (self->exports > 0) {
    PyErr_Format(PyExc_BufferError, "the tensor cannot be set anew: %zd buffers show its memory",
                 self->exports);
    return -1;
  }
  DLManagedTensorVersioned* managed = NULL;
  if (raised(ds_tensor_to_dlpack(tensor, NULL, &managed))) return -1;
  drop_elements(self);
  self->closing = 0;
  self->managed = managed;
  self->ndim = (int)count;
  self->dtype = dtype;
  self->readonly = (managed->flags & kReadOnly) != 0;
  self->size = kDtypes[dtype].size;
  for (size_t i = 0; i < count; ++i) {
    self->shape[i] = (Py_ssize_t)dims[i];
    self->strides[i] = (Py_ssize_t)strides[i] * kDtypes[dtype].size;
    self->size *= (Py_ssize_t)dims[i];
  }
  return 0;
}

static PyObject* closed_error(void) {
  PyObject* module = PyImport_ImportModule("libds.errors");
  PyObject* error = module ? PyObject_CallMethod(module, "closed", "s", "Tensor") : NULL;
  Py_XDECREF(module);
  if (error) PyErr_SetObject((PyObject*)Py_TYPE(error), error);
  Py_XDECREF(error);
  return NULL;
}

static int elements_buffer(PyObject* object, Py_buffer* view, int flags) {
  Elements* self = (Elements*)object;
  view->obj = NULL;
  if (!self->managed || self->closing) {
    closed_error();
    return -1;
  }
  DLTensor* tensor = &self->managed->tensor;
  char* data = (char*)tensor->data + tensor->byte_offset;
  if (self->flat) {
    if (PyBuffer_FillInfo(view, object, data, self->size, self->readonly, flags) < 0) return -1;
    ++self->exports;
    return 0;
  }
  if (self->readonly && (flags & PyBUF_WRITABLE)) {
    PyErr_SetString(PyExc_BufferError, "the tensor is over memory that is read-only");
    return -1;
  }
  *view = (Py_buffer){.buf = data,
                      .obj = Py_NewRef(object),
                      .len = self->size,
                      .readonly = self->readonly,
                      .itemsize = kDtypes[self->dtype].size,
                      .ndim = self->ndim,
                      .shape = self->shape,
                      .strides = self->strides,
                      .format = (char*)kDtypes[self->dtype].format};
  int compact = PyBuffer_IsContiguous(view, 'C');
  if ((!compact && (flags & PyBUF_STRIDES) != PyBUF_STRIDES) ||
      (!compact && (flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS)) {
    Py_CLEAR(view->obj);
    PyErr_SetString(PyExc_BufferError, "the tensor is not contiguous");
    return -1;
  }
  if ((flags & PyBUF_FORMAT) != PyBUF_FORMAT) view->format = NULL;
  if ((flags & PyBUF_STRIDES) != PyBUF_STRIDES) view->strides = NULL;
  if ((flags & PyBUF_ND) != PyBUF_ND) view->shape = NULL;
  ++self->exports;
  return 0;
}

static void elements_release(PyObject* object, Py_buffer* view) {
  (void)view;
  Elements* self = (Elements*)object;
  if (--self->exports == 0 && self->closing) drop_elements(self);
}

static PyBufferProcs elements_procs = {elements_buffer, elements_release};

static PyObject* elements_close(PyObject* object, PyObject* none) {
  (void)none;
  Elements* self = (Elements*)object;
  self->closing = 1;
  if (self->exports == 0) drop_elements(self);
  Py_RETURN_NONE;
}

static PyObject* elements_get(PyObject* object, void* which) {
  Elements* self = (Elements*)object;
  if (which == (void*)4) return PyBool_FromLong(!self->managed || self->closing);
  if (which == (void*)7) return PyLong_FromSsize_t(self->exports);
  if (!self->managed || self->closing) return closed_error();
  DLTensor* tensor = &self->managed->tensor;
  if (which == (void*)1) return PyLong_FromVoidPtr((char*)tensor->data + tensor->byte_offset);
  if (which == (void*)2) return PyLong_FromLong((long)self->dtype);
  if (which == (void*)3) return PyLong_FromSsize_t(self->size);
  if (which == (void*)5) return PyBool_FromLong(self->readonly);
  PyObject* out = PyTuple_New(self->ndim);
  for (int i = 0; out && i < self->ndim; ++i) {
    PyTuple_SET_ITEM(
        out, i, PyLong_FromSsize_t(which ? self->strides[i] / kDtypes[self->dtype].size : self->shape[i]));
  }
  return out;
}

static PyGetSetDef elements_attributes[] = {
    {"shape", elements_get, NULL, "Dimensions.", (void*)0},
    {"data_ptr", elements_get, NULL, "Address of the first element.", (void*)1},
    {"dtype_code", elements_get, NULL, "Element type as a constant DTYPE_ of libds.lowlevel.", (void*)2},
    {"nbytes", elements_get, NULL, "Bytes of all elements.", (void*)3},
    {"closed", elements_get, NULL, "Whether close() was called.", (void*)4},
    {"readonly", elements_get, NULL, "Whether the memory may not be written.", (void*)5},
    {"exports", elements_get, NULL, "How many buffers show the memory.", (void*)7},
    {"strides", elements_get, NULL, "Distance of neighbours along each dimension, in elements.", (void*)6},
    {NULL, NULL, NULL, NULL, NULL}};
static PyMethodDef elements_methods[] = {
    {"close", elements_close, METH_NOARGS,
     "Gives the memory back; arrays that are made over it keep it. May be repeated."},
    {NULL, NULL, 0, NULL}};
static PyTypeObject ElementsType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "libds.lowlevel.Elements",
    .tp_basicsize = sizeof(Elements),
    .tp_dealloc = free_elements,
    .tp_as_buffer = &elements_procs,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_methods = elements_methods,
    .tp_getset = elements_attributes,
    .tp_new = PyType_GenericNew,
    .tp_doc = "Memory of a tensor's elements, for the buffer protocol.",
};

/* The address of a tensor of the host whose elements lie one behind the other; -1 with an exception set for
 * others. */
static int compact_data(ds_tensor* tensor, void** data) {
  int64_t dims[kMaxDims], strides[kMaxDims], distance = 1;
  size_t count = 0;
  const char* device = NULL;
  if (raised(ds_tensor_info(tensor, NULL, dims, strides, kMaxDims, &count, &device, data))) return -1;
  int compact = strcmp(device, "cpu") == 0, empty = 0;
  for (size_t i = 0; i < count; ++i) empty |= dims[i] == 0;
  for (size_t i = count; i-- > 0 && !empty; distance *= dims[i])
    compact &= dims[i] == 1 || strides[i] == distance;
  if (!compact)
    PyErr_SetString(
        PyExc_BufferError,
        "a collective takes arrays of the host that are contiguous, of rows one behind the other");
  return compact ? 0 : -1;
}

/* A memoryview of bytes over the elements. */
static PyObject* memory_of(ds_tensor* tensor) {
  Elements* elements = (Elements*)PyType_GenericNew(&ElementsType, NULL, NULL);
  if (!elements) return NULL;
  PyObject* view = NULL;
  if (set_elements(elements, tensor) == 0) {
    elements->flat = 1;
    view = PyMemoryView_FromObject((PyObject*)elements);
  }
  Py_DECREF(elements);
  return view;
}

/* ---------------------------------------------------------------- integers and lists */

static PyObject* dims_list(const int64_t* dims, size_t count) {
  PyObject* out = PyList_New((Py_ssize_t)count);
  for (size_t i = 0; out && i < count; ++i) PyList_SetItem(out, (Py_ssize_t)i, PyLong_FromLongLong(dims[i]));
  return out;
}

/* Integers of a sequence as an array of element_size 4 or 8, which the caller frees; NULL with an exception
 * set. */
static void* int_array(PyObject* object, size_t element_size, size_t* count) {
  PyObject* items = PySequence_Fast(object, "a sequence of integers is needed");
  if (!items) return NULL;
  *count = (size_t)PySequence_Fast_GET_SIZE(items);
  char* out = malloc(*count * element_size + 1);
  for (size_t i = 0; out && i < *count && !PyErr_Occurred(); ++i) {
    PyObject* number = PyNumber_Index(PySequence_Fast_GET_ITEM(items, (Py_ssize_t)i));
    int64_t wide = number ? PyLong_AsLongLong(number) : -1;
    int32_t narrow = (int32_t)wide;
    Py_XDECREF(number);
    if (!PyErr_Occurred() && element_size == 4 && narrow != wide) {
      PyErr_SetString(PyExc_OverflowError, "an integer of 32 bits is needed");
    }
    memcpy(out + i * element_size, element_size == 4 ? (void*)&narrow : (void*)&wide, element_size);
  }
  Py_DECREF(items);
  if (!out) PyErr_NoMemory();
  if (!PyErr_Occurred()) return out;
  free(out);
  return NULL;
}

/* A text for C, which lives as long as its object; NULL with an exception set. A NUL would cut it. */
static const char* c_text(PyObject* object, const char* name) {
  if (!PyUnicode_Check(object)) {
    PyErr_Format(PyExc_TypeError, "%s must be a str, got %s", name, Py_TYPE(object)->tp_name);
    return NULL;
  }
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(object, &size);
  if (text && strlen(text) != (size_t)size) {
    PyErr_Format(PyExc_ValueError, "%s must have no NUL character, got %R", name, object);
    return NULL;
  }
  return text;
}

/* ---------------------------------------------------------------- callbacks */

/* A buffer of Python over a copy of `bytes` bytes: what a callback gets, so that nothing it keeps can dangle.
 */
typedef struct Lent {
  PyObject *bytes, *view;
  Py_buffer held; /* bytes cannot be resized while it is held */
} Lent;

static void end_lent(Lent* lent) {
  if (lent->held.obj) PyBuffer_Release(&lent->held);
  Py_CLEAR(lent->view);
  Py_CLEAR(lent->bytes);
}

/* -1 with an exception set; end_lent is to follow in any case. */
static int lend(Lent* lent, const void* data, size_t bytes, const char* format) {
  memset(lent, 0, sizeof *lent);
  lent->bytes = PyByteArray_FromStringAndSize(data, (Py_ssize_t)bytes);
  if (!lent->bytes || PyObject_GetBuffer(lent->bytes, &lent->held, PyBUF_SIMPLE) < 0) return -1;
  PyObject* view = PyMemoryView_FromObject(lent->bytes);
  if (view) lent->view = PyObject_CallMethod(view, "cast", "s", format);
  Py_XDECREF(view);
  return lent->view ? 0 : -1;
}

/* Ends a callback: 1 when it has returned without an exception. */
static int returned(PyObject* result) {
  if (!result) keep_exception();
  Py_XDECREF(result);
  return result != NULL;
}

typedef struct InitCall {
  int32_t param;
  const char* name;
  int64_t first;
  float* data;
  size_t count;
  PyObject* fn;
} InitCall;

static ds_status python_init(void* argument) {
  InitCall* call = argument;
  size_t bytes = call->count * sizeof *call->data;
  Lent values;
  PyObject *fn = Py_NewRef(call->fn), *result = NULL;
  if (lend(&values, call->data, bytes, "f") == 0)
    result =
        PyObject_CallFunction(fn, "isLO", (int)call->param, call->name, (long long)call->first, values.view);
  int good = returned(result);
  if (good) memcpy(call->data, values.held.buf, bytes);
  end_lent(&values);
  Py_DECREF(fn);
  return good ? DS_OK : DS_ERROR_USER;
}

static ds_status call_init(int32_t param, const char* name, int64_t first, float* data, size_t count,
                           void* user_data) {
  InitCall call = {param, name, first, data, count, user_data};
  return in_python(python_init, &call);
}

/* Callables of ds_run_train; NULL: none. */
typedef struct RunCallbacks {
  PyObject *batch, *progress;
} RunCallbacks;

typedef struct ProgressCall {
  const ds_run_progress* now;
  PyObject* fn;
} ProgressCall;

static ds_status python_progress(void* argument) {
  const ds_run_progress* now = ((ProgressCall*)argument)->now;
  PyObject* fn = ((ProgressCall*)argument)->fn;
  if (PyErr_CheckSignals() < 0) { /* Control-C ends the run here, after a checkpoint */
    keep_exception();
    return DS_ERROR_USER;
  }
  if (!fn) return DS_OK;
  PyObject* result = PyObject_CallFunction(
      fn, "LLLddddddd", (long long)now->step, (long long)now->steps, (long long)now->samples, now->loss,
      now->heldout_loss, now->grad_norm, now->lr, now->tokens_per_second, now->loss_scale, *now->next_lr);
  int stopped = result == Py_False;
  if (result && PyNumber_Check(result) && !PyBool_Check(result)) {
    double rate = PyFloat_AsDouble(result);
    if (PyErr_Occurred())
      Py_CLEAR(result);
    else
      *now->next_lr = rate;
  }
  return returned(result) && !stopped ? DS_OK : DS_ERROR_USER;
}

static ds_status call_progress(const ds_run_progress* now, void* user_data) {
  ProgressCall call = {now, ((RunCallbacks*)user_data)->progress};
  return in_python(python_progress, &call);
}

typedef struct BatchCall {
  int64_t step;
  int32_t micro_step, *tokens, *targets;
  size_t count;
  PyObject* fn;
} BatchCall;

static ds_status python_batch(void* argument) {
  BatchCall* call = argument;
  size_t bytes = call->count * sizeof *call->tokens;
  Lent tokens, targets = {0};
  PyObject* result = NULL;
  if (lend(&tokens, call->tokens, bytes, "i") == 0 && lend(&targets, call->targets, bytes, "i") == 0)
    result = PyObject_CallFunction(call->fn, "LiOO", (long long)call->step, (int)call->micro_step,
                                   tokens.view, targets.view);
  int good = returned(result);
  if (good) {
    memcpy(call->tokens, tokens.held.buf, bytes);
    memcpy(call->targets, targets.held.buf, bytes);
  }
  end_lent(&tokens);
  end_lent(&targets);
  return good ? DS_OK : DS_ERROR_USER;
}

static ds_status call_batch(int64_t step, int32_t micro_step, int32_t* tokens, int32_t* targets,
                            size_t tokens_count, void* user_data) {
  BatchCall call = {step, micro_step, tokens, targets, tokens_count, ((RunCallbacks*)user_data)->batch};
  return in_python(python_batch, &call);
}

typedef struct TextCall {
  ds_log_level level;
  const char* text;
  PyObject* fn;
} TextCall;

static ds_status python_text(void* argument) {
  TextCall* call = argument;
  if (!raised_type) returned(PyObject_CallFunction(call->fn, "s", call->text));
  return DS_OK;
}

static void call_text(const char* part, void* user_data) {
  TextCall call = {.text = part, .fn = user_data};
  in_python(python_text, &call);
}

/* Read and set under the interpreter's lock: a callable may set another one, or none, while it is called. */
static PyObject* log_callable;

static ds_status python_log(void* argument) {
  TextCall* call = argument;
  if (!log_callable) return DS_OK;
  PyObject *type, *value, *trace, *fn = Py_NewRef(log_callable);
  PyErr_Fetch(&type, &value, &trace);
  PyObject* result = PyObject_CallFunction(fn, "is", (int)call->level, call->text);
  if (!result) PyErr_WriteUnraisable(fn);
  Py_XDECREF(result);
  Py_DECREF(fn);
  PyErr_Restore(type, value, trace);
  return DS_OK;
}

static void call_log(ds_log_level level, const char* line, void* user_data) {
  (void)user_data;
  TextCall call = {.level = level, .text = line};
  in_python(python_log, &call);
}

/* ---------------------------------------------------------------- custom operations */

/* What a custom operation of Python is: callables over lists of low-level tensors, and how many tensors they
 * get. */
typedef struct CustomOp {
  PyObject *forward, *backward;
  size_t inputs, outputs;
} CustomOp;

static ds_status python_free_custom(void* user_data) {
  CustomOp* op = user_data;
  Py_XDECREF(op->forward);
  Py_XDECREF(op->backward);
  free(op);
  return DS_OK;
}

/* At the end of the program the callables end with the interpreter. */
static void free_custom(void* user_data) { in_python(python_free_custom, user_data); }

static PyObject* borrowed_list(const ds_tensor* const* tensors, size_t count) {
  PyObject* list = PyList_New((Py_ssize_t)count);
  for (size_t i = 0; list && i < count; ++i) {
    PyObject* one =
        tensors[i] ? SWIG_NewPointerObj((void*)tensors[i], SWIGTYPE_p_ds_tensor, 0) : Py_NewRef(Py_None);
    PyList_SetItem(list, (Py_ssize_t)i, one);
  }
  return list;
}

typedef struct TensorsCall {
  const CustomOp* op;
  const ds_tensor *const *inputs, *const *outputs, *const *output_grads, *const *input_grads;
} TensorsCall;

static ds_status call_custom(PyObject* fn, PyObject* lists) {
  int good = returned(lists ? PyObject_CallObject(fn, lists) : NULL);
  Py_XDECREF(lists);
  return good ? DS_OK : DS_ERROR_USER;
}

static ds_status python_forward(void* argument) {
  TensorsCall* call = argument;
  return call_custom(call->op->forward, Py_BuildValue("(NN)", borrowed_list(call->inputs, call->op->inputs),
                                                      borrowed_list(call->outputs, call->op->outputs)));
}

static ds_status call_forward(const ds_tensor* const* inputs, ds_tensor* const* outputs, void* user_data) {
  TensorsCall call = {.op = user_data, .inputs = inputs, .outputs = (const ds_tensor* const*)outputs};
  return in_python(python_forward, &call);
}

static ds_status python_backward(void* argument) {
  TensorsCall* call = argument;
  const CustomOp* op = call->op;
  return call_custom(op->backward, Py_BuildValue("(NNNN)", borrowed_list(call->inputs, op->inputs),
                                                 borrowed_list(call->outputs, op->outputs),
                                                 borrowed_list(call->output_grads, op->outputs),
                                                 borrowed_list(call->input_grads, op->inputs)));
}

static ds_status call_backward(const ds_tensor* const* inputs, const ds_tensor* const* outputs,
                               const ds_tensor* const* output_grads, ds_tensor* const* input_grads,
                               void* user_data) {
  TensorsCall call = {user_data, inputs, outputs, output_grads, (const ds_tensor* const*)input_grads};
  return in_python(python_backward, &call);
}

/* The tensors that one operation may have. */
enum { kMaxOutputs = 64, kMaxOutputDims = 4 };
typedef struct CustomCall {
  ds_custom_op op;
  CustomOp* made; /* NULL: the graph has it */
  ds_dtype dtypes[kMaxOutputs];
  size_t counts[kMaxOutputs];
  int64_t dims[kMaxOutputs * kMaxOutputDims];
} CustomCall;

/* Fills a call from (forward, backward or None, number of inputs, [(dtype, [dims])]); -1 with an exception
 * set. */
static int set_custom(CustomCall* call, PyObject* tuple) {
  PyObject *forward, *backward, *outputs;
  Py_ssize_t inputs;
  memset(call, 0, sizeof *call);
  if (!PyArg_ParseTuple(tuple, "OOnO!", &forward, &backward, &inputs, &PyList_Type, &outputs)) return -1;
  size_t count = (size_t)PyList_GET_SIZE(outputs), filled = 0;
  if (count > kMaxOutputs) {
    PyErr_Format(PyExc_ValueError, "a custom operation has at most %d outputs, got %zu", (int)kMaxOutputs,
                 count);
    return -1;
  }
  for (size_t i = 0; i < count; ++i) {
    PyObject* dims;
    int dtype;
    if (!PyArg_ParseTuple(PyList_GET_ITEM(outputs, (Py_ssize_t)i), "iO", &dtype, &dims)) return -1;
    int64_t* numbers = int_array(dims, sizeof *numbers, &call->counts[i]);
    if (!numbers) return -1;
    call->dtypes[i] = (ds_dtype)dtype;
    for (size_t k = 0; k < call->counts[i] && call->counts[i] <= kMaxOutputDims; ++k)
      call->dims[filled++] = numbers[k];
    free(numbers);
  }
  call->made = calloc(1, sizeof *call->made);
  if (!call->made) {
    PyErr_NoMemory();
    return -1;
  }
  *call->made =
      (CustomOp){Py_NewRef(forward), backward == Py_None ? NULL : Py_NewRef(backward), (size_t)inputs, count};
  call->op = (ds_custom_op){.struct_size = sizeof call->op,
                            .forward = call_forward,
                            .backward = backward == Py_None ? NULL : call_backward,
                            .user_data = call->made,
                            .destroy = free_custom,
                            .outputs_count = count,
                            .dtypes = call->dtypes,
                            .dims_counts = call->counts,
                            .dims = call->dims};
  return 0;
}
