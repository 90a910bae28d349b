/* CS336's adamwAccounting: the handout's list of activations, read off the ops of a run. */
#include "plan/explain.h"

#include <string.h>

/* Does the handout's list name what this op puts out? It names norms, QKV, QKᵀ, softmax, AV, the output projection, W1, the
 * activation, W2, the head; it leaves out rotary, residual sums, copies of layout, dropout. */
static bool listed(const tl_op_entry *e) {
    static const char *const ops[] = {"linear", "matmul", "softmax",   "rms_norm", "layer_norm",
                                      "silu",   "relu",   "gelu_tanh", "gelu_erf", NULL};
    if (e->phase != TL_PHASE_FORWARD)
        return false;
    for (int i = 0; ops[i]; i++)
        if (strcmp(e->op, ops[i]) == 0)
            return true;
    return false;
}

typedef struct list_gather {
    tl_gather g;
    int64_t width; /* bytes of an element */
} list_gather;

static bool gather_output(void *user, const tl_op_entry *e) {
    list_gather *l = user;
    tl_ctx *ctx = l->g.ctx;
    if (!listed(e))
        return true;
    const tl_poly *elements = tl_poly_mul(ctx->space, e->output.formula, tl_poly_fraction(ctx->space, 1, l->width));
    tl_u128 count = e->output.count / (tl_u128)l->width;
    tl_gather_add(&l->g, e->pattern, e->op, e->region, count, elements);
    if (strcmp(e->pattern, "lm_head") == 0) /* the handout's cross-entropy */
        tl_gather_add(&l->g, "loss", "cross_entropy, as logits", e->region, count, elements);
    return !l->g.failed;
}

static tl_status activations(tl_explain_adamw *a, tl_error *error) {
    list_gather l = {.width = tl_dtype_bytes(TL_F32)};
    tl_gather_begin(&l.g, &a->ungated, &a->activations);
    tl_ledger_each_op(a->ungated.ctx, gather_output, &l);
    return tl_gather_end(&l.g, "the handout's activations", false, error);
}

static tl_status matmuls(const tl_plan_run *run, tl_u128 *forward, tl_u128 *all) {
    tl_counts c;
    tl_ledger_counts(run->ctx, TL_PHASE_FORWARD, &c);
    *forward = c.matmul;
    tl_ledger_counts(run->ctx, TL_PHASE_ALL, &c);
    *all = c.matmul;
    return TL_OK;
}

/* −1 and *error if the run cannot be made. */
static int64_t peak_of(const tl_plan_options *options, int64_t batch, tl_error *error) {
    tl_plan_options o = *options;
    tl_plan_run run;
    tl_error found = {0};
    tl_peak peak;
    o.micro_batch = batch;
    o.global_batch = 0;
    if (tl_plan_run_make(&o, false, &run, &found) != TL_OK) {
        if (found.status == TL_ERR_OVERFLOW)
            return INT64_MAX; /* beyond 63 bits: fits nowhere */
        tl_fail(error, found.status, "%s", found.message);
        return -1;
    }
    tl_ledger_peak(run.ctx, &peak);
    tl_plan_run_free(&run);
    return peak.bytes;
}

/* The largest batch whose peak fits, by running each that is tried. */
static tl_status largest(const tl_plan_options *options, int64_t capacity, int64_t *found, tl_error *error) {
    int64_t fits = 0, too_large = 0, probe = 1; /* too_large 0: none met yet */
    while (probe < (int64_t)1 << 40 && (too_large == 0 || too_large - fits > 1)) {
        int64_t peak = peak_of(options, probe, error);
        if (peak < 0)
            return error ? error->status : TL_ERR_MEMORY;
        if (peak <= capacity)
            fits = probe;
        else
            too_large = probe;
        probe = too_large == 0 ? fits * 2 : fits + (too_large - fits) / 2;
    }
    *found = fits;
    return TL_OK;
}

static int64_t listed_batch(tl_u128 each, tl_u128 fixed, int64_t capacity) {
    if (fixed > (tl_u128)capacity || each == 0)
        return 0;
    return (int64_t)(((tl_u128)capacity - fixed) / each);
}

