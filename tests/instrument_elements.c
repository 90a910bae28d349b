#include "instrument_elements.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "op/core.h"

/* How a kernel's traffic differs from "all of in[], all of out[]". */
typedef enum traffic {
    PLAIN,
    COPIES,                 /* in[0] to out[0] */
    WRITES,                 /* out[0]; in[0] is where it lies and is not read */
    PICKS,                  /* of in[0] as many elements as out[0] has */
    PICKS_TARGETS,          /* of in[0] as many as in[1] has: the class of each target */
    PICKS_TARGETS_BACKWARD, /* the same where the weight's gradient is wanted, else none; in[4], in[5] of a mean alone */
    SCATTERS, /* in: index, [picked]. Of out[0] as many elements as in[1] has are written over what lies there */
    TRACES,   /* the same, and all of out[1] */
    REVERSES, /* in: index, [picked]. All of out[1], and as many elements of out[0] */
    FOLDS,    /* out[0] is read too: it goes on from what it holds */
    SGD,      /* optimizer updates: out[] is read too, but not a low-precision copy, nor a momentum that begins */
    UPDATE1,
    UPDATE2,
    UPDATE4,
    RMSPROP
} traffic;

/* Every entry of the table. Without a new one this does not compile. */
/* clang-format off */
#define ENTRIES(X) \
    X(add, PLAIN) X(sub, PLAIN) X(mul, PLAIN) X(div, PLAIN) X(neg, PLAIN) X(exp, PLAIN) X(log, PLAIN) \
    X(sqrt, PLAIN) X(rsqrt, PLAIN) X(tanh, PLAIN) X(relu, PLAIN) X(gelu_erf, PLAIN) X(gelu_tanh, PLAIN) \
    X(silu, PLAIN) X(scale, PLAIN) X(relu_backward, PLAIN) X(gelu_erf_backward, PLAIN) \
    X(gelu_tanh_backward, PLAIN) X(silu_backward, PLAIN) X(tanh_backward, PLAIN) X(copy, COPIES) \
    X(copy_saturating, COPIES) X(fill, WRITES) X(sum, PLAIN) X(mean, PLAIN) X(max, PLAIN) X(square_sum, PLAIN) \
    X(non_finite, PLAIN) X(argmax, PLAIN) X(softmax, PLAIN) X(softmax_backward, PLAIN) X(layer_norm, PLAIN) \
    X(layer_norm_backward, PLAIN) X(rms_norm, PLAIN) X(rms_norm_backward, PLAIN) X(rotary, PLAIN) \
    X(embedding, PICKS) X(embedding_backward, PLAIN) X(cross_entropy, PLAIN) X(cross_entropy_backward, PLAIN) \
    X(mse, PLAIN) X(mse_backward, PLAIN) X(dropout, PLAIN) X(dropout_backward, PLAIN) X(normal, WRITES) \
    X(truncated_normal, WRITES) X(uniform, WRITES) X(sgd, SGD) X(adagrad, UPDATE1) X(rmsprop, RMSPROP) \
    X(adamw, UPDATE2) X(adam, UPDATE2) X(adamw8bit, UPDATE4) X(gather, PICKS) X(scatter, SCATTERS) \
    X(scatter_trace, TRACES) X(scatter_reverse, REVERSES) X(sort, PLAIN) X(pad, PLAIN) X(pad_backward, PLAIN) \
    X(log_softmax, PLAIN) X(log_softmax_backward, PLAIN) X(nll_loss, PICKS_TARGETS) \
    X(nll_loss_backward, PICKS_TARGETS_BACKWARD) X(masked_softmax, PLAIN) X(masked_scores, PLAIN) \
    X(flash_attention, PLAIN) X(flash_attention_backward, PLAIN) \
    X(multiply_add, PLAIN) X(swiglu, PLAIN) X(swiglu_backward, PLAIN) X(quantize, PLAIN) X(dequantize, PLAIN) X(linear_int8, PLAIN) \
    X(abs, PLAIN) X(sign, PLAIN) X(floor, PLAIN) X(ceil, PLAIN) X(round, PLAIN) X(reciprocal, PLAIN) \
    X(sigmoid, PLAIN) X(softplus, PLAIN) X(softsign, PLAIN) X(hard_swish, PLAIN) X(mish, PLAIN) X(erf, PLAIN) \
    X(sin, PLAIN) X(cos, PLAIN) X(elu, PLAIN) X(leaky_relu, PLAIN) X(swish, PLAIN) X(abs_backward, PLAIN) \
    X(reciprocal_backward, PLAIN) X(sigmoid_backward, PLAIN) X(softplus_backward, PLAIN) \
    X(softsign_backward, PLAIN) X(hard_swish_backward, PLAIN) X(mish_backward, PLAIN) X(erf_backward, PLAIN) \
    X(sin_backward, PLAIN) X(cos_backward, PLAIN) X(elu_backward, PLAIN) X(leaky_relu_backward, PLAIN) \
    X(swish_backward, PLAIN) X(is_nan, PLAIN) X(is_inf, PLAIN) X(equal, PLAIN) X(not_equal, PLAIN) \
    X(less, PLAIN) X(less_equal, PLAIN) X(greater, PLAIN) X(greater_equal, PLAIN) X(logical_and, PLAIN) \
    X(logical_or, PLAIN) X(logical_xor, PLAIN) X(minimum, PLAIN) X(maximum, PLAIN) X(minimum_backward, PLAIN) \
    X(maximum_backward, PLAIN) X(power, PLAIN) X(power_backward_base, PLAIN) X(power_backward_exponent, PLAIN) \
    X(mod, PLAIN) X(fmod, PLAIN) X(where, PLAIN) X(masked_fill, PLAIN) X(clamp, PLAIN) \
    X(clamp_backward, PLAIN) X(min, PLAIN) X(prod, PLAIN) X(l1, PLAIN) X(sum_square, PLAIN) X(l2, PLAIN) \
    X(log_sum_exp, PLAIN) X(l2_backward, PLAIN) X(log_sum_exp_backward, PLAIN) X(prod_backward, PLAIN) \
    X(cumulate, PLAIN) X(cumprod_backward, PLAIN) X(triangle, PLAIN) X(range, WRITES) X(one_hot, PLAIN) \
    X(fp8_round, PLAIN) X(absolute_max, FOLDS) X(fp8_roll, PLAIN) X(route_choose, PLAIN) X(moe_sort, PLAIN) \
    X(moe_capacity, PLAIN) X(moe_load, PLAIN) X(moe_permute, PICKS) X(moe_combine, PLAIN) \
    X(moe_combine_backward, PLAIN) \
    X(nf4_quantize, PLAIN) X(nf4_scales, PLAIN) X(nf4_dequantize, PLAIN)
