#include "core/graph/ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <variant>

#include "core/base/error.h"
#include "core/graph/op_schema.h"
#include "core/graph/ops/rope_length.h"

namespace ds::test {
namespace {

std::string refusal(std::string_view name, const std::vector<TensorType>& in,
                    const Attrs& attrs = {}) {
  Graph graph;
  std::vector<ValueId> values;
  for (size_t i = 0; i < in.size(); ++i)
    values.push_back(graph.add_input("x" + std::to_string(i), in[i]));
  try {
    graph.add(name, values, attrs);
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), DS_ERROR_INVALID_ARGUMENT);
    return error.what();
  }
  return "accepted";
}

const Dim n = Dim::n();
constexpr DType f32 = DS_DTYPE_F32, bf16_ = DS_DTYPE_BF16, f64 = DS_DTYPE_F64, i32 = DS_DTYPE_I32;

TEST(Ops, RefusalsNameOpOperandAndBothTypes) {
  EXPECT_EQ(refusal("linear", {{f32, {n, 8}}, {f32, {4, 7}}}),
            "linear: operand 'w' must be f32[4,8], got f32[4,7]");
  EXPECT_EQ(refusal("linear", {{bf16_, {n, 8}}, {f32, {4, 8}}}),
            "linear: operand 'w' must be bf16[4,8], got f32[4,8]");
  EXPECT_EQ(refusal("embedding", {{f32, {9, 4}}, {f32, {n}}}),
            "embedding: operand 'ids' must be i32[n], got f32[n]");
  EXPECT_EQ(refusal("add", {{f32, {n, 4}}, {f32, {4}}}),
            "add: operand 'b' must be f32[n,4], got f32[4]");
  EXPECT_EQ(refusal("attention", {{f32, {n, 12}}}, {{"heads", int64_t{3}}, {"seq", int64_t{4}}}),
            "attention: operand 'qkv' must have a multiple of 3*heads = 9 columns, got f32[n,12]");
  EXPECT_EQ(refusal("position", {{f32, {n, 4}}, {f32, {8, 4}}}, {{"seq", int64_t{9}}}),
            "position: attribute 'seq' must be at most the number of rows of operand 'w' f32[8,4], "
            "got 9");
  EXPECT_EQ(refusal("cross_entropy", {{f32, {n, 4}}, {i32, {5}}}),
            "cross_entropy: operand 'targets' must be i32[n], got i32[5]");
  for (const char* loss : {"cross_entropy", "linear_cross_entropy"}) {
    std::vector<TensorType> in{{f32, {n, 4}}, {i32, {n}}};
    if (std::string_view(loss) != "cross_entropy") in.insert(in.begin() + 1, {f32, {7, 4}});
    const std::string begin = std::string(loss) + ": attribute ";
    EXPECT_EQ(refusal(loss, in, {{"label_smoothing", 1.5}}),
              begin + "'label_smoothing' must be in [0, 1], got 1.5");
    EXPECT_EQ(refusal(loss, in, {{"z_loss", -1.0}}),
              begin + "'z_loss' must be a number >= 0, got -1");
    EXPECT_EQ(refusal(loss, in, {{"reduction", "avg"}}),
              begin + "'reduction' must be one of mean sum none, got text 'avg'");
  }
  EXPECT_EQ(refusal("causal_softmax", {{f32, {n, 4}}}, {{"seq", int64_t{0}}}),
            "causal_softmax: attribute 'seq' must be an integer >= 1, got attributes {seq=0}");
}

