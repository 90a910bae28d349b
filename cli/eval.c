/* cli/eval.c: tally eval, how well a model foretells a text.
 *
 * --json: {"schema","verb","model","path","step" (of a run),"source","loss","loss_unit":"nats per token","perplexity",
 *   "bits_per_byte" (where the bytes are known),"bytes","targets","windows","seq","stride","batch",
 *   "asked","right" (sums),
 *   "memory":{"weights","weights_bytes","planned_peak_bytes","measured_peak_bytes"},
 *   "flops":{"planned","measured","per_token","attention":"full"},
 *   "seconds","tokens_per_second","mfu" (where the machine was measured),"planned_equals_measured","assumptions","leaves_out"}
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "eval.h"

enum {
    OWN_DATA,
    OWN_TEXT,
    OWN_BATCH,
    OWN_STRIDE,
    OWN_WEIGHTS,
    OWN_TOKENIZER,
    OWN_BYTES_PER_TOKEN,
    OWN_THREADS,
    OWN_DTYPE,
};

/* Windows at once where it is not said: as many as keep the logits and their log softmax below half a gigabyte. */
#define LOGITS (INT64_C(1) << 26)
/* The window where it is not said: the model's context, up to this. */
#define LONGEST INT64_C(4096)

static int read_windows(tl_evaluating *e) {
    const tl_cli *cli = e->cli;
    const tl_model *m = &e->opened.model;
    tl_eval_options *o = &e->plan_options.eval;
    int64_t most = m->learned_positions ? m->context : INT64_C(1) << 24;
    o->seq = e->sums ? TL_SUMS_SEQ : m->context < LONGEST ? m->context : LONGEST;
    int status = TL_EXIT_OK;
    if (e->sums && (tl_given(cli, TL_OPTION_SEQ) || cli->own[OWN_STRIDE]))
        return tl_usage(cli, "sums are rows of %d tokens: --seq and --stride would change nothing", TL_SUMS_SEQ);
    if (tl_given(cli, TL_OPTION_SEQ)) {
        o->seq = cli->options.at[TL_OPTION_SEQ].size;
        if (o->seq > most)
            return tl_usage(cli, "--seq %lld: %s has %lld positions", (long long)o->seq, m->name, (long long)most);
    } else if (!e->sums)
        tl_notes_add(&e->assumed,
                     m->context > LONGEST ? "--seq %lld of the model's context of %lld"
                                          : "--seq %lld, the model's context",
                     (long long)o->seq, (long long)m->context);
    if (o->seq > e->available - 1 && !e->sums)
        o->seq = e->available - 1; /* one window holds it all */
    o->batch = LOGITS / (o->seq * m->vocab);
    o->batch = o->batch < 1 ? 1 : o->batch > 64 ? 64 : o->batch;
    status = tl_infer_whole(cli, "batch", cli->own[OWN_BATCH], 1, 1 << 20, &o->batch);
    status = status ? status : tl_infer_whole(cli, "stride", cli->own[OWN_STRIDE], 1, o->seq, &o->stride);
    if (!cli->own[OWN_BATCH])
        tl_notes_add(&e->assumed, "--batch %lld", (long long)o->batch);
    if (!o->stride)
        o->stride = o->seq;
    return status;
}

static int read_tokens(tl_evaluating *e) {
    const tl_option_value *given = &e->cli->options.at[TL_OPTION_TOKENS];
    const char *what = e->sums ? "sums" : "tokens";
    int64_t least = e->sums ? 1 : 2;
    e->plan_options.tokens = e->sums ? 4096 : e->available;
    if (e->available < least) {
        tl_say(e->cli, "%s holds %lld token%s: 2 or more would work", e->source, (long long)e->available,
               e->available == 1 ? "" : "s");
        return TL_EXIT_FAILED;
    }
    if (given->text && (given->count < (tl_u128)least || given->count > (tl_u128)e->available))
        return tl_usage(e->cli, "--tokens %.40s: %lld to %lld %s would work", given->text, (long long)least,
                        (long long)e->available, what);
    if (given->text)
        e->plan_options.tokens = (int64_t)given->count;
    return TL_EXIT_OK;
}

