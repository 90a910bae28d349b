/* tally/tensor.h: contexts, dims, tensors, views, scopes, modules and repetition.
 *
 * A tensor is a handle: a pointer into a refcounted storage, sizes, strides (in elements; zero and negative allowed), an
 * offset, a dtype and axis names. Views share storage. On the device meta a storage has a size and no bytes, and
 * everything else is the same: shapes, categories, the ledger, the tape.
 *
 * Errors: a function that returns a tensor returns NULL, and the first error sticks in the context. Every function
 * takes NULL tensors and then returns NULL without a second message, so chains are checked once, with tl_ctx_error().
 * Accessors of NULL answer with what no tensor has or with nothing: ndim and size −1, a shape of ndim −1, counts and bytes 0,
 * pointers NULL, TL_ERR_ARGUMENT where they return a status; its dtype reads f32 and its category work.
 *
 * Ownership: results belong to the current scope and die with it. tl_keep() takes one out (then tl_free() it);
 * tl_release() lets one die early. Handles are not thread-safe; one context is used by one thread at a time.
 */
#ifndef TALLY_TENSOR_H
#define TALLY_TENSOR_H

#include "tally/dtype.h"
#include "tally/formula.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TL_NO_SCRATCH (-1)
#define TL_MAX_NDIM 8 /* an implementation limit, checked with a message; not part of any struct a caller fills in */

typedef struct tl_ctx tl_ctx;
typedef struct tl_tensor tl_tensor;
struct tl_kernels; /* a device's kernel table: tally/cpu.h */

/* ---- contexts ---- */
typedef struct tl_ctx_options {
    const struct tl_kernels *kernels; /* NULL: the device meta (sizes, no bytes) */
    const tl_allocator *allocator;    /* NULL: malloc. One call of kind TL_ALLOC_STORAGE per storage */
    int threads;                      /* 0 is 1. An input of the plan: each has one scratch block, on every device */
    int64_t scratch_bytes; /* per thread; 0 is 2 MiB; TL_NO_SCRATCH: none (meta only: another device's plan) */
    bool formulas;         /* keep polynomials beside sizes; off costs nothing */
    uint64_t seed_init, seed_data, seed_dropout;
} tl_ctx_options;

/* NULL with *error filled (error may not be NULL). options NULL: meta, one thread. */
tl_ctx *tl_ctx_new(const tl_ctx_options *options, tl_error *error);
/* Frees the context and every tensor that still lives in it. NULL is allowed. */
void tl_ctx_free(tl_ctx *ctx);
/* The sticky error; status TL_OK if none. */
const tl_error *tl_ctx_error(const tl_ctx *ctx);
tl_status tl_ctx_status(const tl_ctx *ctx);
void tl_ctx_clear_error(tl_ctx *ctx);
bool tl_ctx_is_meta(const tl_ctx *ctx);
int tl_ctx_threads(const tl_ctx *ctx);
/* "meta", or the kernel table's name. */
const char *tl_ctx_device(const tl_ctx *ctx);
tl_space *tl_ctx_space(tl_ctx *ctx); /* NULL without formulas */
/* Sizes that were equal in this run though their formulas differ ("D = H*K"); count returned. */
int tl_ctx_assumptions(const tl_ctx *ctx, const char *const **texts);

/* ---- dims ---- */
typedef struct tl_dim {
    int64_t size;
    const tl_poly *formula; /* NULL: none */
    const char *axis;       /* NULL or a name with static lifetime: "batch", "seq", "heads" */
} tl_dim;

tl_dim tl_dim_of(int64_t size);
/* A symbol of the account. `source` says where the value came from. Without formulas: tl_dim_of(value). */
tl_dim tl_dim_symbol(tl_ctx *ctx, const char *symbol, int64_t value, const char *source);
tl_dim tl_dim_named(tl_dim dim, const char *axis);
/* Checked arithmetic; on overflow or a remainder the context's error sticks and size is 0. */
tl_dim tl_dim_mul(tl_ctx *ctx, tl_dim a, tl_dim b);
tl_dim tl_dim_add(tl_ctx *ctx, tl_dim a, tl_dim b);
tl_dim tl_dim_div(tl_ctx *ctx, tl_dim a, tl_dim b);
/* a/b rounded up. No polynomial rounds, so a formula's result is a new symbol defined as "ceil((B·T)/64)"; the same
 * definition gives the same symbol again. */
