/* config/fields.h: what the readers of families share. Each notes what it assumed, and fails with place and key. */
#ifndef TALLY_CONFIG_FIELDS_H
#define TALLY_CONFIG_FIELDS_H

#include "config/reader.h"

/* Dropout of exactly 1 drops everything: no model. */
#define TL_CONFIG_MOST_DROPOUT 0.999999

TL_PRINTF(2, 3) void tl_config_set_source(tl_source *source, const char *format, ...);

/* A size that must be there, under its own name or the one Hugging Face also takes for it (alias may be NULL). `standard` is the
 * family's default: named where the size is missing, taken where r->sizes_assumed. */
int64_t tl_config_required(tl_config_reader *r, const char *key, const char *alias, int64_t standard,
                           tl_source *source);
/* Else the family's default, noted. */
int64_t tl_config_size_or(tl_config_reader *r, const char *key, int64_t standard);
int64_t tl_config_count_or(tl_config_reader *r, const char *key, int64_t standard);
double tl_config_real_or(tl_config_reader *r, const char *key, double low, double high, double standard);
bool tl_config_flag_or(tl_config_reader *r, const char *key, bool standard);
tl_activation tl_config_activation_or(tl_config_reader *r, const char *key, const char *standard);
/* Else false or 0, unnoted: biases and dropout that most files leave out. */
bool tl_config_flag_given(tl_config_reader *r, const char *key);
double tl_config_dropout_given(tl_config_reader *r, const char *key);
/* Fails where the key is there and not `wanted`: the only value that is built in. */
void tl_config_only(tl_config_reader *r, const char *key, bool wanted, const char *why);
void tl_config_only_text(tl_config_reader *r, const char *key, const char *wanted, const char *why);

/* The sizes under llama's names, with the family's defaults, and the context. */
typedef struct tl_config_sizes {
    int64_t layers, width, heads, ff, vocab, context;
} tl_config_sizes;
void tl_config_read_sizes(tl_config_reader *r, const tl_config_sizes *standard);
/* num_key_value_heads and head_dim. head_standard 0: head_dim absent is D/H; else head_dim must be there. kv_standard: what
 * num_key_value_heads is where it is absent; 0, or null in the file: as many as heads. */
void tl_config_read_heads(tl_config_reader *r, int64_t head_standard, int64_t kv_standard);
/* As many key/value heads as heads, of D/H. */
void tl_config_plain_heads(tl_config_reader *r, const char *heads_key, const char *width_key);
/* F from `key`, or 4·D where the file says none. */
void tl_config_ff_or_4d(tl_config_reader *r, const char *key);
/* SiLU or refused; epsilon of RMSNorm, init, dropout of attention, tie */
void tl_config_like_llama(tl_config_reader *r, double epsilon, bool tied);
/* The loss that keeps experts busy, which is added only where the router's logits are asked for. */
void tl_config_read_router_loss(tl_config_reader *r, double standard);

/* Noise that training adds to the router's input; named where there is some. */
void tl_config_read_router_noise(tl_config_reader *r);

/* ---- config/rope.c ---- */
typedef struct tl_config_rope {
    double theta;            /* the family's default */
    const char *theta_key;   /* its name outside rope_parameters; NULL: rope_theta */
    const char *partial_key; /* the share of K that turns; NULL: all of it does */
    double partial;          /* the family's default share */
    double local_theta;      /* of window layers; 0: the same angles in all layers */
    const char *local_key;
    int64_t original; /* longrope's original context where no key says it; 0: the context */
    bool
        spread; /* "proportional" of a part is built in: the share is of a global head, whose first pairs turn (Gemma 4) */
} tl_config_rope;
void tl_config_read_rope(tl_config_reader *r, const tl_config_rope *how);

/* ---- config/layers.c ---- */
/* m->window from sliding_window, or the family's default (0: none). False: no layer is cut, for the file says null, the family
 * has none, or the window is not below the context. */
bool tl_config_read_window(tl_config_reader *r, const char *key, int64_t standard);
/* layer_types, one for each layer: sliding_attention sets `sliding`, chunked_attention TL_LAYER_CHUNKED. False where absent. */
bool tl_config_read_layer_types(tl_config_reader *r, unsigned sliding);
/* A list of layers' indices: marked[i]. False where it is absent or empty. */
bool tl_config_read_layer_list(tl_config_reader *r, const char *key, bool marked[TL_MODEL_LAYERS]);
/* A list of a number for each layer: zero[i] where it is 0. False where it is absent or empty. */
bool tl_config_read_layer_flags(tl_config_reader *r, const char *key, bool zero[TL_MODEL_LAYERS]);
void tl_config_mark(tl_model *model, int64_t layer, unsigned bits);

/* ---- families ---- */
void tl_config_mistral(tl_config_reader *r);
void tl_config_mixtral(tl_config_reader *r);
void tl_config_qwen2(tl_config_reader *r);
void tl_config_qwen2_moe(tl_config_reader *r);
void tl_config_qwen3(tl_config_reader *r);
void tl_config_qwen3_moe(tl_config_reader *r);
void tl_config_gemma(tl_config_reader *r);
void tl_config_gemma2(tl_config_reader *r);
void tl_config_gemma3(tl_config_reader *r);
void tl_config_gemma4(tl_config_reader *r);
void tl_config_phi(tl_config_reader *r);
void tl_config_phi_msft(tl_config_reader *r);
void tl_config_phi3(tl_config_reader *r);
void tl_config_olmo(tl_config_reader *r);
void tl_config_olmo2(tl_config_reader *r);
void tl_config_gpt_neox(tl_config_reader *r);
void tl_config_gptj(tl_config_reader *r);
void tl_config_opt(tl_config_reader *r);
void tl_config_bloom(tl_config_reader *r);
void tl_config_falcon(tl_config_reader *r);
void tl_config_starcoder2(tl_config_reader *r);
void tl_config_deepseek_v2(tl_config_reader *r);
void tl_config_deepseek_v3(tl_config_reader *r);
void tl_config_gpt_oss(tl_config_reader *r);
void tl_config_llama4(tl_config_reader *r);

#endif
