/* kernel/table.h: what a device offers to ops. Pure loops over pointers and strides: nothing here knows a tensor, a
 * ledger or a context. An op reaches data only through a tl_kernels table; another instruction set or device is another
 * table of the same shape. This header needs no kernel to be linked.
 *
 * Rules for every kernel
 *   - Strides are in elements, may be zero (broadcast) or negative. `data` points at element [0,…,0].
 *   - in and out never overlap, except that out[i] may be exactly in[j] (same data, same strides) where noted "in place".
 *   - Any size may be 0. Floating dtypes: f64 computes in double; the others compute in float and round once on
 *     store. Integers compute in 64 bits and keep the low bits on store.
 *   - The result never depends on the number of threads: work is cut by shape alone, partial sums are added in a fixed
 *     order. Inner loops are autovectorisable C; built with -ffp-contract=off.
 *   - Kernels do not allocate: scratch comes in `work`, whose size the op declared.
 *   - Kernels cannot fail; ops check everything before. The exception is bad data (an index out of range): the kernel
 *     sets call->fault to 1 + the flat position of the first bad element, and leaves the output partly written.
 */
#ifndef TALLY_KERNEL_TABLE_H
#define TALLY_KERNEL_TABLE_H

#include "tally/cpu.h"
#include "tally/dtype.h"

#ifndef TL_MAX_NDIM
#define TL_MAX_NDIM 8
#endif
#ifndef TL_MAX_IO
#define TL_MAX_IO 16
#endif

typedef struct tl_engine tl_engine; /* threads, their fixed scratch blocks, cached products */

typedef struct tl_array {
    char *data;
    tl_dtype dtype;
    int ndim;
    int64_t size[TL_MAX_NDIM];
    int64_t stride[TL_MAX_NDIM];
} tl_array;

typedef struct tl_kcall {
    tl_engine *engine;
    int n_in, n_out;
    tl_array in[TL_MAX_IO];
    tl_array out[TL_MAX_IO];
    const void *attr; /* the op's attributes, one of the structs below or NULL */
    void *work;
    int64_t work_bytes;
    int64_t fault;         /* 0, or 1 + flat position of the first bad index */
    int64_t product_flops; /* 2·m·n·k of every product that the kernel made itself, added up as it made them */
} tl_kcall;

typedef void tl_kernel(tl_kcall *call);

/* One (batched) product: C[m,n] = A[m,k] · B[k,n], or C += when accumulate. Strides in elements; in each of A, B, C one of
 * the two matrix strides is 1 unless the size along it is 1 (the op copies otherwise). Batches: up to 6 outer axes. */
typedef struct tl_product {
    tl_engine *engine;
    tl_dtype dtype; /* of A, B and C; accumulation in f32 (f64 for f64) */
    int64_t m, n, k;
    const char *a, *b;
    char *c;
    int64_t a_row, a_col, b_row, b_col, c_row; /* c_col is 1 */
    int n_batch;
    int64_t batch[6], a_batch[6], b_batch[6], c_batch[6];
    bool accumulate;
    const char *bias; /* NULL, or n values of dtype added to each row */
    int64_t bias_stride;
    bool *failed; /* NULL, or set when a library failed part-way through an accumulating product: C is then undefined */
} tl_product;

