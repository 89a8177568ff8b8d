#include "core/config/usual_names.h"

#include <algorithm>
#include <string_view>

#include "core/base/ascii.h"
#include "core/base/suggest.h"

namespace ds {
namespace {

struct UsualNames {
  const char* key;
  // Names that mean the key in any section and at the top level.
  const char* anywhere;
  // Names that mean the key only in its own section or in a section around it.
  const char* in_section = "";
};

// Names that PyTorch, Transformers, Megatron, Lightning and others use for a setting, listed under
// the key of libds for it.
constexpr UsualNames kUsualNames[] = {
    {"zero_optimization", "zero zero_config zero_opt zero_optim zero_optimizer"},
    {"zero_optimization.stage",
     "stage stage1 stage2 stage3 ds_stage deepspeed_stage zero_stage zero_level zero_opt_stage "
     "zero_optimization_stage",
     "level"},
    {"optimizer", "optim opt optimizer_config"},
    {"optimizer.type", "optimizer_type optimizer_name optim_type", "name class"},
    {"optimizer.params.lr",
     "lr learning_rate base_lr base_learning_rate peak_lr peak_learning_rate initial_lr init_lr",
     "rate"},
    {"optimizer.params.weight_decay", "wd weight_decay", "decay l2"},
    {"optimizer.params.betas", "betas beta1 beta2 adam_beta1 adam_beta2 adam_betas", "beta"},
    {"optimizer.params.eps", "eps epsilon adam_eps adam_epsilon"},
    {"optimizer.params",
     "optim_args optim_params optimizer_args optimizer_params optimizer_kwargs"},
    {"optimizer.param_groups",
     "lr_groups parameter_groups weight_decay_groups no_weight_decay no_decay_params"},
    {"scheduler", "lr_scheduler lr_schedule schedule scheduler_config"},
    {"scheduler.params",
     "scheduler_args scheduler_params scheduler_kwargs lr_scheduler_args lr_scheduler_params "
     "lr_scheduler_kwargs"},
    {"scheduler.type", "lr_scheduler_type scheduler_type scheduler_name lr_decay_style", "name"},
    {"scheduler.params.warmup_num_steps",
     "warmup warmup_steps num_warmup_steps warmup_iters warmup_ratio warmup_fraction "
     "warmup_epochs warmup_samples lr_warmup_steps lr_warmup_iters lr_warmup_fraction "
     "lr_warmup_samples"},
    {"scheduler.params.total_num_steps", "lr_decay_steps lr_decay_iters lr_decay_samples t_max",
     "total_steps num_training_steps max_steps num_steps steps"},
    {"scheduler.params.decay_num_steps", "", "decay_steps num_decay_steps"},
    {"scheduler.params.min_lr_ratio", "", "min_lr_rate"},
    {"scheduler.params.min_lr_ratio or scheduler.params.warmup_min_lr",
     "min_lr lr_min eta_min end_lr lr_end final_lr min_learning_rate"},
    {"train_batch_size",
     "batch batch_size global_batch_size total_batch_size effective_batch_size "
     "global_train_batch_size"},
    {"train_micro_batch_size_per_gpu",
     "mbs micro_batch micro_batch_size micro_batch_size_per_gpu train_micro_batch_size "
     "device_batch_size per_device_batch_size per_device_train_batch_size per_gpu_batch_size "
     "per_gpu_train_batch_size batch_size_per_gpu batch_size_per_device"},
    {"gradient_accumulation_steps",
     "gas ga_steps grad_acc grad_acc_steps grad_accum grad_accum_steps grad_accumulation "
     "grad_accumulation_steps gradient_accumulation accumulation accumulation_steps accum_steps "
     "accumulate_grad_batches"},
    {"gradient_clipping",
     "clip clipping clip_norm clip_grad clip_grad_norm clip_gradients grad_clip grad_clipping "
     "grad_clip_norm gradient_clip gradient_clip_val gradient_clip_norm max_norm max_grad_norm "
     "max_gradient_norm"},
    {"loss_average",
     "loss_avg average_tokens average_tokens_across_devices token_average loss_averaging "
     "loss_reduction calculate_per_token_loss"},
    {"frozen_parameters",
     "freeze frozen freeze_params frozen_params freeze_parameters freeze_layers frozen_layers "
     "trainable trainable_params trainable_parameters"},
    {"communication_data_type", "reduce_dtype allreduce_dtype comm_dtype communication_dtype"},
    {"data_types.grad_accum_dtype",
     "grad_dtype gradient_dtype grad_accumulation_dtype accumulate_allreduce_grads_in_fp32"},
    {"model.dropout",
     "dropout_rate dropout_prob hidden_dropout attention_dropout hidden_dropout_prob "
     "attention_probs_dropout_prob resid_pdrop attn_pdrop embd_pdrop"},
    {"fp16.initial_scale_power", "initial_loss_scale init_loss_scale initial_scale init_scale"},
    {"bf16.enabled or fp16.enabled",
     "mixed_precision precision dtype torch_dtype compute_dtype amp_dtype half_precision use_amp "
     "autocast"},
    {"bf16.enabled", "bf16_enabled use_bf16 enable_bf16 bf16_mode"},
    {"fp16.enabled", "float16 half fp16_enabled use_fp16 enable_fp16 fp16_mode"},
    {"run.sequence",
     "seq seq_len seq_length sequence sequence_length max_len max_length max_seq_len "
     "max_seq_length max_sequence_length context_length context_size ctx_len n_ctx block_size"},
    {"run.steps",
     "steps num_steps max_steps train_steps training_steps total_steps num_training_steps epoch "
     "epochs num_epochs n_epochs max_epochs num_train_epochs iterations iters num_iterations "
     "max_iters train_iters total_iterations"},
    {"run.seed", "seed random_seed rng_seed manual_seed"},
};

std::string_view section_of(std::string_view path) {
  const size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
}

// Returns a name in lower case without the marks between its words, since programs differ in these.
std::string plain(std::string_view name) {
  std::string out;
  for (char c : name) {
    if (c != '_' && c != '-' && c != ' ') out.push_back(ascii_lower(c));
  }
  return out;
}

// Returns whether `name` is one of `names` or one typing error away from a long one. Short names
// must match exactly, because one error turns them into other words ("lr", "l2").
bool among(const std::string& name, const char* names) {
  constexpr size_t kLong = 8;
  for (std::string_view rest = names; !rest.empty();) {
    const std::string_view word = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(word.size() + 1, rest.size()));
    if (word.empty()) continue;
    const std::string other = plain(word);
    if (other == name) return true;
    if (other.size() >= kLong && name.size() >= kLong && edit_distance_below(name, other, 2) < 2)
      return true;
  }
  return false;
}

}  // namespace

std::string usual_key(const std::string& path) {
  const std::string_view section = section_of(path);
  const std::string_view name =
      std::string_view(path).substr(section.empty() ? 0 : section.size() + 1);
  if (name.empty() || !is_ascii_letter(name[0])) return "";
  const std::string wanted = plain(name);
  // The nearest meaning wins: a key of the same section, then one of a section below it, then one
  // from anywhere.
  for (const UsualNames& row : kUsualNames) {
    if (!section.empty() && section_of(row.key) == section &&
        (among(wanted, row.anywhere) || among(wanted, row.in_section)))
      return row.key;
  }
  for (const UsualNames& row : kUsualNames) {
    if (!section.empty() && std::string_view(row.key).starts_with(std::string(section) + ".") &&
        (among(wanted, row.anywhere) || among(wanted, row.in_section)))
      return row.key;
  }
  for (const UsualNames& row : kUsualNames) {
    if (among(wanted, row.anywhere)) return row.key;
  }
  return "";
}

}  // namespace ds
