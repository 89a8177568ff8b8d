// Implements the text form of a graph, which Graph::print() writes and parse_graph() reads
// (README.md shows it).
//
// Lines follow the order of value ids, so parsing a printed text assigns the same ids, and printing
// the result gives the same text. The parser checks a text like any graph, and an error names the
// line. Gradients of parameters are resolved at the end, since a parameter precedes the nodes that
// compute its gradient. The types of results are redundant on purpose: a change of a shape rule is
// reported as an error instead of silently giving another graph.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "core/base/error.h"
#include "core/base/name.h"
#include "core/graph/graph.h"
#include "core/graph/ops.h"

namespace ds {
namespace {

// Returns whether initial values are random, so that they have a scale.
bool is_drawn(const Init& init) { return init.kind == "normal" || init.kind == "uniform"; }

std::string percent(const Graph& graph, ValueId value) { return "%" + graph.values.at(value).name; }

std::string print_param(const Graph& graph, const Parameter& param) {
  std::string line = fmt::format("param {} {} = {}", percent(graph, param.value),
                                 graph.type(param.value).text(), param.init.kind);
  if (is_drawn(param.init)) line += fmt::format(" {}", param.init.scale);
  if (param.grad.exists()) line += " grad " + percent(graph, param.grad);
  return line;
}

std::string print_node(const Graph& graph, const Node& node) {
  std::string line;
  for (ValueId out : node.out) line += percent(graph, out) + " ";
  line += "= " + node.op;
  for (ValueId in : node.in) line += " " + percent(graph, in);
  if (!node.attrs.empty()) line += " " + node.attrs.print();
  line += " ->";
  for (ValueId out : node.out) line += " " + graph.type(out).text();
  return line;
}

// Removes a comment (from a ';' outside quotes) and the blanks at both ends.
std::string_view strip(std::string_view line) {
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"') quoted = !quoted;
    if (line[i] == ';' && !quoted) line = line.substr(0, i);
  }
  size_t begin = line.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return line.substr(begin, line.find_last_not_of(" \t\r") + 1 - begin);
}

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    size_t begin = text.find_first_not_of(" \t");
    if (begin == std::string_view::npos) break;
    size_t end = std::min(text.find_first_of(" \t", begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    text.remove_prefix(end);
  }
  return words;
}

template <typename T>
T parse_number(std::string_view word) {
  T value{};
  auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), value);
  require(code == std::errc() && end == word.data() + word.size(), "number expected, got '{}'",
          word);
  return value;
}

TensorType parse_type(std::string_view word) {
  size_t bracket = word.find('[');
  require(bracket != std::string_view::npos, "type must be like bf16[n,384], got '{}'", word);
  return {parse_dtype(word.substr(0, bracket)), Shape::parse(word.substr(bracket))};
}

std::string_view without_percent(std::string_view word) {
  require(word.size() > 1 && word.front() == '%', "value must be like %name, got '{}'", word);
  return word.substr(1);
}

