/* tally/lora.h: finetuning with low-rank adapters (Hu et al. 2021, "LoRA") over frozen weights that may be kept in 4 or 8 bits
 * (Dettmers et al. 2023, "QLoRA").
 *
 * A linear layer that is a target computes
 *     y = base(x) + B·(alpha/rank·A·dropout(x)),    A [rank, in], B [out, rank]
 * A starts Kaiming uniform with a = √5 (±1/√in) and B as zeros, as peft and torchtune do, so that a new net computes what its
 * base does. Names as peft writes them: "model.layers.0.self_attn.q_proj.lora_A.weight". All other parameters are frozen: no
 * gradient, no master copy, no optimizer state, and their layers keep nothing for their sake.
 *
 * The experts of a layer are one parameter, [E, out, in] or as their family publishes it [E, in, out]; as a target it has A
 * [E, rank, in] and B [E, out, rank], an adapter for each expert, whose rows are multiplied by it (torchtune's
 * LoRAGroupedExperts, prime-rl's; the same mathematics as peft's target_parameters, which writes the sum of weights out).
 *
 * The base of every linear layer of the blocks and of the experts, target or not, may be kept quantised; embeddings, norms and
 * biases stay as they are, and the head unless base_head says otherwise. Experts are quantised along the flattened parameter.
 */
#ifndef TALLY_LORA_H
#define TALLY_LORA_H

#include "tally/nn.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tl_lora_base {
    TL_LORA_PLAIN,    /* in the net's format */
    TL_LORA_INT8,     /* one f32 scale an output (tl_linear_int8): 1 + 4/in bytes a weight */
    TL_LORA_NF4,      /* tally/ops_nf4.h: 0.5 + 4/64 bytes a weight */
    TL_LORA_NF4_TWICE /* double quantisation: 0.5 + 1/64 + 4/(64·256) bytes a weight, and 4 a matrix */
} tl_lora_base;
const char *tl_lora_base_name(tl_lora_base base); /* "plain" "int8" "nf4" "nf4-dq" */

#define TL_LORA_TARGETS 256 /* bytes of a list of names */
typedef struct tl_lora_options {
    int64_t rank;   /* 0: no adapters, everything is trained */
    double alpha;   /* 0: twice the rank, as QLoRA's and torchtune's recipes */
    double dropout; /* of the adapters' input, while training; 0 ≤ p < 1 */
    /* Names of layers, separated by commas: their last part ("q_proj", experts' "w1", the head's "lm_head"), or of all in the
     * blocks "all-linear", of a block's attention "attention", of its other part "mlp", experts with it. NULL or "": q_proj and
     * v_proj; where a model has one product for q, k and v, that one; else "attention". A name that no layer has is an error that
     * lists those there are. Borrowed until the net is made. */
    const char *targets;
    /* Names of modules that are trained in full beside the adapters, as peft's modules_to_save: their last part ("embed_tokens",
     * "lm_head", "norm"). NULL or "": none. Not what is quantised or has adapters. Borrowed until the net is made. */
    const char *trained;
    tl_lora_base base;
    /* base_head, base_by_f16, base_keeps_input and adapters_f32 are choices too (tally/choices.h): a trainer's or a plan's set them
     * beside what is said here.
     *
     * The output projection's weight is kept so too (bitsandbytes' replacement of every nn.Linear, as LitGPT has it); it must not
     * be tied to the embeddings. */
    bool base_head;
    bool base_by_f16;      /* NF4 is written out by way of f16: tl_nf4 */
    bool base_keeps_input; /* a quantised product keeps its input for backward, as bitsandbytes' MatMul4Bit does */
    /* LitGPT's LoRAQKVLinear, on a product of q, k and v in one (lit_gpt/lora.py): A [2r, D] and B [q + v rows, r] adapt q and v
     * alone; B's result is put among zeros by index_copy, which keeps its source. Other layers have none. */
    bool merged_qv;
    /* LLaMA-Adapter (Zhang et al. 2023) in place of low rank: `prefix` learned rows in each layer from `prefix_from` on, and with
     * `scales` (its V2, Gao et al. 2023) norms and a bias and a scale of every linear layer's output. rank is 0 then. */
    int64_t prefix, prefix_from;
    bool scales;
    bool adapters_f32; /* adapters of a 16-bit net in f32; x is cast for them and their product back */
} tl_lora_options;

/* TL_ERR_ARGUMENT for numbers that cannot be; targets are looked at when the net is made. */
tl_status tl_lora_check(const tl_lora_options *options, tl_error *error) TL_MUST_CHECK;

/* A net whose weights are quantised one by one as they are made, so that no more than one of them is there in full. Otherwise
 * as tl_net_new_as; options NULL or of rank 0: the same. */
tl_net *tl_net_new_lora(tl_ctx *ctx, const tl_model *model, tl_dtype dtype, const char *init,
                        const tl_lora_options *options);
/* The same to a net that is there: its weights are quantised, one at a time (a value that is not finite is an error that names
 * the parameter), and the adapters added behind its parameters. The list of tl_net_parameters changes: an optimizer comes after.
 * After an error the net may be quantised in part. */
tl_status tl_net_use_lora(tl_net *net, const tl_lora_options *options) TL_MUST_CHECK;
/* NULL: the net has no adapters. `alpha` and `targets` are what was meant by their defaults. */
const tl_lora_options *tl_net_lora(const tl_net *net);
int tl_net_lora_layers(const tl_net *net); /* linear layers with adapters */

/* The last parts of the names of layers that adapters are for and that have none, each once and with commas: "k_proj, lm_head".
 * Returns how many. */
int tl_net_lora_rest(const tl_net *net, char *names, size_t size);

/* W + alpha/rank·B·A in place of the base weights, computed in f32 (f64 for f64) and rounded once to the net's format; a
 * quantised base is written out for it, which takes the net's full size from then on. The adapters are let go, and the net is a
 * plain one whose parameters can all be trained. Free an optimizer over it before. */
tl_status tl_net_merge_lora(tl_net *net) TL_MUST_CHECK;

/* Tensor k that parameter `index` is kept with beside its own: the scales of a quantised weight. *suffix (may be NULL) names it:
 * "scale"; "absmax"; "absmax", "nested_absmax", "nested_mean". NULL beyond the last. Borrowed. */
tl_tensor *tl_net_quantization(const tl_net *net, int index, int k, const char **suffix);
/* Quantises `weight` (in its full shape) into the quantised parameter `index`, in place of what it held. */
tl_status tl_net_requantize(tl_net *net, int index, tl_tensor *weight) TL_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
