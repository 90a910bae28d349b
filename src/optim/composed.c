/* Updates operation by operation, as torch.optim writes them: for one parameter after the other (its _single_tensor_ functions), or
 * each operation for all of them before the next (its _multi_tensor_ functions, torch._foreach). The mathematics is that of the
 * fused updates (tally/optim.h); what differs is where results are rounded, and the temporaries. */
#include "optim/optimizer.h"
#include "tally/ops_choices.h"

enum { TEMPORARIES = 2 };

/* One parameter's update on its way. */
typedef struct task {
    tl_optimizer *opt;
    tl_slot *slot;
    tl_tensor *target, *gradient; /* the gradient in the target's format */
    tl_tensor *temporary[TEMPORARIES];
    double lr;
    bool first;        /* of sgd: the buffer starts as the gradient */
    bool own_gradient; /* a temporary, not the parameter's */
} task;

typedef bool operation(task *t);

static bool is_foreach(const task *t) { return t->opt->options.update == TL_UPDATE_FOREACH; }

static void drop(task *t, int i) {
    tl_release(t->temporary[i]);
    t->temporary[i] = NULL;
}

static tl_tensor *as_target(const task *t, tl_tensor *x) { return tl_cast_(x, t->target->dtype, TL_HERE); }

static double power_of(double base, int64_t n) {
    double result = 1;
    for (; n > 0; n >>= 1, base *= base)
        result = n & 1 ? result * base : result;
    return result;
}

/* ---- operations ---- */

/* The gradient in the format of what is updated: PyTorch refuses any other, and who keeps a master copy casts. */
static bool get_gradient(task *t) {
    tl_tensor *own = t->slot->parameter->grad, *g = own;
    if (t->opt->unscale)
        g = tl_optimizer_unscaled(t->opt, g);
    t->gradient = g ? as_target(t, g) : NULL;
    t->own_gradient = t->gradient && t->gradient->storage != own->storage;
    return t->gradient != NULL;
}

/* g + λθ, a temporary */
static bool add_decay(task *t) {
    if (t->slot->rule.weight_decay == 0)
        return true;
    if (!t->own_gradient)
        t->gradient = tl_copy_(t->gradient, TL_HERE);
    t->own_gradient = true;
    return tl_multiply_add(t->gradient, 1, t->slot->rule.weight_decay, t->target, NULL, false) != NULL;
}

static bool decay_weights(task *t) { return tl_scale_into(t->target, 1 - t->lr * t->slot->rule.weight_decay) != NULL; }

static bool first_moment(task *t) {
    double beta = t->slot->rule.beta1;
    return tl_multiply_add(t->slot->state[0], beta, 1 - beta, t->gradient, NULL, false) != NULL;
}

static bool second_moment(task *t) {
    double beta = t->slot->rule.beta2;
    return tl_multiply_add(t->slot->state[1], beta, 1 - beta, t->gradient, t->gradient, false) != NULL;
}

static bool root_of(task *t, tl_tensor *x) {
    tl_tensor *wide = as_target(t, x);
    t->temporary[0] = tl_sqrt(wide);
    if (wide != x)
        tl_release(wide);
    return t->temporary[0] != NULL;
}

static bool adam_root(task *t) { return root_of(t, t->slot->state[1]); }

/* √v/√(1 − β2^t): another tensor one by one, in place for all at once */
static bool correct_root(task *t) {
    double factor = 1 / __builtin_sqrt(1 - power_of(t->slot->rule.beta2, t->opt->steps));
    if (is_foreach(t))
        return tl_scale_into(t->temporary[0], factor) != NULL;
    t->temporary[1] = tl_scale(t->temporary[0], factor, 0);
    drop(t, 0);
    t->temporary[0] = t->temporary[1];
    t->temporary[1] = NULL;
    return t->temporary[0] != NULL;
}

static bool add_epsilon(task *t) { return tl_shift_into(t->temporary[0], 1, t->slot->rule.epsilon) != NULL; }

