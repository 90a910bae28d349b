/* cli/plan_infer.c: tally plan --infer, serving before it: weights, cache, prefill of a prompt and the token after it.
 *
 * --json: {"schema","verb":"plan","infer":true,"model":{"name","parameters"},
 *   "memory":{"device","capacity_bytes","usable_bytes","fits" (null where the memory is not known),"peak_bytes","weights_bytes",
 *             "cache_bytes","init_peak_bytes","load_peak_bytes","weights","weights_by_dtype":{"f32","bf16","int8","nf4",
 *             "nf4-dq"},"stored":{"format","bytes","packed_parameters","packed_bytes"} (where the config.json says how)},
 *   "cache":{"positions","bytes_per_position" (in all layers),"dtype","window_bytes" (what layers with a window hold of cache_bytes)},
 *   "prefill":{"tokens","flops","flops_per_token","bytes","peak_bytes","seconds_at_least","bound"},
 *   "decode":{"position","flops_per_token","bytes_per_token","peak_bytes","seconds_at_least","tokens_per_second_at_most","bound"},
 *   "suggestions":[{"change","peak_bytes","fits","effect"}], "assumptions","leaves_out"}; what is not known of the device is absent and named in leaves_out.
 */
#include <stdlib.h>
#include <string.h>

#include "infer.h"
#include "plan_infer.h"
#include "tally/weights.h"

enum { INT8 = 2, NF4, NF4_TWICE, WEIGHTS };

typedef struct part { /* a prefill, or one token */
    tl_u128 matmul, bytes;
    int64_t peak_bytes;
    double seconds; /* at least; 0: not known */
    bool by_memory;
} part;

enum { SUGGESTIONS = 8, CHANGE = 96 };
typedef struct suggestion { /* planned */
    char change[CHANGE];
    const char *effect;
    int64_t bytes;
    bool fits;
} suggestion;

typedef struct serving {
    const tl_cli *cli;
    tl_request request;
    tl_infer_options options;
    tl_infer_plan plan;
    tl_u128 parameters;
    int64_t by_dtype[WEIGHTS], capacity, usable;
    tl_weights_stored stored; /* 0 bytes: the config.json says nothing of it */
    double bandwidth;
    part prefill, decode;
    suggestion list[SUGGESTIONS]; /* where it does not fit: those that fit first */
    int n_list;
    tl_notes leaves_out;
} serving;

static const char *const weights_names[WEIGHTS + 1] = {"f32", "bf16", "int8", "nf4", "nf4-dq", NULL};
static const char *const stored_names[] = {"", "fp8", "MXFP4"};
static const tl_dtype weights_dtypes[WEIGHTS] = {TL_F32, TL_BF16, TL_BF16, TL_BF16, TL_BF16};

/* Of a training run: said together with --infer they would change nothing. */
static int refuse_training(const tl_cli *cli) {
    for (int i = 0; i < TL_OPTION_COUNT; i++)
        if (tl_given(cli, (tl_option)i) && i != TL_OPTION_GPUS && i != TL_OPTION_SEQ && i != TL_OPTION_PEAK &&
            i != TL_OPTION_ATTENTION && i != TL_OPTION_INFER)
            return tl_usage(cli,
                            "--%s changes nothing about serving; --gpus, --seq, --peak, --attention, --prompt and "
                            "--weights do",
                            tl_option_name((tl_option)i));
    const char *attention = cli->options.at[TL_OPTION_ATTENTION].text;
    return attention && strcmp(attention, "eager") != 0 && strcmp(attention, "flash") != 0
               ? tl_usage(cli, "--attention %s is of training; serving has eager and flash", attention)
               : TL_EXIT_OK;
}

static void set_form(tl_infer_options *o, int form) {
    o->dtype = weights_dtypes[form];
    o->int8 = form == INT8;
    o->base.base = form == NF4 ? TL_LORA_NF4 : form == NF4_TWICE ? TL_LORA_NF4_TWICE : TL_LORA_PLAIN;
}

