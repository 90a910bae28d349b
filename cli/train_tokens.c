/* cli/train_tokens.c: the task `tokens': files of tokens, read ahead by threads of their own; a validation loss. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data.h"
#include "tally/infer.h"
#include "train.h"

enum { SLOTS = 2 };

typedef struct tl_tokens_task {
    tl_tokens *train, *val; /* val NULL: none */
    tl_sampler_options sampler;
    tl_reader *reader;
    int64_t readers, eval_batches, separator;
    bool locked, vocab_derived, vocab_noted; /* the vocabulary: the largest id + 1; as pack noted */
    tl_sidecar noted[2];                     /* beside train and val */
    int64_t *starts[2], n_starts[2]; /* where their documents begin, where no separator says it; NULL: not known */
    double loss;                     /* of the last examination: nats a token */
    int64_t examined;
} tl_tokens_task;

static int open_stream(const tl_train *t, const char *path, tl_tokens **tokens) {
    tl_tokens_options options;
    tl_error error = {TL_OK, ""};
    const char *form = t->texts[TL_SET_DATA_FORM], *dtype = t->texts[TL_SET_DATA_DTYPE];
    const int status = tl_data_options(t->cli, form[0] ? form : NULL, dtype[0] ? dtype : NULL, &options);
    if (status != TL_EXIT_OK)
        return status;
    *tokens = tl_tokens_open(&path, 1, &options, NULL, &error);
    return *tokens ? TL_EXIT_OK : tl_failed(t->cli, &error);
}

/* One more than the largest id, for a model that is made to measure. */
static int derive_vocab(tl_train *t, tl_tokens_task *k) {
    const tl_token_scan_options how = {.separator = -1};
    for (int i = 0; i < 2; i++) {
        const tl_tokens *tokens = i ? k->val : k->train;
        tl_token_scan scan;
        tl_error error = {TL_OK, ""};
        if (!tokens)
            continue;
        if (tl_tokens_scan(tokens, &how, &scan, &error) != TL_OK)
            return tl_failed(t->cli, &error);
        if (scan.bad) {
            tl_say(t->cli, "%s", scan.problem);
            return TL_EXIT_FAILED;
        }
        t->vocab = scan.count && scan.most >= t->vocab ? scan.most + 1 : t->vocab;
    }
    k->vocab_derived = true;
    return TL_EXIT_OK;
}

static bool says_vocab(const char *model) {
    const char *colon = strchr(model, ':');
    return !colon || strstr(model, ":V=") || strstr(model, ",V=");
}

static int read_settings(tl_train *t, tl_tokens_task *k) {
    static const char *const samplers[] = {"random", "epochs"}; /* in the order of tl_sampler_kind */
    const char *sampler = t->texts[TL_SET_SAMPLER], *lock = t->texts[TL_SET_LOCK_BATCHES];
    k->sampler = (tl_sampler_options){.seed = t->seed_data, .separator = -1};
    if (strcmp(sampler, samplers[1]) == 0)
        k->sampler.kind = TL_SAMPLER_EPOCHS;
    else if (strcmp(sampler, samplers[0]) != 0)
        return tl_setting_failed(t, TL_SET_SAMPLER, " %.60s: random and epochs would work", sampler);
    if (strcmp(lock, "yes") != 0 && strcmp(lock, "no") != 0)
        return tl_setting_failed(t, TL_SET_LOCK_BATCHES, " %.60s: yes and no would work", lock);
    k->locked = strcmp(lock, "yes") == 0;
    int status = TL_EXIT_OK;
    if (strcmp(t->texts[TL_SET_SEPARATOR], "none") != 0)
        status = tl_setting_whole(t, TL_SET_SEPARATOR, 0, INT32_MAX, &k->sampler.separator);
    status = status ? status : tl_setting_whole(t, TL_SET_VOCAB, 1, INT32_MAX, &t->vocab);
    status = status ? status : tl_setting_whole(t, TL_SET_EVAL_BATCHES, 1, INT32_MAX, &k->eval_batches);
    status = status ? status : tl_setting_whole(t, TL_SET_READERS, 0, 64, &k->readers);
    k->sampler.ignore_boundaries = k->sampler.separator >= 0;
    if (status == TL_EXIT_OK && t->eval_every && !t->texts[TL_SET_VAL][0])
        return tl_usage(t->cli, "--eval-every needs --val FILE, tokens that are not trained on");
    return status;
}

