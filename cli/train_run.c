/* cli/train_run.c: the run itself: started, measured from outside, saved, examined. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "train_run.h"

enum { SPEED_STEPS = 10 };

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

/* ---- the second instrument ---- */

static int64_t bytes_of(const tl_training *r, const tl_tensor *t) {
    return t ? tl_meter_block_bytes(r->meter, tl_tensor_storage_data(t)) : 0;
}

/* At a new peak: whose block is whose, by pointers alone. What is nobody's is saved or work. */
static void at_peak(void *user) {
    tl_training *r = user;
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

static void forget_batch(tl_training *r) { r->data[0] = r->data[1] = r->data[2] = NULL; }

static tl_status next_batch(void *user, tl_ctx *ctx, const tl_train_options *o, int64_t micro, tl_batch *batch) {
    tl_training *r = user;
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
static void book_step(tl_training *r, double seconds, int64_t unplanned, bool skipped) {
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
static int64_t end_moment(tl_training *r) {
    tl_reading reading;
    tl_meter_read(r->meter, &reading);
    tl_meter_step_begin(r->meter);
    return reading.peak_bytes;
}

/* ---- the run ---- */

static tl_status start(tl_training *r) {
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
    return r->trainer ? TL_OK : tl_training_context_failed(r, r->ctx);
}

static tl_status restore(tl_training *r, uint64_t *position) {
    tl_status status = tl_train_restore(r->t, r->ctx, r->trainer, &r->start, position, &r->error);
    const int64_t most = end_moment(r);
    r->best = tl_train_best(r->t);
    if (r->start > 0)
        r->measured.load_bytes = most;
    return status;
}

static tl_status load_weights(tl_training *r) {
    const tl_status status = tl_train_load_weights(r->t, r->ctx, r->trainer, &r->error);
    r->measured.weights_bytes = end_moment(r);
    return status;
}

static tl_status save(tl_training *r) {
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

static void tell_scale(tl_training *r, int64_t step, const tl_step_result *result) {
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

static tl_status one_step(tl_training *r, int64_t step) {
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
        return tl_training_context_failed(r, r->ctx);
    book_step(r, tl_seconds() - begin, tl_arena_unplanned(r->arena) - unplanned, result.skipped);
    tell_scale(r, step, &result);
    r->line.step = step;
    r->line.loss = result.loss;
    return TL_OK;
}

static void fill_line(tl_training *r) {
    tl_train *t = r->t;
    tl_line *l = &r->line;
    double peak = tl_machine_peak(&t->machine, tl_training_product_dtype(r));
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

static tl_status log_line(tl_training *r) {
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
static void set_total(tl_training *r) {
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
static void read_account(tl_training *r) {
    if (r->account_step == r->line.step)
        return;
    tl_account_read(&r->account, 1, r->ctx);
    r->account_step = r->line.step;
}

static tl_status examine(tl_training *r, bool last) {
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

static bool is_over(const tl_training *r) {
    const tl_train *t = r->t;
    return stop_signal || (t->stop_at > 0 && r->line.step >= t->stop_at) ||
           (t->minutes > 0 && r->trained_seconds > t->minutes * 60);
}

/* Between two steps. The last one, whichever it is, is told and saved by finish_training. A validation loss lower than any
 * before it is saved at once: `best` is then the best that was seen, and its loss that of exactly these weights. */
static tl_status between(tl_training *r) {
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

static tl_status write_account(tl_training *r) {
    if (r->measured.steps == 0)
        return TL_OK;
    read_account(r);
    return tl_train_write_ledger(r->t, &r->plan, &r->account, &r->measured, &r->error);
}

static tl_status train(tl_training *r) {
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

static tl_status examine_at_end(tl_training *r) {
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

static bool was_stopped(const tl_training *r) {
    return r->line.step < r->t->steps && (stop_signal || r->t->stop_at > 0);
}

/* Saved before it is examined, so that nothing can be lost; then its loss is known, and it may be the best. The account is
 * that of the step, read before anything else runs. */
static tl_status finish_training(tl_training *r) {
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

static void finish(tl_training *r) {
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

static int execute(tl_training *r) {
    tl_train *t = r->t;
    uint64_t position = 0;
    ignore_size_signal();
    if (!t->dry_run && tl_train_folder(t, &r->made, &r->error) != TL_OK)
        return tl_failed(t->cli, &r->error);
    tl_training_measure_machine(r);
    int status = tl_training_plan(r);
    if (status != TL_EXIT_OK || t->dry_run)
        return status == TL_EXIT_OK ? tl_training_report_plan(r) : status;
    if (start(r) != TL_OK || (t->resume && restore(r, &position) != TL_OK) ||
        (r->start == 0 && t->texts[TL_SET_WEIGHTS][0] && load_weights(r) != TL_OK) ||
        t->task->start(t, r->ctx, r->trainer, position, &r->error) != TL_OK ||
        tl_train_write_start(t, &r->plan, &r->error) != TL_OK)
        return tl_failed(t->cli, &r->error);
    if (!(r->metrics = tl_train_metrics(t, r->start, &r->error)))
        return tl_failed(t->cli, &r->error);
    tl_training_announce(r);
    tl_progress_begin(&r->progress, t->cli);
    catch_signals();
    if (train(r) != TL_OK || finish_training(r) != TL_OK)
        return tl_failed(t->cli, &r->error);
    const bool stopped = was_stopped(r);
    status = tl_training_report(r);
    if (!stop_signal || !stopped)
        return status;
    tl_note(t->cli, "interrupted and saved at step %lld; --resume goes on", (long long)r->line.step);
    return TL_EXIT_INTERRUPTED;
}

int tl_train_run(tl_train *t) {
    static tl_training r; /* zeroed; large enough that the stack is no place for it */
    r.t = t;
    r.best = INFINITY;
    int status = execute(&r);
    finish(&r);
    tl_train_folder_undo(t, r.made);
    return status;
}
