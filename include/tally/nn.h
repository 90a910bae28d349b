/* tally/nn.h: models as code. A net is built from a description and runs on any device; planning a model is running it
 * on meta. Modules follow the names of the published checkpoints ("h.3.attn.c_attn.weight", "model.layers.3.mlp…").
 */
#ifndef TALLY_NN_H
#define TALLY_NN_H

#include "tally/choices.h"
#include "tally/model.h"
#include "tally/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tl_parameter {
    const char *name;
    tl_tensor *tensor; /* owned by the net */
    bool decay;        /* weight decay applies: matrices and embeddings, not norms and biases */
    bool embedding;    /* token or position table, or an untied output head: outside "non-embedding" */
    bool linear;       /* the weight of a linear layer of a block: what tl_apply_linear multiplies by */
    bool experts;      /* the weights of all experts of a layer, [E, out, in] */
    bool turned;       /* these are [E, in, out], as their family publishes them */
    bool frozen;       /* no gradient, no master copy, no states, no update: the base under adapters (tally/lora.h) */
    bool adapter;      /* A or B of an adapter: no published file has it. Behind all others */
    const tl_shape *full; /* NULL, or the shape of the weight that a quantised tensor stands for (tally/lora.h) */
} tl_parameter;

typedef struct tl_net tl_net;

/* Builds and initialises (phase init; streams by parameter name, so that any order initialises alike). `dtype` of the
 * parameters and activations: f64, f32, bf16 or f16. NULL with the context's error. The net lives in the context and must
 * be freed before it. */
tl_net *tl_net_new(tl_ctx *ctx, const tl_model *model, tl_dtype dtype);
void tl_net_free(tl_net *net);
const tl_model *tl_net_model(const tl_net *net);
int tl_net_parameters(const tl_net *net, const tl_parameter **list);
tl_tensor *tl_net_find(const tl_net *net, const char *name); /* borrowed; NULL if there is none */

/* Parameters, counted from the tensors: unique; with a tied head counted a second time; without embeddings, positions
 * and head (Kaplan et al. 2020; with per-layer embeddings what Gemma's cards call effective); and active, those a token passes:
 * of routed experts the k of E that it is sent to, all else whole (the "A3B" of Qwen3-30B-A3B). Equal to unique in a dense
 * model. */
typedef struct tl_parameter_count {
    int64_t unique, untied, non_embedding, active;
} tl_parameter_count;
void tl_net_count(const tl_net *net, tl_parameter_count *count);
/* Those that are not frozen; tl_net_count has them too. */
int64_t tl_net_count_trainable(const tl_net *net);

/* Turns dropout on (training) or off. Off in a new net. */
void tl_net_train(tl_net *net, bool on);

/* What backward computes again instead of keeping it (tl_checkpoint of tally/grad.h). */
typedef enum tl_recompute_kind {
    TL_RECOMPUTE_NONE,
    TL_RECOMPUTE_SELECTIVE, /* the attention core alone: scores, softmax, dropout, weighted sum (Korthikanti et al. 2022,
                               "Reducing activation recomputation in large transformer models", section 5) */
    TL_RECOMPUTE_FULL,      /* every block: kept is its input (the same, section 4) */
    TL_RECOMPUTE_EVERY      /* every k-th block, from the first: those whose index is a multiple of `every` */
} tl_recompute_kind;
typedef struct tl_recompute {
    tl_recompute_kind kind;
    int64_t every; /* TL_RECOMPUTE_EVERY: 1 (the same as full) and up; else 0 */
} tl_recompute;
/* None in a new net. Values and gradients keep their bits whatever the choice. A model without blocks refuses all but
 * none: they would change nothing. */
tl_status tl_net_recompute(tl_net *net, tl_recompute recompute) TL_MUST_CHECK;
/* "none", "selective", "full" or "every:4", as typed. */
char *tl_recompute_text(tl_recompute recompute, char *buffer, size_t size);
tl_status tl_recompute_parse(const char *text, tl_recompute *recompute, tl_error *error) TL_MUST_CHECK;

/* How the layers are run (tally/choices.h), from now on; a new net runs as a zeroed struct says. TL_ERR_UNSUPPORTED, naming choice
 * and model, where a choice cannot hold for the model. */
tl_status tl_net_choose(tl_net *net, const tl_choices *choices) TL_MUST_CHECK;
const tl_choices *tl_net_choices(const tl_net *net);
/* Lets go of what a recorded forward made once for all its layers (rotary tables, mask tensors), when its backward is done. The next
 * forward and tl_net_free do so too. */
void tl_net_let_go(tl_net *net);

/* Packed documents: from now on the tokens' positions i32 or i64 [B,T], counted from 0 in each document of a row (borrowed through
 * backward; NULL: rows are whole, as in a new net). Learned positions are looked up by them, and a row sees its own
 * document alone: the losses are those of the documents one by one. Rotary and ALiBi positions know differences alone, which stay.
 * TL_ERR_UNSUPPORTED: layers that see chunks of a row (Llama 4), ALiBi rounded to bf16 (Falcon). */
tl_status tl_net_documents(tl_net *net, tl_tensor *positions);

/* tokens i32 or i64 [B,T] → logits [B,T,V]; cruncher: x [B,D] → [B]. T beyond the learned positions is an error. */
tl_tensor *tl_net_forward(tl_net *net, tl_tensor *input);
/* Mean loss: cross-entropy over targets [B,T] (−100 is ignored); cruncher: squared error against [B]. Sets the phases
 * forward and loss. */
tl_tensor *tl_net_loss(tl_net *net, tl_tensor *input, tl_tensor *target);
#define TL_IGNORE_INDEX (-100)

/* ---- emulated float8 (tally/ops_fp8.h): the linear layers of the blocks round their inputs, weights and output gradients;
 * embeddings, norms, attention's own products and the head do not, as Transformer Engine replaces linear layers alone ---- */
/* From now on; makes the states (category optim, phase init), one a layer, booked where its weight is. */
tl_status tl_net_use_fp8(tl_net *net) TL_MUST_CHECK;
int tl_net_fp8_states(const tl_net *net);
/* State k and its name ("h.0.attn.c_attn.fp8"; name may be NULL); NULL beyond the last. Borrowed. */
tl_tensor *tl_net_fp8_state(const tl_net *net, int k, const char **name);
/* The end of a step: new scales from the histories. Call it with recording off. */
tl_status tl_net_fp8_roll(tl_net *net) TL_MUST_CHECK;
/* Whether products booked in a module of this pattern ("h.*.attn.c_attn") are such a layer's. */
bool tl_net_is_fp8_layer(const tl_net *net, const char *pattern);

/* The symbols of a model as dims of a context: what its shapes are made of. */
typedef struct tl_symbols {
    tl_dim N, D, H, G, K, F, V, C;
    tl_dim E, k, Fe, Fs; /* experts, those of a token, their feed-forward size, that of the shared ones together */
    tl_dim R;            /* of K, what rotary positions turn, where it is a part */
    tl_dim Rq, Rkv, Kn, Kr, Kv; /* latent attention: ranks; a key's still and turning part; a value */
    tl_dim Gg, Kg;              /* G and K of Gemma 4's global layers */
    tl_dim De;                  /* width of the embeddings where it is another than D */
    tl_dim Dl, Vl;              /* per-layer embeddings: width of a layer's, and their vocabulary */
} tl_symbols;
const tl_symbols *tl_net_symbols(const tl_net *net);

#ifdef __cplusplus
}
#endif
#endif
