#pragma once
#include <functional>
#include <type_traits>
#include <vector>

#include "core/config/config.h"
#include "core/config/key.h"

namespace ds {

class ConfigDocument;

// A function that completes the configuration or refuses it after all keys are set. Its arguments
// are the configuration and, optionally, the number of ranks or the document.
struct ConfigCheck {
  template <typename Check>
  ConfigCheck(Check check)  // NOLINT
      : run([=](Config& config, const ConfigDocument& document, int world) {
          if constexpr (std::is_invocable_v<Check, Config&>)
            check(config);
          else if constexpr (std::is_invocable_v<Check, Config&, int>)
            check(config, world);
          else
            check(config, document);
        }) {}

  std::function<void(Config&, const ConfigDocument&, int world)> run;
};

// Keys that belong together, with the checks among them and against earlier sections. `keys`
// appends the keys; it may be null.
struct ConfigSection {
  void (*keys)(KeyList&);
  std::vector<ConfigCheck> checks = {};
};

// Returns all sections, in the order in which their keys are set and printed and their checks run.
// An application may append one before the first configuration is parsed.
std::vector<ConfigSection>& config_sections();

}  // namespace ds
