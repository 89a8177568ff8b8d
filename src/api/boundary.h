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

namespace ds {

// What ds_last_error_message and ds_last_error_details say on this thread. Returns the status.
ds_status set_last_error(ds_status status, const char* message,
                         const ErrorDetails* details = nullptr) noexcept;
// An exception that is no Error.
ds_status set_unforeseen_error(const std::exception& error) noexcept;
const char* last_error() noexcept;
const ErrorDetails& last_details() noexcept;

// A call of ds.h on this thread. Handles that callbacks have destroyed while a call used them end
// with the outermost one.
class Call {
 public:
  Call() noexcept { ++depth_; }
  ~Call() {
    if (--depth_ == 0 && waiting_ > 0) end_handles();
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // Ends the handle with the outermost call; a handle is given once.
  static void end_later(void* handle, void (*end)(void*)) noexcept;

 private:
  static void end_handles() noexcept;
  // Calls on this thread, and handles that wait for their end.
  static constinit thread_local int depth_, waiting_;
};

// The only place where exceptions become a status. Delivers queued log lines on the way out, as the
// calling thread is the one that callbacks may run on.
template <class F>
ds_status boundary(F&& body) noexcept {
  Call call;
  ds_status status = DS_OK;
  try {
    std::forward<F>(body)();
  } catch (const Error& error) {
    status = set_last_error(error.status(), error.what(), &error.details());
  } catch (const std::bad_alloc&) {
    status = set_last_error(DS_ERROR_OUT_OF_MEMORY, "the system refuses memory");
  } catch (const std::exception& error) {
    status = set_unforeseen_error(error);
  } catch (...) {
    status = set_last_error(DS_ERROR_INTERNAL, "an exception of unknown type");
  }
  try {
    flush_log();
  } catch (...) {
    // A log line that finds no memory is lost; the call's own status stands.
  }
  return status;
}

// This process among those that forked from one another: `forks` lie between the first of them and
// this one. A number of a process may be given again; the count of forks tells a child from its
// parents for good.
struct ProcessMark {
  int32_t number = 0;
  uint64_t forks = 0;
};
ProcessMark this_process() noexcept;

// What all opaque handles of ds.h are. A handle belongs to the process that made it: a forked child
// inherits neither the threads, nor the mapped group, nor the place in files that are behind it.
// Every call asks here (need), so nothing below has to; ds.h, "Forks".
struct Handle {
  const ProcessMark maker = this_process();
  bool is_inherited() const noexcept { return maker.forks != this_process().forks; }
  bool inside = false;  // a call with it runs callbacks on this thread, which must not use it
  const CallbackThreads* callbacks = nullptr;  // of its comm, which lives as long as the handle
  bool is_inside() const noexcept { return inside || (callbacks && callbacks->is_this_inside()); }
};
[[noreturn]] void refuse_inherited(const Handle& handle, std::string_view argument);

// While it lives, calls with the handle are refused. Made when a call has all that it needs of the
// handle.
class Inside {
 public:
  explicit Inside(Handle& handle) : handle_(handle) { handle_.inside = true; }
  ~Inside() { handle_.inside = false; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  Handle& handle_;
};

// A pointer argument that is not [nullable].
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

// A handle argument that is [nullable].
template <class T>
T* need_or_null(T* pointer, const char* argument) {
  return pointer ? &need(pointer, argument) : nullptr;
}

// Ends a handle. One that is inherited stays as it is: its destructor would wait for threads that
// the child does not have and speak to ranks that know only the parent. Its memory ends with the
// child. One that is inside a call ends with that.
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

// An array argument: NULL is allowed for no elements only.
void need_array(const void* array, size_t count, const char* argument);

// A string argument that is not [nullable].
std::string_view need_text(const char* text, const char* argument);

// Hands a text out by the convention "Strings" of ds.h. The caller has set *out_text to NULL at the
// begin.
void put_text(std::string_view text, char** out_text);

// Whether a report is to be JSON; refuses what is no ds_format.
bool wants_json(ds_format format);

// Checks the head of an options struct: `size` bytes are known here, `given` are the caller's.
// Bytes that only a newer caller knows must be zero.
void check_options(const void* options, size_t given, size_t size, const char* argument);

// The options that the caller gave, over the defaults.
template <class T>
T read_options(const T* options, const T& defaults, const char* argument) {
  T out = defaults;
  if (!options) return out;
  check_options(options, options->struct_size, sizeof(T), argument);
  std::memcpy(&out, options, std::min(options->struct_size, sizeof(T)));
  return out;
}

// Fills as much of the defaults as the caller's struct holds; what only a newer caller knows
// becomes zero.
void write_options(void* options, size_t struct_size, const void* defaults, size_t size,
                   const char* argument = "options");

}  // namespace ds