/* ---- attributes ---- */
typedef struct tl_scale_attr {
    double factor, offset; /* out = in·factor + offset */
} tl_scale_attr;
/* Rows of a float8 state: a product's input and weight are rounded to e4m3, the gradient of its output to e5m2. */
enum { TL_FP8_INPUT, TL_FP8_WEIGHT, TL_FP8_GRADIENT, TL_FP8_ROWS };
typedef struct tl_fp8_attr {
    tl_dtype format; /* TL_F8E4M3 or TL_F8E5M2 */
    int row;
    double scale; /* a power of two; filled in by the op's forward */
} tl_fp8_attr;
typedef struct tl_fill_attr {
    double value;
} tl_fill_attr;
typedef struct tl_softmax_attr {
    double scale; /* softmax(scale·x) over the last axis */
    bool causal;  /* row i of the second-last axis sees columns 0 … i + (columns − rows) */
} tl_softmax_attr;
typedef struct tl_norm_attr {
    double epsilon;
    double gain_offset; /* RMS norm: the row is multiplied by gain + this, in the compute type (Gemma: 1) */
} tl_norm_attr;
typedef struct tl_rotary_attr {
    double theta;     /* base, 10000 */
    int64_t first;    /* position of row 0 */
    bool interleaved; /* pairs (0,1),(2,3)… (the RoPE paper); else (i, i + K/2) (GPT-NeoX, Hugging Face) */
    bool inverse;     /* rotate back: the gradient */
    /* tl_rotary_scaling; 0 with a factor above 0 is llama3 */
    int scaling;
    bool no_truncate; /* yarn: the ramp's ends are not rounded to whole pairs */
    int64_t rotated;  /* the first of the last axis that turn; 0: all. The rest is copied */
    int64_t pairs;    /* of those, the pairs whose angle is not 0; 0: all */
    double factor, low_freq_factor, high_freq_factor;
    int64_t original_context;
    /* yarn; attention_factor 0: 0.1·ln(factor) + 1, or of mscale ÷ mscale_all where both are given */
    double beta_fast, beta_slow, attention_factor, mscale, mscale_all;
    /* longrope: a divisor for each pair, `factors` of them, up to the original context and beyond it; they outlive the graph */
    const double *short_factors, *long_factors;
    int64_t factors;
} tl_rotary_attr;
typedef struct tl_loss_attr {
    int64_t ignore_index;
} tl_loss_attr;
typedef struct tl_random_attr {
    uint64_t seed;   /* key, with stream */
    uint64_t stream; /* hash of (kind of stream, name) */
    uint64_t first;  /* global index of element 0 */
    double a, b;     /* normal: mean, std; uniform: low, high; truncated: mean, std; dropout: probability, unused */
    double cut;      /* truncated normal: cut at ±cut standard deviations */
} tl_random_attr;
typedef struct tl_sgd_attr {
    double lr, momentum, weight_decay;
    bool nesterov, first; /* first: the momentum buffer starts as the gradient (PyTorch) */
} tl_sgd_attr;
typedef struct tl_adagrad_attr {
    double lr, epsilon, weight_decay;
    bool epsilon_outside; /* √s + ε instead of √(s + ε) */
} tl_adagrad_attr;
typedef struct tl_rmsprop_attr {
    double lr, alpha, epsilon, weight_decay, momentum;
    bool centered;
} tl_rmsprop_attr;
typedef struct tl_adamw_attr {
    double lr, beta1, beta2, epsilon, weight_decay;
    int64_t step; /* from 1 */
    bool cs336; /* CS336's order: α_t = lr·sqrt(1−β2^t)/(1−β1^t); θ −= α_t·m/(sqrt(v)+ε); then θ −= lr·λ·θ.
                          PyTorch's: θ −= lr·λ·θ; θ −= lr/(1−β1^t) · m / (sqrt(v)/sqrt(1−β2^t) + ε) */
} tl_adamw_attr;

/* elu, leaky_relu, swish: α */
typedef struct tl_alpha_attr {
    double alpha;
} tl_alpha_attr;
typedef struct tl_is_inf_attr {
    bool positive, negative; /* which infinities count */
} tl_is_inf_attr;
typedef struct tl_clamp_attr {
    double low, high; /* max(low, x), then min(high, …); of integers both towards zero */
} tl_clamp_attr;
typedef struct tl_argmax_attr {
    bool least, last; /* the smallest instead; the last of equals instead of the first */
} tl_argmax_attr;
typedef struct tl_cumulate_attr {
    bool product;   /* instead of the sum */
    bool exclusive; /* without the element itself: the first is 0 (1) */
    bool reverse;   /* from the last element to the first */
} tl_cumulate_attr;
typedef struct tl_triangle_attr {
    int64_t diagonal; /* column − row of the last diagonal that is kept */
    bool upper;       /* keeps what is on and above it; else on and below */
} tl_triangle_attr;
typedef struct tl_range_attr {
    double start, step;          /* for floats: start + i·step in double, rounded once */
    int64_t start_int, step_int; /* for integers */
} tl_range_attr;
typedef struct tl_one_hot_attr {
    double on, off;
} tl_one_hot_attr;

