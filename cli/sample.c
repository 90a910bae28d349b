/* cli/sample.c: tally sample, text from a model. What the model writes goes to stdout as it comes, the account to stderr.
 *
 * --json: {"schema","verb","model","path","step" (of a run),"prompt_ids":[],"ids":[],"text" (with a tokenizer),
 *   "stopped":"end of text|tokens","seed",
 *   "memory":{"weights","weights_bytes","cache_bytes","cache":{"layers","batch","positions","kv_heads","head_size","dtype"},
 *             "planned_peak_bytes","measured_peak_bytes"},
 *   "prefill":{"tokens","seconds","tokens_per_second","planned_flops","measured_flops"},
 *   "decode": the same and "bytes_per_token","flops_per_token",
 *   "bound" ("memory|compute"; absent where the machine was not measured),"planned_equals_measured","leaves_out"}
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "infer.h"
#include "sample.h"
#include "tally/data.h"

enum {
    OWN_PROMPT,
    OWN_IDS,
    OWN_TEMPERATURE,
    OWN_TOP_K,
    OWN_TOP_P,
    OWN_SEED,
    OWN_WEIGHTS,
    OWN_TOKENIZER,
    OWN_CACHE,
    OWN_THREADS,
};

static int read_dtype(tl_sampling *s, const char *text) {
    static const tl_dtype dtypes[] = {TL_F32, TL_BF16, TL_F16};
    s->plan_options.cache_dtype = s->opened.dtype;
    if (!text)
        return TL_EXIT_OK;
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
        if (strcmp(tl_dtype_name(dtypes[i]), text) == 0) {
            s->plan_options.cache_dtype = dtypes[i];
            return TL_EXIT_OK;
        }
    return tl_usage(s->cli, "--cache \"%.40s\": f32, bf16 or f16 would work", text);
}

static int read_numbers(tl_sampling *s) {
    const tl_cli *cli = s->cli;
    const char *const *own = cli->own;
    tl_sample_options *o = &s->options.sample;
    int64_t seed = 0, threads = tl_machine_cores();
    *o = tl_sample_defaults();
    int status = tl_infer_number(cli, "temperature", own[OWN_TEMPERATURE], 0, 1e6, &o->temperature);
    status = status ? status : tl_infer_whole(cli, "top-k", own[OWN_TOP_K], 0, INT32_MAX, &o->top_k);
    status = status ? status : tl_infer_number(cli, "top-p", own[OWN_TOP_P], 0, 1, &o->top_p);
    status = status ? status : tl_infer_whole(cli, "seed", own[OWN_SEED], 0, INT64_MAX, &seed);
    status = status ? status : tl_infer_whole(cli, "threads", own[OWN_THREADS], 1, 1024, &threads);
    if (status)
        return status;
    if (o->top_p <= 0)
        return tl_usage(cli, "--top-p 0 leaves no token; above 0 and at most 1 (all) would work");
    if (o->temperature == 0 && (own[OWN_TOP_K] || own[OWN_TOP_P] || own[OWN_SEED]))
        return tl_usage(cli, "--temperature 0 always takes the likeliest token; --%s would change nothing",
                        own[OWN_TOP_K]   ? "top-k"
                        : own[OWN_TOP_P] ? "top-p"
                                         : "seed");
    o->seed = (uint64_t)seed;
    s->threads = (int)threads;
    return TL_EXIT_OK;
}

static int read_prompt(tl_sampling *s) {
    const char *prompt = s->cli->own[OWN_PROMPT], *ids = s->cli->own[OWN_IDS];
    tl_error error = {TL_OK, ""};
    if (!prompt == !ids)
        return tl_usage(s->cli, prompt ? "--prompt and --ids exclude each other"
                                       : "a prompt is needed: --prompt TEXT, or --ids 1,2,3");
    if (prompt && s->speller.kind == TL_SPELL_NONE)
        return tl_usage(s->cli, "%s does not say its tokenizer: --tokenizer names one, --ids needs none",
                        s->opened.path);
    s->prompt = ids ? tl_ids_parse(ids, &s->n_prompt, &error)
                    : tl_speller_encode(&s->speller, prompt, strlen(prompt), true, &s->n_prompt, &error);
    if (!s->prompt)
        return tl_failed(s->cli, &error);
    if (s->n_prompt == 0)
        return tl_usage(s->cli, "--prompt \"\" is no token at all; a character or more would work");
    return TL_EXIT_OK;
}

/* --tokens, or what there is room for: a sum's answer, else 64. */
static int read_tokens(tl_sampling *s) {
    const tl_option_value *given = &s->cli->options.at[TL_OPTION_TOKENS];
    const tl_model *m = &s->opened.model;
    int64_t room = m->learned_positions ? m->context - s->n_prompt + 1 : INT64_C(1) << 30;
    int64_t tokens = s->speller.kind == TL_SPELL_SUMS ? TL_SUMS_ANSWER : 64;
    if (room < 1)
        return tl_usage(s->cli, "a prompt of %lld tokens; %s has %lld positions", (long long)s->n_prompt, m->name,
                        (long long)m->context);
    if (given->text) {
        if (given->count < 1 || given->count > (tl_u128)room)
            return tl_usage(s->cli, "--tokens %.40s: 1 to %lld would work%s", given->text, (long long)room,
                            m->learned_positions ? ": the model's positions, less the prompt's" : "");
        tokens = (int64_t)given->count;
    } else if (tokens > room)
        tokens = room;
    s->options.max_tokens = tokens;
    s->plan_options.prompt_tokens = s->n_prompt;
    s->plan_options.new_tokens = tokens;
    s->plan_options.capacity = s->n_prompt + tokens - 1;
    return TL_EXIT_OK;
}