TEST(Ops, RefusesMeaninglessAttention) {
  auto attention = [](const std::vector<TensorType>& in,
                      std::vector<std::pair<const char*, double>> more) {
    Attrs attrs{{"heads", int64_t{4}}, {"seq", int64_t{8}}};
    for (auto [name, value] : more) {
      bool real = std::string_view(name) == "scale" || std::string_view(name) == "softcap";
      attrs.set(name, real ? Attrs::Value(value) : Attrs::Value(static_cast<int64_t>(value)));
    }
    return refusal("attention", in, attrs);
  };
  TensorType packed{f32, {n, 24}}, q{f32, {n, 8}}, k{f32, {n, 4}}, mask{i32, {n}};
  EXPECT_EQ(attention({packed, mask}, {}), "accepted");
  EXPECT_EQ(
      attention({q, k, k, mask}, {{"kv_heads", 2}, {"window", 3}, {"scale", 2}, {"softcap", 30}}),
      "accepted");
  EXPECT_EQ(attention({q, k, q}, {{"kv_heads", 2}}),
            "attention: operand 'v' must be f32[n,4], got f32[n,8]");
  EXPECT_EQ(attention({q, k, k, q}, {{"kv_heads", 2}}),
            "attention: operand 'mask' must be i32[n], got f32[n,8]");
  EXPECT_EQ(attention({packed, k}, {}), "attention: operand 'mask' must be i32[n], got f32[n,4]");
  EXPECT_EQ(attention({{f32, {n, 10}}}, {{"kv_heads", 2}}),
            "attention: operand 'qkv' must have a multiple of heads+2*kv_heads = 8 columns, got "
            "f32[n,10]");
  EXPECT_EQ(attention({{f32, {n, 6}}, k, k}, {{"kv_heads", 2}}),
            "attention: operand 'q' must have a multiple of heads = 4 columns, got f32[n,6]");
  EXPECT_EQ(attention({packed}, {{"kv_heads", 3}}),
            "attention: attribute 'kv_heads' must divide heads = 4, got 3");
  EXPECT_EQ(attention({packed}, {{"causal", 0}, {"window", 5}}),
            "attention: attribute 'window' must be 0 when 'causal' is 0, got 5");
  EXPECT_EQ(attention({packed}, {{"dropout", 1}}),
            "attention: attribute 'dropout' must be in [0, 1), got 1");
  EXPECT_EQ(attention({packed}, {{"op", 65536}}),
            "attention: attribute 'op' must be an integer from 0 to 65535, got attributes "
            "{heads=4 seq=8 op=65536}");
  EXPECT_EQ(attention({packed}, {{"softcap", -1}}),
            "attention: attribute 'softcap' must be a number >= 0, got -1");
  EXPECT_EQ(attention({q, k, k}, {{"per_head", 1}, {"kv_heads", 2}}),
            "attention: attribute 'per_head' must be 0 when q, k and v are separate, got 1");
  EXPECT_EQ(attention({packed}, {{"per_head", 1}, {"kv_heads", 2}}),
            "attention: attribute 'kv_heads' must be heads = 4 when 'per_head' is 1, got 2");
}

TEST(Ops, WrongOperandCountsAndAttributesAreRefused) {
  EXPECT_EQ(refusal("gelu", {}), "gelu: takes 1 operands, got 0");
  EXPECT_EQ(refusal("layernorm", {}), "op 'layernorm' is not known; did you mean 'layer_norm'?");
  EXPECT_EQ(refusal("fill", {}, {{"value", 1.0}}),
            "fill: attribute 'dtype' is missing, got attributes '{value=1.0}'");
  EXPECT_EQ(refusal("fill", {}, {{"valu", 1.0}}),
            "fill: attribute 'valu' is not known; did you mean 'value'?");
  EXPECT_EQ(refusal("dropout", {{f32, {n, 4}}}, {{"p", 1.0}, {"op", int64_t{0}}}),
            "dropout: attribute 'p' must be in [0, 1), got 1");
}

TEST(Ops, OptionalAttributesAreChecked) {
  const TensorType x{f32, {n, 12}};
  EXPECT_EQ(refusal("gelu", {x}, {{"form", "erf"}}), "accepted");
  EXPECT_EQ(refusal("gelu", {x}, {{"form", "exact"}}),
            "gelu: attribute 'form' must be one of tanh erf 10, got text 'exact'");
  EXPECT_EQ(refusal("relu", {x}, {{"form", "erf"}}), "relu: attribute 'form' is not known");
  EXPECT_EQ(refusal("linear", {x, {f32, {5, 12}}}, {{"transpose", int64_t{1}}}),
            "linear: attribute 'transpose' is not known; did you mean 'transposed'?");
  EXPECT_EQ(refusal("linear", {x, {f32, {5, 12}}}, {{"transposed", int64_t{2}}}),
            "linear: attribute 'transposed' must be 0 or 1, got integer 2");
}

