#pragma once
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

namespace ds::test {

// A new folder, removed with its contents by the destructor. It is on the build folder's file
// system unless another folder is named.
class TempFolder {
 public:
  explicit TempFolder(const std::string& above = DS_BINARY_DIR) {
    path_ = above + "/test-XXXXXX";
    if (!mkdtemp(path_.data())) throw std::runtime_error("no temporary folder at " + path_);
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace ds::test
