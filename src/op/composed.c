/* What is written with other ops: nothing here computes, so nothing here has an account of its own. */
#include "op/core.h"

tl_tensor *tl_softmax_along_(tl_tensor *x, int axis, const char *site) {
    tl_tensor *turned = tl_transpose_(x, axis, -1, site);
    return tl_transpose_(tl_softmax_(turned, 1, false, site), axis, -1, site);
}

tl_tensor *tl_log_softmax_along_(tl_tensor *x, int axis, const char *site) {
    tl_tensor *turned = tl_transpose_(x, axis, -1, site);
    return tl_transpose_(tl_log_softmax_(turned, site), axis, -1, site);
}

tl_tensor *tl_log_sum_(tl_tensor *x, const int *axes, int n, bool keep, const char *site) {
    return tl_log_(tl_sum_(x, axes, n, keep, site), site);
}

tl_tensor *tl_hardmax_(tl_tensor *x, int axis, const char *site) {
    tl_tensor *place = tl_argmax_along_(x, axis, false, false, site);
    if (!place)
        return NULL;
    tl_dim depth = x->shape.dim[axis < 0 ? axis + x->shape.ndim : axis]; /* argmax checked it */
    return tl_one_hot_(place, depth, axis, x->dtype, 1, 0, site);
}

/* A norm of 0 divides by 1: the 0 it divides stays 0. */
tl_tensor *tl_lp_normalize_(tl_tensor *x, int p, int axis, const char *site) {
    if (!x)
        return NULL;
    if (p != 1 && p != 2) {
        tl_ctx_fail(x->ctx, TL_ERR_ARGUMENT, "lp_normalize (%s): p is %d; 1 or 2 would work", site, p);
        return NULL;
    }
    tl_tensor *norm = p == 1 ? tl_l1_(x, &axis, 1, true, site) : tl_l2_(x, &axis, 1, true, site);
    if (!norm)
        return NULL;
    tl_tensor *zero = tl_empty(x->ctx, x->dtype, (tl_shape){.ndim = 0}, TL_WORK);
    tl_tensor *none = zero ? tl_equal_(norm, tl_fill_(zero, 0, site), site) : NULL;
    return tl_div_(x, tl_masked_fill_(norm, none, 1, site), site);
}