static bool move_by_moments(task *t) {
    const tl_parameter_rule *r = &t->slot->rule;
    double step = t->lr / (1 - power_of(r->beta1, t->opt->steps));
    if (t->opt->options.cs336_order)
        step *= __builtin_sqrt(1 - power_of(r->beta2, t->opt->steps));
    bool ok = tl_multiply_add(t->target, 1, -step, t->slot->state[0], t->temporary[0], true) != NULL;
    drop(t, 0);
    return ok;
}

static bool add_square(task *t) {
    return tl_multiply_add(t->slot->state[0], 1, 1, t->gradient, t->gradient, false) != NULL;
}

/* √s + ε, or the lecture's √(s + ε) */
static bool adagrad_root(task *t) {
    double epsilon = t->slot->rule.epsilon;
    if (t->opt->options.epsilon_outside)
        return root_of(t, t->slot->state[0]) && tl_shift_into(t->temporary[0], 1, epsilon);
    tl_tensor *wide = as_target(t, t->slot->state[0]), *sum = tl_scale(wide, 1, epsilon);
    t->temporary[0] = tl_sqrt(sum);
    tl_release(sum);
    if (wide != t->slot->state[0])
        tl_release(wide);
    return t->temporary[0] != NULL;
}

static bool move_by_quotient(task *t) {
    bool ok = tl_multiply_add(t->target, 1, -t->lr, t->gradient, t->temporary[0], true) != NULL;
    drop(t, 0);
    return ok;
}

static bool mean_square(task *t) {
    double alpha = t->opt->options.alpha;
    return tl_multiply_add(t->slot->state[0], alpha, 1 - alpha, t->gradient, t->gradient, false) != NULL;
}

static tl_tensor *mean_of(const task *t) { return t->slot->state[t->opt->options.momentum != 0 ? 2 : 1]; }

static bool mean_gradient(task *t) {
    double alpha = t->opt->options.alpha;
    return !t->opt->options.centered || tl_multiply_add(mean_of(t), alpha, 1 - alpha, t->gradient, NULL, false) != NULL;
}

static bool rmsprop_root(task *t) {
    tl_tensor *mean = t->opt->options.centered ? mean_of(t) : NULL;
    if (!mean)
        return root_of(t, t->slot->state[0]);
    tl_tensor *variance = tl_copy(t->slot->state[0]);
    bool ok = variance && tl_multiply_add(variance, 1, -1, mean, mean, false) && root_of(t, variance);
    tl_release(variance);
    return ok;
}

static bool rmsprop_move(task *t) {
    double momentum = t->opt->options.momentum;
    tl_tensor *buffer = momentum != 0 ? t->slot->state[1] : NULL;
    if (!buffer)
        return move_by_quotient(t);
    bool ok = tl_multiply_add(buffer, momentum, 1, t->gradient, t->temporary[0], true) &&
              tl_multiply_add(t->target, 1, -t->lr, buffer, NULL, false);
    drop(t, 0);
    return ok;
}

static bool sgd_buffer(task *t) {
    const tl_optimizer_options *o = &t->opt->options;
    return o->momentum == 0 ||
           tl_multiply_add(t->slot->state[0], t->first ? 0 : o->momentum, 1, t->gradient, NULL, false) != NULL;
}

static bool sgd_move(task *t) {
    const tl_optimizer_options *o = &t->opt->options;
    tl_tensor *by = o->momentum == 0 ? t->gradient : t->slot->state[0];
    if (o->nesterov) { /* g + μb, a temporary */
        by = tl_copy(t->gradient);
        if (!by || !tl_multiply_add(by, 1, o->momentum, t->slot->state[0], NULL, false))
            return false;
    }
    bool ok = tl_multiply_add(t->target, 1, -t->lr, by, NULL, false) != NULL;
    if (o->nesterov)
        tl_release(by);
    return ok;
}

