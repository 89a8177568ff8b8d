#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "core/base/callback_threads.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/process_mark.h"

namespace ds {

// Sets the results of ds_last_error_message and ds_last_error_details on this thread, and returns
// `status`.
ds_status set_last_error(ds_status status, const char* message,
                         const ErrorDetails* details = nullptr) noexcept;
// Sets the last error, with status DS_ERROR_INTERNAL, from an exception that is not an Error.
ds_status set_unforeseen_error(const std::exception& error) noexcept;
// These return the message and the details of the last failed call on this thread.
const char* last_error() noexcept;
const ErrorDetails& last_details() noexcept;

// An active call of ds.h on this thread, possibly from a callback of another call. The class counts
// them: a handle that a callback destroys while a call uses it is freed when the outermost call
// returns.
class Call {
 public:
  Call() noexcept { ++depth_; }
  ~Call() {
    if (--depth_ == 0 && waiting_ > 0) end_handles();
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // Frees the handle by `end` when the outermost call returns. A second call for the same handle
  // does nothing.
  static void end_later(void* handle, void (*end)(void*)) noexcept;

 private:
  static void end_handles() noexcept;
  // Number of active calls on this thread, and number of handles to free at the end of the
  // outermost one.
  static constinit thread_local int depth_, waiting_;
};

// Runs `body` and turns its exceptions into a status; no other function does that. Delivers queued
// log lines before it returns, since the log callback may run only on the calling thread.
template <class F>
ds_status boundary(F&& body) noexcept {
  Call call;
  ds_status status = DS_OK;
  try {
    std::forward<F>(body)();
  } catch (const Error& error) {
    status = set_last_error(error.status(), error.what(), &error.details());
  } catch (const std::bad_alloc&) {
    status = set_last_error(DS_ERROR_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& error) {
    status = set_unforeseen_error(error);
  } catch (...) {
    status = set_last_error(DS_ERROR_INTERNAL, "an exception of unknown type");
  }
  try {
    flush_log();
  } catch (...) {
    // If memory has run out, log lines are lost; the status of the call stays the same.
  }
  return status;
}

// The base of all opaque handles of ds.h. A handle belongs to the process that created it: a forked
// child inherits neither the threads nor the place in a group on which the handle relies, and
// shares its file positions. Every call checks this in need(), so that the layers below need not.
// See "Forks" in ds.h.
struct Handle {
  const ProcessMark maker = this_process();
  // Returns whether this process was forked after the handle was created.
  bool is_inherited() const noexcept { return maker.forks != this_process().forks; }
  // True while a call uses the handle and may run callbacks, which must not use it.
  bool inside = false;
  // The threads that are inside a callback of the handle's comm; null if the comm has no callbacks.
  // They live as long as the handle.
  const CallbackThreads* callbacks = nullptr;
  // Returns whether the caller is inside a callback of a call with this handle.
  bool is_inside() const noexcept { return inside || (callbacks && callbacks->is_this_inside()); }
};
// Throws DS_ERROR_STATE; the message has the ids of both processes.
[[noreturn]] void refuse_inherited(const Handle& handle, std::string_view argument);

// While this object exists, other calls with the handle fail. A call creates the object after it
// has read everything that it needs from the handle.
class Inside {
 public:
  explicit Inside(Handle& handle) : handle_(handle) { handle_.inside = true; }
  ~Inside() { handle_.inside = false; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  Handle& handle_;
};

// Returns the object of a pointer argument that is not [nullable]. Throws if the pointer is NULL or
// a handle that this call must not use.
template <class T>
T& need(T* pointer, const char* argument) {
  require(pointer != nullptr, "{} must not be NULL", argument);
  if constexpr (std::is_base_of_v<Handle, T>) {
    if (pointer->is_inherited()) refuse_inherited(*pointer, argument);
    if (pointer->is_inside())
      raise(DS_ERROR_STATE, "{} is inside a call, whose callback must not use it", argument);
  }
  return *pointer;
}

// Checks a handle argument that is [nullable], unless it is NULL, and returns it.
template <class T>
T* need_or_null(T* pointer, const char* argument) {
  return pointer ? &need(pointer, argument) : nullptr;
}

// Frees a handle. A handle that a fork has inherited is left alone: its destructor would wait for
// threads that the child does not have and communicate with ranks that know only the parent. Its
// memory is freed when the child exits. A handle that is inside a call is freed at the end of the
// outermost call.
template <class T>
void destroy(T* handle) noexcept {
  if (!handle || handle->is_inherited()) return;
  Call call;
  if (handle->is_inside()) {
    Call::end_later(handle, [](void* ended) { delete static_cast<T*>(ended); });
  } else {
    delete handle;
  }
}

// Checks an array argument, which may be NULL only if it has no elements.
void need_array(const void* array, size_t count, const char* argument);

// Returns a string argument that is not [nullable].
std::string_view need_text(const char* text, const char* argument);

// Returns a path argument; throws if it is NULL or empty.
std::string need_path(const char* path, const char* argument);
// Returns a path argument that is [nullable], or "" if it is NULL; throws if it is empty.
std::string optional_path(const char* path, const char* argument);

// Sets *out_text to a copy of the text, by the convention "Strings" of ds.h. The caller must have
// set *out_text to NULL first.
void put_text(std::string_view text, char** out_text);

// Returns whether the format is JSON. Throws if the value is not a ds_format.
bool wants_json(ds_format format);

// Checks the size of an options struct: this version knows `size` bytes of it, and the caller's
// struct has `given` bytes. Bytes after the known ones, which a newer caller may have, must be
// zero.
void check_options(const void* options, size_t given, size_t size, const char* argument);

// Returns the caller's options. Members that the caller's struct does not have, or all if `options`
// is NULL, have the defaults.
template <class T>
T read_options(const T* options, const T& defaults, const char* argument) {
  T out = defaults;
  if (!options) return out;
  check_options(options, options->struct_size, sizeof(T), argument);
  std::memcpy(&out, options, std::min(options->struct_size, sizeof(T)));
  return out;
}

// Writes as many of the defaults to the caller's struct as it has room for. Bytes that only a newer
// caller's struct has become zero.
void write_options(void* options, size_t struct_size, const void* defaults, size_t size,
                   const char* argument = "options");

}  // namespace ds
