/* tally/explain.h: numbers opened up into formulas. Every term is a sum over what a run on meta booked: parameters, ops or
 * live storages, folded over layers and micro-batches. Each formula is evaluated and compared with the ledger where it is
 * made; one that differs is an error (TL_ERR_STATE) and never an answer.
 */
#ifndef TALLY_EXPLAIN_H
#define TALLY_EXPLAIN_H

#include "tally/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TL_EXPLAIN_PARTS 6

/* One line of a derivation: what one kind of op in one kind of module sums up to. Polynomials belong to the run. */
typedef struct tl_explain_term {
    const char
        *group; /* CS336's parts: "qkv", "scores+AV", "out", "ffn", "head"; and "embedding", "norms", "loss", … */
    char pattern[96]; /* "h.*.attn.c_attn"; parameters: "h.*.attn.c_attn.weight"; "" at the top */
    const char *what; /* the op, the category of bytes, or "" for parameters */
    const tl_poly *formula;
    tl_u128 value;
    /* The same unexpanded: equal iterations folded, odd ones apart: (N − 1) × […] + last N […]. 0 parts: more than
     * TL_EXPLAIN_PARTS, or none needed. */
    tl_fold_term part[TL_EXPLAIN_PARTS];
    int n_parts;
} tl_explain_term;

typedef struct tl_explain_sum {
    const tl_plan_run *run;
    tl_explain_term *term; /* in the order they first occurred */
    int count;
    int64_t capacity;
    const tl_poly *formula; /* their sum */
    tl_u128 value;
} tl_explain_sum;
void tl_explain_free(tl_explain_sum *sum);
/* TL_OK if the formula evaluates to `value`; else the error says both. `name` says of what. */
tl_status tl_explain_check(const tl_plan_run *run, const char *name, const tl_poly *formula, tl_u128 value,
                           tl_error *error) TL_MUST_CHECK;

/* Parameters by name, each tensor once. */
tl_status tl_explain_params(const tl_plan_run *run, tl_explain_sum *sum, tl_error *error) TL_MUST_CHECK;

typedef enum tl_explain_count {
    TL_EXPLAIN_MATMUL,
    TL_EXPLAIN_MATMUL_CAUSAL,
    TL_EXPLAIN_ARITHMETIC,
    TL_EXPLAIN_SPECIAL
} tl_explain_count;
/* Counts of one step on one device. TL_PHASE_FORWARD includes the loss; TL_PHASE_ALL is the whole step. They are the
 * model's: what is computed again for backward is left out. */
tl_status tl_explain_flops(const tl_plan_run *run, tl_phase phase, tl_explain_count which, tl_explain_sum *sum,
                           tl_error *error) TL_MUST_CHECK;
/* What is computed again for backward in a step: with tl_explain_flops of TL_PHASE_ALL all that is executed. */
tl_status tl_explain_recomputed(const tl_plan_run *run, tl_explain_count which, tl_explain_sum *sum,
                                tl_error *error) TL_MUST_CHECK;

/* The live set at the peak of a phase (TL_PHASE_ALL: of the step): by category, and for saved and work by module. */
tl_status tl_explain_memory(const tl_plan_run *run, tl_phase phase, tl_explain_sum *sum, tl_error *error) TL_MUST_CHECK;

/* The terms of `sum` added up by group (or, for memory, by category); same total. */
tl_status tl_explain_grouped(const tl_explain_sum *sum, tl_explain_sum *groups, tl_error *error) TL_MUST_CHECK;
/* The group of a module path or parameter name; "other" where none is known. */
const char *tl_explain_group(const char *path);

/* How FLOPs of a step differ from 6·P·tokens: products without a parameter (attention) come on top, parameters in no
 * product (look-ups, norms, biases) were counted there in vain. flops = six + attention − idle. */
typedef struct tl_explain_six {
    tl_u128 six, attention, idle;
    const tl_poly *six_formula, *attention_formula, *idle_formula;
} tl_explain_six;
tl_status tl_explain_six_of(const tl_explain_sum *flops, const tl_explain_sum *params, tl_explain_six *six,
                            tl_error *error) TL_MUST_CHECK;

/* Where another moment takes over the peak as one size changes: found by running meta again, never by extrapolation. */
typedef struct tl_explain_moment {
    tl_phase phase;
    char pattern[96]; /* of the module at work: "h.*.attn" */
    char op[32];
} tl_explain_moment;
typedef struct tl_explain_swap {
    bool found;
    const char *symbol; /* "T" or "B" */
    int64_t from, to;   /* neighbouring sizes: at `from` the peak stands where it stands now, at `to` at `other` */
    tl_explain_moment now, other;
    int64_t lowest[2], highest[2]; /* the smallest and largest T and B tried */
} tl_explain_swap;
#define TL_EXPLAIN_SWAP_LIMIT 1000000
/* `phases`: where another phase takes over; `moments`: where another phase, module or op does. Either may be NULL. T is tried
 * first, then B, each up to the limit (T up to a learned context) and down to 1. */
tl_status tl_explain_swap_find(const tl_plan_options *options, tl_explain_swap *phases, tl_explain_swap *moments,
                               tl_error *error) TL_MUST_CHECK;
/* Where the peak of a phase (TL_PHASE_ALL: of the step) stands. */
void tl_explain_moment_of(const tl_plan_run *run, tl_phase phase, tl_explain_moment *moment);

/* ---- CS336, assignment 1, problem adamwAccounting (handout v1.0.2), fp32 ----
 * Activations by the handout's list: outputs of RMSNorms, QKV, QKᵀ, softmax, AV, output projection, W1, SiLU, W2, final
 * norm and output embedding, and cross-entropy counted as one more copy of the logits. The list has no gate, so it is read
 * off a run of the same model with a two-matrix feed-forward; the parameters are the model's own and, beside them, that
 * run's. */
typedef struct tl_explain_adamw {
    tl_plan_run run;     /* of the model itself, batch 1, fp32, CS336's AdamW */
    tl_plan_run ungated; /* of its ungated twin; the same shapes where the model has no gate */
    bool has_gate;
    tl_explain_sum params, params_ungated;      /* elements */
    tl_explain_sum activations;                 /* elements, of `ungated`; batch 1 */
    tl_explain_sum step;                        /* arithmetic FLOPs of one optimizer step */
    int64_t step_each;                          /* … per parameter */
    tl_u128 per_sequence, fixed, fixed_ungated; /* bytes: a, b and b with the twin's parameters */
    tl_u128 forward, forward_ungated;           /* matmul FLOPs of one sequence, forward */
    tl_u128 flops, flops_ungated;               /* forward and backward */
    int64_t peak_bytes;                         /* our own ledger's, batch 1 */
    int64_t capacity[2];                        /* 80e9 and 80 GiB */
    int64_t batch[2], batch_ungated[2];         /* the handout's largest batch in each */
    int64_t batch_ledger[2];                    /* our own: the largest whose peak fits; 0: none */
} tl_explain_adamw;
tl_status tl_explain_adamw_make(const tl_plan_options *options, tl_explain_adamw *adamw, tl_error *error) TL_MUST_CHECK;
void tl_explain_adamw_free(tl_explain_adamw *adamw);

#ifdef __cplusplus
}
#endif
#endif
