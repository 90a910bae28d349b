/* cli/sample_report.c: what tally sample shows. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sample.h"

/* ---- the text ---- */

/* On a terminal nothing a model writes may move the cursor or ring the bell: it is shown as \xNN. A pipe gets the bytes. */
static void show(const char *bytes, size_t count) {
    if (isatty(STDOUT_FILENO) != 1) {
        fwrite(bytes, 1, count, stdout);
    } else {
        char one[3] = "";
        for (size_t i = 0; i < count; i++) {
            one[0] = bytes[i];
            one[1] = i + 1 < count ? bytes[i + 1] : '\0';
            int control = bytes[i] == '\t' ? 0 : tl_text_control(one);
            if (control)
                printf("\\x%02x", (unsigned char)bytes[i + (size_t)control - 1]);
            else
                putchar(bytes[i]);
            i += control > 1;
        }
    }
    fflush(stdout);
}

static void keep(tl_sampling *s, const char *bytes, size_t count) {
    if (s->length + count + 1 > s->capacity) {
        size_t wanted = 2 * (s->length + count) + 64;
        char *grown = realloc(s->text, wanted);
        if (!grown) {
            s->out_of_memory = true;
            return;
        }
        s->text = grown;
        s->capacity = wanted;
    }
    memcpy(s->text + s->length, bytes, count);
    s->length += count;
    s->text[s->length] = '\0';
}

/* Whole characters are shown at once; the beginning of one waits for the rest. */
void tl_sampling_put(tl_sampling *s, int32_t token) {
    char buffer[32];
    size_t count = 0;
    const char *bytes = tl_speller_bytes(&s->speller, s->n_ids == 1, token, buffer, &count);
    keep(s, bytes, count);
    if (s->out_of_memory || s->cli->format == TL_FORMAT_JSON)
        return;
    size_t whole = tl_token_text_whole(s->text + s->shown, s->length - s->shown);
    show(s->text + s->shown, whole);
    s->shown += whole;
}

void tl_sampling_flush(tl_sampling *s) {
    if (s->cli->format != TL_FORMAT_JSON && s->length > s->shown)
        show(s->text + s->shown, s->length - s->shown);
    s->shown = s->length;
}

void tl_sampling_free(tl_sampling *s) {
    free(s->text);
    free(s->prompt);
    free(s->ids);
}

/* ---- the account ---- */

void tl_sampling_announce(const tl_sampling *s) {
    char parameters[TL_TEXT], peak[TL_TEXT], weights[64], step[48] = "";
    tl_parameter_count count;
    tl_net_count(s->net, &count);
    if (s->opened.step >= 0)
        snprintf(step, sizeof step, ", step %lld", (long long)s->opened.step);
    tl_note(s->cli, "%s%s | %s parameters, %s | %d thread%s, %s | planned peak %s", s->opened.path, step,
            tl_text_count((double)count.unique, parameters), tl_opened_weights(&s->opened, weights), s->threads,
            s->threads == 1 ? "" : "s", tl_ctx_device(s->watch.ctx),
            tl_text_bytes((double)s->plan.peak_bytes, s->cli->units, peak));
}

typedef struct speeds {
    double prefill, decode; /* tokens/s; 0: none */
    double prefill_seconds, decode_seconds;
    tl_u128 bytes; /* of the last step of decoding */
    tl_bound_here bound;
    bool equal;
} speeds;

static speeds measure(const tl_sampling *s) {
    speeds v = {.prefill_seconds = s->first_token - s->started, .decode_seconds = s->last_token - s->first_token};
    const tl_infer_counts *d = &s->done.decode;
    if (v.prefill_seconds > 0)
        v.prefill = (double)s->n_prompt / v.prefill_seconds;
    if (d->forwards > 0 && v.decode_seconds > 0)
        v.decode = (double)d->forwards / v.decode_seconds;
    v.bytes = d->last_read + d->last_written;
    v.bound = tl_bound_of(s->threads, s->opened.dtype, d->last_matmul, v.bytes, s->weights_bytes + s->cache_bytes);
    v.equal = tl_bucket_equals(&s->watch.bucket[0], &s->plan.generation.prefill) &&
              tl_bucket_equals(&s->watch.bucket[1], &s->plan.generation.decode) &&
              s->weights_bytes == s->plan.weights_bytes && s->cache_bytes == s->plan.cache_bytes;
    return v;
}

static int64_t measured_peak(const tl_sampling *s) {
    int64_t a = s->watch.bucket[0].peak_bytes, b = s->watch.bucket[1].peak_bytes;
    return a > b ? a : b;
}

static int64_t planned_peak(const tl_sampling *s) {
    int64_t a = s->plan.generation.prefill.peak_bytes, b = s->plan.generation.decode.peak_bytes;
    return a > b ? a : b;
}

