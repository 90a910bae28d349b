/* What happens when a number is none: the step stops before the update, and its cause is named. */
#include "train/trainer.h"

#include "op/core.h"
#include "tally/grad.h"

#include <stdio.h>
#include <string.h>

typedef struct finding {
    const tl_net *net;
    bool found;
    char text[640];
} finding;

/* Where the first element that is not finite stands; −1: all are. */
static int64_t first_bad(const tl_tensor *t, double *value) {
    int64_t index[TL_MAX_NDIM] = {0}, count = tl_tensor_count(t), at = 0;
    const char *data = tl_tensor_data(t);
    int64_t bytes = tl_dtype_bytes(t->dtype);
    if (!tl_dtype_is_float(t->dtype) || !data)
        return -1;
    for (int64_t i = 0; i < count; i++) {
        *value = tl_element_value(t->dtype, data + at * bytes);
        if (!(*value - *value == 0.0))
            return i;
        for (int d = t->shape.ndim - 1; d >= 0; d--) {
            at += t->stride[d];
            if (++index[d] < t->shape.dim[d].size)
                break;
            at -= t->stride[d] * index[d];
            index[d] = 0;
        }
    }
    return -1;
}

static char *index_text(const tl_tensor *t, int64_t flat, char *text, size_t size) {
    int64_t index[TL_MAX_NDIM] = {0};
    size_t used = 0;
    for (int d = t->shape.ndim - 1; d >= 0; d--) {
        index[d] = flat % t->shape.dim[d].size;
        flat /= t->shape.dim[d].size;
    }
    text[0] = '\0';
    for (int d = 0; d < t->shape.ndim && used < size; d++)
        used += (size_t)snprintf(text + used, size - used, "%s%lld", d ? ", " : "", (long long)index[d]);
    return text;
}

static const char *parameter_name(const tl_net *net, const tl_tensor *t) {
    const tl_parameter *list;
    int count = tl_net_parameters(net, &list);
    for (int i = 0; i < count; i++)
        if (tl_tensor_shares_storage(list[i].tensor, t))
            return list[i].name;
    return NULL;
}

/* A parameter that was bad before the op saw it is the cause rather than the op. */
static int describe_inputs(const finding *f, const tl_sig *sig, char *text, size_t size) {
    double value = 0;
    for (int i = 0; i < sig->n_in; i++) {
        const char *name = parameter_name(f->net, sig->in[i]);
        int64_t at = name ? first_bad(sig->in[i], &value) : -1;
        char where[160];
        if (at >= 0)
            return snprintf(text, size, "; it reads %s, which holds %g at [%s] itself", name, value,
                            index_text(sig->in[i], at, where, sizeof where));
    }
    return 0;
}

static void watch(void *self, const tl_sig *sig, tl_tensor *const out[], int n) {
    finding *f = self;
    for (int i = 0; i < n && !f->found; i++) {
        double value = 0;
        char shape[200], where[160];
        /* Statistics, and what is recorded in place beside the expression, are no values of it. */
        int64_t at = sig->out[i].hidden || sig->out[i].in_place ? -1 : first_bad(out[i], &value);
        if (at < 0)
            continue;
        f->found = true;
        const char *module = tl_module_path(sig->ctx, sig->ctx->place.module);
        int used = snprintf(
            f->text, sizeof f->text, "the first tensor that is not finite is what %s gives in %s (%s): %s, %g at [%s]",
            sig->op->name, module[0] ? module : "the model", sig->site, tl_tensor_text(out[i], shape, sizeof shape),
            value, index_text(out[i], at, where, sizeof where));
        if (used > 0 && used < (int)sizeof f->text)
            describe_inputs(f, sig, f->text + used, sizeof f->text - (size_t)used);
    }
}

/* As the run counts: a skipped step is one too. */
static long long step_of(const tl_trainer *tr) {
    return (long long)(tl_optimizer_steps(tr->optimizer) + tr->scaler.skipped) + 1;
}

tl_status tl_fail_not_finite_loss(tl_trainer *tr, const tl_batch *batch, int64_t micro, double loss,
                                  uint64_t position) {
    tl_ctx *ctx = tr->ctx;
    finding f = {.net = tr->net};
    bool recording = ctx->recording;
    tl_tape_clear(ctx);
    ctx->recording = false;
    ctx->random_position = position;
    ctx->watch = watch;
    ctx->watch_self = &f;
    tl_scope_begin(ctx);
    if (tr->options.autocast)
        (void)tl_autocast(ctx, tr->options.low);
    tl_net_loss(tr->net, batch->input, batch->target);
    if (tr->options.autocast)
        (void)tl_autocast(ctx, TL_F32);
    tl_scope_end(ctx);
    ctx->watch = NULL;
    ctx->recording = recording;
    if (ctx->error.status != TL_OK) /* what stopped the second forward is not what stopped the run */
        tl_ctx_clear_error(ctx);
    return tl_ctx_fail(ctx, TL_ERR_STATE,
                       "the loss is %g at step %lld, micro-batch %lld; stopped before the update: %s", loss,
                       step_of(tr), (long long)micro + 1,
                       f.found ? f.text : "a second forward on the same batch was finite everywhere");
}

tl_status tl_fail_not_finite_gradient(tl_trainer *tr) {
    const tl_parameter *list;
    int count = tl_net_parameters(tr->net, &list);
    long long step = step_of(tr);
    const char *name = tl_first_non_finite_gradient(tr->ctx, list, count);
    const tl_tensor *grad = name ? tl_tensor_grad(tl_net_find(tr->net, name)) : NULL;
    if (grad) {
        double value = 0;
        char where[160], shape[200];
        int64_t at = first_bad(grad, &value);
        return tl_ctx_fail(tr->ctx, TL_ERR_STATE,
                           "the gradient of %.120s, %s, is %g at [%s] at step %lld; stopped before the update", name,
                           tl_tensor_text(grad, shape, sizeof shape), value,
                           index_text(grad, at < 0 ? 0 : at, where, sizeof where), step);
    }
    return tl_ctx_fail(
        tr->ctx, TL_ERR_STATE,
        "the squares of the gradients add up to more than 1.8e308 at step %lld; stopped before the update", step);
}
