/* The families' names, and the published tensors behind a parameter. Sources: the families' checkpoints on the Hugging Face hub
 * and their index files. */
#include "nn/names.h"

#include "tally/names.h"

#include <stdio.h>
#include <string.h>

#define LLAMA_MODEL                                                                                                    \
    .prefix = "model.", .layers = "layers", .embed = "embed_tokens", .tokens = "embed_tokens", .final_norm = "norm",   \
    .head = "lm_head"
#define LLAMA_NORMS .norm_1 = "input_layernorm", .norm_2 = "post_attention_layernorm"
#define GEMMA_NORMS                                                                                                    \
    .norm_1 = "input_layernorm", .norm_1_after = "post_attention_layernorm", .norm_2 = "pre_feedforward_layernorm",    \
    .norm_2_after = "post_feedforward_layernorm"
#define LLAMA_ATTENTION                                                                                                \
    .attention = "self_attn", .q = "q_proj", .k = "k_proj", .v = "v_proj", .out = "o_proj", .q_norm = "q_norm",        \
    .k_norm = "k_norm"
#define LLAMA_MLP .mlp = "mlp", .gate = "gate_proj", .up = "up_proj", .down = "down_proj"
#define LLAMA_EXPERTS                                                                                                  \
    .moe = "mlp", .router = "gate", .expert_gate = "gate_proj", .expert_up = "up_proj", .expert_down = "down_proj",    \
    .experts_apart = true
#define LLAMA LLAMA_MODEL, LLAMA_NORMS, LLAMA_ATTENTION, LLAMA_MLP
#define FUSED_ATTENTION(module)                                                                                        \
    .attention = (module), .fused = "query_key_value", .out = "dense", .layout = TL_FUSED_BY_GROUP
#define FOUR_H_MLP .mlp = "mlp", .up = "dense_h_to_4h", .down = "dense_4h_to_h"
#define H_MODEL .prefix = "transformer.", .layers = "h", .final_norm = "ln_f", .head = "lm_head"
#define FALCON                                                                                                         \
    H_MODEL, .embed = "word_embeddings", .tokens = "word_embeddings", FUSED_ATTENTION("self_attention"), FOUR_H_MLP