tl_dim tl_dim_ceil_div(tl_ctx *ctx, tl_dim a, int64_t b);
/* A count that no polynomial gives, as such a symbol: "visible pairs of T rows and T keys, causal, window 127". */
tl_dim tl_dim_counted(tl_ctx *ctx, int64_t size, const char *definition);

typedef struct tl_shape {
    int ndim;
    tl_dim dim[TL_MAX_NDIM];
} tl_shape;
/* ndim dims; more than TL_MAX_NDIM is an error in ctx and ndim −1. */
tl_shape tl_shape_of(tl_ctx *ctx, int ndim, const tl_dim *dims);
#define TL_SHAPE(ctx, ...)                                                                                             \
    tl_shape_of((ctx), (int)(sizeof((tl_dim[]){__VA_ARGS__}) / sizeof(tl_dim)), (tl_dim[]){__VA_ARGS__})

/* ---- tensors ---- */
/* What bytes are for. */
typedef enum tl_category {
    TL_PARAM,
    TL_GRAD,
    TL_MASTER,
    TL_OPTIM,
    TL_SAVED,
    TL_WORK,
    TL_CACHE,
    TL_DATA,
    TL_COMM,
    TL_CATEGORY_COUNT
} tl_category;
const char *tl_category_name(tl_category category);

/* A new tensor with undefined contents (poisoned nowhere: fill it). Zero sizes are allowed, negative ones are not. */
tl_tensor *tl_empty(tl_ctx *ctx, tl_dtype dtype, tl_shape shape, tl_category category);
/* A copy of `count` host elements of `dtype`; count must equal the number of elements. On meta the values are not read. */
tl_tensor *tl_from_data(tl_ctx *ctx, tl_dtype dtype, tl_shape shape, tl_category category, const void *data,
                        int64_t count);

void tl_free(tl_tensor *t);       /* gives up a kept handle; NULL allowed */
tl_tensor *tl_keep(tl_tensor *t); /* out of its scope: the caller owns it now. Returns t */
void tl_release(tl_tensor *t);    /* the scope's hold ends now */
void tl_scope_begin(tl_ctx *ctx);
void tl_scope_end(tl_ctx *ctx);
/* Ends the scope, hands `carried` to the outer one and puts it in *x; what *x held in the outer scope is released. */
void tl_scope_end_into(tl_ctx *ctx, tl_tensor **x, tl_tensor *carried);

tl_dtype tl_tensor_dtype(const tl_tensor *t);
int tl_tensor_ndim(const tl_tensor *t);
int64_t tl_tensor_size(const tl_tensor *t, int axis); /* axis may be negative; out of range: −1 and the error sticks */
int64_t tl_tensor_stride(const tl_tensor *t, int axis);
int64_t tl_tensor_offset(const tl_tensor *t);
int64_t tl_tensor_count(const tl_tensor *t); /* number of elements */
const tl_shape *tl_tensor_shape(const tl_tensor *t);
bool tl_tensor_is_contiguous(const tl_tensor *t);
bool tl_tensor_shares_storage(const tl_tensor *a, const tl_tensor *b);
/* True if some element of a and some element of b are one piece of memory. Exact for all views of up to a few axes: the
 * bounded equation offset_a + Σ stride·i = offset_b + Σ stride·j is solved with a budget of some thousand steps; where
 * that runs out, which takes odd strides over large sizes, the answer is true. Tensors of different storages, of meta too,
 * never overlap; see tl_tensor_shares_storage for that question alone. NULL: false. */