static int read_sizes(serving *s, const char *prompt, const char *weights) {
    const tl_cli *cli = s->cli;
    const tl_model *m = &s->request.options.model;
    tl_infer_options *o = &s->options;
    int found = weights ? 0 : 1; /* bf16 where it is not said */
    while (weights && weights_names[found] && strcmp(weights_names[found], weights) != 0)
        found++;
    if (!weights_names[found])
        return tl_usage(cli, "--weights \"%.40s\": f32, bf16, int8, nf4 or nf4-dq would work", weights);
    if (m->family == TL_FAMILY_CRUNCHER)
        return tl_usage(cli, "%s writes no text", m->name);
    if (m->learned_positions && s->request.options.seq > m->context)
        return tl_usage(cli, "--seq %lld: %s has %lld positions", (long long)s->request.options.seq, m->name,
                        (long long)m->context);
    o->model = *m;
    o->choices.attention = s->request.options.choices.attention;
    o->dtype = o->cache_dtype = weights_dtypes[found];
    set_form(o, found);
    o->threads = s->request.options.threads;
    o->capacity = s->request.options.seq;
    o->new_tokens = 2; /* the prefill gives the first, one forward more the second: it is what each later one is like */
    o->prompt_tokens = o->capacity / 2 > 0 ? o->capacity / 2 : 1;
    if (o->capacity < 2)
        return tl_usage(cli, "--seq %lld: a prompt and a token need 2 positions", (long long)o->capacity);
    if (!weights)
        tl_notes_add(&s->request.defaults, "--weights bf16, of the cache too");
    if (!prompt)
        tl_notes_add(&s->request.defaults, "--prompt %lld, half of --seq", (long long)o->prompt_tokens);
    return tl_infer_whole(cli, "prompt", prompt, 1, o->capacity - 1, &o->prompt_tokens);
}

static void bound(const serving *s, double peak, part *p) {
    if (peak <= 0 || s->bandwidth <= 0)
        return;
    const double compute = tl_u128_double(p->matmul) / peak, memory = tl_u128_double(p->bytes) / s->bandwidth;
    p->by_memory = memory >= compute;
    p->seconds = p->by_memory ? memory : compute;
}

/* The op counts every expert's weights as read, since no plan knows which are chosen; n tokens choose n·k of E at most, and a bound
 * from below may count no more. */
static void leave_experts(serving *s, part *p, int64_t tokens) {
    const tl_model *m = &s->options.model;
    const int64_t experts = m->experts, chosen = m->experts_per_token;
    if (experts < 1 || tokens >= experts || tokens * chosen >= experts)
        return;
    const tl_u128 idle = (tl_u128)(s->plan.expert_bytes / experts) * (tl_u128)(experts - tokens * chosen);
    p->bytes = p->bytes > idle ? p->bytes - idle : p->bytes;
    if (tokens == 1)
        tl_notes_add(&s->request.defaults, "a token reads the weights of %lld of %lld experts in a layer that has them",
                     (long long)chosen, (long long)experts);
}

static const char *weights_name(const serving *s) {
    return s->options.int8                         ? "int8"
           : s->options.base.base != TL_LORA_PLAIN ? tl_lora_base_name(s->options.base.base)
                                                   : tl_dtype_name(s->options.dtype);
}

