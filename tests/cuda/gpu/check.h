#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "core/device/device.h"

// The checks of gpu_check, which tests a device plugin on a real device or on the fake driver.
namespace ds::test {

// The error after which this process can no longer use the device.
class DeviceIsGone : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The state that all checks of a process share.
class Session {
 public:
  Session(std::string name, bool small) : name_(std::move(name)), small_(small) {}
  // Returns the device, which the first call opens.
  Device& device();
  DeviceQueue& queue();
  // Waits for the work of queue(); throws the error that ended it.
  void finish();
  const std::string& name() const { return name_; }
  // Returns whether sizes must be small enough for a device in software.
  bool small() const { return small_; }
  // Returns whether a fill and a copy still work.
  bool works();

 private:
  std::string name_;
  bool small_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<DeviceQueue> queue_;
};

// The findings of one check.
class Report {
 public:
  explicit Report(Session& session) : session_(session) {}
  // Adds one case. share: the largest difference divided by its tolerance; the case fails if it is
  // above 1.
  void compare(double share, const std::string& where);
  void equal(bool same, const std::string& where) { compare(same ? 0 : 2, where); }
  void figure(const std::string& name, double value) { figures_[name] = value; }
  void note(const std::string& text) { notes_.push_back(text); }
  // Runs the body of a case. If it throws, the case fails, with this label. Throws DeviceIsGone if
  // the device no longer works.
  void attempt(const std::string& label, const std::function<void()>& body);

  bool passed() const { return failed_ == 0; }
  int64_t cases() const { return cases_; }
  // Returns the members of a JSON object: cases, failed, worst, figures and text.
  std::string members() const;

 private:
  Session& session_;
  int64_t cases_ = 0, failed_ = 0;
  double worst_ = 0;
  std::map<std::string, double> figures_;
  // The first few failures and notes.
  std::vector<std::string> notes_;
};

struct Check {
  std::string part, group, name;
  // Says what the check compares.
  std::string compares;
  std::function<void(Session&, Report&)> body;
};

// Each function adds its checks in the order of their importance.
void add_memory_checks(std::vector<Check>& checks);
void add_kernel_checks(std::vector<Check>& checks, bool small);
void add_training_checks(std::vector<Check>& checks, bool small);
void add_speed_checks(std::vector<Check>& checks, bool small);

// Returns the seconds that body() takes on average, after a first call to warm up.
double seconds_of(Session& session, int repeats, const std::function<void()>& body);

}  // namespace ds::test
