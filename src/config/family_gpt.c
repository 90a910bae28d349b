/* Families with LayerNorm and two-matrix MLPs: phi (and phi-msft, its first form), gpt_neox, gptj, opt, bloom, falcon, starcoder2.
 * Defaults: transformers' configuration_phi.py, …_gpt_neox.py, …_gptj.py, …_opt.py, …_bloom.py, …_falcon.py, …_starcoder2.py;
 * phi-msft: microsoft/phi-2's own configuration_phi.py of 2023. */
#include "config/fields.h"
#include "nn/family.h"

#include <string.h>

static void layer_norm(tl_config_reader *r, const char *epsilon_key, const char *init_key) {
    tl_model *m = r->model;
    m->norm_epsilon = epsilon_key != NULL ? tl_config_real_or(r, epsilon_key, 0, 1, 1e-5) : 1e-5;
    m->init_std = tl_config_real_or(r, init_key, 0, 1e6, 0.02);
}

static void gpt_dropout(tl_config_reader *r, const char *embedding, const char *attention, const char *residual) {
    tl_model *m = r->model;
    m->dropout_embedding = embedding != NULL ? tl_config_dropout_given(r, embedding) : 0;
    m->dropout_attention = tl_config_dropout_given(r, attention);
    m->dropout_residual = tl_config_dropout_given(r, residual);
}

/* The context under `key`, or the family's default. */
static void read_context(tl_config_reader *r, const char *key, int64_t standard) {
    tl_model *m = r->model;
    m->context = tl_config_size_or(r, key, standard);
    if (tl_config_has(r, key))
        tl_config_source(r, &m->source_context, key);
    else
        tl_config_set_source(&m->source_context, "assumed by %s", r->family);
}

/* Sizes under GPT-2's names. */
static void read_gpt_sizes(tl_config_reader *r, int64_t layers, int64_t width, int64_t heads, int64_t vocab) {
    tl_model *m = r->model;
    m->layers = tl_config_required(r, "n_layer", "num_hidden_layers", layers, &m->source_layers);
    m->width = tl_config_required(r, "n_embd", "hidden_size", width, &m->source_width);
    m->heads = tl_config_required(r, "n_head", "num_attention_heads", heads, &m->source_heads);
    m->vocab = tl_config_required(r, "vocab_size", NULL, vocab, &m->source_vocab);
    read_context(r, "n_positions", 2048);
    tl_config_plain_heads(r, "n_head", "n_embd");
    tl_config_ff_or_4d(r, "n_inner");
}

/* rotary_dim of a head turns. */
static void read_rotary_dim(tl_config_reader *r, int64_t standard) {
    tl_model *m = r->model;
    int64_t size = tl_config_size_or(r, "rotary_dim", standard);
    if (r->status == TL_OK && (size > m->head_size || size % 2 != 0))
        tl_config_fail(r, TL_ERR_SHAPE, "rotary_dim", "is %lld; it must be even and at most the head size %lld",
                       (long long)size, (long long)m->head_size);
    m->rotary_size = size == m->head_size ? 0 : size;
}

/* ---- phi ---- */

void tl_config_phi(tl_config_reader *r) {
    tl_model *m = r->model;
    tl_model_start(m, TL_FAMILY_PHI);
    tl_config_read_sizes(r, &(tl_config_sizes){24, 2048, 32, 8192, 51200, 2048});
    if (r->status != TL_OK)
        return;
    tl_config_read_heads(r, 0, 0);
    tl_config_read_rope(r, &(tl_config_rope){.theta = 10000, .partial_key = "partial_rotary_factor", .partial = 0.5});
    m->activation = tl_config_activation_or(r, "hidden_act", "gelu_new");
    layer_norm(r, "layer_norm_eps", "initializer_range");
    gpt_dropout(r, "embd_pdrop", "attention_dropout", "resid_pdrop");
    m->tied = tl_config_flag_or(r, "tie_word_embeddings", false);
}

