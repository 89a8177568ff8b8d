/* The C side of libds.lowlevel: errors, tensors over the buffer protocol and DLPack, callbacks.
 * Only ds.i includes it. */
#include <dlfcn.h>
#include <ds.h>
#include <errno.h> /* for the code that SWIG writes */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kMaxDims = 8 };

/* ---------------------------------------------------------------- errors */

/* The exception of a callback, kept until the ds_ call that ran the callback has returned on the
 * same thread. */
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

/* Returns the error of the last call as an object of libds.errors; NULL with an exception set. */
static PyObject* error_object(ds_status status) {
  const char *key = "", *tensor = "", *message = ds_last_error_message();
  int32_t rank = -1;
  ds_last_error_details(&key, &tensor, &rank);
  PyObject* module = PyImport_ImportModule("libds.errors");
  if (!module) return NULL;
  PyObject* text = PyUnicode_DecodeUTF8(message, (Py_ssize_t)strlen(message), "replace");
  PyObject* error = text
                        ? PyObject_CallMethod(module, "of_status", "iOzzi", (int)status, text,
                                              *key ? key : NULL, *tensor ? tensor : NULL, (int)rank)
                        : NULL;
  Py_XDECREF(text);
  Py_DECREF(module);
  return error;
}

/* Runs after every call: raises the exception of a callback, or else the error of the status.
 * Returns 1 if it has raised. */
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
      PyExceptionInstance_Check(raised_value)) { /* the error of the call becomes the context */
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

/* ---------------------------------------------------------------- the interpreter */

/* Callbacks enter the main interpreter, and SWIG's types end with the interpreter that loaded the
 * module first. So other interpreters are refused: by the function that Python calls to load the
 * module and, since Python may copy a loaded module, by the package. */
static int in_main_interpreter(void) {
  if (PyInterpreterState_GetID(PyInterpreterState_Get()) == 0) return 1;
  PyErr_SetString(
      PyExc_ImportError,
      "libds works only in the main interpreter: import it there, or use processes instead of "
      "subinterpreters");
  return 0;
}

#undef SWIG_init /* PyInit__lowlevel, which this file defines */
#define SWIG_init libds_init
SWIGINTERN PyObject* libds_init(void);
PyMODINIT_FUNC PyInit__lowlevel(void) { return in_main_interpreter() ? libds_init() : NULL; }

/* ---------------------------------------------------------------- the way into Python */

/* Two functions of every CPython that its limited API leaves out. Before 3.13 the first one was
 * private and its name began with an underscore. */
static int (*finalizing)(void);
static int (*holds_interpreter)(void);

/* Looks both functions up. Returns -1 with an exception set if this Python lacks one. */
static int find_functions(void) {
  *(void**)&finalizing = dlsym(RTLD_DEFAULT, "Py_IsFinalizing");
  if (!finalizing) *(void**)&finalizing = dlsym(RTLD_DEFAULT, "_Py_IsFinalizing");
  *(void**)&holds_interpreter = dlsym(RTLD_DEFAULT, "PyGILState_Check");
  if (finalizing && holds_interpreter) return 0;
  PyErr_SetString(PyExc_ImportError, "this Python has no Py_IsFinalizing or no PyGILState_Check");
  return -1;
}

/* CPython up to 3.13 ends a thread that asks for the interpreter during its shutdown, by an
 * unwinding that must not cross the C++ frames below a callback. So the thread waits here until the
 * process has ended. */
static void stand_still(void* none) {
  (void)none;
  for (;;) pause();
}

/* Ends a child that was forked in a callback and has returned from it: it would continue a call of
 * its parent, with threads and files that the child does not have. */
static void end_child(pid_t parent) {
  PyObject *module, *done;
  module = PyImport_ImportModule("libds.errors");
  done = module ? PyObject_CallMethod(module, "end_child", "Oi",
                                      raised_value ? raised_value : Py_None, (int)parent)
                : NULL;
  Py_XDECREF(done);
  _exit(1);
}

/* Calls body(data) with the interpreter held. The library enters Python only through this function.
 * Returns 0 without calling body if the interpreter has ended, or is ending and this thread does
 * not hold it. If an earlier callback of the surrounding call has raised an exception, that
 * exception is kept, and body does not see it. */
static int in_python(void (*body)(void*), void* data) {
  if (!Py_IsInitialized() || (finalizing() && !holds_interpreter())) return 0;
  pthread_cleanup_push(stand_still, NULL);
  PyGILState_STATE state = PyGILState_Ensure();
  PyObject *type, *value, *trace, *first_type = raised_type, *first_value = raised_value,
                                  *first_trace = raised_trace;
  raised_type = raised_value = raised_trace = NULL;
  PyErr_Fetch(&type, &value, &trace);
  const pid_t process = getpid();
  body(data);
  if (getpid() != process) end_child(process);
  PyErr_Restore(type, value, trace);
  if (first_type) {
    type = raised_type, value = raised_value, trace = raised_trace;
    raised_type = first_type, raised_value = first_value, raised_trace = first_trace;
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
  }
  PyGILState_Release(state);
  pthread_cleanup_pop(0);
  return 1;
}

/* ---------------------------------------------------------------- plain arguments */

/* Sets libds.errors.InvalidArgument with this message, and consumes the reference to the message.
 * If `message` is NULL, an exception is already set. */
static void refuse(PyObject* message) {
  PyObject* module = message ? PyImport_ImportModule("libds.errors") : NULL;
  PyObject* error = module ? PyObject_CallMethod(module, "refuse", "O", message) : NULL;
  if (error) PyErr_SetObject((PyObject*)Py_TYPE(error), error);
  Py_XDECREF(error);
  Py_XDECREF(module);
  Py_XDECREF(message);
}

/* Sets a TypeError: NAME must be WANTED, but the argument is not. */
static void refuse_type(const char* name, const char* wanted, PyObject* object) {
  PyObject* type = PyType_GetName(Py_TYPE(object));
  if (type) PyErr_Format(PyExc_TypeError, "%s must be %s, got %U", name, wanted, type);
  Py_XDECREF(type);
}

/* Converts an integer from -most - 1 to most. Returns -1 with an exception set for any other
 * object. */
static int integer_argument(PyObject* object, const char* name, long long most, long long* out) {
  int over = 0;
  PyObject* number = PyNumber_Index(object);
  if (!number) {
    if (PyErr_ExceptionMatches(PyExc_TypeError)) {
      PyErr_Clear();
      refuse_type(name, "an integer", object);
    }
    return -1;
  }
  *out = PyLong_AsLongLongAndOverflow(number, &over);
  Py_DECREF(number);
  if (!over && *out <= most && *out >= -most - 1) return 0;
  refuse(PyUnicode_FromFormat("%s must be an integer of %d bits, got a larger one", name,
                              most == INT32_MAX ? 32 : 64));
  return -1;
}

/* Converts a number. Returns -1 with an exception set for any other object. */
static int number_argument(PyObject* object, const char* name, double* out) {
  *out = PyFloat_AsDouble(object);
  if (!PyErr_Occurred()) return 0;
  if (PyErr_ExceptionMatches(PyExc_TypeError)) {
    PyErr_Clear();
    refuse_type(name, "a number", object);
  } else if (PyErr_ExceptionMatches(PyExc_OverflowError)) {
    PyErr_Clear();
    refuse(
        PyUnicode_FromFormat("%s must be a number that a double can hold, got a larger one", name));
  }
  return -1;
}

/* Returns a Python text for a call, valid as long as the object lives. Returns NULL with an
 * exception set if the object is not a text or contains a NUL, at which C would cut it. */
static const char* text_argument(PyObject* object, const char* name) {
  if (!PyUnicode_Check(object)) {
    refuse_type(name, "a str", object);
    return NULL;
  }
  Py_ssize_t size = 0;
  const char *text = PyUnicode_AsUTF8AndSize(object, &size),
             *nul = text ? memchr(text, 0, (size_t)size) : NULL;
  if (text && !nul) return text;
  if (text) {
    refuse(PyUnicode_FromFormat("%s must not contain a NUL character, got %R", name, object));
  } else if (PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) {
    PyErr_Clear();
    refuse(PyUnicode_FromFormat("%s must be a text of Unicode characters, got %A", name, object));
  }
  return NULL;
}

/* ---------------------------------------------------------------- DLPack */

/* The layout of DLPack's public structs. */
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
enum { kReadOnly = 1 }; /* a bit of DLManagedTensorVersioned.flags */
typedef struct DLManagedTensorVersioned {
  uint32_t major, minor;
  void* context;
  void (*deleter)(struct DLManagedTensorVersioned* self);
  uint64_t flags;
  DLTensor tensor;
} DLManagedTensorVersioned;

static const struct {
  const char* format; /* of the buffer protocol, where bf16 passes as uint16 */
  uint8_t size, code;
} kDtypes[] = {{NULL, 0, 0}, {"f", 4, 2}, {"H", 2, 4}, {"e", 2, 2},
               {"d", 8, 2},  {"i", 4, 0}, {"q", 8, 0}, {"B", 1, 1}};
enum { kDtypesCount = sizeof kDtypes / sizeof *kDtypes };

/* Returns the element type for the format and size of a buffer; DS_DTYPE_NONE for others. */
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

/* A DLPack tensor over a Python buffer, which it keeps alive. */
typedef struct HeldBuffer {
  DLManagedTensorVersioned managed;
  Py_buffer view;
  int64_t shape[kMaxDims], strides[kMaxDims];
} HeldBuffer;

static void release_view(void* view) {
  PyBuffer_Release(view);
  if (PyErr_Occurred()) PyErr_WriteUnraisable(NULL);
}
static void release_buffer(DLManagedTensorVersioned* self) {
  HeldBuffer* held = self->context;
  if (in_python(release_view, &held->view))
    free(held); /* otherwise the buffer's owner ends with the interpreter */
}

/* Returns a tensor over the memory of a buffer; NULL with an exception set on failure.
 * DS_DTYPE_NONE means the element type of the buffer's format; DS_DTYPE_BF16 reads 16-bit integers.
 */
static ds_tensor* tensor_of_buffer(PyObject* object, int writable, ds_dtype dtype) {
  HeldBuffer* held = calloc(1, sizeof *held);
  if (!held) return (void*)PyErr_NoMemory();
  Py_buffer* view = &held->view;
  if (PyObject_GetBuffer(object, view,
                         PyBUF_STRIDES | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0)) < 0) {
    free(held);
    return NULL;
  }
  ds_tensor* out = NULL;
  ds_dtype found = dtype_of_format(view->format, view->itemsize);
  if (dtype == DS_DTYPE_BF16 && view->itemsize == 2) found = dtype;
  if (found == DS_DTYPE_NONE || (dtype != DS_DTYPE_NONE && dtype != found)) {
    PyErr_Format(
        PyExc_TypeError,
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
      PyErr_SetString(PyExc_ValueError,
                      "the strides of the array are not multiples of its element size");
    else
      raised(ds_tensor_from_dlpack(NULL, &held->managed, NULL, &out));
  }
  if (!out) {
    PyBuffer_Release(view);
    free(held);
  }
  return out;
}

/* Returns the capsule of an object with __dlpack__, in the form of DLPack 1.x if the object
 * supports it. */
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

/* The beginning of DLPack 1.2's table of C functions, by which tensors of torch are exchanged
 * without a call of Python. */
typedef struct ExchangeApi {
  uint32_t major, minor;
  void *older, *allocate;
  int (*export_tensor)(void* object, DLManagedTensorVersioned** out);
} ExchangeApi;

/* Returns the functions of torch.Tensor, or NULL for an object of any other type: a subclass may
 * have a __dlpack__ of its own. */
static const ExchangeApi* exchange_api_of(PyObject* object) {
  static PyObject* torch_type = NULL;
  static const ExchangeApi* api = NULL;
  PyObject* type = (PyObject*)Py_TYPE(object);
  if (type == torch_type) return api;
  PyObject *module = PyObject_GetAttrString(type, "__module__"),
           *name = PyObject_GetAttrString(type, "__name__"), *capsule = NULL;
  if (module && name && PyUnicode_CompareWithASCIIString(module, "torch") == 0 &&
      PyUnicode_CompareWithASCIIString(name, "Tensor") == 0)
    capsule = PyObject_GetAttrString(type, "__dlpack_c_exchange_api__");
  const ExchangeApi* found =
      capsule && PyCapsule_IsValid(capsule, "dlpack_exchange_api")
          ? (const ExchangeApi*)PyCapsule_GetPointer(capsule, "dlpack_exchange_api")
          : NULL;
  PyErr_Clear(); /* an older torch has no such attribute */
  if (found && found->major == 1) {
    api = found;
    torch_type = Py_NewRef(type);
  }
  Py_XDECREF(capsule);
  Py_XDECREF(name);
  Py_XDECREF(module);
  return found && found->major == 1 ? found : NULL;
}

/* Returns whether __dlpack__ would refuse the tensor because it requires a gradient. */
static int requires_grad(PyObject* tensor) {
  PyObject* flag = PyObject_GetAttrString(tensor, "requires_grad");
  const int truth = flag ? PyObject_IsTrue(flag) : 1;
  Py_XDECREF(flag);
  PyErr_Clear();
  return truth != 0;
}

/* Returns a tensor over the memory of an object with __dlpack__, or of a capsule. */
static ds_tensor* tensor_of_dlpack(PyObject* object) {
  const ExchangeApi* api = exchange_api_of(object);
  DLManagedTensorVersioned* exported = NULL;
  if (api && !requires_grad(object)) {
    ds_tensor* made = NULL;
    if (api->export_tensor(object, &exported) == 0) {
      if (raised(ds_tensor_from_dlpack(NULL, exported, NULL, &made)) && exported->deleter)
        exported->deleter(exported);
      return made;
    }
    PyErr_Clear(); /* __dlpack__ says better what is wrong */
  }
  PyObject* capsule = PyCapsule_CheckExact(object) ? Py_NewRef(object) : capsule_of(object);
  if (!capsule) return NULL;
  ds_tensor* out = NULL;
  if (!PyCapsule_CheckExact(capsule)) {
    refuse_type("what __dlpack__ returns", "a capsule", capsule);
  } else if (!PyCapsule_IsValid(capsule, "dltensor_versioned") &&
             !PyCapsule_IsValid(capsule, "dltensor")) {
    const char* name = PyCapsule_GetName(capsule);
    PyErr_Format(PyExc_ValueError,
                 "a DLPack capsule that has not been consumed is needed, got one named '%s'",
                 name ? name : "");
  } else if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    DLManagedTensorVersioned* managed = PyCapsule_GetPointer(capsule, "dltensor_versioned");
    if (!raised(ds_tensor_from_dlpack(NULL, managed, NULL, &out)))
      PyCapsule_SetName(capsule, "used_dltensor_versioned");
  } else {
    DLManagedTensor* managed = PyCapsule_GetPointer(capsule, "dltensor");
    if (!raised(ds_tensor_from_dlpack(managed, NULL, NULL, &out)))
      PyCapsule_SetName(capsule, "used_dltensor");
  }
  Py_DECREF(capsule);
  return out;
}

