/* Reductions, running values, rows and products. */
#include <math.h>

#include "conformance/conformance.h"
#include "tally/axes.h"

/* The axes of ONNX's reductions: an input or (before opset 18) an attribute. `none`: no axes were given and that means
 * nothing is to be reduced. */
typedef struct axes {
    int axis[TL_MAX_NDIM], n;
    bool keep, none;
} axes;

static axes axes_of(const conformance_case *c) {
    axes a = {.keep = conformance_int(c, "keepdims", 1) != 0};
    int64_t value[TL_MAX_NDIM];
    int n = conformance_ints(c, 1, "axes", value);
    for (int i = 0; i < n; i++)
        a.axis[a.n++] = (int)value[i];
    a.none = n <= 0 && conformance_int(c, "noop_with_empty_axes", 0) != 0;
    return a;
}

/* Integers reduce in i64 here; ONNX gives back the input's format. */
#define REDUCE(name, call)                                                                                             \
    static void run_##name(conformance_case *c) {                                                                      \
        axes a = axes_of(c);                                                                                           \
        c->y[0] = a.none ? c->x[0] : tl_cast(call(c->x[0], a.axis, a.n, a.keep), c->in[0].dtype);                      \
    }
#define REDUCE_EXACT(name, call)                                                                                       \
    static void run_##name(conformance_case *c) {                                                                      \
        axes a = axes_of(c);                                                                                           \
        conformance_exact(c);                                                                                          \
        c->y[0] = a.none ? c->x[0] : call(c->x[0], a.axis, a.n, a.keep);                                               \
    }
REDUCE(sum, tl_sum)
REDUCE(mean, tl_mean)
REDUCE(prod, tl_prod)
REDUCE(l1, tl_l1)
REDUCE(l2, tl_l2)
REDUCE(sum_square, tl_sum_square)
REDUCE(log_sum, tl_log_sum)
REDUCE(log_sum_exp, tl_log_sum_exp)
REDUCE_EXACT(max, tl_max)
REDUCE_EXACT(min, tl_min)

static void run_argmax(conformance_case *c) {
    c->y[0] = tl_argmax_along(c->x[0], (int)conformance_int(c, "axis", 0), conformance_int(c, "keepdims", 1) != 0,
                              conformance_int(c, "select_last_index", 0) != 0);
}
static void run_argmin(conformance_case *c) {
    c->y[0] = tl_argmin_along(c->x[0], (int)conformance_int(c, "axis", 0), conformance_int(c, "keepdims", 1) != 0,
                              conformance_int(c, "select_last_index", 0) != 0);
}

static void run_cumsum(conformance_case *c) {
    c->y[0] = tl_cumsum(c->x[0], (int)conformance_first(c, 1, 0), conformance_int(c, "exclusive", 0) != 0,
                        conformance_int(c, "reverse", 0) != 0);
}
static void run_cumprod(conformance_case *c) {
    c->y[0] = tl_cumprod(c->x[0], (int)conformance_first(c, 1, 0), conformance_int(c, "exclusive", 0) != 0,
                         conformance_int(c, "reverse", 0) != 0);
}

static void run_softmax(conformance_case *c) {
    c->y[0] = tl_softmax_along(c->x[0], (int)conformance_int(c, "axis", -1));
}
static void run_log_softmax(conformance_case *c) {
    c->y[0] = tl_log_softmax_along(c->x[0], (int)conformance_int(c, "axis", -1));
}
static void run_hardmax(conformance_case *c) {
    conformance_exact(c);
    c->y[0] = tl_hardmax(c->x[0], (int)conformance_int(c, "axis", -1));
}
static void run_lp_normalization(conformance_case *c) {
    c->y[0] = tl_lp_normalize(c->x[0], (int)conformance_int(c, "p", 2), (int)conformance_int(c, "axis", -1));
}

/* A vector is a row on the left and a column on the right, and its axis goes again. */
static void run_matmul(conformance_case *c) {
    tl_tensor *a = c->x[0], *b = c->x[1];
    int na = c->in[0].array.ndim, nb = c->in[1].array.ndim;
    if (na == 1)
        a = tl_reshape(a, TL_SHAPE(c->ctx, tl_dim_of(1), tl_dim_of(c->in[0].array.size[0])));
    if (nb == 1)
        b = tl_reshape(b, TL_SHAPE(c->ctx, tl_dim_of(c->in[1].array.size[0]), tl_dim_of(1)));
    tl_tensor *y = tl_matmul(a, b);
    if ((na == 1 || nb == 1) && y) {
        tl_shape shape = *tl_tensor_shape(y);
        if (nb == 1)
            shape.ndim--;
        if (na == 1) {
            if (nb != 1)
                shape.dim[shape.ndim - 2] = shape.dim[shape.ndim - 1];
            shape.ndim--;
        }
        y = tl_reshape(y, shape);
    }
    c->y[0] = y;
}

/* α·A'·B' + β·C */
static void run_gemm(conformance_case *c) {
    tl_tensor *a = conformance_int(c, "transA", 0) ? tl_transpose(c->x[0], 0, 1) : c->x[0];
    tl_tensor *b = conformance_int(c, "transB", 0) ? tl_transpose(c->x[1], 0, 1) : c->x[1];
    double alpha = conformance_real(c, "alpha", 1), beta = conformance_real(c, "beta", 1);
    tl_tensor *y = tl_matmul(a, b);
    y = alpha == 1 ? y : tl_scale(y, alpha, 0);
    if (c->n_in > 2 && c->in[2].given)
        y = tl_add(y, beta == 1 ? c->x[2] : tl_scale(c->x[2], beta, 0));
    c->y[0] = y;
}

static void run_einsum(conformance_case *c) {
    c->y[0] = tl_einsum(c->ctx, conformance_text(c, "equation", ""), c->x, c->n_in);
}

static void run_one_hot(conformance_case *c) {
    const npy_array *values = &c->in[2].array;
    npy_array second = *values;
    conformance_exact(c);
    if (values->count != 2) {
        conformance_skip(c, "values are not a pair");
        return;
    }
    second.data += values->bytes;
    conformance_value kept = c->in[2];
    double off = conformance_first(c, 2, 0);
    c->in[2].array = second;
    double on = conformance_first(c, 2, 1);
    c->in[2] = kept;
    tl_tensor *indices = tl_dtype_is_float(c->in[0].dtype) ? tl_cast(c->x[0], TL_I64) : c->x[0];
    c->y[0] = tl_one_hot(indices, tl_dim_of((int64_t)conformance_first(c, 1, 0)), (int)conformance_int(c, "axis", -1),
                         c->in[2].dtype, on, off);
}

const conformance_entry conformance_reduce[] = {
    {"ArgMax", run_argmax},
    {"ArgMin", run_argmin},
    {"CumProd", run_cumprod},
    {"CumSum", run_cumsum},
    {"Einsum", run_einsum},
    {"Gemm", run_gemm},
    {"Hardmax", run_hardmax},
    {"LogSoftmax", run_log_softmax},
    {"LpNormalization", run_lp_normalization},
    {"MatMul", run_matmul},
    {"OneHot", run_one_hot},
    {"ReduceL1", run_l1},
    {"ReduceL2", run_l2},
    {"ReduceLogSum", run_log_sum},
    {"ReduceLogSumExp", run_log_sum_exp},
    {"ReduceMax", run_max},
    {"ReduceMean", run_mean},
    {"ReduceMin", run_min},
    {"ReduceProd", run_prod},
    {"ReduceSum", run_sum},
    {"ReduceSumSquare", run_sum_square},
    {"Softmax", run_softmax},
    {NULL, NULL},
};