static void bounds(serving *s) {
    const tl_plan_options *r = &s->request.options;
    const tl_generation *g = &s->plan.generation;
    char source[320];
    int64_t context = 0;
    double peak = r->peak;
    tl_plan_capacity(&r->devices, r->machine, NULL, &s->capacity, &s->usable, &context);
    s->prefill = (part){g->prefill.matmul, g->prefill.read + g->prefill.written, g->prefill.peak_bytes, 0, false};
    s->decode =
        (part){g->decode.last_matmul, g->decode.last_read + g->decode.last_written, g->decode.peak_bytes, 0, false};
    if (peak <= 0)
        peak = tl_plan_peak_rate(&r->devices, r->machine,
                                 s->options.dtype == TL_F32 ? TL_PRECISION_FP32 : TL_PRECISION_BF16, source,
                                 sizeof source);
    if (!r->devices.here) {
        s->bandwidth = r->devices.accelerator->bandwidth;
    } else {
        const tl_bound_here b = tl_bound_of(r->threads, s->options.dtype, s->decode.matmul, s->decode.bytes,
                                            s->plan.weights_bytes + s->plan.cache_bytes);
        s->bandwidth = b.bandwidth;
    }
    leave_experts(s, &s->prefill, s->options.prompt_tokens);
    leave_experts(s, &s->decode, 1);
    bound(s, peak, &s->prefill);
    bound(s, peak, &s->decode);
    if (peak <= 0 || s->bandwidth <= 0)
        tl_notes_add(&s->leaves_out, "time: the device's rates are not known%s",
                     r->devices.here ? " (`tally machine' measures them)" : "");
    if (s->usable <= 0)
        tl_notes_add(&s->leaves_out, "whether it fits: the device's memory is not known");
    tl_notes_add(&s->request.defaults, s->options.choices.attention == TL_ATTENTION_FLASH
                                           ? "attention flash: scores are never a tensor"
                                           : "attention eager");
    if (s->options.int8)
        tl_notes_add(&s->request.defaults, "int8 made of bf16 weights once they are loaded%s",
                     s->options.model.experts > 0 ? "; experts stay bf16" : "");
    if (s->options.base.base != TL_LORA_PLAIN)
        tl_notes_add(&s->request.defaults,
                     "%s: the blocks' linear layers%s, one by one as they come; embeddings, norms, biases and the head "
                     "stay bf16",
                     weights_name(s), s->options.model.experts > 0 ? " and the experts" : "");
    tl_notes_add(&s->leaves_out, "batches of several texts, paged caches, several devices");
}

static bool exceeds(const serving *s) { return s->usable > 0 && s->plan.peak_bytes > s->usable; }

/* ---- what would make it fit ---- */

/* Plans `o`; kept if it holds less, or the device is another. *fits: so it does. */
static tl_status suggest(serving *s, const tl_infer_options *o, const char *change, const char *effect, bool *fits,
                         tl_error *error) {
    tl_infer_plan p;
    *fits = false;
    tl_status status = tl_infer_plan_make(o, &p, error);
    if (status != TL_OK)
        return status;
    *fits = p.peak_bytes <= s->usable;
    if (p.peak_bytes >= s->plan.peak_bytes || s->n_list == SUGGESTIONS)
        return TL_OK;
    suggestion *place = &s->list[s->n_list++];
    *place = (suggestion){.effect = effect, .bytes = p.peak_bytes, .fits = *fits};
    snprintf(place->change, sizeof place->change, "%s", change);
    return TL_OK;
}

/* Half the positions, a quarter … until it fits, the prompt as large a part of them as it was. */
static tl_status fewer_positions(serving *s, tl_infer_options o, const char *beside, tl_error *error) {
    const int64_t prompt = o.prompt_tokens, capacity = o.capacity;
    char change[CHANGE];
    bool fits = false;
    for (int64_t n = 2; capacity / n >= 2 && !fits; n *= 2) {
        const int before = s->n_list;
        o.capacity = capacity / n;
        o.prompt_tokens = prompt / n > 0 ? prompt / n : 1;
        if (capacity / n < 128 && n > 2)
            break;
        snprintf(change, sizeof change, "--seq %lld --prompt %lld%s%s", (long long)o.capacity,
                 (long long)o.prompt_tokens, beside[0] ? " " : "", beside);
        tl_status status = suggest(s, &o, change, "fewer positions", &fits, error);
        if (status != TL_OK)
            return status;
        if (!fits)
            s->n_list = before;
    }
    return TL_OK;
}