/* Returns a tensor over the memory of any supported object. `dtype` is as in tensor_of_buffer. */
static ds_tensor* tensor_of_object(PyObject* object, int writable, ds_dtype dtype) {
  if (PyObject_CheckBuffer(object)) return tensor_of_buffer(object, writable, dtype);
  if (PyCapsule_CheckExact(object) || PyObject_HasAttrString(object, "__dlpack__"))
    return tensor_of_dlpack(object);
  refuse_type("an array",
              "a libds.Tensor, a buffer such as a NumPy array, or an object with __dlpack__ such "
              "as a torch tensor",
              object);
  return NULL;
}

/* Frees a capsule that no consumer has taken. */
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
  if (raised(ds_tensor_to_dlpack(tensor, versioned ? NULL : &managed, versioned ? &made : NULL)))
    return NULL;
  return PyCapsule_New(versioned ? (void*)made : managed,
                       versioned ? "dltensor_versioned" : "dltensor", free_capsule);
}

/* ---------------------------------------------------------------- elements of a tensor */

/* The base of libds.Tensor, over which buffers of a tensor's elements are made. It owns a DLPack
 * export, which keeps the memory alive: the tensor, the engine of a view and their Python objects
 * may all end before it. */
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
  PyTypeObject* type = Py_TYPE(self);
  drop_elements((Elements*)self);
  freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
  release(self);
  Py_DECREF(type); /* an object holds its type, which is on the heap */
}