/* ---- attributes of the index, loss, attention and quantising kernels ---- */
/* How indices pick elements of a tensor x. `picked` is the other side: a gather's result, a scatter's updates. */
typedef enum tl_index_kind {
    TL_INDEX_AXIS,     /* picked[a…, i…, b…] = x[a…, index[i…], b…] */
    TL_INDEX_ELEMENTS, /* picked[… i …] = x[… index[… i …] …] along `axis`; index and picked have one shape */
    TL_INDEX_ND /* picked[b…, i…, s…] = x[b…, index[b…, i…, 0], index[b…, i…, 1] …, s…]; `axis` axes b */
} tl_index_kind;
typedef enum tl_combine {
    TL_COMBINE_REPLACE,
    TL_COMBINE_ADD,
    TL_COMBINE_MUL,
    TL_COMBINE_MAX,
    TL_COMBINE_MIN
} tl_combine;
typedef struct tl_index_attr {
    tl_index_kind kind;
    int axis;
    tl_combine combine;
} tl_index_attr;
typedef struct tl_sort_attr {
    int axis;
    bool descending;
    int64_t count; /* the first `count` of the order */
} tl_sort_attr;
/* Rows sorted at a time, each with its own part of the workspace. */
#define TL_SORT_SLOTS 8
/* Mixtures of experts, tally/ops_moe.h: the choice, the rows of an order, and an expert's places. */
typedef struct tl_route_attr {
    int64_t k, n_group, topk_group; /* n_group ≤ 1: no groups */
    bool top2;                      /* a group counts as much as its best two experts, else as its best */
} tl_route_attr;
typedef struct tl_moe_attr {
    int64_t k; /* choices of one token */
} tl_moe_attr;
typedef struct tl_capacity_attr {
    bool choice_first; /* all first choices before all second */
} tl_capacity_attr;
typedef enum tl_pad_mode { TL_PAD_CONSTANT, TL_PAD_REFLECT, TL_PAD_EDGE, TL_PAD_WRAP } tl_pad_mode;
typedef struct tl_pad_attr {
    tl_pad_mode mode;
    int64_t before[TL_MAX_NDIM], after[TL_MAX_NDIM]; /* negative: cut off */
    double value;                                    /* of TL_PAD_CONSTANT, which needs no kernel */
} tl_pad_attr;
typedef enum tl_nll_reduction { TL_NLL_MEAN, TL_NLL_SUM, TL_NLL_NONE } tl_nll_reduction;
typedef struct tl_nll_attr {
    int64_t ignore_index;
    tl_nll_reduction reduction;
} tl_nll_attr;
typedef struct tl_masked_softmax_attr {
    double scale;
    bool has_mask, has_sink, has_positions, has_lengths; /* the inputs behind x, in this order */
    int64_t chunk;  /* above 0: row i sees columns of ⌊(i + offset)/chunk⌋'s chunk alone, from its start */
    bool causal;    /* row i sees columns 0 … i + offset */
    int64_t offset; /* with lengths: lengths[b] − rows instead */
    int64_t window_before, window_after; /* columns i + offset − before … i + offset + after; negative: no limit */
} tl_masked_softmax_attr;
/* See tally/ops_attention.h. */
enum { TL_FLASH_DQ = 1, TL_FLASH_DK = 2, TL_FLASH_DV = 4, TL_FLASH_DSINKS = 8 };
typedef struct tl_flash_attr {
    double scale, softcap;                             /* softcap 0: none */
    bool causal, has_sinks, has_slopes, has_positions; /* the last three: inputs behind the others, in this order */
    bool slopes_scaled;                                /* Falcon's: slope·column in bf16, times scale */
    int64_t offset, window_before, chunk;              /* window negative, chunk 0: none */
    tl_random_attr dropout; /* a: the probability; 0: none. first: of element [0,0,0,0] of [B,H,T,S] */
    uint32_t wanted;        /* backward: TL_FLASH_DQ … */
} tl_flash_attr;
#define TL_FLASH_MOST 1024 /* largest head size: the blocks then fit a worker's scratch */
typedef struct tl_multiply_add_attr {
    double keep, value;
    bool divides;
} tl_multiply_add_attr;
typedef struct tl_swiglu_attr {
    double alpha;
} tl_swiglu_attr;
typedef struct tl_quantize_attr {
    double lowest, highest;
    bool saturate; /* to lowest … highest: always for integers; float8 otherwise overflows to NaN or infinity */
    bool floating; /* a float8 result, which is not rounded to a whole number */
    bool has_zero; /* a zero point is given */
} tl_quantize_attr;

