#include "small_models.h"

#include <stdio.h>

tl_model small_gpt2(void) {
    tl_model m = {.family = TL_FAMILY_GPT2,
                  .layers = 2,
                  .width = 24,
                  .heads = 3,
                  .kv_heads = 3,
                  .head_size = 8,
                  .ff = 80,
                  .vocab = 59,
                  .context = 20,
                  .tied = true,
                  .learned_positions = true,
                  .attention_bias = true,
                  .mlp_bias = true,
                  .activation = TL_GELU_TANH,
                  .norm_epsilon = 1e-5,
                  .init_std = 0.02};
    snprintf(m.name, sizeof m.name, "small gpt2");
    return m;
}

tl_model small_llama(void) {
    tl_model m = {.family = TL_FAMILY_LLAMA,
                  .layers = 2,
                  .width = 32,
                  .heads = 4,
                  .kv_heads = 2,
                  .head_size = 8,
                  .ff = 72,
                  .vocab = 61,
                  .context = 64,
                  .gated = true,
                  .activation = TL_SILU,
                  .norm_epsilon = 1e-5,
                  .rope_theta = 10000,
                  .init_std = 0.02};
    snprintf(m.name, sizeof m.name, "small llama");
    return m;
}

tl_model small_cruncher(void) {
    tl_model m = {.family = TL_FAMILY_CRUNCHER, .layers = 2, .width = 64};
    snprintf(m.name, sizeof m.name, "small cruncher");
    return m;
}
