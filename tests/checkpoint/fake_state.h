#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/reader.h"
#include "checkpoint/writer.h"
#include "core/base/error.h"
#include "core/program/mesh.h"
#include "io/file.h"
#include "support/ranks.h"
#include "support/temp_folder.h"

namespace ds::test {

struct FakeParam {
  std::string name;
  std::vector<int64_t> shape;
  // The slice of each coordinate of the axis `tensor`. Empty: the parameter is not divided.
  std::vector<ParamSlice> slices = {};
};

inline std::vector<FakeParam> fake_params() {
  return {{"wte", {29, 24}},
          {"h.0.weight", {40, 33}},
          {"h.0.bias", {40}},
          {"h.1.weight", {7, 100}},
          {"z", {1}}};
}

// Returns the value of element `i` of a parameter, which differs for every kind, parameter and
// element if no parameter has more than 2^16 elements.
inline float fake_value(int kind, ParamId param, int64_t i) {
  return static_cast<float>(kind + 1) * 0x1p20f + static_cast<float>(param.number()) * 0x1p16f +
         static_cast<float>(i);
}

// The state of one rank in plain vectors, on a mesh with the axes `data` and `tensor`. If
// partitioned, the rank holds its part of every bucket, as at stage 1 and above; otherwise it holds
// whole buckets. Padding is NaN, so that any use of it shows.
class FakeState : public StateAccess {
 public:
  FakeState(Communicator& comm, bool partitioned, std::vector<FakeParam> params = fake_params(),
            std::vector<std::string> kinds = {"master", "exp_avg", "exp_avg_sq"})
      : FakeState(comm, Mesh(comm.size()), partitioned, std::move(params), std::move(kinds)) {}
  FakeState(Communicator& comm, const Mesh& mesh, bool partitioned, std::vector<FakeParam> params,
            std::vector<std::string> kinds = {"master", "exp_avg", "exp_avg_sq"})
      : comm_(comm),
        cut_(mesh.coordinate(comm.rank(), kData)),
        tensor_(mesh.coordinate(comm.rank(), "tensor")),
        partitioned_(partitioned),
        kinds_(std::move(kinds)),
        data_(kinds_.size()) {
    IdVector<ParamId, ParamSpec> specs;
    for (const FakeParam& p : params) {
      slices_.push_back(p.slices.empty() ? ParamSlice::whole(p.shape)
                                         : p.slices[static_cast<size_t>(tensor_)]);
      specs.push_back({p.name, slices_.back().numel()});
      specs.back().held = !slices_.back().runs.empty();
      names_.push_back(p.name);
      shapes_.push_back(p.shape);
    }
    layout_ = make_layout(specs, {mesh.data_size()}, 2000, 100);
    for (auto& kind : data_) {
      for (BucketId b : layout_.buckets.ids()) {
        kind.emplace_back(static_cast<size_t>(held(b)), std::numeric_limits<float>::quiet_NaN());
      }
    }
  }

  Communicator& comm() override { return comm_; }
  const Layout& layout() const override { return layout_; }
  const IdVector<ParamId, std::string>& param_names() const override { return names_; }
  const IdVector<ParamId, std::vector<int64_t>>& param_shapes() const override { return shapes_; }
  const ParamSlice& slice(ParamId param) const override { return slices_[param]; }
  bool writes(ParamId param) const override { return tensor_ == 0 || slices_[param].cut(); }
  const std::vector<std::string>& state_kinds() const override { return kinds_; }
  int64_t first(BucketId b) const override { return partitioned_ ? own_first(b) : 0; }
  int64_t own_first(BucketId b) const override { return cut_ * layout_.buckets[b].shard(); }
  int64_t held(BucketId b) const override {
    return partitioned_ ? layout_.buckets[b].shard() : layout_.buckets[b].numel;
  }
  void read_state(StateKind kind, BucketId b, int64_t begin, int64_t count, float* out) override {
    if (on_read) on_read();
    ASSERT_GE(begin, first(b));
    ASSERT_LE(begin + count, first(b) + held(b));
    std::copy_n(at(kind, b, begin), count, out);
  }
  void write_state(StateKind kind, BucketId b, int64_t begin, int64_t count,
                   const float* in) override {
    ASSERT_GE(begin, first(b));
    ASSERT_LE(begin + count, first(b) + held(b));
    std::copy_n(in, count, at(kind, b, begin));
    written += count;
    if (on_write) on_write(b, begin, begin + count);
  }

