/* kernel/body/update.c: optimizer updates, one pass over parameter, gradient and states, and the mean squared error.
 *
 * Arithmetic in float (double when the parameter is f64); constants are computed in double and rounded once. A 16-bit
 * state or parameter is loaded, updated in float and rounded once. */
#include <math.h>

#include "kernel/body/body.h"

/* arrays: parameter, states …, [copy], gradient. The low-precision copy is written with the parameter's value. */
static void update(tl_kcall *call, int states, tl_each_loop *loop_float, tl_each_loop *loop_double,
                   const void *constants) {
    const tl_array *array[6];
    int access[6], n = 0, outs = call->n_out;
    bool has_copy = outs > 1 + states;
    for (int i = 0; i < 1 + states; i++) {
        array[n] = &call->out[i];
        access[n++] = TL_READ | TL_WRITE;
    }
    array[n] = &call->in[0];
    access[n++] = TL_READ;
    if (has_copy) {
        array[n] = &call->out[outs - 1];
        access[n++] = TL_WRITE;
    }
    bool wide = call->out[0].dtype == TL_F64;
    TL_K(each)
    (call->engine, array, access, n, wide ? TL_COMPUTE_DOUBLE : TL_COMPUTE_FLOAT, wide ? loop_double : loop_float,
     constants);
}

typedef struct update_constants {
    double lr, momentum, decay, beta1, beta2, epsilon, outside, step_size, root;
    bool nesterov, first, centered, has_copy;
} update_constants;

#define COPY(type, at)                                                                                                 \
    if (c->has_copy)                                                                                                   \
    memcpy(pointer[at], pointer[0], (size_t)n * sizeof(type))

/* PyTorch's SGD: g += λθ; b = μb + g (b = g at first); g = g + μb (Nesterov) or b; θ −= lr·g */
#define SGD(type)                                                                                                      \
    static void sgd_##type(const void *constants, int64_t n, void *const pointer[]) {                                  \
        const update_constants *c = constants;                                                                         \
        type lr = (type)c->lr, decay = (type)c->decay, *p = pointer[0];                                                \
        const type *g = pointer[1];                                                                                    \
        TL_INDEPENDENT                                                                                                 \
        for (int64_t i = 0; i < n; i++)                                                                                \
            p[i] -= lr * (g[i] + decay * p[i]);                                                                        \
        COPY(type, 2);                                                                                                 \
    }                                                                                                                  \
    static void momentum_##type(const void *constants, int64_t n, void *const pointer[]) {                             \
        const update_constants *c = constants;                                                                         \
        type lr = (type)c->lr, decay = (type)c->decay, momentum = (type)c->momentum, *p = pointer[0], *b = pointer[1]; \
        type old = c->first ? 0 : momentum, ahead = c->nesterov ? momentum : 1, own = c->nesterov ? 1 : 0;             \
        const type *g = pointer[2];                                                                                    \
        TL_INDEPENDENT                                                                                                 \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            type slope = g[i] + decay * p[i];                                                                          \
            b[i] = c->first ? slope : old * b[i] + slope;                                                              \
            p[i] -= lr * (own * slope + ahead * b[i]);                                                                 \
        }                                                                                                              \
        COPY(type, 3);                                                                                                 \
    }
SGD(float)
SGD(double)

void TL_K(sgd)(tl_kcall *call) {
    const tl_sgd_attr *attr = call->attr;
    update_constants c = {.lr = attr->lr, .momentum = attr->momentum, .decay = attr->weight_decay};
    c.nesterov = attr->nesterov;
    c.first = attr->first;
    bool momentum = attr->momentum != 0;
    c.has_copy = call->n_out > (momentum ? 2 : 1);
    if (momentum)
        update(call, 1, momentum_float, momentum_double, &c);
    else
        update(call, 0, sgd_float, sgd_double, &c);
}

