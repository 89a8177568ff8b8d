#include "support/groups.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <optional>

#include "comm/environment.h"
#include "comm/exchange.h"
#include "comm/transport/transport.h"
#include "core/base/half.h"
#include "core/base/plugin.h"
#include "support/caller.h"
#include "support/post_office.h"
#include "support/spawn.h"
#include "support/temp_folder.h"

namespace ds::test {

namespace {

std::vector<GroupCase> all_cases() {
  std::vector<GroupCase> out;
  for (const char* transport : {"threads", "shm", "post", "caller"}) {
    for (int ranks : {1, 2, 3, 4}) out.push_back({transport, ranks});
    if (std::string(transport) == "post" || std::string(transport) == "caller") continue;
    for (int ranks : {2, 3}) out.push_back({transport, ranks, false, 0});
    out.push_back({transport, 3, true, 2});
  }
  out.push_back({"swaps", 3});
  for (int ranks : {1, 2, 4}) out.push_back({"tcp", ranks});
  return out;
}

// Returns the group of DS_TEST_GROUP, if set. This process is one of its ranks.
std::optional<GroupCase> given_case() {
  if (!std::getenv("DS_TEST_GROUP")) return std::nullopt;
  const Place place = place_of_environment([](const char* name) { return std::getenv(name); });
  return GroupCase{place.url.substr(0, place.url.find(':')), place.size};
}

}  // namespace

std::vector<GroupCase> group_cases() {
  const auto given = given_case();
  return given ? std::vector{*given} : all_cases();
}

std::vector<GroupCase> group_cases(int ranks) {
  std::vector<GroupCase> out = all_cases();
  std::erase_if(out, [&](const GroupCase& c) {
    return c.ranks != ranks || c.transport == "caller" || c.transport == "swaps";
  });
  return out;
}

static std::string name_of(const GroupCase& group) {
  return fmt::format("{}{}{}{}", group.transport, group.ranks, group.direct ? "" : "staged",
                     group.cores == 2 ? "crowded" : "");
}

std::string group_name(const testing::TestParamInfo<GroupCase>& info) {
  return name_of(info.param);
}

void PrintTo(const GroupCase& group, std::ostream* out) { *out << name_of(group); }

void on_group(const GroupCase& group, const std::function<void(Communicator&)>& body) {
  if (const auto given = given_case(); given && given->transport == group.transport) {
    auto comm = create_communicator("env", {.timeout_ms = 60000});
    ASSERT_EQ(comm->size(), group.ranks);
    return body(*comm);
  }
  bool post = group.transport == "post", tcp = group.transport == "tcp";
  bool swaps = group.transport == "swaps", called = group.transport == "caller" || swaps;
  if (tcp && !load_transport("tcp")) GTEST_SKIP() << "the transport tcp is not built";
  TempFolder folder;
  std::string name = tcp ? folder / "meet" : fmt::format("group-{}", getpid());
  std::string url = fmt::format("{}://{}", group.transport, name);
  auto one = [&](int rank) {
    CommOptions options{.rank = rank,
                        .size = group.ranks,
                        .timeout_ms = 60000,
                        .direct = group.direct,
                        .cores = group.cores};
    auto comm = post     ? make_linked(post_transport(), "", options)
                : called ? make_caller_group(rank, group.ranks, !swaps)
                         : create_communicator(url, options);
    ASSERT_EQ(comm->exchange().reads_directly(), group.direct && !post && !called && !tcp);
    body(*comm);
  };
  Office office;
  open_office(&office);
  if (group.transport == "shm") {
    EXPECT_EQ(spawn_processes(group.ranks, one),
              std::vector<int>(static_cast<size_t>(group.ranks), 0));
  } else {
    spawn_threads(group.ranks, one);
  }
  open_office(nullptr);
}

std::vector<std::byte> elements(DType dtype, int rank, size_t count) {
  auto unit = static_cast<size_t>(size_of(dtype));
  std::vector<std::byte> out(count * unit);
  for (size_t i = 0; i < count; ++i) {
    size_t mix = (i * 2654435761u + static_cast<size_t>(rank) * 40503u + i / 2003) % 2003;
    double value = (static_cast<double>(mix) - 1001) / 8 * (rank % 2 == 0 ? 1 : 37.25);
    std::byte* to = out.data() + i * unit;
    auto put = [&](auto x) { std::memcpy(to, &x, sizeof x); };
    switch (dtype) {
      case DS_DTYPE_F32:
        put(static_cast<float>(value) * 1.0009f);
        break;
      case DS_DTYPE_BF16:
        put(bf16(static_cast<float>(value)));
        break;
      case DS_DTYPE_F16:
        put(narrow_half(static_cast<float>(value)));
        break;
      case DS_DTYPE_F64:
        put(value * 1.0000000123);
        break;
      case DS_DTYPE_I32:
        put(static_cast<int32_t>(value * 1e5));
        break;
      case DS_DTYPE_I64:
        put(static_cast<int64_t>(value * 1e12));
        break;
      default:
        put(static_cast<uint8_t>(mix));
    }
  }
  return out;
}

std::byte byte_of(int from, int to, size_t i) {
  return static_cast<std::byte>(static_cast<size_t>(from * 37 + to * 11 + 5) + i * 131 + (i >> 9));
}

}  // namespace ds::test