static void say_memory(const tl_sampling *s) {
    char a[TL_TEXT], b[TL_TEXT], weights[64];
    const tl_cli *cli = s->cli;
    const tl_model *m = &s->opened.model;
    bool same = s->cache_bytes == s->plan.cache_bytes;
    tl_infer_say(cli, "weights", "%s B, %s", tl_text_grouped((tl_u128)s->weights_bytes, a),
                 tl_opened_weights(&s->opened, weights));
    tl_infer_say(cli, "cache", "%s B planned, %s B measured%s", tl_text_grouped((tl_u128)s->plan.cache_bytes, a),
                 tl_text_grouped((tl_u128)s->cache_bytes, b), same ? "" : ": DIFFERENT");
    const tl_u128 product = (tl_u128)2 * (tl_u128)m->layers * (tl_u128)s->plan_options.capacity * (tl_u128)m->kv_heads *
                            (tl_u128)m->head_size * (tl_u128)tl_dtype_bytes(s->plan_options.cache_dtype);
    if (product != (tl_u128)s->plan.cache_bytes) /* it explains what meta allocated; it never stands in for it */
        return;
    tl_infer_say(cli, "", "2 * N * S * G * K * size = 2 * %lld * %lld * %lld * %lld * %d", (long long)m->layers,
                 (long long)s->plan_options.capacity, (long long)m->kv_heads, (long long)m->head_size,
                 tl_dtype_bytes(s->plan_options.cache_dtype));
}

static void say_account(const tl_sampling *s, const speeds *v) {
    char a[TL_TEXT], b[TL_TEXT];
    const tl_cli *cli = s->cli;
    tl_u128 flops = s->watch.bucket[0].matmul + s->watch.bucket[1].matmul;
    if (v->equal)
        tl_infer_say(cli, "account", "planned = measured: peak %s B, %s matmul FLOPs",
                     tl_text_grouped((tl_u128)measured_peak(s), a), tl_text_grouped(flops, b));
    else
        tl_infer_say(cli, "account", "planned and measured DIFFER: peak %s B planned, %s B measured",
                     tl_text_grouped((tl_u128)planned_peak(s), a), tl_text_grouped((tl_u128)measured_peak(s), b));
}

static void say_speed(const tl_sampling *s, const speeds *v) {
    char a[TL_TEXT], b[TL_TEXT], c[TL_TEXT];
    const tl_cli *cli = s->cli;
    tl_infer_say(cli, "prefill", "%lld token%s in %s: %s tok/s", (long long)s->n_prompt, s->n_prompt == 1 ? "" : "s",
                 tl_text_duration(v->prefill_seconds, a), tl_text_count(v->prefill, b));
    if (s->done.decode.forwards == 0)
        return;
    tl_infer_say(cli, "decode", "%lld token%s in %s: %s tok/s", (long long)s->done.decode.forwards,
                 s->done.decode.forwards == 1 ? "" : "s", tl_text_duration(v->decode_seconds, a),
                 tl_text_count(v->decode, b));
    tl_infer_say(cli, "a token", "%s moved, %s: %.2g FLOP/B", tl_text_bytes(tl_u128_double(v->bytes), cli->units, a),
                 tl_text_flops(tl_u128_double(s->done.decode.last_matmul), b),
                 tl_u128_double(s->done.decode.last_matmul) / tl_u128_double(v->bytes));
    if (!v->bound.known) {
        tl_infer_say(cli, "bound by", "not known: `tally machine' measures this one");
        return;
    }
    double floor = v->bound.byte_seconds > v->bound.flop_seconds ? v->bound.byte_seconds : v->bound.flop_seconds;
    if (v->bound.byte_seconds > v->bound.flop_seconds)
        tl_infer_say(cli, "bound by", "memory (%s, %s): at most %s tok/s, %.0f %% of it reached", v->bound.level,
                     tl_text_bandwidth(v->bound.bandwidth, a), tl_text_count(1 / floor, b), 100 * v->decode * floor);
    else
        tl_infer_say(cli, "bound by", "compute (%s): at most %s tok/s, %.0f %% of it reached",
                     tl_text_rate(v->bound.peak, c), tl_text_count(1 / floor, b), 100 * v->decode * floor);
}

/* ---- JSON ---- */

static void put_ids(tl_json *json, const char *key, const int32_t *ids, int64_t count) {
    tl_json_key(json, key);
    tl_json_array(json);
    for (int64_t i = 0; i < count; i++)
        tl_json_integer(json, ids[i]);
    tl_json_end(json);
}

