/* nn/net.h: what a family's file needs: parameters, module brackets, the layers both families share. */
#ifndef TALLY_NN_NET_H
#define TALLY_NN_NET_H

#include "tally/choices.h"
#include "tally/nn.h"
#include "tally/ops.h"

typedef struct tl_names tl_names; /* nn/names.h */

/* LayerNorm or RMSNorm by kind; gain and bias are NULL where the kind has none. */
typedef struct tl_norm {
    tl_tensor *gain, *bias;
    tl_norm_kind kind; /* TL_NORM_OF_FAMILY: LayerNorm with a bias, else RMSNorm */
    double epsilon;    /* 0: the model's */
} tl_norm;

/* Weights are [out, in]. Fused: q is the projection of all three (nn/names.h says how its rows lie), k and v NULL. */
typedef struct tl_attention {
    tl_tensor *q, *k, *v;
    tl_tensor *q_bias, *k_bias, *v_bias;
    tl_tensor *out, *out_bias;
    tl_norm q_norm, k_norm; /* gain NULL: none */
    tl_tensor *sinks;
    tl_tensor *prefix, *prefix_gate;     /* a learned prompt [P, D] and its gate [H,1,1]: nn/prefix.c; NULL: none */
    tl_tensor *q_down, *kv_down, *kv_up; /* latent attention: q and kv_up read what these made narrow */
    tl_tensor *q_down_bias, *kv_down_bias;
    tl_norm q_down_norm, kv_norm;
    tl_dim G, K, L; /* this layer's key/value heads, and the sizes of a key and a value */
} tl_attention;

typedef struct tl_mlp {
    tl_tensor *up, *up_bias, *gate, *gate_bias, *down, *down_bias; /* fused: up is gate and up in turn */
} tl_mlp;

/* Mixture of experts. Weights are [E, out, in], biases [E, out]; fused ones [E, in, out] as their families publish them. */
typedef struct tl_experts {
    tl_tensor *router, *router_bias, *correction;
    tl_tensor *gate, *up, *down, *fused, *fused_bias, *down_bias;
    tl_mlp shared;
    tl_tensor *shared_gate;
    tl_tensor *router_scale,
        *expert_scale; /* Gemma 4: [D] of what the router reads, [E] of what it gives; NULL: none */
} tl_experts;

typedef struct tl_block {
    tl_norm norm_1, norm_1_after, norm_2, norm_2_after;
    tl_norm mlp_after, experts_before, experts_after; /* where experts run beside the MLP */
    tl_tensor *scalar;                                /* [1]; NULL: none */
    tl_tensor *own_gate, *own_projection;             /* of per-layer embeddings: nn/own.c; NULL: none */
    tl_norm own_after;
    tl_attention attention;
    tl_mlp mlp;
    tl_experts experts; /* router NULL: a dense layer */
    uint16_t layer;     /* TL_LAYER_… */
    int64_t kv_from;    /* the layer whose keys and values it reads; −1: its own */
    bool kv_given;      /* later layers read its own */
    tl_tensor *kept[2]; /* these, while a forward runs: kept */
} tl_block;

/* Every 2-D weight of a block; entries that it has not are NULL. The first, `products`, are computed in float8. */
enum { TL_BLOCK_WEIGHTS = 17, TL_BLOCK_PRODUCTS = 15 };
void tl_block_weights(tl_block *block, tl_tensor **at[TL_BLOCK_WEIGHTS]);