bool tl_tensors_overlap(const tl_tensor *a, const tl_tensor *b);
uint32_t tl_tensor_version(const tl_tensor *t); /* counts in-place writes to its storage */
tl_category tl_tensor_category(const tl_tensor *t);
int64_t tl_tensor_storage_bytes(const tl_tensor *t);
tl_ctx *tl_tensor_ctx(const tl_tensor *t);
/* First element; NULL on meta. Pure: may be called from an allocator. */
void *tl_tensor_data(const tl_tensor *t);
const void *tl_tensor_storage_data(const tl_tensor *t); /* start of the storage, for classifying blocks; pure */
/* Copies all elements, in order, to host memory of `bytes` = count × element size. On meta: TL_ERR_STATE. */
tl_status tl_tensor_read(const tl_tensor *t, void *out, size_t bytes) TL_MUST_CHECK;
/* The one element of a one-element tensor as double: the only call that waits for a value. On meta: TL_ERR_STATE. */
tl_status tl_item(const tl_tensor *t, double *value) TL_MUST_CHECK;
/* "f32[batch 4, seq 8, 64] strides [512, 64, 1]"; buffer of `size`; returns buffer. */
char *tl_tensor_text(const tl_tensor *t, char *buffer, size_t size);

/* ---- gradients, on tensors (tally/grad.h has the tape) ---- */
void tl_tensor_require_grad(tl_tensor *t, bool on);
bool tl_tensor_needs_grad(const tl_tensor *t); /* a leaf that wants one, or computed from such */
tl_tensor *tl_tensor_grad(const tl_tensor *t); /* borrowed; NULL before backward */
void tl_tensor_clear_grad(tl_tensor *t);

/* ---- where we are: phases, modules, repetition ---- */
typedef enum tl_phase {
    TL_PHASE_INIT,
    TL_PHASE_LOAD,
    TL_PHASE_FORWARD,
    TL_PHASE_LOSS,
    TL_PHASE_BACKWARD,
    TL_PHASE_STEP,
    TL_PHASE_SAVE,
    TL_PHASE_COUNT
} tl_phase;
const char *tl_phase_name(tl_phase phase);
void tl_phase_set(tl_ctx *ctx, tl_phase phase);
tl_phase tl_phase_get(const tl_ctx *ctx);

/* A module call: paths nest ("h.3.attn"). index < 0: no index. `site` is the caller's line. */
void tl_module_begin_(tl_ctx *ctx, const char *name, int64_t index, const char *site);
#define tl_module_begin(ctx, name, index) tl_module_begin_((ctx), (name), (index), TL_HERE)
void tl_module_end(tl_ctx *ctx);

/* Repetition, declared so that equal iterations fold into the symbol:
 *     for (tl_repeat r = tl_repeat_begin(ctx, "N", layers); tl_repeat_next(&r);) { …; tl_repeat_into(&r, &x, y); }
 * Each iteration is a scope. tl_repeat_into ends the iteration's scope, handing y on as x. */
typedef struct tl_repeat {
    tl_ctx *ctx;
    int64_t count, run, index; /* iterations declared, and really run; index of the running one, from 0 */
    uint32_t id, outer;
    bool open;
} tl_repeat;
tl_repeat tl_repeat_begin(tl_ctx *ctx, const char *symbol, int64_t count);
/* For a repetition whose iterations are all alike from the second on (micro-batches): on meta two run, and what the second
 * one counts is booked count − 1 times. Memory needs no more: every later iteration repeats its moments. On a device that
 * holds bytes all run. Must not lie in another condensed one. */
tl_repeat tl_repeat_begin_condensed(tl_ctx *ctx, const char *symbol, int64_t count);
bool tl_repeat_next(tl_repeat *repeat);
void tl_repeat_into(tl_repeat *repeat, tl_tensor **x, tl_tensor *carried);
/* Leaves the loop early: call it before `break`. */
void tl_repeat_end(tl_repeat *repeat);

#ifdef __cplusplus
}
#endif
#endif
