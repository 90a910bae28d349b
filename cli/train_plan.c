/* cli/train_plan.c: a run before its first step: this machine measured, the run planned on meta, and refused where it cannot fit. */
#include <string.h>

#include "advice.h"
#include "groups.h"
#include "train_run.h"

tl_status tl_training_context_failed(tl_training *r, const tl_ctx *ctx) {
    return tl_fail(&r->error, tl_ctx_status(ctx), "%s", tl_ctx_error(ctx)->message);
}

void tl_training_measure_machine(tl_training *r) {
    tl_train *t = r->t;
    tl_machine quick;
    tl_error error = {TL_OK, ""};
    bool cached = tl_machine_load(t->threads, &t->machine, &error) == TL_OK; /* `tally machine` left its shapes */
    tl_error_clear(&error);
    if (tl_machine_measure(t->threads, true, &quick, &error) != TL_OK) {
        tl_note(t->cli, "this machine's peak was not measured: %s", error.message);
        memset(&quick, 0, sizeof quick);
    }
    if (!cached)
        t->machine = quick;
    t->machine.peak_fp32 = quick.peak_fp32;
    t->machine.peak_bf16 = quick.peak_bf16;
    t->plan.machine = &t->machine;
}

/* The arena stays where it is while the net is examined between steps. */
static int64_t needed(const tl_training *r) {
    const int64_t stepping = r->plan.arena_bytes + r->t->examine_bytes, most = r->plan.needs_bytes;
    return stepping > most ? stepping : most;
}

static void out_examination(const tl_training *r) {
    char text[TL_TEXT];
    if (r->t->examine_bytes > 0)
        tl_out_item(r->t->cli, "evaluation", "%s beside the arena, while the net is tested",
                    tl_text_bytes((double)r->t->examine_bytes, r->t->cli->units, text));
}

static int refuse(tl_training *r, int64_t limit) {
    const tl_train *t = r->t;
    char needs[TL_TEXT], has[TL_TEXT], over[TL_TEXT];
    tl_plan asked = r->plan;
    tl_plan_options options = t->plan;
    tl_plan_advice advice;
    tl_machine limited = t->machine; /* what the suggestions are to fit in */
    limited.available_bytes = asked.usable_bytes = limit - t->examine_bytes;
    options.machine = &limited;
    asked.fits = false;
    tl_out(t->cli, "does not fit: needs %s, has %s %s (%s over)\n",
           tl_text_bytes((double)needed(r), t->cli->units, needs), tl_text_bytes((double)limit, t->cli->units, has),
           t->memory_bytes ? "by --memory" : "available",
           tl_text_bytes((double)(needed(r) - limit), t->cli->units, over));
    for (int c = 0; c < TL_CATEGORY_COUNT; c++)
        if (r->plan.peak.by_category[c])
            tl_out_item(t->cli, tl_category_name((tl_category)c), "%s",
                        tl_text_bytes((double)r->plan.peak.by_category[c], t->cli->units, needs));
    tl_out_item(t->cli, "peak at", "%s, %s", tl_phase_name(r->plan.peak.phase), r->plan.peak.module);
    out_examination(r);
    if (t->examine_bytes >= limit) {
        tl_out(t->cli, "  the evaluation alone takes that much; a smaller --micro-batch takes less\n");
        return TL_EXIT_VIOLATED;
    }
    tl_status status = tl_plan_advise(&options, &asked, &advice, &r->error);
    if (status != TL_OK)
        return tl_failed(t->cli, &r->error);
    tl_advice_out(t->cli, &asked, &advice);
    return TL_EXIT_VIOLATED;
}

static int plan_as_json(const tl_training *r, bool fits) {
    tl_json *json = tl_cli_json_open(r->t->cli);
    if (!json)
        return TL_EXIT_FAILED;
    tl_json_put_boolean(json, "fits", fits);
    tl_json_put_integer(json, "limit_bytes", r->limit);
    tl_train_put_plan(json, r->t, &r->plan);
    const int status = tl_cli_json_close(r->t->cli, json);
    return status == TL_EXIT_OK && !fits ? TL_EXIT_VIOLATED : status;
}

