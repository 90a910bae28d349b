/* cli/eval_report.c: where an evaluation's tokens come from, and what tally eval shows. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "eval.h"

/* ---- the source ---- */

enum { TEXT_LIMIT = 256 << 20 };

static char *read_file(const char *path, size_t *bytes, tl_error *error) {
    struct stat st;
    FILE *file = fopen(path, "rb");
    if (!file || fstat(fileno(file), &st) != 0 || !S_ISREG(st.st_mode) || st.st_size > TEXT_LIMIT) {
        int reason = errno;
        if (file)
            fclose(file);
        tl_fail(error, file ? TL_ERR_FORMAT : TL_ERR_IO, "cannot read the text %s: %s", path,
                !file ? strerror(reason)
                      : "it is no file of at most 256 MiB; tally data pack makes token files of larger ones");
        return NULL;
    }
    char *text = malloc((size_t)st.st_size + 1);
    if (text)
        *bytes = fread(text, 1, (size_t)st.st_size, file);
    bool failed = text && ferror(file);
    fclose(file);
    if (failed) {
        free(text);
        text = NULL;
    }
    if (!text)
        tl_fail(error, failed ? TL_ERR_IO : TL_ERR_MEMORY, "cannot read the text %s", path);
    return text;
}

static int open_text(tl_evaluating *e, const char *path) {
    size_t bytes = 0;
    if (e->speller.kind == TL_SPELL_NONE)
        return tl_usage(e->cli, "--text needs a tokenizer, which %s does not say: --tokenizer names one",
                        e->opened.path);
    char *text = read_file(path, &bytes, &e->error);
    if (text)
        e->ids = tl_speller_encode(&e->speller, text, bytes, true, &e->available, &e->error);
    free(text);
    return e->ids ? TL_EXIT_OK : tl_failed(e->cli, &e->error);
}

int tl_evaluating_open(tl_evaluating *e, const char *data, const char *text, const char *dtype) {
    if (!data && !text && e->opened.val[0]) { /* a run's own */
        data = e->opened.val;
        dtype = dtype ? dtype : e->opened.data_dtype[0] ? e->opened.data_dtype : NULL;
        tl_notes_add(&e->assumed, "--data %.150s, what the run was validated on", data);
    }
    tl_tokens_options options = {.width = dtype && strcmp(dtype, "uint32") == 0 ? 4 : dtype ? 2 : 0};
    if (dtype && options.width == 2 && strcmp(dtype, "uint16") != 0)
        return tl_usage(e->cli, "--dtype \"%.40s\": uint16 or uint32 would work", dtype);
    if (dtype && !data)
        return tl_usage(e->cli, "--dtype is of --data; it would change nothing");
    if (data && text)
        return tl_usage(e->cli, "--data and --text exclude each other");
    e->source = data ? data : text ? text : "held-out sums";
    if (text)
        return open_text(e, text);
    if (data) {
        e->tokens = tl_tokens_open(&data, 1, &options, NULL, &e->error);
        if (!e->tokens)
            return tl_failed(e->cli, &e->error);
        e->available = tl_tokens_count(e->tokens);
        return TL_EXIT_OK;
    }
    if (strcmp(e->opened.task, "sums") != 0)
        return tl_usage(e->cli, "what to evaluate on is needed: --data FILE (tokens) or --text FILE");
    e->sums = tl_sums_new(NULL, 0, &e->error);
    if (!e->sums)
        return tl_failed(e->cli, &e->error);
    e->available = tl_sums_held_out_count(e->sums);
    return TL_EXIT_OK;
}

tl_status tl_evaluating_ids(void *user, int64_t first, int64_t count, int32_t *ids, tl_error *error) {
    tl_evaluating *e = user;
    if (e->tokens)
        return tl_tokens_read(e->tokens, first, count, e->opened.model.vocab, ids, error);
    memcpy(ids, e->ids + first, (size_t)count * sizeof *ids);
    return TL_OK;
}

tl_status tl_evaluating_sums(void *user, int64_t first, int64_t count, int32_t *input, int32_t *target,
                             tl_error *error) {
    tl_evaluating *e = user;
    (void)error;
    for (int64_t i = 0; i < count; i++) {
        int a, b;
        tl_sums_held_out(e->sums, first + i, &a, &b);
        tl_sums_encode(a, b, TL_SUMS_SEQ, input + i * TL_SUMS_SEQ, target + i * TL_SUMS_SEQ);
    }
    return TL_OK;
}

