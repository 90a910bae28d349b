/* tensor/ctx.h: what a context is made of. Inside the library only. */
#ifndef TALLY_TENSOR_CTX_H
#define TALLY_TENSOR_CTX_H

#include "tally/tensor.h"

#define TL_ALIGN 64
#define TL_NO_SLOT UINT32_MAX

typedef struct tl_storage tl_storage;
struct tl_op;

/* Where the work being done belongs; copied into every ledger event and tape node. */
typedef struct tl_place {
    tl_phase phase;
    uint32_t module, region;
    int64_t times; /* how often what is booked here happens; 0 is once. More in a condensed repetition */
    bool again;    /* a checkpointed region is computed a second time: executed, but no part of the model's work */
    const struct tl_op *op;
    const char *site;      /* the op's line */
    const char *user_site; /* the outermost module call's line, or the op's */
} tl_place;

struct tl_storage {
    tl_ctx *ctx;
    tl_storage *previous, *next; /* all live storages of the context */
    char *data;                  /* NULL on meta, and for zero bytes */
    int64_t bytes, refs;
    const tl_poly *formula;
    uint32_t version, saved; /* saved: how many tape nodes hold it */
    uint32_t slot;           /* its place in the ledger's log */
    uint32_t module, region;
    const struct tl_op *op;
    const char *site, *user_site;
    tl_category category;
    void (*release)(void *self,
                    void *data); /* external bytes (a mapped file): how to give them back. NULL: the allocator's */
    void *release_self;
};

struct tl_tensor {
    tl_ctx *ctx;
    tl_storage *storage;
    tl_dtype dtype;
    tl_shape shape;
    int64_t stride[TL_MAX_NDIM];
    int64_t offset, refs, scope_index;
    tl_tensor *grad;
    tl_tensor *next_free;
    uint32_t node, node_output; /* the tape node that made it; valid while generation is the tape's */
    uint64_t generation;
    uint32_t first_use;            /* of a leaf: the first node of the running tape that reads it, while */
    uint64_t first_use_generation; /* this is the tape's */
    bool requires_grad;
};

/* The ledger's view of storages. The account layer sets these; the tensor layer knows no ledger. */
typedef struct tl_storage_hooks {
    void (*allocated)(tl_ctx *ctx, tl_storage *storage);
    void (*freed)(tl_ctx *ctx, tl_storage *storage);
    void (*retagged)(tl_ctx *ctx, tl_storage *storage, tl_category before);
    void (*phase_changed)(tl_ctx *ctx, tl_phase before);
} tl_storage_hooks;

/* The grad layer's view of ops: called by the dispatcher when something needs a gradient. */
struct tl_sig;
struct tl_saves;
typedef struct tl_tape_hooks {
    tl_status (*record)(tl_ctx *ctx, const struct tl_sig *sig, const struct tl_saves *saves, tl_tensor *const out[]);
    bool (*is_valid)(const tl_ctx *ctx, const tl_tensor *t); /* its node is on the running tape */
    /* An op in a checkpointed region's first run, which is not recorded, reads a tensor that wants a gradient. */
    tl_status (*meet)(tl_ctx *ctx, const struct tl_sig *sig, tl_tensor *t);
    void (*close)(tl_ctx *ctx);
} tl_tape_hooks;

typedef struct tl_module_node {
    uint32_t parent;
    int64_t index;
    char *name;
    char *path;    /* "h.3.attn" */
    char *pattern; /* "h.*.attn" */
} tl_module_node;

/* One repetition met in a run: its iterations' regions are interned, so that init, forward and step share them. */
typedef struct tl_repeat_node {
    uint32_t outer; /* region it lies in */
    const char *symbol;
    int64_t count;
    int64_t run; /* iterations that really run: count, or 2 in a condensed repetition */
    const tl_poly *formula;
    uint32_t *regions; /* one per iteration that runs */
} tl_repeat_node;

typedef struct tl_region_node {
    uint32_t repeat, iteration; /* region 0: none */
} tl_region_node;

struct tl_ctx {
    tl_allocator allocator;
    tl_error error;
    const struct tl_kernels *kernels;
    struct tl_engine *engine;
    int threads;
    int64_t scratch_bytes;
    tl_storage *scratch;
    uint64_t seed_init, seed_data, seed_dropout;
    tl_space *space;
    tl_storage *storages; /* newest first */
    tl_tensor *free_tensors;
    void **blocks; /* slabs of tensor handles */
    int block_count, block_capacity;
    tl_storage *free_storages;

    tl_tensor **scope;
    int64_t scope_count, scope_capacity;
    int64_t *marks;
    int mark_count, mark_capacity;
    int64_t lost_scopes; /* begun while there was no memory for a mark */

    tl_place place;
    tl_module_node *modules;
    uint32_t module_count, module_capacity;
    uint32_t *module_hash;
    uint32_t module_hash_size;
    struct {
        uint32_t module;
        const char *site;
    } module_stack[32];
    int module_depth;
    const char *phase_site; /* backward: the forward op's user line, inherited by the ops of its gradient */
    tl_repeat_node *repeats;
    uint32_t repeat_count, repeat_capacity;
    tl_region_node *regions;
    uint32_t region_count, region_capacity;
    char **assumptions;
    int assumption_count, assumption_capacity;
    int invented; /* symbols made for what is not expressible */