/* Sets the memory and frees the previous one. Returns -1 with an exception set, also if buffers
 * still show the previous memory. */
static int set_elements(Elements* self, ds_tensor* tensor) {
  ds_dtype dtype = DS_DTYPE_NONE;
  int64_t dims[kMaxDims], strides[kMaxDims];
  size_t count = 0;
  const char* device = NULL;
  if (raised(ds_tensor_info(tensor, &dtype, dims, strides, kMaxDims, &count, &device, NULL)))
    return -1;
  if (strcmp(device, "cpu") != 0) {
    PyErr_Format(PyExc_BufferError,
                 "the tensor is on the device '%s', whose memory Python cannot reach", device);
    return -1;
  }
  DLManagedTensorVersioned* managed = NULL;
  if (raised(ds_tensor_to_dlpack(tensor, NULL, &managed))) return -1;
  if (self->exports > 0) {
    if (managed->deleter) managed->deleter(managed);
    PyErr_Format(PyExc_BufferError, "the tensor cannot be made anew: %zd buffers show its memory",
                 self->exports);
    return -1;
  }
  DLManagedTensorVersioned* old =
      self->managed; /* its deleter may run other code, which must see a complete tensor */
  self->managed = managed;
  self->closing = 0;
  self->ndim = (int)count;
  self->dtype = dtype;
  self->readonly = (managed->flags & kReadOnly) != 0;
  self->size = kDtypes[dtype].size;
  for (size_t i = 0; i < count; ++i) {
    self->shape[i] = (Py_ssize_t)dims[i];
    self->strides[i] = (Py_ssize_t)strides[i] * kDtypes[dtype].size;
    self->size *= (Py_ssize_t)dims[i];
  }
  if (old && old->deleter) old->deleter(old);
  return 0;
}

