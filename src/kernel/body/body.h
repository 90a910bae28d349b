/* kernel/body/body.h: what every body shares. A body is compiled once per instruction set with -DTL_ISA=portable, avx2,
 * avx512 or neon and the flags for it; TL_K gives its symbols the suffix, so they live side by side in one library.
 *
 * How a kernel is written here
 *   - An elementwise kernel is one loop over contiguous float (and one over contiguous double). TL_K(each) walks any
 *     strides and dtypes: it hands the loop the memory itself where that is contiguous f32 (f64), and otherwise small
 *     buffers that it loads with conversion and stores with one rounding.
 *   - A row kernel walks rows with tl_rows and loads pieces of them the same way.
 *   - Sums run in 16 (double: 8) fixed lanes, so their value depends on neither the instruction set nor the strides.
 */
#ifndef TALLY_KERNEL_BODY_H
#define TALLY_KERNEL_BODY_H

#include <string.h>

#include "kernel/engine.h"
#include "kernel/table.h"

#ifndef TL_ISA
#define TL_ISA portable
#endif
#define TL_K_JOIN_(name, isa) tl_##name##_##isa
#define TL_K_JOIN(name, isa) TL_K_JOIN_(name, isa)
#define TL_K(name) TL_K_JOIN(name, TL_ISA)

/* The next loop's iterations do not depend on each other: out[i] may be in[i], never in[j]. */
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed" /* a loop that stays scalar is no error */
#define TL_INDEPENDENT _Pragma("clang loop vectorize(assume_safety) interleave(enable)")
#else
#define TL_INDEPENDENT _Pragma("GCC ivdep")
#endif

/* 16 floats or 8 doubles, at any address. The compiler splits them where registers are shorter. */
typedef float tl_float16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef double tl_double8 __attribute__((vector_size(64), aligned(8), may_alias));

#define TL_CHUNK 512 /* elements of a buffer; several fit the first-level cache */

enum { TL_READ = 1, TL_WRITE = 2 };

/* ---- convert.c: n elements at a stride, to and from the three compute types ---- */
void TL_K(load_float)(float *to, tl_dtype dtype, const char *from, int64_t stride, int64_t n);
void TL_K(load_double)(double *to, tl_dtype dtype, const char *from, int64_t stride, int64_t n);
void TL_K(load_int)(int64_t *to, tl_dtype dtype, const char *from, int64_t stride, int64_t n);
void TL_K(store_float)(tl_dtype dtype, char *to, int64_t stride, const float *from, int64_t n);
void TL_K(store_double)(tl_dtype dtype, char *to, int64_t stride, const double *from, int64_t n);
void TL_K(store_int)(tl_dtype dtype, char *to, int64_t stride, const int64_t *from, int64_t n);
/* Any to any, as the kernels `copy` and `copy_saturating` say. */
void TL_K(convert)(tl_dtype to_dtype, char *to, int64_t to_stride, tl_dtype from_dtype, const char *from,
                   int64_t from_stride, int64_t n);
void TL_K(convert_saturating)(tl_dtype to_dtype, char *to, int64_t to_stride, tl_dtype from_dtype, const char *from,
                              int64_t from_stride, int64_t n);

/* ---- random.c ---- */
/* 1 where tl_dropout keeps element first + i, 0 where not; n ≤ TL_CHUNK. */
void TL_K(dropout_keeps)(const tl_random_attr *attr, uint64_t first, int64_t n, float *keep);

/* ---- walk.c ---- */
/* Arrays of the same sizes with axes merged where every array allows it. */
typedef struct tl_walk {
    int n_array, ndim;
    int64_t total;
    int64_t size[TL_MAX_NDIM];
    tl_dtype dtype[TL_MAX_IO];
    int bytes[TL_MAX_IO];
    char *data[TL_MAX_IO];
    int64_t stride[TL_MAX_IO][TL_MAX_NDIM]; /* elements */
} tl_walk;