    const tl_storage_hooks *hooks;
    struct tl_ledger *ledger;        /* account layer */
    const tl_tape_hooks *tape_hooks; /* grad layer */
    struct tl_tape *tape;
    struct tl_axes_state *axes; /* axes layer: names, contraction orders */
    void (*axes_close)(tl_ctx *ctx);
    bool recording;
    bool grads_apart;  /* a product's gradient is a tensor of its own before it is added to what is there */
    bool offload;      /* checkpointed regions keep their inputs in the host's memory */
    bool in_region;    /* a checkpointed region's function is at work */
    bool region_wants; /* and something it read wants a gradient */
    /* The grad layer's autocast: what an op gets in place of its inputs; in[i] itself where it stays. NULL: off. */
    tl_status (*cast_inputs)(tl_ctx *ctx, const struct tl_op *op, tl_tensor *const in[], int n_in, tl_tensor *cast[],
                             const char *site);
    tl_dtype autocast; /* the low format, while cast_inputs is set */
    /* Sees every op when it has computed its n outputs; NULL: nobody looks. */
    void (*watch)(void *self, const struct tl_sig *sig, tl_tensor *const out[], int n);
    void *watch_self;
    uint64_t random_position; /* of the dropout stream */
};

void *tl_host_alloc(tl_ctx *ctx, size_t bytes);              /* zeroed; NULL and the error sticks */
void tl_host_free(tl_ctx *ctx, void *pointer, size_t bytes); /* NULL allowed */
/* Grows an array of `size`-byte items to hold at least `need`; false and the error sticks on failure. */
bool tl_host_grow(tl_ctx *ctx, void *array, size_t size, int64_t need, int64_t *capacity);
char *tl_host_text(tl_ctx *ctx, const char *text);
tl_status tl_ctx_fail(tl_ctx *ctx, tl_status status, const char *format, ...) TL_PRINTF(3, 4);

/* The bare context: no ledger, no engine, no scratch. The account layer's tl_ctx_new builds on it. */
tl_ctx *tl_ctx_new_bare(const tl_ctx_options *options, tl_error *error);
void tl_ctx_free_bare(tl_ctx *ctx);
bool tl_place_init(tl_ctx *ctx);
void tl_place_free(tl_ctx *ctx);

/* Storages. bytes ≥ 0; formula may be NULL. */
tl_storage *tl_storage_new(tl_ctx *ctx, int64_t bytes, const tl_poly *formula, tl_category category);
/* A storage on bytes that came from elsewhere: a mapped file. Accounted like any other, though the allocator never sees it.
 * `release` is called once, when the last tensor lets go; on failure (NULL) the bytes stay the caller's. */
tl_storage *tl_storage_external(tl_ctx *ctx, int64_t bytes, const tl_poly *formula, tl_category category, void *data,
                                void (*release)(void *self, void *data), void *self);
void tl_storage_unref(tl_storage *storage);
void tl_storage_retag(tl_storage *storage, tl_category category);

/* Dims: gives a dim without a formula its constant one; reports equal sizes with different formulas. */
tl_dim tl_dim_fixed(tl_ctx *ctx, tl_dim dim);
void tl_dim_assume_equal(tl_ctx *ctx, tl_dim a, tl_dim b);
/* a and b must be the same size; false (no message) if not. Records an assumption if only the formulas differ. */
bool tl_dim_match(tl_ctx *ctx, tl_dim a, tl_dim b);
bool tl_shape_count(const tl_shape *shape, int64_t *count);
const tl_poly *tl_shape_formula(tl_ctx *ctx, const tl_shape *shape, int64_t factor);
bool tl_shape_equal(const tl_shape *a, const tl_shape *b);
void tl_shape_contiguous(const tl_shape *shape, int64_t stride[TL_MAX_NDIM]);
char *tl_shape_text(const tl_shape *shape, char *buffer, size_t size);

/* The way back of tl_keep: the current scope holds it now. NULL allowed, and the answer where there is no memory: then it is gone. */
tl_tensor *tl_scope_take(tl_tensor *kept);
/* A new handle of `shape` on `storage` (which is referenced), in the current scope. */
tl_tensor *tl_tensor_on(tl_ctx *ctx, tl_storage *storage, tl_dtype dtype, const tl_shape *shape, const int64_t *stride,
                        int64_t offset);
void tl_tensor_ref(tl_tensor *t);
void tl_tensor_unref(tl_tensor *t);
/* True if nothing else holds the handle's storage or the handle (beyond `own` references). */
bool tl_tensor_is_exclusive(const tl_tensor *t, int64_t own);
/* True if two indices can name the same element (a zero stride over more than one, or overlapping axes). */
bool tl_tensor_overlaps_itself(const tl_tensor *t);
/* Any element as double; i64 beyond 2^53 is rounded. */
double tl_element_value(tl_dtype dtype, const void *from);
int tl_axis(tl_ctx *ctx, const tl_tensor *t, int axis); /* normalised; −1 and the error sticks when out of range */

const char *tl_module_path(const tl_ctx *ctx, uint32_t module);
const char *tl_module_pattern(const tl_ctx *ctx, uint32_t module);

#endif
