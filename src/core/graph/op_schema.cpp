#include "core/graph/op_schema.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/attrs.h"
#include "core/graph/ops.h"

namespace ds {
namespace {

// Returns the element types that a type of the table such as "T[n,C]", "A[n]" or "i32[n]" allows. A
// type without a name, "[any]", allows all floating types.
Json dtypes_of(std::string_view type) {
  std::string_view name = type.substr(0, type.find('['));
  Json::Array out;
  if (name == "T" || name.empty()) {
    for (const char* floating : {"f32", "bf16", "f16", "f64"}) out.emplace_back(floating);
  } else if (name == "A") {
    for (const char* wide : {"f32", "f64"}) out.emplace_back(wide);
  } else {
    out.emplace_back(std::string(name));
  }
  return out;
}

Json operands_json(const std::vector<OperandDef>& operands) {
  Json::Array out;
  for (const OperandDef& operand : operands) {
    Json json;
    json.set("name", operand.name);
    json.set("type", operand.type);
    json.set("dtypes", dtypes_of(operand.type));
    json.set("optional", operand.least == 0);
    json.set("most", operand.most);
    json.set("doc", operand.doc);
    out.push_back(std::move(json));
  }
  return out;
}

// Returns the default of an attribute, which is never a list, as JSON.
Json value_json(const Attrs::Value& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) return *integer;
  if (const auto* real = std::get_if<double>(&value)) return *real;
  return std::get<std::string>(value);
}

Json attributes_json(const std::vector<AttrDef>& attrs) {
  Json::Array out;
  for (const AttrDef& attr : attrs) {
    Json json;
    json.set("name", attr.name);
    json.set("kind", attr_kind_name(attr.kind));
    if (!attr.words.empty()) {
      Json::Array words;
      for (const std::string& word : attr.words) words.emplace_back(word);
      json.set("words", std::move(words));
    }
    json.set("required", attr.required);
    if (!attr.required) json.set("default", attr.otherwise ? value_json(*attr.otherwise) : Json());
    json.set("doc", attr.doc);
    out.push_back(std::move(json));
  }
  return out;
}

}  // namespace

// Generators of bindings check the version of the layout (schema) and of the operations (opset).
Json op_schema() {
  Json::Array operations;
  for (const OpDef& row : op_table()) {
    Json::Array forms;
    for (const OpForm& form : row.forms) {
      Json json;
      json.set("name", form.name);
      json.set("operands", operands_json(form.operands));
      json.set("results", operands_json(form.results));
      forms.push_back(std::move(json));
    }
    Json json;
    json.set("name", row.name);
    json.set("doc", row.doc);
    json.set("differentiable", static_cast<bool>(row.backward));
    json.set("forms", std::move(forms));
    json.set("attributes", attributes_json(row.attrs));
    operations.push_back(std::move(json));
  }
  Json out;
  out.set("schema", 1);
  out.set("opset", kOpset);
  out.set("operations", std::move(operations));
  return out;
}

}  // namespace ds