/* The device of the catalogue with the least memory that holds it. */
static void other_device(serving *s) {
    const tl_accelerator *best = NULL;
    int64_t least = INT64_MAX;
    for (int i = 0; i < tl_accelerator_count(); i++) {
        int64_t capacity, usable, context;
        const tl_devices d = {.count = 1, .accelerator = tl_accelerator_at(i)};
        tl_plan_capacity(&d, NULL, NULL, &capacity, &usable, &context);
        if (usable >= s->plan.peak_bytes && usable < least)
            least = usable, best = d.accelerator;
    }
    if (!best || s->request.options.devices.here || s->n_list == SUGGESTIONS)
        return;
    suggestion *place = &s->list[s->n_list++];
    *place = (suggestion){.effect = "the same, more memory", .bytes = s->plan.peak_bytes, .fits = true};
    snprintf(place->change, sizeof place->change, "-g %s", best->name);
}

static tl_status advise(serving *s, tl_error *error) {
    tl_infer_options flash = s->options, bf16 = s->options, int8 = s->options, nf4 = s->options, all;
    const bool is_flash = s->options.choices.attention == TL_ATTENTION_FLASH;
    bool fits = false, small = false;
    tl_status status = TL_OK;
    flash.choices.attention = TL_ATTENTION_FLASH;
    bf16.dtype = bf16.cache_dtype = TL_BF16;
    int8.dtype = int8.cache_dtype = TL_BF16;
    int8.int8 = true;
    set_form(&nf4, NF4);
    nf4.cache_dtype = TL_BF16;
    const bool reduced = s->options.int8 || s->options.base.base != TL_LORA_PLAIN;
    all = reduced ? s->options : nf4;
    all.choices.attention = TL_ATTENTION_FLASH;
    if (!is_flash)
        status = suggest(s, &flash, "--attention flash", "the same text", &fits, error);
    if (status == TL_OK && s->options.dtype == TL_F32)
        status = suggest(s, &bf16, "--weights bf16", "other rounding", &small, error);
    if (status == TL_OK && !reduced && !small)
        status = suggest(s, &int8, "--weights int8", "8-bit weights", &small, error);
    if (status == TL_OK && !reduced && !small)
        status = suggest(s, &nf4, "--weights nf4", "4-bit weights", &small, error);
    if (status == TL_OK && !fits && !small && !reduced && !is_flash)
        status = suggest(s, &all, "--weights nf4 --attention flash", "4-bit weights", &small, error);
    int before = s->n_list;
    if (status == TL_OK)
        status = fewer_positions(s, s->options, "", error);
    if (status == TL_OK && !fits && !small && s->n_list == before)
        status = fewer_positions(s, all, reduced ? "--attention flash" : "--weights nf4 --attention flash", error);
    other_device(s);
    for (int i = 1; i < s->n_list; i++) /* those that fit first, else in this order */
        for (int j = i; j > 0 && s->list[j].fits && !s->list[j - 1].fits; j--) {
            suggestion swap = s->list[j];
            s->list[j] = s->list[j - 1];
            s->list[j - 1] = swap;
        }
    return status;
}

static int make(serving *s) {
    tl_error error = {TL_OK, ""};
    for (int i = 0; i < WEIGHTS; i++) {
        tl_infer_options small = s->options;
        tl_infer_plan plan;
        small.dtype = small.cache_dtype = weights_dtypes[i];
        set_form(&small, i);
        small.capacity = small.prompt_tokens = small.new_tokens = 1;
        if (tl_infer_plan_make(&small, &plan, &error) != TL_OK)
            return tl_failed(s->cli, &error);
        s->by_dtype[i] = plan.weights_bytes;
    }
    if (tl_plan_count_parameters(&s->options.model, &s->parameters, &error) != TL_OK ||
        tl_infer_plan_make(&s->options, &s->plan, &error) != TL_OK)
        return tl_failed(s->cli, &error);
    if (s->options.model.stored != TL_STORED_PLAIN &&
        tl_weights_stored_bytes(&s->options.model, &s->stored, &error) != TL_OK)
        return tl_failed(s->cli, &error);
    if (s->stored.bytes > 0)
        tl_notes_add(&s->request.defaults, "what is not in %s is stored in bf16; loading makes %s of all",
                     stored_names[s->options.model.stored], weights_name(s));
    bounds(s);
    if (exceeds(s) && advise(s, &error) != TL_OK)
        return tl_failed(s->cli, &error);
    return TL_EXIT_OK;
}