/* clang-format on */

#define NUMBER(name, how) ENTRY_##name,
typedef enum entry { ENTRIES(NUMBER) ENTRY_COUNT } entry;

_Static_assert(offsetof(tl_kernels, add) + ENTRY_COUNT * sizeof(tl_kernel *) == sizeof(tl_kernels),
               "the list above lacks an entry of the table");

static const struct {
    const char *name;
    traffic how;
} entries[] = {
#define ROW(name, how) {#name, how},
    ENTRIES(ROW)};

/* A kernel has no room for a user pointer. */
static tl_kernel *real_kernels[ENTRY_COUNT];
static void (*real_product)(const tl_product *product);
static tl_kernels counting;
static touched now, *done;
static int64_t worked[ENTRY_COUNT];
static int64_t done_count, done_capacity;

/* ---- bytes ---- */

static int64_t elements(const tl_array *a) {
    int64_t n = 1;
    for (int d = 0; d < a->ndim; d++)
        n *= a->size[d];
    return n;
}

static bool is_scratch(const tl_kcall *call, const tl_array *a) {
    const char *work = call->work;
    return work && a->data >= work && a->data < work + call->work_bytes;
}

static int64_t distinct_bytes(const tl_array *a) {
    int64_t n = tl_dtype_bytes(a->dtype);
    for (int d = 0; d < a->ndim; d++)
        n *= a->stride[d] == 0 && a->size[d] > 1 ? 1 : a->size[d];
    return n;
}

/* Of an input or output that is there. */
static int64_t bytes_of(const tl_kcall *call, const tl_array *a) {
    return !a->data || is_scratch(call, a) ? 0 : distinct_bytes(a);
}

