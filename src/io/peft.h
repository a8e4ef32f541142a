// Adapters in a folder in the format of Hugging Face's PEFT: adapter_model.safetensors and
// adapter_config.json, for GPT-2 and GPT-NeoX. A fine-tuned model is a few kilobytes next to its base model.
#pragma once
#include <string>

#include "src/nn/lora.h"

namespace gradus {

// Writes both files, each replaced as a whole or not at all; creates the folder if missing. `base`: the name
// of the base model in the configuration. Tensors have PEFT's names, such as
// "base_model.model.transformer.h.0.attn.c_attn.lora_A.weight", and GPT-NeoX's query_key_value has PEFT's
// order of rows: q, k and v of a head, then those of the next. Errors: a model without adapters, or of a
// different family.
void save_adapters(const std::string& folder, Transformer& model, const std::string& base = "");

// Adds the folder's adapters to a model without adapters: ranks, alpha and dropout are those of the files;
// values in fp32, bf16 or fp16 are converted to `precision`. Everything is read and checked before the model
// changes. Errors: files that are missing, cut short or not plain LoRA (DoRA, activated LoRA, biases that
// were trained, any unknown key of the configuration that is neither null, false nor empty); an adapter for a
// layer that this model lacks, or with a different size.
void load_adapters(const std::string& folder, Transformer& model, const Precision& precision = {});

}  // namespace gradus
