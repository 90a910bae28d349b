/* cli/export.c: tally export, a run's or a checkpoint's weights (or a model's own) as Hugging Face's tools read them. */
#include <string.h>
#include <sys/stat.h>

#include "tally/ckpt.h"
#include "tally/config.h"
#include "tally/cpu.h"
#include "tally/run.h"
#include "tally/tokenizer.h"
#include "lora.h"
#include "tally/weights.h"
#include "verb.h"

enum { OWN_OUT, OWN_SHARD_SIZE, OWN_DTYPE };

static const struct argp_option own_options[] = {
    {"out", TL_OWN(OWN_OUT), "FOLDER", 0, "Where config.json and model.safetensors go (made if need be)", 0},
    {"shard-size", TL_OWN(OWN_SHARD_SIZE), "BYTES", 0, "Values of one file at most, as 5GB (default: one file)", 0},
    {"dtype", TL_OWN(OWN_DTYPE), "NAME", 0, "f32, bf16 or f16 (default: as the weights are kept)", 0},
    {0},
};

typedef struct job {
    tl_cli *cli;
    const char *from, *out;
    char checkpoint[TL_CKPT_PATH]; /* "" where the weights are a model's own files */
    tl_model model;
    tl_dtype dtype;
    tl_lora_options lora; /* of a run with adapters: folded into the weights */
    char targets[TL_LORA_TARGETS];
    tl_weights_options options;
    tl_weights_report report;
    int64_t parameters;
    char tokenizer[400]; /* what became of the run's; "": it has none */
    tl_error error;
} job;