/* The first `ndim` axes of `shape`; with `sort`, axes are reordered by the strides of array 0 (flat positions then differ). */
void TL_K(walk_make)(tl_walk *walk, const tl_array *const array[], int n_array, int ndim, bool sort);
/* Pointers of every array at flat position `position`, which is below total. */
void TL_K(walk_at)(const tl_walk *walk, int64_t position, char *pointer[]);

/* Results of this many bytes go past the caches: more than the last level holds of one core's work on most machines. The
 * size alone decides, and the bits are the same either way. */
#define TL_PAST_CACHE ((int64_t)16 << 20)
void TL_K(stream)(char *to, const char *from, int64_t bytes);
void TL_K(stream_end)(void);

/* What a loop gets: contiguous pointers of the compute type, n elements, and the call's constants. */
typedef void tl_each_loop(const void *constants, int64_t n, void *const pointer[]);

/* Runs `loop` over all elements of the arrays; `access` says per array TL_READ, TL_WRITE or both. */
typedef enum tl_compute { TL_COMPUTE_FLOAT, TL_COMPUTE_DOUBLE, TL_COMPUTE_INT } tl_compute;
void TL_K(each)(tl_engine *engine, const tl_array *const array[], const int access[], int n_array, tl_compute compute,
                tl_each_loop *loop, const void *constants);
/* The same for in[0 … n_in−1] read, out[0] written. */
void TL_K(each_call)(tl_kcall *call, tl_each_loop *loop_float, tl_each_loop *loop_double, const void *constants);
/* With past_float (or NULL), which does what loop_float does, but writes past the caches by itself: it gets an output at the
 * start of a line and a multiple of 16 elements. Saves the way through a buffer. */
void TL_K(each_call_past)(tl_kcall *call, tl_each_loop *loop_float, tl_each_loop *loop_double, tl_each_loop *past_float,
                          const void *constants);

/* Elements [position, position + n) in flat order as contiguous floats (doubles); returns the memory itself where it can. */
const float *TL_K(flat_float)(const tl_walk *walk, int array, int64_t position, int64_t n, float *buffer);
const double *TL_K(flat_double)(const tl_walk *walk, int array, int64_t position, int64_t n, double *buffer);

void TL_K(flat_put_float)(const tl_walk *walk, int array, int64_t position, int64_t n, const float *from);
void TL_K(flat_put_double)(const tl_walk *walk, int array, int64_t position, int64_t n, const double *from);

static inline tl_compute tl_compute_of(tl_dtype dtype) {
    if (dtype == TL_F64)
        return TL_COMPUTE_DOUBLE;
    bool is_float = dtype == TL_F32 || dtype == TL_BF16 || dtype == TL_F16 || dtype == TL_F8E4M3 || dtype == TL_F8E5M2;
    return is_float ? TL_COMPUTE_FLOAT : TL_COMPUTE_INT;
}

static inline int tl_bytes_of(tl_dtype dtype) {
    static const signed char bytes[TL_DTYPE_COUNT] = {8, 4, 2, 2, 8, 4, 1, 1, 1, 1, 2, 1, 2};
    return bytes[dtype];
}

