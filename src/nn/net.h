/* nn/net.h: what a family's file needs: parameters, module brackets, the layers both families share. */
#ifndef TALLY_NN_NET_H
#define TALLY_NN_NET_H

#include "tally/choices.h"
#include "tally/nn.h"
#include "tally/ops.h"

typedef struct tl_attention {
    tl_tensor *q, *k, *v; /* weights; gpt2: q is the fused [3D, D], k and v NULL */
    tl_tensor *q_bias, *k_bias, *v_bias;
    tl_tensor *out, *out_bias;
} tl_attention;

typedef struct tl_mlp {
    tl_tensor *up, *up_bias, *gate, *gate_bias, *down, *down_bias;
} tl_mlp;

typedef struct tl_norm {
    tl_tensor *gain, *bias; /* bias NULL: RMSNorm */
} tl_norm;

typedef struct tl_block {
    tl_norm norm_1, norm_2;
    tl_attention attention;
    tl_mlp mlp;
} tl_block;

typedef struct tl_family_code {
    const char *layers; /* module that holds the blocks: "h", "model.layers" */
    bool (*build)(tl_net *net);
    tl_tensor *(*hidden)(tl_net *net, tl_tensor *input); /* what the head reads: [B,T,D] after the final norm */
    tl_tensor *(*head)(tl_net *net, tl_tensor *hidden);  /* → logits; cruncher: the prediction */
    tl_tensor *(*loss)(tl_net *net, tl_tensor *output, tl_tensor *target);
} tl_family_code;

typedef struct tl_fp8_slot {
    tl_tensor *weight, *state;
    char *name; /* "h.0.attn.c_attn.fp8" */
} tl_fp8_slot;

/* tally/init.h says what each does; in the order of TL_INIT_NAMES. */
typedef enum tl_scheme_kind {
    TL_SCHEME_DEFAULT,
    TL_SCHEME_GPT2,
    TL_SCHEME_NORMAL,
    TL_SCHEME_TRUNCATED,
    TL_SCHEME_UNIFORM,
    TL_SCHEME_CS336,
    TL_SCHEME_XAVIER,
    TL_SCHEME_XAVIER_NORMAL,
    TL_SCHEME_KAIMING,
    TL_SCHEME_KAIMING_NORMAL,
    TL_SCHEME_ZEROS
} tl_scheme_kind;
typedef struct tl_init_scheme {
    tl_scheme_kind kind;
    double value;
} tl_init_scheme;

struct tl_net {
    tl_ctx *ctx;
    tl_model model;
    tl_init_scheme init;
    tl_symbols symbols;
    tl_dtype dtype;
    bool training;
    struct tl_cache *cache; /* while a forward runs through one: nn/cache.h; else NULL */
    tl_recompute recompute;
    tl_choices choices;
    const tl_family_code *code;
    tl_parameter *parameters;
    int count;
    int64_t capacity;
    tl_tensor **scales; /* NULL, or one a parameter: f32 [out] of an int8 weight, NULL of all others */
    tl_tensor *token_table, *position_table, *head; /* head NULL: tied */
    tl_block *blocks;
    tl_norm final_norm;
    struct tl_lora *lora; /* adapters and quantised weights: nn/lora.h; NULL: none */
    tl_fp8_slot *fp8;     /* of the layers whose products are computed in emulated float8 */
    int fp8_count, fp8_next;
    int64_t fp8_capacity;
};

extern const tl_family_code tl_family_gpt2, tl_family_llama, tl_family_cruncher;

/* How a parameter starts. */
typedef struct tl_start {
    enum { TL_START_ZERO, TL_START_ONE, TL_START_NORMAL } kind;
    double std;
} tl_start;

/* Makes, names, initialises and registers a parameter; kept by the net. NULL with the context's error. */
tl_tensor *tl_net_parameter(tl_net *net, const char *name, tl_shape shape, tl_start start, bool decay, bool embedding);
/* name: the whole path, e.g. "%s.%d.attn.c_attn.weight" is composed by the family. */
bool tl_net_norm(tl_net *net, tl_norm *norm, const char *path, bool bias);
/* A weight [out, in] and, if `bias`, a bias [out], named path.weight and path.bias. */
tl_tensor *tl_net_linear(tl_net *net, const char *path, tl_dim out, tl_dim in, double std, bool bias,
                         tl_tensor **bias_out);

/* Module brackets with a scope: enter; …; return tl_leave(net, result). */
void tl_enter_(tl_net *net, const char *name, int64_t index, const char *site);
#define tl_enter(net, name, index) tl_enter_((net), (name), (index), TL_HERE)
tl_tensor *tl_leave(tl_net *net, tl_tensor *result);

tl_tensor *tl_apply_norm(tl_net *net, const tl_norm *norm, const char *name, tl_tensor *x);
/* A linear layer as a module of its own, named as in the checkpoint: so the account tells q_proj from o_proj. */
tl_tensor *tl_apply_linear_(tl_net *net, const char *name, tl_tensor *x, tl_tensor *w, tl_tensor *bias,
                            const char *site);
#define tl_apply_linear(net, name, x, w, bias) tl_apply_linear_((net), (name), (x), (w), (bias), TL_HERE)
/* x·wᵀ + bias, in float8 where the net has a state for w: what tl_apply_linear computes. */
tl_tensor *tl_product_layer(tl_net *net, tl_tensor *x, tl_tensor *w, tl_tensor *bias, const char *site);
void tl_net_fp8_free(tl_net *net);
/* Causal attention of q[B,H,T,K] over k[B,G,T,K], v[B,G,T,L], as chosen (tl_choices.attention); → [B,T,H·L]. k and v join
 * the cache where there is one. */
typedef struct tl_attend_options {
    double scale;              /* 0: 1/√K */
    double softcap;            /* 0: none */
    int64_t window;            /* a row sees itself and window − 1 before it; 0: all */
    bool chunked;              /* the window is a chunk: a row sees its own chunk alone */
    tl_tensor *sinks, *slopes; /* [H]; NULL: none */
} tl_attend_options;
tl_tensor *tl_attend(tl_net *net, tl_tensor *q, tl_tensor *k, tl_tensor *v, const tl_attend_options *options);
/* Turns x[B,n,T,K] as the model says (tl_model.rope_…), computed or by tables as chosen. `local`: by rope_local_theta, unscaled. */
tl_tensor *tl_rotate(tl_net *net, tl_tensor *x, bool local);
/* Block `index` of x, checkpointed where the policy says so. */
typedef tl_tensor *tl_block_function(tl_net *net, const tl_block *block, tl_tensor *x);
tl_tensor *tl_apply_block(tl_net *net, int64_t index, tl_block_function *function, tl_tensor *x);
tl_tensor *tl_activate(tl_net *net, tl_tensor *x);
/* activation(gate)·up, composed or fused as chosen. */
tl_tensor *tl_gated(tl_net *net, tl_tensor *gate, tl_tensor *up);
tl_tensor *tl_dropout_if(tl_net *net, tl_tensor *x, double p, const char *name);
/* Cross-entropy of logits[B,T,V] against targets[B,T], phase loss. */
tl_tensor *tl_token_loss(tl_net *net, tl_tensor *logits, tl_tensor *target);
tl_tensor *tl_head(tl_net *net, tl_tensor *x);
/* The scales of an int8 weight; NULL for others. */
tl_tensor *tl_net_scale_of(const tl_net *net, const tl_tensor *weight);
/* The position of the first token of a forward: 0 without a cache. */
int64_t tl_first_position(const tl_net *net);
double tl_square_root(double x); /* no libm */

#endif