void tl_config_phi_msft(tl_config_reader *r) {
    tl_model *m = r->model;
    tl_model_start(m, TL_FAMILY_PHI_MSFT);
    read_gpt_sizes(r, 24, 2048, 32, 51200);
    if (r->status != TL_OK)
        return;
    if (tl_config_has(r, "n_head_kv")) {
        m->kv_heads = tl_config_required(r, "n_head_kv", NULL, 0, &m->source_kv_heads);
        if (r->status == TL_OK && m->heads % m->kv_heads != 0)
            tl_config_fail(r, TL_ERR_SHAPE, "n_head_kv", "is %lld, which does not divide n_head %lld",
                           (long long)m->kv_heads, (long long)m->heads);
    }
    read_rotary_dim(r, 32);
    m->activation = tl_config_activation_or(r, "activation_function", "gelu_new");
    layer_norm(r, "layer_norm_epsilon", "initializer_range");
    gpt_dropout(r, "embd_pdrop", "attn_pdrop", "resid_pdrop");
    m->tied = tl_config_flag_or(r, "tie_word_embeddings", false);
}

/* ---- gpt_neox, gptj ---- */

void tl_config_gpt_neox(tl_config_reader *r) {
    tl_model *m = r->model;
    tl_model_start(m, TL_FAMILY_GPT_NEOX);
    tl_config_read_sizes(r, &(tl_config_sizes){44, 6144, 64, 24576, 50432, 2048});
    if (r->status != TL_OK)
        return;
    tl_config_plain_heads(r, "num_attention_heads", "hidden_size");
    /* NeoX's own name counts; rope_theta is what newer files may say instead. */
    bool other = tl_config_has(r, "rope_theta"), own = tl_config_has(r, "rotary_emb_base");
    tl_config_read_rope(r, &(tl_config_rope){.theta = 10000,
                                             .theta_key = other && !own ? "rope_theta" : "rotary_emb_base",
                                             .partial_key = "rotary_pct",
                                             .partial = 0.25});
    m->activation = tl_config_activation_or(r, "hidden_act", "gelu");
    m->place = tl_config_flag_or(r, "use_parallel_residual", true) ? TL_PLACE_PARALLEL_TWO : TL_PLACE_BEFORE;
    m->attention_bias = tl_config_has(r, "attention_bias") ? tl_config_flag(r, "attention_bias") : true;
    layer_norm(r, "layer_norm_eps", "initializer_range");
    gpt_dropout(r, "hidden_dropout", "attention_dropout", "hidden_dropout");
    m->tied = tl_config_flag_or(r, "tie_word_embeddings", false);
}

void tl_config_gptj(tl_config_reader *r) {
    tl_model *m = r->model;
    tl_model_start(m, TL_FAMILY_GPTJ);
    read_gpt_sizes(r, 28, 4096, 16, 50400);
    if (r->status != TL_OK)
        return;
    (void)tl_config_has(r, "n_ctx");
    tl_config_only(r, "rotary", true, "GPT-J without rotary positions is not built in");
    read_rotary_dim(r, 64);
    m->activation = tl_config_activation_or(r, "activation_function", "gelu_new");
    layer_norm(r, "layer_norm_epsilon", "initializer_range");
    gpt_dropout(r, "embd_pdrop", "attn_pdrop", "resid_pdrop");
    m->tied = tl_config_flag_or(r, "tie_word_embeddings", false);
}

/* ---- opt, bloom ---- */

static void refuse_dropout(tl_config_reader *r, const char *key) {
    if (tl_config_has(r, key) && tl_config_real(r, key, 0, 1) != 0 && r->status == TL_OK)
        tl_config_fail(r, TL_ERR_UNSUPPORTED, key, "is above 0; that dropout is not built in, 0 would do");
}

static void read_opt_norms(tl_config_reader *r) {
    tl_model *m = r->model;
    m->place = tl_config_flag_or(r, "do_layer_norm_before", true) ? TL_PLACE_BEFORE : TL_PLACE_POST;
    tl_config_only(r, "_remove_final_layer_norm", false, "OPT without its last norm is not built in");
    tl_config_only(r, "layer_norm_elementwise_affine", true, "OPT's norms without gains are not built in");
    if (tl_config_has(r, "word_embed_proj_dim")) {
        int64_t size = tl_config_size(r, "word_embed_proj_dim");
        m->embedding_size = size == m->width ? 0 : size;
    }
}