static inline int64_t tl_min_i64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t tl_max_i64(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t tl_blocks_of(int64_t n, int64_t block) { return n / block + (n % block != 0); }

/* Rows of `columns` elements in one task: a function of the shape alone. */
static inline int64_t tl_rows_per_task(int64_t columns) {
    return columns >= TL_TASK_ELEMENTS ? 1 : TL_TASK_ELEMENTS / (columns > 0 ? columns : 1);
}

/* ---- fixed-lane sums: lanes[j % 16] takes element j ---- */
static inline void tl_lanes_add_float(float lane[16], const float *x, int64_t n) {
    tl_float16 sum = *(tl_float16 *)lane;
    int64_t j = 0;
    for (; j + 16 <= n; j += 16)
        sum += *(const tl_float16 *)(x + j);
    *(tl_float16 *)lane = sum;
    for (int64_t l = 0; j < n; j++, l++)
        lane[l] += x[j];
}

/* The same in four sums side by side: for rows, whose next step waits for this one (a long sum's blocks overlap anyway). */
static inline void tl_lanes_add_four_float(float lane[16], const float *x, int64_t n) {
    tl_float16 sum = *(tl_float16 *)lane, b = {0}, c = {0}, d = {0};
    int64_t j = 0;
    for (; j + 64 <= n; j += 64) {
        sum += *(const tl_float16 *)(x + j);
        b += *(const tl_float16 *)(x + j + 16);
        c += *(const tl_float16 *)(x + j + 32);
        d += *(const tl_float16 *)(x + j + 48);
    }
    sum += b + (c + d);
    for (; j + 16 <= n; j += 16)
        sum += *(const tl_float16 *)(x + j);
    *(tl_float16 *)lane = sum;
    for (int64_t l = 0; j < n; j++, l++)
        lane[l] += x[j];
}

/* The same of (x − mean)². */
static inline void tl_lanes_squares_float(float lane[16], const float *x, int64_t n, float mean) {
    tl_float16 sum[4] = {*(tl_float16 *)lane}, part;
    int64_t j = 0;
    for (; j + 64 <= n; j += 64)
        for (int k = 0; k < 4; k++) {
            part = *(const tl_float16 *)(x + j + 16 * k) - mean;
            sum[k] += part * part;
        }
    sum[0] += sum[1] + (sum[2] + sum[3]);
    for (; j + 16 <= n; j += 16) {
        part = *(const tl_float16 *)(x + j) - mean;
        sum[0] += part * part;
    }
    *(tl_float16 *)lane = sum[0];
    for (int64_t l = 0; j < n; j++, l++)
        lane[l] += (x[j] - mean) * (x[j] - mean);
}

static inline void tl_lanes_squares_double(double lane[16], const double *x, int64_t n, double mean) {
    for (int64_t j = 0; j + 16 <= n; j += 16)
        for (int l = 0; l < 16; l++)
            lane[l] += (x[j + l] - mean) * (x[j + l] - mean);
    for (int64_t j = n & ~(int64_t)15, l = 0; j < n; j++, l++)
        lane[l] += (x[j] - mean) * (x[j] - mean);
}

static inline float tl_lanes_sum_float(const float lane[16]) {
    float a[8];
    for (int l = 0; l < 8; l++)
        a[l] = lane[l] + lane[l + 8];
    return ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]));
}

static inline void tl_lanes_add_double(double lane[16], const double *x, int64_t n) {
    tl_double8 low = *(tl_double8 *)lane, high = *(tl_double8 *)(lane + 8);
    int64_t j = 0;
    for (; j + 16 <= n; j += 16) {
        low += *(const tl_double8 *)(x + j);
        high += *(const tl_double8 *)(x + j + 8);
    }
    *(tl_double8 *)lane = low;
    *(tl_double8 *)(lane + 8) = high;
    for (int64_t l = 0; j < n; j++, l++)
        lane[l] += x[j];
}

static inline double tl_lanes_sum_double(const double lane[16]) {
    double a[8];
    for (int l = 0; l < 8; l++)
        a[l] = lane[l] + lane[l + 8];
    return ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]));
}

/* ---- the kernels ---- */
tl_kernel TL_K(add), TL_K(sub), TL_K(mul), TL_K(div);
tl_kernel TL_K(neg), TL_K(exp), TL_K(log), TL_K(sqrt), TL_K(rsqrt), TL_K(tanh), TL_K(relu), TL_K(gelu_erf),
    TL_K(gelu_tanh), TL_K(silu), TL_K(scale);
tl_kernel TL_K(relu_backward), TL_K(gelu_erf_backward), TL_K(gelu_tanh_backward), TL_K(silu_backward),
    TL_K(tanh_backward);