static void put_suggestions(tl_json *json, const serving *s) {
    tl_json_key(json, "suggestions");
    tl_json_array(json);
    for (int i = 0; i < s->n_list; i++) {
        tl_json_object(json);
        tl_json_put_string(json, "change", s->list[i].change);
        tl_json_put_integer(json, "peak_bytes", s->list[i].bytes);
        tl_json_put_boolean(json, "fits", s->list[i].fits);
        tl_json_put_string(json, "effect", s->list[i].effect);
        tl_json_end(json);
    }
    tl_json_end(json);
}

static void out_suggestions(const serving *s) {
    char bytes[TL_TEXT];
    if (s->n_list == 0) {
        tl_out(s->cli, "  no option of this build makes it fit\n");
        return;
    }
    tl_out(s->cli, "\n%s\n",
           s->list[0].fits ? "makes it fit (each one planned):" : "helps, and is not enough (each one planned):");
    size_t wide = 0;
    for (int i = 0; i < s->n_list; i++)
        wide = strlen(s->list[i].change) > wide ? strlen(s->list[i].change) : wide;
    for (int i = 0; i < s->n_list; i++)
        tl_out(s->cli, "%-2d %-*s %9s  %-8s  %s\n", i + 1, (int)wide, s->list[i].change,
               tl_text_bytes((double)s->list[i].bytes, s->cli->units, bytes), s->list[i].fits ? "fits" : "too much",
               s->list[i].effect);
    tl_out(s->cli, "\n");
}

/* ---- JSON ---- */

static void put_part(tl_json *json, const part *p) {
    tl_json_put_integer(json, "peak_bytes", p->peak_bytes);
    if (p->seconds <= 0)
        return;
    tl_json_put_real(json, "seconds_at_least", p->seconds);
    tl_json_put_string(json, "bound", p->by_memory ? "memory" : "compute");
}

static void put_memory(tl_json *json, const serving *s) {
    tl_json_key(json, "memory");
    tl_json_object(json);
    tl_json_put_string(json, "device", s->request.device);
    tl_json_put_integer(json, "capacity_bytes", s->capacity);
    tl_json_put_integer(json, "usable_bytes", s->usable);
    tl_json_key(json, "fits");
    if (s->usable > 0)
        tl_json_boolean(json, !exceeds(s));
    else
        tl_json_null(json);
    tl_json_put_integer(json, "peak_bytes", s->plan.peak_bytes);
    tl_json_put_integer(json, "weights_bytes", s->plan.weights_bytes);
    tl_json_put_integer(json, "cache_bytes", s->plan.cache_bytes);
    tl_json_put_integer(json, "init_peak_bytes", s->plan.init_peak_bytes);
    tl_json_put_integer(json, "load_peak_bytes", s->plan.load_peak_bytes);
    tl_json_put_string(json, "weights", weights_name(s));
    tl_json_key(json, "weights_by_dtype");
    tl_json_object(json);
    for (int i = 0; i < WEIGHTS; i++)
        tl_json_put_integer(json, weights_names[i], s->by_dtype[i]);
    tl_json_end(json);
    if (s->stored.bytes > 0) {
        tl_json_key(json, "stored");
        tl_json_object(json);
        tl_json_put_string(json, "format", stored_names[s->options.model.stored]);
        tl_json_put_integer(json, "bytes", s->stored.bytes);
        tl_json_put_integer(json, "packed_parameters", s->stored.packed);
        tl_json_put_integer(json, "packed_bytes", s->stored.packed_bytes);
        tl_json_end(json);
    }
    tl_json_end(json);
}