static const tl_names names[TL_FAMILY_COUNT] = {
    [TL_FAMILY_GPT2] = {.prefix = "",
                        .layers = "h",
                        .embed = "embed",
                        .tokens = "wte",
                        .positions = "wpe",
                        .final_norm = "ln_f",
                        .head = "lm_head",
                        .norm_1 = "ln_1",
                        .norm_2 = "ln_2",
                        .attention = "attn",
                        .fused = "c_attn",
                        .layout = TL_FUSED_IN_TURN,
                        .out = "c_proj",
                        .mlp = "mlp",
                        .up = "c_fc",
                        .down = "c_proj",
                        .transposed = true,
                        .scaled_residual = true,
                        .biased = true,
                        .one_head_symbol = true},
    [TL_FAMILY_LLAMA] = {LLAMA},
    [TL_FAMILY_MISTRAL] = {LLAMA},
    [TL_FAMILY_MIXTRAL] = {LLAMA, .moe = "block_sparse_moe", .router = "gate", .expert_gate = "w1", .expert_up = "w3",
                           .expert_down = "w2", .experts_apart = true},
    [TL_FAMILY_QWEN2] = {LLAMA},
    [TL_FAMILY_QWEN2_MOE] = {LLAMA, LLAMA_EXPERTS, .shared = "shared_expert"},
    [TL_FAMILY_QWEN3] = {LLAMA},
    [TL_FAMILY_QWEN3_MOE] = {LLAMA, LLAMA_EXPERTS},
    [TL_FAMILY_GEMMA] = {LLAMA},
    [TL_FAMILY_GEMMA2] = {LLAMA_MODEL, GEMMA_NORMS, LLAMA_ATTENTION, LLAMA_MLP},
    [TL_FAMILY_GEMMA3] = {LLAMA_MODEL, GEMMA_NORMS, LLAMA_ATTENTION, LLAMA_MLP},
    [TL_FAMILY_GEMMA4] = {LLAMA_MODEL, GEMMA_NORMS, LLAMA_ATTENTION, LLAMA_MLP, .moe = "", .router = "router.proj",
                          .expert_gate_up = "gate_up_proj", .expert_down = "down_proj", .fused_rows = true},
    [TL_FAMILY_PHI] = {.prefix = "model.",
                       .layers = "layers",
                       .embed = "embed_tokens",
                       .tokens = "embed_tokens",
                       .final_norm = "final_layernorm",
                       .head = "lm_head",
                       .norm_1 = "input_layernorm",
                       .attention = "self_attn",
                       .q = "q_proj",
                       .k = "k_proj",
                       .v = "v_proj",
                       .out = "dense",
                       .mlp = "mlp",
                       .up = "fc1",
                       .down = "fc2",
                       .one_head_symbol = true},
    [TL_FAMILY_PHI_MSFT] = {.prefix = "transformer.",
                            .layers = "h",
                            .embed = "embd",
                            .tokens = "embd.wte",
                            .final_norm = "lm_head.ln",
                            .final_outside = true,
                            .head = "lm_head.linear",
                            .norm_1 = "ln",
                            .attention = "mixer",
                            .fused = "Wqkv",
                            .layout = TL_FUSED_IN_TURN,
                            .out = "out_proj",
                            .mlp = "mlp",
                            .up = "fc1",
                            .down = "fc2",
                            .one_head_symbol = true},
    [TL_FAMILY_PHI3] = {LLAMA_MODEL, LLAMA_NORMS, .attention = "self_attn", .fused = "qkv_proj",
                        .layout = TL_FUSED_IN_TURN, .out = "o_proj", .mlp = "mlp", .gate_up = "gate_up_proj",
                        .down = "down_proj"},
    [TL_FAMILY_OLMO] = {LLAMA},
    [TL_FAMILY_OLMO2] = {LLAMA_MODEL, .norm_1 = "post_attention_layernorm", .norm_2 = "post_feedforward_layernorm",
                         LLAMA_ATTENTION, LLAMA_MLP},
    [TL_FAMILY_GPT_NEOX] = {.prefix = "gpt_neox.",
                            .layers = "layers",
                            .embed = "embed_in",
                            .tokens = "embed_in",
                            .final_norm = "final_layer_norm",
                            .head = "embed_out",
                            LLAMA_NORMS,
                            FUSED_ATTENTION("attention"),
                            FOUR_H_MLP,
                            .one_head_symbol = true},
    [TL_FAMILY_GPTJ] = {H_MODEL, .embed = "wte", .tokens = "wte", .norm_1 = "ln_1", .attention = "attn", .q = "q_proj",
                        .k = "k_proj", .v = "v_proj", .out = "out_proj", .mlp = "mlp", .up = "fc_in", .down = "fc_out",
                        .one_head_symbol = true},
    [TL_FAMILY_OPT] = {.prefix = "model.decoder.",
                       .layers = "layers",
                       .embed = "embed",
                       .tokens = "embed_tokens",
                       .positions = "embed_positions",
                       .final_norm = "final_layer_norm",
                       .head = "lm_head",
                       .norm_1 = "self_attn_layer_norm",
                       .norm_2 = "final_layer_norm",
                       .attention = "self_attn",
                       .q = "q_proj",
                       .k = "k_proj",
                       .v = "v_proj",
                       .out = "out_proj",
                       .mlp = "",
                       .up = "fc1",
                       .down = "fc2",
                       .one_head_symbol = true},
    [TL_FAMILY_BLOOM] = {H_MODEL, .embed = "word_embeddings", .tokens = "word_embeddings",
                         .embedding_norm = "word_embeddings_layernorm", LLAMA_NORMS, FUSED_ATTENTION("self_attention"),
                         FOUR_H_MLP, .one_head_symbol = true},
    [TL_FAMILY_FALCON] = {FALCON, LLAMA_NORMS},
    [TL_FAMILY_STARCODER2] = {LLAMA_MODEL, LLAMA_NORMS, LLAMA_ATTENTION, .mlp = "mlp", .up = "c_fc", .down = "c_proj"},
    [TL_FAMILY_DEEPSEEK_V2] = {LLAMA, LLAMA_EXPERTS, .shared = "shared_experts", .router_f32 = true},
    [TL_FAMILY_DEEPSEEK_V3] = {LLAMA, LLAMA_EXPERTS, .shared = "shared_experts", .router_f32 = true},
    [TL_FAMILY_GPT_OSS] = {LLAMA, .moe = "mlp", .router = "router", .expert_gate_up = "gate_up_proj",
                           .expert_down = "down_proj", .columns_in_turn = true},
    [TL_FAMILY_LLAMA4] = {LLAMA_MODEL, LLAMA_NORMS, LLAMA_ATTENTION, .mlp = "feed_forward", .gate = "gate_proj",
                          .up = "up_proj", .down = "down_proj", .moe = "feed_forward", .router = "router",
                          .shared = "shared_expert", .expert_gate_up = "gate_up_proj", .expert_down = "down_proj"},
};