/* Duchi, Hazan, Singer 2011, with ε inside the root or beside it */
#define ADAGRAD(type, root)                                                                                            \
    static void adagrad_##type(const void *constants, int64_t n, void *const pointer[]) {                              \
        const update_constants *c = constants;                                                                         \
        type lr = (type)c->lr, inside = (type)c->epsilon, outside = (type)c->outside, decay = (type)c->decay;          \
        type *p = pointer[0], *s = pointer[1];                                                                         \
        const type *g = pointer[2];                                                                                    \
        TL_INDEPENDENT                                                                                                 \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            type slope = decay != 0 ? g[i] + decay * p[i] : g[i];                                                      \
            s[i] += slope * slope;                                                                                     \
            p[i] -= lr * slope / (root(s[i] + inside) + outside);                                                      \
        }                                                                                                              \
        COPY(type, 3);                                                                                                 \
    }
ADAGRAD(float, __builtin_sqrtf)
ADAGRAD(double, __builtin_sqrt)

void TL_K(adagrad)(tl_kcall *call) {
    const tl_adagrad_attr *attr = call->attr;
    update_constants c = {.lr = attr->lr, .decay = attr->weight_decay, .has_copy = call->n_out > 2};
    *(attr->epsilon_outside ? &c.outside : &c.epsilon) = attr->epsilon;
    update(call, 1, adagrad_float, adagrad_double, &c);
}

/* Tieleman and Hinton 2012, Graves 2013 (centered, momentum), as torch.optim.RMSprop. s − a² is a variance: where rounding
 * makes it negative it is 0. */
#define RMSPROP(type, root)                                                                                            \
    static void rmsprop_##type(const void *constants, int64_t n, void *const pointer[]) {                              \
        const update_constants *c = constants;                                                                         \
        type lr = (type)c->lr, alpha = (type)c->beta1, rest = (type)(1 - c->beta1), epsilon = (type)c->epsilon;        \
        type decay = (type)c->decay, momentum = (type)c->momentum;                                                     \
        bool moves = momentum != 0, centered = c->centered;                                                            \
        type *p = pointer[0], *s = pointer[1], *b = pointer[moves ? 2 : 1], *a = pointer[moves ? 3 : 2];               \
        int at = 2 + moves + centered;                                                                                 \
        const type *g = pointer[at];                                                                                   \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            type slope = decay != 0 ? g[i] + decay * p[i] : g[i];                                                      \
            type square = alpha * s[i] + rest * slope * slope, spread = square;                                        \
            s[i] = square;                                                                                             \
            if (centered) {                                                                                            \
                a[i] = alpha * a[i] + rest * slope;                                                                    \
                spread = square - a[i] * a[i];                                                                         \
                spread = spread < 0 ? 0 : spread;                                                                      \
            }                                                                                                          \
            type move = slope / (root(spread) + epsilon);                                                              \
            if (moves)                                                                                                 \
                move = b[i] = momentum * b[i] + move;                                                                  \
            p[i] -= lr * move;                                                                                         \
        }                                                                                                              \
        COPY(type, at + 1);                                                                                            \
    }
RMSPROP(float, __builtin_sqrtf)
RMSPROP(double, __builtin_sqrt)

void TL_K(rmsprop)(tl_kcall *call) {
    const tl_rmsprop_attr *attr = call->attr;
    int states = 1 + (attr->momentum != 0) + attr->centered;
    update_constants c = {.lr = attr->lr,
                          .decay = attr->weight_decay,
                          .beta1 = attr->alpha,
                          .epsilon = attr->epsilon,
                          .momentum = attr->momentum,
                          .centered = attr->centered,
                          .has_copy = call->n_out > 1 + states};
    update(call, states, rmsprop_float, rmsprop_double, &c);
}

/* Adam, Kingma and Ba 2015; decoupled decay, Loshchilov and Hutter 2019. Both orders are θ·before − step·m/(√v·root + ε);
 * CS336's then takes lr·λ·θ off. As a factor 1 − lr·λ that would lose: in float 1 − 1e-5 is off by 0.3 % of the 1e-5. */
