/* cli/train_run.c: the run itself: planned on meta, refused or started, measured from outside, saved, examined. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tally/meter.h"
#include "advice.h"
#include "groups.h"
#include "train.h"

enum { SPEED_STEPS = 10 };

typedef struct run {
    tl_train *t;
    tl_plan plan;
    tl_plan_run planned; /* its second step is the account; it stays for the tables */
    tl_arena_plan arena_plan;
    tl_arena *arena;
    tl_meter *meter;
    tl_ctx *ctx;
    tl_trainer *trainer;
    FILE *metrics;
    bool arena_used;
    const tl_tensor *data[3];       /* the running micro-batch's */
    int64_t now[TL_CATEGORY_COUNT]; /* measured at the running step's peak */
    tl_measured measured;
    double trained_seconds, measured_seconds, interval_seconds;
    double waited_seconds, interval_waited; /* for data, of the trained seconds */
    int64_t interval_steps, start, limit;   /* limit: of memory */
    int64_t examined;                       /* the step that was examined last */
    size_t made;                            /* of the folder; see tl_train_folder */
    double best;                            /* the lowest validation loss of a checkpoint; infinite: none */
    tl_account account;                     /* the plan's tables, and the run's of step account_step */
    int64_t account_step, examined_peak;    /* the last: measured */
    tl_line line;
    tl_progress progress;
    tl_error error;
} run;

/* ---- interrupts ---- */

static volatile sig_atomic_t stop_signal;

/* The first is an order, the next ones are impatience: what is being saved must not be left half done. */
static void on_signal(int number) {
    static const char words[] = "tally: still finishing the step and saving; then it ends\n";
    int before = errno;
    if (stop_signal && write(STDERR_FILENO, words, sizeof words - 1) < 0)
        stop_signal = number;
    stop_signal = number;
    errno = before;
}

