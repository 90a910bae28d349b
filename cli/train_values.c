/* cli/train_values.c: what the settings of tally train say, out of their texts: numbers, the optimizer, the schedule, the model. */
#include <string.h>

#include "tally/engine.h"
#include "tally/init.h"
#include "groups.h"
#include "lora.h"
#include "train.h"

int tl_setting_whole(const tl_train *t, tl_setting s, int64_t low, int64_t high, int64_t *value) {
    tl_error error = {TL_OK, ""};
    if (t->texts[s][0] == '\0')
        return TL_EXIT_OK;
    if (tl_parse_size(t->texts[s], value, &error) != TL_OK)
        return tl_setting_failed(t, s, ": %s", error.message);
    if (*value < low || *value > high)
        return tl_setting_failed(t, s, " %s: %lld to %lld would work", t->texts[s], (long long)low, (long long)high);
    return TL_EXIT_OK;
}

static int number(const tl_train *t, tl_setting s, double low, double high, double *value) {
    tl_error error = {TL_OK, ""};
    if (t->texts[s][0] != '\0' && tl_parse_number(t->texts[s], low, high, value, &error) != TL_OK)
        return tl_setting_failed(t, s, ": %s", error.message);
    return TL_EXIT_OK;
}

static int choice(const tl_train *t, tl_setting s, tl_option option, int *found) {
    const char *const *names = tl_option_choices(option);
    for (int i = 0; names[i]; i++)
        if (strcmp(names[i], t->texts[s]) == 0) {
            *found = i;
            return TL_EXIT_OK;
        }
    char known[256] = "";
    for (size_t i = 0, at = 0; names[i] && at < sizeof known; i++)
        at += (size_t)snprintf(known + at, sizeof known - at, "%s%s",
                               i == 0         ? ""
                               : names[i + 1] ? ", "
                                              : " and ",
                               names[i]);
    return tl_setting_failed(t, s, " \"%.60s\": %s would work", t->texts[s], known);
}

/* The optimizer's own numbers before those that were said. */
static int read_kind(tl_train *t, int found) {
    tl_optimizer_options *o = &t->plan.optimizer;
    switch (found) {
    case TL_CHOICE_ADAMW:
    case TL_CHOICE_ADAMW8BIT:
    case TL_CHOICE_ADAM:
        *o = tl_optimizer_defaults(found == TL_CHOICE_ADAMW       ? TL_OPTIM_ADAMW
                                   : found == TL_CHOICE_ADAMW8BIT ? TL_OPTIM_ADAMW8BIT
                                                                  : TL_OPTIM_ADAM);
        o->lr = t->task == &tl_task_sums ? 2e-3 : 1e-3;
        o->beta2 = 0.99; /* a few hundred steps are too short a run for the 1000 steps that 0.999 remembers */
        break;
    case TL_CHOICE_SGD:
    case TL_CHOICE_MOMENTUM:
        *o = tl_optimizer_defaults(TL_OPTIM_SGD);
        o->lr = 0.1;
        o->momentum = found == TL_CHOICE_MOMENTUM ? 0.9 : 0;
        break;
    case TL_CHOICE_ADAGRAD:
        *o = tl_optimizer_defaults(TL_OPTIM_ADAGRAD);
        break;
    case TL_CHOICE_RMSPROP:
        *o = tl_optimizer_defaults(TL_OPTIM_RMSPROP);
        o->lr = 1e-3;
        break;
    default:
        return tl_setting_failed(t, TL_SET_OPTIM,
                                 " %s trains nothing; adamw, adam, sgd, momentum, adagrad, rmsprop and adamw8bit do",
                                 t->texts[TL_SET_OPTIM]);
    }
    return TL_EXIT_OK;
}

