/* grad/tape.h: nodes. Inside the grad layer only. */
#ifndef TALLY_GRAD_TAPE_H
#define TALLY_GRAD_TAPE_H

#include "op/core.h"
#include "tally/grad.h"

typedef struct tl_edge {
    tl_tensor *leaf; /* a leaf that wants a gradient (held), or NULL */
    uint32_t node, output;
    bool wanted;
} tl_edge;

typedef struct tl_kept {
    tl_tensor *tensor;
    uint32_t version;
    uint8_t slot; /* input i: i; output j: TL_MAX_IO + j */
} tl_kept;

struct tl_region; /* what a checkpointed region needs to run again: checkpoint.c */

typedef struct tl_node {
    const tl_op *op;              /* of a region: its name alone */
    struct tl_region *region_run; /* NULL: an op */
    void *attr;
    uint32_t module, region;
    const char *site, *user_site;
    int n_in, n_out, n_kept;
    tl_edge *edges;
    tl_shape *in_shape;
    tl_dtype *in_dtype;
    bool *needs;
    tl_kept *kept;
    tl_tensor **gout;
} tl_node;

typedef struct tl_chunk {
    struct tl_chunk *next;
    size_t used, size;
    _Alignas(16) char bytes[];
} tl_chunk;

struct tl_tape {
    tl_node **nodes;
    int64_t count, capacity;
    uint64_t generation, newest; /* newest: the highest that this tape or one inside it ever had */
    tl_chunk *chunks;
    struct tl_tape *outer;  /* of a region's tape: the one it runs within; NULL: the first */
    int64_t at;             /* the node being walked */
    tl_leaf_function *done; /* of the first tape: called when a leaf's gradient is whole; NULL: nobody waits */
    void *done_user;
    tl_tensor **late; /* of the first tape: leaves that are whole when the node being walked is */
    int64_t late_count, late_capacity;
    struct tl_tape *inner; /* what a region records when it runs again; kept for the next region */
};

void *tl_tape_alloc(tl_ctx *ctx, size_t bytes); /* lives until the tape is cleared; NULL with the context's error */
void tl_node_keep(tl_node *node, tl_tensor *t, int slot);
void tl_node_let_go(tl_node *node);         /* saved tensors, gradients and leaves */
void tl_node_drop(tl_node *node, int kept); /* one of the saved tensors */
/* The gradient g arrives at a node's output, or at a leaf. */
tl_status tl_arrive_at_node(tl_ctx *ctx, tl_tensor **slot, tl_tensor *g, const char *site);
tl_status tl_arrive_at_leaf(tl_ctx *ctx, tl_tensor *leaf, tl_tensor *g, bool alone, const char *site);
/* Walks the context's tape from its last node down to node `first`. */
tl_status tl_tape_walk(tl_ctx *ctx, int64_t first);
tl_status tl_node_check_kept(tl_ctx *ctx, const tl_node *node); /* nothing saved was changed since */
void tl_region_let_go(tl_node *node);                           /* what it keeps in the host's memory */
/* Runs a region again, recorded, and walks what it recorded. */
tl_status tl_region_walk(tl_ctx *ctx, tl_node *node);
/* A leaf is read by the node that is recorded next, or by the region that is running for the first time. */
void tl_tape_note_use(tl_ctx *ctx, tl_tensor *leaf, int64_t node);
/* tl_tape_hooks.meet */
tl_status tl_region_meet(tl_ctx *ctx, const tl_sig *sig, tl_tensor *t);

#endif