/* Bytes of all targets, by the tokenizer. */
static void count_bytes(tl_evaluating *e) {
    enum { PIECE = 4096 };
    int32_t ids[PIECE];
    int64_t tokens = e->plan_options.tokens;
    if (e->bytes_stated) {
        e->bytes = -1;
        return;
    }
    if (e->sums) {
        e->bytes = e->done.targets;
        return;
    }
    for (int64_t at = 1; at < tokens && e->bytes >= 0; at += PIECE) {
        int64_t n = tokens - at < PIECE ? tokens - at : PIECE;
        if (tl_evaluating_ids(e, at, n, ids, &e->error) != TL_OK)
            e->bytes = -1;
        for (int64_t i = 0; i < n && e->bytes >= 0; i++) {
            int64_t length = tl_speller_length(&e->speller, ids[i]);
            e->special += length == 0;
            e->bytes = length < 0 ? -1 : e->bytes + length;
        }
    }
    if (e->bytes < 0 && e->speller.kind != TL_SPELL_NONE)
        tl_notes_add(&e->leaves_out, "bits per byte: ids that %s does not have", tl_speller_name(&e->speller));
}

/* ---- the result ---- */

typedef struct result {
    double loss, perplexity, bits_per_byte, bytes; /* bits per byte 0: not known */
    double speed, mfu;                             /* mfu 0: not known */
    int64_t planned_peak, measured_peak;
    bool equal;
} result;

static result make_result(tl_evaluating *e) {
    const tl_infer_counts *c = &e->plan.evaluation.counts;
    result r = {.loss = e->done.nats / (double)e->done.targets};
    count_bytes(e);
    r.perplexity = exp(r.loss);
    r.bytes = e->bytes_stated ? e->bytes_per_token * (double)e->done.targets : (double)e->bytes;
    if (r.bytes > 0)
        r.bits_per_byte = e->done.nats / 0.69314718055994530942 / r.bytes;
    else if (e->speller.kind == TL_SPELL_NONE)
        tl_notes_add(&e->leaves_out, "bits per byte: the text's bytes are not known (--tokenizer, --bytes-per-token)");
    if (e->special)
        tl_notes_add(&e->assumed, "%lld special token%s for no byte; %s loss counts", (long long)e->special,
                     e->special == 1 ? " stands" : "s stand", e->special == 1 ? "its" : "their");
    r.speed = e->seconds > 0 ? (double)c->tokens / e->seconds : 0;
    r.planned_peak = c->peak_bytes;
    r.measured_peak = e->watch.bucket[0].peak_bytes;
    r.equal = tl_bucket_equals(&e->watch.bucket[0], c) && e->weights_bytes == e->plan.weights_bytes;
    tl_bound_here b = tl_bound_of(e->threads, e->opened.dtype, c->executed, 1, 0);
    if (b.known && e->seconds > 0)
        r.mfu = b.flop_seconds / e->seconds;
    else
        tl_notes_add(&e->leaves_out, "MFU: this machine was not measured (tally machine)");
    return r;
}

static int report_json(const tl_evaluating *e, const result *r) {
    const tl_eval_options *o = &e->plan_options.eval;
    char weights[64];
    tl_json *json = tl_cli_json_open(e->cli);
    if (!json)
        return TL_EXIT_FAILED;
    tl_json_put_string(json, "model", e->opened.model.name);
    tl_json_put_string(json, "path", e->opened.path);
    if (e->opened.step >= 0)
        tl_json_put_integer(json, "step", e->opened.step);
    tl_json_put_string(json, "source", e->source);
    tl_json_put_real(json, "loss", r->loss);
    tl_json_put_string(json, "loss_unit", "nats per token");
    tl_json_put_real(json, "perplexity", r->perplexity);
    if (r->bits_per_byte > 0) {
        tl_json_put_real(json, "bits_per_byte", r->bits_per_byte);
        tl_json_put_real(json, "bytes", r->bytes);
    }
    tl_json_put_integer(json, "targets", e->done.targets);
    tl_json_put_integer(json, "windows", e->done.windows);
    tl_json_put_integer(json, "seq", o->seq);
    tl_json_put_integer(json, "stride", o->stride);
    tl_json_put_integer(json, "batch", o->batch);
    if (e->sums) {
        tl_json_put_integer(json, "asked", e->score.asked);
        tl_json_put_integer(json, "right", e->score.right);
    }
    tl_json_key(json, "memory");
    tl_json_object(json);
    tl_json_put_string(json, "weights", tl_opened_weights(&e->opened, weights));
    tl_json_put_integer(json, "weights_bytes", e->weights_bytes);
    tl_json_put_integer(json, "planned_peak_bytes", r->planned_peak);
    tl_json_put_integer(json, "measured_peak_bytes", r->measured_peak);
    tl_json_end(json);
    tl_json_key(json, "flops");
    tl_json_object(json);
    tl_json_put_unsigned(json, "planned", e->plan.evaluation.counts.executed);
    tl_json_put_unsigned(json, "measured", e->watch.bucket[0].matmul);
    tl_json_put_unsigned(json, "per_token", e->done.counts.matmul / (tl_u128)e->done.counts.tokens);
    tl_json_put_string(json, "attention", "full");
    tl_json_end(json);
    tl_json_put_real(json, "seconds", e->seconds);
    tl_json_put_real(json, "tokens_per_second", r->speed);
    if (r->mfu > 0)
        tl_json_put_real(json, "mfu", r->mfu);
    tl_json_put_boolean(json, "planned_equals_measured", r->equal);
    tl_notes_json(json, "assumptions", &e->assumed);
    tl_notes_json(json, "leaves_out", &e->leaves_out);
    return tl_cli_json_close(e->cli, json);
}