static void put_part(tl_json *json, const char *key, const tl_infer_counts *planned, const tl_bucket *measured,
                     double seconds, double speed) {
    tl_json_key(json, key);
    tl_json_object(json);
    tl_json_put_integer(json, "tokens", planned->tokens);
    tl_json_put_real(json, "seconds", seconds);
    tl_json_put_real(json, "tokens_per_second", speed);
    tl_json_put_unsigned(json, "planned_flops", planned->executed);
    tl_json_put_unsigned(json, "measured_flops", measured->matmul);
    if (strcmp(key, "decode") == 0 && planned->forwards) {
        tl_json_put_unsigned(json, "flops_per_token", planned->last_matmul);
        tl_json_put_unsigned(json, "bytes_per_token", planned->last_read + planned->last_written);
    }
    tl_json_end(json);
}

static void put_memory(tl_json *json, const tl_sampling *s) {
    const tl_model *m = &s->opened.model;
    char weights[64];
    tl_json_key(json, "memory");
    tl_json_object(json);
    tl_json_put_string(json, "weights", tl_opened_weights(&s->opened, weights));
    tl_json_put_integer(json, "weights_bytes", s->weights_bytes);
    tl_json_put_integer(json, "cache_bytes", s->cache_bytes);
    tl_json_key(json, "cache");
    tl_json_object(json);
    tl_json_put_integer(json, "layers", m->layers);
    tl_json_put_integer(json, "batch", 1);
    tl_json_put_integer(json, "positions", s->plan_options.capacity);
    tl_json_put_integer(json, "kv_heads", m->kv_heads);
    tl_json_put_integer(json, "head_size", m->head_size);
    tl_json_put_string(json, "dtype", tl_dtype_name(s->plan_options.cache_dtype));
    tl_json_put_integer(json, "bytes_per_position", s->plan.position_bytes);
    tl_json_put_integer(json, "window_bytes", s->plan.window_bytes);
    tl_json_end(json);
    tl_json_put_integer(json, "planned_peak_bytes", planned_peak(s));
    tl_json_put_integer(json, "measured_peak_bytes", measured_peak(s));
    tl_json_end(json);
}

static int report_json(const tl_sampling *s, const speeds *v) {
    tl_notes leaves = {0};
    tl_json *json = tl_cli_json_open(s->cli);
    if (!json)
        return TL_EXIT_FAILED;
    tl_json_put_string(json, "model", s->opened.model.name);
    tl_json_put_string(json, "path", s->opened.path);
    if (s->opened.step >= 0)
        tl_json_put_integer(json, "step", s->opened.step);
    put_ids(json, "prompt_ids", s->prompt, s->n_prompt);
    put_ids(json, "ids", s->ids, s->n_ids);
    if (s->speller.kind != TL_SPELL_NONE)
        tl_json_put_string(json, "text", s->text ? s->text : "");
    tl_json_put_string(json, "stopped", s->done.ended ? "end of text" : "tokens");
    tl_json_put_unsigned(json, "seed", s->options.sample.seed);
    put_memory(json, s);
    put_part(json, "prefill", &s->plan.generation.prefill, &s->watch.bucket[0], v->prefill_seconds, v->prefill);
    put_part(json, "decode", &s->plan.generation.decode, &s->watch.bucket[1], v->decode_seconds, v->decode);
    if (v->bound.known && s->done.decode.forwards)
        tl_json_put_string(json, "bound", v->bound.byte_seconds > v->bound.flop_seconds ? "memory" : "compute");
    else if (!v->bound.known)
        tl_notes_add(&leaves, "bound: this machine was not measured (tally machine)");
    if (s->speller.kind == TL_SPELL_NONE)
        tl_notes_add(&leaves, "text: no tokenizer is known");
    tl_json_put_boolean(json, "planned_equals_measured", v->equal);
    tl_notes_json(json, "leaves_out", &leaves);
    return tl_cli_json_close(s->cli, json);
}

int tl_sampling_report(tl_sampling *s) {
    speeds v = measure(s);
    int status = TL_EXIT_OK;
    if (s->out_of_memory) {
        tl_say(s->cli, "no memory to keep the text");
        return TL_EXIT_FAILED;
    }
    if (s->cli->format == TL_FORMAT_JSON) {
        status = report_json(s, &v);
    } else {
        putchar('\n');
        if (fflush(stdout) != 0 || ferror(stdout)) {
            tl_say(s->cli, "cannot write the text");
            return TL_EXIT_FAILED;
        }
        say_memory(s);
        say_account(s, &v);
        say_speed(s, &v);
    }
    if (!v.equal && s->cli->format == TL_FORMAT_JSON)
        tl_note(s->cli, "planned and measured differ");
    return status == TL_EXIT_OK && !v.equal ? TL_EXIT_VIOLATED : status;
}
