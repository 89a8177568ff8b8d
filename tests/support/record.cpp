#include "support/record.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <exception>

#include "io/file.h"

namespace ds::test {
namespace {

constexpr std::string_view kOfTheRecording[] = {"topic",    "about",     "source",
                                                "versions", "seed",      "transformers",
                                                "notes",    "tolerance", "group_lr"};

}  // namespace

double Tolerance::of(double want) const { return atol + rtol * std::abs(want); }

Tolerance tolerance_of(const Json& given) {
  const Record record(given, "tolerance");
  record.told({"note"});
  return {record.at("rtol").number(), record.at("atol").number()};
}

Record::Record(const Json& object, std::string where)
    : json_(&object),
      where_(std::move(where)),
      read_(std::make_unique<Read>()),
      exceptions_(std::uncaught_exceptions()) {}

Record::~Record() {
  if (!read_ || std::uncaught_exceptions() > exceptions_ || !json_->is_object()) return;
  for (const auto& [name, value] : json_->object()) {
    if (!read_->names.contains(name))
      ADD_FAILURE() << where_ << ": the field \"" << name
                    << "\" is not known here: " << value.dump();
  }
}

void Record::note(std::string_view name) const {
  std::lock_guard lock(read_->mutex);
  read_->names.emplace(name);
}

const Json& Record::at(std::string_view name) const {
  note(name);
  return json_->at(name);
}

const Json* Record::find(std::string_view name) const {
  note(name);
  return json_->find(name);
}

Record Record::inside(std::string_view name) const {
  return {at(name), fmt::format("{}.{}", where_, name)};
}

std::vector<Record> Record::list(std::string_view name) const {
  std::vector<Record> out;
  for (const Json& one : at(name).array())
    out.emplace_back(one, fmt::format("{}.{}[{}]", where_, name, out.size()));
  return out;
}

void Record::told(std::initializer_list<const char*> names) const {
  for (const char* name : names) note(name);
}

const Json& Record::all() const {
  for (const auto& [name, value] : json_->object()) note(name);
  return *json_;
}

Json read_json(const std::string& path) {
  constexpr int64_t kMost = 64 << 20;
  return Json::parse(read_file(path, kMost), path);
}

Recording::Recording(const std::string& path, std::initializer_list<const char*> lists)
    : document_(read_json(path)), path_(path) {
  for (const auto& [name, value] : document_.object()) {
    const auto is = [&](std::string_view other) { return other == name; };
    if (std::none_of(std::begin(kOfTheRecording), std::end(kOfTheRecording), is) &&
        std::none_of(lists.begin(), lists.end(), is))
      ADD_FAILURE() << path << ": the field \"" << name << "\" is not known here";
  }
}

std::vector<Record> Recording::list(const std::string& name) const {
  std::vector<Record> out;
  for (const Json& one : document_.at(name).array())
    out.emplace_back(
        one, fmt::format("{} {}[{}]", path_.substr(path_.rfind('/') + 1), name, out.size()));
  EXPECT_FALSE(out.empty()) << path_ << " " << name;
  return out;
}

Tolerance Recording::tolerance(const std::string& kind) const {
  const Json& all = document_.at("tolerance");
  return tolerance_of(kind.empty() ? all : all.at(kind));
}

}  // namespace ds::test