static int prepare(tl_sampling *s) {
    const char *const *own = s->cli->own;
    int status = tl_opened_find(&s->opened, s->cli, s->cli->arguments[0], own[OWN_WEIGHTS]);
    status = status ? status : read_numbers(s);
    status = status ? status : tl_speller_open(&s->speller, &s->opened, own[OWN_TOKENIZER]);
    status = status ? status : read_prompt(s);
    status = status ? status : read_tokens(s);
    status = status ? status : read_dtype(s, own[OWN_CACHE]);
    if (status)
        return status;
    s->plan_options.model = s->opened.model;
    s->plan_options.dtype = s->opened.dtype;
    s->plan_options.int8 = s->opened.int8;
    s->plan_options.threads = s->threads;
    if (tl_infer_plan_make(&s->plan_options, &s->plan, &s->error) != TL_OK)
        return tl_failed(s->cli, &s->error);
    return tl_infer_fits(s->cli, s->plan.peak_bytes);
}

static tl_status context_failed(tl_sampling *s) {
    return tl_fail(&s->error, tl_ctx_status(s->watch.ctx), "%s", tl_ctx_error(s->watch.ctx)->message);
}

static void on_begin(void *user, int64_t forward) {
    tl_sampling *s = user;
    tl_watch_begin(&s->watch, forward);
    if (forward == 0)
        s->started = s->watch.begun;
}

static bool on_token(void *user, int64_t index, int32_t token) {
    tl_sampling *s = user;
    double now = tl_seconds();
    if (index == 0)
        s->first_token = now;
    s->last_token = now;
    s->ids[s->n_ids++] = token;
    if (token != s->options.end_id)
        tl_sampling_put(s, token);
    return !ferror(stdout);
}

static tl_status generate(tl_sampling *s) {
    tl_cache_options cache = {.batch = 1, .capacity = s->plan_options.capacity, .dtype = s->plan_options.cache_dtype};
    if (tl_watch_open(&s->watch, s->threads, &s->error) != TL_OK)
        return s->error.status;
    s->net = tl_opened_net(&s->opened, s->watch.ctx);
    if (!s->net)
        return context_failed(s);
    if (tl_opened_load(&s->opened, s->watch.ctx, s->net, &s->error) != TL_OK)
        return s->error.status;
    if (!(s->cache = tl_cache_new(s->net, &cache)))
        return context_failed(s);
    s->weights_bytes = tl_watch_weights(&s->watch, s->net);
    s->cache_bytes = tl_watch_cache(&s->watch, s->net, s->cache);
    s->options.end_id = tl_speller_end(&s->speller);
    s->options.begin = on_begin;
    s->options.token = on_token;
    s->options.user = s;
    tl_sampling_announce(s);
    if (tl_generate(s->net, s->cache, s->prompt, s->n_prompt, &s->options, &s->done) != TL_OK)
        return context_failed(s);
    tl_watch_end(&s->watch);
    tl_sampling_flush(s);
    return TL_OK;
}

