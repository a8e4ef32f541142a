// The CPU backend's functions: one per entry of the table, of the very type the table asks for.
#pragma once
#include <type_traits>

#include "kernels/kernels.h"

namespace gradus::cpu {

std::remove_pointer_t<decltype(Backend::fill)> fill;
std::remove_pointer_t<decltype(Backend::cast)> cast;
std::remove_pointer_t<decltype(Backend::add)> add;
std::remove_pointer_t<decltype(Backend::scale)> scale;
std::remove_pointer_t<decltype(Backend::gelu_fwd)> gelu_fwd;
std::remove_pointer_t<decltype(Backend::gelu_bwd)> gelu_bwd;
std::remove_pointer_t<decltype(Backend::tanh_fwd)> tanh_fwd;
std::remove_pointer_t<decltype(Backend::tanh_bwd)> tanh_bwd;
std::remove_pointer_t<decltype(Backend::dropout)> dropout;
std::remove_pointer_t<decltype(Backend::bias_fwd)> bias_fwd;
std::remove_pointer_t<decltype(Backend::bias_bwd)> bias_bwd;
std::remove_pointer_t<decltype(Backend::layernorm_fwd)> layernorm_fwd;
std::remove_pointer_t<decltype(Backend::layernorm_bwd)> layernorm_bwd;
std::remove_pointer_t<decltype(Backend::softmax_fwd)> softmax_fwd;
std::remove_pointer_t<decltype(Backend::softmax_bwd)> softmax_bwd;
std::remove_pointer_t<decltype(Backend::cross_entropy_fwd)> cross_entropy_fwd;
std::remove_pointer_t<decltype(Backend::cross_entropy_bwd_inplace)> cross_entropy_bwd_inplace;
std::remove_pointer_t<decltype(Backend::embedding_fwd)> embedding_fwd;
std::remove_pointer_t<decltype(Backend::embedding_bwd)> embedding_bwd;
std::remove_pointer_t<decltype(Backend::matmul)> matmul;
std::remove_pointer_t<decltype(Backend::attention_plain_fwd)> attention_plain_fwd;
std::remove_pointer_t<decltype(Backend::attention_plain_bwd)> attention_plain_bwd;
std::remove_pointer_t<decltype(Backend::grad_norm)> grad_norm;
std::remove_pointer_t<decltype(Backend::sgd)> sgd;
std::remove_pointer_t<decltype(Backend::adamw)> adamw;

}  // namespace gradus::cpu