void tl_config_opt(tl_config_reader *r) {
    tl_model *m = r->model;
    tl_model_start(m, TL_FAMILY_OPT);
    m->layers = tl_config_required(r, "num_hidden_layers", NULL, 12, &m->source_layers);
    m->width = tl_config_required(r, "hidden_size", "d_model", 768, &m->source_width);
    m->heads = tl_config_required(r, "num_attention_heads", NULL, 12, &m->source_heads);
    m->ff = tl_config_required(r, "ffn_dim", NULL, 3072, &m->source_ff);
    m->vocab = tl_config_required(r, "vocab_size", NULL, 50272, &m->source_vocab);
    if (r->status != TL_OK)
        return;
    read_context(r, "max_position_embeddings", 2048);
    tl_config_plain_heads(r, "num_attention_heads", "hidden_size");
    m->attention_bias = m->mlp_bias = tl_config_has(r, "enable_bias") ? tl_config_flag(r, "enable_bias") : true;
    m->activation = tl_config_activation_or(r, "activation_function", "relu");
    layer_norm(r, NULL, "init_std"); /* nn.LayerNorm's own epsilon */
    read_opt_norms(r);
    gpt_dropout(r, NULL, "attention_dropout", "dropout");
    if (!tl_config_has(r, "dropout"))
        m->dropout_residual = tl_config_real_or(r, "dropout", 0, TL_CONFIG_MOST_DROPOUT, 0.1);
    refuse_dropout(r, "activation_dropout");
    refuse_dropout(r, "layerdrop");
    m->tied = tl_config_flag_or(r, "tie_word_embeddings", true);
}

/* 4·D in transformers' BloomMLP; n_inner, which some files have, says nothing there. */
static void read_bloom_ff(tl_config_reader *r) {
    tl_model *m = r->model;
    if (r->status != TL_OK)
        return;
    if (!tl_mul_i64(4, m->width, &m->ff))
        tl_config_fail(r, TL_ERR_OVERFLOW, NULL, "the width %lld is so large that 4·D is beyond 64 bits",
                       (long long)m->width);
    tl_config_set_source(&m->source_ff, "4·D in bloom");
    if (r->status == TL_OK && tl_config_has(r, "n_inner") && tl_config_size(r, "n_inner") != m->ff)
        tl_config_ignore(r, "n_inner: BLOOM's MLP is 4·D = %lld wide whatever it says", (long long)m->ff);
}

void tl_config_bloom(tl_config_reader *r) {
    tl_model *m = r->model;
    tl_model_start(m, TL_FAMILY_BLOOM);
    m->layers = tl_config_required(r, "n_layer", "num_hidden_layers", 2, &m->source_layers);
    m->width = tl_config_required(r, "hidden_size", "n_embed", 64, &m->source_width);
    m->heads = tl_config_required(r, "n_head", "num_attention_heads", 8, &m->source_heads);
    m->vocab = tl_config_required(r, "vocab_size", NULL, 250880, &m->source_vocab);
    if (r->status != TL_OK)
        return;
    /* ALiBi sets no limit; files name the length of training. */
    read_context(r, "seq_length", 2048);
    tl_config_plain_heads(r, "n_head", "hidden_size");
    read_bloom_ff(r);
    tl_config_only(r, "apply_residual_connection_post_layernorm", false,
                   "residuals taken after the norm are another model");
    layer_norm(r, "layer_norm_epsilon", "initializer_range");
    gpt_dropout(r, NULL, "attention_dropout", "hidden_dropout");
    m->tied = tl_config_flag_or(r, "tie_word_embeddings", true);
}

/* ---- falcon ---- */

static void read_falcon_heads(tl_config_reader *r, bool fresh) {
    tl_model *m = r->model;
    bool single = tl_config_flag_or(r, "multi_query", true);
    const char *key = tl_config_has(r, "num_kv_heads") ? "num_kv_heads" : "n_head_kv";
    bool given = tl_config_has(r, key);
    if (fresh && given) {
        m->kv_heads = tl_config_required(r, key, NULL, 0, &m->source_kv_heads);
        if (r->status == TL_OK && m->heads % m->kv_heads != 0)
            tl_config_fail(r, TL_ERR_SHAPE, key, "is %lld, which does not divide the heads %lld",
                           (long long)m->kv_heads, (long long)m->heads);
    } else if (!fresh && single) {
        m->kv_heads = 1;
        tl_config_set_source(&m->source_kv_heads, "multi_query");
    }
    if (!fresh && given)
        tl_config_ignore(r, "%s: without new_decoder_architecture, multi_query alone counts", key);
}