#define ADAMW(type, square_root)                                                                                       \
    static void adamw_##type(const void *constants, int64_t n, void *const pointer[]) {                                \
        const update_constants *c = constants;                                                                         \
        type beta1 = (type)c->beta1, beta2 = (type)c->beta2, rest1 = (type)(1 - c->beta1),                             \
             rest2 = (type)(1 - c->beta2);                                                                             \
        type epsilon = (type)c->epsilon, step = (type)c->step_size, root = (type)c->root;                              \
        type before = (type)c->momentum, after = (type)c->decay;                                                       \
        bool decays_after = after != 0;                                                                                \
        type *p = pointer[0], *m = pointer[1], *v = pointer[2];                                                        \
        const type *g = pointer[3];                                                                                    \
        TL_INDEPENDENT                                                                                                 \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            type slope = g[i];                                                                                         \
            type mean = beta1 * m[i] + rest1 * slope, square = beta2 * v[i] + rest2 * slope * slope;                   \
            m[i] = mean;                                                                                               \
            v[i] = square;                                                                                             \
            type moved = p[i] * before - step * mean / (square_root(square) * root + epsilon);                         \
            p[i] = decays_after ? moved - after * moved : moved;                                                       \
        }                                                                                                              \
        COPY(type, 4);                                                                                                 \
    }
ADAMW(float, __builtin_sqrtf)
ADAMW(double, __builtin_sqrt)

void TL_K(adamw)(tl_kcall *call) {
    const tl_adamw_attr *attr = call->attr;
    double correct1 = 1 - pow(attr->beta1, (double)attr->step), correct2 = 1 - pow(attr->beta2, (double)attr->step);
    double keep = 1 - attr->lr * attr->weight_decay;
    update_constants c = {
        .beta1 = attr->beta1, .beta2 = attr->beta2, .epsilon = attr->epsilon, .has_copy = call->n_out > 3};
    c.step_size = attr->cs336 ? attr->lr * sqrt(correct2) / correct1 : attr->lr / correct1;
    c.root = attr->cs336 ? 1 : 1 / sqrt(correct2);
    c.momentum = attr->cs336 ? 1 : keep;                       /* factor before */
    c.decay = attr->cs336 ? attr->lr * attr->weight_decay : 0; /* taken off after */
    update(call, 2, adamw_float, adamw_double, &c);
}

/* Adam with decay as L2, torch.optim.Adam */
#define ADAM(type, square_root)                                                                                        \
    static void adam_##type(const void *constants, int64_t n, void *const pointer[]) {                                 \
        const update_constants *c = constants;                                                                         \
        type beta1 = (type)c->beta1, beta2 = (type)c->beta2, rest1 = (type)(1 - c->beta1),                             \
             rest2 = (type)(1 - c->beta2);                                                                             \
        type epsilon = (type)c->epsilon, step = (type)c->step_size, root = (type)c->root, decay = (type)c->decay;      \
        type *p = pointer[0], *m = pointer[1], *v = pointer[2];                                                        \
        const type *g = pointer[3];                                                                                    \
        TL_INDEPENDENT                                                                                                 \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            type slope = decay != 0 ? g[i] + decay * p[i] : g[i];                                                      \
            type mean = beta1 * m[i] + rest1 * slope, square = beta2 * v[i] + rest2 * slope * slope;                   \
            m[i] = mean;                                                                                               \
            v[i] = square;                                                                                             \
            p[i] -= step * mean / (square_root(square) * root + epsilon);                                              \
        }                                                                                                              \
        COPY(type, 4);                                                                                                 \
    }
ADAM(float, __builtin_sqrtf)
ADAM(double, __builtin_sqrt)

