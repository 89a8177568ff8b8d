#include "cuda/gpu/check.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <exception>

#include "core/base/json.h"
#include "core/base/trace.h"
#include "core/device/named_device.h"

namespace ds::test {

Device& Session::device() {
  if (!device_) device_ = make_device(name_);
  return *device_;
}

DeviceQueue& Session::queue() {
  if (!queue_) queue_ = device().make_queue("checks");
  return *queue_;
}

void Session::finish() {
  std::unique_ptr<Event> event = queue().make_event();
  queue().record(*event);
  event->synchronize();
}

bool Session::works() {
  try {
    std::shared_ptr<Arena> arena = device().make_arena(Device::Place::device, 4096);
    unsigned char back[64] = {};
    device().fill(arena->address(), 0x5a, 64);
    device().copy(back, arena->address(), 64);
    finish();
    return std::all_of(std::begin(back), std::end(back), [](unsigned char b) { return b == 0x5a; });
  } catch (const std::exception&) {
    return false;
  }
}

void Report::compare(double share, const std::string& where) {
  ++cases_;
  worst_ = std::isnan(share) ? INFINITY : std::max(worst_, share);
  if (share <= 1) return;
  ++failed_;
  note(where);
}

void Report::attempt(const std::string& label, const std::function<void()>& body) {
  std::string error;
  try {
    return body();
  } catch (const DeviceIsGone&) {
    throw;
  } catch (const std::exception& caught) {
    error = caught.what();
  }
  ++cases_;
  ++failed_;
  note(label + ": " + error);
  if (!session_.works()) throw DeviceIsGone(label + ": " + error);
}

std::string Report::members() const {
  constexpr size_t kMost = 8;
  std::string text;
  for (size_t i = 0; i < std::min(kMost, notes_.size()); ++i)
    text += (i == 0 ? "" : "; ") + notes_[i];
  if (notes_.size() > kMost) text += fmt::format("; and {} more", notes_.size() - kMost);
  Json out, figures{Json::Object{}};
  for (const auto& [name, value] : figures_)
    figures.set(name, std::isfinite(value) ? Json(value) : Json());
  out.set("cases", cases_);
  out.set("failed", failed_);
  out.set("worst", std::isfinite(worst_) ? Json(worst_) : Json("infinite"));
  out.set("figures", std::move(figures));
  out.set("text", text);
  std::string line = out.dump();
  return line.substr(1, line.size() - 2);
}

double seconds_of(Session& session, int repeats, const std::function<void()>& body) {
  body();
  session.finish();
  const int64_t begin = now_ns();
  for (int i = 0; i < repeats; ++i) body();
  session.finish();
  return static_cast<double>(now_ns() - begin) * 1e-9 / repeats;
}

}  // namespace ds::test
