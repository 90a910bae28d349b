/* cli/infer_open.c: a model and its weights, by the path of a run or of a folder. */
#include <string.h>
#include <sys/stat.h>

#include "infer.h"
#include "tally/ckpt.h"
#include "tally/config.h"
#include "tally/run.h"

static bool is_there(const char *folder, const char *name) {
    char path[TL_INFER_PATH + 64];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return stat(path, &st) == 0;
}

/* What a run's texts say; "" where there is none. */
static void copy_text(const tl_run_file *file, const char *key, char *to, size_t size) {
    tl_error ignored = {TL_OK, ""};
    const char *text = tl_run_file_has(file, key) ? tl_run_file_text(file, key, &ignored) : NULL;
    snprintf(to, size, "%s", text ? text : "");
}

static int read_run(tl_opened *o) {
    char path[TL_INFER_PATH + 64], name[sizeof o->model.name];
    tl_error error = {TL_OK, ""};
    snprintf(path, sizeof path, "%s/run.json", o->path);
    tl_run_file *file = tl_run_file_read(path, &error);
    if (!file)
        return tl_failed(o->cli, &error);
    copy_text(file, "model", name, sizeof name);
    copy_text(file, "task", o->task, sizeof o->task);
    copy_text(file, "options.optim", o->optim, sizeof o->optim);
    copy_text(file, "options.precision", o->precision, sizeof o->precision);
    copy_text(file, "options.tokenizer", o->tokenizer, sizeof o->tokenizer);
    tl_run_file_free(file);
    const char *const *names = tl_option_choices(TL_OPTION_PRECISION);
    tl_train_options train = {0};
    int found = 0;
    while (names[found] && strcmp(names[found], o->precision) != 0)
        found++;
    if (!names[found] || tl_precision_apply((tl_precision)found, &train, &error) != TL_OK) {
        tl_say(o->cli, "%s: a run in precision \"%.30s\", which this build does not know", path, o->precision);
        return TL_EXIT_FAILED;
    }
    o->plan_precision = (tl_precision)found;
    o->dtype = train.dtype;
    snprintf(path, sizeof path, "%s/config.json", o->path);
    if (tl_config_read(path, &o->model, &error) != TL_OK)
        return tl_failed(o->cli, &error);
    if (name[0])
        snprintf(o->model.name, sizeof o->model.name, "%s", name);
    return TL_EXIT_OK;
}

static int set_weights(tl_opened *o, const char *weights) {
    static const char *const names[] = {"stored", "f32", "bf16", "f16", "int8", NULL};
    static const tl_dtype dtypes[] = {TL_F32, TL_F32, TL_BF16, TL_F16, TL_F32};
    int found = 0;
    while (weights && names[found] && strcmp(names[found], weights) != 0)
        found++;
    if (!names[found])
        return tl_usage(o->cli, "--weights \"%.40s\": stored, f32, bf16, f16 or int8 would work", weights);
    o->int8 = found == 4;
    if (found > 0 && found < 4 && o->is_run && dtypes[found] != o->dtype)
        return tl_usage(o->cli, "--weights %s: the run's are %s; stored and int8 would work", weights,
                        tl_dtype_name(o->dtype));
    return TL_EXIT_OK;
}

int tl_opened_find(tl_opened *o, const tl_cli *cli, const char *argument, const char *weights) {
    struct stat st;
    *o = (tl_opened){.cli = cli, .step = -1, .dtype = TL_F32};
    if (strlen(argument) >= sizeof o->path - 64)
        return tl_usage(cli, "a path of more than %d bytes", TL_INFER_PATH - 64);
    snprintf(o->path, sizeof o->path, "%s", argument);
    if (stat(argument, &st) != 0) {
        tl_say(cli, "there is no %s: the folder of a run, or a folder with weights, would work", argument);
        return TL_EXIT_USAGE;
    }
    o->is_run = is_there(argument, "run.json");
    if (!o->is_run) {
        tl_say(cli, "%s holds no run (no run.json)", argument);
        return TL_EXIT_USAGE;
    }
    int status = read_run(o);
    return status == TL_EXIT_OK ? set_weights(o, weights) : status;
}

static tl_optimizer_options optimizer_of(const tl_opened *o) {
    bool plain = strcmp(o->optim, "sgd") == 0, momentum = strcmp(o->optim, "momentum") == 0;
    tl_optimizer_kind kind = plain || momentum                  ? TL_OPTIM_SGD
                             : strcmp(o->optim, "adagrad") == 0 ? TL_OPTIM_ADAGRAD
                                                                : TL_OPTIM_ADAMW;
    tl_train_options train = {.optimizer = tl_optimizer_defaults(kind)};
    tl_error ignored = {TL_OK, ""};
    train.optimizer.momentum = momentum ? 0.9 : 0;
    (void)!tl_precision_apply(o->plan_precision, &train, &ignored);
    return train.optimizer;
}

/* A checkpoint is read whole: states too, which are then let go of. */
static tl_status load_run(tl_opened *o, tl_ctx *ctx, tl_net *net, tl_error *error) {
    char path[TL_INFER_PATH + 64];
    tl_ckpt_state state = {0};
    const tl_parameter *list;
    int count = tl_net_parameters(net, &list);
    tl_optimizer_options options = optimizer_of(o);
    tl_optimizer *optimizer = tl_optimizer_new(ctx, list, count, &options);
    if (!optimizer)
        return tl_fail(error, tl_ctx_status(ctx), "%s", tl_ctx_error(ctx)->message);
    snprintf(path, sizeof path, "%s/checkpoint.tally", o->path);
    tl_status status = tl_ckpt_load(path, ctx, net, optimizer, &state, error);
    tl_optimizer_free(optimizer);
    o->step = state.step;
    return status;
}

tl_status tl_opened_load(tl_opened *o, tl_ctx *ctx, tl_net *net, tl_error *error) {
    tl_status status = load_run(o, ctx, net, error);
    if (status == TL_OK && o->int8 && tl_net_quantize_int8(net) != TL_OK)
        status = tl_fail(error, tl_ctx_status(ctx), "%s", tl_ctx_error(ctx)->message);
    return status;
}

const char *tl_opened_weights(const tl_opened *o, char text[64]) {
    snprintf(text, 64, o->int8 ? "int8 (from %s)" : "%s", tl_dtype_name(o->dtype));
    return text;
}