static int print_json(const serving *s) {
    const int64_t prompt = s->options.prompt_tokens;
    tl_json *json = tl_cli_json_open(s->cli);
    if (!json)
        return TL_EXIT_FAILED;
    tl_json_put_boolean(json, "infer", true);
    tl_json_key(json, "model");
    tl_json_object(json);
    tl_json_put_string(json, "name", s->options.model.name);
    tl_json_put_unsigned(json, "parameters", s->parameters);
    tl_json_end(json);
    put_memory(json, s);
    tl_json_key(json, "cache");
    tl_json_object(json);
    tl_json_put_integer(json, "positions", s->options.capacity);
    tl_json_put_integer(json, "bytes_per_position", s->plan.position_bytes);
    tl_json_put_string(json, "dtype", tl_dtype_name(s->options.cache_dtype));
    tl_json_put_integer(json, "window_bytes", s->plan.window_bytes);
    tl_json_end(json);
    tl_json_key(json, "prefill");
    tl_json_object(json);
    tl_json_put_integer(json, "tokens", prompt);
    tl_json_put_unsigned(json, "flops", s->prefill.matmul);
    tl_json_put_unsigned(json, "flops_per_token", s->prefill.matmul / (tl_u128)prompt);
    tl_json_put_unsigned(json, "bytes", s->prefill.bytes);
    put_part(json, &s->prefill);
    tl_json_end(json);
    tl_json_key(json, "decode");
    tl_json_object(json);
    tl_json_put_integer(json, "position", prompt + 1);
    tl_json_put_unsigned(json, "flops_per_token", s->decode.matmul);
    tl_json_put_unsigned(json, "bytes_per_token", s->decode.bytes);
    put_part(json, &s->decode);
    if (s->decode.seconds > 0)
        tl_json_put_real(json, "tokens_per_second_at_most", 1 / s->decode.seconds);
    tl_json_end(json);
    put_suggestions(json, s);
    tl_notes_json(json, "assumptions", &s->request.defaults);
    tl_notes_json(json, "leaves_out", &s->leaves_out);
    return tl_cli_json_close(s->cli, json);
}

/* ---- for people ---- */

static void out_part(const serving *s, const char *label, const char *what, const part *p) {
    char flops[TL_TEXT], bytes[TL_TEXT], least[TL_TEXT], time[96] = "";
    if (p->seconds > 0)
        snprintf(time, sizeof time, "; at least %s, bound by %s", tl_text_duration(p->seconds, least),
                 p->by_memory ? "memory" : "compute");
    tl_out_item(s->cli, label, "%s: %s, %s moved%s", what, tl_text_flops(tl_u128_double(p->matmul), flops),
                tl_text_bytes(tl_u128_double(p->bytes), s->cli->units, bytes), time);
}