/* Elements of D handled by one cross-row partial sum: rows are cut in blocks of this many, by shape alone. */
/* Rows that one partial sum over rows takes: rows are cut in blocks of this many, by shape alone. */
#define TL_ROW_BLOCK 64
/* Elements that share a scale in adamw8bit's states: TL_OPTIM_8BIT_BLOCK. */
#define TL_8BIT_BLOCK 256
/* Elements that one partial sum of mse takes. */
#define TL_ERROR_BLOCK 4096

/* ---- flash attention's blocks: by the sizes of the heads alone ---- */
/* Bytes of a worker's scratch block that the backward kernel uses with blocks of `block` rows and keys: Q, dO and their transposes,
 * K, V, three gradients, two squares of scores, 8 numbers a row. Rows are padded to 16. */
static inline int64_t tl_flash_scratch(int64_t block, int64_t k, int64_t l, bool wide) {
    int64_t kp = (k + 15) / 16 * 16, lp = (l + 15) / 16 * 16;
    return block * (5 * kp + 4 * lp + 2 * block + 8) * (wide ? 8 : 4) + 8 * TL_FLASH_MOST;
}
static inline int64_t tl_flash_block(int64_t k, int64_t l, bool wide) {
    int64_t block = 64;
    while (block > 16 && tl_flash_scratch(block, k, l, wide) > (int64_t)3 << 19)
        block /= 2;
    return block;
}
/* Columns [*low, *high) that row `row` sees, of `columns`. */
static inline void tl_flash_sees(const tl_flash_attr *a, int64_t row, int64_t columns, int64_t *low, int64_t *high) {
    int64_t at = row + a->offset;
    *low = 0;
    *high = a->causal && at < columns ? at + 1 : columns;
    if (a->window_before >= 0 && at > a->window_before)
        *low = at - a->window_before;
    if (a->chunk > 0) {
        int64_t begin = at / a->chunk * a->chunk;
        *low = begin > *low ? begin : *low;
        *high = a->chunk < *high - begin ? begin + a->chunk : *high;
    }
    *low = *low < columns ? *low : columns;
    *high = *high > *low ? *high : *low;
}
/* Backward: parts that the keys of one head are cut into, so that few heads keep several threads busy; each has its own sum for
 * dQ, and the parts are added in order. Keys of one part, a whole number of blocks. */
static inline int64_t tl_flash_part(int64_t heads, int64_t columns, int64_t block) {
    int64_t blocks = columns / block + (columns % block != 0),
            parts = heads > 0 && heads < 8 ? (8 + heads - 1) / heads : 1;
    parts = parts > blocks / 4 ? blocks / 4 : parts;
    parts = parts < 1 ? 1 : parts;
    int64_t part = (blocks + parts - 1) / parts * block;
    return part > 0 ? part : block;
}

struct tl_kernels {   /* tally/cpu.h finds the table for a processor */
    const char *name; /* "portable", "avx2", "avx512" */

    /* The engine: `scratch` is `threads` blocks of scratch_bytes each, 64-byte aligned, owned by the caller. The calling
     * thread is thread 0. threads ≥ 1. Products must fit the blocks. */
    tl_status (*engine_open)(const tl_allocator *allocator, int threads, void *scratch, int64_t scratch_bytes,
                             tl_engine **engine, tl_error *error);
    void (*engine_close)(tl_engine *engine);

    void (*product)(const tl_product *product);

