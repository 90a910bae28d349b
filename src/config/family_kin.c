/* Llama's kin with other norms or fused projections: phi3, olmo, olmo2. Defaults: transformers' configuration_phi3.py, …_olmo.py,
 * …_olmo2.py. */
#include "config/fields.h"
#include "nn/family.h"

void tl_config_phi3(tl_config_reader *r) {
    tl_model *m = r->model;
    tl_model_start(m, TL_FAMILY_PHI3);
    tl_config_read_sizes(r, &(tl_config_sizes){32, 3072, 32, 8192, 32064, 4096});
    if (r->status != TL_OK)
        return;
    tl_config_read_heads(r, 0, 0);
    tl_config_read_rope(
        r, &(tl_config_rope){.theta = 10000, .partial_key = "partial_rotary_factor", .partial = 1, .original = 4096});
    (void)tl_config_has(r,
                        "original_max_position_embeddings"); /* of longrope, and without effect where there is none */
    tl_config_like_llama(r, 1e-5, false);
    tl_config_only(r, "attention_bias", false, "phi3's projections have no biases");
    m->dropout_embedding = tl_config_dropout_given(r, "embd_pdrop");
    m->dropout_residual = tl_config_dropout_given(r, "resid_pdrop");
    if (tl_config_read_window(r, "sliding_window", 0))
        for (int64_t i = 0; i < m->layers; i++)
            tl_config_mark(m, i, TL_LAYER_WINDOW);
}

static void read_olmo(tl_config_reader *r, double epsilon) {
    tl_model *m = r->model;
    tl_config_read_sizes(r, &(tl_config_sizes){32, 4096, 32, 11008, 50304, 2048});
    if (r->status != TL_OK)
        return;
    tl_config_read_heads(r, 0, 0);
    tl_config_read_rope(r, &(tl_config_rope){.theta = 10000});
    tl_config_like_llama(r, epsilon, false);
    m->attention_bias = tl_config_flag_given(r, "attention_bias");
}

void tl_config_olmo(tl_config_reader *r) {
    tl_model *m = r->model;
    tl_model_start(m, TL_FAMILY_OLMO);
    read_olmo(r, 1e-5);
    if (tl_config_has(r, "clip_qkv"))
        m->clip_qkv = tl_config_real(r, "clip_qkv", 1e-9, 1e18);
}

void tl_config_olmo2(tl_config_reader *r) {
    tl_model_start(r->model, TL_FAMILY_OLMO2);
    read_olmo(r, 1e-5);
}
