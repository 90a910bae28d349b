/* tally/ops_moe.h: what a layer of a mixture of experts needs: routing, dispatch with and without a capacity, grouped products.
 *
 * n tokens (B·T), E experts, k of them for each token. A *choice* is one of the n·k pairs (token t, its j-th expert), numbered
 * t·k + j. An *order* says which choice lies in which row: i32, −1 for a row that none lies in. No shape depends on the routing,
 * so neither do bytes nor FLOPs: k·n rows in all, wherever they go.
 *
 *   dropless  tl_moe_sort → order[n·k], offsets[E+1]; tl_moe_permute → [n·k,D]; tl_grouped_linear …; tl_moe_combine → [n,D]
 *   capacity  tl_moe_capacity → order[E,C]; tl_moe_permute → [E,C,D]; tl_matmul with w[E,D,F] …; tl_moe_combine → [n,D]
 *
 * llama4 scales what goes into an expert: tl_mul(x, weights) before tl_moe_permute (k = 1), and tl_moe_combine without weights.
 *
 * Sources: Shazeer et al. 2017 (1701.06538), Lepikhin et al. 2020 (GShard, 2006.16668), Fedus et al. 2021 (Switch, 2101.03961),
 * Gale et al. 2022 (MegaBlocks, 2211.15841: dropless), Jiang et al. 2024 (Mixtral, 2401.04088), DeepSeek-V2 (2405.04434),
 * DeepSeek-V3 (2412.19437).
 */
#ifndef TALLY_OPS_MOE_H
#define TALLY_OPS_MOE_H

#include "tally/ops_nf4.h"
#include "tally/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- routing ---- */
typedef enum tl_route_score {
    TL_ROUTE_SOFTMAX, /* p = softmax(scores) over all experts, the k largest p (mixtral, qwen2_moe, qwen3_moe, deepseek_v2) */
    TL_ROUTE_SIGMOID, /* p = σ(scores), the k largest p (deepseek_v3, kimi_k2) */
    TL_ROUTE_CHOSEN_SOFTMAX, /* the k largest scores, softmax over these (gpt_oss); = SOFTMAX renormalised, without its [n,E] */
    TL_ROUTE_CHOSEN_SIGMOID /* the k largest scores, σ of each (llama4) */
} tl_route_score;

typedef enum tl_route_group {
    TL_ROUTE_GROUP_MAX, /* a group counts as much as its best expert (DeepSeek-V2, section 2.2.2) */
    TL_ROUTE_GROUP_TOP2 /* as the sum of its best two (DeepSeek-V3, section 2.1.2) */
} tl_route_group;

typedef struct tl_route_options {
    tl_dim k; /* experts a token, 1 … E */
    tl_route_score score;
    tl_tensor
        *bias; /* NULL, or [E] added to what is chosen by, not to the weights (DeepSeek-V3, equation 16). No gradient */
    int64_t n_group,
        topk_group; /* 0: none. Else E/n_group neighbours are a group; only the best topk_group groups are chosen from */
    tl_route_group group;
    bool renormalise; /* weights ÷ (their sum + renormalise_epsilon); refused for CHOSEN_SOFTMAX, which sums to 1 */
    double renormalise_epsilon; /* 1e-20 in deepseek_v2 and v3, 0 elsewhere */
    double scale;               /* routed_scaling_factor, last of all; 0 is 1 */
} tl_route_options;

typedef struct tl_routing {
    tl_tensor *weights;       /* [n,k], of scores' dtype */
    tl_tensor *experts;       /* i32[n,k], by falling score */
    tl_tensor *probabilities; /* [n,E], p above; NULL for CHOSEN_SOFTMAX and CHOSEN_SIGMOID */
} tl_routing;

/* scores[n,E], the router's output, computed in its dtype (cast it: a router in f32 is the model's choice). Of equal scores the
 * lower index first; NaN is the largest, as in tl_top_k. The gradient flows through the weights, not through the choice.
 * Experts of a group that is not chosen are never chosen, whatever their score (DeepSeek's own code masks by −∞; Hugging
 * Face's masks by 0, which differs where a bias makes scores negative). */
tl_status tl_route_top_k_(tl_tensor *scores, const tl_route_options *options, tl_routing *routing, const char *site);

/* The choice alone: what[n,E] (+ bias[E], may be NULL) → experts i32[n,k]. No gradient. */
tl_tensor *tl_route_choose_(tl_tensor *what, tl_tensor *bias, tl_dim k, int64_t n_group, int64_t topk_group,
                            tl_route_group group, const char *site);

/* How many of the n tokens chose each expert, ÷ n → [experts.size] of `dtype` (a float). Adds up to k. No gradient. */
tl_tensor *tl_moe_load_(tl_tensor *experts, tl_dim n_expert, tl_dtype dtype, const char *site);
/* E·Σ_e f_e·P_e, one element: f_e tl_moe_load, P_e the mean over tokens of probabilities[n,E] (Switch, equation 4; at k > 1 as
 * Hugging Face's mixtral: balanced, it is k). Its gradient goes to the probabilities. */
tl_tensor *tl_moe_balance_loss_(tl_tensor *probabilities, tl_tensor *experts, const char *site);

/* ---- which row ---- */
/* experts[n,k] (i32 or i64) → order i32[n·k], choices by expert and within one by their number, and offsets i32[E+1]: expert
 * e's rows are offsets[e] … offsets[e+1] − 1. An id outside [0,E) is an error naming its position. n·k < 2^31. */
tl_status tl_moe_sort_(tl_tensor *experts, tl_dim n_expert, tl_tensor **order, tl_tensor **offsets, const char *site);