static bool write_copy(task *t) {
    if (t->own_gradient)
        tl_release(t->gradient);
    t->gradient = NULL;
    tl_tensor *parameter = t->slot->parameter;
    if (!t->slot->master)
        return true;
    if (parameter->shape.ndim == 0)
        return tl_multiply_add(parameter, 0, 1, t->target, NULL, false) != NULL;
    return tl_write_slice(parameter, t->target, 0, 0) != NULL;
}

/* ---- sequences ---- */

enum { OPERATIONS = 10 };

static int sequence(const tl_optimizer_options *o, operation *list[OPERATIONS]) {
    int n = 0;
    list[n++] = get_gradient;
    switch (o->kind) {
    case TL_OPTIM_ADAM:
    case TL_OPTIM_ADAMW:
    case TL_OPTIM_ADAMW8BIT: /* a parameter too small for 8 bits */
        if (o->kind == TL_OPTIM_ADAM)
            list[n++] = add_decay;
        else if (!o->cs336_order)
            list[n++] = decay_weights;
        list[n++] = first_moment;
        list[n++] = second_moment;
        list[n++] = adam_root;
        if (!o->cs336_order)
            list[n++] = correct_root;
        list[n++] = add_epsilon;
        list[n++] = move_by_moments;
        if (o->cs336_order)
            list[n++] = decay_weights;
        break;
    case TL_OPTIM_ADAGRAD:
        list[n++] = add_decay;
        list[n++] = add_square;
        list[n++] = adagrad_root;
        list[n++] = move_by_quotient;
        break;
    case TL_OPTIM_RMSPROP:
        list[n++] = add_decay;
        list[n++] = mean_square;
        list[n++] = mean_gradient;
        list[n++] = rmsprop_root;
        list[n++] = add_epsilon;
        list[n++] = rmsprop_move;
        break;
    default:
        list[n++] = add_decay;
        list[n++] = sgd_buffer;
        list[n++] = sgd_move;
        break;
    }
    list[n++] = write_copy;
    return n;
}

static tl_status run(task *t, operation *op) {
    tl_ctx *ctx = t->opt->ctx;
    ctx->place.region = t->slot->parameter->storage->region;
    ctx->place.module = t->slot->parameter->storage->module;
    if (!op(t) && ctx->error.status == TL_OK)
        return tl_ctx_fail(ctx, TL_ERR_STATE, "an operation of the optimizer gave nothing");
    return ctx->error.status;
}

static task task_of(tl_optimizer *opt, tl_slot *s, double lr, bool first) {
    return (task){.opt = opt,
                  .slot = s,
                  .target = s->master ? s->master : s->parameter,
                  .lr = lr * s->rule.lr_factor,
                  .first = first};
}

tl_status tl_update_composed(tl_optimizer *opt, tl_slot *s, double lr, bool first) {
    operation *list[OPERATIONS];
    int n = sequence(&opt->options, list);
    task t = task_of(opt, s, lr, first);
    tl_status status = TL_OK;
    for (int i = 0; i < n && status == TL_OK; i++)
        status = run(&t, list[i]);
    return status;
}

tl_status tl_update_foreach(tl_optimizer *opt, tl_slot *const slots[], const bool first[], int count, double lr) {
    operation *list[OPERATIONS];
    tl_ctx *ctx = opt->ctx;
    int n = sequence(&opt->options, list);
    size_t bytes = (size_t)count * sizeof(task);
    task *t = tl_host_alloc(ctx, bytes);
    tl_status status = t ? TL_OK : ctx->error.status;
    tl_scope_begin(ctx);
    for (int k = 0; k < count && status == TL_OK; k++)
        t[k] = task_of(opt, slots[k], lr, first[k]);
    for (int i = 0; i < n && status == TL_OK; i++)
        for (int k = 0; k < count && status == TL_OK; k++)
            status = run(&t[k], list[i]);
    tl_scope_end(ctx);
    tl_host_free(ctx, t, bytes);
    return status;
}
