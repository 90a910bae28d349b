/* tally/op.h: what an op is. One const struct per op, in one file: shapes, cost, what it keeps, forward, gradient and
 * sample cases side by side. Identity is the address; there is no enum, no table to keep in step, no central switch.
 * The list of all ops is generated from the lines `TL_OP(name, …)`.
 *
 * Adding an op: one new file in src/op and one documented prototype in tally/ops.h. See CONTRIBUTING.md.
 *
 * Rules
 *   - infer fills the outputs' shapes, dtypes and aliasing from the inputs' alone. No output's shape depends on data.
 *   - cost multiplies dims, so that one function yields the number and the formula. Silence is not zero: an op that costs
 *     nothing says TL_COST_FREE.
 *   - saves declares what backward will get; it gets nothing else. Called before outputs are allocated.
 *   - grad is written with ops, so that backward accounts for itself. TL_NO_GRAD where there is none.
 *   - sample makes a case for the generic tests, the benchmark and the docs.
 */
#ifndef TALLY_OP_H
#define TALLY_OP_H

#include "tally/account.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TL_MAX_IO 16
#define TL_NEW (-1) /* tl_output.alias: a storage of its own */

typedef struct tl_op tl_op;

typedef struct tl_output {
    tl_shape shape;
    tl_dtype dtype;
    tl_category category; /* of a new storage; TL_WORK by default */
    int alias;            /* TL_NEW, or the input whose storage it shares */
    bool in_place;        /* it writes into that input: same shape, dtype and strides */
    bool elementwise;     /* element i comes from elements i of the inputs: it may be written over one of them */
    bool hidden;          /* statistics, masks: not returned to the caller, there only when something is recorded */
    int64_t stride[TL_MAX_NDIM], offset; /* of an alias that is not in place, in elements of its storage */
} tl_output;

/* A signature: an op with its inputs and attributes; infer adds the outputs. */
typedef struct tl_sig {
    tl_ctx *ctx;
    const tl_op *op;
    const void *attr;
    const char *site;
    int n_in, n_out;
    bool recording; /* something here will need a gradient */
    tl_tensor *in[TL_MAX_IO];
    bool needs_grad[TL_MAX_IO];
    tl_output out[TL_MAX_IO];
} tl_sig;

typedef struct tl_cost {
    tl_amount matmul, matmul_causal;             /* matmul_causal follows matmul when not set */
    tl_amount executed;                          /* of matmul, what is really computed; follows matmul when not set */
    tl_amount matmul_again, matmul_causal_again; /* of those, what forward has computed before: no model FLOPs */
    tl_amount arithmetic, special;
    tl_amount read, written; /* default: all inputs read, all outputs written */
    tl_amount sent;
    tl_dim workspace; /* bytes, live while the op runs */
    bool causal_set, executed_set, read_set, written_set;
    int64_t m, n, k, batch; /* of the largest product, for the time model's efficiency by shape */
} tl_cost;

typedef struct tl_saves {
    uint32_t in, out; /* bit i: input i (output j) itself is kept */
} tl_saves;

typedef struct tl_args tl_args;   /* what forward gets: op/core.h */
typedef struct tl_saved tl_saved; /* what grad gets */
typedef struct tl_case tl_case;   /* what sample fills */

struct tl_op {
    const char *name;
    size_t attr_size;
    tl_status (*infer)(tl_sig *sig);
    void (*cost)(const tl_sig *sig, tl_cost *cost);
    void (*saves)(const tl_sig *sig, tl_saves *saves);
    tl_status (*forward)(const tl_sig *sig, tl_args *args);
    tl_status (*grad)(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]);
    void (*sample)(uint64_t seed, tl_case *c);
};

/* Every member is an argument: a missing declaration does not compile. */
#define TL_OP(name_, attr_size_, infer_, cost_, saves_, forward_, grad_, sample_)                                      \
    extern const tl_op tl_op_##name_;                                                                                  \
    const tl_op tl_op_##name_ = {#name_, (attr_size_), (infer_), (cost_), (saves_), (forward_), (grad_), (sample_)}

/* All ops, generated. */
extern const tl_op *const tl_op_list[];
extern const int tl_op_list_count;

/* Runs an op: checks, infers, books, allocates, computes (unless on meta), records for backward. `out` gets n_out visible
 * outputs (all that are not hidden), or NULLs. A NULL input or a standing error gives NULLs and the standing status. */
tl_status tl_run(tl_ctx *ctx, const tl_op *op, tl_tensor *const in[], int n_in, const void *attr, tl_tensor *out[],
                 int n_out, const char *site);