TEST(Ops, AnAttributeOfAnotherKindIsRefusedWithBothKinds) {
  const TensorType x{f32, {n, 12}};
  EXPECT_EQ(refusal("top_gates", {x}, {{"k", 2.0}}),
            "top_gates: attribute 'k' must be an integer, got number 2");
  EXPECT_EQ(refusal("top_gates", {x}, {{"k", "two"}}),
            "top_gates: attribute 'k' must be an integer, got text 'two'");
  EXPECT_EQ(refusal("scale", {x}, {{"factor", "2"}}),
            "scale: attribute 'factor' must be a number, got text '2'");
  EXPECT_EQ(refusal("scale", {x}, {{"factor", int64_t{2}}}), "accepted");
  EXPECT_EQ(refusal("gelu", {x}, {{"form", int64_t{10}}}),
            "gelu: attribute 'form' must be one of tanh erf 10, got integer 10");
  EXPECT_EQ(refusal("linear", {x, {f32, {5, 12}}}, {{"transposed", 1.0}}),
            "linear: attribute 'transposed' must be 0 or 1, got number 1");
  EXPECT_EQ(refusal("rope", {x},
                    {{"heads", int64_t{2}}, {"seq", int64_t{4}}, {"theta", 1e4}, {"factors", 2.5}}),
            "rope: attribute 'factors' must be a text, got number 2.5");
}

bool of_its_kind(const AttrDef& attr, const Attrs::Value& value) {
  if (attr.kind == AttrKind::number) return std::holds_alternative<double>(value);
  if (attr.kind == AttrKind::integer || attr.kind == AttrKind::flag)
    return std::holds_alternative<int64_t>(value);
  const auto* text = std::get_if<std::string>(&value);
  return text && (attr.kind == AttrKind::text || std::ranges::count(attr.words, *text) == 1);
}

TEST(Ops, EveryRowNamesItsOperandsAndResults) {
  for (const OpDef& row : op_table()) {
    SCOPED_TRACE(row.name);
    EXPECT_TRUE(row.doc.ends_with('.'));
    std::set<int> counts;
    std::set<std::string> forms;
    for (const OpForm& form : row.forms) {
      EXPECT_TRUE(forms.insert(form.name).second);
      for (int count = form.least(); count <= form.most(); ++count)
        EXPECT_TRUE(counts.insert(count).second) << count;
      std::set<std::string> names;
      for (const std::vector<OperandDef>* side : {&form.operands, &form.results}) {
        for (const OperandDef& operand : *side) {
          EXPECT_FALSE(operand.doc.empty()) << operand.name;
          EXPECT_NE(operand.type.find('['), std::string::npos) << operand.name;
        }
      }
      for (const OperandDef& operand : form.operands)
        EXPECT_TRUE(names.insert(operand.name).second) << operand.name;
      EXPECT_FALSE(form.results.empty());
    }
    EXPECT_FALSE(counts.empty());
    std::set<std::string> attrs;
    for (const AttrDef& attr : row.attrs) {
      EXPECT_TRUE(attrs.insert(attr.name).second) << attr.name;
      EXPECT_FALSE(attr.doc.empty()) << attr.name;
      EXPECT_EQ(attr.words.empty(), attr.kind != AttrKind::one_of) << attr.name;
      EXPECT_TRUE(!attr.otherwise || (!attr.required && of_its_kind(attr, *attr.otherwise)))
          << attr.name;
    }
  }
}

TEST(Ops, OperandsInTheMiddleMayBeAbsent) {
  auto names = [](std::string_view name, size_t count) {
    std::string out;
    for (const OperandDef* operand : op(name).form(count)->places(count))
      out += operand->name + " ";
    return out;
  };
  EXPECT_EQ(names("layer_norm_dx", 4), "dy x mean rstd ");
  EXPECT_EQ(names("layer_norm_dx", 5), "dy x w mean rstd ");
  EXPECT_EQ(names("attention_dx", 4), "dy qkv y lse ");
  EXPECT_EQ(names("attention_dx", 7), "dy q k v mask y lse ");
  EXPECT_EQ(names("load_balance", 3), "logits logits logits ");
  EXPECT_EQ(op("cached_attention").form(4), nullptr);
  EXPECT_EQ(op("linear_cross_entropy").results(3), 2u);
}

TEST(Ops, TheSchemaHasEveryOp) {
  Json schema = op_schema();
  EXPECT_EQ(schema.at("opset").integer(), 1);
  const Json::Array& operations = schema.at("operations").array();
  ASSERT_EQ(operations.size(), op_table().size());
  const Json& rope = *std::ranges::find_if(
      operations, [](const Json& o) { return o.at("name").string() == "rope"; });
  EXPECT_TRUE(rope.at("differentiable").boolean());
  const Json& positions = rope.at("forms").array().at(0).at("operands").array().at(1);
  EXPECT_EQ(
      positions.dump(),
      R"({"name": "positions", "type": "i32[n]", "dtypes": ["i32"], "optional": true, "most": 1, )"
      R"("doc": "position of each row; r mod seq if absent"})");
  const Json::Array& attributes = rope.at("attributes").array();
  EXPECT_EQ(attributes.at(0).dump(),
            R"({"name": "heads", "kind": "integer", "required": true, "doc": "H"})");
  EXPECT_TRUE(attributes.at(4).at("default").is_null());
  EXPECT_EQ(attributes.at(17).at("default").integer(), 1);
}

