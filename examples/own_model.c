/* A model of one's own, without tl_net: parameters are tensors, the model is a function of ops, AdamW steps them, and the
 * ledger says what that held and computed. Two layers, 2 → 16 → 1, learn to multiply two numbers. The same code runs on meta
 * first, where nothing is allocated: that is the plan.
 *
 *     cc own_model.c $(pkg-config --cflags --libs tally)
 */
#include <stdio.h>

#include <tally/tally.h>

enum { B = 64, IN = 2, HIDDEN = 16, STEPS = 400 };

typedef struct model {
    tl_parameter parameter[4]; /* w1 b1 w2 b2; the optimizer wants them with names */
} model;

static tl_status model_init(tl_ctx *ctx, model *m) {
    static const char *const names[4] = {"w1", "b1", "w2", "b2"};
    const tl_dim in = tl_dim_of(IN), hidden = tl_dim_of(HIDDEN), out = tl_dim_of(1);
    const tl_shape shapes[4] = {TL_SHAPE(ctx, hidden, in), TL_SHAPE(ctx, hidden), TL_SHAPE(ctx, out, hidden),
                                TL_SHAPE(ctx, out)};
    for (int i = 0; i < 4; i++) {
        bool matrix = i % 2 == 0;
        tl_tensor *t =
            tl_keep(tl_empty(ctx, TL_F32, shapes[i], TL_PARAM)); /* kept: until tl_free or the context's end */
        tl_status status = matrix ? tl_init_kaiming_normal(t, TL_FAN_IN, 1.0, names[i]) : tl_init_zeros(t);
        if (status != TL_OK)
            return status;
        tl_tensor_require_grad(t, true);
        m->parameter[i] = (tl_parameter){.name = names[i], .tensor = t, .decay = matrix};
    }
    return tl_ctx_status(ctx);
}

static tl_tensor *layer(tl_ctx *ctx, const char *name, tl_tensor *x, const tl_parameter *w) {
    tl_module_begin(ctx, name, -1); /* the name under which the account books it */
    tl_tensor *y = tl_linear(x, w[0].tensor, w[1].tensor);
    tl_module_end(ctx);
    return y;
}

/* Errors stick in the context and NULL passes through every op, so the chain is checked once, at its end. */
static tl_tensor *model_loss(tl_ctx *ctx, const model *m, tl_tensor *x, tl_tensor *y) {
    tl_phase_set(ctx, TL_PHASE_FORWARD);
    tl_tensor *hidden = tl_tanh(layer(ctx, "first", x, m->parameter));
    return tl_mse(layer(ctx, "second", hidden, m->parameter + 2), y);
}

static tl_status step(tl_ctx *ctx, model *m, tl_optimizer *adamw, double *loss) {
    float x[B * IN], y[B];
    for (int i = 0; i < B; i++) {
        x[IN * i] = (float)(i % 8) / 8, x[IN * i + 1] = (float)(i / 8) / 8;
        y[i] = x[IN * i] * x[IN * i + 1];
    }
    const tl_dim rows = tl_dim_of(B);
    tl_ledger_step_begin(ctx); /* the account below is of this step */
    tl_scope_begin(ctx);       /* what follows dies with it */
    tl_tensor *in = tl_from_data(ctx, TL_F32, TL_SHAPE(ctx, rows, tl_dim_of(IN)), TL_DATA, x, B * IN);
    tl_tensor *target = tl_from_data(ctx, TL_F32, TL_SHAPE(ctx, rows, tl_dim_of(1)), TL_DATA, y, B);
    tl_status status = tl_record(ctx, true);
    tl_tensor *error = model_loss(ctx, m, in, target);
    if (status == TL_OK && !tl_ctx_is_meta(ctx)) /* meta has no values to ask for */
        status = tl_item(error, loss);
    tl_phase_set(ctx, TL_PHASE_BACKWARD);
    if (status == TL_OK)
        status = tl_backward(ctx, error, 1.0);
    if (status == TL_OK)
        status = tl_record(ctx, false);
    if (status == TL_OK)
        status = tl_optimizer_step(adamw, 1e-2);
    for (int i = 0; i < 4; i++)
        tl_tensor_clear_grad(m->parameter[i].tensor);
    tl_scope_end(ctx);
    return status == TL_OK ? tl_ctx_status(ctx) : status;
}

static bool print_op(void *user, const tl_op_entry *entry) {
    char digits[TL_U128_DIGITS];
    (void)user;
    if (entry->matmul.count)
        printf("  %-9s %-7s %-7s %6s FLOPs  %s\n", tl_phase_name(entry->phase), entry->module, entry->op,
               tl_u128_text(entry->matmul.count, digits), entry->site);
    return true;
}

static void print_account(const tl_ctx *ctx) {
    tl_counts counts;
    char digits[TL_U128_DIGITS];
    tl_ledger_counts(ctx, TL_PHASE_ALL, &counts);
    printf("  at most   param %lld  grad %lld  optim %lld B;  matmul %s FLOPs\n",
           (long long)tl_ledger_high(ctx, TL_PARAM), (long long)tl_ledger_high(ctx, TL_GRAD),
           (long long)tl_ledger_high(ctx, TL_OPTIM), tl_u128_text(counts.matmul, digits));
}

/* Trains on a device and leaves the peak of the last step in *peak. */
static int train(const struct tl_kernels *kernels, int steps, tl_peak *peak) {
    tl_error error = {TL_OK, ""};
    tl_ctx *ctx = tl_ctx_new(&(tl_ctx_options){.kernels = kernels, .seed_init = 1}, &error);
    if (!ctx) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    model m;
    tl_optimizer_options options = tl_optimizer_defaults(TL_OPTIM_ADAMW);
    tl_status status = model_init(ctx, &m);
    tl_optimizer *adamw = status == TL_OK ? tl_optimizer_new(ctx, m.parameter, 4, &options) : NULL;
    double first = 0, loss = 0;
    printf("on %s, %d steps\n", tl_ctx_device(ctx), steps);
    for (int i = 0; i < steps && adamw && status == TL_OK; i++) {
        status = step(ctx, &m, adamw, &loss);
        first = i == 0 ? loss : first;
    }
    if (adamw && status == TL_OK) {
        tl_ledger_peak(ctx, peak);
        print_account(ctx);
        if (tl_ctx_is_meta(ctx))
            tl_ledger_each_op(ctx, print_op, NULL);
        else
            printf("  loss      %.4f, then %.6f\n", first, loss);
    } else {
        fprintf(stderr, "%s\n", tl_ctx_error(ctx)->message);
    }
    tl_optimizer_free(adamw);
    tl_ctx_free(ctx); /* and every tensor in it */
    return !adamw || status != TL_OK;
}

int main(void) {
    tl_error error = {TL_OK, ""};
    const struct tl_kernels *cpu = tl_kernels_for_cpu(NULL, &error);
    tl_peak planned, kept;
    if (!cpu) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    /* Two steps: AdamW's states appear in the first, so the second is the account. */
    if (train(NULL, 2, &planned) || train(cpu, STEPS, &kept))
        return 1;
    printf("peak planned and kept: %s (2 MiB of it the thread's scratch)\n",
           planned.bytes == kept.bytes && planned.phase == kept.phase ? "the same" : "another");
    return 0;
}
