// Reads the topology of the machine with hwloc. libds must run without hwloc, so the library is
// opened at run time and its functions are found by name. If the library is missing or has another
// interface, HostTopology::absent says so, which is not an error.

#include "machine/host_topology.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <hwloc.h>
#include <hwloc/distances.h>
#include <sched.h>

#include <algorithm>
#include <memory>
#include <utility>

namespace ds {
namespace {

// The functions of hwloc. The constructor opens the library, which stays open.
class Hwloc {
  void* library_ = dlopen("libhwloc.so.15", RTLD_NOW | RTLD_LOCAL);
  std::string absent_ = library_ ? "" : fmt::format("hwloc cannot be opened: {}", dlerror());

  // The address of a function, which converts to any type of function pointer.
  struct Found {
    void* address;
    template <class F>
    operator F*() const {
      return reinterpret_cast<F*>(address);
    }
  };
  Found find(const char* name) {
    void* address = library_ ? dlsym(library_, name) : nullptr;
    if (!address && absent_.empty()) absent_ = fmt::format("hwloc lacks the function {}", name);
    return {address};
  }

 public:
  Hwloc() {
    constexpr unsigned kInterface = HWLOC_API_VERSION >> 16;
    if (absent_.empty() && version() >> 16 != kInterface)
      absent_ =
          fmt::format("hwloc has interface {}, but {} is needed", version() >> 16, kInterface);
  }

  const std::string& absent() const { return absent_; }

  decltype(&hwloc_get_api_version) version = find("hwloc_get_api_version");
  decltype(&hwloc_topology_init) init = find("hwloc_topology_init");
  decltype(&hwloc_topology_set_io_types_filter) filter = find("hwloc_topology_set_io_types_filter");
  decltype(&hwloc_topology_load) load = find("hwloc_topology_load");
  decltype(&hwloc_topology_destroy) destroy = find("hwloc_topology_destroy");
  decltype(&hwloc_get_type_depth) depth_of = find("hwloc_get_type_depth");
  decltype(&hwloc_get_nbobjs_by_depth) count = find("hwloc_get_nbobjs_by_depth");
  decltype(&hwloc_get_obj_by_depth) object = find("hwloc_get_obj_by_depth");
  decltype(&hwloc_bitmap_next) next = find("hwloc_bitmap_next");
  decltype(&hwloc_bitmap_intersects) intersects = find("hwloc_bitmap_intersects");
  decltype(&hwloc_distances_get_by_name) distances = find("hwloc_distances_get_by_name");
  decltype(&hwloc_distances_release) release = find("hwloc_distances_release");
  decltype(&hwloc_topology_is_thissystem) is_this_system = find("hwloc_topology_is_thissystem");
};

// A reader that converts a loaded topology to a HostTopology.
class Reader {
 public:
  Reader(const Hwloc& hwloc, hwloc_topology_t topology) : hwloc_(hwloc), topology_(topology) {}

  HostTopology read() {
    own_ = hwloc_.is_this_system(topology_) != 0 &&
           sched_getaffinity(0, sizeof usable_, &usable_) == 0;
    for (hwloc_obj_t node : objects(HWLOC_OBJ_NUMANODE)) {
      out_.nodes.push_back({static_cast<int>(node->os_index),
                            static_cast<int64_t>(node->attr->numanode.local_memory), cpus(node)});
      sets_.push_back(node->nodeset);
    }
    for (hwloc_obj_t core : objects(HWLOC_OBJ_CORE)) {
      std::vector<int> nodes = nodes_of(core), usable = cpus(core);
      if (!usable.empty()) out_.cores.push_back({std::move(usable), nodes.empty() ? 0 : nodes[0]});
    }
    for (hwloc_obj_t device : objects(HWLOC_OBJ_PCI_DEVICE)) read_device(device);
    read_links();
    return std::move(out_);
  }

 private:
  // Returns all objects of a type, in the order of hwloc.
  std::vector<hwloc_obj_t> objects(hwloc_obj_type_t type) const {
    std::vector<hwloc_obj_t> found;
    int depth = hwloc_.depth_of(topology_, type);
    for (unsigned i = 0; i < hwloc_.count(topology_, depth); ++i)
      found.push_back(hwloc_.object(topology_, depth, i));
    return found;
  }