TEST(Ops, RefusesCommonMistakesOfModels) {
  const TensorType x{f32, {n, 12}}, w{f32, {5, 12}};
  const Attrs turned{{"transposed", int64_t{1}}};
  EXPECT_EQ(refusal("linear", {x, w}, turned),
            "linear: operand 'w' must be f32[12,12], got f32[5,12]");
  EXPECT_EQ(refusal("linear", {x, {f32, {12, 5}}, {f32, {5}}}, turned), "accepted");
  EXPECT_EQ(
      refusal("rms_norm", {x, {f32, {5}}}, {{"eps", 1e-6}}),
      "rms_norm: operand 'x' must have a multiple of 5 columns, the width of 'w', got f32[n,12]");
  EXPECT_EQ(refusal("rms_norm", {x, {bf16_, {6}}}, {{"eps", 1e-6}}),
            "rms_norm: operand 'w' must be f32[6], got bf16[6]");
  EXPECT_EQ(refusal("glu", {{f32, {n, 7}}}, {{"act", "silu"}}),
            "glu: operand 'x' must have an even number of columns, got f32[n,7]");
  EXPECT_EQ(
      refusal("glu", {x}, {{"act", "swish"}}),
      "glu: attribute 'act' must be one of silu gelu_tanh gelu_erf gelu_10 relu tanh relu2 laplace "
      "sigmoid quick_gelu softplus, got text 'swish'");
  EXPECT_EQ(refusal("softcap", {x}, {{"cap", 0.0}}), "softcap: attribute 'cap' must be > 0, got 0");
  EXPECT_EQ(
      refusal("top_gates", {{f32, {n, 4}}}, {{"k", int64_t{5}}}),
      "top_gates: attribute 'k' must be at most the columns of operand 'logits' f32[n,4], got 5");
  EXPECT_EQ(refusal("scale_rows", {x, {f32, {n, 4}}}, {{"column", int64_t{4}}}),
            "scale_rows: attribute 'column' must be from 0 to 3, got 4");
  EXPECT_EQ(refusal("load_balance", {{f32, {n, 4}}, {f32, {n, 5}}}, {{"k", int64_t{1}}}),
            "load_balance: operand 1 must be f32[n,4], got f32[n,5]");
}

TEST(Ops, RopeChecksHeadsAndScaling) {
  const TensorType x{f32, {n, 12}};
  Attrs attrs{{"heads", int64_t{2}}, {"seq", int64_t{4}}, {"theta", 1e4}};
  auto with = [&](std::string_view name, Attrs::Value value) {
    Attrs more = attrs;
    more.set(name, std::move(value));
    return refusal("rope", {x}, more);
  };
  EXPECT_EQ(refusal("rope", {x}, attrs), "accepted");
  EXPECT_EQ(with("heads", int64_t{4}),
            "rope: operand 'x' must have a multiple of 2*heads = 8 columns, got f32[n,12]");
  EXPECT_EQ(
      refusal("rope", {{f32, {n, 10}}},
              {{"heads", int64_t{2}}, {"seq", int64_t{4}}, {"theta", 1e4}, {"dims", int64_t{4}}}),
      "accepted");
  EXPECT_EQ(with("dims", int64_t{3}), "rope: attribute 'dims' must be even, got 3");
  EXPECT_EQ(with("scaling", "linear"),
            "attribute 'factor' must be a number, got attributes {heads=2 seq=4 theta=10000.0 "
            "scaling=\"linear\"}");
  for (const char* name : {"factor", "low", "original"}) attrs.set(name, int64_t{4});
  attrs.set("high", 1.0);
  EXPECT_EQ(with("scaling", "llama3"),
            "rope: attribute 'high' must be greater than 'low' 4, got 1");
  EXPECT_EQ(with("scaling", "yarn"), "accepted");
  attrs.set("high", 32.0);
  EXPECT_EQ(with("scaling", "llama3"), "accepted");
  attrs.set("high", 0.0);
  EXPECT_EQ(with("scaling", "yarn"), "rope: attribute 'high' must be > 0, got 0");
}

