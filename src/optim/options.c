/* What an optimizer can be told, and what it cannot: defaults, names, checks. */
#include "optim/optimizer.h"

tl_optimizer_options tl_optimizer_defaults(tl_optimizer_kind kind) {
    tl_optimizer_options o = {.kind = kind};
    switch (kind) {
    case TL_OPTIM_ADAMW:
    case TL_OPTIM_ADAMW8BIT:
        o.weight_decay = 0.01; /* and the rest as adam */
        o.lr = 1e-3, o.beta1 = 0.9, o.beta2 = 0.999, o.epsilon = 1e-8;
        break;
    case TL_OPTIM_ADAM:
        o.lr = 1e-3, o.beta1 = 0.9, o.beta2 = 0.999, o.epsilon = 1e-8;
        break;
    case TL_OPTIM_ADAGRAD:
        o.lr = 1e-2, o.epsilon = 1e-5;
        break;
    case TL_OPTIM_RMSPROP:
        o.lr = 1e-2, o.alpha = 0.99, o.epsilon = 1e-8;
        break;
    case TL_OPTIM_SGD:
        o.lr = 1e-2;
        break;
    case TL_OPTIM_NONE:
    case TL_OPTIM_KINDS:
        break;
    }
    return o;
}

const char *tl_optimizer_name(tl_optimizer_kind kind) {
    static const char *const names[] = {"none", "sgd", "adagrad", "adamw", "adam", "rmsprop", "adamw8bit"};
    return (unsigned)kind < TL_OPTIM_KINDS ? names[kind] : "?";
}

bool tl_optimizer_is_adam(tl_optimizer_kind kind) {
    return kind == TL_OPTIM_ADAM || kind == TL_OPTIM_ADAMW || kind == TL_OPTIM_ADAMW8BIT;
}

/* An option that this optimizer has no use for is refused, never ignored. */
static tl_status check_effect(tl_ctx *ctx, const tl_optimizer_options *o) {
    const char *name = NULL, *of = NULL;
    tl_optimizer_kind kind = o->kind;
    if (kind == TL_OPTIM_NONE)
        return TL_OK; /* nothing has an effect, and nobody expects one */
    if (o->cs336_order && kind != TL_OPTIM_ADAMW)
        name = "cs336_order", of = "adamw";
    else if (o->nesterov && (kind != TL_OPTIM_SGD || o->momentum == 0))
        name = "nesterov", of = "sgd with momentum";
    else if (o->momentum != 0 && kind != TL_OPTIM_SGD && kind != TL_OPTIM_RMSPROP)
        name = "momentum", of = "sgd and rmsprop";
    else if (o->alpha != 0 && kind != TL_OPTIM_RMSPROP)
        name = "alpha", of = "rmsprop";
    else if (o->centered && kind != TL_OPTIM_RMSPROP)
        name = "centered", of = "rmsprop";
    else if (o->epsilon_outside && kind != TL_OPTIM_ADAGRAD)
        name = "epsilon_outside", of = "adagrad";
    else if (o->states != TL_STATES_DEFAULT && kind == TL_OPTIM_ADAMW8BIT)
        name = "other format of states", of = "adamw";
    if (!name)
        return TL_OK;
    return tl_ctx_fail(ctx, TL_ERR_ARGUMENT, "%s has no %s; %s would take it", tl_optimizer_name(kind), name, of);
}

tl_status tl_optimizer_check(tl_ctx *ctx, const tl_optimizer_options *o) {
    const char *name = NULL;
    double value = 0;
    if ((unsigned)o->kind >= TL_OPTIM_KINDS)
        return tl_ctx_fail(ctx, TL_ERR_ARGUMENT,
                           "optimizer %d; none, sgd, adagrad, adamw, adam, rmsprop and adamw8bit "
                           "are 0 to %d",
                           (int)o->kind, TL_OPTIM_KINDS - 1);
    if ((unsigned)o->states > TL_STATES_F16)
        return tl_ctx_fail(ctx, TL_ERR_ARGUMENT, "states in format %d; 0 to %d would work", (int)o->states,
                           TL_STATES_F16);
    if (!(o->lr >= 0) || o->lr > 1e30)
        name = "lr", value = o->lr;
    else if (!(o->weight_decay >= 0))
        name = "weight_decay", value = o->weight_decay;
    else if (!(o->momentum >= 0 && o->momentum < 1))
        name = "momentum", value = o->momentum;
    else if (!(o->alpha >= 0 && o->alpha < 1))
        name = "alpha", value = o->alpha;
    else if (tl_optimizer_is_adam(o->kind) && !(o->beta1 >= 0 && o->beta1 < 1))
        name = "beta1", value = o->beta1;
    else if (tl_optimizer_is_adam(o->kind) && !(o->beta2 >= 0 && o->beta2 < 1))
        name = "beta2", value = o->beta2;
    else if (o->kind != TL_OPTIM_SGD && !(o->epsilon >= 0))
        name = "epsilon", value = o->epsilon;
    if (!name)
        return check_effect(ctx, o);
    return tl_ctx_fail(ctx, TL_ERR_ARGUMENT,
                       "%s: %s is %g; betas, alpha and momentum lie in [0,1), the others are not negative",
                       tl_optimizer_name(o->kind), name, value);
}
