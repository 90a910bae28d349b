/* tally/choices.h: how a model is run. The mathematics is the description's (tally/model.h); frameworks differ in what they
 * fuse, keep, copy and cast, and that decides whether a run fits. Each choice is code over the same ops, on every device: a
 * plan runs it on meta, training runs it here. A zeroed struct is what tally does when nothing is said.
 */
#ifndef TALLY_CHOICES_H
#define TALLY_CHOICES_H

#include "tally/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tl_norm_code {
    TL_NORM_FUSED,    /* one op: keeps x and its statistics */
    TL_NORM_COMPOSED, /* RMSNorm as Hugging Face writes it: to f32, x², mean, + ε, rsqrt, product, back, gain: keeps each
                         product's factors. A LayerNorm has no composed form in frameworks and stays one op */
    TL_NORM_WIDE      /* the same with the gain before the way back, as CS336's handout has it */
} tl_norm_code;
typedef enum tl_attention_code {
    TL_ATTENTION_EAGER, /* scores, softmax, dropout and weighted sum as tensors: T×T is kept */
    TL_ATTENTION_FLASH, /* one op: keeps q, k, v, its result and one statistic a row (Dao et al. 2022) */
    TL_ATTENTION_MATH /* PyTorch 1.13's _scaled_dot_product_attention on a CPU: q scaled, products, mask added, softmax */
} tl_attention_code;
typedef enum tl_softmax_code {
    TL_SOFTMAX_FUSED, /* one op: keeps its result */
    TL_SOFTMAX_COMPOSED /* largest, difference, exp, sum, division, as CS336's handout has it: keeps the place of the largest, exp's
                           result and the sum; the quotient is kept by the product with v */
} tl_softmax_code;
typedef enum tl_glu_code {
    TL_GLU_COMPOSED, /* activation, product: keeps gate, activation, up */
    TL_GLU_FUSED     /* one op: keeps gate and up alone */
} tl_glu_code;
typedef enum tl_gelu_code {
    TL_GELU_FUSED, /* one op: keeps its input */
    TL_GELU_COMPOSED /* 0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))) operation by operation (Hugging Face's gelu_new) */
} tl_gelu_code;
typedef enum tl_silu_code {
    TL_SILU_FUSED,   /* one op: keeps its input */
    TL_SILU_COMPOSED /* x·σ(x): keeps x and σ(x) */
} tl_silu_code;
typedef enum tl_rotary_code {
    TL_ROTARY_COMPUTED, /* one op; angles are computed where they are used: keeps nothing */
    TL_ROTARY_TABLES /* cosines and sines as tensors made once a step; x·cos + turned(x)·sin: keeps the tables, copies x */
} tl_rotary_code;
typedef enum tl_loss_code {
    TL_LOSS_FULL,      /* logits of all tokens in the run's format; cross-entropy keeps them and two statistics a row */
    TL_LOSS_FULL_FP32, /* logits cast to f32 first (Hugging Face's logits.float()), log softmax kept */
    TL_LOSS_CHUNKED, /* output projection and loss together, chunk after chunk of tokens, each recomputed in backward */
    TL_LOSS_FUSED,   /* projection and loss in one op that makes the gradients at once, chunk after chunk (Liger, Cut
                        Cross-Entropy): no logits live beyond a chunk */
    TL_LOSS_LOG_SOFTMAX, /* PyTorch's cross_entropy of logits as they come: log softmax in their format is kept */
    TL_LOSS_CHUNKS_KEPT, /* as chunked, but each chunk's logits are kept and not computed again (torchtune) */
    TL_LOSS_CHUNKS_FP32 /* the same with PyTorch's cross_entropy of a chunk's logits in f32: its log softmax is kept (LitGPT) */
} tl_loss_code;
typedef enum tl_experts_code {
    TL_EXPERTS_DROPLESS, /* tokens sorted by expert, one grouped product: exact for any routing */
    TL_EXPERTS_CAPACITY  /* a fixed number of tokens an expert; those beyond are dropped (GShard, Switch) */
} tl_experts_code;
typedef enum tl_grads_code {
    TL_GRADS_AS_PARAMETERS, /* in the parameters' format */
    TL_GRADS_F32 /* an f32 buffer a parameter that lives from step to step; 16-bit gradients are added into it
                               (Megatron's main gradients) */
} tl_grads_code;
typedef enum tl_update_code {
    TL_UPDATE_FUSED,  /* one pass a parameter, no temporaries */
    TL_UPDATE_TENSOR, /* operation by operation, parameter after parameter: temporaries of the largest */
    TL_UPDATE_FOREACH /* operation by operation over all parameters at once (torch._foreach): temporaries of all */
} tl_update_code;