/* A tokenizer that was named; its hash goes into run.json beside its name. */
static int name_tokenizer(tl_train *t, const tl_tokens_task *k) {
    static char path[TL_DATA_PATH];
    char *text = t->texts[TL_SET_TOKENIZER];
    tl_error error = {TL_OK, ""};
    if (!tl_tokenizer_absolute(text, path) || strlen(path) >= sizeof t->texts[0])
        return tl_usage(t->cli, "--tokenizer: a path of less than %zu bytes would work", sizeof t->texts[0]);
    tl_tokenizer *tokenizer = tl_tokenizer_open(path, NULL, &error);
    if (!tokenizer)
        return tl_failed(t->cli, &error);
    memcpy(text, path, strlen(path) + 1); /* fits, as was seen above */
    tl_tokenizer_hash(tokenizer, t->tokenizer_hash);
    const int64_t size = tl_tokenizer_size(tokenizer);
    tl_tokenizer_free(tokenizer);
    if (k->noted[0].there && strcmp(k->noted[0].hash, t->tokenizer_hash) != 0)
        return tl_usage(t->cli, "--tokenizer %.120s is not the one that %s names, %.120s", text, k->noted[0].path,
                        k->noted[0].tokenizer);
    if (t->vocab && t->vocab < size)
        return tl_usage(t->cli, "--vocab %lld: %.120s has %lld ids", (long long)t->vocab, text, (long long)size);
    t->vocab = t->vocab ? t->vocab : size;
    return TL_EXIT_OK;
}

/* What pack noted stands in for what was not given: vocabulary, separator and tokenizer. A run that goes on has it all. */
static int take_notes(tl_train *t, tl_tokens_task *k) {
    tl_error error = {TL_OK, ""};
    const tl_sidecar *s = &k->noted[0];
    tl_status status = tl_sidecar_read(k->train, &k->noted[0], &error);
    if (status == TL_OK && k->val)
        status = tl_sidecar_read(k->val, &k->noted[1], &error);
    if (status == TL_OK)
        status = tl_sidecar_agree(&k->noted[0], &k->noted[1], &error);
    if (status != TL_OK)
        return tl_failed(t->cli, &error);
    if (t->resume)
        return TL_EXIT_OK;
    if (t->texts[TL_SET_TOKENIZER][0]) {
        const int code = name_tokenizer(t, k);
        if (code != TL_EXIT_OK)
            return code;
    }
    if (!s->there)
        return TL_EXIT_OK;
    if (!t->vocab) {
        t->vocab = s->vocab;
        k->vocab_noted = true;
    }
    if (!t->texts[TL_SET_SEPARATOR][0] && s->separator >= 0) {
        k->sampler.separator = s->separator;
        snprintf(t->texts[TL_SET_SEPARATOR], sizeof t->texts[0], "%lld", (long long)s->separator);
    }
    k->sampler.ignore_boundaries = k->sampler.separator >= 0;
    if (!t->texts[TL_SET_TOKENIZER][0] && strlen(s->tokenizer) >= sizeof t->texts[0])
        tl_note(t->cli,
                "the path of the tokenizer that %.200s names is too long to be kept: sample and eval need --tokenizer",
                s->path);
    else if (!t->texts[TL_SET_TOKENIZER][0]) {
        snprintf(t->texts[TL_SET_TOKENIZER], sizeof t->texts[0], "%.*s", (int)sizeof t->texts[0] - 1, s->tokenizer);
        snprintf(t->tokenizer_hash, sizeof t->tokenizer_hash, "%s", s->hash);
    }
    return TL_EXIT_OK;
}

/* Where documents begin where no id between them says it: as given, else as pack noted. */
static int take_starts(tl_train *t, tl_tokens_task *k) {
    const char *file = t->texts[TL_SET_BOUNDARIES], *separator = t->texts[TL_SET_SEPARATOR];
    tl_error error = {TL_OK, ""};
    tl_status status = TL_OK;
    if (file[0] && separator[0] && strcmp(separator, "none") != 0)
        return tl_usage(t->cli, "--boundaries and --separator %.40s: one of them says where documents end", separator);
    if (file[0])
        status = tl_starts_from_npy(file, &k->starts[0], &k->n_starts[0], &error);
    else if (!separator[0])
        status = tl_sidecar_starts(k->train, &k->starts[0], &k->n_starts[0], &error);
    if (status == TL_OK && k->val && k->starts[0])
        status = tl_sidecar_starts(k->val, &k->starts[1], &k->n_starts[1], &error);
    k->sampler.documents = k->starts[0];
    k->sampler.document_count = k->n_starts[0];
    k->sampler.ignore_boundaries = k->sampler.ignore_boundaries || k->starts[0];
    return status == TL_OK ? TL_EXIT_OK : tl_failed(t->cli, &error);
}

