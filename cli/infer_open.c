/* cli/infer_open.c: a model and its weights, by the path of a run or of a folder. */
#include <string.h>
#include <sys/stat.h>

#include "infer.h"
#include "lora.h"
#include "tally/ckpt.h"
#include "tally/config.h"
#include "tally/run.h"
#include "tally/weights.h"

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
    copy_text(file, "options.tokenizer", o->tokenizer, sizeof o->tokenizer);
    copy_text(file, "options.val", o->val, sizeof o->val);
    copy_text(file, "options.data-dtype", o->data_dtype, sizeof o->data_dtype);
    copy_text(file, "tokenizer_hash", o->tokenizer_hash, sizeof o->tokenizer_hash);
    tl_run_file_free(file);
    snprintf(path, sizeof path, "%s/config.json", o->path);
    if (tl_config_read(path, &o->model, &error) != TL_OK)
        return tl_failed(o->cli, &error);
    if (name[0])
        snprintf(o->model.name, sizeof o->model.name, "%s", name);
    return TL_EXIT_OK;
}

/* The run's own format stays: a checkpoint is never cast. Others' weights are converted as they arrive. */
static int set_weights(tl_opened *o, const char *weights) {
    static const char *const names[] = {"stored", "f32", "bf16", "f16", "int8", NULL};
    static const tl_dtype dtypes[] = {TL_F32, TL_F32, TL_BF16, TL_F16, TL_F32};
    int found = 0;
    while (weights && names[found] && strcmp(names[found], weights) != 0)
        found++;
    if (!names[found])
        return tl_usage(o->cli, "--weights \"%.40s\": stored, f32, bf16, f16 or int8 would work", weights);
    o->int8 = found == 4;
    if (found == 0 || found == 4 || dtypes[found] == o->dtype)
        return TL_EXIT_OK;
    if (o->is_run || o->is_checkpoint)
        return tl_usage(o->cli, "--weights %s: the run's are %s; stored and int8 would work", weights,
                        tl_dtype_name(o->dtype));
    o->dtype = dtypes[found];
    return TL_EXIT_OK;
}

/* The format of the first matrix; of a checkpoint, of the first that is a parameter. */
static bool find_dtype(const tl_safetensors *file, tl_dtype *dtype) {
    bool found = false;
    for (int64_t i = 0; i < tl_safetensors_count(file); i++) {
        const tl_safetensors_tensor *t = tl_safetensors_at(file, i);
        bool named = strncmp(t->name, "model.", 6) == 0;
        if (t->ndim < 2 || t->dtype == TL_DTYPE_COUNT || !tl_dtype_is_float(t->dtype) || tl_dtype_bytes(t->dtype) < 2 ||
            tl_weights_is_scale(t->name) || (found && !named))
            continue;
        *dtype = t->dtype;
        found = true;
        if (named)
            break;
    }
    return found;
}

static int read_dtype(tl_opened *o) {
    char folder[TL_INFER_PATH + 64], path[TL_CKPT_PATH];
    tl_error error = {TL_OK, ""};
    bool found = false, one = o->is_file;
    snprintf(path, sizeof path, "%s", o->path);
    snprintf(folder, sizeof folder, "%s/checkpoints", o->path);
    if (o->is_run) {
        tl_ckpt_found latest;
        one = true;
        if (tl_ckpt_folder_find(folder, &latest, &error) != TL_OK)
            return tl_failed(o->cli, &error);
        if (latest.note[0])
            tl_say(o->cli, "%s", latest.note);
        snprintf(path, sizeof path, "%s", latest.path);
    }
    tl_safetensors *file = one ? tl_safetensors_open(path, &error) : NULL;
    tl_weights_files *files = one ? NULL : tl_weights_open(o->path, &error);
    if (file) {
        o->is_checkpoint = tl_ckpt_is(file);
        const char *lora = tl_safetensors_metadata(file, "run.lora");
        if (lora && !tl_cli_lora_from_note(lora, &o->lora, o->targets))
            tl_note(o->cli, "%s: \"%.80s\" says of no adapters that this build knows", o->path, lora);
        found = find_dtype(file, &o->dtype);
    } else if (files && tl_weights_file_count(files) > 0)
        found = find_dtype(tl_weights_file(files, 0), &o->dtype);
    bool opened = file || files;
    tl_safetensors_close(file);
    tl_weights_close(files);
    if (!opened)
        return tl_failed(o->cli, &error);
    if (found && (o->dtype == TL_F64 || o->dtype == TL_F32 || o->dtype == TL_BF16 || o->dtype == TL_F16))
        return TL_EXIT_OK;
    tl_say(o->cli, "%s holds no weights in f64, f32, bf16 or f16", o->path);
    return TL_EXIT_FAILED;
}

