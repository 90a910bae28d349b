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

typedef struct tl_node {
    const tl_op *op;
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
    uint64_t generation;
    tl_chunk *chunks;
};

void tl_node_let_go(tl_node *node); /* saved tensors, gradients and leaves */

#endif