static bool is_folder(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* The checkpoint that `from` is, or that its folder's latest is. */
static void find_checkpoint(job *j) {
    char inside[TL_CKPT_PATH];
    tl_ckpt_found found;
    if (is_folder(j->from)) {
        snprintf(inside, sizeof inside, "%.4000s/checkpoints", j->from);
        bool any =
            tl_ckpt_folder_find(inside, &found, NULL) == TL_OK || tl_ckpt_folder_find(j->from, &found, NULL) == TL_OK;
        if (any && found.note[0])
            tl_say(j->cli, "%s", found.note);
        snprintf(j->checkpoint, sizeof j->checkpoint, "%s", any ? found.path : "");
        return;
    }
    tl_safetensors *file = tl_safetensors_open(j->from, NULL);
    if (file && tl_ckpt_is(file))
        snprintf(j->checkpoint, sizeof j->checkpoint, "%s", j->from);
    tl_safetensors_close(file);
}

/* The format of the first tensor that is a parameter. */
static void dtype_of(job *j, const tl_safetensors *file, const char *start) {
    for (int64_t i = 0; i < tl_safetensors_count(file); i++) {
        const tl_safetensors_tensor *t = tl_safetensors_at(file, i);
        if (strncmp(t->name, start, strlen(start)) == 0 && t->dtype != TL_DTYPE_COUNT && tl_dtype_is_float(t->dtype) &&
            t->ndim > 1 && tl_dtype_bytes(t->dtype) > 1 && !tl_weights_is_scale(t->name)) {
            j->dtype = t->dtype;
            return;
        }
    }
}

static tl_status describe_checkpoint(job *j) {
    tl_ckpt *c = tl_ckpt_open(j->checkpoint, &j->error);
    if (!c)
        return j->error.status;
    const char *config = tl_ckpt_text(c, "run.config");
    tl_status status = config
                           ? tl_config_parse(config, strlen(config), j->checkpoint, &j->model, &j->error)
                           : tl_fail(&j->error, TL_ERR_FORMAT, "%s does not say of which model it is", j->checkpoint);
    dtype_of(j, tl_ckpt_file(c), "model.");
    const char *lora = tl_ckpt_text(c, "run.lora");
    if (status == TL_OK && lora && !tl_cli_lora_from_note(lora, &j->lora, j->targets))
        status = tl_fail(&j->error, TL_ERR_FORMAT, "%s has adapters that this build does not know", j->checkpoint);
    tl_ckpt_close(c);
    return status;
}

static tl_status describe_files(job *j) {
    tl_weights_files *files = tl_weights_open(j->from, &j->error);
    char folder[TL_CKPT_PATH];
    const char *slash = strrchr(j->from, '/');
    if (!files)
        return j->error.status;
    dtype_of(j, tl_weights_file(files, 0), "");
    tl_weights_close(files);
    if (is_folder(j->from))
        snprintf(folder, sizeof folder, "%s/", j->from); /* with its slash it is a path, whatever the catalogue knows */
    else
        snprintf(folder, sizeof folder, "%.*s/", slash ? (int)(slash - j->from) : 1, slash ? j->from : ".");
    return tl_model_find(folder, &j->model, &j->error);
}

static tl_status through(job *j) {
    const tl_kernels *kernels = tl_kernels_for_cpu(NULL, &j->error);
    tl_ctx *ctx = kernels ? tl_ctx_new(&(tl_ctx_options){.kernels = kernels}, &j->error) : NULL;
    if (!ctx)
        return j->error.status;
    tl_net *net = tl_net_new_lora(ctx, &j->model, j->dtype, NULL, &j->lora);
    tl_status status = net ? TL_OK : tl_fail(&j->error, tl_ctx_status(ctx), "%s", tl_ctx_error(ctx)->message);
    if (status == TL_OK)
        status = tl_weights_load(j->checkpoint[0] ? j->checkpoint : j->from, net, &j->report, &j->error);
    if (status == TL_OK && tl_net_lora(net))
        tl_note(j->cli, "adapters of rank %lld on %s over a base of %s are folded into its weights",
                (long long)j->lora.rank, j->targets, tl_lora_base_name(j->lora.base));
    if (status == TL_OK && tl_net_lora(net) && tl_net_merge_lora(net) != TL_OK)
        status = tl_fail(&j->error, tl_ctx_status(ctx), "%s", tl_ctx_error(ctx)->message);
    if (status == TL_OK)
        status = tl_weights_save(j->out, net, &j->options, &j->error);
    tl_parameter_count count = {0};
    if (net)
        tl_net_count(net, &count);
    j->parameters = count.unique;
    tl_net_free(net);
    tl_ctx_free(ctx);
    return status;
}

/* The tokenizer that a run's run.json names goes beside the weights, so that the text can be made again from the folder alone.
 * One that cannot be written as vocab.json and merges.txt is named: the weights are there all the same. */
static void export_tokenizer(job *j) {
    char path[TL_CKPT_PATH];
    tl_error error = {TL_OK, ""};
    snprintf(path, sizeof path, "%.4000s/run.json", j->from);
    tl_run_file *file = is_folder(j->from) ? tl_run_file_read(path, &error) : NULL;
    const char *name =
        file && tl_run_file_has(file, "options.tokenizer") ? tl_run_file_text(file, "options.tokenizer", &error) : NULL;
    if (name && name[0]) {
        tl_tokenizer *t = tl_tokenizer_open(name, NULL, &error);
        if (t && tl_tokenizer_save(t, j->out, &error) == TL_OK)
            snprintf(j->tokenizer, sizeof j->tokenizer, "vocab.json and merges.txt, from %.300s", name);
        else
            snprintf(j->tokenizer, sizeof j->tokenizer, "not written: --tokenizer %.200s names it where it is needed",
                     name);
        tl_tokenizer_free(t);
    }
    tl_run_file_free(file);
}

static int report(const job *j) {
    char count[TL_TEXT], bytes[TL_TEXT], rest[256], answer[TL_TEXT + 16];
    int64_t size = j->parameters * tl_dtype_bytes(j->options.dtype);
    if (j->cli->format == TL_FORMAT_JSON) {
        tl_json *json = tl_cli_json_open(j->cli);
        if (!json)
            return TL_EXIT_FAILED;
        tl_json_put_string(json, "path", j->out);
        tl_json_put_string(json, "from", j->checkpoint[0] ? j->checkpoint : j->from);
        tl_json_put_integer(json, "parameters", j->parameters);
        tl_json_put_string(json, "dtype", tl_dtype_name(j->options.dtype));
        tl_json_put_integer(json, "value_bytes", size);
        tl_json_put_string(json, "from_dtype", tl_dtype_name(j->dtype));
        if (j->tokenizer[0])
            tl_json_put_string(json, "tokenizer", j->tokenizer);
        return tl_cli_json_close(j->cli, json);
    }
    snprintf(rest, sizeof rest, "in %s (%s)", tl_dtype_name(j->options.dtype),
             tl_text_bytes((double)size, j->cli->units, bytes));
    snprintf(answer, sizeof answer, "%s parameters", tl_text_count((double)j->parameters, count));
    tl_out_answer(j->cli, answer, rest);
    tl_out_item(j->cli, "from", "%s", j->checkpoint[0] ? j->checkpoint : j->from);
    tl_out_item(j->cli, "to", "%s", j->out);
    if (j->tokenizer[0])
        tl_out_item(j->cli, "tokenizer", "%s", j->tokenizer);
    if (j->report.note[0])
        tl_out_item(j->cli, "note", "%s", j->report.note);
    tl_out_item(j->cli, "next:", "tally inspect %s", j->out);
    return TL_EXIT_OK;
}

static int run(tl_cli *cli) {
    static job j; /* zeroed; large enough that the stack is no place for it */
    const char *size = cli->own[OWN_SHARD_SIZE], *dtype = cli->own[OWN_DTYPE];
    j.cli = cli;
    j.from = cli->arguments[0];
    j.out = cli->own[OWN_OUT];
    j.dtype = TL_F32;
    if (!j.out)
        return tl_usage(cli, "--out FOLDER is needed: where the weights go");
    if (size && (tl_parse_bytes(size, &j.options.shard_bytes, &j.error) != TL_OK || j.options.shard_bytes < 1))
        return tl_usage(cli, "--shard-size: %s", j.error.message[0] ? j.error.message : "at least 1 B");
    find_checkpoint(&j);
    if ((j.checkpoint[0] ? describe_checkpoint(&j) : describe_files(&j)) != TL_OK)
        return tl_failed(cli, &j.error);
    j.options.convert = dtype != NULL;
    j.options.dtype = dtype ? tl_dtype_parse(dtype) : j.dtype;
    if (j.options.dtype == TL_DTYPE_COUNT || !tl_dtype_is_float(j.options.dtype) || tl_dtype_bytes(j.options.dtype) < 2)
        return tl_usage(cli, "--dtype \"%.60s\": f32, bf16 and f16 are written", dtype);
    if (through(&j) != TL_OK)
        return tl_failed(cli, &j.error);
    export_tokenizer(&j);
    return report(&j);
}

const tl_verb tl_verb_export = {
    .name = "export",
    .summary = "a run's weights as config.json and model.safetensors, for other tools",
    .group = TL_GROUP_AFTER,
    .arguments = "WHAT",
    .words = NULL,
    .details = "WHAT is a run's folder (its latest checkpoint), a checkpoint, or a model's\n"
               "folder or .safetensors file with its config.json beside it. The names, and\n"
               "GPT-2's transposed layers, are those of the published files.\n\n"
               "  tally export runs/a --out exported/a\n"
               "  tally export exported/a --out exported/a-bf16 --dtype bf16 --shard-size 5GB",
    .takes = 0,
    .does = {0},
    .own = own_options,
    .min_arguments = 1,
    .max_arguments = 1,
    .run = run,
};
