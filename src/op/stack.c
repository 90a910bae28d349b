/* Tensors of one shape along a new axis: a composition, views and one concat. */
#include "op/index.h"

tl_tensor *tl_stack_(tl_tensor *const x[], int n, int axis, const char *site) {
    tl_tensor *seen[TL_MAX_IO] = {NULL};
    if (n < 1 || !x[0])
        return NULL;
    tl_ctx *ctx = x[0]->ctx;
    int ndim = x[0]->shape.ndim;
    if (n > TL_MAX_IO || axis < -ndim - 1 || axis > ndim) {
        tl_ctx_fail(ctx, TL_ERR_ARGUMENT, "stack (%s): %d tensors along axis %d; 1 to %d along %d to %d would work",
                    site, n, axis, TL_MAX_IO, -ndim - 1, ndim);
        return NULL;
    }
    int at = tl_axis_normal(axis, ndim + 1);
    for (int i = 0; i < n; i++) {
        if (!x[i])
            return NULL;
        char text[200], first[200];
        if (!tl_shape_equal(&x[i]->shape, &x[0]->shape)) {
            tl_ctx_fail(ctx, TL_ERR_SHAPE, "stack (%s): tensor %d is %s but tensor 0 is %s: their shapes must be equal",
                        site, i, tl_tensor_text(x[i], text, sizeof text), tl_tensor_text(x[0], first, sizeof first));
            return NULL;
        }
        tl_dim dim[TL_MAX_NDIM + 1];
        for (int d = 0; d <= ndim; d++)
            dim[d] = d == at ? tl_dim_of(1) : x[i]->shape.dim[d < at ? d : d - 1];
        seen[i] = tl_view_(x[i], tl_shape_of(ctx, ndim + 1, dim), site);
    }
    return tl_concat_(seen, n, axis, site);
}
