/* Autocast: the rule of each op, and the casts that follow from it. */
#include "op/core.h"
#include "tally/grad.h"

#include <string.h>

typedef struct op_rule {
    const char *op;
    tl_autocast_rule rule;
} op_rule;

#define KEEP TL_AUTOCAST_KEEP
#define LOW TL_AUTOCAST_LOW
#define FLOAT TL_AUTOCAST_FLOAT
#define WIDEST TL_AUTOCAST_WIDEST

/* By name, in order: tests/test_autocast.c holds it against the list of all ops. Written into (accumulate, *_into, updates) is
 * what has a format of its own. tanh, sigmoid, gelu, silu and their kin compute in f32 and round once, whatever they get. */
/* clang-format off */
static const op_rule rules[] = {
    {"abs", KEEP},
    {"abs_backward", KEEP},
    {"accumulate", KEEP},
    {"adagrad_update", KEEP},
    {"adam_update", KEEP},
    {"adamw8bit_update", KEEP},
    {"adamw_update", KEEP},
    {"add", WIDEST},
    {"all_reduce", KEEP},
    {"argmax", KEEP},
    {"argmin", KEEP},
    {"as_strided", KEEP},
    {"as_strided_backward", KEEP},
    {"bitcast", KEEP},
    {"cast", KEEP},
    {"ceil", KEEP},
    {"clamp", KEEP},
    {"clamp_backward", KEEP},
    {"clip_scale", KEEP},
    {"concat", WIDEST},
    {"copy", KEEP},
    {"cos", KEEP},
    {"cos_backward", KEEP},
    {"cross_entropy", FLOAT},
    {"cross_entropy_backward", KEEP},
    {"cross_entropy_in_place", KEEP},
    {"cumprod", FLOAT},
    {"cumprod_backward", KEEP},
    {"cumsum", FLOAT},
    {"dequantize", KEEP},
    {"diagonal", KEEP},
    {"div", WIDEST},
    {"dropout", KEEP},
    {"dropout_backward", KEEP},
    {"elu", KEEP},
    {"elu_backward", KEEP},
    {"embedding", KEEP},
    {"embedding_backward", KEEP},
    {"equal", WIDEST},
    {"erf", KEEP},
    {"erf_backward", KEEP},
    {"exp", FLOAT},
    {"expand", KEEP},
    {"eye", KEEP},
    {"fill", KEEP},
    {"flash_attention", LOW},
    {"flash_attention_backward", KEEP},
    {"flip", KEEP},
    {"floor", KEEP},
    {"fmod", WIDEST},
    {"fp8_amax", KEEP},
    {"fp8_gradient", KEEP},
    {"fp8_roll", KEEP},
    {"fp8_round", KEEP},
    {"gather", KEEP},
    {"gather_backward", KEEP},
    {"gather_elements", KEEP},
    {"gather_nd", KEEP},
    {"geglu", WIDEST},
    {"geglu_backward", KEEP},
    {"gelu_erf", KEEP},
    {"gelu_erf_backward", KEEP},
    {"gelu_tanh", KEEP},
    {"gelu_tanh_backward", KEEP},
    {"greater", WIDEST},
    {"greater_equal", WIDEST},
    {"grouped_linear", LOW},
    {"grouped_linear_packed", KEEP},
    {"grouped_outer", KEEP},
    {"grouped_outer_into", KEEP},
    {"grouped_sum", KEEP},
    {"hard_swish", KEEP},
    {"hard_swish_backward", KEEP},
    {"index_add", KEEP},
    {"is_inf", KEEP},
    {"is_nan", KEEP},
    {"l1", FLOAT},
    {"l2", FLOAT},
    {"l2_backward", KEEP},
    {"layer_norm", FLOAT},
    {"layer_norm_backward", KEEP},
    {"leaky_relu", KEEP},
    {"leaky_relu_backward", KEEP},
    {"less", WIDEST},
    {"less_equal", WIDEST},
    {"linear", LOW},
    {"linear_int8", KEEP},
    {"linear_nf4", KEEP},
    {"log", FLOAT},
    {"log_softmax", FLOAT},
    {"log_softmax_backward", KEEP},
    {"log_sum_exp", FLOAT},
    {"log_sum_exp_backward", KEEP},
    {"logical_and", KEEP},
    {"logical_not", KEEP},
    {"logical_or", KEEP},
    {"logical_xor", KEEP},
    {"masked_fill", KEEP},
    {"masked_scores", FLOAT},
    {"masked_softmax", FLOAT},
    {"matmul", LOW},
    {"matmul_into", KEEP},
    {"max", KEEP},
    {"maximum", WIDEST},
    {"maximum_backward", KEEP},
    {"mean", FLOAT},
    {"min", KEEP},
    {"minimum", WIDEST},
    {"minimum_backward", KEEP},
    {"mish", KEEP},
    {"mish_backward", KEEP},
    {"mod", WIDEST},
    {"moe_capacity", KEEP},
    {"moe_combine", KEEP},
    {"moe_combine_backward", KEEP},
    {"moe_load", KEEP},
    {"moe_permute", KEEP},
    {"moe_sort", KEEP},
    {"mse", FLOAT},
    {"mse_backward", KEEP},
    {"mul", WIDEST},
    {"mul_mixed", KEEP},
    {"multiply_add", KEEP},
    {"neg", KEEP},
    {"nf4_dequantize", KEEP},
    {"nf4_quantize", KEEP},
    {"nf4_scales", KEEP},
    {"nll_loss", FLOAT},
    {"nll_loss_backward", KEEP},
    {"non_finite", KEEP},
    {"normal", KEEP},
    {"not_equal", WIDEST},
    {"one_hot", KEEP},
    {"pad", KEEP},
    {"pad_backward", KEEP},
    {"permute", KEEP},
    {"power", FLOAT},
    {"power_backward", KEEP},
    {"power_of", FLOAT},
    {"power_of_backward", KEEP},
    {"prod", FLOAT},
    {"prod_backward", KEEP},
    {"quantize", KEEP},
    {"range", KEEP},
    {"reciprocal", FLOAT},
    {"reciprocal_backward", KEEP},
    {"relu", KEEP},
    {"relu_backward", KEEP},
    {"retain", KEEP},
    {"rms_norm", FLOAT},
    {"rms_norm_backward", KEEP},
    {"rmsprop_update", KEEP},
    {"rotary", KEEP},
    {"round", KEEP},
    {"route_choose", KEEP},
    {"rsqrt", FLOAT},
    {"scale", KEEP},
    {"scale_by", KEEP},
    {"scale_into", KEEP},
    {"scatter_backward", KEEP},
    {"scatter_elements", KEEP},
    {"scatter_nd", KEEP},
    {"select", KEEP},
    {"sgd_update", KEEP},
    {"sigmoid", KEEP},
    {"sigmoid_backward", KEEP},
    {"sign", KEEP},
    {"silu", KEEP},
    {"silu_backward", KEEP},
    {"sin", KEEP},
    {"sin_backward", KEEP},
    {"slice", KEEP},
    {"slice_backward", KEEP},
    {"softmax", FLOAT},
    {"softmax_backward", KEEP},
    {"softplus", FLOAT},
    {"softplus_backward", KEEP},
    {"softsign", KEEP},
    {"softsign_backward", KEEP},
    {"sort", KEEP},
    {"split", KEEP},
    {"sqrt", KEEP},
    {"square_sum", FLOAT},
    {"squeeze", KEEP},
    {"sub", WIDEST},
    {"sum", FLOAT},
    {"sum_square", FLOAT},
    {"swiglu", WIDEST},
    {"swiglu_backward", KEEP},
    {"swish", KEEP},
    {"swish_backward", KEEP},
    {"tanh", KEEP},
    {"tanh_backward", KEEP},
    {"tile", KEEP},
    {"transpose", KEEP},
    {"triangle", KEEP},
    {"truncated_normal", KEEP},
    {"unfold", KEEP},
    {"uniform", KEEP},
    {"unsqueeze", KEEP},
    {"view", KEEP},
    {"where", WIDEST},
    {"write_slice", KEEP},
};
/* clang-format on */