tl_kernel TL_K(copy), TL_K(copy_saturating), TL_K(fill), TL_K(sum), TL_K(mean), TL_K(max), TL_K(square_sum),
    TL_K(non_finite), TL_K(argmax);
tl_kernel TL_K(softmax), TL_K(softmax_backward), TL_K(layer_norm), TL_K(layer_norm_backward), TL_K(rms_norm),
    TL_K(rms_norm_backward);
tl_kernel TL_K(rotary), TL_K(embedding), TL_K(embedding_backward);
tl_kernel TL_K(cross_entropy), TL_K(cross_entropy_backward), TL_K(mse), TL_K(mse_backward);
tl_kernel TL_K(dropout), TL_K(dropout_backward), TL_K(normal), TL_K(truncated_normal), TL_K(uniform);
tl_kernel TL_K(sgd), TL_K(adagrad), TL_K(rmsprop), TL_K(adamw), TL_K(adam), TL_K(adamw8bit);
/* indices, sorting, padding, losses, masked attention, quantising */
tl_kernel TL_K(gather), TL_K(scatter), TL_K(scatter_trace), TL_K(scatter_reverse), TL_K(sort), TL_K(pad),
    TL_K(pad_backward);
tl_kernel TL_K(log_softmax), TL_K(log_softmax_backward), TL_K(nll_loss), TL_K(nll_loss_backward), TL_K(masked_softmax),
    TL_K(masked_scores), TL_K(flash_attention), TL_K(flash_attention_backward);
tl_kernel TL_K(multiply_add), TL_K(swiglu), TL_K(swiglu_backward), TL_K(quantize), TL_K(dequantize), TL_K(linear_int8);
tl_kernel TL_K(abs), TL_K(sign), TL_K(floor), TL_K(ceil), TL_K(round), TL_K(reciprocal), TL_K(sigmoid), TL_K(softplus),
    TL_K(softsign), TL_K(hard_swish), TL_K(mish), TL_K(erf), TL_K(sin), TL_K(cos), TL_K(elu), TL_K(leaky_relu),
    TL_K(swish), TL_K(abs_backward), TL_K(reciprocal_backward), TL_K(sigmoid_backward), TL_K(softplus_backward),
    TL_K(softsign_backward), TL_K(hard_swish_backward), TL_K(mish_backward), TL_K(erf_backward), TL_K(sin_backward),
    TL_K(cos_backward), TL_K(elu_backward), TL_K(leaky_relu_backward), TL_K(swish_backward), TL_K(is_nan), TL_K(is_inf),
    TL_K(equal), TL_K(not_equal), TL_K(less), TL_K(less_equal), TL_K(greater), TL_K(greater_equal), TL_K(logical_and),
    TL_K(logical_or), TL_K(logical_xor), TL_K(minimum), TL_K(maximum), TL_K(minimum_backward), TL_K(maximum_backward),
    TL_K(power), TL_K(power_backward_base), TL_K(power_backward_exponent), TL_K(mod), TL_K(fmod), TL_K(where),
    TL_K(masked_fill), TL_K(clamp), TL_K(clamp_backward), TL_K(min), TL_K(prod), TL_K(l1), TL_K(sum_square), TL_K(l2),
    TL_K(log_sum_exp), TL_K(l2_backward), TL_K(log_sum_exp_backward), TL_K(prod_backward), TL_K(cumulate),
    TL_K(cumprod_backward), TL_K(triangle), TL_K(range), TL_K(one_hot), TL_K(fp8_round), TL_K(absolute_max),
    TL_K(fp8_roll), TL_K(nf4_quantize), TL_K(nf4_scales), TL_K(nf4_dequantize);
tl_kernel TL_K(route_choose), TL_K(moe_sort), TL_K(moe_capacity), TL_K(moe_load), TL_K(moe_permute), TL_K(moe_combine),
    TL_K(moe_combine_backward);

#endif