void TL_K(adam)(tl_kcall *call) {
    const tl_adamw_attr *attr = call->attr;
    double correct1 = 1 - pow(attr->beta1, (double)attr->step), correct2 = 1 - pow(attr->beta2, (double)attr->step);
    update_constants c = {.beta1 = attr->beta1,
                          .beta2 = attr->beta2,
                          .epsilon = attr->epsilon,
                          .decay = attr->weight_decay,
                          .step_size = attr->lr / correct1,
                          .root = 1 / sqrt(correct2),
                          .has_copy = call->n_out > 3};
    update(call, 2, adam_float, adam_double, &c);
}

/* ---- mean squared error ---- */

typedef struct error_task {
    tl_walk walk;
    double *partial;
} error_task;

static void error_block(void *argument, int64_t task, int thread) {
    (void)thread;
    const error_task *t = argument;
    int64_t end = tl_min_i64((task + 1) * TL_ERROR_BLOCK, t->walk.total);
    double lane[16] = {0}, square[TL_CHUNK];
    for (int64_t at = task * TL_ERROR_BLOCK; at < end; at += TL_CHUNK) {
        int64_t n = tl_min_i64(TL_CHUNK, end - at);
        if (t->walk.dtype[0] == TL_F64) {
            double a_buffer[TL_CHUNK], b_buffer[TL_CHUNK];
            const double *a = TL_K(flat_double)(&t->walk, 0, at, n, a_buffer);
            const double *b = TL_K(flat_double)(&t->walk, 1, at, n, b_buffer);
            for (int64_t i = 0; i < n; i++)
                square[i] = (a[i] - b[i]) * (a[i] - b[i]);
        } else {
            float a_buffer[TL_CHUNK], b_buffer[TL_CHUNK];
            const float *a = TL_K(flat_float)(&t->walk, 0, at, n, a_buffer);
            const float *b = TL_K(flat_float)(&t->walk, 1, at, n, b_buffer);
            for (int64_t i = 0; i < n; i++) {
                double difference = (double)a[i] - (double)b[i];
                square[i] = difference * difference;
            }
        }
        tl_lanes_add_double(lane, square, n);
    }
    t->partial[task] = tl_lanes_sum_double(lane);
}

void TL_K(mse)(tl_kcall *call) {
    const tl_array *array[] = {&call->in[0], &call->in[1]};
    error_task t = {.partial = call->work};
    TL_K(walk_make)(&t.walk, array, 2, array[0]->ndim, false);
    int64_t blocks = tl_blocks_of(t.walk.total, TL_ERROR_BLOCK);
    tl_engine_run(t.walk.total < 2 * TL_TASK_ELEMENTS ? NULL : call->engine, blocks, error_block, &t);
    double sum = 0;
    for (int64_t i = 0; i < blocks; i++)
        sum += t.partial[i];
    sum = t.walk.total ? sum / (double)t.walk.total : 0;
    TL_K(store_double)(call->out[0].dtype, call->out[0].data, 1, &sum, 1);
}

static void mse_backward_float(const void *constants, int64_t n, void *const pointer[]) {
    float factor = (float)*(const double *)constants, *y = pointer[0];
    const float *a = pointer[1], *b = pointer[2];
    TL_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        y[i] = (a[i] - b[i]) * factor;
}

static void mse_backward_double(const void *constants, int64_t n, void *const pointer[]) {
    double factor = *(const double *)constants, *y = pointer[0];
    const double *a = pointer[1], *b = pointer[2];
    TL_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        y[i] = (a[i] - b[i]) * factor;
}

void TL_K(mse_backward)(tl_kcall *call) {
    double factor;
    int64_t n = 1;
    for (int d = 0; d < call->in[0].ndim; d++)
        n *= call->in[0].size[d];
    TL_K(load_double)(&factor, call->in[2].dtype, call->in[2].data, 1, 1);
    factor = n ? 2 * factor / (double)n : 0;
    tl_kcall two = *call;
    two.n_in = 2;
    TL_K(each_call)(&two, mse_backward_float, mse_backward_double, &factor);
}