tl_autocast_rule tl_autocast_rule_of(const struct tl_op *op) {
    size_t low = 0, high = sizeof rules / sizeof rules[0];
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(op->name, rules[middle].op);
        if (order == 0)
            return rules[middle].rule;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return TL_AUTOCAST_NO_RULE;
}

const char *tl_autocast_rule_name(tl_autocast_rule rule) {
    static const char *const names[] = {"none", "keep", "low", "float", "widest"};
    return (unsigned)rule < 5 ? names[rule] : "?";
}

/* Flash attention's sinks and slopes stay as they are: they join the scores, which are f32 whatever q, k and v are. */
static int cast_count(const tl_op *op, int n_in) {
    return strcmp(op->name, "flash_attention") == 0 && n_in > 3 ? 3 : n_in;
}

static bool is_castable(tl_dtype dtype) { return dtype == TL_F32 || dtype == TL_BF16 || dtype == TL_F16; }

/* The format that all castable inputs are to have; false: they stay. */
static bool wanted(tl_autocast_rule rule, tl_dtype low, tl_tensor *const in[], int n_in, tl_dtype *dtype) {
    tl_dtype first = TL_F64;
    bool differ = false;
    for (int i = 0; i < n_in; i++) {
        if (!in[i] || !is_castable(in[i]->dtype)) {
            if (in[i] && in[i]->dtype == TL_F64)
                return false;
            continue;
        }
        differ = differ || (first != TL_F64 && in[i]->dtype != first);
        first = in[i]->dtype;
    }
    *dtype = rule == LOW ? low : TL_F32;
    return rule == LOW || rule == FLOAT || (rule == WIDEST && differ);
}

static tl_status cast_inputs(tl_ctx *ctx, const tl_op *op, tl_tensor *const in[], int n_in, tl_tensor *cast[],
                             const char *site) {
    tl_autocast_rule rule = tl_autocast_rule_of(op);
    tl_dtype dtype = TL_F32;
    for (int i = 0; i < n_in; i++)
        cast[i] = in[i];
    if (rule == TL_AUTOCAST_NO_RULE)
        return tl_ctx_fail(ctx, TL_ERR_UNSUPPORTED, "%s (%s): this op has no rule for autocast", op->name, site);
    n_in = cast_count(op, n_in);
    if (!wanted(rule, ctx->autocast, in, n_in, &dtype))
        return TL_OK;
    for (int i = 0; i < n_in && ctx->error.status == TL_OK; i++)
        if (in[i] && in[i]->ctx == ctx && is_castable(in[i]->dtype))
            cast[i] = tl_cast_(in[i], dtype, site);
    return ctx->error.status;
}

tl_status tl_autocast(tl_ctx *ctx, tl_dtype low) {
    if (low != TL_BF16 && low != TL_F16 && low != TL_F32)
        return tl_ctx_fail(ctx, TL_ERR_DTYPE, "autocast to %s; bf16 or f16 would work, and f32 for off",
                           tl_dtype_name(low));
    ctx->autocast = low;
    ctx->cast_inputs = low == TL_F32 ? NULL : cast_inputs;
    return TL_OK;
}