static int states_read(traffic how, const void *attr) {
    const tl_sgd_attr *sgd = attr;
    const tl_rmsprop_attr *rmsprop = attr;
    switch (how) {
    case SGD:
        return sgd->momentum != 0 && !sgd->first;
    case RMSPROP:
        return 1 + (rmsprop->momentum != 0) + rmsprop->centered;
    case UPDATE1:
        return 1;
    case UPDATE2:
        return 2;
    default:
        return 4;
    }
}

static int64_t input_bytes(traffic how, const tl_kcall *call, int i) {
    const tl_array *a = &call->in[i];
    int64_t size = tl_dtype_bytes(a->dtype);
    bool backward = how == PICKS_TARGETS_BACKWARD;
    if (how == WRITES || (how >= SGD && i > 0)) /* an update's in[1] … are where its outputs lie */
        return 0;
    if (how == PICKS && i == 0)
        return elements(&call->out[0]) * size;
    if ((how == PICKS_TARGETS || backward) && i == 0)
        return backward && !call->out[1].data ? 0 : elements(&call->in[1]) * size;
    if (backward && i > 3 && ((const tl_nll_attr *)call->attr)->reduction != TL_NLL_MEAN)
        return 0;
    return bytes_of(call, a);
}

/* What of the outputs is read: updates and whatever combines with what lies there. */
static int64_t output_bytes_read(traffic how, const tl_kcall *call) {
    const tl_index_attr *index = call->attr;
    int64_t sum = 0, size = tl_dtype_bytes(call->out[0].dtype);
    switch (how) {
    case SCATTERS:
        return index->combine == TL_COMBINE_REPLACE ? 0 : elements(&call->in[1]) * size;
    case TRACES:
        return elements(&call->in[1]) * size;
    case REVERSES: /* of mul, max and min also what scatter_trace found, which is in out[1] */
        return elements(&call->out[1]) * size *
               (index->combine == TL_COMBINE_REPLACE || index->combine == TL_COMBINE_ADD ? 1 : 2);
    case FOLDS:
        return bytes_of(call, &call->out[0]);
    case SGD:
    case UPDATE1:
    case UPDATE2:
    case UPDATE4:
    case RMSPROP:
        for (int i = 0; i <= states_read(how, call->attr); i++)
            sum += bytes_of(call, &call->out[i]);
        return sum;
    default:
        return 0;
    }
}

static int64_t output_bytes(traffic how, const tl_kcall *call, int i) {
    int64_t size = tl_dtype_bytes(call->out[i].dtype);
    if ((how == COPIES || how == WRITES) && i > 0) /* what else stands in the call is not theirs */
        return 0;
    if (i == 0 && (how == SCATTERS || how == TRACES))
        return elements(&call->in[1]) * size;
    if (i == 0 && how == REVERSES)
        return elements(&call->out[1]) * size;
    return bytes_of(call, &call->out[i]);
}

/* Units of `unit` values that n values from `first` on touch. */
static int64_t units_in(int64_t first, int64_t n, int64_t unit) {
    return n > 0 ? (first + n - 1) / unit - first / unit + 1 : 0;
}

/* A part of a packed weight is read: two values a byte, a scale for each 64, and of scales kept as codes a scale for each 256 and one
 * mean. */
static void count_nf4_part(const tl_kcall *call, int64_t first) {
    int64_t n = elements(&call->out[0]), blocks = units_in(first, n, 64);
    now.read += units_in(first, n, 2) + blocks * tl_dtype_bytes(call->in[1].dtype);
    if (call->n_in > 2) {
        now.read += 4 * units_in(first, n, (int64_t)64 * 256) + 4;
        now.arithmetic += 2 * (tl_u128)blocks;
    }
    now.written += output_bytes(PLAIN, call, 0);
}

static void count_bytes(traffic how, const tl_kcall *call) {
    for (int i = 0; i < call->n_in; i++)
        now.read += input_bytes(how, call, i);
    now.read += output_bytes_read(how, call);
    for (int i = 0; i < call->n_out; i++)
        now.written += output_bytes(how, call, i);
}