int tl_training_report_plan(const tl_training *r) {
    const tl_train *t = r->t;
    const tl_plan *p = &r->plan;
    char a[TL_TEXT], b[TL_TEXT], rest[256], text[512] = "";
    if (t->cli->format == TL_FORMAT_JSON)
        return plan_as_json(r, true);
    snprintf(rest, sizeof rest, "needs %s of %s %s   (a dry run: nothing was started)",
             tl_text_bytes((double)needed(r), t->cli->units, a), tl_text_bytes((double)r->limit, t->cli->units, b),
             t->memory_bytes ? "by --memory" : "available");
    tl_out_answer(t->cli, "fits", rest);
    tl_out_item(t->cli, "model", "%s, %s parameters", t->model.name, tl_text_count((double)p->parameters.unique, a));
    tl_groups_out(t->cli, &t->plan.optimizer, p);
    if (t->task->out_data)
        t->task->out_data(t);
    for (int c = 0; c < TL_CATEGORY_COUNT; c++)
        if (p->peak.by_category[c]) {
            const size_t at = strlen(text);
            snprintf(text + at, sizeof text - at, "%s%s %s", at ? ", " : "", tl_category_name((tl_category)c),
                     tl_text_bytes((double)p->peak.by_category[c], t->cli->units, a));
        }
    tl_out_item(t->cli, "memory", "%s", text);
    tl_out_item(t->cli, "peak at", "%s, %s: %s", tl_phase_name(p->peak.phase), p->peak.module,
                tl_text_bytes((double)p->peak.bytes, t->cli->units, a));
    out_examination(r);
    tl_out_item(t->cli, "step", "%lld sequences of %lld tokens in %lld micro-batch%s, %s of products",
                (long long)p->global_batch, (long long)p->seq, (long long)p->accumulation,
                p->accumulation == 1 ? "" : "es", tl_text_flops(tl_u128_double(p->per_step), a));
    if (p->step_seconds > 0 && t->time_decides)
        tl_out_item(t->cli, "time", "%s a step, about %.3g steps in %s, as planned; the run itself decides",
                    tl_text_duration(p->step_seconds, a), t->minutes * 60 / p->step_seconds,
                    tl_text_duration(t->minutes * 60, b));
    else if (p->step_seconds > 0)
        tl_out_item(t->cli, "time", "%s a step, %s for %lld steps, as planned", tl_text_duration(p->step_seconds, a),
                    tl_text_duration(p->step_seconds * (double)t->steps, b), (long long)t->steps);
    return TL_EXIT_OK;
}

/* What testing the net takes, by doing it on meta: the log of the planned step is read before it ends. */
static tl_status plan_examination(tl_training *r) {
    tl_train *t = r->t;
    tl_ctx *ctx = r->planned.ctx;
    tl_account_read(&r->account, 0, ctx);
    const int64_t live = tl_ledger_live_total(ctx);
    t->examined_peak = 0;
    const tl_status status = t->task->examine(t, ctx, tl_trainer_net(r->planned.trainer), true, &r->error);
    t->examine_peak = t->examined_peak;
    t->examine_bytes = t->examine_peak > live ? t->examine_peak - live : 0;
    return status;
}

int tl_training_plan(tl_training *r) {
    tl_train *t = r->t;
    int64_t total = 0, limit = t->memory_bytes;
    char path[TL_PATH];
    if (tl_plan_make(&t->plan, &r->plan, &r->error) != TL_OK ||
        tl_plan_run_make(&t->plan, false, &r->planned, &r->error) != TL_OK)
        return tl_groups_failed(t->cli, tl_setting_file(t, TL_SET_GROUPS, path), &r->error);
    if (tl_arena_plan_make(r->planned.ctx, &r->arena_plan) != TL_OK) {
        tl_training_context_failed(r, r->planned.ctx);
        return tl_failed(t->cli, &r->error);
    }
    if (plan_examination(r) != TL_OK)
        return tl_failed(t->cli, &r->error);
    if (limit == 0 && tl_machine_memory(&total, &limit, &r->error) != TL_OK)
        return tl_failed(t->cli, &r->error);
    r->limit = limit;
    if (needed(r) <= limit)
        return TL_EXIT_OK;
    return t->cli->format == TL_FORMAT_JSON ? plan_as_json(r, false) : refuse(r, limit);
}