static int open_tokens(tl_train *t) {
    tl_tokens_task *k = calloc(1, sizeof *k);
    t->task_data = k;
    if (!k) {
        tl_say(t->cli, "out of memory");
        return TL_EXIT_FAILED;
    }
    int status = read_settings(t, k);
    if (status == TL_EXIT_OK && !t->texts[TL_SET_DATA][0])
        status = tl_usage(t->cli, "the task tokens needs \"data\": a file of tokens, a folder or a pattern");
    if (status == TL_EXIT_OK)
        status = open_stream(t, t->texts[TL_SET_DATA], &k->train);
    if (status == TL_EXIT_OK && t->texts[TL_SET_VAL][0])
        status = open_stream(t, t->texts[TL_SET_VAL], &k->val);
    if (status == TL_EXIT_OK)
        status = take_notes(t, k);
    if (status == TL_EXIT_OK)
        status = take_starts(t, k);
    if (status == TL_EXIT_OK && !t->vocab && !t->model_path[0] && !says_vocab(t->texts[TL_SET_MODEL]))
        status = derive_vocab(t, k);
    t->vocab = t->vocab ? t->vocab : 1; /* a model that says its own is held against the ids as they are read */
    t->plan.prefetch = SLOTS;
    return status;
}

/* Below what the ids must be: --vocab where it is narrower than the model, whose own is often padded. */
static int64_t vocab_of_ids(const tl_train *t) {
    const bool stated = t->texts[TL_SET_VOCAB][0] != '\0';
    return stated && t->vocab < t->model.vocab ? t->vocab : t->model.vocab;
}

/* What only shows once the model, and with it the length of a window, is known. */
static tl_status sampler_of(const tl_train *t, const tl_tokens *tokens, tl_sampler_kind kind, tl_sampler *sampler,
                            tl_error *error) {
    const tl_tokens_task *k = t->task_data;
    tl_sampler_options o = k->sampler;
    o.kind = kind;
    o.seq = t->plan.seq;
    o.vocab = vocab_of_ids(t);
    if (tokens == k->val && k->starts[0]) { /* the training stream's are not its own */
        o.documents = k->starts[1];
        o.document_count = k->n_starts[1];
        o.ignore_boundaries = k->starts[1] != NULL;
    }
    return tl_sampler_init(sampler, tokens, &o, error);
}

static tl_status check_tokens(const tl_train *t, tl_error *error) {
    const tl_tokens_task *k = t->task_data;
    tl_sampler sampler;
    if (t->plan.choices.documents && !k->sampler.ignore_boundaries)
        return tl_fail(
            error, TL_ERR_ARGUMENT,
            "--documents masked: where documents end is not known; --separator ID names the id that ends one, "
            "and tokens that `tally data pack' made have noted it");
    if (t->plan.choices.documents && k->val && k->starts[0] && !k->starts[1])
        return tl_fail(error, TL_ERR_ARGUMENT,
                       "--documents masked: where the documents of --val %.300s begin is not known; packing it with "
                       "`tally data pack' notes it",
                       t->texts[TL_SET_VAL]);
    const tl_status status = sampler_of(t, k->train, k->sampler.kind, &sampler, error);
    return status == TL_OK && k->val ? sampler_of(t, k->val, TL_SAMPLER_IN_ORDER, &sampler, error) : status;
}

static tl_status start_tokens(tl_train *t, tl_ctx *ctx, tl_trainer *trainer, uint64_t position, tl_error *error) {
    tl_tokens_task *k = t->task_data;
    tl_reader_options o = {.sampler = k->sampler,
                           .micro_batch = t->plan.micro_batch,
                           .accumulation = t->plan.global_batch ? t->plan.global_batch / t->plan.micro_batch : 1,
                           .threads = (int)k->readers,
                           .slots = SLOTS,
                           .locked = k->locked,
                           .positions = t->plan.choices.documents,
                           .position = position,
                           .ring = tl_trainer_ring(trainer)};
    o.sampler.seq = t->plan.seq;
    o.sampler.vocab = vocab_of_ids(t);
    k->reader = tl_reader_new(ctx, k->train, &o);
    return k->reader ? TL_OK : tl_fail(error, tl_ctx_status(ctx), "%s", tl_ctx_error(ctx)->message);
}