/* ---- operations: + − × ÷ √ (arithmetic), exp log tanh erf sin cos (special) ---- */

/* Per element, row (all axes but the last) and call. Of constants that are equal for all elements nothing counts. */
typedef struct formula {
    int64_t element, row, call, special, special_row;
} formula;

static formula norm_formula(entry e, const tl_kcall *call) {
    bool dx = call->out[0].data != NULL, dgain = call->out[1].data != NULL;
    bool dbias = call->n_out > 2 && call->out[2].data != NULL;
    const tl_norm_attr *attr = call->attr; /* 1 + gain: once a column */
    int64_t offset = attr->gain_offset != 0 ? call->in[0].size[call->in[0].ndim - 1] : 0;
    switch (e) {
    /* y = (x − μ)·r·gain + bias: μ 1; σ² 3; y 3, bias 1. Row: ÷ D twice, + ε, √, 1 ÷. Ba et al. 2016 */
    case ENTRY_layer_norm:
        return (formula){.element = call->n_in > 2 ? 8 : 7, .row = 5};
    /* y = x·r·gain: x² and Σ 2; y 2. Row: ÷ D, + ε, √, 1 ÷. Zhang and Sennrich 2019 */
    case ENTRY_rms_norm:
        return (formula){.element = 4, .row = 4, .call = offset};
    /* x̂ = (x − μ)·r 2; h = g·gain; dx = r·(h − Σh/D − x̂·Σhx̂/D): 1 + 1 + 2 + 4, two ÷ a row; dgain = Σ g·x̂ 2, dbias 1 */
    case ENTRY_layer_norm_backward:
        return (formula){.element = (dx || dgain ? 2 : 0) + (dx ? 8 : 0) + (dgain ? 2 : 0) + dbias, .row = dx ? 2 : 0};
    /* x̂ = x·r 1; dx = r·(h − x̂·Σhx̂/D): 1 + 1 + 1 + 3, one ÷ a row; dgain 2 */
    default:
        return (formula){.element = 1 + (dx ? 6 : 0) + (dgain ? 2 : 0), .row = dx, .call = dx ? offset : 0};
    }
}

static formula update_formula(entry e, const void *attr) {
    const tl_sgd_attr *sgd = attr;
    const tl_adagrad_attr *adagrad = attr;
    const tl_rmsprop_attr *rmsprop = attr;
    const tl_adamw_attr *adam = attr;
    switch (e) {
    /* g + λθ 2; μb + g 2; Nesterov g + μb 2; θ − lr·b 2 */
    case ENTRY_sgd:
        return (formula){.element = 4 + (sgd->momentum != 0 && !sgd->first ? 2 : 0) + (sgd->nesterov ? 2 : 0)};
    /* s + g² 2; √s + ε 2; θ − lr·g ÷ 3; λ 2. Duchi et al. 2011 */
    case ENTRY_adagrad:
        return (formula){.element = 7 + (adagrad->weight_decay != 0 ? 2 : 0)};
    /* αs + (1−α)g² 4; √ + ε, ÷ 3; θ − lr·u 2; λ 2; momentum 2; centered: a 3, s − a² 2. Tieleman and Hinton 2012 */
    case ENTRY_rmsprop:
        return (formula){.element = 9 + (rmsprop->weight_decay != 0 ? 2 : 0) + (rmsprop->momentum != 0 ? 2 : 0) +
                                    (rmsprop->centered ? 5 : 0)};
    /* m 3; v 4; √v, ÷ √(1−β2^t), + ε 3; θ − a·m ÷ 3; λ 2. Kingma and Ba 2015 */
    case ENTRY_adam:
        return (formula){.element = 13 + (adam->weight_decay != 0 ? 2 : 0)};
    /* adam's 13 and θ·(1 − lr·λ) 1; CS336's order: no ÷ √(1−β2^t), but θ − lr·λ·θ 2. Loshchilov and Hutter 2019 */
    case ENTRY_adamw:
        return (formula){.element = 14};
    /* adamw's 14; codes to numbers and back: a × and a ÷ by the block's scale for each of m and v. Dettmers et al. 2022 */
    default:
        return (formula){.element = 18};
    }
}