static void catch_signals(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

/* A limit on file sizes is then an error of write, and is reported. */
static void ignore_size_signal(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = SIG_IGN;
    sigaction(SIGXFSZ, &action, NULL);
}

/* ---- before the first step ---- */

static tl_status context_failed(run *r, const tl_ctx *ctx) {
    return tl_fail(&r->error, tl_ctx_status(ctx), "%s", tl_ctx_error(ctx)->message);
}

static void measure_machine(run *r) {
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
static int64_t needed(const run *r) {
    const int64_t stepping = r->plan.arena_bytes + r->t->examine_bytes, most = r->plan.needs_bytes;
    return stepping > most ? stepping : most;
}

static void out_examination(const run *r) {
    char text[TL_TEXT];
    if (r->t->examine_bytes > 0)
        tl_out_item(r->t->cli, "evaluation", "%s beside the arena, while the net is tested",
                    tl_text_bytes((double)r->t->examine_bytes, r->t->cli->units, text));
}

static int refuse(run *r, int64_t limit) {
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

static int plan_as_json(const run *r, bool fits) {
    tl_json *json = tl_cli_json_open(r->t->cli);
    if (!json)
        return TL_EXIT_FAILED;
    tl_json_put_boolean(json, "fits", fits);
    tl_json_put_integer(json, "limit_bytes", r->limit);
    tl_train_put_plan(json, r->t, &r->plan);
    const int status = tl_cli_json_close(r->t->cli, json);
    return status == TL_EXIT_OK && !fits ? TL_EXIT_VIOLATED : status;
}

/* --dry-run of a run that fits. */
static int report_plan(const run *r) {
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
static tl_status plan_examination(run *r) {
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

static int make_plan(run *r) {
    tl_train *t = r->t;
    int64_t total = 0, limit = t->memory_bytes;
    char path[TL_PATH];
    if (tl_plan_make(&t->plan, &r->plan, &r->error) != TL_OK ||
        tl_plan_run_make(&t->plan, false, &r->planned, &r->error) != TL_OK)
        return tl_groups_failed(t->cli, tl_setting_file(t, TL_SET_GROUPS, path), &r->error);
    if (tl_arena_plan_make(r->planned.ctx, &r->arena_plan) != TL_OK) {
        context_failed(r, r->planned.ctx);
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

/* ---- the second instrument ---- */

static int64_t bytes_of(const run *r, const tl_tensor *t) {
    return t ? tl_meter_block_bytes(r->meter, tl_tensor_storage_data(t)) : 0;
}

/* At a new peak: whose block is whose, by pointers alone. What is nobody's is saved or work. */
static void at_peak(void *user) {
    run *r = user;
    if (!r->trainer)
        return;
    const tl_parameter *list;
    int count = tl_net_parameters(tl_trainer_net(r->trainer), &list);
    const tl_optimizer *optimizer = tl_trainer_optimizer(r->trainer);
    tl_reading reading;
    memset(r->now, 0, sizeof r->now);
    for (int i = 0; i < count; i++) {
        r->now[TL_PARAM] += bytes_of(r, list[i].tensor);
        for (int k = 0; list[i].full && k < 3; k++)
            r->now[TL_PARAM] += bytes_of(r, tl_net_quantization(tl_trainer_net(r->trainer), i, k, NULL));
        r->now[TL_GRAD] += bytes_of(r, tl_tensor_grad(list[i].tensor));
        r->now[TL_MASTER] += bytes_of(r, tl_optimizer_master(optimizer, i));
        for (int k = 0; k < TL_OPTIM_MAX_STATES; k++)
            r->now[TL_OPTIM] += bytes_of(r, tl_optimizer_state(optimizer, i, k));
    }
    tl_tensor *extra;
    for (int k = 0; tl_trainer_extra(r->trainer, k, NULL, &extra); k++)
        r->now[TL_OPTIM] += bytes_of(r, extra);
    if (tl_phase_get(r->ctx) != TL_PHASE_STEP)
        for (int i = 0; i < 3; i++)
            r->now[TL_DATA] += bytes_of(r, r->data[i]);
    r->now[TL_DATA] += bytes_of(r, tl_trainer_ring(r->trainer));
    tl_meter_read(r->meter, &reading);
    r->now[TL_WORK] = reading.peak_bytes;
    for (int c = 0; c < TL_CATEGORY_COUNT; c++)
        if (c != TL_WORK)
            r->now[TL_WORK] -= r->now[c];
}

static void forget_batch(run *r) { r->data[0] = r->data[1] = r->data[2] = NULL; }

static tl_status next_batch(void *user, tl_ctx *ctx, const tl_train_options *o, int64_t micro, tl_batch *batch) {
    run *r = user;
    const tl_task *task = r->t->task;
    const double begin = task->waited ? task->waited(r->t) : tl_seconds();
    (void)micro;
    forget_batch(r);
    tl_status status = task->batch(r->t, ctx, o, batch);
    r->data[0] = batch->input;
    r->data[1] = batch->target;
    r->data[2] = batch->positions;
    const double waited = (task->waited ? task->waited(r->t) : tl_seconds()) - begin;
    r->waited_seconds += waited;
    r->interval_waited += waited;
    return status;
}

/* A step that loss scaling skipped updates nothing: it has no update's allocations to compare with the plan's. */
static void book_step(run *r, double seconds, int64_t unplanned, bool skipped) {
    tl_reading reading;
    tl_measured *m = &r->measured;
    tl_meter_read(r->meter, &reading);
    r->trained_seconds += seconds;
    r->interval_seconds += seconds;
    r->interval_steps++;
    r->line.measured_flops = reading.flops;
    if (!r->arena_used ||
        skipped) /* the first step, whose states are only now made: the plan is about those after it */
        return;
    r->measured_seconds += seconds;
    m->steps++;
    m->unplanned_bytes += unplanned;
    m->steps_that_differ += reading.peak_bytes != r->plan.peak.bytes || reading.flops != r->plan.hardware_per_step ||
                            reading.allocations != r->plan.allocations;
    if (reading.peak_bytes >= m->peak_bytes) {
        m->peak_bytes = reading.peak_bytes;
        memcpy(m->by_category, r->now, sizeof m->by_category);
    }
    m->flops = reading.flops;
    m->allocations = reading.allocations;
    m->step_seconds = r->measured_seconds / (double)m->steps;
}

/* The most since the moment began; the next begins. */
static int64_t end_moment(run *r) {
    tl_reading reading;
    tl_meter_read(r->meter, &reading);
    tl_meter_step_begin(r->meter);
    return reading.peak_bytes;
}

/* ---- the run ---- */

static tl_status start(run *r) {
    tl_train *t = r->t;
    const tl_kernels *kernels = tl_kernels_for_cpu(NULL, &r->error);
    if (!kernels || !(r->arena = tl_arena_new(NULL, &r->error)))
        return r->error.status;
    tl_allocator inner = tl_arena_allocator(r->arena);
    if (!(r->meter = tl_meter_new(kernels, &inner, &r->error)))
        return r->error.status;
    tl_allocator allocator = tl_meter_allocator(r->meter);
    tl_meter_on_peak(r->meter, at_peak, r);
    tl_ctx_options options = {.kernels = tl_meter_kernels(r->meter),
                              .allocator = &allocator,
                              .threads = t->threads,
                              .seed_init = t->seed_init,
                              .seed_data = t->seed_data,
                              .seed_dropout = t->seed_dropout};
    if (!(r->ctx = tl_ctx_new(&options, &r->error)))
        return r->error.status;
    tl_train_options options_of_run = r->planned.train;
    options_of_run.init = t->init;
    r->trainer = tl_trainer_new(r->ctx, &t->model, &options_of_run);
    r->measured.init_bytes = end_moment(r);
    return r->trainer ? TL_OK : context_failed(r, r->ctx);
}

static tl_status restore(run *r, uint64_t *position) {
    tl_status status = tl_train_restore(r->t, r->ctx, r->trainer, &r->start, position, &r->error);
    const int64_t most = end_moment(r);
    r->best = tl_train_best(r->t);
    if (r->start > 0)
        r->measured.load_bytes = most;
    return status;
}

static tl_status load_weights(run *r) {
    const tl_status status = tl_train_load_weights(r->t, r->ctx, r->trainer, &r->error);
    r->measured.weights_bytes = end_moment(r);
    return status;
}

static tl_status save(run *r) {
    const tl_train *t = r->t;
    tl_ckpt_state state = {.step = r->line.step,
                           .total_steps = t->steps,
                           .data_position = t->task->position(r->t),
                           .has_loss = true,
                           .loss = r->line.loss,
                           .has_validation_loss = t->has_validation_loss && r->examined == r->line.step,
                           .validation_loss = t->validation_loss};
    forget_batch(r); /* the step's batches are gone */
    (void)end_moment(r);
    const tl_status status = tl_train_save(t, r->ctx, r->trainer, &state, &r->error);
    const int64_t most = end_moment(r);
    if (most > r->measured.save_bytes)
        r->measured.save_bytes = most;
    if (status == TL_OK && state.has_validation_loss && state.validation_loss < r->best)
        r->best = state.validation_loss;
    return status;
}

static void tell_scale(run *r, int64_t step, const tl_step_result *result) {
    tl_loss_scaler scaler;
    if (!tl_trainer_scaler(r->trainer, &scaler))
        return;
    r->line.loss_scale = scaler.scale;
    r->line.skipped = scaler.skipped;
    if (!result->skipped)
        return;
    tl_progress_end(&r->progress);
    tl_note(r->t->cli, "step %lld: gradients beyond fp16 at a loss scale of %.0f; skipped, the next takes %.0f",
            (long long)step, 2 * scaler.scale, scaler.scale);
}

static tl_status one_step(run *r, int64_t step) {
    tl_step_result result;
    double begin = tl_seconds();
    if (step > 1 && !r->arena_used) {
        if (tl_arena_use(r->arena, &r->arena_plan, &r->error) != TL_OK)
            return r->error.status;
        r->arena_used = true;
    }
    const tl_schedule schedule = tl_train_schedule(r->t);
    double lr = tl_schedule_lr(&schedule, step);
    tl_arena_step_begin(r->arena);
    tl_meter_step_begin(r->meter);
    int64_t unplanned = tl_arena_unplanned(r->arena);
    if (tl_trainer_step(r->trainer, next_batch, r, lr, &result) != TL_OK)
        return context_failed(r, r->ctx);
    book_step(r, tl_seconds() - begin, tl_arena_unplanned(r->arena) - unplanned, result.skipped);
    tell_scale(r, step, &result);
    r->line.step = step;
    r->line.loss = result.loss;
    return TL_OK;
}

/* The format of the matrix products. */
static tl_dtype product_dtype(const run *r) {
    return r->planned.train.autocast ? r->planned.train.low : r->planned.train.dtype;
}

static void fill_line(run *r) {
    tl_train *t = r->t;
    tl_line *l = &r->line;
    double peak = tl_machine_peak(&t->machine, product_dtype(r));
    double seconds = r->interval_seconds / (double)(r->interval_steps ? r->interval_steps : 1);
    l->steps = t->steps;
    l->planned_peak = r->plan.peak.bytes;
    l->planned_flops = r->plan.hardware_per_step; /* executed, as what is measured */
    l->planned_seconds = r->plan.step_seconds;
    l->measured_peak = r->measured.peak_bytes;
    l->unplanned = r->measured.unplanned_bytes;
    l->measured_seconds = seconds;
    l->tokens_per_second = seconds > 0 ? (double)(r->plan.global_batch * r->plan.seq) / seconds : 0;
    /* MFU counts nothing twice that is computed again for backward. */
    double share = tl_u128_double(r->plan.per_step) / tl_u128_double(r->plan.hardware_per_step);
    l->mfu = peak > 0 && seconds > 0 ? tl_u128_double(l->measured_flops) * share / (seconds * peak) : 0;
    l->wait_seconds = r->interval_waited;
    l->left_seconds = seconds * (double)(t->steps - l->step);
}

static tl_status log_line(run *r) {
    tl_json *json = tl_json_new(NULL, 0);
    const char *text = NULL;
    if (json) {
        tl_json_object(json);
        tl_line_json(json, &r->line);
        tl_json_end(json);
        text = tl_json_text(json, NULL);
    }
    bool ok = text && fprintf(r->metrics, "%s\n", text) > 0 && fflush(r->metrics) == 0;
    int reason = errno;
    tl_json_free(json);
    r->line.has_val_loss = false; /* it is of this step alone */
    r->interval_seconds = 0;
    r->interval_steps = 0;
    r->interval_waited = 0;
    if (!text)
        return tl_fail(&r->error, TL_ERR_MEMORY, "no memory for a line of metrics.jsonl");
    return ok ? TL_OK : tl_fail(&r->error, TL_ERR_IO, "cannot write metrics.jsonl: %s", strerror(reason));
}

/* With --minutes: as many steps as the speed so far allows, a little less to be sure; never more than were asked for. */
static void set_total(run *r) {
    tl_train *t = r->t;
    if (t->minutes <= 0 || t->total_is_kept || r->line.step - r->start != SPEED_STEPS)
        return;
    double left = t->minutes * 60 * 0.95 - r->trained_seconds;
    double speed = r->measured.step_seconds, more = speed > 0 ? left / speed : 0;
    int64_t total = r->line.step + (more > 1 ? (int64_t)more : 1);
    if (total >= t->steps)
        return;
    t->steps = total;
    tl_progress_end(&r->progress);
    tl_note(t->cli, "%lld steps will take %.3g minutes", (long long)total, t->minutes);
}

/* The log of the step that was just made, which an examination ends. */
static void read_account(run *r) {
    if (r->account_step == r->line.step)
        return;
    tl_account_read(&r->account, 1, r->ctx);
    r->account_step = r->line.step;
}

static tl_status examine(run *r, bool last) {
    tl_train *t = r->t;
    tl_reading reading;
    read_account(r);
    r->examined = r->line.step;
    forget_batch(r); /* the step's batches are gone */
    tl_meter_step_begin(r->meter);
    const tl_status status = t->task->examine(t, r->ctx, tl_trainer_net(r->trainer), last, &r->error);
    tl_meter_read(r->meter, &reading);
    r->examined_peak = reading.peak_bytes;
    if (status == TL_OK && t->has_validation_loss) {
        r->line.has_val_loss = true;
        r->line.val_loss = t->validation_loss;
    }
    return status;
}

static bool is_over(const run *r) {
    const tl_train *t = r->t;
    return stop_signal || (t->stop_at > 0 && r->line.step >= t->stop_at) ||
           (t->minutes > 0 && r->trained_seconds > t->minutes * 60);
}

/* Between two steps. The last one, whichever it is, is told and saved by finish_training. A validation loss lower than any
 * before it is saved at once: `best` is then the best that was seen, and its loss that of exactly these weights. */
static tl_status between(run *r) {
    tl_train *t = r->t;
    int64_t step = r->line.step;
    set_total(r);
    if (step >= t->steps || is_over(r))
        return TL_OK;
    const bool examined = t->eval_every && step % t->eval_every == 0, log = step % t->log_every == 0;
    bool better = false;
    tl_status status = TL_OK;
    fill_line(r);
    tl_progress_show(&r->progress, &r->line, log);
    if (examined) {
        status = examine(r, false);
        tl_progress_end(&r->progress);
        if (status == TL_OK)
            t->task->say_result(t, step);
        better = status == TL_OK && r->line.has_val_loss && r->line.val_loss < r->best;
    }
    if (status == TL_OK && (log || r->line.has_val_loss))
        status = log_line(r);
    if (status == TL_OK && (better || step % t->save_every == 0))
        status = save(r);
    return status;
}

static tl_status write_account(run *r) {
    if (r->measured.steps == 0)
        return TL_OK;
    read_account(r);
    return tl_train_write_ledger(r->t, &r->plan, &r->account, &r->measured, &r->error);
}

static tl_status train(run *r) {
    tl_status status = TL_OK;
    r->line.step = r->start;
    for (int64_t step = r->start + 1; step <= r->t->steps && status == TL_OK && !is_over(r); step++) {
        status = one_step(r, step);
        if (status == TL_OK)
            status = between(r);
    }
    return status;
}

/* ---- after it ---- */

static tl_status examine_at_end(run *r) {
    const tl_train *t = r->t;
    tl_status status = examine(r, true);
    if (status != TL_OK || !t->task->is_examined(t))
        return status;
    tl_json *json = tl_json_new(NULL, 2);
    if (json) {
        tl_json_object(json);
        tl_json_put_string(json, "schema", "tally/1");
        t->task->put_result(t, json);
        tl_json_put_integer(json, "planned_peak_bytes", t->examine_peak);
        tl_json_put_integer(json, "measured_peak_bytes", r->examined_peak);
        tl_json_end(json);
    }
    status = tl_train_write(t, "evaluation.json", json, &r->error);
    tl_json_free(json);
    return status;
}

static bool was_stopped(const run *r) { return r->line.step < r->t->steps && (stop_signal || r->t->stop_at > 0); }

/* Saved before it is examined, so that nothing can be lost; then its loss is known, and it may be the best. The account is
 * that of the step, read before anything else runs. */
static tl_status finish_training(run *r) {
    const bool trained = r->line.step > r->start, stopped = was_stopped(r);
    tl_status status = TL_OK;
    if (trained && r->interval_steps > 0) {
        fill_line(r);
        tl_progress_show(&r->progress, &r->line, true);
    }
    tl_progress_end(&r->progress);
    if (trained) {
        if (r->measured.steps > 0)
            read_account(r); /* before anything else runs */
        status = save(r);    /* first, so that no failure of what follows can lose it; and a moment of the account */
        tl_error failure = {TL_OK, ""};
        if (status != TL_OK)
            failure = r->error;
        const tl_status written = write_account(r);
        if (status != TL_OK)
            r->error = failure;
        else
            status = written;
    }
    if (status == TL_OK && !stopped)
        status = examine_at_end(r);
    tl_error failure = r->error;
    if (trained && (r->interval_steps > 0 || r->line.has_val_loss)) {
        const bool examined = r->line.has_val_loss;
        const tl_status logged = log_line(r);
        r->line.has_val_loss = examined; /* for the report */
        if (status != TL_OK)
            r->error = failure;
        else if (logged != TL_OK)
            status = logged;
    }
    return status == TL_OK && trained && r->line.has_val_loss ? save(r) : status;
}

static int report_json(run *r) {
    tl_json *json = tl_cli_json_open(r->t->cli);
    if (!json)
        return TL_EXIT_FAILED;
    tl_json_put_string(json, "folder", r->t->folder);
    if (r->line.step > r->start)
        tl_line_json(json, &r->line);
    else
        tl_json_put_integer(json, "step", r->line.step); /* nothing was left to train */
    if (r->t->task->is_examined(r->t)) {
        tl_json_key(json, "evaluation");
        tl_json_object(json);
        r->t->task->put_result(r->t, json);
        tl_json_end(json);
    }
    return tl_cli_json_close(r->t->cli, json);
}

static void report_account(const run *r) {
    const tl_cli *cli = r->t->cli;
    const tl_measured *m = &r->measured;
    char planned[TL_TEXT], measured[TL_TEXT];
    if (m->steps == 0) {
        if (r->line.step > r->start)
            tl_out_item(cli, "account",
                        "none: the first step makes what later ones keep; from the second on they are measured");
        return;
    }
    bool equal = m->steps_that_differ == 0 && m->peak_bytes == r->plan.peak.bytes;
    if (equal)
        tl_out_item(cli, "account",
                    "planned = measured in each of %lld steps: peak %s B, %s matmul FLOPs, %lld allocations",
                    (long long)m->steps, tl_text_grouped((tl_u128)m->peak_bytes, planned),
                    tl_text_grouped(m->flops, measured), (long long)m->allocations);
    else
        tl_out_item(
            cli, "account", "planned and measured DIFFER in %lld of %lld steps: peak %s B planned, %s B measured",
            (long long)m->steps_that_differ, (long long)m->steps, tl_text_grouped((tl_u128)r->plan.peak.bytes, planned),
            tl_text_grouped((tl_u128)m->peak_bytes, measured));
    tl_out_item(cli, "unplanned", "%lld B outside the arena", (long long)m->unplanned_bytes);
}

static int report(run *r) {
    const tl_train *t = r->t;
    char seconds[TL_TEXT], path[TL_PATH];
    if (t->cli->format == TL_FORMAT_JSON)
        return report_json(r);
    if (t->steps >= TL_STEPS_OPEN)
        tl_out(t->cli, "%s: step %lld of as many as --minutes will allow, loss %.4f\n", t->folder,
               (long long)r->line.step, r->line.loss);
    else if (r->line.step > r->start)
        tl_out(t->cli, "%s: step %lld of %lld, %s of training, loss %.4f\n", t->folder, (long long)r->line.step,
               (long long)t->steps, tl_text_duration(r->trained_seconds, seconds), r->line.loss);
    else
        tl_out(t->cli, "%s: step %lld of %lld, nothing left to train\n", t->folder, (long long)r->line.step,
               (long long)t->steps);
    if (t->task->is_examined(t))
        t->task->out_result(t);
    if (r->trained_seconds > 0)
        tl_out_item(t->cli, "waiting", "%s for data, %.2f %% of the time", tl_text_duration(r->waited_seconds, seconds),
                    100 * r->waited_seconds / r->trained_seconds);
    report_account(r);
    if (access(tl_train_path(t, "ledger.json", path), F_OK) == 0)
        tl_out_item(t->cli, "next", "tally ledger %s", t->folder);
    return TL_EXIT_OK;
}

static void announce(const run *r) {
    const tl_train *t = r->t;
    char parameters[TL_TEXT], peak[TL_TEXT], planned[TL_TEXT], speed[TL_TEXT] = "not measured", text[512];
    double rate = tl_machine_peak(&t->machine, product_dtype(r));
    if (rate > 0)
        tl_text_rate(rate, speed);
    tl_note(t->cli, "%s  %s, %s parameters | %d thread%s, %s | peak %s %s%s | planned peak %s, arena %s", t->folder,
            t->model.name, tl_text_count((double)r->plan.parameters.unique, parameters), t->threads,
            t->threads == 1 ? "" : "s", tl_ctx_device(r->ctx), speed, tl_dtype_name(product_dtype(r)),
            rate > 0 ? " (measured now)" : "", tl_text_bytes((double)r->plan.peak.bytes, t->cli->units, peak),
            tl_text_bytes((double)r->plan.arena_bytes, t->cli->units, planned));
    if (r->planned.train.fp8)
        tl_note(t->cli,
                "fp8 is emulated: values of the blocks' linear layers are rounded to it and multiplied in bf16");
    for (int i = 0; i < r->plan.n_groups; i++)
        tl_note(t->cli, "group %s", tl_group_text(&t->plan.optimizer, &r->plan.groups[i], text, sizeof text));
    if (t->task->say_data)
        t->task->say_data(t);
}

static void finish(run *r) {
    if (r->metrics)
        fclose(r->metrics); /* each line was flushed and checked */
    if (r->meter)
        tl_meter_on_peak(r->meter, NULL, NULL); /* it looks at the trainer */
    if (r->t->task->stop)
        r->t->task->stop(r->t);
    tl_account_free(&r->account);
    tl_trainer_free(r->trainer);
    tl_ctx_free(r->ctx);
    tl_meter_free(r->meter);
    tl_arena_free(r->arena);
    if (r->planned.ctx) {
        tl_arena_plan_free(r->planned.ctx, &r->arena_plan);
        tl_plan_run_free(&r->planned);
    }
}

static int execute(run *r) {
    tl_train *t = r->t;
    uint64_t position = 0;
    ignore_size_signal();
    if (!t->dry_run && tl_train_folder(t, &r->made, &r->error) != TL_OK)
        return tl_failed(t->cli, &r->error);
    measure_machine(r);
    int status = make_plan(r);
    if (status != TL_EXIT_OK || t->dry_run)
        return status == TL_EXIT_OK ? report_plan(r) : status;
    if (start(r) != TL_OK || (t->resume && restore(r, &position) != TL_OK) ||
        (r->start == 0 && t->texts[TL_SET_WEIGHTS][0] && load_weights(r) != TL_OK) ||
        t->task->start(t, r->ctx, r->trainer, position, &r->error) != TL_OK ||
        tl_train_write_start(t, &r->plan, &r->error) != TL_OK)
        return tl_failed(t->cli, &r->error);
    if (!(r->metrics = tl_train_metrics(t, r->start, &r->error)))
        return tl_failed(t->cli, &r->error);
    announce(r);
    tl_progress_begin(&r->progress, t->cli);
    catch_signals();
    if (train(r) != TL_OK || finish_training(r) != TL_OK)
        return tl_failed(t->cli, &r->error);
    const bool stopped = was_stopped(r);
    status = report(r);
    if (!stop_signal || !stopped)
        return status;
    tl_note(t->cli, "interrupted and saved at step %lld; --resume goes on", (long long)r->line.step);
    return TL_EXIT_INTERRUPTED;
}

int tl_train_run(tl_train *t) {
    static run r; /* zeroed; large enough that the stack is no place for it */
    r.t = t;
    r.best = INFINITY;
    int status = execute(&r);
    finish(&r);
    tl_train_folder_undo(t, r.made);
    return status;
}