  // Returns the CPUs of an object that this process may use.
  std::vector<int> cpus(hwloc_obj_t object) const {
    std::vector<int> found;
    for (int cpu = hwloc_.next(object->cpuset, -1); cpu >= 0;
         cpu = hwloc_.next(object->cpuset, cpu))
      if (!own_ || (cpu < CPU_SETSIZE && CPU_ISSET(cpu, &usable_))) found.push_back(cpu);
    return found;
  }

  // Returns the memory nodes of an object, as indices into `nodes`. A device itself has no memory
  // nodes, so the nodes of the nearest object that contains it are returned.
  std::vector<int> nodes_of(hwloc_obj_t object) const {
    while (object && !object->nodeset) object = object->parent;
    std::vector<int> found;
    for (size_t i = 0; object && i < sets_.size(); ++i)
      if (hwloc_.intersects(object->nodeset, sets_[i])) found.push_back(static_cast<int>(i));
    return found;
  }

  // Returns the address of a device on the PCI bus.
  static std::string address(hwloc_obj_t device) {
    const auto& at = device->attr->pcidev;
    return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", at.domain, at.bus, at.dev, at.func);
  }

  // Adds the device if it is a GPU or a network card, according to the high byte of its PCI class.
  void read_device(hwloc_obj_t device) {
    constexpr unsigned kNetwork = 0x02, kDisplay = 0x03, kAccelerator = 0x12;
    const auto& at = device->attr->pcidev;
    unsigned kind = at.class_id >> 8;
    if (kind == kDisplay || kind == kAccelerator) {
      std::string name = device->name
                             ? device->name
                             : fmt::format("GPU {:04x}:{:04x}", at.vendor_id, at.device_id);
      out_.gpus.push_back({std::move(name), address(device), nodes_of(device)});
    } else if (kind == kNetwork) {
      std::vector<std::string> names;
      for (hwloc_obj_t part = device->io_first_child; part; part = part->next_sibling)
        if (part->type == HWLOC_OBJ_OS_DEVICE && part->name) names.emplace_back(part->name);
      if (names.empty()) names.push_back(fmt::format("{:04x}:{:04x}", at.vendor_id, at.device_id));
      out_.networks.push_back(
          {fmt::format("{}", fmt::join(names, ", ")), address(device), nodes_of(device)});
    }
  }

  // Reads which GPUs are linked by NVLink. hwloc has this matrix only if it was built with NVIDIA's
  // management library.
  void read_links() {
    unsigned count = 1;
    hwloc_distances_s* matrix = nullptr;
    if (hwloc_.distances(topology_, "NVLinkBandwidth", &count, &matrix, 0) != 0 || count == 0)
      return;
    auto pci = [](hwloc_obj_t object) {
      while (object && object->type != HWLOC_OBJ_PCI_DEVICE) object = object->parent;
      return object ? address(object) : std::string("?");
    };
    for (unsigned i = 0; i < matrix->nbobjs; ++i) {
      for (unsigned j = i + 1; j < matrix->nbobjs; ++j) {
        auto bandwidth = static_cast<int64_t>(matrix->values[i * matrix->nbobjs + j]);
        if (bandwidth > 0)
          out_.links.push_back({pci(matrix->objs[i]), pci(matrix->objs[j]), bandwidth});
      }
    }
    hwloc_.release(topology_, matrix);
  }

  const Hwloc& hwloc_;
  hwloc_topology_t topology_;
  HostTopology out_;
  std::vector<hwloc_nodeset_t> sets_;
  // Whether the topology is that of this machine, not one from a file, and `usable_` has the CPUs
  // that this process may use.
  bool own_ = false;
  cpu_set_t usable_{};
};

// Returns an empty topology, with the reason in `absent`.
HostTopology without(std::string reason) {
  HostTopology none;
  none.absent = std::move(reason);
  return none;
}

}  // namespace

HostTopology host_topology(bool devices) {
  static const Hwloc hwloc;
  if (!hwloc.absent().empty()) return without(hwloc.absent());
  hwloc_topology_t topology = nullptr;
  if (hwloc.init(&topology) != 0) return without("hwloc has run out of memory");
  std::unique_ptr<hwloc_topology, decltype(hwloc.destroy)> held(topology, hwloc.destroy);
  if (devices) hwloc.filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  if (hwloc.load(topology) != 0) return without("hwloc cannot read this machine");
  return Reader(hwloc, topology).read();
}

}  // namespace ds