/* Of what operations are composed from elsewhere (tally/ops_choices.h). False: not listed. */
static bool formula_of_parts(entry e, const tl_kcall *call, formula *f) {
    switch (e) {
    /* keep·into unless keep is 1; value·x, +; x·y or x/y */
    case ENTRY_multiply_add:
        f->element = (((const tl_multiply_add_attr *)call->attr)->keep != 1) + 2 + (call->n_in > 2);
        return true;
    case ENTRY_power: /* one pow; its slope: n − 1, ·n, ·g and one pow */
        f->special = 1;
        return true;
    case ENTRY_power_backward_base:
        *f = (formula){.element = 3, .special = 1};
        return true;
    case ENTRY_neg:
    case ENTRY_sqrt:
        f->element = 1;
        return true;
    default:
        return false;
    }
}

/* Of kernels that go element by element. False: not listed. */
static bool formula_of_each(entry e, const tl_kcall *call, formula *f) {
    *f = (formula){0};
    switch (e) {
    case ENTRY_copy:
    case ENTRY_copy_saturating:
    case ENTRY_fill:
    case ENTRY_embedding:
    case ENTRY_relu:
    case ENTRY_relu_backward:
    case ENTRY_absolute_max:
        return true;
    case ENTRY_add:
    case ENTRY_sub:
    case ENTRY_mul:
    case ENTRY_div:
    case ENTRY_sum:     /* of in[0] */
    case ENTRY_dropout: /* ·1/(1−p) */
    case ENTRY_dropout_backward:
    case ENTRY_embedding_backward: /* Σ: of in[1] */
        f->element = 1;
        return true;
    case ENTRY_scale:
        f->element = ((const tl_scale_attr *)call->attr)->offset != 0 ? 2 : 1;
        return true;
    case ENTRY_mean:
        f->element = 1;
        return true;       /* and ÷ for each result: below */
    case ENTRY_square_sum: /* x², Σ */
    case ENTRY_non_finite: /* x − x, Σ */
    case ENTRY_fp8_round:
        f->element = 2;
        return true; /* · scale, ÷ scale */
    case ENTRY_fp8_roll:
        f->row = 1;
        return true; /* the largest ÷ the format's */
    /* ÷ scale; Dettmers et al. 2023, equation 4 */
    case ENTRY_nf4_quantize:
        f->element = 1;
        return true;
    /* Σ, − mean, ÷ step; ÷ n. ÷ 127 for each block: below */
    case ENTRY_nf4_scales:
        *f = (formula){.element = 3, .call = 1};
        return true;
    /* level·scale, of out[0]; where the scales are codes, code·step + mean for each: below */
    case ENTRY_nf4_dequantize:
        f->element = 1;
        return true;
    /* 0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))): 2 + 3 + 3 (Hendrycks and Gimpel 2016). Its derivative: u 5; (1 + t)/2 2;
     * 1 − t² 2; √(2/π)·(1 + 3·0.044715·x²) with folded constants 2; x/2·…·… 3; + 1; ·g 1 */
    case ENTRY_gelu_tanh:
        *f = (formula){.element = 8, .special = 1};
        return true;
    case ENTRY_gelu_tanh_backward:
        *f = (formula){.element = 16, .special = 1};
        return true;
    /* x·Φ(x), Φ = (1 + erf(x/√2))/2: 4; derivative Φ + x·φ: 3 + 3 + 2, ·g 1; erf, exp */
    case ENTRY_gelu_erf:
        *f = (formula){.element = 4, .special = 1};
        return true;
    case ENTRY_gelu_erf_backward:
        *f = (formula){.element = 9, .special = 2};
        return true;
    /* x ÷ (1 + e^−x): 3; σ·(1 + x·(1 − σ))·g: 3 + 4 + 1 */
    case ENTRY_silu:
        *f = (formula){.element = 3, .special = 1};
        return true;
    case ENTRY_silu_backward:
        *f = (formula){.element = 8, .special = 1};
        return true;
    /* a·σ(αa)·b: αa, 1 +, 1 ÷, ·a, ·b. Backward: αa, σ 3, 1 − σ 1, da 5, db 2. Shazeer 2020 */
    case ENTRY_swiglu:
        *f = (formula){.element = 5, .special = 1};
        return true;
    case ENTRY_swiglu_backward:
        *f = (formula){.element = 11, .special = 1};
        return true;
    default:
        return false;
    }
}

