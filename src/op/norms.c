/* Normalisations over more axes than the last: views around the ops that have one, and what is composed of them. */
#include "op/rows.h"
#include "op/views.h"
#include "tally/ops_layers.h"

/* x as [rows, D] with the axes from `axis` on as D; NULL with the error otherwise. */
static tl_tensor *as_rows(tl_tensor *x, int axis, const char *name, const char *site, int *first) {
    char text[200];
    int n = x->shape.ndim;
    if (axis < -n || axis >= n) {
        tl_ctx_fail(x->ctx, TL_ERR_SHAPE, "%s (%s): axis %d of %s does not exist; %d to %d would work", name, site,
                    axis, tl_tensor_text(x, text, sizeof text), -n, n - 1);
        return NULL;
    }
    *first = tl_axis_normal(axis, n);
    tl_shape inner = {.ndim = n - *first}, outer = {.ndim = *first};
    for (int d = 0; d < n; d++)
        *(d < *first ? &outer.dim[d] : &inner.dim[d - *first]) = x->shape.dim[d];
    tl_dim rows = tl_elements_dim(x->ctx, &outer), columns = tl_elements_dim(x->ctx, &inner);
    return tl_reshape_(x, TL_SHAPE(x->ctx, rows, columns), site);
}

static tl_tensor *as_vector(tl_tensor *x, const char *site) {
    return x ? tl_reshape_(x, TL_SHAPE(x->ctx, tl_elements_dim(x->ctx, &x->shape)), site) : NULL;
}

/* The mean and 1/√(var + ε) of rows, as [… 1 …]. */
static void statistics(tl_tensor *rows, const tl_shape *shape, int first, double epsilon, tl_tensor **mean,
                       tl_tensor **inverse_std, const char *site) {
    tl_shape kept = *shape;
    for (int d = first; d < kept.ndim; d++)
        kept.dim[d] = tl_dim_of(1);
    tl_tensor *x = rows ? tl_cast_(rows, tl_statistic_dtype(rows->dtype), site) : NULL;
    tl_tensor *average = tl_mean_(x, (int[]){1}, 1, true, site), *away = tl_sub_(x, average, site);
    if (mean)
        *mean = tl_reshape_(average, kept, site);
    if (inverse_std) {
        tl_tensor *variance = tl_mean_(tl_mul_(away, away, site), (int[]){1}, 1, true, site);
        *inverse_std = tl_reshape_(tl_rsqrt_(tl_scale_(variance, 1, epsilon, site), site), kept, site);
    }
}

tl_tensor *tl_layer_norm_from_(tl_tensor *x, tl_tensor *gain, tl_tensor *bias, int axis, double epsilon,
                               tl_tensor **mean, tl_tensor **inverse_std, const char *site) {
    int first = 0;
    if (!x || !gain)
        return NULL;
    tl_tensor *rows = as_rows(x, axis, "layer_norm_from", site, &first);
    tl_tensor *y = tl_layer_norm_(rows, as_vector(gain, site), as_vector(bias, site), epsilon, site);
    if (mean || inverse_std)
        statistics(rows, &x->shape, first, epsilon, mean, inverse_std, site);
    return tl_reshape_(y, x->shape, site);
}

tl_tensor *tl_rms_norm_from_(tl_tensor *x, tl_tensor *gain, int axis, double epsilon, const char *site) {
    int first = 0;
    if (!x || !gain)
        return NULL;
    tl_tensor *rows = as_rows(x, axis, "rms_norm_from", site, &first);
    return tl_reshape_(tl_rms_norm_(rows, as_vector(gain, site), epsilon, site), x->shape, site);
}

/* [C] as [C,1…], to stand beside x[N,C,…] */
static tl_tensor *per_channel(tl_tensor *vector, const tl_tensor *x, const char *site) {
    tl_shape shape = {.ndim = x->shape.ndim - 1};
    shape.dim[0] = x->shape.dim[1];
    for (int d = 1; d < shape.ndim; d++)
        shape.dim[d] = tl_dim_of(1);
    return tl_reshape_(vector, shape, site);
}

tl_tensor *tl_group_norm_(tl_tensor *x, tl_tensor *gain, tl_tensor *bias, int64_t groups, double epsilon,
                          const char *site) {
    char text[200];
    if (!x || !gain || !bias)
        return NULL;
    tl_ctx *ctx = x->ctx;
    if (x->shape.ndim < 2 || groups < 1 || x->shape.dim[1].size % groups) {
        tl_ctx_fail(ctx, TL_ERR_SHAPE, "group_norm (%s): %lld groups of axis 1 of %s; a divisor of its size would work",
                    site, (long long)groups, tl_tensor_text(x, text, sizeof text));
        return NULL;
    }
    tl_shape channels = x->shape;
    channels.ndim = x->shape.ndim - 1;
    for (int d = 0; d < channels.ndim; d++)
        channels.dim[d] = x->shape.dim[d + 1];
    tl_dim rows = tl_dim_mul(ctx, x->shape.dim[0], tl_dim_of(groups));
    tl_dim columns = tl_dim_div(ctx, tl_elements_dim(ctx, &channels), tl_dim_of(groups));
    /* One element stretched over the row: the gain of the rows is a number. */
    tl_tensor *one = tl_empty(ctx, x->dtype, TL_SHAPE(ctx, tl_dim_of(1)), TL_WORK);
    one = tl_expand_(tl_fill_(one, 1, site), TL_SHAPE(ctx, columns), site);
    tl_tensor *y = tl_layer_norm_(tl_reshape_(x, TL_SHAPE(ctx, rows, columns), site), one, NULL, epsilon, site);
    y = tl_mul_(tl_reshape_(y, x->shape, site), per_channel(gain, x, site), site);
    return tl_add_(y, per_channel(bias, x, site), site);
}

tl_tensor *tl_mean_variance_norm_(tl_tensor *x, const int *axes, int n, double epsilon, const char *site) {
    tl_tensor *away = tl_sub_(x, tl_mean_(x, axes, n, true, site), site);
    tl_tensor *std = tl_sqrt_(tl_mean_(tl_mul_(away, away, site), axes, n, true, site), site);
    return tl_div_(away, tl_scale_(std, 1, epsilon, site), site);
}
