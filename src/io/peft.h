// Adapters in a folder as Hugging Face's PEFT keeps them: adapter_model.safetensors and adapter_config.json,
// of GPT-2 and of GPT-NeoX. A model of megabytes is so a few kilobytes beside the one that it was made from.
#pragma once
#include <string>

#include "src/nn/lora.h"

namespace gradus {

// Both files, each replaced as a whole or not at all; the folder is made if missing. `base` is what the
// configuration calls the model that was adapted. PEFT's names, say
// "base_model.model.transformer.h.0.attn.c_attn.lora_A.weight"; the rows of GPT-NeoX's query_key_value in
// their order there: q, k and v of a head, then those of the next. Errors: a model without adapters, or of a
// family that these names have no place for.
void save_adapters(const std::string& folder, Transformer& model, const std::string& base = "");

// Gives the model, which has no adapters, those of the folder: ranks, alpha and dropout as the files say;
// numbers in fp32, bf16 or fp16 become what `precision` keeps. Everything is read and checked before the
// model changes. Errors: files missing, cut short or of something else than plain LoRA (DoRA, activated
// LoRA, biases that were trained, any key of the configuration that is not known and is neither null, false
// nor empty); an adapter for a layer that this model lacks, or of another size.
void load_adapters(const std::string& folder, Transformer& model, const Precision& precision = {});

}  // namespace gradus