/* Of kernels that go by rows, and of updates. False: not listed. */
static bool formula_of_rows(entry e, const tl_kcall *call, formula *f) {
    switch (e) {
    /* scale, − largest, Σ, ÷ Σ; e^. Backward scale·y·(g − Σ y·g): 5. The masked half counts: it is written (as 0) */
    case ENTRY_softmax:
        *f = (formula){.element = 4, .special = 1};
        return true;
    /* the same, and + mask where it is added; a sink's −, Σ and e^ a row */
    case ENTRY_masked_softmax: {
        const tl_masked_softmax_attr *attr = call->attr;
        *f = (formula){.element = attr->has_mask && call->in[1].dtype != TL_BOOL ? 5 : 4,
                       .row = attr->has_sink ? 2 : 0,
                       .special = 1,
                       .special_row = attr->has_sink};
        return true;
    }
    case ENTRY_masked_scores: { /* scale, + mask */
        const tl_masked_softmax_attr *attr = call->attr;
        f->element = attr->has_mask && call->in[1].dtype != TL_BOOL ? 2 : 1;
        return true;
    }
    case ENTRY_softmax_backward:
        f->element = 5;
        return true;
    /* − largest, Σ; e^; a row: log, + largest, − logit, Σ; then ÷. Backward (e^(l − lse) − [target])·factor: 2, − 1 a row,
     * factor 1 ÷ */
    case ENTRY_cross_entropy:
        *f = (formula){2, 3, 1, 1, 1};
        return true;
    case ENTRY_cross_entropy_backward:
        *f = (formula){2, 1, 1, 1, 0};
        return true;
    /* a − b, ², Σ; ÷ n. Backward (a − b)·factor; 2·g ÷ n */
    case ENTRY_mse:
        *f = (formula){.element = 3, .call = 1};
        return true;
    case ENTRY_mse_backward:
        *f = (formula){.element = 2, .call = 2};
        return true;
    case ENTRY_rotary:
        return true; /* of two that turn: 4 ×, 2 +; and the angles: below */
    case ENTRY_layer_norm:
    case ENTRY_layer_norm_backward:
    case ENTRY_rms_norm:
    case ENTRY_rms_norm_backward:
        *f = norm_formula(e, call);
        return true;
    case ENTRY_sgd:
    case ENTRY_adagrad:
    case ENTRY_rmsprop:
    case ENTRY_adam:
    case ENTRY_adamw:
    case ENTRY_adamw8bit:
        *f = update_formula(e, call->attr);
        return true;
    default:
        return false;
    }
}

/* Pairs in blocks of 64 rows and 64 keys of which at least one is seen, by trying each pair. */
static int64_t flash_pairs(const tl_kcall *call) {
    const tl_flash_attr *o = call->attr;
    int64_t rows = call->in[0].size[2], keys = call->in[1].size[2], sum = 0;
    for (int64_t i0 = 0; i0 < rows; i0 += 64)
        for (int64_t j0 = 0; j0 < keys; j0 += 64) {
            int64_t i1 = i0 + 64 < rows ? i0 + 64 : rows, j1 = j0 + 64 < keys ? j0 + 64 : keys;
            bool seen = false;
            for (int64_t i = i0 + o->offset; !seen && i < i1 + o->offset; i++)
                for (int64_t j = j0; !seen && j < j1; j++)
                    seen = (!o->causal || j <= i) && (o->window_before < 0 || j >= i - o->window_before) &&
                           (!o->chunk || i / o->chunk == j / o->chunk);
            sum += seen ? (i1 - i0) * (j1 - j0) : 0;
        }
    return sum * call->in[0].size[0] * call->in[0].size[1];
}

/* A pair: x·scale, c·tanh(x/c) 2, + slope·distance 2; − largest, e^, Σ; dropout 1. A row: log, + largest; ÷ Σ for each element of
 * y; a sink e^(s − largest), +. Backward, a pair: the scores, − log-sum-exp, e^; P·(dP − D)·scale 3, (1 − tanh²)· 3; dropout of
 * P and of dP. D = Σ y·dy (Dao et al. 2022, eq. 4); a sink's Σ e^(s − lse)·D. Sizes of heads up to 682, where blocks are of 64. */
