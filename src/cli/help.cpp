// Formats options for the help: the type of the value follows the name, and other facts follow the
// description.
#include <string>
#include <vector>

#include "cli/commands.h"

namespace ds::cli {
namespace {

// The parts of an option's type text, in which CLI11 joins the type and the descriptions of its
// validators, such as "INT:1 to 64" or "TEXT:{f32,bf16}".
struct Kind {
  std::string value, limits;
};

Kind kind_of(const CLI::Option& option) {
  if (option.get_type_size() == 0) return {};
  std::string text = option.get_type_name();
  size_t colon = text.find(':');
  if (colon == std::string::npos) return {text, ""};
  std::string limits = text.substr(colon + 1);
  if (limits.starts_with('{')) return {limits, ""};
  return {text.substr(0, colon), limits};
}

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    std::string value = kind_of(*option).value;
    if (value.empty()) return "";
    return " " + value + (option->get_expected_max() > 1 ? "..." : "");
  }

  // Returns the description, followed by whether the option is required, its limits, its default,
  // and the options that it excludes.
  std::string make_option_desc(const CLI::Option* option) const override {
    std::vector<std::string> facts;
    std::string limits = kind_of(*option).limits, value = option->get_default_str();
    if (option->get_required()) facts.emplace_back("required");
    if (!limits.empty()) facts.push_back(limits);
    if (!value.empty() && value != "[]") facts.push_back("default " + value);
    for (const CLI::Option* other : option->get_excludes())
      facts.push_back("not with " + other->get_name());
    std::string out = option->get_description();
    for (size_t i = 0; i < facts.size(); ++i) out += (i == 0 ? " (" : "; ") + facts[i];
    return out + (facts.empty() ? "" : ")");
  }
};

}  // namespace

void format_help(CLI::App& app) {
  auto formatter = std::make_shared<HelpFormatter>();
  formatter->column_width(34);
  app.formatter(formatter);
}

}  // namespace ds::cli