static tl_status two_runs(const tl_plan_options *options, tl_explain_adamw *a, tl_error *error) {
    tl_plan_options twin = *options;
    a->has_gate = options->model.gated;
    twin.model.gated = false;
    if (tl_model_check(&twin.model, error) != TL_OK) /* fused, or of an activation that takes a gate */
        return error->status;
    tl_status status = tl_plan_run_make(options, true, &a->run, error);
    return status == TL_OK ? tl_plan_run_make(&twin, true, &a->ungated, error) : status;
}

static tl_status sums(tl_explain_adamw *a, tl_error *error) {
    tl_status status = tl_explain_params(&a->run, &a->params, error);
    if (status == TL_OK)
        status = tl_explain_params(&a->ungated, &a->params_ungated, error);
    if (status == TL_OK)
        status = activations(a, error);
    if (status == TL_OK)
        status = tl_explain_flops(&a->run, TL_PHASE_STEP, TL_EXPLAIN_ARITHMETIC, &a->step, error);
    if (status == TL_OK)
        status = matmuls(&a->run, &a->forward, &a->flops);
    return status == TL_OK ? matmuls(&a->ungated, &a->forward_ungated, &a->flops_ungated) : status;
}

tl_status tl_explain_adamw_make(const tl_plan_options *asked, tl_explain_adamw *a, tl_error *error) {
    tl_plan_options o = *asked;
    memset(a, 0, sizeof *a);
    if (o.model.family == TL_FAMILY_CRUNCHER)
        return tl_fail(error, TL_ERR_UNSUPPORTED,
                       "adamwAccounting counts a transformer's activations, and %s has none; a gpt2 or llama model "
                       "would work, as cs336-gpt2-xl",
                       o.model.name);
    o.micro_batch = 1;
    o.global_batch = 0;
    o.devices = (tl_devices){.count = 1};
    o.precision = TL_PRECISION_FP32;
    o.optimizer = tl_optimizer_defaults(TL_OPTIM_ADAMW);
    o.optimizer.cs336_order = true;
    tl_status status = two_runs(&o, a, error);
    if (status == TL_OK)
        status = sums(a, error);
    int64_t each_kept[TL_CATEGORY_COUNT], kept = 0; /* bytes a block of parameters, its gradients and states take */
    if (status == TL_OK)
        status = tl_plan_block_bytes(o.precision, &o.optimizer, each_kept, error);
    for (int c = 0; c < TL_CATEGORY_COUNT && status == TL_OK; c++)
        kept += each_kept[c];
    if (status != TL_OK) {
        tl_explain_adamw_free(a);
        return status;
    }
    tl_u128 each = a->step.value / a->params.value;
    a->step_each = each * a->params.value == a->step.value ? (int64_t)each : 0;
    a->per_sequence = (tl_u128)tl_dtype_bytes(TL_F32) * a->activations.value;
    a->fixed = (tl_u128)kept * a->params.value / TL_PLAN_BLOCK;
    a->fixed_ungated = (tl_u128)kept * a->params_ungated.value / TL_PLAN_BLOCK;
    a->capacity[0] = INT64_C(80000000000);
    a->capacity[1] = INT64_C(80) << 30;
    tl_peak peak;
    tl_ledger_peak(a->run.ctx, &peak);
    a->peak_bytes = peak.bytes;
    for (int i = 0; i < 2 && status == TL_OK; i++) {
        a->batch[i] = listed_batch(a->per_sequence, a->fixed, a->capacity[i]);
        a->batch_ungated[i] = listed_batch(a->per_sequence, a->fixed_ungated, a->capacity[i]);
        status = largest(&o, a->capacity[i], &a->batch_ledger[i], error);
    }
    if (status != TL_OK)
        tl_explain_adamw_free(a);
    return status;
}

void tl_explain_adamw_free(tl_explain_adamw *a) {
    if (a->run.ctx) {
        tl_explain_free(&a->params);
        tl_explain_free(&a->step);
        tl_plan_run_free(&a->run);
    }
    if (a->ungated.ctx) {
        tl_explain_free(&a->params_ungated);
        tl_explain_free(&a->activations);
        tl_plan_run_free(&a->ungated);
    }
    memset(a, 0, sizeof *a);
}