static void out_windows(const tl_evaluating *e) {
    const tl_eval_options *o = &e->plan_options.eval;
    char targets[TL_TEXT];
    tl_text_grouped((tl_u128)e->done.targets, targets);
    if (e->sums) {
        tl_out_item(e->cli, "evaluated", "%s answer characters of %lld held-out sums, none of them trained on", targets,
                    (long long)e->done.windows);
        tl_out_item(e->cli, "exact", "%lld of %lld sums (%.2f %%), greedy", (long long)e->score.right,
                    (long long)e->score.asked, 100.0 * (double)e->score.right / (double)e->score.asked);
        return;
    }
    const char *how = o->stride == o->seq ? "side by side: a window's first target sees one token" : NULL;
    if (how || e->done.windows == 1)
        tl_out_item(e->cli, "evaluated", "%s targets in %lld window%s of %lld tokens%s%s", targets,
                    (long long)e->done.windows, e->done.windows == 1 ? "" : "s", (long long)o->seq,
                    e->done.windows == 1 ? "" : ", ", e->done.windows == 1 ? "" : how);
    else
        tl_out_item(e->cli, "evaluated",
                    "%s targets in %lld windows of %lld tokens every %lld: after the first window each target sees at "
                    "least %lld; %s tokens computed",
                    targets, (long long)e->done.windows, (long long)o->seq, (long long)o->stride,
                    (long long)(o->seq - o->stride + 1),
                    tl_text_grouped((tl_u128)e->done.counts.tokens, (char[TL_TEXT]){0}));
}

static void out_account(const tl_evaluating *e, const result *r) {
    char a[TL_TEXT], b[TL_TEXT], weights[64];
    tl_out_item(e->cli, "weights", "%s B, %s", tl_text_grouped((tl_u128)e->weights_bytes, a),
                tl_opened_weights(&e->opened, weights));
    if (r->equal)
        tl_out_item(e->cli, "account", "planned = measured: peak %s B, %s matmul FLOPs",
                    tl_text_grouped((tl_u128)r->measured_peak, a), tl_text_grouped(e->watch.bucket[0].matmul, b));
    else
        tl_out_item(e->cli, "account", "planned and measured DIFFER: peak %s B planned, %s B measured",
                    tl_text_grouped((tl_u128)r->planned_peak, a), tl_text_grouped((tl_u128)r->measured_peak, b));
    char mfu[64] = "";
    if (r->mfu > 0)
        snprintf(mfu, sizeof mfu, ", MFU %.3f (full attention)", r->mfu);
    tl_out_item(e->cli, "speed", "%s, %s tok/s%s", tl_text_duration(e->seconds, a), tl_text_count(r->speed, b), mfu);
}

int tl_evaluating_report(tl_evaluating *e) {
    result r = make_result(e);
    char answer[96], rest[256], step[48] = "";
    int status = TL_EXIT_OK;
    if (e->error.status != TL_OK)
        return tl_failed(e->cli, &e->error);
    if (!isfinite(r.loss)) { /* a number that is none is no result */
        tl_say(e->cli,
               "the loss of %s is not finite on %s: its weights or what they give have run away; `tally sample' "
               "says of which token, an earlier checkpoint may be whole",
               e->opened.path, e->source);
        return TL_EXIT_FAILED;
    }
    if (e->cli->format == TL_FORMAT_JSON) {
        status = report_json(e, &r);
    } else {
        snprintf(answer, sizeof answer, "loss %.4f", r.loss);
        int n = snprintf(rest, sizeof rest, "nats per token   perplexity %.4g", r.perplexity);
        if (r.bits_per_byte > 0)
            snprintf(rest + n, sizeof rest - (size_t)n, "   %.4f bits per byte", r.bits_per_byte);
        tl_out_answer(e->cli, answer, rest);
        if (e->opened.step >= 0)
            snprintf(step, sizeof step, ", step %lld", (long long)e->opened.step);
        tl_out_item(e->cli, "model", "%s (%s%s)", e->opened.model.name, e->opened.path, step);
        tl_out_item(e->cli, "on", "%s", e->source);
        out_windows(e);
        out_account(e, &r);
        tl_notes_out(e->cli, "assumed", &e->assumed);
        tl_notes_out(e->cli, "leaves out", &e->leaves_out);
    }
    return status == TL_EXIT_OK && !r.equal ? TL_EXIT_VIOLATED : status;
}
