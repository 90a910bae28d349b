/* The gradient of broadcasting: the sum over the axes that were stretched. */
#include "op/core.h"

tl_tensor *tl_sum_to(tl_tensor *g, const tl_shape *shape, const char *site) {
    if (!g || tl_shape_equal(&g->shape, shape))
        return g;
    int axes[TL_MAX_NDIM], n = 0, more = g->shape.ndim - shape->ndim;
    /* An axis that broadcasting put in front is summed even where its size is 1: a batch of one must allocate what any
     * other batch does, or its formula would be another one. */
    for (int i = 0; i < g->shape.ndim; i++) {
        bool stretched = i >= more && shape->dim[i - more].size == 1 && g->shape.dim[i].size != 1;
        if (i < more || stretched)
            axes[n++] = i;
    }
    tl_tensor *sum = n ? tl_sum_(g, axes, n, true, site) : g;
    tl_tensor *seen = tl_view_(sum, *shape, site); /* without the leading axes, and with the dims of the input */
    if (sum != g)
        tl_release(sum); /* one handle on the sum, so that a leaf can adopt it */
    return seen;
}