  // Visits every local element that belongs to a parameter, with its index in the whole tensor.
  void each(const std::function<void(int kind, ParamId param, int64_t i, float& value)>& visit) {
    for (int k = 0; k < static_cast<int>(kinds_.size()); ++k) {
      for (BucketId b : layout_.buckets.ids()) {
        for (const ParamPlace& p : layout_.buckets[b].params) {
          int64_t begin = std::max(p.begin, first(b)),
                  end = std::min(p.begin + p.numel, first(b) + held(b));
          for (int64_t e = begin; e < end; ++e) {
            int64_t whole = slices_[p.param].blocks(e - p.begin, 1).at(0).begin;
            visit(k, p.param, whole, *at(static_cast<StateKind>(k), b, e));
          }
        }
      }
    }
  }
  void fill() {
    each([](int kind, ParamId param, int64_t i, float& v) { v = fake_value(kind, param, i); });
  }
  int64_t wrong() {
    int64_t count = 0;
    each([&](int kind, ParamId param, int64_t i, float& v) {
      count += v != fake_value(kind, param, i);
    });
    return count;
  }

  std::function<void()> on_read;
  std::function<void(BucketId bucket, int64_t begin, int64_t end)> on_write;
  int64_t written = 0;

 private:
  float* at(StateKind kind, BucketId b, int64_t element) {
    return data_[static_cast<size_t>(kind)][b.index()].data() + (element - first(b));
  }

  Communicator& comm_;
  // This rank's coordinates on the axes `data` and `tensor`.
  int cut_, tensor_;
  bool partitioned_;
  Layout layout_;
  IdVector<ParamId, ParamSlice> slices_;
  IdVector<ParamId, std::string> names_;
  IdVector<ParamId, std::vector<int64_t>> shapes_;
  std::vector<std::string> kinds_;
  // Values by [kind][bucket][element].
  std::vector<std::vector<std::vector<float>>> data_;
};

inline CheckpointInfo fake_info(int64_t step) {
  CheckpointInfo info;
  info.step = step;
  info.seed = 0xfedcba9876543210u;
  info.numerics_key = "key \"quoted\"";
  info.config.set("lr", 1e-3);
  info.client.set("sampler", int64_t{17});
  return info;
}

// Saves known values with `world` ranks and returns the path.
inline std::string save_fake(const std::string& folder, int64_t step, int world = 1, int keep = 0,
                             const std::string& also = "", bool partitioned = true,
                             const std::vector<FakeParam>& params = fake_params()) {
  std::string path;
  run_ranks(world, [&](Communicator& comm) {
    FakeState state(comm, partitioned, params);
    state.fill();
    std::string mine = save_checkpoint(state, folder, fake_info(step), {keep, also});
    if (comm.rank() == 0) path = mine;
  });
  return path;
}

// Loads `path` with `world` ranks and returns the last rank's status and message; a load that fails
// must not have written to the state.
inline std::pair<ds_status, std::string> load_error(
    const std::string& path, int world = 1, const std::vector<FakeParam>& params = fake_params()) {
  std::pair<ds_status, std::string> out{DS_OK, ""};
  run_ranks(world, [&](Communicator& comm) {
    FakeState state(comm, true, params);
    try {
      load_checkpoint(state, path);
    } catch (const Error& error) {
      EXPECT_EQ(state.written, 0);
      if (comm.rank() == world - 1) out = {error.status(), error.what()};
    }
  });
  return out;
}

}  // namespace ds::test