static bool count_flash(entry e, const tl_kcall *call) {
    const tl_flash_attr *o = call->attr;
    bool backward = e == ENTRY_flash_attention_backward;
    if (e != ENTRY_flash_attention && !backward)
        return false;
    int64_t rows = call->in[0].size[0] * call->in[0].size[1] * call->in[0].size[2], l = call->in[2].size[3];
    int64_t pair = 1 + (o->softcap != 0 ? 2 : 0) + (o->has_slopes ? 2 : 0);
    if (!backward) {
        pair += 2 + (o->dropout.a > 0);
        now.arithmetic += (tl_u128)(flash_pairs(call) * pair + rows * (l + 1 + (o->has_sinks ? 2 : 0)));
        now.special += (tl_u128)(flash_pairs(call) * (1 + (o->softcap != 0)) + rows * (1 + o->has_sinks));
        return true;
    }
    bool d = o->wanted & (TL_FLASH_DQ | TL_FLASH_DK), v = o->wanted & TL_FLASH_DV, s = o->wanted & TL_FLASH_DSINKS;
    pair += 1 + (d ? 3 : 0) + (d && o->softcap != 0 ? 3 : 0) + (o->dropout.a > 0 ? d + v : 0);
    if (d || v) {
        now.arithmetic += (tl_u128)(flash_pairs(call) * pair);
        now.special += (tl_u128)(flash_pairs(call) * (1 + (o->softcap != 0)));
    }
    now.arithmetic += (tl_u128)(rows * ((d || s ? 2 * l : 0) + (s ? 3 : 0)));
    now.special += (tl_u128)(s ? rows : 0);
    return true;
}

/* Of a mixture of experts. False: not listed. */
static bool formula_of_experts(entry e, const tl_kcall *call, formula *f) {
    const tl_route_attr *route = call->attr;
    switch (e) {
    case ENTRY_moe_sort:
    case ENTRY_moe_capacity:
    case ENTRY_moe_permute:
        return true;
    /* + bias each; a group's best two added. DeepSeek-V3, equation 16 */
    case ENTRY_route_choose:
        *f = (formula){.element = call->n_in > 1, .row = route->n_group > 1 && route->top2 ? route->n_group : 0};
        return true;
    case ENTRY_moe_load:
        f->call = elements(&call->out[0]);
        return true; /* ÷ n for each expert */
    /* Σ w·y: of y. Backward w·g and Σ y·g: of its rows */
    case ENTRY_moe_combine:
        f->element = call->n_in > 2 ? 2 : 1;
        return true;
    case ENTRY_moe_combine_backward:
        f->element = (call->in[2].data ? 1 : 0) + (call->in[3].data ? 2 : 0);
        return true;
    default:
        return false;
    }
}

static bool formula_of(entry e, const tl_kcall *call, formula *f) {
    return formula_of_each(e, call, f) || formula_of_parts(e, call, f) || formula_of_rows(e, call, f) ||
           formula_of_experts(e, call, f);
}

static void count_operations(entry e, const tl_kcall *call) {
    formula f = {0};
    if (!count_flash(e, call) && !formula_of(e, call, &f))
        now.unknown = entries[e].name;
    /* The side that is worked through: of a reduction, a norm's gradient and a loss its input. */
    const tl_array *a = call->n_in > 0 ? &call->in[0] : &call->out[0];
    if (e == ENTRY_embedding_backward)
        a = &call->in[1];
    if (e == ENTRY_nf4_dequantize) { /* two values lie in a byte of in[0] */
        a = &call->out[0];
        now.arithmetic += call->n_in > 2 && !call->attr ? 2 * (tl_u128)elements(&call->in[1]) : 0;
    }
    if (e == ENTRY_nf4_scales)
        now.arithmetic += (tl_u128)elements(&call->out[1]);
    if (e == ENTRY_moe_combine_backward)
        a = call->in[3].data ? &call->in[3] : &call->out[0];
    int64_t n = elements(a), last = a->ndim > 0 ? a->size[a->ndim - 1] : 1;
    worked[e] += n;
    tl_u128 all = (tl_u128)n, rows = last > 0 ? (tl_u128)(n / last) : 0;
    now.arithmetic += all * (tl_u128)f.element + rows * (tl_u128)f.row + (tl_u128)f.call;
    now.special += all * (tl_u128)f.special + rows * (tl_u128)f.special_row;
    if (e == ENTRY_mean)
        now.arithmetic += (tl_u128)elements(&call->out[0]);
    if (e == ENTRY_rotary) { /* a position and pair, for all heads and sequences: the angle's ×, its sine and cosine */
        int64_t rotated = ((const tl_rotary_attr *)call->attr)->rotated, turned = rotated > 0 ? rotated : last;
        tl_u128 table = (tl_u128)(a->size[a->ndim - 2] * turned);
        now.arithmetic += table / 2 + 3 * (tl_u128)(last > 0 ? n / last * turned : 0);
        now.special += table;
    }
}