static int prepare(tl_evaluating *e) {
    const tl_cli *cli = e->cli;
    const char *const *own = cli->own;
    int64_t threads = tl_machine_cores();
    int status = tl_opened_find(&e->opened, cli, cli->arguments[0], own[OWN_WEIGHTS]);
    status = status ? status : tl_infer_whole(cli, "threads", own[OWN_THREADS], 1, 1024, &threads);
    status = status ? status : tl_speller_open(&e->speller, &e->opened, own[OWN_TOKENIZER]);
    status = status ? status : tl_evaluating_open(e, own[OWN_DATA], own[OWN_TEXT], own[OWN_DTYPE]);
    status = status ? status
                    : tl_infer_number(cli, "bytes-per-token", own[OWN_BYTES_PER_TOKEN], 1e-6, 1e6, &e->bytes_per_token);
    status = status ? status : read_tokens(e);
    status = status ? status : read_windows(e);
    if (status)
        return status;
    e->bytes_stated = own[OWN_BYTES_PER_TOKEN] != NULL;
    if (e->bytes_stated && (own[OWN_TOKENIZER] || own[OWN_TEXT] || e->sums))
        return tl_usage(cli, "--bytes-per-token is for tokens whose bytes nothing else says; here %s does",
                        own[OWN_TEXT]        ? "--text"
                        : own[OWN_TOKENIZER] ? "--tokenizer"
                                             : "the task");
    e->bytes = e->speller.kind == TL_SPELL_NONE ? -1 : 0;
    e->threads = (int)threads;
    e->plan_options.rows = e->sums != NULL;
    e->plan_options.model = e->opened.model;
    e->plan_options.dtype = e->opened.dtype;
    e->plan_options.int8 = e->opened.int8;
    e->plan_options.threads = e->threads;
    if (tl_infer_plan_make(&e->plan_options, &e->plan, &e->error) != TL_OK)
        return tl_failed(cli, &e->error);
    return tl_infer_fits(cli, e->plan.peak_bytes);
}

static void on_begin(void *user, int64_t forward) {
    tl_evaluating *e = user;
    tl_watch_begin(&e->watch, forward);
}

/* On a terminal one line that is redrawn; elsewhere the result alone. */
static void on_done(void *user, int64_t targets, double nats) {
    tl_evaluating *e = user;
    tl_watch_end(&e->watch);
    double now = tl_seconds();
    if (e->cli->verbosity < 0 || isatty(STDERR_FILENO) != 1 || now - e->shown < 0.2)
        return;
    e->shown = now;
    fprintf(stderr, "\r %lld targets  loss %.4f\033[K", (long long)targets, nats / (double)targets);
}

static tl_status context_failed(tl_evaluating *e) {
    return tl_fail(&e->error, tl_ctx_status(e->watch.ctx), "%s", tl_ctx_error(e->watch.ctx)->message);
}

static tl_status evaluate(tl_evaluating *e) {
    tl_eval_options *o = &e->plan_options.eval;
    if (tl_watch_open(&e->watch, e->threads, &e->error) != TL_OK)
        return e->error.status;
    e->watch.together = true;
    e->net = tl_opened_net(&e->opened, e->watch.ctx);
    if (!e->net)
        return context_failed(e);
    if (tl_opened_load(&e->opened, e->watch.ctx, e->net, &e->error) != TL_OK)
        return e->error.status;
    e->weights_bytes = tl_watch_weights(&e->watch, e->net);
    o->begin = on_begin;
    o->done = on_done;
    o->user = e;
    double begin = tl_seconds();
    tl_status status = e->sums ? tl_evaluate_rows(e->net, e->plan_options.tokens, tl_evaluating_sums, e, o, &e->done)
                               : tl_evaluate(e->net, e->plan_options.tokens, tl_evaluating_ids, e, o, &e->done);
    e->seconds = tl_seconds() - begin;
    if (e->shown > 0)
        fprintf(stderr, "\r\033[K");
    if (status == TL_OK && e->sums)
        status = tl_sums_evaluate(e->sums, e->net, e->watch.ctx, 0, e->plan_options.tokens, 512, &e->score, NULL, 0);
    return status == TL_OK ? TL_OK : context_failed(e);
}