static int read_optimizer(tl_train *t) {
    int found = 0, precision = 0, autocast = 0;
    char path[TL_PATH];
    tl_optimizer_options *o = &t->plan.optimizer;
    int status = choice(t, TL_SET_OPTIM, TL_OPTION_OPTIM, &found);
    if (status == TL_EXIT_OK)
        status = choice(t, TL_SET_PRECISION, TL_OPTION_PRECISION, &precision);
    if (status == TL_EXIT_OK)
        status = choice(t, TL_SET_AUTOCAST, TL_OPTION_AUTOCAST, &autocast);
    if (status != TL_EXIT_OK)
        return status;
    const tl_lora_texts lora = {t->texts[TL_SET_LORA],         t->texts[TL_SET_QLORA],
                                t->texts[TL_SET_LORA_ALPHA],   t->texts[TL_SET_LORA_DROPOUT],
                                t->texts[TL_SET_LORA_TARGETS], t->texts[TL_SET_LORA_BASE],
                                t->texts[TL_SET_LORA_TRAIN]};
    status = tl_cli_lora(t->cli, &lora, &t->plan.lora);
    if (status != TL_EXIT_OK)
        return status;
    t->plan.precision = (tl_precision)precision;
    t->plan.autocast = autocast != 0;
    tl_error error = {TL_OK, ""};
    tl_choices checked = {0}; /* they are set when the model is known */
    if (tl_recompute_parse(t->texts[TL_SET_RECOMPUTE], &t->plan.recompute, &error) != TL_OK)
        return tl_setting_failed(t, TL_SET_RECOMPUTE, ": %s", error.message);
    if (tl_choices_parse(t->texts[TL_SET_CHOICE], &checked, &error) != TL_OK)
        return tl_setting_failed(t, TL_SET_CHOICE, ": %s", error.message);
    if ((status = read_kind(t, found)) != TL_EXIT_OK)
        return status;
    if (autocast && precision < TL_PRECISION_BF16_MIXED)
        return tl_usage(t->cli, "--autocast on: --precision %s has no use for it; the mixed ones have",
                        t->texts[TL_SET_PRECISION]);
    status = number(t, TL_SET_LR, 0, 1e6, &o->lr);
    if (o->kind == TL_OPTIM_SGD || o->kind == TL_OPTIM_ADAMW || o->kind == TL_OPTIM_ADAMW8BIT)
        o->weight_decay = 0.1;
    if (status == TL_EXIT_OK)
        status = number(t, TL_SET_WEIGHT_DECAY, 0, 1e3, &o->weight_decay);
    t->lr = o->lr;
    if (status == TL_EXIT_OK && (t->texts[TL_SET_GROUPS][0] || tl_given(t->cli, TL_OPTION_GROUPS)))
        status = tl_cli_groups(t->cli, tl_setting_file(t, TL_SET_GROUPS, path), t->texts[TL_SET_GROUPS], o);
    return status;
}

static int read_seeds(tl_train *t) {
    const struct {
        tl_setting setting;
        uint64_t *seed;
    } seeds[] = {{TL_SET_SEED, &t->seed},
                 {TL_SET_SEED_INIT, &t->seed_init},
                 {TL_SET_SEED_DATA, &t->seed_data},
                 {TL_SET_SEED_DROPOUT, &t->seed_dropout}};
    int64_t value = 0; /* --seed is the others' default */
    for (size_t i = 0; i < sizeof seeds / sizeof seeds[0]; i++) {
        const int status = tl_setting_whole(t, seeds[i].setting, 0, INT64_MAX, &value);
        if (status != TL_EXIT_OK)
            return status;
        *seeds[i].seed = (uint64_t)value;
        value = (int64_t)t->seed;
    }
    return TL_EXIT_OK;
}

/* The number of steps may change in a run that --minutes ends. Without numbers of their own the warm-up is 100 steps, or half
 * of a run that is shorter than 200, and the decay a tenth of it (Hu et al. 2024, section 4). */