// A parser that reads line by line and adds the number of the line to every error.
class GraphParser {
 public:
  Graph parse(std::string_view text) {
    int number = 0;
    while (!text.empty()) {
      size_t end = std::min(text.find('\n'), text.size());
      std::string_view line = strip(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
      ++number;
      try {
        if (!line.empty()) parse_line(line);
      } catch (const Error& error) {
        raise(error.status(), "graph text line {}: {}", number, error.what());
      }
    }
    require(begun_, "graph text must begin with 'graph NAME n<=BOUND'");
    for (const auto& [param, name] : grads_) graph_.params[param].grad = value(name);
    graph_.check();
    return std::move(graph_);
  }

 private:
  void parse_line(std::string_view line) {
    std::vector<std::string_view> words = words_of(line);
    if (words[0] == "graph" || !begun_) return parse_header(words);
    if (words[0].front() == '%') return parse_node(line);
    if (words[0] == "input") {
      require(words.size() == 3, "input must be 'input %name type', got '{}'", line);
      graph_.add_input(without_percent(words[1]), parse_type(words[2]));
    } else if (words[0] == "param") {
      parse_param(line, words);
    } else if (words[0] == "backward") {
      graph_.backward_begin = graph_.nodes.past();
    } else if (words[0] == "output") {
      for (size_t i = 1; i < words.size(); ++i) parse_output(words[i]);
    } else {
      raise(DS_ERROR_INVALID_ARGUMENT,
            "line must begin with input, param, %value, backward or output, got '{}'", words[0]);
    }
  }

  void parse_header(const std::vector<std::string_view>& words) {
    require(!begun_ && words.size() == 3 && words[0] == "graph" && words[2].substr(0, 3) == "n<=",
            "the first line must be 'graph NAME n<=BOUND', and no other line may begin with "
            "'graph', got a line that begins with '{}'",
            words[0]);
    require_name("graph", words[1]);
    graph_.name = words[1];
    graph_.bound = parse_number<int64_t>(words[2].substr(3));
    begun_ = true;
  }

  // Parses "param %NAME TYPE = INIT [SCALE] [grad %VALUE]".
  void parse_param(std::string_view line, const std::vector<std::string_view>& words) {
    require(words.size() >= 5 && words[3] == "=",
            "param must be 'param %name type = init', got '{}'", line);
    Init init{std::string(words[4]), 0};
    size_t next = 5;
    if (is_drawn(init)) {
      require(next < words.size(), "init {} must have a scale, got '{}'", init.kind, line);
      init.scale = parse_number<double>(words[next++]);
    }
    graph_.add_param(without_percent(words[1]), parse_type(words[2]), init);
    if (next == words.size()) return;
    require(words.size() == next + 2 && words[next] == "grad", "'grad %value' expected, got '{}'",
            words[next]);
    grads_.emplace_back(graph_.params.last(), without_percent(words[next + 1]));
  }

  void parse_output(std::string_view word) {
    size_t equal = word.find('=');
    require(equal != std::string_view::npos, "output must be like name=%value, got '{}'", word);
    graph_.add_output(word.substr(0, equal), value(without_percent(word.substr(equal + 1))));
  }

  // Parses "%OUT ... = OP %IN ... [{ATTRIBUTES}] -> TYPE ...".
  void parse_node(std::string_view line) {
    // Attributes may contain either delimiter, so the first " = " and the last " -> " count.
    size_t equal = line.find(" = "), arrow = line.rfind(" -> ");
    require(equal != std::string_view::npos && arrow != std::string_view::npos && equal < arrow,
            "node must be '%out = op %in {{attributes}} -> type', got '{}'", line);
    std::string_view body = line.substr(equal + 3, arrow - equal - 3);
    size_t brace = std::min(body.find('{'), body.size());
    std::vector<std::string_view> outs = words_of(line.substr(0, equal)),
                                  ins = words_of(body.substr(0, brace));
    std::vector<std::string_view> types = words_of(line.substr(arrow + 4));
    require(!ins.empty(), "node must name an op, got '{}'", line);
    require(outs.size() == types.size(), "node has {} outputs and {} types in '{}'", outs.size(),
            types.size(), line);
    Node node{std::string(ins[0]), {}, {}, Attrs::parse(strip(body.substr(brace)))};
    for (size_t i = 1; i < ins.size(); ++i) node.in.push_back(value(without_percent(ins[i])));
    // The types in the text are redundant; they must agree with those inferred.
    std::vector<TensorType> inferred = infer_types(graph_, node.op, node.in, node.attrs);
    if (op(node.op).by_callback) {
      raise(DS_ERROR_INVALID_ARGUMENT,
            "operation '{}' is a callback of the program that wrote this text, and a text has no "
            "callbacks",
            node.attrs.text("name"));
    }
    require(inferred.size() == outs.size(), "{}: has {} outputs, got {}", node.op, inferred.size(),
            outs.size());
    for (size_t i = 0; i < outs.size(); ++i) {
      require(parse_type(types[i]) == inferred[i], "{}: output {} is {}, got {}", node.op, outs[i],
              inferred[i].text(), types[i]);
      std::string_view name = without_percent(outs[i]);
      // Names of results have no length limit, because the name of a gradient extends another name.
      require_name("value", name, name.max_size());
      node.out.push_back(
          graph_.append_value({std::string(name), inferred[i], graph_.nodes.past()}));
    }
    graph_.nodes.push_back(std::move(node));
  }

  ValueId value(std::string_view name) const {
    ValueId id = graph_.find_value(name);
    require(id.exists(), "value %{} is not defined", name);
    return id;
  }

  Graph graph_;
  bool begun_ = false;
  std::vector<std::pair<ParamId, std::string>> grads_;
};

}  // namespace

// Inputs and parameters are printed between nodes in the order of value ids, so that parsing
// assigns the same ids.
std::string Graph::print() const {
  std::vector<std::pair<ValueId, std::string>> lines;
  for (ValueId value : inputs)
    lines.emplace_back(value, "input " + percent(*this, value) + " " + type(value).text());
  for (const Parameter& param : params) lines.emplace_back(param.value, print_param(*this, param));
  std::ranges::sort(lines);
  std::string text = fmt::format("graph {} n<={}\n", name, bound);
  size_t next = 0;
  for (NodeId id(0); id <= nodes.past(); ++id) {
    bool end = id == nodes.past();
    while (next < lines.size() && (end || lines[next].first < nodes[id].out.front())) {
      text += "  " + lines[next++].second + "\n";
    }
    if (id == backward_begin) text += "  backward\n";
    if (!end) text += "  " + print_node(*this, nodes[id]) + "\n";
  }
  if (outputs.empty()) return text;
  text += "  output";
  for (const GraphOutput& output : outputs)
    text += " " + output.name + "=" + percent(*this, output.value);
  return text + "\n";
}

Graph parse_graph(std::string_view text) { return GraphParser().parse(text); }

}  // namespace ds
