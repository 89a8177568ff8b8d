// Lists all sections of the configuration; this folder is the lowest layer that includes them all.
// Keys are set, checks are run and the reference page is written in the order of this list. A check
// may rely on the sections before its section; checks that concern several sections come last.
#include <vector>

#include "checkpoint/adapter_folder.h"
#include "core/config/core_sections.h"
#include "core/config/document.h"
#include "core/config/parse_config.h"
#include "core/config/schema.h"
#include "core/config/sections.h"
#include "data/curriculum.h"
#include "data/data_efficiency.h"
#include "data/keys.h"
#include "data/preference.h"
#include "data/sizes.h"
#include "monitor/keys.h"
#include "nn/adapter_keys.h"
#include "nn/keys.h"
#include "offload/keys.h"
#include "optim/keys.h"
#include "optim/rate_rules.h"
#include "optim/schedule_keys.h"
#include "passes/keys.h"
#include "run/keys.h"
#include "update/keys.h"
#include "zero/keys.h"

namespace ds {
namespace {

// Fills in "auto" values. For the total number of steps, which the Trainer of Transformers would
// fill in, run.steps is used.
void complete_auto_of_run(Config& c, const ConfigDocument& document) {
  complete_auto(c, document, c.get<RunKeys>().steps);
}

void complete_model_and_tokenizer(Config& c) {
  complete_model(c);
  take_folder_tokenizer(c);
}

}  // namespace

std::vector<ConfigSection>& config_sections() {
  static auto& sections = *new std::vector<ConfigSection>{
      {batch_keys, {complete_batch, complete_clipping, complete_auto_of_run}},
      {monitor_keys},
      {exchange_keys},
      {compression_keys},
      {engine_keys},
      {infer_keys},
      {precision_keys},
      {optimizer_keys, {complete_optimizer, complete_state_types}},
      {scheduler_keys, {complete_schedule, check_groups}},
      {zero_keys},
      {offload_optimizer_keys},
      {shard_group_keys},
      {offload_param_keys},
      {code_keys},
      {aio_keys},
      {model_keys, {complete_model_and_tokenizer}},
      {adapter_keys, {complete_adapter, take_adapter_folder}},
      {curriculum_keys},
      {data_efficiency_keys},
      {preference_keys, {complete_preference}},
      {data_keys,
       {check_masking, check_data, check_curriculum, complete_data_efficiency, complete_documents}},
      {run_keys, {check_bars, check_sizes}},
      // Checks that concern several sections.
      {nullptr,
       {check_preference, check_tiers, check_activations, check_quantization, check_compressed,
        check_gradient_compression, complete_precision, check_leaves, complete_reduction,
        warn_of_codes, warn_of_forgotten_switches, warn_of_late_report, fill_from_own_model}}};
  return sections;
}

}  // namespace ds
