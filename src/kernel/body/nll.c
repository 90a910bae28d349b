/* kernel/body/nll.c: negative log-likelihood with class weights, any number of axes behind the classes, three reductions.
 * Sums run in double in order of position: a target is one read and one addition, so one thread serves. */
#include "kernel/body/body.h"

typedef struct nll {
    tl_walk rows; /* targets, and log p (backward: its gradient) at class 0, and what else goes along with targets */
    const tl_array *weight;
    int64_t classes, class_stride, ignore;
} nll;

/* The array [N,C,d…] without C. */
static tl_array without_classes(const tl_array *a) {
    tl_array rest = *a;
    rest.ndim--;
    for (int d = 1; d < rest.ndim; d++) {
        rest.size[d] = a->size[d + 1];
        rest.stride[d] = a->stride[d + 1];
    }
    return rest;
}

static double value_at(const tl_array *a, int64_t offset) {
    double value;
    TL_K(load_double)(&value, a->dtype, a->data + offset * tl_bytes_of(a->dtype), 1, 1);
    return value;
}

static double double_at(tl_dtype dtype, const char *memory) {
    double value;
    TL_K(load_double)(&value, dtype, memory, 1, 1);
    return value;
}

static double weight_of(const nll *t, int64_t class) {
    return t->weight && t->weight->data ? value_at(t->weight, class * t->weight->stride[0]) : 1;
}

/* Class of the target at a pointer; −1: ignored, −2: none there is. */
static int64_t class_at(const nll *t, const char *memory) {
    int64_t target;
    TL_K(load_int)(&target, t->rows.dtype[0], memory, 1, 1);
    if (target == t->ignore && target != INT64_MIN) /* which says that none is */
        return -1;
    return target >= 0 && target < t->classes ? target : -2;
}

void TL_K(nll_loss)(tl_kcall *call) {
    const tl_nll_attr *attr = call->attr;
    const tl_array *log_p = &call->in[0], *targets = &call->in[1];
    tl_array first = without_classes(log_p);
    const tl_array *array[] = {targets, &first, &call->out[0]};
    bool each = attr->reduction == TL_NLL_NONE;
    nll t = {.classes = log_p->size[1], .class_stride = log_p->stride[1], .ignore = attr->ignore_index};
    if (call->n_in > 2)
        t.weight = &call->in[2];
    TL_K(walk_make)(&t.rows, array, each ? 3 : 2, targets->ndim, false);
    double sum = 0, weights = 0;
    for (int64_t at = 0; at < t.rows.total; at++) {
        char *pointer[TL_MAX_IO];
        TL_K(walk_at)(&t.rows, at, pointer);
        int64_t class = class_at(&t, pointer[0]);
        if (class == -2) {
            call->fault = at + 1;
            return;
        }
        double loss = 0;
        if (class >= 0) {
            double w = weight_of(&t, class);
            loss = -w * double_at(log_p->dtype, pointer[1] + class * t.class_stride * t.rows.bytes[1]);
            weights += w;
        }
        sum += loss;
        if (each)
            TL_K(store_double)(call->out[0].dtype, pointer[2], 1, &loss, 1);
    }
    if (attr->reduction == TL_NLL_MEAN)
        sum = weights != 0 ? sum / weights : 0;
    if (!each)
        TL_K(store_double)(call->out[0].dtype, call->out[0].data, 1, &sum, 1);
    if (call->n_out > 1)
        TL_K(store_double)(call->out[1].dtype, call->out[1].data, 1, &weights, 1);
}

static void zero(tl_kcall *call, int output) {
    tl_fill_attr value = {0};
    tl_kcall fill = {.engine = call->engine, .n_out = 1, .attr = &value};
    fill.out[0] = call->out[output];
    if (fill.out[0].data)
        TL_K(fill)(&fill);
}

/* mean: L = Σ −w·lp / W, so ∂L/∂lp = −w/W and ∂L/∂w = (−lp − L)/W. sum and none: W is 1 and L drops out. */
void TL_K(nll_loss_backward)(tl_kcall *call) {
    const tl_nll_attr *attr = call->attr;
    const tl_array *log_p = &call->in[0], *targets = &call->in[1], *gradient = &call->in[3];
    tl_array *dlog_p = &call->out[0], *dweight = &call->out[1];
    tl_array first = without_classes(log_p), dfirst = without_classes(dlog_p), scalar = *targets;
    if (attr->reduction != TL_NLL_NONE) { /* one gradient for all */
        scalar.data = gradient->data;
        scalar.dtype = gradient->dtype;
        memset(scalar.stride, 0, sizeof scalar.stride);
        gradient = &scalar;
    }
    const tl_array *array[] = {targets, &first, gradient, dlog_p->data ? &dfirst : &first};
    nll t = {.weight = &call->in[2], .classes = log_p->size[1], .class_stride = log_p->stride[1]};
    t.ignore = attr->ignore_index;
    double total = 1, loss = 0;
    if (attr->reduction == TL_NLL_MEAN) {
        total = value_at(&call->in[4], 0);
        loss = value_at(&call->in[5], 0);
    }
    zero(call, 0);
    zero(call, 1);
    TL_K(walk_make)(&t.rows, array, 4, targets->ndim, false);
    for (int64_t at = 0; at < t.rows.total && total != 0; at++) {
        char *pointer[TL_MAX_IO];
        TL_K(walk_at)(&t.rows, at, pointer);
        int64_t class = class_at(&t, pointer[0]);
        if (class < 0)
            continue;
        double g = double_at(gradient->dtype, pointer[2]) / total, slope = -g * weight_of(&t, class);
        if (dlog_p->data)
            TL_K(store_double)
        (dlog_p->dtype, pointer[3] + class * dlog_p->stride[1] * t.rows.bytes[3], 1, &slope, 1);
        if (!dweight->data)
            continue;
        char *to = dweight->data + class * dweight->stride[0] * tl_bytes_of(dweight->dtype);
        double lp = double_at(log_p->dtype, pointer[1] + class * t.class_stride * t.rows.bytes[1]);
        double sum = double_at(dweight->dtype, to) + g * (-lp - loss);
        TL_K(store_double)(dweight->dtype, to, 1, &sum, 1);
    }
}
