/* nn/lora.h: adapters and frozen bases of a net, for the files of this layer. */
#ifndef TALLY_NN_LORA_H
#define TALLY_NN_LORA_H

#include "nn/net.h"
#include "tally/lora.h"

/* A linear layer that is quantised, has adapters, or both. */
typedef struct tl_lora_slot {
    tl_tensor *weight;          /* the parameter's handle: it stays the same, what it holds becomes packed */
    int parameter;              /* its place in the net's list */
    tl_lora_base kind;          /* TL_LORA_PLAIN: not quantised */
    tl_shape shape;             /* [out, in]; experts' [E, out, in], or turned */
    bool experts, turned;       /* of tl_parameter */
    tl_tensor *scale[3];        /* int8: scale a row; nf4: absmax; twice: codes, outer, mean. Kept */
    tl_tensor *a, *b;           /* NULL: no target. The net's parameters */
    tl_tensor *shift, *stretch; /* of the output, [out]: stretch·(y + shift); NULL: none */
} tl_lora_slot;

struct tl_lora {
    tl_lora_options options;
    char targets[TL_LORA_TARGETS], trained[TL_LORA_TARGETS];
    tl_lora_slot **slots;
    int count, next, layers;
    int64_t capacity;
};

/* ---- lora_base.c ---- */
/* The slot of a weight; made if `make`. NULL: none, or the context's error. */
tl_lora_slot *tl_lora_slot_of(tl_net *net, const tl_tensor *weight, bool make);
/* Right after parameter `index`, a linear layer's weight, was made: quantises it where the net's options say so. */
bool tl_lora_settle(tl_net *net, int index);
/* The same for all experts' weights of a layer. */
bool tl_lora_settle_experts(tl_net *net, int index, bool turned);
/* For a parameter that was settled when there was nothing to be quantised yet. */
bool tl_lora_settle_again(tl_net *net, int index);
/* The same for the output projection, which is quantised only where the options say so. */
bool tl_lora_settle_head(tl_net *net, int index);
/* The weight of a slot in full, as `dtype`, in the current scope; of a plain one itself, cast. */
tl_tensor *tl_lora_full(tl_net *net, const tl_lora_slot *slot, tl_dtype dtype);
/* The parameter holds `full` from now on, in the net's format, and its scales are let go. */
bool tl_lora_unpack(tl_net *net, tl_lora_slot *slot, tl_tensor *full);
/* x times the weight of a slot. */
tl_tensor *tl_lora_base_layer(tl_net *net, const tl_lora_slot *slot, tl_tensor *x, tl_tensor *bias, const char *site);
/* Rows of experts times the weights of a slot. */
tl_tensor *tl_lora_base_experts(tl_net *net, const tl_lora_slot *slot, tl_tensor *x, tl_tensor *bias,
                                tl_tensor *offsets, const char *site);
void tl_net_lora_free(tl_net *net);

/* ---- lora_targets.c ---- */
/* How much of a weight's name is its module's: without ".weight" where it ends so. */
int tl_lora_module_length(const char *weight);
/* Fills in the default targets and checks all names; false with the context's error, which lists those there are. */
bool tl_lora_check_names(tl_net *net);
bool tl_lora_is_target(const tl_net *net, const tl_parameter *p);
bool tl_lora_is_trained(const tl_net *net, const tl_parameter *p);

/* ---- quantize.c ---- */
/* The i8 and scales of a weight, both kept, of category param; `name` for messages. */
bool tl_net_int8_of(tl_net *net, const char *name, tl_tensor *weight, tl_tensor **q, tl_tensor **scale);

/* ---- prefix.c ---- */
bool tl_prefix_finish(tl_net *net);
/* mixed[B,T,H·K], attention's result, and what q[B,H,T,K] finds in the block's learned prompt. */
tl_tensor *tl_prefix_attend(tl_net *net, const tl_attention *a, tl_tensor *q, tl_tensor *mixed);
/* y as the slot's shift and stretch have it; takes y where they are there. */
tl_tensor *tl_scaled_output(const tl_lora_slot *slot, tl_tensor *y, const char *site);

/* ---- lora.c ---- */
typedef enum tl_lora_start { TL_LORA_UNIFORM, TL_LORA_ZEROS, TL_LORA_ONES } tl_lora_start;
/* "<layer of weight>.<which>.weight" behind the net's parameters, trained. */
tl_tensor *tl_lora_parameter(tl_net *net, const char *weight, const char *which, tl_shape shape, tl_lora_start start);
bool tl_lora_begin(tl_net *net, const tl_lora_options *options);
/* All parameters are there: adapters to the targets, everything else frozen. */
bool tl_lora_finish(tl_net *net);
/* y plus what the slot's adapters make of x; offsets NULL: a linear layer. */
tl_tensor *tl_lora_add(tl_net *net, const tl_lora_slot *slot, tl_tensor *y, tl_tensor *x, tl_tensor *offsets,
                       const char *site);
/* A linear layer of a net with adapters: what tl_apply_linear computes. */
tl_tensor *tl_lora_layer(tl_net *net, tl_tensor *x, tl_tensor *w, tl_tensor *bias, const char *site);

#endif