/* ---- entries ---- */

static void enter(entry e, tl_kcall *call) {
    if (e == ENTRY_nf4_dequantize && call->attr)
        count_nf4_part(call, *(const int64_t *)call->attr);
    else
        count_bytes(entries[e].how, call);
    count_operations(e, call);
    now.calls++;
    real_kernels[e](call);
}

#define WRAP(name, how)                                                                                                \
    static void enter_##name(tl_kcall *call) { enter(ENTRY_##name, call); }
ENTRIES(WRAP)

static void enter_product(const tl_product *p) {
    int64_t size = tl_dtype_bytes(p->dtype), a = p->m * p->k, b = p->k * p->n, c = p->m * p->n;
    for (int d = 0; d < p->n_batch; d++) {
        a *= p->a_batch[d] == 0 && p->batch[d] > 1 ? 1 : p->batch[d];
        b *= p->b_batch[d] == 0 && p->batch[d] > 1 ? 1 : p->batch[d];
        c *= p->batch[d];
    }
    now.read += size * (a + b + (p->accumulate ? c : 0) + (p->bias ? p->n : 0));
    now.written += size * c;
    now.arithmetic += (tl_u128)((p->accumulate ? c : 0) + (p->bias ? c : 0)); /* of the product itself: instrument.h */
    now.calls++;
    real_product(p);
}

const tl_kernels *elements_kernels(const tl_kernels *real) {
    counting = *real;
    real_product = real->product;
    counting.product = enter_product;
#define TAKE(name, how)                                                                                                \
    real_kernels[ENTRY_##name] = real->name;                                                                           \
    counting.name = enter_##name;
    ENTRIES(TAKE)
    return &counting;
}

/* ---- ops ---- */

static void after_op(void *self, const tl_sig *sig, tl_tensor *const out[], int n) {
    (void)self;
    if (sig->op->cost != tl_cost_free || now.calls > 0) {
        if (done_count == done_capacity) {
            int64_t capacity = done_capacity ? 2 * done_capacity : 256;
            touched *grown = realloc(done, (size_t)capacity * sizeof *grown);
            if (!grown)
                abort();
            done = grown;
            done_capacity = capacity;
        }
        now.op = sig->op->name;
        now.site = sig->site;
        for (int i = 0; i < sig->n_in; i++)
            now.empty |= tl_tensor_count(sig->in[i]) == 0;
        for (int i = 0; i < n; i++)
            now.empty |= tl_tensor_count(out[i]) == 0;
        done[done_count++] = now;
    }
    memset(&now, 0, sizeof now);
}

void elements_watch(tl_ctx *ctx) { ctx->watch = after_op; }

void elements_begin(void) {
    memset(&now, 0, sizeof now);
    memset(worked, 0, sizeof worked);
    done_count = 0;
}

const touched *elements_of_ops(int64_t *count) {
    *count = done_count;
    return done;
}

int64_t elements_of_kernel(const char *kernel) {
    for (int e = 0; e < ENTRY_COUNT; e++)
        if (strcmp(entries[e].name, kernel) == 0)
            return worked[e];
    abort();
}

void elements_free(void) {
    free(done);
    done = NULL;
    done_count = done_capacity = 0;
}