TEST(Ops, RopeChecksScalingsByLength) {
  const TensorType x{f32, {n, 12}}, places{i32, {n}}, length{i32, {1}};
  Attrs attrs{{"heads", int64_t{2}}, {"seq", int64_t{4}}, {"theta", 1e4}};
  EXPECT_EQ(refusal("rope", {x, places, places}, attrs),
            "rope: operand 'length' must be i32[1], got i32[n]");
  attrs.set("scaling", "dynamic");
  for (const char* name : {"factor", "original"}) attrs.set(name, int64_t{4});
  attrs.set("power", INFINITY);
  EXPECT_EQ(refusal("rope", {x}, attrs), "rope: attribute 'power' must be finite, got inf");
  attrs.set("power", 1.5);
  EXPECT_EQ(refusal("rope", {x, places, length}, attrs), "accepted");
  attrs.set("scaling", "longrope");
  attrs.set("factors", "1 2 3");
  EXPECT_EQ(refusal("rope", {x, places, length}, attrs), "accepted");
  attrs.set("long_factors", "1 2");
  EXPECT_EQ(refusal("rope", {x}, attrs),
            "rope: attribute 'long_factors' must hold dims/2 = 3 numbers, at most 512, got 2");
  attrs.set("long_factors", "1 2 3.5");
  attrs.set("original", int64_t{0});
  std::string message = refusal("rope", {x}, attrs);
  EXPECT_TRUE(message.starts_with("rope: attribute 'original' must be an integer >= 1, got"))
      << message;
}

TEST(Ops, RopeMayRotateByTwoLengths) {
  Attrs plain{{"theta", 1e4}}, longrope{{"scaling", "longrope"}, {"factors", "1"}},
      dynamic{{"scaling", "dynamic"}, {"original", int64_t{8}}};
  for (const Attrs& fixed : {plain, longrope}) EXPECT_TRUE(same_rotations(fixed, 1, 1000));
  longrope.set("long_factors", "2");
  longrope.set("original", int64_t{8});
  for (const Attrs& rope : {longrope, dynamic}) {
    EXPECT_TRUE(same_rotations(rope, 3, 8));
    EXPECT_FALSE(same_rotations(rope, 8, 9));
    EXPECT_FALSE(same_rotations(rope, 9, 2));
    EXPECT_TRUE(same_rotations(rope, 12, 12));
  }
  EXPECT_TRUE(same_rotations(longrope, 9, 12));
  EXPECT_FALSE(same_rotations(dynamic, 9, 12));
}

TEST(Ops, RmsNormStatisticsHaveOneColumnPerRun) {
  Graph graph;
  ValueId x = graph.add_input("x", {bf16_, {n, 12}}), w = graph.add_input("w", {bf16_, {4}});
  ValueId y = graph.add("rms_norm", {x, w}, {{"eps", 1e-6}, {"offset", int64_t{1}}});
  EXPECT_EQ(graph.type(y).text(), "bf16[n,12]");
  EXPECT_EQ(graph.type(y + 1).text(), "f32[n,3]");
}

TEST(Ops, StatisticsAreF32ExceptForF64) {
  auto statistic = [](DType dtype) {
    Graph graph;
    ValueId x = graph.add_input("x", {dtype, {n, 4}}), w = graph.add_input("w", {dtype, {4}});
    ValueId y = graph.add("layer_norm", {x, w, w}, {{"eps", 1e-5}});
    return graph.type(y + 1).dtype;
  };
  EXPECT_EQ(statistic(bf16_), f32);
  EXPECT_EQ(statistic(f32), f32);
  EXPECT_EQ(statistic(f64), f64);
}