static int run(tl_cli *cli) {
    static tl_evaluating e; /* zeroed; large enough that the stack is no place for it */
    e.cli = cli;
    int status = prepare(&e);
    if (status == TL_EXIT_OK)
        status = evaluate(&e) == TL_OK ? tl_evaluating_report(&e) : tl_failed(cli, &e.error);
    tl_net_free(e.net);
    tl_watch_close(&e.watch);
    tl_speller_close(&e.speller);
    tl_tokens_close(e.tokens);
    tl_sums_free(e.sums);
    free(e.ids);
    return status;
}

static const struct argp_option own_options[] = {
    {"data", TL_OWN(OWN_DATA), "FILE", 0, "Token files: a file, a folder or a pattern", 0},
    {"text", TL_OWN(OWN_TEXT), "FILE", 0, "A text, through the tokenizer", 0},
    {"batch", TL_OWN(OWN_BATCH), "B", 0, "Windows at once", 0},
    {"stride", TL_OWN(OWN_STRIDE), "S", 0, "Tokens from window to window (default: --seq, side by side)", 0},
    {"weights", TL_OWN(OWN_WEIGHTS), "FORM", 0, "stored, f32, bf16, f16, or int8: linear layers, a scale a row", 0},
    {"tokenizer", TL_OWN(OWN_TOKENIZER), "PATH", 0, "Of the ids: its bytes give bits per byte", 0},
    {"bytes-per-token", TL_OWN(OWN_BYTES_PER_TOKEN), "X", 0, "The text's bytes, where no tokenizer says them", 0},
    {"dtype", TL_OWN(OWN_DTYPE), "NAME", 0, "uint16 or uint32: of raw files whose ids leave it open", 0},
    {"threads", TL_OWN(OWN_THREADS), "N", 0, "Threads (default: all cores)", 0},
    {0},
};

const tl_verb tl_verb_eval = {
    .name = "eval",
    .summary = "loss, perplexity and bits per byte of a model on a text",
    .group = TL_GROUP_AFTER,
    .arguments = "RUN|FOLDER|FILE",
    .words = NULL,
    .details = "RUN is the --out of a `tally train'; FOLDER holds config.json and safetensors as\n"
               "Hugging Face has them; FILE is a .safetensors with its config.json beside it.\n"
               "--tokens: the first N of the text. Without data a run is evaluated on the tokens\n"
               "that were its --val; one of the task sums on sums it was never shown.\n\n"
               "The text is cut in windows of --seq tokens, each target counts once. Side by\n"
               "side (no --stride), the first targets of a window are foretold from little;\n"
               "with a smaller --stride windows overlap, only a window's last S targets count,\n"
               "and all of them see at least seq - S tokens: the loss is lower, the cost\n"
               "seq / S times.\n\n"
               "  tally eval runs/a\n"
               "  tally eval runs/b --data val.bin --stride 64 --tokenizer bytes",
    .takes = TL_TAKES(TOKENS) | TL_TAKES(SEQ),
    .says = {[TL_OPTION_TOKENS] = "The first N of the text; of sums, N of them (4096)",
             [TL_OPTION_SEQ] = "Tokens of a window (default: the model's context, up to 4096)"},
    .own = own_options,
    .min_arguments = 1,
    .max_arguments = 1,
    .run = run,
};