/* A text that ended early is held against the plan of what was written. */
static tl_status plan_again(tl_sampling *s) {
    if (s->done.new_tokens == s->plan_options.new_tokens)
        return TL_OK;
    s->plan_options.new_tokens = s->done.new_tokens;
    return tl_infer_plan_make(&s->plan_options, &s->plan, &s->error);
}

static int execute(tl_sampling *s) {
    int status = prepare(s);
    if (status)
        return status;
    s->ids = calloc((size_t)s->options.max_tokens, sizeof *s->ids);
    if (!s->ids)
        tl_fail(&s->error, TL_ERR_MEMORY, "no memory for %lld tokens", (long long)s->options.max_tokens);
    else if (generate(s) == TL_OK && plan_again(s) == TL_OK)
        return tl_sampling_report(s);
    if (s->n_ids && s->cli->format != TL_FORMAT_JSON)
        putchar('\n'); /* what was written stands */
    return tl_failed(s->cli, &s->error);
}

static int run(tl_cli *cli) {
    static tl_sampling s; /* zeroed; large enough that the stack is no place for it */
    s.cli = cli;
    int status = execute(&s);
    tl_cache_free(s.cache);
    tl_net_free(s.net);
    tl_watch_close(&s.watch);
    tl_speller_close(&s.speller);
    tl_sampling_free(&s);
    return status;
}

static const struct argp_option own_options[] = {
    {"prompt", TL_OWN(OWN_PROMPT), "TEXT", 0, "What the text begins with", 0},
    {"ids", TL_OWN(OWN_IDS), "1,2,3", 0, "The same as token ids", 0},
    {"temperature", TL_OWN(OWN_TEMPERATURE), "X", 0, "Divides the logits (1); 0: always the likeliest", 0},
    {"top-k", TL_OWN(OWN_TOP_K), "K", 0, "Of the K likeliest tokens alone (0: all)", 0},
    {"top-p", TL_OWN(OWN_TOP_P), "P", 0, "Of the likeliest that reach probability P (1: all)", 0},
    {"seed", TL_OWN(OWN_SEED), "N", 0, "Of the draws (0): the same text on any number of threads", 0},
    {"weights", TL_OWN(OWN_WEIGHTS), "FORM", 0, "stored, f32, bf16, f16, or int8: linear layers, a scale a row", 0},
    {"tokenizer", TL_OWN(OWN_TOKENIZER), "PATH", 0, "Where the run does not say it, or another", 0},
    {"cache", TL_OWN(OWN_CACHE), "DTYPE", 0, "Of keys and values: f32, bf16, f16 (default: the weights')", 0},
    {"threads", TL_OWN(OWN_THREADS), "N", 0, "Threads (default: all cores)", 0},
    {0},
};

const tl_verb tl_verb_sample = {
    .name = "sample",
    .summary = "text from a trained model, and what writing it takes",
    .group = TL_GROUP_AFTER,
    .arguments = "RUN|FOLDER|FILE",
    .words = NULL,
    .details = "RUN is the --out of a `tally train'; FOLDER holds config.json and safetensors as\n"
               "Hugging Face has them; FILE is a .safetensors with its config.json beside it.\n"
               "What the model writes goes to stdout as it comes, without the prompt; the\n"
               "account to stderr: weights and cache in bytes, planned beside measured, the\n"
               "speed of prefill and decoding and what bounds it.\n\n"
               "  tally sample runs/a --prompt '137+485=' --temperature 0\n"
               "  tally sample runs/b --prompt 'The ' --tokenizer bytes --top-p 0.9 --seed 7\n"
               "  tally sample exported/a --prompt 'The ' --weights int8",
    .takes = TL_TAKES(TOKENS),
    .says = {[TL_OPTION_TOKENS] = "New tokens at most (default: 4 for sums, else 64 or what fits)"},
    .own = own_options,
    .min_arguments = 1,
    .max_arguments = 1,
    .run = run,
};
