/* x with slices along an axis added where indices say (PyTorch index_add), in order of position. */
#include "op/index.h"

#include <string.h>

static tl_status index_add_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    return tl_scatter_grad(ctx, saved, &tl_op_gather, gout, gin);
}

static void index_add_sample(uint64_t seed, tl_case *c) {
    tl_index_attr attr;
    tl_index_sample(&seed, c, TL_INDEX_AXIS, true);
    memcpy(&attr, c->attr, sizeof attr);
    attr.combine = TL_COMBINE_ADD;
    memcpy(c->attr, &attr, sizeof attr);
}

TL_OP(index_add, sizeof(tl_index_attr), tl_scatter_infer, tl_scatter_cost, tl_scatter_saves, tl_scatter_forward,
      index_add_grad, index_add_sample);

tl_tensor *tl_index_add_(tl_tensor *x, tl_tensor *index, tl_tensor *source, int axis, const char *site) {
    tl_index_attr attr = {TL_INDEX_AXIS, axis, TL_COMBINE_ADD};
    return tl_run1(&tl_op_index_add, (tl_tensor *[]){x, index, source}, 3, &attr, site);
}