static void read_falcon_place(tl_config_reader *r, bool fresh) {
    tl_model *m = r->model;
    bool parallel = tl_config_flag_or(r, "parallel_attn", true);
    int64_t norms = 1 + (int64_t)fresh;
    if (tl_config_has(r, "num_ln_in_parallel_attn") && fresh)
        norms = tl_config_size(r, "num_ln_in_parallel_attn");
    if (r->status == TL_OK && (norms > 2 || (norms == 2 && !fresh)))
        tl_config_fail(r, TL_ERR_UNSUPPORTED, "num_ln_in_parallel_attn", "is %lld; 1 and 2 are built in",
                       (long long)norms);
    if (norms == 2)
        m->place = TL_PLACE_PARALLEL_TWO;
    else
        m->place = parallel || fresh ? TL_PLACE_PARALLEL : TL_PLACE_BEFORE;
}

void tl_config_falcon(tl_config_reader *r) {
    static const char *const of_rotary[] = {"rope_theta", "rope_scaling", "rope_parameters"};
    tl_model *m = r->model;
    tl_model_start(m, TL_FAMILY_FALCON);
    m->layers = tl_config_required(r, "num_hidden_layers", "n_layer", 32, &m->source_layers);
    m->width = tl_config_required(r, "hidden_size", "n_embed", 4544, &m->source_width);
    m->heads = tl_config_required(r, "num_attention_heads", "n_head", 71, &m->source_heads);
    m->vocab = tl_config_required(r, "vocab_size", NULL, 65024, &m->source_vocab);
    if (r->status != TL_OK)
        return;
    read_context(r, "max_position_embeddings", 2048);
    tl_config_plain_heads(r, "num_attention_heads", "hidden_size");
    tl_config_ff_or_4d(r, "ffn_hidden_size");
    bool fresh = tl_config_flag_or(r, "new_decoder_architecture", false);
    if (r->status != TL_OK)
        return;
    read_falcon_heads(r, fresh);
    read_falcon_place(r, fresh);
    m->attention_bias = m->mlp_bias = tl_config_flag_or(r, "bias", false);
    m->activation = tl_config_has(r, "activation") ? tl_config_activation_or(r, "activation", "gelu") : TL_GELU_ERF;
    if (tl_config_flag_or(r, "alibi", false)) {
        m->positions = TL_POSITIONS_ALIBI;
        m->rope_theta = 0;
        for (int i = 0; i < 3; i++)
            (void)tl_config_has(r, of_rotary[i]); /* without effect */
    } else
        tl_config_read_rope(r, &(tl_config_rope){.theta = 10000});
    layer_norm(r, "layer_norm_epsilon", "initializer_range");
    gpt_dropout(r, NULL, "attention_dropout", "hidden_dropout");
    m->tied = tl_config_flag_or(r, "tie_word_embeddings", true);
}

/* ---- starcoder2 ---- */

void tl_config_starcoder2(tl_config_reader *r) {
    tl_model *m = r->model;
    tl_model_start(m, TL_FAMILY_STARCODER2);
    tl_config_read_sizes(r, &(tl_config_sizes){30, 3072, 24, 12288, 49152, 4096});
    if (r->status != TL_OK)
        return;
    tl_config_read_heads(r, 0, 2);
    tl_config_read_rope(r, &(tl_config_rope){.theta = 10000});
    m->activation = tl_config_activation_or(r, "hidden_act", "gelu_pytorch_tanh");
    m->attention_bias = m->mlp_bias = tl_config_flag_or(r, "use_bias", true);
    m->norm_epsilon = tl_config_real_or(r, "norm_epsilon", 0, 1, 1e-5);
    m->init_std = tl_config_real_or(r, "initializer_range", 0, 1e6, 0.018042);
    gpt_dropout(r, "embedding_dropout", "attention_dropout", "residual_dropout");
    tl_config_only_text(r, "mlp_type", "default", "is built in");
    tl_config_only_text(r, "norm_type", "layer_norm", "is built in");
    m->tied = tl_config_flag_or(r, "tie_word_embeddings", true);
    if (tl_config_read_window(r, "sliding_window", 0))
        for (int64_t i = 0; i < m->layers; i++)
            tl_config_mark(m, i, TL_LAYER_WINDOW);
}