static tl_status next_tokens(tl_train *t, tl_ctx *ctx, const tl_train_options *o, tl_batch *batch) {
    const tl_tokens_task *k = t->task_data;
    tl_token_batch next;
    (void)ctx;
    (void)o;
    const tl_status status = tl_reader_next(k->reader, &next);
    *batch = (tl_batch){next.input, next.target, next.counted, next.total, next.positions};
    return status;
}

static double waited_for_tokens(const tl_train *t) {
    const tl_tokens_task *k = t->task_data;
    return tl_reader_waited(k->reader);
}

static uint64_t position_of_tokens(const tl_train *t) {
    const tl_tokens_task *k = t->task_data;
    return tl_reader_position(k->reader);
}

/* ---- the validation loss ---- */

static tl_status next_rows(void *user, int64_t first, int64_t rows, int32_t *input, int32_t *target, tl_error *error) {
    const tl_sampler *s = user;
    const int64_t T = s->options.seq;
    tl_status status = TL_OK;
    for (int64_t r = 0; r < rows && status == TL_OK; r++)
        status = tl_sampler_window(s, (uint64_t)(first + r), input + r * T, target + r * T, error);
    return status;
}

static void positions_of_rows(void *user, int64_t first, int64_t rows, const int32_t *input, int32_t *positions) {
    const tl_sampler *s = user;
    const int64_t T = s->options.seq;
    for (int64_t r = 0; r < rows; r++)
        tl_sampler_positions(s, (uint64_t)(first + r), input + r * T, positions + r * T);
}

/* The same windows each time, so that the losses of a run compare. */
static tl_status examine(tl_train *t, tl_ctx *ctx, tl_net *net, bool last, tl_error *error) {
    tl_tokens_task *k = t->task_data;
    const tl_eval_options o = {.seq = t->plan.seq,
                               .batch = t->plan.micro_batch,
                               .positions = t->plan.choices.documents ? positions_of_rows : NULL};
    tl_evaluation result;
    tl_sampler s;
    (void)last;
    if (!k->val)
        return TL_OK;
    tl_status status = sampler_of(t, k->val, TL_SAMPLER_IN_ORDER, &s, error);
    if (status != TL_OK)
        return status;
    const int64_t most = k->eval_batches * o.batch, windows = s.windows < most ? s.windows : most;
    status = tl_evaluate_rows(net, windows, next_rows, &s, &o, &result);
    if (status != TL_OK)
        return tl_fail(error, status, "%s", tl_ctx_error(ctx)->message);
    t->examined_peak = result.counts.peak_bytes;
    if (tl_ctx_is_meta(ctx))
        return TL_OK;
    if (result.targets == 0)
        return tl_fail(error, TL_ERR_ARGUMENT, "%s: no target counts in %lld windows", t->texts[TL_SET_VAL],
                       (long long)windows);
    k->loss = result.nats / (double)result.targets;
    k->examined = result.targets;
    t->has_validation_loss = true;
    t->validation_loss = k->loss;
    return TL_OK;
}

static bool is_examined(const tl_train *t) { return ((const tl_tokens_task *)t->task_data)->examined > 0; }

static void say_result(const tl_train *t, int64_t step) {
    tl_note(t->cli, "step %lld: validation loss %.4f", (long long)step, t->validation_loss);
}

/* Of the validation text, by its own bytes a token; 0: not known. */
static double bits_per_byte(const tl_tokens_task *k) {
    const tl_sidecar *s = &k->noted[1];
    return s->text_bytes > 0 ? k->loss / log(2) * (double)s->tokens / (double)s->text_bytes : 0;
}

static void put_result(const tl_train *t, tl_json *json) {
    const tl_tokens_task *k = t->task_data;
    tl_json_put_string(json, "path", t->texts[TL_SET_VAL]);
    tl_json_put_real(json, "loss", k->loss);
    tl_json_put_real(json, "perplexity", exp(k->loss));
    if (bits_per_byte(k) > 0)
        tl_json_put_real(json, "bits_per_byte", bits_per_byte(k));
    tl_json_put_integer(json, "targets", k->examined);
}

static void out_result(const tl_train *t) {
    const tl_tokens_task *k = t->task_data;
    char digits[TL_TEXT], bits[48] = "";
    if (bits_per_byte(k) > 0)
        snprintf(bits, sizeof bits, ", %.3f bits per byte", bits_per_byte(k));
    tl_out_item(t->cli, "validation", "loss %.4f, perplexity %.4g%s, over %s tokens of %s", k->loss, exp(k->loss), bits,
                tl_text_grouped((tl_u128)k->examined, digits), t->texts[TL_SET_VAL]);
}