/* Beside the weights, or above the folder of a run's checkpoints. */
static int read_config(tl_opened *o) {
    char folder[TL_INFER_PATH], path[TL_INFER_PATH + 64];
    struct stat st;
    tl_error error = {TL_OK, ""};
    snprintf(folder, sizeof folder, "%s", o->path);
    char *slash = strrchr(folder, '/');
    if (o->is_file)
        snprintf(slash ? slash : folder, 3, "%s", slash ? "" : ".");
    snprintf(path, sizeof path, "%s/config.json", folder);
    if (o->is_file && stat(path, &st) != 0) {
        snprintf(path, sizeof path, "%s/../config.json", folder);
        if (stat(path, &st) != 0) {
            tl_say(o->cli, "there is no %s/config.json, which says what model %s is, nor one in the folder above it",
                   folder, o->path);
            return TL_EXIT_FAILED;
        }
    }
    return tl_config_read(path, &o->model, &error) == TL_OK ? TL_EXIT_OK : tl_failed(o->cli, &error);
}

int tl_opened_find(tl_opened *o, const tl_cli *cli, const char *argument, const char *weights) {
    struct stat st;
    size_t length = strlen(argument);
    *o = (tl_opened){.cli = cli, .step = -1, .dtype = TL_F32};
    if (length >= sizeof o->path - 64)
        return tl_usage(cli, "a path of more than %d bytes", TL_INFER_PATH - 64);
    while (length > 1 && argument[length - 1] == '/')
        length--;
    snprintf(o->path, sizeof o->path, "%.*s", (int)length, argument);
    if (stat(o->path, &st) != 0) {
        tl_say(cli, "there is no %s: the folder of a run, a folder with weights or a .safetensors file would work",
               argument);
        return TL_EXIT_USAGE;
    }
    o->is_file = !S_ISDIR(st.st_mode);
    if (o->is_file && !S_ISREG(st.st_mode)) {
        tl_say(cli,
               "%s is no regular file: the folder of a run, a folder with weights or a .safetensors file would work",
               argument);
        return TL_EXIT_FAILED;
    }
    o->is_run = !o->is_file && is_there(o->path, "run.json");
    if (!o->is_run && !o->is_file && !is_there(o->path, "config.json")) {
        tl_say(cli, "%s holds neither a run (run.json) nor a model (config.json)", o->path);
        return TL_EXIT_USAGE;
    }
    int status = o->is_run ? read_run(o) : read_config(o);
    if (status == TL_EXIT_OK)
        status = read_dtype(o);
    return status == TL_EXIT_OK ? set_weights(o, weights) : status;
}

/* The step that a run's weights are of; where that cannot be told again it is left out. */
static void find_step(tl_opened *o) {
    char folder[TL_INFER_PATH + 64], path[TL_CKPT_PATH];
    snprintf(folder, sizeof folder, "%s/checkpoints", o->path);
    snprintf(path, sizeof path, "%s", o->path);
    if (o->is_run && tl_ckpt_folder_latest(folder, path, NULL) != TL_OK)
        return;
    tl_ckpt *c = o->is_run || o->is_checkpoint ? tl_ckpt_open(path, NULL) : NULL;
    if (c)
        o->step = tl_ckpt_state_of(c)->step;
    tl_ckpt_close(c);
}

tl_net *tl_opened_net(const tl_opened *o, tl_ctx *ctx) {
    return tl_net_new_lora(ctx, &o->model, o->dtype, NULL, &o->lora);
}

tl_status tl_opened_load(tl_opened *o, tl_ctx *ctx, tl_net *net, tl_error *error) {
    tl_weights_report report;
    tl_status status = tl_weights_load(o->path, net, &report, error);
    if (status != TL_OK)
        return status;
    find_step(o);
    if (report.note[0] && o->step < 0)
        tl_note(o->cli, "%s", report.note);
    if (tl_net_lora(net)) {
        tl_note(o->cli, "adapters of rank %lld on %s over a base of %s are folded into its weights",
                (long long)o->lora.rank, o->targets, tl_lora_base_name(o->lora.base));
        if (tl_net_merge_lora(net) != TL_OK)
            return tl_fail(error, tl_ctx_status(ctx), "%s", tl_ctx_error(ctx)->message);
    }
    if (o->int8 && tl_net_quantize_int8(net) != TL_OK)
        status = tl_fail(error, tl_ctx_status(ctx), "%s", tl_ctx_error(ctx)->message);
    return status;
}

const char *tl_opened_weights(const tl_opened *o, char text[64]) {
    snprintf(text, 64, o->int8 ? "int8 (from %s)" : "%s", tl_dtype_name(o->dtype));
    return text;
}
