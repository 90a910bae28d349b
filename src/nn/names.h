/* nn/names.h: what a family's published checkpoints call the parts of a decoder. Module paths are the same without the prefix. */
#ifndef TALLY_NN_NAMES_H
#define TALLY_NN_NAMES_H

#include "nn/net.h"

/* How the rows of a fused query, key and value projection lie. */
typedef enum tl_fused {
    TL_FUSED_NONE,
    TL_FUSED_IN_TURN, /* all of q, all of k, all of v */
    TL_FUSED_BY_GROUP /* of each key/value head: its queries, its key, its value (BLOOM, GPT-NeoX: one query each) */
} tl_fused;

/* NULL: the family has no such part. Parts of a block are relative to it, parts of attention to `attention`, and so on; ""
 * says that a part is no module of its own. */
struct tl_names {
    const char *prefix; /* of every name but the head's: "model." */
    const char *layers; /* holds the blocks: "layers" */
    const char *embed;  /* the module in which embedding happens */
    const char *tokens, *positions, *embedding_norm, *final_norm;
    bool final_outside; /* final_norm stands beside the prefix, with the head */
    const char *head;   /* without the prefix */
    const char *norm_1, *norm_1_after, *norm_2, *norm_2_after;
    const char *attention, *q, *k, *v, *fused, *out, *q_norm, *k_norm;
    tl_fused layout;
    const char *mlp, *gate, *up, *gate_up, *down;
    const char *moe, *router, *shared; /* of layers with experts; parts of the shared expert as in the dense MLP */
    const char *expert_gate, *expert_up, *expert_gate_up, *expert_down;
    bool experts_apart;   /* published one by one */
    bool fused_rows;      /* fused: [E, out, in] as the others, else [E, in, out] */
    bool columns_in_turn; /* fused: gate and value column by column, else in halves */
    bool router_f32;      /* the router's product runs in f32, its weights' sum has 1e-20 added */
    bool transposed;      /* published [in, out] (GPT-2's Conv1D) */
    bool scaled_residual; /* projections back into the residual stream start smaller (GPT-2, section 2.3) */
    bool biased;          /* every linear layer of a block has a bias, whatever the description says */
    bool one_head_symbol; /* K is written D/H and G H where they are equal */
};

const tl_names *tl_names_of(const tl_model *model); /* NULL: not a decoder */
/* Whether the family's checkpoints have a name for all that the description asks for. `name`: fit to be printed. */
tl_status tl_names_check(const char *name, const tl_model *model, tl_error *error);
#define TL_MODEL_MOST_SIZE (INT64_C(1) << 40) /* no size of a model is larger */
/* Whether layers that read another's keys and values find one (tl_model_kv_source), and per-layer embeddings have sizes that can be
 * (nn/model_layers.c). */
tl_status tl_shared_check(const char *name, const tl_model *model, tl_error *error);
tl_status tl_layer_inputs_check(const char *name, const tl_model *model, tl_error *error);

#endif
