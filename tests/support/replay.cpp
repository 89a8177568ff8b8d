// Models each file and folder as a list of changes, of which the first `safe` are durable.
#include "support/replay.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>

namespace ds::test {
namespace {

namespace fs = std::filesystem;

constexpr size_t kSector = 512;

struct Node {
  struct Change {
    // For a file: the write or truncation ("w" or "t").
    const FileEvent* event = nullptr;
    // For a folder: each changed name with its node, or -1 if the name was removed.
    std::map<std::string, int> names = {};
  };
  bool folder = false;
  std::vector<Change> changes;
  // The number of changes that are certainly durable.
  size_t safe = 0;
};

class Disk {
 public:
  Disk(const std::string& root, Loss loss, std::mt19937& random)
      : root_(root), loss_(loss), random_(random) {
    nodes_.push_back({.folder = true});
  }

  void apply(const FileEvent& event) {
    switch (event.kind) {
      case 'o':
        open_[event.handle] = find_or_make(event.bytes);
        break;
      case 'w':
      case 't':
        node(event).changes.push_back({.event = &event});
        break;
      case 's':
        node(event).safe = node(event).changes.size();
        break;
      case 'm':
        nodes_.push_back({.folder = true});
        set({{event.bytes, static_cast<int>(nodes_.size()) - 1}});
        break;
      case 'u':
        set({{event.bytes, -1}});
        break;
      case 'r': {
        size_t end = event.bytes.find('\0');
        std::string from = event.bytes.substr(0, end);
        set({{from, -1}, {event.bytes.substr(end + 1), find(from)}});
        break;
      }
      default:
        break;
    }
  }

  void write(const std::string& to) { write_folder(0, to); }

 private:
  Node& node(const FileEvent& event) { return nodes_[static_cast<size_t>(open_.at(event.handle))]; }

  // Returns the entries of a folder as its process saw them.
  static std::map<std::string, int> names(const Node& folder) {
    std::map<std::string, int> out;
    for (const Node::Change& change : folder.changes) {
      for (const auto& [name, node] : change.names) out[name] = node;
    }
    return out;
  }

  int find(const std::string& path) const {
    int at = 0;
    for (const fs::path& part : fs::path(path).lexically_relative(root_)) {
      if (part == ".") continue;
      std::map<std::string, int> have = names(nodes_[static_cast<size_t>(at)]);
      auto it = have.find(part.string());
      if (it == have.end() || it->second < 0) return -1;
      at = it->second;
    }
    return at;
  }

  int find_or_make(const std::string& path) {
    int found = find(path);
    if (found >= 0) return found;
    nodes_.push_back({});
    set({{path, static_cast<int>(nodes_.size()) - 1}});
    return static_cast<int>(nodes_.size()) - 1;
  }

  // Adds one change for each affected folder, so that a rename within a folder is a single change.
  void set(const std::vector<std::pair<std::string, int>>& paths) {
    std::map<int, std::map<std::string, int>> by_folder;
    for (const auto& [path, node] : paths) {
      int folder = find(fs::path(path).parent_path().string());
      if (folder < 0) throw std::runtime_error("replay: no folder of " + path);
      by_folder[folder][fs::path(path).filename().string()] = node;
    }
    for (const auto& [folder, names] : by_folder) {
      nodes_[static_cast<size_t>(folder)].changes.push_back({.names = names});
    }
  }

  // Returns how many changes of a node survive the cut if they become durable in order.
  size_t kept(const Node& node) {
    if (loss_ == Loss::all) return node.safe;
    if (loss_ == Loss::none || loss_ == Loss::any) return node.changes.size();
    return node.safe + random_() % (node.changes.size() - node.safe + 1);
  }
  bool lost(const Node& node, size_t change) {
    return loss_ == Loss::any && change >= node.safe && random_() % 2 == 0;
  }

  void write_folder(size_t number, const std::string& to) {
    const Node& folder = nodes_[number];
    std::map<std::string, int> there;
    size_t end = kept(folder);
    for (size_t c = 0; c < end; ++c) {
      for (const auto& [name, node] : folder.changes[c].names) {
        if (!lost(folder, c)) there[name] = node;
      }
    }
    for (const auto& [name, node] : there) {
      if (node < 0) continue;
      std::string path = to + "/" + name;
      if (nodes_[static_cast<size_t>(node)].folder) {
        fs::create_directory(path);
        write_folder(static_cast<size_t>(node), path);
      } else {
        std::ofstream(path, std::ios::binary) << content(nodes_[static_cast<size_t>(node)]);
      }
    }
  }

  std::string content(const Node& file) {
    std::string bytes;
    size_t end = kept(file);
    for (size_t c = 0; c < end; ++c) {
      const FileEvent& event = *file.changes[c].event;
      if (lost(file, c)) continue;
      if (event.kind == 't') {
        bytes.resize(static_cast<size_t>(event.offset));
        continue;
      }
      auto begin = static_cast<size_t>(event.offset);
      bytes.resize(std::max(bytes.size(), begin + event.bytes.size()));
      for (size_t at = 0; at < event.bytes.size(); at += kSector) {
        if (at == 0 || !lost(file, c)) event.bytes.copy(bytes.data() + begin + at, kSector, at);
      }
    }
    return bytes;
  }

  std::string root_;
  Loss loss_;
  std::mt19937& random_;
  // The first node is root_.
  std::vector<Node> nodes_;
  // The node of each open handle.
  std::map<int, int> open_;
};

}  // namespace

std::vector<FileEvent> read_events(const std::string& log) {
  std::ifstream in(log, std::ios::binary);
  std::vector<FileEvent> events;
  FileEvent event;
  size_t size = 0;
  while (in >> event.kind >> event.handle >> event.offset >> size) {
    event.bytes.resize(size);
    // Skips the end of the line.
    in.get();
    in.read(event.bytes.data(), static_cast<std::streamsize>(size));
    events.push_back(event);
  }
  if (!in.eof()) throw std::runtime_error("replay: " + log + " ends in the middle of a record");
  return events;
}

void replay(const std::vector<FileEvent>& events, size_t end, const std::string& root,
            const std::string& to, Loss loss, std::mt19937& random) {
  Disk disk(root, loss, random);
  for (size_t e = 0; e < end; ++e) disk.apply(events[e]);
  disk.write(to);
}

}  // namespace ds::test