#define TL_LOSS_CHUNKS_DEFAULT 8

typedef struct tl_choices {
    tl_norm_code norm;
    tl_attention_code attention;
    tl_glu_code glu;
    tl_gelu_code gelu;
    tl_silu_code silu;
    tl_rotary_code rotary;
    tl_loss_code loss;
    int64_t loss_chunks; /* of chunked and fused; 0: TL_LOSS_CHUNKS_DEFAULT */
    bool repeat_kv;      /* keys and values copied to every query head before the products; else read in place */
    bool
        attention_copies; /* eager: q, kᵀ and v made contiguous for the batched product, as torch.matmul does with views */
    tl_softmax_code softmax; /* of eager */
    bool softmax_fp32;       /* eager: 16-bit scores cast to f32, softmax, cast back (Hugging Face) */
    bool mask_tensor;        /* eager: an additive mask [B,1,T,T] is a tensor; else the softmax op knows causality */
    /* Eager with mask_tensor: the larger of masked scores and the format's lowest number, which keeps them (Hugging Face's Llama
     * until June 2023). */
    bool clamp_scores;
    int dropout_mask_bytes; /* an element: 1 (also 0), or 2 or 4 where a framework keeps the mask in the run's format */
    bool
        mean_input; /* norms composed: the mean keeps x² to ask for its size later, as PyTorch did (1.13) and no longer does */
    tl_experts_code experts;
    double capacity_factor; /* of TL_EXPERTS_CAPACITY; 0: 1 */
    tl_grads_code grads;
    tl_update_code update;
    /* Positions and attention begin anew with each document of a packed row: training's batches have positions (tl_batch), one
     * i32 a token more. */
    bool documents;
    bool update_in_backward; /* each parameter is stepped and its gradient let go as soon as it is whole */
    /* A later gradient of a parameter is made as a tensor and added, as PyTorch does; else products add into it. */
    bool grads_apart;
    bool
        hold_logits; /* the f32 logits of the loss live until the next forward, as in a loop that has them in a variable */
    bool offload;    /* the inputs of checkpointed layers lie in the host's memory until backward */
    /* Of adapters and their base: the fields of these names in tl_lora_options (tally/lora.h). */
    bool adapters_f32; /* adapters of a 16-bit run in f32 (peft's autocast_adapter_dtype); x is cast for them */
    bool base_head; /* a quantised base: the output projection too (every nn.Linear); it must not be the token table */
    bool base_by_f16;      /* NF4 is written out by way of f16: tl_nf4 */
    bool base_keeps_input; /* a quantised product keeps its input for backward, as bitsandbytes' MatMul4Bit does */
} tl_choices;

/* Every choice by name: for options, tables of engines, and reports. Text both ways: "norm=composed,loss=chunked:16". */
typedef struct tl_choice {
    const char *name;   /* "norm", as in --norm */
    const char *values; /* "fused|composed" */
    const char *what;   /* one line for people */
} tl_choice;
int tl_choice_count(void);
const tl_choice *tl_choice_at(int index);
/* Sets one choice from its text; the message names the values that would do. Pure but for *choices. */
tl_status tl_choice_set(tl_choices *choices, const char *name, const char *value, tl_error *error) TL_MUST_CHECK;
/* The value of one choice as typed: "chunked:16". `buffer` or a constant. */
const char *tl_choice_value(const tl_choices *choices, int index, char *buffer, size_t size);
/* "norm=composed,loss=chunked:16" onto *choices; a name twice is an error; on an error *choices stays as it was. And back: those
 * that are no defaults, "" where all are. */
tl_status tl_choices_parse(const char *text, tl_choices *choices, tl_error *error) TL_MUST_CHECK;
#define TL_CHOICES_TEXT 640
char *tl_choices_text(const tl_choices *choices, char *buffer, size_t size);
/* Those that are not as in `base`. */
char *tl_choices_difference(const tl_choices *base, const tl_choices *choices, char *buffer, size_t size);
bool tl_choice_is_default(const tl_choices *choices, int index);
/* Why choice `index`, other than its default, changes nothing for a model beside the other choices: a clause of which the model is
 * the subject ("its norms are LayerNorms, which …"). NULL: it changes something, or it is the default. Pure; static text. */
struct tl_model;
const char *tl_choice_effect(const struct tl_model *model, const tl_choices *choices, int index);

#ifdef __cplusplus
}
#endif
#endif
