/* The moments beside the steps: init, load and save, by running on meta the code that runs here (optim/transfer.h). */
#include "optim/transfer.h"
#include "plan/plan.h"
#include "tally/engine.h"

#include <string.h>

static void read_moment(const tl_ctx *ctx, tl_phase phase, tl_plan_peak *to) {
    tl_peak peak;
    tl_ledger_phase_peak(ctx, phase, &peak);
    tl_plan_copy_peak(&peak, to);
}

/* In a run of its own: one that loaded a checkpoint has states already. */
static tl_status read_weights(const tl_plan_options *o, const tl_plan_run *run, tl_plan *p, tl_error *error) {
    tl_ctx_options options = {.threads = o->devices.here ? o->threads : 1};
    options.scratch_bytes = o->devices.here ? 0 : TL_NO_SCRATCH;
    tl_ctx *ctx = tl_ctx_new(&options, error);
    if (!ctx)
        return error ? error->status : TL_ERR_MEMORY;
    tl_trainer *trainer = tl_trainer_new(ctx, &o->model, &run->train);
    tl_status status = trainer ? TL_OK : tl_ctx_status(ctx);
    if (status == TL_OK)
        status = tl_transfer_weights_meta(tl_trainer_net(trainer));
    if (status == TL_OK)
        status = tl_optimizer_refresh(tl_trainer_optimizer(trainer));
    if (status == TL_OK)
        read_moment(ctx, TL_PHASE_LOAD, &p->weights);
    else
        (void)tl_fail(error, status, "%s", tl_ctx_error(ctx)->message);
    tl_trainer_free(trainer);
    tl_ctx_free(ctx);
    return status;
}

tl_status tl_plan_moments(const tl_plan_options *o, tl_plan_run *run, tl_plan *p, tl_error *error) {
    tl_status status = tl_transfer_save(run->ctx, NULL, NULL);
    if (status != TL_OK)
        return tl_fail(error, status, "%s", tl_ctx_error(run->ctx)->message);
    read_moment(run->ctx, TL_PHASE_INIT, &p->init);
    read_moment(run->ctx, TL_PHASE_LOAD, &p->load);
    read_moment(run->ctx, TL_PHASE_SAVE, &p->save);
    return o->weights ? read_weights(o, run, p, error) : TL_OK;
}

const tl_plan_peak *tl_plan_largest_moment(const tl_plan *p) {
    const tl_plan_peak *moments[] = {&p->init, &p->load, &p->weights, &p->save}, *largest = &p->peak;
    for (size_t i = 0; i < sizeof moments / sizeof *moments; i++)
        if (moments[i]->bytes > largest->bytes)
            largest = moments[i];
    return largest;
}

int64_t tl_plan_needs(const tl_plan *p, const tl_engine *engine) {
    int64_t largest = tl_plan_largest_moment(p)->bytes, moment = tl_engine_needs(engine, largest, largest);
    int64_t step = tl_engine_needs(engine, p->arena_bytes, p->peak.bytes);
    return moment > step ? moment : step;
}