/* Falcon 40B and 180B: two norms side by side, named after what reads them. */
static const tl_names falcon_two = {FALCON, .norm_1 = "ln_attn", .norm_2 = "ln_mlp"};

const tl_names *tl_names_of(const tl_model *model) {
    if (model->family == TL_FAMILY_FALCON && model->place == TL_PLACE_PARALLEL_TWO)
        return &falcon_two;
    return (unsigned)model->family < TL_FAMILY_COUNT && names[model->family].layers ? &names[model->family] : NULL;
}

/* ---- what a family's names allow ---- */

static tl_status refuse(const char *name, const tl_model *m, const char *what, tl_error *error) {
    return tl_fail(error, TL_ERR_UNSUPPORTED, "model %s: %s %s is not built in: its checkpoints have no name for it",
                   name, tl_family_name(m->family), what);
}

tl_status tl_names_check(const char *name, const tl_model *m, tl_error *error) {
    const tl_names *n = tl_names_of(m);
    if (m->gated ? !n->gate && !n->gate_up : !n->up)
        return refuse(name, m, m->gated ? "with a gated feed-forward" : "without a gated feed-forward", error);
    if (tl_positions_of(m) == TL_POSITIONS_LEARNED && !n->positions)
        return refuse(name, m, "with learned positions", error);
    if (m->place != TL_PLACE_PARALLEL && !n->norm_2)
        return refuse(name, m, "with two norms a block", error);
    if (m->place == TL_PLACE_AROUND && (!n->norm_1_after || !n->norm_2_after))
        return refuse(name, m, "with four norms a block", error);
    if ((m->qk_norm == TL_QK_HEAD || m->qk_norm == TL_QK_ALL) && !n->q_norm)
        return refuse(name, m, "with norms of q and k", error);
    if (m->embedding_norm && !n->embedding_norm)
        return refuse(name, m, "with a norm of the embeddings", error);
    if (m->experts > 0 && !n->moe)
        return refuse(name, m, "with experts", error);
    if (m->shared_ff > 0 && !n->shared)
        return refuse(name, m, "with shared experts", error);
    if (m->embedding_size != 0 && m->family != TL_FAMILY_OPT)
        return refuse(name, m, "with embeddings of another width", error);
    if (m->layer_input_size != 0 && m->family != TL_FAMILY_GEMMA4)
        return refuse(name, m, "with per-layer embeddings", error);
    if (m->sinks && m->kv_rank > 0)
        return refuse(name, m, "with sinks in latent attention", error);
    if (m->kv_rank > 0 && n->layout != TL_FUSED_NONE)
        return refuse(name, m, "with latent attention", error);
    return TL_OK;
}

/* ---- published tensors ---- */

static const char *experts_in(const tl_model *model, const char *parameter) {
    const tl_names *n = tl_names_of(model);
    return n && n->experts_apart && model->experts > 0 ? strstr(parameter, ".experts.") : NULL;
}

int64_t tl_published_parts(const tl_model *model, const char *parameter) {
    return experts_in(model, parameter) ? model->experts : 1;
}

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static bool is_conv1d(const tl_model *model, const char *parameter) {
    const tl_names *n = tl_names_of(model);
    return n && n->transposed &&
           (ends_with(parameter, ".c_attn.weight") || ends_with(parameter, ".c_proj.weight") ||
            ends_with(parameter, ".c_fc.weight"));
}

tl_status tl_published_part(const tl_model *model, const char *parameter, int64_t part, tl_published *published,
                            tl_error *error) {
    const char *experts = experts_in(model, parameter);
    int64_t parts = experts ? model->experts : 1;
    int length;
    if (part < 0 || part >= parts)
        return tl_fail(error, TL_ERR_ARGUMENT, "%s is made of %lld tensors; part %lld is none of 0 to %lld", parameter,
                       (long long)parts, (long long)part, (long long)(parts - 1));
    *published = (tl_published){.expert = experts ? part : -1, .transposed = is_conv1d(model, parameter)};
    size_t size = sizeof published->name;
    if (experts) {
        const char *rest = experts + strlen(".experts.");
        length =
            snprintf(published->name, size, "%.*s%lld.%s", (int)(rest - parameter), parameter, (long long)part, rest);
    } else
        length = snprintf(published->name, size, "%s", parameter);
    if (length < 0 || (size_t)length >= size)
        return tl_fail(error, TL_ERR_OVERFLOW, "the parameter's name %.60s… is too long", parameter);
    return TL_OK;
}