/* experts[n,k] → order i32[E,C]: the first C choices of each expert; later ones are dropped, free places are −1. In order of the
 * choices' number, so by token and then by choice; with choice_first all first choices come before all second (GShard,
 * algorithm 1). */
tl_tensor *tl_moe_capacity_(tl_tensor *experts, tl_dim n_expert, tl_dim capacity, bool choice_first, const char *site);
/* C = ⌈factor·k·n/E⌉ (Switch, equation 3; GShard's 2 is a factor of 2 at k = 1). The factor, > 0, has at most three decimals. */
tl_dim tl_moe_capacity_dim(tl_ctx *ctx, tl_dim n, tl_dim k, tl_dim n_expert, double factor);

/* ---- there and back ---- */
/* x[n,D], order[…] (i32 or i64, each −1 … n·k − 1) → […,D]: row i is x's row of token order[i]/k, zeros for −1. The gradient of a
 * token is the sum over its rows, in order of rows, in f32 (f64 for f64), rounded once. Saves the order. */
tl_tensor *tl_moe_permute_(tl_tensor *x, tl_tensor *order, tl_dim k, const char *site);
/* y[…,D], order[…], weights[n,k] of any float dtype → [n,D] in y's: token t is Σ weights[order[i]]·y[i] over the rows i of its
 * choices, summed as above; zeros if all were dropped. Saves the order; y where the weights, and the weights where y needs a
 * gradient. Backward is one op. */
tl_tensor *tl_moe_combine_(tl_tensor *y, tl_tensor *order, tl_tensor *weights, const char *site);
/* The same with all weights 1: of n tokens, k choices each. Saves the order. */
tl_tensor *tl_moe_sum_(tl_tensor *y, tl_tensor *order, tl_dim n, tl_dim k, const char *site);

/* ---- grouped products ---- */
/* x[m,D], w[E,F,D], bias[E,F] or NULL, offsets[E+1] (i32 or i64) → [m,F]: row i of expert e's is x[i]·w[e]ᵀ + bias[e]. With
 * `transposed` the weights are [E,D,F] (as gpt_oss and llama4 publish them) and the product x[i]·w[e]. 2·m·D·F FLOPs wherever the
 * rows are; backward as much for each of dx and dw, which are grouped products too. offsets that do not rise from 0 to m are an
 * error. Bytes read count every expert's weights, also of those without rows. Workspace: 8·(E+1) bytes. */
tl_tensor *tl_grouped_linear_(tl_tensor *x, tl_tensor *w, tl_tensor *bias, tl_tensor *offsets, bool transposed,
                              const char *site);

/* Experts' frozen weights as they are kept: NF4 along the flattened [E,out,in] (or [E,in,out]), or int8 with a scale for each of
 * its rows. */
typedef struct tl_frozen_experts {
    tl_dim experts;
    bool transposed;      /* what is kept is [E, in, out] */
    tl_nf4 nf4;           /* where q is NULL */
    tl_tensor *q, *scale; /* i8 [E·rows, columns], f32 [E·rows]; NULL: NF4 */
} tl_frozen_experts;
/* tl_grouped_linear over such weights → [m,out] in x's format: f64, f32, bf16 or f16. One expert's weight at a time is written out
 * in x's format: workspace is 8·(E+1) and out·in elements (and as many of f16 by way of it, of f32 from int8 to another format).
 * The gradient goes to x and the bias, by the same op; nothing of x is kept. */
tl_tensor *tl_grouped_linear_packed_(tl_tensor *x, const tl_frozen_experts *w, tl_dim out, tl_tensor *bias,
                                     tl_tensor *offsets, const char *site);
/* g[m,F] → [E,F], the sum of each expert's rows. No gradient. */
tl_tensor *tl_grouped_sum_(tl_tensor *g, tl_tensor *offsets, tl_dim n_expert, const char *site);

#define tl_route_top_k(scores, options, routing) tl_route_top_k_((scores), (options), (routing), TL_HERE)
#define tl_route_choose(what, bias, k, n_group, topk_group, group)                                                     \
    tl_route_choose_((what), (bias), (k), (n_group), (topk_group), (group), TL_HERE)
#define tl_moe_load(experts, n_expert, dtype) tl_moe_load_((experts), (n_expert), (dtype), TL_HERE)
#define tl_moe_balance_loss(probabilities, experts) tl_moe_balance_loss_((probabilities), (experts), TL_HERE)
#define tl_moe_sort(experts, n_expert, order, offsets) tl_moe_sort_((experts), (n_expert), (order), (offsets), TL_HERE)
#define tl_moe_capacity(experts, n_expert, capacity, choice_first)                                                     \
    tl_moe_capacity_((experts), (n_expert), (capacity), (choice_first), TL_HERE)
#define tl_moe_permute(x, order, k) tl_moe_permute_((x), (order), (k), TL_HERE)
#define tl_moe_combine(y, order, weights) tl_moe_combine_((y), (order), (weights), TL_HERE)
#define tl_moe_sum(y, order, n, k) tl_moe_sum_((y), (order), (n), (k), TL_HERE)
#define tl_grouped_linear(x, w, bias, offsets, transposed)                                                             \
    tl_grouped_linear_((x), (w), (bias), (offsets), (transposed), TL_HERE)
#define tl_grouped_linear_packed(x, w, out, bias, offsets)                                                             \
    tl_grouped_linear_packed_((x), (w), (out), (bias), (offsets), TL_HERE)
#define tl_grouped_sum(g, offsets, n_expert) tl_grouped_sum_((g), (offsets), (n_expert), TL_HERE)

#ifdef __cplusplus
}
#endif
#endif
