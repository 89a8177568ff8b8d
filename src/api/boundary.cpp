// This file implements the parts that all calls of ds.h share: errors, handles and texts.
//
// Errors belong to a thread: the message and details of the last failed call are kept until the
// next failed call on that thread. Handles belong to a process: a counter that a fork handler
// increments distinguishes a child from its ancestors without a system call, and calls with
// inherited handles fail. A handle that a callback destroys during a call cannot be freed at once,
// since the call still uses it; it is noted and freed when the outermost call of the thread
// returns.
#include "api/boundary.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <vector>

#include "core/base/start_error.h"

namespace ds {
namespace {

// Message and details of the last failed call of this thread.
thread_local std::string last_message;
thread_local ErrorDetails last_about;

// A handle that a callback has destroyed, and the function that frees it.
struct Ended {
  void* handle;
  void (*end)(void*);
};
thread_local std::vector<Ended> ended_handles;

}  // namespace

void refuse_inherited(const Handle& handle, std::string_view argument) {
  raise(DS_ERROR_STATE, "{} was created by process {} and is used by process {} after a fork",
        argument, handle.maker.number, this_process().number);
}

// Copying the message may fail for lack of memory. The status is then returned with an empty
// message.
ds_status set_last_error(ds_status status, const char* message,
                         const ErrorDetails* details) noexcept {
  try {
    last_about = details ? *details : ErrorDetails();
    last_message = message;
  } catch (...) {
    last_message.clear();
    last_about.rank = -1;
  }
  return status;
}

// An exception that is not an Error comes from the standard library, so text_with_limits() may add
// an explanation.
ds_status set_unforeseen_error(const std::exception& error) noexcept {
  try {
    return set_last_error(DS_ERROR_INTERNAL, text_with_limits(error).c_str());
  } catch (const std::exception&) {
    // There is not enough memory for the longer text; the original one is used.
    return set_last_error(DS_ERROR_INTERNAL, error.what());
  }
}

const ErrorDetails& last_details() noexcept { return last_about; }

const char* last_error() noexcept { return last_message.c_str(); }

void need_array(const void* array, size_t count, const char* argument) {
  require(array != nullptr || count == 0, "{} must not be NULL with {}_count {}", argument,
          argument, count);
}

std::string_view need_text(const char* text, const char* argument) {
  require(text != nullptr, "{} must not be NULL", argument);
  return text;
}

std::string need_path(const char* path, const char* argument) {
  const std::string_view text = need_text(path, argument);
  require(!text.empty(), "{} must not be empty", argument);
  return std::string(text);
}

std::string optional_path(const char* path, const char* argument) {
  return path ? need_path(path, argument) : "";
}

// The copy is allocated with malloc, because ds_text_destroy frees it.
void put_text(std::string_view text, char** out_text) {
  auto* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (!copy) throw std::bad_alloc();
  std::memcpy(copy, text.data(), text.size());
  copy[text.size()] = '\0';
  need(out_text, "out_text") = copy;
}

constinit thread_local int Call::depth_ = 0, Call::waiting_ = 0;

// Callbacks of one call may destroy the same handle twice; only the first time has an effect.
void Call::end_later(void* handle, void (*end)(void*)) noexcept {
  for (const Ended& ended : ended_handles) {
    if (ended.handle == handle) return;
  }
  try {
    ended_handles.push_back({handle, end});
    ++waiting_;
  } catch (const std::bad_alloc&) {
    // The handle cannot be noted, so it is never freed.
  }
}

// Freeing a handle may run callbacks, whose calls must not count as outermost calls.
void Call::end_handles() noexcept {
  ++depth_;
  while (waiting_ > 0) {
    const Ended last = ended_handles.back();
    ended_handles.pop_back();
    --waiting_;
    last.end(last.handle);
  }
  --depth_;
}

bool wants_json(ds_format format) {
  require(format == DS_FORMAT_TEXT || format == DS_FORMAT_JSON,
          "format must be text (0) or JSON (1), got {}", static_cast<int>(format));
  return format == DS_FORMAT_JSON;
}

// An older caller's struct is shorter than this version's, which is allowed; only bytes after the
// known ones are checked.
void check_options(const void* options, size_t given, size_t size, const char* argument) {
  require(given >= sizeof(size_t),
          "{}.struct_size must be at least {}, got {}: call the _init function first", argument,
          sizeof(size_t), given);
  require(given % alignof(void*) == 0,
          "{}.struct_size must be a multiple of {}, as the size of every such struct is, got {}",
          argument, alignof(void*), given);
  const auto* bytes = static_cast<const unsigned char*>(options);
  for (size_t i = size; i < given; ++i) {
    if (bytes[i] != 0) {
      raise(DS_ERROR_UNSUPPORTED,
            "{} sets byte {} of a newer struct, but this version knows only {} bytes", argument, i,
            size);
    }
  }
}

// struct_size is set to the caller's size, so that later calls know how much of the struct exists.
void write_options(void* options, size_t struct_size, const void* defaults, size_t size,
                   const char* argument) {
  need(static_cast<char*>(options), argument);
  require(struct_size >= sizeof(size_t), "struct_size must be at least {}, got {}", sizeof(size_t),
          struct_size);
  std::memset(options, 0, struct_size);
  std::memcpy(options, defaults, std::min(struct_size, size));
  std::memcpy(options, &struct_size, sizeof struct_size);
}

}  // namespace ds
