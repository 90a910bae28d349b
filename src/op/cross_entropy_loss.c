/* Cross-entropy with classes on axis 1, weights and reductions: log softmax and negative log-likelihood, or where those are not
 * asked for the op that keeps no log softmax. */
#include "op/rows.h"
#include "tally/ops_layers.h"

/* Axis `from` moved to `to`, the others in their order. */
static tl_tensor *moved(tl_tensor *x, int from, int to, const char *site) {
    int axes[TL_MAX_NDIM] = {0}, next = 0;
    if (!x)
        return NULL;
    for (int d = 0; d < x->shape.ndim; d++) {
        if (next == from)
            next++;
        axes[d] = d == to ? from : next++;
    }
    return x->shape.ndim == 2 ? x : tl_permute_(x, axes, site);
}

tl_tensor *tl_cross_entropy_loss_(tl_tensor *logits, tl_tensor *targets, tl_tensor *weight,
                                  const tl_loss_options *options, tl_tensor **log_p, const char *site) {
    char text[200];
    if (log_p)
        *log_p = NULL;
    if (!logits || !targets)
        return NULL;
    int last = logits->shape.ndim - 1;
    if (last < 1) {
        tl_ctx_fail(logits->ctx, TL_ERR_SHAPE, "cross_entropy_loss (%s): the logits are %s; [N, classes, …] would work",
                    site, tl_tensor_text(logits, text, sizeof text));
        return NULL;
    }
    tl_tensor *rows = moved(logits, 1, last, site);
    if (!log_p && !weight && options->reduction == TL_LOSS_MEAN)
        return tl_cross_entropy_(rows, targets, options->ignores ? options->ignore_index : INT64_MIN, site);
    tl_tensor *log_softmax = moved(tl_log_softmax_(rows, site), last, 1, site);
    if (log_p)
        *log_p = log_softmax;
    return tl_nll_loss_(log_softmax, targets, weight, options, site);
}