tl_schedule tl_train_schedule(const tl_train *t) {
    tl_schedule s = {.kind = t->schedule, .max = t->lr, .warmup = t->warmup};
    if (t->warmup < 0)
        s.warmup = t->steps < 200 ? t->steps / 2 : 100;
    if (s.kind != TL_SCHEDULE_CONSTANT) {
        s.min = t->lr / 100;
        s.total = t->steps;
    }
    if (s.kind == TL_SCHEDULE_WSD || s.kind == TL_SCHEDULE_WSD_SQRT)
        s.decay_steps = t->steps < 10 ? 1 : t->steps / 10;
    if (t->decay_steps)
        s.decay_steps = t->decay_steps;
    return s;
}

static int read_schedule(tl_train *t) {
    static const int64_t most = INT64_C(1) << 40;
    tl_error error = {TL_OK, ""};
    const char *name = t->texts[TL_SET_SCHEDULE];
    int kind = TL_SCHEDULE_CONSTANT;
    while (kind <= TL_SCHEDULE_WSD_SQRT && strcmp(tl_schedule_name((tl_schedule_kind)kind), name) != 0)
        kind++;
    if (kind > TL_SCHEDULE_WSD_SQRT)
        return tl_setting_failed(t, TL_SET_SCHEDULE, " %.60s: constant, linear, cosine, wsd and wsd-sqrt would work",
                                 name);
    t->schedule = (tl_schedule_kind)kind;
    t->warmup = -1;
    int status = tl_setting_whole(t, TL_SET_WARMUP, 0, most, &t->warmup);
    status = status ? status : tl_setting_whole(t, TL_SET_DECAY_STEPS, 1, most, &t->decay_steps);
    const tl_schedule schedule = tl_train_schedule(t);
    if (status == TL_EXIT_OK && tl_schedule_check(&schedule, &error) != TL_OK)
        return tl_setting_failed(t, TL_SET_SCHEDULE, " %s: %s", name, error.message);
    return status;
}

static int read_sizes(tl_train *t) {
    static const int64_t most = INT64_C(1) << 40;
    int64_t threads = tl_machine_cores();
    tl_error error = {TL_OK, ""};
    int status = tl_setting_whole(t, TL_SET_STEPS, 1, most, &t->steps);
    status = status ? status : tl_setting_whole(t, TL_SET_MICRO_BATCH, 1, most, &t->plan.micro_batch);
    status = status ? status : tl_setting_whole(t, TL_SET_SEQ, t->task->least_seq, most, &t->plan.seq);
    status = status ? status : tl_setting_whole(t, TL_SET_GLOBAL_BATCH, 1, most, &t->plan.global_batch);
    status = status ? status : read_seeds(t);
    status = status ? status : tl_setting_whole(t, TL_SET_THREADS, 1, 1024, &threads);
    status = status ? status : tl_setting_whole(t, TL_SET_LOG_EVERY, 1, most, &t->log_every);
    status = status ? status : tl_setting_whole(t, TL_SET_EVAL_EVERY, 0, most, &t->eval_every);
    status = status ? status : tl_setting_whole(t, TL_SET_SAVE_EVERY, 1, most, &t->save_every);
    status = status ? status : tl_setting_whole(t, TL_SET_STOP_AT, 1, most, &t->stop_at);
    status = status ? status : tl_setting_whole(t, TL_SET_KEEP, 1, most, &t->keep);
    status = status ? status : number(t, TL_SET_MINUTES, 0.01, 1e6, &t->minutes);
    status = status ? status : number(t, TL_SET_CLIP, 0, 1e30, &t->plan.clip);
    if (status != TL_EXIT_OK)
        return status;
    if (t->texts[TL_SET_MEMORY][0] && tl_parse_bytes(t->texts[TL_SET_MEMORY], &t->memory_bytes, &error) != TL_OK)
        return tl_setting_failed(t, TL_SET_MEMORY, ": %s", error.message);
    if (t->texts[TL_SET_MEMORY][0] && t->memory_bytes == 0)
        return tl_setting_failed(t, TL_SET_MEMORY, " 0 holds nothing; leave it out to use what is available");
    if (strcmp(t->texts[TL_SET_INIT], "default") != 0)
        t->init = t->texts[TL_SET_INIT];
    t->threads = (int)threads;
    t->plan.threads = (int)threads;
    t->plan.devices = (tl_devices){.count = 1, .here = true};
    t->plan.weights = t->texts[TL_SET_WEIGHTS][0] != '\0';
    t->plan.every_micro_batch = true; /* the arena follows each of them */
    return TL_EXIT_OK;
}