/* The same for ops with one visible output. The context comes from the first tensor that is not NULL. */
tl_tensor *tl_run1(const tl_op *op, tl_tensor *const in[], int n_in, const void *attr, const char *site);

/* ---- for infer ---- */
/* Adds an output of a shape and dtype; returns it for further settings, NULL when there are too many. */
tl_output *tl_sig_add(tl_sig *sig, tl_dtype dtype, const tl_shape *shape);
/* "softmax (model.c:12): " before the message. */
tl_status tl_sig_fail(tl_sig *sig, tl_status status, const char *format, ...) TL_PRINTF(3, 4);
tl_status tl_sig_want_float(tl_sig *sig, int input);
/* Fails for bool, the one format without arithmetic. */
tl_status tl_sig_want_arithmetic(tl_sig *sig, int input);
tl_status tl_sig_want_same_dtype(tl_sig *sig);
tl_status tl_sig_want_ndim(tl_sig *sig, int input, int at_least);

/* ---- for cost ---- */
void tl_cost_free(const tl_sig *sig, tl_cost *cost);
#define TL_COST_FREE tl_cost_free
/* factor × the product of `count` dims. */
tl_amount tl_amount_of(tl_ctx *ctx, int64_t factor, const tl_dim *dims, int count);
#define TL_AMOUNT(ctx, factor, ...)                                                                                    \
    tl_amount_of((ctx), (factor), (tl_dim[]){__VA_ARGS__}, (int)(sizeof((tl_dim[]){__VA_ARGS__}) / sizeof(tl_dim)))
tl_amount tl_amount_shape(tl_ctx *ctx, int64_t factor, const tl_shape *shape); /* factor × elements */
tl_amount tl_amount_add(tl_ctx *ctx, tl_amount a, tl_amount b);
/* a·numerator/denominator; must divide. */
tl_amount tl_amount_scale(tl_ctx *ctx, tl_amount a, int64_t numerator, int64_t denominator);

/* ---- for saves and grad ---- */
void tl_saves_none(const tl_sig *sig, tl_saves *saves);
#define TL_SAVES_NONE tl_saves_none
extern tl_status tl_grad_none(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]);
#define TL_NO_GRAD tl_grad_none
tl_tensor *tl_saved_in(const tl_saved *saved, int input); /* NULL if saves did not ask for it */
tl_tensor *tl_saved_out(const tl_saved *saved, int output);
const void *tl_saved_attr(const tl_saved *saved);
const tl_shape *tl_saved_shape(const tl_saved *saved, int input); /* every input's shape and dtype are kept */
tl_dtype tl_saved_dtype(const tl_saved *saved, int input);
bool tl_saved_needs(const tl_saved *saved, int input);
const char *tl_saved_site(const tl_saved *saved);
/* A gradient already there for this input that may be added into (C += A·B): a leaf's own, held by nothing else. The grad
 * then returns it itself in gin[input]. NULL: make a new tensor. */
tl_tensor *tl_saved_into(const tl_saved *saved, int input);

/* ---- for sample ---- */
typedef enum tl_fill {
    TL_FILL_NORMAL,
    TL_FILL_POSITIVE,
    TL_FILL_UNIT,
    TL_FILL_INDEX,
    TL_FILL_ZERO,
    TL_FILL_OFFSETS /* whole, rising from 0 to limit, some of them equal */
} tl_fill;
struct tl_case {
    int n_in, n_out; /* visible outputs */
    struct {
        int ndim;
        int64_t size[TL_MAX_NDIM];
        tl_dtype dtype; /* floats: the test may take another floating format for all of them */
        tl_fill fill;   /* POSITIVE: above 0.1. UNIT: in [0,1). INDEX: whole, in [0, limit) */
        int64_t limit;
        bool fixed_dtype;  /* this input keeps its dtype */
        bool fixed_layout; /* must be contiguous and not overlap (written in place) */
        bool frozen;       /* a floating input that has no gradient: asking for one is refused */
    } in[TL_MAX_IO];
#ifdef __cplusplus
    alignas(16) char attr[512];
#else
    _Alignas(16) char attr[512];
#endif
    bool in_place, random; /* writes an input; draws random numbers (values compared by property) */
    double tolerance;      /* relative, for f32 against the reference; 0: exact */
};
/* A small deterministic generator for sample: the next number of *seed below limit. */
int64_t tl_sample_below(uint64_t *seed, int64_t limit);
void tl_sample_input(tl_case *c, tl_dtype dtype, tl_fill fill, int ndim, const int64_t *sizes);

#ifdef __cplusplus
}
#endif
#endif
