/* tally/model.h: what a model is, as a parsed struct. The planner core reads nothing but this; readers of files
 * (config.json, the built-in catalogue) fill it in and say where every value came from.
 */
#ifndef TALLY_MODEL_H
#define TALLY_MODEL_H

#include "tally/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tl_family {
    TL_FAMILY_GPT2,    /* learned positions, LayerNorm, biases, GELU (tanh), two-matrix MLP */
    TL_FAMILY_LLAMA,   /* rotary, RMSNorm, gated SiLU, grouped heads */
    TL_FAMILY_CRUNCHER /* CS336 lecture 2: linear layers D→D, then D→1, squared error; no vocabulary */
} tl_family;

typedef enum tl_activation { TL_GELU_TANH, TL_GELU_ERF, TL_SILU, TL_RELU } tl_activation;

#define TL_MODEL_NOTES 24

typedef struct tl_source {
    char text[96]; /* "n_embd", "4·D assumed by gpt2", "catalogue" */
} tl_source;

typedef struct tl_model {
    char name[128];
    tl_family family;
    int64_t layers;    /* N */
    int64_t width;     /* D */
    int64_t heads;     /* H */
    int64_t kv_heads;  /* G */
    int64_t head_size; /* K */
    int64_t ff;        /* F */
    int64_t vocab;     /* V */
    int64_t context;   /* C */
    bool tied;         /* output projection shares the embedding */
    bool gated;        /* llama: three-matrix MLP (SiLU(x·W1) ⊙ x·W3)·W2; false: CS336's ungated W2·SiLU(x·W1) */
    bool learned_positions;
    bool attention_bias, mlp_bias; /* llama */
    bool rope_interleaved;
    tl_activation activation;
    double norm_epsilon;
    double rope_theta;
    double rope_factor, rope_low_freq, rope_high_freq; /* Llama-3.1 scaling; factor 0: none */
    int64_t rope_original_context;
    double dropout_embedding, dropout_attention, dropout_residual;
    double init_std;
    tl_source source_layers, source_width, source_heads, source_kv_heads, source_head_size, source_ff, source_vocab,
        source_context;
    int n_assumed; /* what the file left out: "num_key_value_heads absent: equal to heads, assumed from llama" */
    char assumed[TL_MODEL_NOTES][160];
    int n_ignored; /* what the file says that changes nothing in the account: "torch_dtype float16" */
    char ignored[TL_MODEL_NOTES][160];
    /* "", or what the file asks for that changes results but no account, and is not built in ("rope_scaling yarn"): such a
     * model is planned, and refused where values are: tl_net_new on a device that holds them, and with it training and loading. */
    char not_computed[160];
} tl_model;

/* Checks ranges, divisibility (heads by kv_heads; head_size even for rotary; D by H for gpt2) and overflow of the
 * products of sizes; the message names the field, the value and what would do. */
tl_status tl_model_check(const tl_model *model, tl_error *error) TL_MUST_CHECK;
const char *tl_family_name(tl_family family);

/* The built-in catalogue: a const table. */
int tl_catalogue_count(void);
/* Entry i; description is one line. */
const char *tl_catalogue_name(int index);
const char *tl_catalogue_note(int index);
/* The exact parameter count published with the model, or 0 where none or only a rounded one is; never computed. */
int64_t tl_catalogue_parameters(int index);
/* Where the row's shapes and count come from. */
const char *tl_catalogue_source(int index);
tl_status tl_catalogue_model(const char *name, tl_model *model,
                             tl_error *error) TL_MUST_CHECK; /* unknown: names the nearest */

#ifdef __cplusplus
}
#endif
#endif