    /* binary, in[0], in[1] → out[0]; sizes already broadcast (stride 0); same dtype; in place on in[0] or in[1]. f*, i*. */
    tl_kernel *add, *sub, *mul, *div;
    /* unary, in[0] → out[0]; in place. Floats. */
    tl_kernel *neg, *exp, *log, *sqrt, *rsqrt, *tanh, *relu, *gelu_erf, *gelu_tanh, *silu;
    /* in[0]·factor + offset → out[0]; in place. tl_scale_attr. Floats and ints (rounded to nearest for ints). */
    tl_kernel *scale;
    /* derivative: in[0] = x, in[1] = gradient of the output → out[0]. (tanh: in[0] = the output.) In place on in[1]. */
    tl_kernel *relu_backward, *gelu_erf_backward, *gelu_tanh_backward, *silu_backward, *tanh_backward;
    /* in[0] → out[0], any dtypes: copies with conversion (float→int truncates towards zero and saturates, NaN is 0; int→int
     * saturates; →bool is ≠ 0; →f8: too large is NaN in e4m3, infinity in e5m2). */
    tl_kernel *copy;
    /* the same, but →f8 too large is the largest number, ±448 or ±57344 */
    tl_kernel *copy_saturating;
    /* out[0] = value. tl_fill_attr. Any dtype. */
    tl_kernel *fill;
    /* in[0] → out[0] of the same ndim; where out.size is 1 and in.size is not, the axis is reduced. sum: in f32 (f64 for f64,
     * i64 for ints) in a fixed pairwise order. mean: sum ÷ count. max: NaN wins. */
    tl_kernel *sum, *mean, *max;
    /* sum of squares of in[0] in double → out[0], one f64 element (safe for 128 × 1e19). */
    tl_kernel *square_sum;
    /* how many elements of in[0] are NaN or infinite → out[0], one f64 element. */
    tl_kernel *non_finite;
    /* index (i64 out) of the first largest element along the last axis; out.ndim = in.ndim − 1. attr: NULL or
     * tl_argmax_attr. */
    tl_kernel *argmax;
    /* softmax over the last axis; in place. A fully masked row is all 0. tl_softmax_attr. */
    tl_kernel *softmax;
    /* in[0] = output y, in[1] = gradient → out[0] = scale·y·(g − Σ y·g); in place on in[1]. */
    tl_kernel *softmax_backward;
    /* in: x[…,D], gain[D], bias[D] (n_in 2: no bias) → out[0] y, out[1] mean f32[…], out[2] 1/std f32[…] (n_out 1: inference;
     * f64 statistics for f64). All but the last axis flattened by the kernel. tl_norm_attr. Biased variance. */
    tl_kernel *layer_norm;
    /* in: x, gain, mean, rstd, gradient → out[0] dx, out[1] dgain[D], out[2] dbias[D] (n_out 2: no bias). out[i].data may be NULL:
     * not wanted. work: 2·ceil(rows/TL_ROW_BLOCK)·D floats (doubles for f64). dx in place on the gradient. */
    tl_kernel *layer_norm_backward;
    /* in: x[…,D], gain[D] → out[0] y, out[1] 1/rms f32[…] (n_out 1: inference). */
    tl_kernel *rms_norm;
    /* in: x, gain, 1/rms, gradient → out[0] dx, out[1] dgain; data may be NULL. work: ceil(rows/TL_ROW_BLOCK)·D floats. */
    tl_kernel *rms_norm_backward;
    /* in[0] x[…,T,K] → out[0]; angles position·theta^(−2i/K) in double. tl_rotary_attr. In place. */
    tl_kernel *rotary;
    /* in: table[V,D], ids[…] (i32 or i64) → out[0] […,D]; a bad id is a fault. */
    tl_kernel *embedding;
    /* in: ids, gradient […,D] → out[0] table gradient [V,D], zeroed first; rows added in order of position. */
    tl_kernel *embedding_backward;
    /* in: logits[…,V], targets[…] (R rows in all) → out[0] loss (one element, mean over targets ≠ ignore_index; f32 for f32/bf16/f16), out[1] f32[…]
     * log-sum-exp (f64 for f64), out[2] f32[1] the number of counted targets (n_out 1: inference; then work holds R floats/doubles). All ignored:
     * loss 0. Target outside [0,V) and ≠ ignore_index: a fault. tl_loss_attr. */
    tl_kernel *cross_entropy;
    /* in: logits, targets, lse, count, gradient of the loss (one element) → out[0] gradient of logits; 0 rows where ignored. */
    tl_kernel *cross_entropy_backward;
    /* in: a, b (same shape) → out[0], one element, mean of (a−b)² (f32 for 16-bit). work: ceil(n/TL_ERROR_BLOCK) doubles. */
    tl_kernel *mse;
    /* in: a, b, gradient (one element) → out[0] = 2(a−b)·g/n. */
    tl_kernel *mse_backward;
    /* in[0] → out[0] = in·mask/(1−p), out[1] u8 mask, contiguous. Element i draws from (seed, stream, first + i). */
    tl_kernel *dropout;
    /* in: mask u8, gradient → out[0]; tl_random_attr.a = p. In place on the gradient. */
    tl_kernel *dropout_backward;
    /* out[0] (any float dtype; the bits of element i depend on (seed, stream, first + i) alone). tl_random_attr. */
    tl_kernel *normal, *truncated_normal, *uniform;