static PyObject* closed_error(const Elements* self) {
  PyObject* module = PyImport_ImportModule("libds.errors");
  PyObject* error =
      module ? PyObject_CallMethod(module, self->closing ? "closed" : "unmade", "s", "Tensor")
             : NULL;
  Py_XDECREF(module);
  if (error) PyErr_SetObject((PyObject*)Py_TYPE(error), error);
  Py_XDECREF(error);
  return NULL;
}

static int elements_buffer(PyObject* object, Py_buffer* view, int flags) {
  Elements* self = (Elements*)object;
  view->obj = NULL;
  if (!self->managed || self->closing) {
    closed_error(self);
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
  if (!self->managed || self->closing) return closed_error(self);
  DLTensor* tensor = &self->managed->tensor;
  if (which == (void*)1) return PyLong_FromVoidPtr((char*)tensor->data + tensor->byte_offset);
  if (which == (void*)2) return PyLong_FromLong((long)self->dtype);
  if (which == (void*)3) return PyLong_FromSsize_t(self->size);
  if (which == (void*)5) return PyBool_FromLong(self->readonly);
  PyObject* out = PyTuple_New(self->ndim);
  for (int i = 0; out && i < self->ndim; ++i) {
    PyTuple_SetItem(
        out, i,
        PyLong_FromSsize_t(which ? self->strides[i] / kDtypes[self->dtype].size : self->shape[i]));
  }
  return out;
}

static PyGetSetDef elements_attributes[] = {
    {"shape", elements_get, NULL, "Dimensions.", (void*)0},
    {"data_ptr", elements_get, NULL, "Address of the first element.", (void*)1},
    {"dtype_code", elements_get, NULL, "Element type as a constant DTYPE_ of libds.lowlevel.",
     (void*)2},
    {"nbytes", elements_get, NULL, "Bytes of all elements.", (void*)3},
    {"closed", elements_get, NULL, "Whether close() was called.", (void*)4},
    {"readonly", elements_get, NULL, "Whether the memory may not be written.", (void*)5},
    {"exports", elements_get, NULL, "How many buffers show the memory.", (void*)7},
    {"strides", elements_get, NULL, "Distance of neighbours along each dimension, in elements.",
     (void*)6},
    {NULL, NULL, NULL, NULL, NULL}};
static PyMethodDef elements_methods[] = {
    {"close", elements_close, METH_NOARGS,
     "Gives the memory back; arrays that are made over it keep it. May be repeated."},
    {NULL, NULL, 0, NULL}};
static PyType_Slot elements_slots[] = {
    {Py_tp_doc, (void*)"Memory of a tensor's elements, for the buffer protocol."},
    {Py_tp_new, (void*)PyType_GenericNew},
    {Py_tp_dealloc, (void*)free_elements},
    {Py_tp_methods, elements_methods},
    {Py_tp_getset, elements_attributes},
    {Py_bf_getbuffer, (void*)elements_buffer},
    {Py_bf_releasebuffer, (void*)elements_release},
    {0, NULL}};
static PyType_Spec elements_spec = {.name = "libds.lowlevel.Elements",
                                    .basicsize = sizeof(Elements),
                                    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                                    .slots = elements_slots};
static PyObject* elements_type; /* made with the module */

/* Sets *data to the address of a host tensor with contiguous elements and returns 0. Returns -1
 * with an exception set for other tensors. */
static int compact_data(ds_tensor* tensor, const char* name, void** data) {
  int64_t dims[kMaxDims], strides[kMaxDims], distance = 1;
  size_t count = 0;
  const char* device = NULL;
  if (raised(ds_tensor_info(tensor, NULL, dims, strides, kMaxDims, &count, &device, data)))
    return -1;
  int compact = strcmp(device, "cpu") == 0, empty = 0;
  for (size_t i = 0; i < count; ++i) empty |= dims[i] == 0;
  for (size_t i = count; i-- > 0 && !empty; distance *= dims[i])
    compact &= dims[i] == 1 || strides[i] == distance;
  if (!compact)
    PyErr_Format(PyExc_BufferError,
                 "%s: a collective takes contiguous arrays of the host, in row-major order", name);
  return compact ? 0 : -1;
}

/* Returns a memoryview of bytes over the elements. */
static PyObject* memory_of(ds_tensor* tensor) {
  Elements* elements = (Elements*)PyType_GenericNew((PyTypeObject*)elements_type, NULL, NULL);
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
  for (size_t i = 0; out && i < count; ++i)
    PyList_SetItem(out, (Py_ssize_t)i, PyLong_FromLongLong(dims[i]));
  return out;
}

/* Returns the items of a sequence as a tuple: code that runs in the meantime may change the
 * sequence itself. */
static PyObject* items_of(PyObject* sequence, const char* name, const char* what) {
  if (PySequence_Check(sequence) || PyIter_Check(sequence)) return PySequence_Tuple(sequence);
  refuse_type(name, what, sequence);
  return NULL;
}

/* Returns the integers of a sequence as an array of element_size 4 or 8, which the caller frees;
 * NULL with an exception set. */
static void* int_array(PyObject* object, const char* name, size_t element_size, size_t* count) {
  PyObject* items = items_of(object, name, "a sequence of integers");
  if (!items) return NULL;
  *count = (size_t)PyTuple_Size(items);
  char* out = malloc(*count * element_size + 1);
  int good = out != NULL;
  for (size_t i = 0; i < *count && good; ++i) {
    long long wide = 0;
    good = integer_argument(PyTuple_GetItem(items, (Py_ssize_t)i), name,
                            element_size == 4 ? INT32_MAX : INT64_MAX, &wide) == 0;
    int32_t narrow = (int32_t)wide;
    memcpy(out + i * element_size, element_size == 4 ? (void*)&narrow : (void*)&wide, element_size);
  }
  Py_DECREF(items);
  if (!out) PyErr_NoMemory();
  if (good) return out;
  free(out);
  return NULL;
}

/* ---------------------------------------------------------------- callbacks */

/* A copy of elements for a callback, so that no reference that the callback keeps can dangle.
 * `held` fixes the size of the copy until end_copy(): a callback that resizes it gets a
 * BufferError. */
typedef struct Copy {
  PyObject* typed; /* the callback's argument; NULL if an exception is set */
  Py_buffer held;
} Copy;

static void make_copy(Copy* copy, const void* data, size_t bytes, const char* format) {
  *copy = (Copy){NULL, {.obj = NULL}};
  PyObject* array = PyByteArray_FromStringAndSize(data, (Py_ssize_t)bytes);
  PyObject* view = array ? PyMemoryView_FromObject(array) : NULL;
  if (view && PyObject_GetBuffer(array, &copy->held, PyBUF_WRITABLE) == 0)
    copy->typed = PyObject_CallMethod(view, "cast", "s", format);
  Py_XDECREF(view);
  Py_XDECREF(array);
}
static void end_copy(Copy* copy, void* data) {
  if (data) memcpy(data, copy->held.buf, (size_t)copy->held.len);
  if (copy->held.obj) PyBuffer_Release(&copy->held);
  Py_XDECREF(copy->typed);
}

/* Ends a callback: returns 1 if it returned without an exception. */
static int returned(PyObject* result) {
  if (!result) keep_exception();
  Py_XDECREF(result);
  return result != NULL;
}

typedef struct InitCall {
  PyObject* fn;
  int param;
  const char* name;
  long long first;
  float* data;
  size_t count;
  int good;
} InitCall;
static void run_init(void* data) {
  InitCall* call = data;
  Copy values;
  PyObject* fn = Py_NewRef(call->fn);
  make_copy(&values, call->data, call->count * sizeof *call->data, "f");
  call->good = returned(values.typed ? PyObject_CallFunction(fn, "isLO", call->param, call->name,
                                                             call->first, values.typed)
                                     : NULL);
  end_copy(&values, call->good ? call->data : NULL);
  Py_DECREF(fn);
}
static ds_status call_init(int32_t param, const char* name, int64_t first, float* data,
                           size_t count, void* user_data) {
  InitCall call = {user_data, param, name, first, data, count, 0};
  return in_python(run_init, &call) && call.good ? DS_OK : DS_ERROR_USER;
}

/* The callables of ds_run_train; NULL if a callable is not given. */
typedef struct RunCallbacks {
  PyObject *batch, *progress;
} RunCallbacks;

typedef struct ProgressCall {
  const ds_run_progress* now;
  PyObject* fn;
  ds_status status;
} ProgressCall;
static void run_progress(void* data) {
  ProgressCall* call = data;
  const ds_run_progress* now = call->now;
  call->status = DS_OK;
  if (PyErr_CheckSignals() < 0) { /* Control-C ends the run here, after a checkpoint */
    keep_exception();
    call->status = DS_ERROR_USER;
  } else if (call->fn) {
    PyObject* result =
        PyObject_CallFunction(call->fn, "LLLddddddd", (long long)now->step, (long long)now->steps,
                              (long long)now->samples, now->loss, now->heldout_loss, now->grad_norm,
                              now->lr, now->tokens_per_second, now->loss_scale, *now->next_lr);
    if (result == Py_False) call->status = DS_ERROR_USER;
    if (result && PyNumber_Check(result) && !PyBool_Check(result)) {
      double rate = PyFloat_AsDouble(result);
      if (PyErr_Occurred())
        Py_CLEAR(result);
      else
        *now->next_lr = rate;
    }
    if (!returned(result)) call->status = DS_ERROR_USER;
  }
}
static ds_status call_progress(const ds_run_progress* now, void* user_data) {
  ProgressCall call = {now, ((RunCallbacks*)user_data)->progress, DS_ERROR_USER};
  in_python(run_progress, &call);
  return call.status;
}

typedef struct BatchCall {
  PyObject* fn;
  long long step;
  int micro_step;
  int32_t *tokens, *targets;
  size_t bytes;
  int good;
} BatchCall;
static void run_batch(void* data) {
  BatchCall* call = data;
  Copy tokens, targets = {NULL, {.obj = NULL}};
  make_copy(&tokens, call->tokens, call->bytes, "i");
  if (tokens.typed) make_copy(&targets, call->targets, call->bytes, "i");
  call->good =
      returned(targets.typed ? PyObject_CallFunction(call->fn, "LiOO", call->step, call->micro_step,
                                                     tokens.typed, targets.typed)
                             : NULL);
  end_copy(&tokens, call->good ? call->tokens : NULL);
  end_copy(&targets, call->good ? call->targets : NULL);
}
static ds_status call_batch(int64_t step, int32_t micro_step, int32_t* tokens, int32_t* targets,
                            size_t tokens_count, void* user_data) {
  BatchCall call = {((RunCallbacks*)user_data)->batch, step, micro_step, tokens, targets,
                    tokens_count * sizeof *tokens,     0};
  return in_python(run_batch, &call) && call.good ? DS_OK : DS_ERROR_USER;
}

typedef struct TextCall {
  PyObject* fn; /* NULL if no callable is given */
  const char* text;
  int level, good;
} TextCall;
static void run_text(void* data) {
  TextCall* call = data;
  if (PyErr_CheckSignals() < 0) { /* Control-C ends the text here */
    keep_exception();
    return;
  }
  PyObject* result =
      call->fn ? PyObject_CallFunction(call->fn, "s", call->text) : Py_NewRef(Py_None);
  const int goes_on = result != Py_False;
  call->good = returned(result) && goes_on;
}
static ds_status call_text(const char* part, void* user_data) {
  TextCall call = {user_data, part, 0, 0};
  return in_python(run_text, &call) && call.good ? DS_OK : DS_ERROR_USER;
}

/* The callable for log lines. It is read and set with the interpreter held, since a line may come
 * while another thread sets it. */
static PyObject* log_callable;
static void run_log(void* data) {
  TextCall* call = data;
  PyObject* fn = Py_XNewRef(log_callable); /* the call may set another one */
  PyObject* result = fn ? PyObject_CallFunction(fn, "is", call->level, call->text) : NULL;
  if (fn && !result && PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) {
    /* The signal comes again, outside of the callable, whose exceptions only the hook sees. */
    PyErr_Clear();
    PyErr_SetInterrupt();
  }
  if (fn && !result && PyErr_Occurred()) PyErr_WriteUnraisable(fn);
  Py_XDECREF(result);
  Py_XDECREF(fn);
}
static void call_log(ds_log_level level, const char* line, void* user_data) {
  (void)user_data;
  TextCall call = {NULL, line, (int)level, 0};
  in_python(run_log, &call);
}
static void set_log_callable(PyObject* fn) {
  PyObject* old = log_callable;
  log_callable = Py_XNewRef(fn);
  Py_XDECREF(old);
}

/* ---------------------------------------------------------------- collectives of the caller */

/* The callables of a comm, which get the bytes to send and return buffers with the received bytes;
 * NULL if a callable is not given. */
typedef struct Collectives {
  PyObject *all_gather, *all_to_all, *send, *receive, *abort;
  size_t size; /* number of ranks */
} Collectives;

static void drop_collectives(void* data) {
  Collectives* calls = data;
  Py_XDECREF(calls->all_gather);
  Py_XDECREF(calls->all_to_all);
  Py_XDECREF(calls->send);
  Py_XDECREF(calls->receive);
  Py_XDECREF(calls->abort);
}
static void free_collectives(void* user_data) {
  if (in_python(drop_collectives, user_data))
    free(user_data); /* else the callables end with the interpreter */
}

/* Copies the result of a callable. Returns 0 with an exception set if it is not a buffer of `size`
 * bytes. */
static int take_bytes(PyObject* from, void* data, size_t size, const char* callable) {
  Py_buffer held;
  if (PyObject_GetBuffer(from, &held, PyBUF_SIMPLE) < 0) return 0;
  const int good = (size_t)held.len == size;
  if (good)
    memcpy(data, held.buf, size);
  else
    PyErr_Format(PyExc_ValueError, "%s must return %zu bytes, got %zd", callable, size, held.len);
  PyBuffer_Release(&held);
  return good;
}

typedef struct CollectiveCall {
  Collectives* calls;
  const void* const* ins;
  void* const* outs;
  const size_t *in_sizes, *out_sizes;
  int peer; /* of a send and a receive */
  int good;
} CollectiveCall;

static void run_all_to_all(void* data) {
  CollectiveCall* call = data;
  const size_t ranks = call->calls->size;
  PyObject *parts = PyList_New((Py_ssize_t)ranks), *sizes = PyList_New((Py_ssize_t)ranks),
           *result = NULL;
  int good = parts && sizes;
  for (size_t r = 0; r < ranks && good; ++r) {
    PyObject* part = PyBytes_FromStringAndSize(call->ins[r], (Py_ssize_t)call->in_sizes[r]);
    PyObject* size = PyLong_FromSize_t(call->out_sizes[r]);
    good = part && size;
    if (part) PyList_SetItem(parts, (Py_ssize_t)r, part);
    if (size) PyList_SetItem(sizes, (Py_ssize_t)r, size);
  }
  if (good) result = PyObject_CallFunctionObjArgs(call->calls->all_to_all, parts, sizes, NULL);
  if (result && (!PySequence_Check(result) || PySequence_Size(result) != (Py_ssize_t)ranks)) {
    PyErr_Clear();
    PyErr_Format(PyExc_ValueError, "all_to_all must return a list of %zu buffers", ranks);
    Py_CLEAR(result);
  }
  for (size_t r = 0; r < ranks && result; ++r) {
    if (call->out_sizes[r] == 0) continue;
    PyObject* part = PySequence_GetItem(result, (Py_ssize_t)r);
    if (!part || !take_bytes(part, call->outs[r], call->out_sizes[r], "all_to_all"))
      Py_CLEAR(result);
    Py_XDECREF(part);
  }
  call->good = returned(result);
  Py_XDECREF(parts);
  Py_XDECREF(sizes);
}
static ds_status call_all_to_all(const void* const* ins, const size_t* in_sizes, void* const* outs,
                                 const size_t* out_sizes, void* user_data) {
  CollectiveCall call = {user_data, ins, outs, in_sizes, out_sizes, -1, 0};
  return in_python(run_all_to_all, &call) && call.good ? DS_OK : DS_ERROR_USER;
}

static void run_all_gather(void* data) {
  CollectiveCall* call = data;
  PyObject* result = PyObject_CallFunction(call->calls->all_gather, "y#", (const char*)call->ins[0],
                                           (Py_ssize_t)call->in_sizes[0]);
  if (result && !take_bytes(result, call->outs[0], call->out_sizes[0], "all_gather"))
    Py_CLEAR(result);
  call->good = returned(result);
}
static ds_status call_all_gather(const void* in, size_t in_size, void* out, void* user_data) {
  const size_t all = in_size * ((Collectives*)user_data)->size;
  CollectiveCall call = {user_data, &in, &out, &in_size, &all, -1, 0};
  return in_python(run_all_gather, &call) && call.good ? DS_OK : DS_ERROR_USER;
}

static void run_send(void* data) {
  CollectiveCall* call = data;
  call->good = returned(PyObject_CallFunction(call->calls->send, "y#i", (const char*)call->ins[0],
                                              (Py_ssize_t)call->in_sizes[0], call->peer));
}
static ds_status call_send(const void* in, size_t in_size, int32_t to, void* user_data) {
  CollectiveCall call = {user_data, &in, NULL, &in_size, NULL, to, 0};
  return in_python(run_send, &call) && call.good ? DS_OK : DS_ERROR_USER;
}

static void run_receive(void* data) {
  CollectiveCall* call = data;
  PyObject* result =
      PyObject_CallFunction(call->calls->receive, "ni", (Py_ssize_t)call->out_sizes[0], call->peer);
  if (result && !take_bytes(result, call->outs[0], call->out_sizes[0], "receive")) Py_CLEAR(result);
  call->good = returned(result);
}
static ds_status call_receive(void* out, size_t out_size, int32_t from, void* user_data) {
  CollectiveCall call = {user_data, NULL, &out, NULL, &out_size, from, 0};
  return in_python(run_receive, &call) && call.good ? DS_OK : DS_ERROR_USER;
}

static void run_abort(void* data) {
  TextCall* call = data;
  returned(PyObject_CallFunction(call->fn, "s", call->text));
}
static void call_abort(const char* reason, void* user_data) {
  TextCall call = {((Collectives*)user_data)->abort, reason, 0, 0};
  in_python(run_abort, &call);
}

typedef struct CollectivesArgument {
  ds_comm_callbacks callbacks;
  Collectives* made; /* NULL once the comm owns it */
} CollectivesArgument;

/* Fills an argument from (size, all_to_all, all_gather, send, receive, abort); the last four may be
 * None. Returns -1 with an exception set. */
static int set_collectives(CollectivesArgument* argument, PyObject* tuple) {
  PyObject* given[5];
  int size = 0;
  memset(argument, 0, sizeof *argument);
  if (!PyArg_ParseTuple(tuple, "iOOOOO", &size, &given[0], &given[1], &given[2], &given[3],
                        &given[4]))
    return -1;
  for (int i = 0; i < 5; ++i) {
    given[i] = given[i] == Py_None ? NULL : given[i];
    if (given[i] && !PyCallable_Check(given[i])) {
      static const char* const names[] = {"all_to_all", "all_gather", "send", "receive", "abort"};
      PyErr_Format(PyExc_TypeError, "%s must be callable, got %R", names[i], given[i]);
      return -1;
    }
  }
  Collectives* made = argument->made = calloc(1, sizeof *made);
  if (!made) {
    PyErr_NoMemory();
    return -1;
  }
  *made = (Collectives){Py_XNewRef(given[1]), Py_XNewRef(given[0]), Py_XNewRef(given[2]),
                        Py_XNewRef(given[3]), Py_XNewRef(given[4]), size > 0 ? (size_t)size : 0};
  argument->callbacks = (ds_comm_callbacks){.struct_size = sizeof argument->callbacks,
                                            .all_gather = made->all_gather ? call_all_gather : NULL,
                                            .all_to_all = made->all_to_all ? call_all_to_all : NULL,
                                            .send = made->send ? call_send : NULL,
                                            .receive = made->receive ? call_receive : NULL,
                                            .abort = made->abort ? call_abort : NULL,
                                            .destroy = free_collectives,
                                            .user_data = made};
  return 0;
}

/* ---------------------------------------------------------------- custom operations */

/* A custom operation in Python: callables over lists of low-level tensors, and the numbers of those
 * tensors. */
typedef struct CustomOp {
  PyObject *forward, *backward;
  size_t inputs, outputs;
} CustomOp;

static void drop_callables(void* data) {
  CustomOp* op = data;
  Py_XDECREF(op->forward);
  Py_XDECREF(op->backward);
}
static void free_custom(void* user_data) {
  if (in_python(drop_callables, user_data))
    free(user_data); /* else the callables end with the interpreter */
}

static PyObject* borrowed_list(const ds_tensor* const* tensors, size_t count) {
  PyObject* list = PyList_New((Py_ssize_t)count);
  for (size_t i = 0; list && i < count; ++i) {
    PyObject* one = tensors[i] ? SWIG_NewPointerObj((void*)tensors[i], SWIGTYPE_p_ds_tensor, 0)
                               : Py_NewRef(Py_None);
    PyList_SetItem(list, (Py_ssize_t)i, one);
  }
  return list;
}

/* The tensors of a call belong to the engine until it returns; after that, a handle that Python
 * keeps is empty. */
static void end_lists(PyObject* lists) {
  for (Py_ssize_t k = 0; lists && k < PyTuple_Size(lists); ++k) {
    PyObject* list = PyTuple_GetItem(lists, k);
    for (Py_ssize_t i = 0; i < PyTuple_Size(list); ++i) {
      SwigPyObject* handle = SWIG_Python_GetSwigThis(PyTuple_GetItem(list, i));
      if (handle) handle->ptr = NULL;
    }
  }
}

typedef struct OpCall {
  CustomOp* op;
  const ds_tensor* const* parts[4];
  int count, good; /* parts: inputs and outputs, and for the backward their gradients */
} OpCall;
static void run_custom(void* data) {
  OpCall* call = data;
  const size_t sizes[] = {call->op->inputs, call->op->outputs, call->op->outputs, call->op->inputs};
  PyObject *mine = PyTuple_New(call->count), *theirs = PyTuple_New(call->count);
  int good = mine && theirs;
  for (int k = 0; k < call->count && good; ++k) {
    PyObject *list = borrowed_list(call->parts[k], sizes[k]),
             *kept = list ? PyList_AsTuple(list) : NULL;
    good = kept != NULL;
    if (list) PyTuple_SET_ITEM(theirs, k, list);
    PyTuple_SET_ITEM(mine, k, kept ? kept : PyTuple_New(0));
  }
  PyObject* fn = call->count == 2 ? call->op->forward : call->op->backward;
  call->good = returned(good ? PyObject_CallObject(fn, theirs) : NULL);
  if (good) end_lists(mine);
  Py_XDECREF(theirs);
  Py_XDECREF(mine);
}

static ds_status call_forward(const ds_tensor* const* inputs, ds_tensor* const* outputs,
                              void* user_data) {
  OpCall call = {user_data, {inputs, (const ds_tensor* const*)outputs}, 2, 0};
  return in_python(run_custom, &call) && call.good ? DS_OK : DS_ERROR_USER;
}

static ds_status call_backward(const ds_tensor* const* inputs, const ds_tensor* const* outputs,
                               const ds_tensor* const* output_grads, ds_tensor* const* input_grads,
                               void* user_data) {
  OpCall call = {
      user_data, {inputs, outputs, output_grads, (const ds_tensor* const*)input_grads}, 4, 0};
  return in_python(run_custom, &call) && call.good ? DS_OK : DS_ERROR_USER;
}

/* ---------------------------------------------------------------- updates by callback */

enum { kMaxStates = 8 };
typedef struct UpdateCall {
  PyObject* fn;
  const ds_update* update;
  /* Values and gradients, then the states. */
  ds_tensor* tensors[2 + kMaxStates];
  int good;
} UpdateCall;
static void run_update(void* data) {
  UpdateCall* call = data;
  const ds_update* u = call->update;
  const ds_tensor* const* lent = (const ds_tensor* const*)call->tensors;
  PyObject *fn = Py_NewRef(call->fn), *arrays = borrowed_list(lent, 2),
           *states = borrowed_list(lent + 2, u->states_count),
           *mine = arrays && states
                       ? Py_BuildValue("(NN)", PyList_AsTuple(arrays), PyList_AsTuple(states))
                       : NULL;
  call->good =
      returned(mine ? PyObject_CallFunction(fn, "(iLLdddddd)OO", u->param, (long long)u->first,
                                            (long long)u->update, u->lr, u->weight_decay, u->beta1,
                                            u->beta2, u->eps, u->momentum, arrays, states)
                    : NULL);
  end_lists(mine);
  Py_XDECREF(mine);
  Py_XDECREF(states);
  Py_XDECREF(arrays);
  Py_DECREF(fn);
}

static ds_status call_update(const ds_update* update, void* user_data) {
  UpdateCall call = {.fn = user_data, .update = update};
  const int64_t dims[1] = {(int64_t)update->count};
  const size_t count = 2 + update->states_count;
  ds_status status = count <= 2 + kMaxStates ? DS_OK : DS_ERROR_USER;
  for (size_t i = 0; i < count && status == DS_OK; ++i) {
    float* elements = i == 0   ? update->values
                      : i == 1 ? (float*)update->grads
                               : update->states[i - 2];
    status = ds_tensor_create(DS_DTYPE_F32, dims, 1, NULL, elements, NULL, &call.tensors[i]);
  }
  if (status == DS_OK && !(in_python(run_update, &call) && call.good)) status = DS_ERROR_USER;
  for (size_t i = 0; i < count && i < 2 + kMaxStates; ++i) ds_tensor_destroy(call.tensors[i]);
  return status;
}

/* The largest numbers of outputs of an operation and of dimensions of an output. */
enum { kMaxOutputs = 64, kMaxOutputDims = 4 };
typedef struct CustomCall {
  ds_custom_op op;
  CustomOp* made; /* NULL once the graph owns it */
  ds_dtype dtypes[kMaxOutputs];
  size_t counts[kMaxOutputs];
  int64_t dims[kMaxOutputs * kMaxOutputDims];
} CustomCall;

/* Fills a call from (forward, backward or None, number of inputs, [(dtype, [dims])]); -1 with an
 * exception set. */
static int set_custom(CustomCall* call, PyObject* tuple) {
  PyObject *forward, *backward, *outputs;
  Py_ssize_t inputs;
  memset(call, 0, sizeof *call);
  if (!PyArg_ParseTuple(tuple, "OOnO!", &forward, &backward, &inputs, &PyList_Type, &outputs))
    return -1;
  size_t count = (size_t)PyList_Size(outputs), filled = 0;
  if (count > kMaxOutputs) {
    PyErr_Format(PyExc_ValueError, "a custom operation has at most %d outputs, got %zu",
                 (int)kMaxOutputs, count);
    return -1;
  }
  for (size_t i = 0; i < count; ++i) {
    PyObject* dims;
    int dtype;
    if (!PyArg_ParseTuple(PyList_GetItem(outputs, (Py_ssize_t)i), "iO", &dtype, &dims)) return -1;
    int64_t* numbers = int_array(dims, "outputs", sizeof *numbers, &call->counts[i]);
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
  *call->made = (CustomOp){Py_NewRef(forward), backward == Py_None ? NULL : Py_NewRef(backward),
                           (size_t)inputs, count};
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
