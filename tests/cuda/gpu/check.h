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

// The checks of gpu_check, which runs the plugin of a device on a real one, or on the driver in
// software.
namespace ds::test {

// Something after which nothing in this process can use the device any more.
class DeviceIsGone : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What the checks of one process have in common.
class Session {
 public:
  Session(std::string name, bool small) : name_(std::move(name)), small_(small) {}
  // Opened at the first call.
  Device& device();
  DeviceQueue& queue();
  // Waits for what queue() was given; throws what ended it.
  void finish();
  const std::string& name() const { return name_; }
  bool small() const { return small_; }  // sizes for a device in software
  bool works();                          // whether a fill and a copy still do

 private:
  std::string name_;
  bool small_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<DeviceQueue> queue_;
};

// What one check has found.
class Report {
 public:
  explicit Report(Session& session) : session_(session) {}
  // One case. share: the largest difference in shares of its tolerance; above 1 the case has
  // failed.
  void compare(double share, const std::string& where);
  void equal(bool same, const std::string& where) { compare(same ? 0 : 2, where); }
  void figure(const std::string& name, double value) { figures_[name] = value; }
  void note(const std::string& text) { notes_.push_back(text); }
  // Runs the body of a case; what it throws is a failure with this label. Throws DeviceIsGone where
  // the device does not work any more.
  void attempt(const std::string& label, const std::function<void()>& body);

  bool passed() const { return failed_ == 0; }
  int64_t cases() const { return cases_; }
  // A member of a line of JSON for each of: cases, failed, worst, figures, text.
  std::string members() const;

 private:
  Session& session_;
  int64_t cases_ = 0, failed_ = 0;
  double worst_ = 0;
  std::map<std::string, double> figures_;
  std::vector<std::string> notes_;  // what failed, and remarks: the first few
};

struct Check {
  std::string part, group, name;
  std::string compares;  // what with what
  std::function<void(Session&, Report&)> body;
};

// In order of importance.
void add_memory_checks(std::vector<Check>& checks);
void add_kernel_checks(std::vector<Check>& checks, bool small);
void add_training_checks(std::vector<Check>& checks, bool small);
void add_speed_checks(std::vector<Check>& checks, bool small);

// Seconds of body(), which is called once before.
double seconds_of(Session& session, int repeats, const std::function<void()>& body);

}  // namespace ds::test