static void out_data(const tl_train *t) {
    const tl_tokens_task *k = t->task_data;
    const tl_token_file *f = tl_tokens_file(k->train, 0);
    const int64_t n = tl_tokens_count(k->train);
    const double step =
        (double)(t->plan.global_batch ? t->plan.global_batch : t->plan.micro_batch) * (double)t->plan.seq / (double)n;
    const double epochs = t->time_decides ? 1 / step : (double)t->steps * step;
    char digits[TL_TEXT], val[TL_TEXT];
    tl_out_item(t->cli, "data", "%s: %s tokens, %s of %s%s%s", t->texts[TL_SET_DATA],
                tl_text_grouped((tl_u128)n, digits), tl_token_form_name(f->form), tl_token_file_dtype(f),
                f->inferred ? ", inferred: " : "", f->inferred ? f->evidence : "");
    const char *order = k->sampler.kind == TL_SAMPLER_RANDOM ? "drawn at random, with replacement"
                                                             : "each once an epoch, in a random order";
    if (t->time_decides)
        tl_out_item(t->cli, "windows", "%lld tokens, %s; %.3g steps are once the data", (long long)t->plan.seq, order,
                    epochs);
    else
        tl_out_item(t->cli, "windows", "%lld tokens, %s; %lld steps are %.3g times the data", (long long)t->plan.seq,
                    order, (long long)t->steps, epochs);
    if (k->vocab_derived)
        tl_out_item(t->cli, "vocabulary", "%lld, one more than the largest id", (long long)t->vocab);
    if (k->vocab_noted)
        tl_out_item(t->cli, "vocabulary", "%lld, as %s says", (long long)t->vocab, k->noted[0].path);
    if (t->texts[TL_SET_TOKENIZER][0])
        tl_out_item(t->cli, "tokenizer", "%s", t->texts[TL_SET_TOKENIZER]);
    char ends[96];
    if (k->starts[0])
        snprintf(ends, sizeof ends, "%lld, each of which has its place noted: the first token is",
                 (long long)k->n_starts[0]);
    else
        snprintf(ends, sizeof ends, "end with %lld: the token behind it is", (long long)k->sampler.separator);
    if (k->sampler.ignore_boundaries)
        tl_out_item(t->cli, "documents", "%s no target; %s", ends,
                    t->plan.choices.documents ? "attention and positions begin anew (--documents masked)"
                                              : "attention reaches back across it (--documents joined)");
    if (k->val)
        tl_out_item(t->cli, "validation", "%s: %s tokens", t->texts[TL_SET_VAL],
                    tl_text_grouped((tl_u128)tl_tokens_count(k->val), val));
}

static void say_data(const tl_train *t) {
    const tl_tokens_task *k = t->task_data;
    const tl_token_file *f = tl_tokens_file(k->train, 0);
    char digits[TL_TEXT];
    tl_note(t->cli, "%s: %s tokens of %s%s, vocabulary %lld%s; windows of %lld, %s", t->texts[TL_SET_DATA],
            tl_text_grouped((tl_u128)tl_tokens_count(k->train), digits), tl_token_file_dtype(f),
            f->inferred ? " (inferred)" : "", (long long)vocab_of_ids(t),
            k->vocab_derived ? " (largest id + 1)"
            : k->vocab_noted ? " (as packed)"
                             : "",
            (long long)t->plan.seq, k->sampler.kind == TL_SAMPLER_RANDOM ? "at random" : "in epochs");
}

static void close_tokens(tl_train *t) {
    tl_tokens_task *k = t->task_data;
    if (k) {
        tl_tokens_close(k->train);
        tl_tokens_close(k->val);
        free(k->starts[0]);
        free(k->starts[1]);
    }
    free(k);
    t->task_data = NULL;
}

static void stop_tokens(tl_train *t) {
    tl_tokens_task *k = t->task_data;
    tl_reader_free(k->reader); /* it reads the streams and writes into the trainer's ring */
    k->reader = NULL;
}

const tl_task tl_task_tokens = {.name = "tokens",
                                .least_seq = 1,
                                .open = open_tokens,
                                .check = check_tokens,
                                .start = start_tokens,
                                .batch = next_tokens,
                                .waited = waited_for_tokens,
                                .position = position_of_tokens,
                                .examine = examine,
                                .is_examined = is_examined,
                                .say_result = say_result,
                                .put_result = put_result,
                                .out_result = out_result,
                                .out_data = out_data,
                                .say_data = say_data,
                                .stop = stop_tokens,
                                .close = close_tokens};