typedef struct tl_family_code {
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

/* The output projection belongs to the loss, a chunk of tokens at a time. */
static inline bool tl_loss_projects(tl_loss_code loss) {
    return loss != TL_LOSS_FULL && loss != TL_LOSS_FULL_FP32 && loss != TL_LOSS_LOG_SOFTMAX;
}

/* What a forward makes once for all layers, where chosen so; it lives until the next one or tl_net_let_go. */
typedef struct tl_rotary_table {
    tl_tensor *cosine, *sine; /* [T,R], each number once for both elements of a pair, in the net's format */
    bool local;
} tl_rotary_table;
typedef struct tl_mask {
    tl_tensor *tensor; /* [B,1,T,T] or [1,1,T,T]: 0 and −∞ */
    int64_t window;
    bool chunked;
} tl_mask;
enum { TL_TABLES = 4, TL_MASKS = 4, TL_LOSS_CHUNKS_MAX = 256 };

struct tl_net {
    tl_ctx *ctx;
    tl_model model;
    tl_init_scheme init;
    tl_symbols symbols;
    tl_dtype dtype;
    bool training;
    tl_tensor *positions;   /* of packed documents, borrowed; NULL: rows are whole */
    struct tl_cache *cache; /* while a forward runs through one: nn/cache.h; else NULL */
    tl_recompute recompute;
    tl_choices choices;
    const tl_family_code *code;
    tl_parameter *parameters;
    int count;
    int64_t capacity;
    tl_tensor **scales; /* NULL, or one a parameter: f32 [out] of an int8 weight, NULL of all others */
    const tl_names *names;
    tl_tensor *token_table, *position_table, *head, *head_bias; /* head NULL: tied */
    tl_tensor *embed_in, *embed_out; /* where embeddings have another width than the blocks */
    tl_tensor *own_table, *own_in;   /* per-layer embeddings: [Vl, N·Dl], and the projection [N·Dl, D]; NULL: none */
    tl_norm own_norm;
    tl_tensor *slopes; /* ALiBi's, f32 [H]; NULL: other positions */
    tl_block *blocks;
    tl_norm embedding_norm, final_norm;
    tl_rotary_table tables[TL_TABLES];
    tl_mask masks[TL_MASKS];
    int n_tables, n_masks;
    tl_tensor *held[TL_LOSS_CHUNKS_MAX]; /* logits that the training loop has in a variable: choices.hold_logits */
    int n_held;
    const char *fused_qkv; /* the name of the product of q, k and v in one; NULL: they are apart */
    struct tl_lora *lora;  /* adapters and quantised weights: nn/lora.h; NULL: none */
    tl_fp8_slot *fp8;      /* of the layers whose products are computed in emulated float8 */
    int fp8_count, fp8_next;
    int64_t fp8_capacity;
};

extern const tl_family_code tl_decoder, tl_family_cruncher;

/* How a parameter starts. */
typedef struct tl_start {
    enum { TL_START_ZERO, TL_START_ONE, TL_START_NORMAL } kind;
    double std;
} tl_start;

/* Makes, names, initialises and registers a parameter; kept by the net. NULL with the context's error. */
tl_tensor *tl_net_parameter(tl_net *net, const char *name, tl_shape shape, tl_start start, bool decay, bool embedding);
/* A norm over a last axis of `size`, of the model's kind (tl_norm_kind_of); its parameters are path.weight and path.bias. */
bool tl_net_norm(tl_net *net, tl_norm *norm, const char *path, tl_dim size);
tl_norm_kind tl_norm_kind_of(const tl_model *model);
tl_positions tl_positions_of(const tl_model *model);
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

/* ---- the parts of a decoder; `path` is the block's, "model.layers.3." ---- */
bool tl_attention_build(tl_net *net, tl_block *block, const char *path);
bool tl_latent_build(tl_net *net, tl_block *block, const char *path);
bool tl_mlp_build(tl_net *net, tl_mlp *mlp, const char *path, tl_dim width);
bool tl_experts_build(tl_net *net, tl_block *block, const char *path);
bool tl_embed_build(tl_net *net);
tl_tensor *tl_embed(tl_net *net, tl_tensor *tokens);
/* What a block reads beside the stream, and what of it later ones read. */
typedef struct tl_beside {
    tl_tensor *own; /* the layer's part of the per-layer embeddings [B,T,Dl]; NULL: none */
    /* Where the block has none: those it reads. Where it gives its own: made there, in the caller's scope. */
    tl_tensor *k, *v;
} tl_beside;
tl_tensor *tl_apply_attention(tl_net *net, const tl_block *block, tl_tensor *x, tl_beside *beside);
tl_tensor *tl_apply_latent(tl_net *net, const tl_block *block, tl_tensor *x);
/* Per-layer embeddings (nn/own.c): parameters of the net and of a block; each layer's part of them from the tokens and their
 * embeddings x; what a block adds to y. */
bool tl_own_build(tl_net *net);
bool tl_own_build_block(tl_net *net, tl_block *block, const char *path);
bool tl_own_inputs(tl_net *net, tl_tensor *tokens, tl_tensor *x, tl_tensor *own[TL_MODEL_LAYERS]);
tl_tensor *tl_own_add(tl_net *net, const tl_block *block, tl_tensor *y, tl_tensor *own);
/* Within the module of the MLP already. */
tl_tensor *tl_apply_mlp(tl_net *net, const tl_mlp *mlp, tl_tensor *x);
tl_tensor *tl_apply_experts(tl_net *net, const tl_block *block, tl_tensor *x);
/* Experts beside the dense MLP, from the residual stream to the sum's part. */
tl_tensor *tl_apply_experts_beside(tl_net *net, const tl_block *block, tl_tensor *x);
/* The standard deviation of a projection back into the residual stream. */
double tl_residual_std(const tl_net *net);
/* Enters a module of a name that may be "" or NULL, which is none: then only its scope. */
void tl_enter_part(tl_net *net, const char *name);
tl_tensor *tl_leave_part(tl_net *net, const char *name, tl_tensor *result);

/* x·wᵀ + bias, in float8 where the net has a state for w: what tl_apply_linear computes. */
tl_tensor *tl_product_layer(tl_net *net, tl_tensor *x, tl_tensor *w, tl_tensor *bias, const char *site);
void tl_net_fp8_free(tl_net *net);
/* Causal attention of q[B,H,T,K] over k[B,G,S,K], v[B,G,S,L], as chosen (tl_choices.attention); → [B,T,H·L]. S is T, or with a
 * cache all positions: tl_cache_append comes before. */
typedef struct tl_attend_options {
    double scale;       /* 0: 1/√K */
    double softcap;     /* 0: none */
    int64_t window;     /* a row sees itself and window − 1 before it; 0: all */
    bool chunked;       /* the window is a chunk: a row sees its own chunk alone */
    tl_tensor *sinks;   /* parameter [H]: a logit that joins the softmax's sum; NULL: none */
    tl_tensor *slopes;  /* [H] floats without a gradient, of ALiBi; NULL: none. Lives until backward */
    bool slopes_scaled; /* tl_model.alibi_scaled */
} tl_attend_options;
tl_tensor *tl_attend(tl_net *net, tl_tensor *q, tl_tensor *k, tl_tensor *v, const tl_attend_options *options);
/* Turns the first rotary_size (0, or beyond K: all) of x[B,n,T,K] as the model says (tl_model.rope_…), computed or by tables
 * as chosen. `local`: by rope_local_theta, unscaled. */
tl_tensor *tl_rotate(tl_net *net, tl_tensor *x, bool local);
/* Block `index` of x, checkpointed where the policy says so. */
typedef tl_tensor *tl_block_function(tl_net *net, const tl_block *block, tl_tensor *x, tl_beside *beside);
tl_block_function tl_decoder_block; /* every family's but cruncher's */
tl_tensor *tl_apply_block(tl_net *net, int64_t index, tl_block_function *function, tl_tensor *x, tl_beside *beside);
tl_tensor *tl_activate(tl_net *net, tl_tensor *x);
/* activation(gate)·up, composed or fused as chosen. */
tl_tensor *tl_gated(tl_net *net, tl_tensor *gate, tl_tensor *up);
tl_tensor *tl_dropout_if(tl_net *net, tl_tensor *x, double p, const char *name);
/* Cross-entropy of logits[B,T,V] against targets[B,T], phase loss. */
tl_tensor *tl_token_loss(tl_net *net, tl_tensor *logits, tl_tensor *target);
/* x·headᵀ + head_bias, softcapped where the model is (final_softcap). */
tl_tensor *tl_head(tl_net *net, tl_tensor *x);
/* Projection and loss of hidden[B,T,D] together, chunk after chunk of tokens: TL_LOSS_CHUNKED and TL_LOSS_FUSED. */
tl_tensor *tl_projected_loss(tl_net *net, tl_tensor *hidden, tl_tensor *target);
/* What the layers of a forward over tokens[B,T] share, as chosen; false with the context's error. */
bool tl_make_rotary_tables(tl_net *net, const tl_tensor *tokens);
void tl_free_rotary_tables(tl_net *net);
bool tl_make_masks(tl_net *net, const tl_tensor *tokens);
void tl_free_masks(tl_net *net);
/* The scales of an int8 weight; NULL for others. */
tl_tensor *tl_net_scale_of(const tl_net *net, const tl_tensor *weight);
/* The position of the first token of a forward: 0 without a cache. */
int64_t tl_first_position(const tl_net *net);
double tl_square_root(double x); /* no libm */
/* Why documents cannot be packed in a row, a clause of which the model is the subject; NULL: they can. */
const char *tl_net_not_packed(const tl_net *net);

#endif