TEST(Ops, CountsFloatingPointOperations) {
  std::vector<TensorType> in{{f32, {n, 8}}, {f32, {4, 8}}}, grads{{f32, {n, 4}}, {f32, {n, 8}}};
  EXPECT_EQ(op("linear").flops(in, {}, 10), 2.0 * 10 * 8 * 4);
  EXPECT_EQ(op("linear_dw").flops(grads, {}, 10), 2.0 * 10 * 8 * 4);
  std::vector<TensorType> qkv{{f32, {n, 12}}};
  EXPECT_EQ(op("attention").flops(qkv, {{"heads", int64_t{2}}, {"seq", int64_t{5}}}, 10),
            2 * 2.0 * 10 * 3 * 4);
  const Attrs turned{{"transposed", int64_t{1}}};
  std::vector<TensorType> conv{{f32, {n, 8}}, {f32, {8, 4}}}, conv_dx{{f32, {n, 4}}, {f32, {8, 4}}};
  EXPECT_EQ(op("linear").flops(conv, turned, 10), 2.0 * 10 * 8 * 4);
  EXPECT_EQ(op("linear_dx").flops(conv_dx, turned, 10), 2.0 * 10 * 8 * 4);
  EXPECT_EQ(op("linear_dw").flops(grads, turned, 10), 2.0 * 10 * 8 * 4);
  // The operand has 6 heads of 6 columns.
  std::vector<TensorType> heads{{f32, {n, 36}}};
  Attrs rope{{"heads", int64_t{6}}, {"seq", int64_t{5}}, {"theta", 1e4}, {"dims", int64_t{4}}};
  EXPECT_EQ(op("rope").flops(heads, rope, 10), 3.0 * 10 * 6 * 4);
  rope.set("period", int64_t{4});
  rope.set("rotated", int64_t{1});
  // Only heads 0 and 4 are rotated.
  EXPECT_EQ(op("rope").flops(heads, rope, 10), 3.0 * 10 * 2 * 4);
  std::vector<TensorType> pair{{f32, {n, 6}}, {f32, {n, 6}}}, packed{{f32, {n, 12}}};
  const Attrs relu{{"act", "relu"}};
  EXPECT_EQ(op("glu").flops(pair, relu, 10), 2.0 * 10 * 6);
  EXPECT_EQ(op("glu").flops(packed, relu, 10), 2.0 * 10 * 6);
}

TEST(Ops, AttentionCountsTheKeysThatRowsSee) {
  std::vector<TensorType> qkv{{f32, {n, 12}}};
  Attrs attrs{{"heads", int64_t{2}}, {"seq", int64_t{5}}, {"window", int64_t{2}}};
  // The rows of a sequence see 1, 2, 2, 2 and 2 keys.
  EXPECT_EQ(op("attention").flops(qkv, attrs, 10), 2 * 2.0 * 10 * (9 / 5.0) * 4);
  attrs = {{"heads", int64_t{2}}, {"seq", int64_t{5}}, {"causal", int64_t{0}}};
  EXPECT_EQ(op("attention").flops(qkv, attrs, 10), 2 * 2.0 * 10 * 5 * 4);
  std::vector<TensorType> dx{{f32, {n, 4}}, qkv[0], {f32, {n, 4}}, {f32, {2, n}}};
  EXPECT_EQ(op("attention_dx").flops(dx, attrs, 10), 5 * 2.0 * 10 * 5 * 4);
}

TEST(Ops, NamesAreUnique) {
  std::set<std::string> names;
  for (const OpDef& row : op_table()) EXPECT_TRUE(names.insert(row.name).second) << row.name;
}

TEST(Graph, NamesAreUniqueAndGenerated) {
  Graph graph;
  ValueId x = graph.add_input("x", {f32, {n, 4}});
  EXPECT_THROW(graph.add_input("x", {f32, {n, 4}}), Error);
  EXPECT_THROW(graph.add_input("a b", {f32, {n, 4}}), Error);
  EXPECT_THROW(graph.add_input("empty", {f32, {n, 0}}), Error);
  EXPECT_THROW(graph.add_input("deep", {f32, {n, 1, 1, 1, 1}}), Error);
  EXPECT_THROW(graph.add_param("w", {f32, {n, 4}}, {}), Error);
  EXPECT_THROW(graph.add_param("w", {f32, {4}}, {"cauchy", 1}), Error);
  ValueId y = graph.add("gelu", {x}), z = graph.add("gelu", {x});
  EXPECT_NE(graph.values[y].name, graph.values[z].name);
  graph.check();
}

TEST(Graph, CheckFindsDamage) {
  Graph good;
  ValueId x = good.add_input("x", {f32, {n, 4}});
  ValueId y = good.add("gelu", {x}, {}, "y");
  good.add_output("loss", good.add("add", {x, y}, {}, "z"));
  good.check();
  Graph swapped = good;
  std::swap(swapped.nodes[0], swapped.nodes[1]);
  EXPECT_THROW(swapped.check(), Error);
  Graph retyped = good;
  retyped.values[1].type.dtype = f64;
  EXPECT_THROW(retyped.check(), Error);
  Graph dangling = good;
  dangling.outputs[0].value = ValueId(17);
  EXPECT_THROW(dangling.check(), Error);
  Graph orphan = good;
  orphan.nodes.pop_back();
  EXPECT_THROW(orphan.check(), Error);
}

}  // namespace
}  // namespace ds::test