    /* Optimizer updates: one pass. in[0] gradient, out[0] parameter (in place), then states. Where a master copy exists it is
     * out[0] and out[n_out−1] is the low-precision parameter, written from it. States may have another float dtype. */
    tl_kernel *sgd;     /* out: parameter, [momentum buffer if momentum ≠ 0], [low-precision copy] */
    tl_kernel *adagrad; /* out: parameter, sum of squares, [copy]; tally/optim.h has all formulas */
    tl_kernel *rmsprop; /* out: parameter, mean of squares, [momentum buffer], [mean: centered], [copy] */
    tl_kernel *adamw;   /* out: parameter, m, v, [copy] */
    tl_kernel *adam;    /* the same; tl_adamw_attr, decay as L2 */
    /* out: parameter, m and v as u8 codes of the parameter's sizes, their scales f32, one for each TL_8BIT_BLOCK elements
     * in flat order, [copy]. Codes and scales are contiguous. tl_adamw_attr, PyTorch's order. */
    tl_kernel *adamw8bit;
    /* ---- indices, sorting, padding, losses, masked attention, quantising ---- */
    /* in: x, index (i32 or i64; negative counts from the end) → out[0] picked; any dtype. tl_index_attr. A bad index is a fault. */
    tl_kernel *gather;
    /* in: index, picked; out[0] x, combined in place with each picked element in order of its flat position. tl_index_attr. */
    tl_kernel *scatter;
    /* The same; out[1] like picked: what each combination found in x. */
    tl_kernel *scatter_trace;
    /* Reverse of scatter. in: index, [picked: mul, max, min]; out[0] the gradient of the result, becomes that of x; out[1]: what
     * scatter_trace found (mul, max, min; else undefined), becomes the gradient of picked. */
    tl_kernel *scatter_reverse;
    /* in[0] → out[0] its first `count` values in order along an axis, out[1] where they were (i64). Stable; NaN is the largest.
     * work: TL_SORT_SLOTS·3·n values of 8 bytes. tl_sort_attr. */
    tl_kernel *sort;
    /* in[0] → out[0], longer by before and after along each axis: reflect (the border not repeated), edge, wrap; any dtype.
     * tl_pad_attr. */
    tl_kernel *pad;
    /* in[0] gradient of the padded → out[0], each element the sum of its copies', in order. */
    tl_kernel *pad_backward;
    /* log softmax over the last axis: x − log Σ e^x. Backward: in: output y, gradient g → g − e^y·Σg. */
    tl_kernel *log_softmax, *log_softmax_backward;
    /* in: log p[N,C,d…], targets[N,d…], [weight[C]] → out[0] loss (f32, f64 for f64: one element, or like targets for
     * TL_NLL_NONE), out[1] one element Σ of the counted weights (n_out 1: not wanted; NONE has none). A target outside
     * [0,C) and ≠ ignore_index is a fault. Nothing counted: 0. tl_nll_attr. */
    tl_kernel *nll_loss;
    /* in: log p, targets, weight (data NULL: none), gradient, [Σ weights, loss: mean only] → out[0] gradient of log p (zeros
     * but at the targets), out[1] of the weight; data NULL: not wanted. */
    tl_kernel *nll_loss_backward;
    /* in: x[…,T,S], [mask: bool, or floats added; sizes as x, strides may be 0], [sink: x's dtype, sizes as x, last two
     * strides 0: one more term e^sink of the row's sum], [lengths i32 or i64[B], B x's first axis] →
     * out[0] softmax(scale·x + mask) over the last axis; columns that the mask, −inf, a length or the window hides are 0 and not
     * read for sums; a row without columns is all 0. tl_masked_softmax_attr. Backward is softmax_backward. */
    tl_kernel *masked_softmax;
    /* The same without the softmax: scale·x + mask, −inf where hidden. */
    tl_kernel *masked_scores;
    /* in: q[B,H,T,K], k[B,G,S,K], v[B,G,S,L], [sinks[H]], [slopes[H]] → out[0] y[B,T,H,L], out[1] log-sum-exp [B,H,T] (n_out 1: not
     * wanted). tl_flash_attr. Uses the workers' scratch, tl_flash_scratch bytes of it. Backward: in: q, k, v, y, log-sum-exp,
     * gradient [B,T,H,L], [sinks], [slopes] → out[0] dq[B,T,H,K], out[1] dk[B,S,G,K], out[2] dv[B,S,G,L], out[3] dsinks[H]; data
     * NULL: not wanted. work, of the compute type: where that is not the dtype, sums for dk and dv (wanted ones) of B·G·S rows;
     * then, with n > 1 parts of keys, n sums for dq. Both count product_flops. */
    tl_kernel *flash_attention, *flash_attention_backward;
    /* in: into, x, [y] → out[0] keep·into + value·x (·y, or /y where `divides`), in place on in[0]. Any floats.
     * tl_multiply_add_attr. */
    tl_kernel *multiply_add;
    /* in: a, b → a·σ(alpha·a)·b. Backward: in: a, b, gradient → out[0] da, out[1] db. tl_swiglu_attr. */
    tl_kernel *swiglu, *swiglu_backward;
    /* in: x, scale, [zero point] of x's sizes (strides 0 where they repeat) → out[0] saturate(round(x ÷ scale) + zero point), to
     * nearest even. tl_quantize_attr. Dequantise: in: q, scale, [zero point] → (q − zero point)·scale. */
    tl_kernel *quantize, *dequantize;
    /* in: x[…,i] (f64, f32, bf16, f16), q i8[o,i] (rows contiguous), scale f32[o], [bias[o] of x's dtype] → out[0] […,o],
     * contiguous: (Σ x·q)·scale + bias. work: NULL where x is of the compute type with contiguous rows, else rows·i of it. */
    tl_kernel *linear_int8;
    /* ---- elementwise, further: functions.c and compare.c ---- */
    /* in[0] → out[0]; in place. abs, sign: integers too; round: half to even; the rest floats. */
    tl_kernel *abs, *sign, *floor, *ceil, *round, *reciprocal, *sigmoid, *softplus, *softsign, *hard_swish, *mish, *erf,
        *sin, *cos;
    tl_kernel *elu, *leaky_relu, *swish; /* tl_alpha_attr */
    /* in[0] = x (reciprocal, sigmoid: the output), in[1] = gradient → out[0]; in place on in[1]; attributes as above. */
    tl_kernel *abs_backward, *reciprocal_backward, *sigmoid_backward, *softplus_backward, *softsign_backward,
        *hard_swish_backward, *mish_backward, *erf_backward, *sin_backward, *cos_backward, *elu_backward,
        *leaky_relu_backward, *swish_backward;
    tl_kernel *is_nan, *is_inf; /* in[0] → bool; tl_is_inf_attr */
    /* in[0], in[1] of one dtype (any, compared as numbers) → bool; broadcast as for add. */
    tl_kernel *equal, *not_equal, *less, *less_equal, *greater, *greater_equal;
    tl_kernel *logical_and, *logical_or, *logical_xor; /* of ≠ 0 */
    /* As add; a NaN wins. Their gradients: in: mine, the other, gradient (half where equal) → out[0] for mine. */
    tl_kernel *minimum, *maximum, *minimum_backward, *maximum_backward;
    /* in[0] to the power in[1]; integers modulo 2^64, 1/x^n for n < 0. Gradients: in: x, n, gradient → for x, for n. */
    tl_kernel *power, *power_backward_base, *power_backward_exponent;
    tl_kernel *mod, *fmod;  /* remainder with the divisor's sign (Python), the dividend's (C); integers by 0: 0 */
    tl_kernel *where;       /* in: bool, a, b (any dtype) → out[0] */
    tl_kernel *masked_fill; /* in: x, bool → out[0]; tl_fill_attr */
    tl_kernel *clamp, *clamp_backward; /* tl_clamp_attr; backward: in: x, gradient, which passes where low ≤ x ≤ high */
    /* ---- reductions, further: fold.c. in and out as for sum; integers modulo 2^64 where it says so ---- */
    tl_kernel *min;                                /* NaN wins; any dtype */
    tl_kernel *prod, *l1, *sum_square;             /* integers too; l1: Σ|x| */
    tl_kernel *l2, *log_sum_exp;                   /* √Σx²; log Σe^x, shifted by the largest. Floats */
    tl_kernel *l2_backward, *log_sum_exp_backward; /* in: x, y, gradient, both broadcast to x → out[0] */
    tl_kernel *prod_backward;                      /* in: x, gradient (size 1 where reduced) → out[0] like x */
    /* ---- along the last axis, further: along.c ---- */
    tl_kernel *cumulate;         /* in[0] → out[0]; tl_cumulate_attr. Floats, integers modulo 2^64 */
    tl_kernel *cumprod_backward; /* in: x, gradient → out[0]; the product's tl_cumulate_attr */
    tl_kernel *triangle;         /* in[0] […, M, N] → out[0], zero outside; tl_triangle_attr. Any dtype */
    tl_kernel *range;            /* out[0], one axis; tl_range_attr. Any dtype */
    tl_kernel
        *one_hot; /* in[0] indices → out[0] with one axis more, the last; tl_one_hot_attr. Out of range: all off */
    /* ---- emulated float8: fp8.c ---- */
    tl_kernel *fp8_round; /* in[0] → out[0] = in·scale, rounded to the format, ÷ scale; in place; tl_fp8_attr. Floats */
    tl_kernel *absolute_max; /* out[0], one f32: the largest of what it held and |in[0]|; NaN wins */
    tl_kernel *fp8_roll;     /* out[0] f32[TL_FP8_ROWS, 1 + history], in place: see tally/ops_fp8.h */
    /* ---- NF4 weights (tally/ops_nf4.h): nf4.c. Packed, scales, codes: contiguous, along one axis ---- */
    tl_kernel
        *nf4_quantize; /* in[0] of any strides → out[0] packed u8, out[1] f32 scales; a value that is not finite in
                                  f32 is a fault */
    tl_kernel *nf4_scales; /* in[0] f32 scales → out[0] i8 codes, out[1] f32 a block of 256, out[2] f32 the mean */
    tl_kernel
        *nf4_dequantize; /* in: packed, scales, or (n_in 4) packed, codes, f32 a block, mean → out[0], contiguous; attr:
                            NULL, or an int64_t, the value of the packed ones that out begins with */
    /* ---- mixtures of experts: moe.c ---- */
    /* in: what[n,E], [bias[E] of any float dtype] → out[0] i32[n,k]. tl_route_attr. work: TL_SORT_SLOTS·(E + k + 2·groups)·8. */
    tl_kernel *route_choose;
    /* in[0] experts[n,k] (i32, i64; outside 0 … E−1: a fault) → out[0] order i32[n·k], out[1] offsets i32[E+1]. */
    tl_kernel *moe_sort;
    /* → out[0] order i32[E,C], −1 where free. work: E i64. tl_capacity_attr. */
    tl_kernel *moe_capacity;
    /* → out[0] floats[E], how many chose it ÷ n. work: E i64. */
    tl_kernel *moe_load;
    /* in: x[n,D], order[…] (−1 … n·k−1, else a fault) → out[0] […,D] rows order/k of x, 0 for −1; any dtype. tl_moe_attr. */
    tl_kernel *moe_permute;
    /* in: y[…,D], order[…], [weights[n,k], any float dtype] → out[0] [n,D] = Σ over a token's rows of w·y, in order of rows.
     * tl_moe_attr. work: n + 1 + rows i32. */
    tl_kernel *moe_combine;
    /* in: order, gradient[n,D], weights[n,k] (data NULL: no dy), y (data NULL: no dw) → out[0] dy, out[1] dw; data NULL: not
     * wanted. tl_moe_attr, work as moe_combine. */
    tl_kernel *moe_combine_backward;
};

#endif
