// Chooses the class of a tokenizer as Transformers does. Only classes that change the reading of a
// file matter here.
#include "text/tokenizers/tokenizer_class.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/base/contains.h"

namespace ds::text {
namespace {

constexpr std::string_view kBackend = "TokenizersBackend";

// The classes that Transformers registers for its model types. Only classes that change how a file
// is read are listed, under the names that kSame gives to equal ones. `./run interop tokenizers`
// checks model types from this table.
struct Registered {
  std::string_view class_name, model_types;
};
constexpr Registered kRegistered[] = {
    {kBackend,
     "EvollaModel arctic aria beam bigbird_pegasus camembertv2-base canary chatlm cohere_asr "
     "ernie4_5 ernie4_5_moe flex_olmo fuyu glm glm4 glm4_moe glm4_moe_lite glm4v glm4v_moe "
     "glm_image glmasr got_ocr2 gpt_bigcode gradium_phonon_tts granite granitemoe granitemoehybrid "
     "granitemoeshared h2ovl_chat hyperclovax hyperclovax_vlm internlm2 internlm3 iquestcoder "
     "jamba kimi_k25 kimi_linear kosmos-2 llava llava_next mimo_v2_flash minicpm3 minicpm_ocr "
     "minicpmv minicpmv4_6 minicpmv4_7 minimax_m2 ministral ministral3 mistral mistral3 "
     "mistral_large4 mixtral modernbert modernbert-decoder molmo molmo2 nemo_speechlm nemotron "
     "nvfp4 nystromformer olmo2 olmo3 olmo_hybrid opencua openvla paddleocr_vl pegasus_x persimmon "
     "phi3 phi3_v phimoe pix2struct pixtral pocket_tts smolvlm stablelm step3_vl umt5 vipllava "
     "voxtral voxtral_realtime xlm-roberta-xl"},
    {"BertTokenizer",
     "align bark bert blip bros chinese_clip convbert distilbert electra ernie flava git "
     "grounding-dino layoutlm megatron-bert mm-grounding-dino nomic_bert squeezebert tvp vilt "
     "visual_bert lxmert mobilebert"},
    {"FunnelTokenizer", "funnel"},
    {"MPNetTokenizer", "mpnet"},
    {"SplinterTokenizer", "splinter"},
    {"GPT2Tokenizer",
     "blip-2 codegen dbrx emu3 gpt-sw3 gpt2 gpt_neo gptj hyperclovax_vision_v2 instructblip "
     "instructblipvideo jais2 opt phi starcoder2"},
    {"GPTNeoXTokenizer", "falcon_mamba gpt_neox mamba mamba2 mpt olmo olmoe rwkv xlstm"},
    {"Qwen2Tokenizer",
     "audioflamingo3 colqwen2 cosmos3_omni dots3_note fun_asr_nano hunyuan_vl internvl lighton_ocr "
     "moss_transcribe_diarize ovis2 qianfan_ocr qwen2 qwen2_5_omni qwen2_5_vl qwen2_audio "
     "qwen2_moe qwen2_vl qwen3 qwen3_asr qwen3_moe qwen3_next qwen3_omni_moe qwen3_vl qwen3_vl_moe "
     "vibevoice"},
    {"Qwen3_5Tokenizer", "qwen3_5 qwen3_5_moe qwen3_5_moe_text qwen3_5_text qwen4_exp"},
    {"RobertaTokenizer",
     "bart bridgetower clap data2vec-text ibert lilt longformer mra roberta roberta-prelayernorm "
     "florence2 led mvp"},
    {"BlenderbotTokenizer", "blenderbot"},
    {"CohereTokenizer", "aya_vision cohere cohere2"},
    {"DebertaTokenizer", "deberta"},
    {"LlamaTokenizer", "idefics idefics2"},
    {"LukeTokenizer", "luke"},
    {"WhisperTokenizer", "whisper"},
    {"Siglip2Tokenizer", "siglip2"},
};

// Model types whose published folders name a wrong class, so that the registered one is used. Types
// registered for TokenizersBackend need no entry here.
constexpr std::string_view kNamedWrongly[] = {
    "hyperclovax_vision_v2", "qwen2",     "qwen3_5", "qwen3_5_moe",
    "qwen3_5_moe_text",      "qwen4_exp", "siglip2"};

// Classes that behave like another one.
constexpr std::pair<std::string_view, std::string_view> kSame[] = {
    {"BartTokenizer", "RobertaTokenizer"},    {"LEDTokenizer", "RobertaTokenizer"},
    {"MvpTokenizer", "RobertaTokenizer"},     {"DistilBertTokenizer", "BertTokenizer"},
    {"ElectraTokenizer", "BertTokenizer"},    {"LxmertTokenizer", "BertTokenizer"},
    {"MobileBertTokenizer", "BertTokenizer"}, {"SqueezeBertTokenizer", "BertTokenizer"},
    {"PreTrainedTokenizer", kBackend},        {"PythonBackend", kBackend}};

constexpr std::string_view kTakePrefixSpace[] = {
    "BlenderbotTokenizer", "CodeGenTokenizer", "CodeLlamaTokenizer", "CohereTokenizer",
    "DebertaTokenizer",    "GPT2Tokenizer",    "GPTNeoXTokenizer",   "LlamaTokenizer",
    "LukeTokenizer",       "Qwen2Tokenizer",   "Qwen3_5Tokenizer",   "RobertaTokenizer",
    "WhisperTokenizer"};
constexpr std::string_view kTakeBertFlags[] = {"BertTokenizer", "FunnelTokenizer",
                                               "LayoutLMv2Tokenizer", "MPNetTokenizer",
                                               "SplinterTokenizer"};

template <typename List>
bool has(const List& list, std::string_view name) {
  return contains(list, name);
}

// Returns "" for an unknown model type.
std::string_view registered_class(std::string_view model_type) {
  for (const Registered& one : kRegistered) {
    std::string_view rest = one.model_types;
    while (!rest.empty()) {
      const size_t end = std::min(rest.find(' '), rest.size());
      if (rest.substr(0, end) == model_type) return one.class_name;
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  return "";
}

std::string text_of(const Json& config, std::string_view key) {
  const Json* value = config.is_object() ? config.find(key) : nullptr;
  return value && value->is_string() ? value->string() : "";
}

// Returns the class that is used. A registered class replaces the named one only if it loads the
// file as it is or if the name is known to be wrong.
std::string_view decided(std::string_view named, std::string_view model_type) {
  const std::string_view registered = registered_class(model_type);
  if (named.empty()) return registered.empty() ? kBackend : registered;
  if (registered == kBackend || has(kNamedWrongly, model_type)) return registered;
  return named;
}

}  // namespace

std::string tokenizer_class(const std::string& given, const Json& config) {
  std::string named = given.empty() ? text_of(config, "tokenizer_class") : given;
  if (named.ends_with("Fast")) named.resize(named.size() - 4);
  const std::string model_type = text_of(config, "model_type");
  const std::string_view name = decided(named, model_type);
  const auto* same =
      std::ranges::find_if(kSame, [&](const auto& pair) { return pair.first == name; });
  return std::string(same == std::end(kSame) ? name : same->second);
}

bool takes_prefix_space(std::string_view class_name) { return has(kTakePrefixSpace, class_name); }
bool takes_bert_flags(std::string_view class_name) { return has(kTakeBertFlags, class_name); }

}  // namespace ds::text