int tl_train_values(tl_train *t) {
    int status = read_sizes(t);
    status = status ? status : read_optimizer(t);
    /* With --minutes alone the time decides. */
    t->time_decides = status == TL_EXIT_OK && t->minutes > 0 && !t->steps_given && !t->resume;
    if (t->time_decides)
        t->steps = TL_STEPS_OPEN;
    return status ? status : read_schedule(t);
}

/* On the device meta, where a net costs nothing: a scheme that is none is known before there is a folder. */
static int check_init(const tl_train *t) {
    tl_error error = {TL_OK, ""};
    tl_ctx *ctx = t->init ? tl_ctx_new(NULL, &error) : NULL;
    if (!t->init)
        return TL_EXIT_OK;
    tl_net *net = ctx ? tl_net_new_as(ctx, &t->model, TL_F32, t->init) : NULL;
    if (ctx && !net)
        tl_fail(&error, tl_ctx_status(ctx), "--init %.60s: %s", t->init, tl_ctx_error(ctx)->message);
    tl_net_free(net);
    tl_ctx_free(ctx);
    return error.status == TL_OK ? TL_EXIT_OK : tl_failed(t->cli, &error);
}

/* A spec's context is as long as the windows (a sum's, and its last target); a model's own is their default. */
int tl_train_read_model(tl_train *t) {
    enum { WINDOW = 128 };
    const tl_cli *cli = t->cli;
    tl_error error = {TL_OK, ""};
    const char *model = t->model_path[0] ? t->model_path : t->texts[TL_SET_MODEL];
    const int64_t context = t->plan.seq ? t->plan.seq + (t->task == &tl_task_sums) : WINDOW;
    if (tl_train_model(model, t->vocab, context, &t->model, &error) != TL_OK)
        return tl_failed(cli, &error);
    if (t->model_name[0])
        snprintf(t->model.name, sizeof t->model.name, "%s", t->model_name);
    if (!t->plan.seq) {
        t->plan.seq = t->model.context;
        snprintf(t->texts[TL_SET_SEQ], sizeof t->texts[TL_SET_SEQ], "%lld", (long long)t->plan.seq);
    }
    if (t->model.learned_positions && t->model.context < t->plan.seq)
        return tl_usage(cli, "--seq %lld: %s has %lld positions", (long long)t->plan.seq, t->model.name,
                        (long long)t->model.context);
    t->plan.model = t->model;
    tl_engine_choose(t->plan.engine, &t->model, &t->plan.choices);
    if (tl_choices_parse(t->texts[TL_SET_CHOICE], &t->plan.choices, &error) != TL_OK)
        return tl_failed(cli, &error);
    if (t->texts[TL_SET_SEED_DROPOUT][0] && !(t->plan.lora.dropout > 0 || t->model.dropout_embedding > 0 ||
                                              t->model.dropout_attention > 0 || t->model.dropout_residual > 0))
        tl_note(cli, "--seed-dropout changes nothing: %s has no dropout", t->model.name);
    const int status = check_init(t);
    if (status != TL_EXIT_OK)
        return status;
    return t->task->check && t->task->check(t, &error) != TL_OK ? tl_failed(cli, &error) : TL_EXIT_OK;
}