static int print_page(const serving *s) {
    const tl_cli *cli = s->cli;
    const tl_infer_plan *p = &s->plan;
    char a[TL_TEXT], b[TL_TEXT], c[TL_TEXT], d[TL_TEXT], answer[2 * TL_TEXT + 64], rest[160] = "", what[96];
    tl_text_bytes((double)p->peak_bytes, cli->units, a);
    tl_text_bytes((double)s->usable, cli->units, b);
    if (s->usable <= 0)
        snprintf(answer, sizeof answer, "needs %s", a);
    else if (exceeds(s))
        snprintf(answer, sizeof answer, "does not fit: needs %s, has %s usable", a, b);
    else
        snprintf(answer, sizeof answer, "fits: needs %s of %s usable", a, b);
    if (s->usable > 0)
        snprintf(rest, sizeof rest, "(%s)", s->request.device);
    tl_out_answer(cli, answer, rest[0] ? rest : NULL);
    if (exceeds(s))
        out_suggestions(s);
    tl_out_item(cli, "model", "%s, %s parameters", s->options.model.name,
                tl_text_count(tl_u128_double(s->parameters), a));
    tl_out_item(cli, "weights", "%s in %s   (f32 %s, bf16 %s, int8 %s, nf4 %s)",
                tl_text_bytes((double)p->weights_bytes, cli->units, answer), weights_name(s),
                tl_text_bytes((double)s->by_dtype[0], cli->units, a),
                tl_text_bytes((double)s->by_dtype[1], cli->units, b),
                tl_text_bytes((double)s->by_dtype[INT8], cli->units, c),
                tl_text_bytes((double)s->by_dtype[NF4], cli->units, d));
    if (s->stored.bytes > 0)
        tl_out_item(cli, "stored", "%s in files: %s parameters in %s, %.4g bits each with their scales; the rest bf16",
                    tl_text_bytes((double)s->stored.bytes, cli->units, a), tl_text_count((double)s->stored.packed, b),
                    stored_names[s->options.model.stored],
                    8 * (double)s->stored.packed_bytes / (double)s->stored.packed);
    tl_out_item(cli, "cache", "%s for %lld positions in %s, %s each%s%s%s",
                tl_text_bytes((double)p->cache_bytes, cli->units, a), (long long)s->options.capacity,
                tl_dtype_name(s->options.cache_dtype), tl_text_bytes((double)p->position_bytes, cli->units, b),
                p->window_bytes ? "; layers that see a window hold " : "",
                p->window_bytes ? tl_text_bytes((double)p->window_bytes, cli->units, c) : "",
                p->window_bytes ? " of it, however many there are" : "");
    snprintf(what, sizeof what, "%lld tokens at once", (long long)s->options.prompt_tokens);
    out_part(s, "prefill", what, &s->prefill);
    snprintf(what, sizeof what, "a token behind %lld", (long long)s->options.prompt_tokens);
    out_part(s, "decode", what, &s->decode);
    if (s->decode.seconds > 0)
        tl_out_item(cli, "speed", "at most %s tokens/s, one text", tl_text_count(1 / s->decode.seconds, a));
    char load[TL_TEXT];
    tl_out_item(cli, "peaks", "init %s, load %s, prefill %s, decode %s",
                tl_text_bytes((double)p->init_peak_bytes, cli->units, a),
                tl_text_bytes((double)p->load_peak_bytes, cli->units, load),
                tl_text_bytes((double)s->prefill.peak_bytes, cli->units, b),
                tl_text_bytes((double)s->decode.peak_bytes, cli->units, c));
    tl_notes_out(cli, "assumed", &s->request.defaults);
    tl_notes_out(cli, "leaves out", &s->leaves_out);
    return TL_EXIT_OK;
}

int tl_plan_infer(tl_cli *cli, const char *prompt, const char *weights) {
    serving *s = calloc(1, sizeof *s);
    if (!s) {
        tl_say(cli, "out of memory");
        return TL_EXIT_FAILED;
    }
    s->cli = cli;
    int status = refuse_training(cli);
    if (status == TL_EXIT_OK && cli->format != TL_FORMAT_TABLE && cli->format != TL_FORMAT_JSON)
        status = tl_usage(cli, "--infer prints a page or --json");
    status = status ? status : tl_request_devices(cli, &s->request);
    s->request.defaults.n = 0; /* of training */
    if (status == TL_EXIT_OK && s->request.options.devices.count != 1)
        status = tl_usage(cli, "--gpus %s: serving is planned on one device", cli->options.at[TL_OPTION_GPUS].text);
    if (status == TL_EXIT_OK && !tl_given(cli, TL_OPTION_GPUS))
        tl_notes_add(&s->request.defaults, "-g here");
    s->request.free_batch = true;
    status = status ? status : tl_request_model(cli, cli->arguments[0], &s->request);
    status = status ? status : read_sizes(s, prompt, weights);
    status = status ? status : make(s);
    if (status == TL_EXIT_OK)
        status = cli->format == TL_FORMAT_JSON ? print_json(s) : print_page(s);
    if (status == TL_EXIT_OK && exceeds(s))
        status = TL_EXIT_VIOLATED;
    free(s);
    return status;
}
