// Tests chat templates and lines of jsonl from untrusted sources.
#include "data/chat.h"

#include <ctime>

#include "attempt.h"
#include "data/tokenizer.h"
#include "support/mutate.h"
#include "support/temp_folder.h"
#include "text/jinja/jinja.h"

namespace ds::test {
namespace {

using text::ChatTemplate;

const std::string kTemplates = std::string(DS_SOURCE_DIR) + "/tests/data/chat_templates/";

// Limits so low that random templates run quickly and need less memory than Attempts allows.
constexpr ChatTemplate::Limits kLimits{50000, 1 << 20};

Json variables() {
  Json all = Json::parse(get_file(kTemplates + "renders.json"));
  Json out = all.at("special");
  out.set("messages", all.at("chats").array()[2]);
  out.set("tools", all.at("tools"));
  out.set("add_generation_prompt", true);
  return out;
}

TEST(FuzzChatTemplate, DamagedSourcesAreRenderedOrRefused) {
  Json given = variables();
  Attempts attempts;
  for (const char* family : {"mistral", "llama3", "qwen3", "macros", "marked", "gemma3"}) {
    std::string source = get_file(kTemplates + family + ".jinja");
    for (uint32_t i = 0; i < draws(300); ++i) {
      Dice dice = dice_of(71, i);
      SCOPED_TRACE(std::string(family) + " " + std::to_string(i));
      std::string damaged = mutate_bytes(source, dice);
      attempts.run([&] { ChatTemplate(damaged, "t", kLimits).render(given); });
    }
  }
  EXPECT_GT(attempts.loaded, static_cast<int>(draws(100)));
  EXPECT_GT(attempts.refused, static_cast<int>(draws(300)));
}

// Random combinations of template constructs, most of which parse but make no sense.
TEST(FuzzChatTemplate, RandomConstructsAreRenderedOrRefused) {
  Json all = Json::parse(get_file(kTemplates + "constructs.json"));
  const Json::Array& cases = all.at("cases").array();
  Attempts attempts;
  for (uint32_t i = 0; i < draws(1500); ++i) {
    Dice dice = dice_of(72, i);
    SCOPED_TRACE(i);
    std::string source;
    for (int part = 0; part < 3; ++part) {
      const std::string& text =
          cases[static_cast<size_t>(dice.below(static_cast<int64_t>(cases.size())))]
              .at("template")
              .string();
      source += dice.one_in(2) ? mutate_bytes(text, dice) : text;
    }
    attempts.run([&] { ChatTemplate(source, "t", kLimits).render(all.at("variables")); });
  }
  EXPECT_GT(attempts.loaded, static_cast<int>(draws(20)));
}

std::string repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

// Without limits and checks, each of these templates would run for very long, use all memory or the
// whole stack, or compute beyond 64 bits.
TEST(FuzzChatTemplate, HostileTemplatesEnd) {
  const std::string hostile[] = {
      "{% for a in range(1000000000) %}{% endfor %}",
      "{% for a in range(9000) %}{% for b in range(9000) %}{% for c in range(9000) %}{% endfor "
      "%}{% endfor %}{% endfor %}",
      "{{ 'a' * 1000000000 }}",
      "{{ 'a' * 9223372036854775807 }}",
      "{{ [1] * 1000000000 }}",
      "{% set ns = namespace(s='a') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% "
      "endfor %}",
      "{% set ns = namespace(s='a') %}{% for i in range(99) %}{% set ns.s = ns.s.replace('a', "
      "'aa') %}{% endfor %}",
      "{% set ns = namespace(s=[1]) %}{% for i in range(9999) %}{% set ns.s = [ns.s] %}{% endfor "
      "%}{{ ns.s }}",
      "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% "
      "endfor %}{{ ns.s }}",
      "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% "
      "endfor %}{{ ns.s == ns.s + [] }}{{ ns.s | tojson | length }}",
      "{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}",
      "{% set ns = namespace() %}{% set ns.me = [ns] %}",
      "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
      "{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() "
      "}}",
      "{{ '" + repeated("a", 200000) + "'.split('') }}",
      "{{ " + repeated("(", 100000) + "1" + repeated(")", 100000) + " }}",
      "{{ " + repeated("[", 100000) + "1" + repeated("]", 100000) + " }}",
      "{{ " + repeated("-", 100000) + "1 }}",
      "{{ " + repeated("not ", 100000) + "1 }}",
      "{{ 1" + repeated(" + 1", 100000) + " }}",
      "{{ 1" + repeated(" | abs", 100000) + " }}",
      "{{ a" + repeated(".a", 100000) + " }}",
      "{{ a" + repeated("()", 100000) + " }}",
      "{{ 1" + repeated(" if 1 else 1", 50000) + " }}",
      "{% if 1 %}" + repeated("{% if 1 %}", 50000),
      repeated("{% for a in [1] %}", 50000),
      "{{ 2 ** 1000000000 }}",
      "{{ 1 ** 9223372036854775807 }}{{ (-1) ** 9223372036854775807 }}{{ 2 ** 9223372036854775807 "
      "}}",
      "{{ -9223372036854775807 - 1 - 1 }}",
      "{{ (-9223372036854775807 - 1) // -1 }}",
      "{{ range(9223372036854775806, 9223372036854775807, 9223372036854775807) }}{{ range(0, "
      "-9223372036854775807, -1) }}",
      "{{ 'abc'[::9223372036854775807] }}{{ 'abc'[9223372036854775807:] }}{{ [1, "
      "2][::-9223372036854775807] }}{{ range(1000000000) }}",
      "{{ 'x' | indent(1000000000) }}",
      "{{ [1] | tojson(indent=1000000000) }}",
      "{{ strftime_now('" + repeated("%c", 2000) + "') }}",
      "{% for a in range(9000) %}{{ ('\U0001d7ff' * 60000) | float }}{% endfor %}",
      "{% for a in range(9000) %}{{ ('\u0669' * 60000) | int }}{% endfor %}",
      "{{ 9.5 ** 9.5 ** 9.5 }}{{ 9 ** 9 ** 9 }}",
      "{% for a in 'x' * 60000 %}{% for b in 'x' * 60000 %}{{ a }}{% endfor %}{% endfor %}",
      repeated("{# ", 100000),
      repeated("{% raw %}", 10000),
      "{% raw %}" + repeated("{% ", 100000),
      repeated("{", 900000),
      repeated("a", 2000000),
  };
  for (const std::string& source : hostile) {
    SCOPED_TRACE(source.substr(0, 100));
    Attempts attempts(size_t{64} << 20);
    // Measures processor time, because other processes may share the machine.
    const std::clock_t begin = std::clock();
    attempts.run([&] {
      ChatTemplate(source, "t", {1000000, 4 << 20}).render(Json(Json::Object{}));
    });
    EXPECT_LT((std::clock() - begin) / CLOCKS_PER_SEC, 20);
    EXPECT_EQ(attempts.loaded, 0);
  }
}

// Builds a text in every possible way, ten thousand times, from a text of a hundred thousand
// characters. An operation that did not count its bytes would use a gigabyte, and one that did not
// count its work would take minutes.
TEST(FuzzChatTemplate, EveryOperationIsLimited) {
  const std::string ways[] = {
      "l | sort",
      "l | unique | list",
      "l | max",
      "l | min",
      "d | dictsort",
      "l | map('lower') | list",
      "l | map('upper') | list",
      "l | map('capitalize') | list",
      "l | map('trim') | list",
      "l | map('trim', t) | list",
      "l | map('string') | list",
      "l | map('replace', 'a', 'b') | list",
      "l | map('replace', 'b', t) | list",
      "l | map('replace', t, t) | list",
      "l | map('reverse') | list",
      "l | map('indent') | list",
      "l | map('tojson') | list",
      "l | map('list') | list",
      "l | map('join', t) | list",
      "l | map('default', t) | list",
      "l | map('first') | list",
      "l | join",
      "l | join(t)",
      "l | string",
      "l ~ l",
      "l | tojson",
      "[l] | tojson(indent=4)",
      "l | map(attribute=t) | list",
      "l | map(attribute=t) | map('string')",
      "l | map('length') | sum + (l | map('int') | sum)",
      "l | map('float') | list",
      "m | map('items') | map('list') | list",
      "m | map('list') | list",
      "m | map('dictsort') | list",
      "m | map('tojson') | list",
      "m | map('string') | list",
      "m | map(attribute=t ~ 'b') | list",
      "l | select('in', t) | list",
      "l | select('eq', t ~ '') | list",
      "l | select('lt', t ~ 'b') | list",
      "t.startswith(tuples)",
      "t.endswith(tuples)",
      "t.split('') ",
      "t.title()",
  };
  const std::string each[] = {
      "x + x",
      "x ~ x",
      "x * 2",
      "x.strip()",
      "x.strip(x)",
      "x.lstrip('b')",
      "x.split('b')",
      "x.split()",
      "x.upper()",
      "x.splitlines()",
      "x.title()",
      "x.replace('a', 'b')",
      "x.replace('b', 'c')",
      "x.join([x, x])",
      "x.join('aa')",
      "x.removeprefix('a')",
      "x.removesuffix('a')",
      "x[1:]",
      "x[::2]",
      "x[:50000]",
      "{x: 1}",
      "dict({x: 1})",
      "namespace(**{})",
      "dict(d)",
      "d.items()",
      "d.keys()",
      "d.values() | list",
      "[d] | tojson",
      "d[x ~ 'b']",
      "x[x]",
      "[x, [x]] | string",
      "x.find(x)",
      "x.count('a')",
      "x.rfind('b')",
      "x | trim(x)",
      "x in x",
      "x == x ~ ''",
      "x.isspace()",
      "x.isalpha()",
      "x if x < x ~ 'b' else 1",
  };
  const std::string given =
      "{% set t = 'a' * 100000 %}{% set l = [t] * 10000 %}{% set d = {t: 1} %}{% set m = [d] * "
      "10000 %}{% set tuples = (t,) * 10000 %}{% set ns = namespace(kept=[]) %}";
  std::vector<std::string> sources;
  for (const std::string& way : ways)
    sources.push_back(given + "{% set kept = " + way + " %}{{ kept }}");
  for (const std::string& way : each) {
    sources.push_back(given + "{% for x in l %}{% set ns.kept = [ns.kept, " + way +
                      "] %}{% endfor %}");
    sources.push_back(given + "{% for x in l %}{% if (" + way + ") == 7 %}{% endif %}{% endfor %}");
  }
  for (size_t i = 0; i < sources.size(); i += 100 / draws(100)) {
    const std::string& source = sources[i];
    SCOPED_TRACE(source.substr(given.size()));
    Attempts attempts(size_t{64} << 20);
    const std::clock_t begin = std::clock();
    attempts.run([&] {
      ChatTemplate(source, "t", {1000000, 4 << 20}).render(Json(Json::Object{}));
    });
    EXPECT_LT((std::clock() - begin) / CLOCKS_PER_SEC, 20);
  }
}

TEST(FuzzJsonl, DamagedLinesAreEncodedOrRefused) {
  TempFolder folder;
  put_file(folder / "chat_template.jinja", get_file(kTemplates + "qwen25.jinja"));
  put_file(folder / "tokenizer.json",
           get_file(std::string(DS_SOURCE_DIR) + "/tests/data/tokenizers/gpt2/tokenizer.json"));
  auto tokenizer = open_tokenizer(folder.path());
  ChatEncoder encoder(*tokenizer, folder.path(), "", false);
  Json all = Json::parse(get_file(kTemplates + "renders.json"));
  Json line;
  line.set("messages", all.at("chats").array()[4]);
  line.set("tools", all.at("tools"));
  // Each letter of a long word needs memory for its origin, its token and its merges.
  Attempts attempts(size_t{8} << 20);
  for (uint32_t i = 0; i < draws(800); ++i) {
    Dice dice = dice_of(73, i);
    SCOPED_TRACE(i);
    std::string damaged =
        dice.one_in(3) ? mutate_bytes(line.dump(), dice) : mutate_json(line, dice).dump();
    attempts.run([&] {
      Document made = encoder.encode(damaged, "line");
      EXPECT_EQ(made.tokens.size(), made.targets.size());
    });
  }
  EXPECT_GT(attempts.loaded, static_cast<int>(draws(50)));
  EXPECT_GT(attempts.refused, static_cast<int>(draws(200)));
}

}  // namespace
}  // namespace ds::test
