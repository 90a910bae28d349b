/* cli/explain.c: tally explain, a number of a plan as a formula: the verb, its model and sizes. */
#include <string.h>

#include "explain_out.h"
#include "lora.h"
#include "plan_request.h"
#include "tally/config.h"

enum { OWN_STEPS, OWN_SET };

static const struct argp_option own_options[] = {
    {"steps", TL_OWN(OWN_STEPS), NULL, 0, "The derivation, line by line, with the numbers put in", 1},
    {"set", TL_OWN(OWN_SET), "N=3,D=64", 0, "Other sizes of the model: N, D, H, G, K, F, V, C", 1},
    {0},
};

static const struct {
    const char *name;
    int (*run)(tl_explained *e);
} topics[] = {
    {"params", tl_explain_topic_params},
    {"flops", tl_explain_topic_flops},
    {"memory", tl_explain_topic_memory},
    {"adamw", tl_explain_topic_adamw},
};

/* ---- --set ---------------------------------------------------------------------------------------------------- */

typedef struct tl_size_field {
    char letter;
    int64_t *value;
    tl_source *source;
    bool set;
} tl_size_field;

static void put_size(tl_size_field *field, int64_t value, const char *source) {
    *field->value = value;
    snprintf(field->source->text, sizeof field->source->text, "%s", source);
}

/* What followed from a size that was set follows from its new value. */
static void follow(tl_model *m, const tl_model *before, tl_size_field f[8]) {
    enum { N, D, H, G, K, F };
    bool gpt2 = m->family == TL_FAMILY_GPT2;
    bool head_follows = before->head_size * before->heads == before->width;
    if (f[H].set && !f[G].set && before->kv_heads == before->heads)
        put_size(&f[G], m->heads, "H");
    if ((f[H].set || f[D].set) && !f[K].set && head_follows && m->heads > 0 && m->width % m->heads == 0)
        put_size(&f[K], m->width / m->heads, "D/H");
    if (gpt2 && f[D].set && !f[F].set && before->ff == 4 * before->width && m->width <= INT64_MAX / 4)
        put_size(&f[F], 4 * m->width, "4·D");
    (void)f[N];
}

/* "N=3,D=64" into the model. */
static int set_sizes(const tl_cli *cli, const char *text, tl_model *m) {
    tl_size_field f[] = {
        {'N', &m->layers, &m->source_layers, false},       {'D', &m->width, &m->source_width, false},
        {'H', &m->heads, &m->source_heads, false},         {'G', &m->kv_heads, &m->source_kv_heads, false},
        {'K', &m->head_size, &m->source_head_size, false}, {'F', &m->ff, &m->source_ff, false},
        {'V', &m->vocab, &m->source_vocab, false},         {'C', &m->context, &m->source_context, false},
    };
    const tl_model before = *m;
    tl_error error = {TL_OK, ""};
    for (const char *at = text; *at;) {
        char number[64];
        size_t length = strcspn(at, ",");
        int i = 0;
        while (i < 8 && f[i].letter != at[0])
            i++;
        if (i == 8 || length < 3 || at[1] != '=' || length - 2 >= sizeof number)
            return tl_usage(cli,
                            "--set \"%.80s\": \"%.*s\" is no size; N, D, H, G, K, F, V and C are, as in "
                            "--set N=3,D=64%s",
                            text, (int)(length < 40 ? length : 40), at,
                            at[0] == 'B'   ? " (B is --micro-batch)"
                            : at[0] == 'T' ? " (T is --seq)"
                                           : "");
        if (f[i].set)
            return tl_usage(cli, "--set \"%.80s\": %c is given twice", text, at[0]);
        snprintf(number, sizeof number, "%.*s", (int)(length - 2), at + 2);
        int64_t value;
        if (tl_parse_size(number, &value, &error) != TL_OK)
            return tl_usage(cli, "--set %c: %s", at[0], error.message);
        put_size(&f[i], value, "--set");
        f[i].set = true;
        at += length;
        if (*at == ',' && !*++at)
            return tl_usage(cli, "--set \"%.80s\" ends with a comma", text);
    }
    follow(m, &before, f);
    return tl_model_check(m, &error) == TL_OK ? TL_EXIT_OK : tl_usage(cli, "--set: %s", error.message);
}

/* ---- the run -------------------------------------------------------------------------------------------------- */

/* How the model is run, and what of that it does not notice. */
static void note_ways(tl_explained *e, bool bytes) {
    const tl_plan_options *o = &e->options;
    const tl_choices *c = &o->choices;
    char text[TL_CHOICES_TEXT];
    bool words = o->model.family != TL_FAMILY_CRUNCHER;
    if (bytes)
        tl_notes_add(&e->assumed, "one device%s%s%s",
                     words && c->attention == TL_ATTENTION_EAGER ? ", eager attention" : "",
                     words && c->loss == TL_LOSS_FULL ? ", full loss" : "",
                     tl_given(e->cli, TL_OPTION_RECOMPUTE) ? "" : ", nothing recomputed");
    if (tl_choices_text(c, text, sizeof text)[0])
        tl_notes_add(&e->assumed, "%.200s", text);
    for (int i = 0; i < tl_choice_count(); i++) {
        const char *why = tl_choice_effect(&o->model, c, i);
        if (why)
            tl_notes_add(&e->assumed, "%s %s changes nothing for %.60s: %.100s", tl_choice_at(i)->name,
                         tl_choice_value(c, i, text, sizeof text), o->model.name, why);
    }
    if (o->lora.rank)
        tl_notes_add(&e->assumed, "adapters of rank %lld over %s frozen weights", (long long)o->lora.rank,
                     tl_lora_base_name(o->lora.base));
}

/* The defaults that stand in, each an assumption; parameters depend on none of them, FLOPs on no number format. */
static void note_defaults(tl_explained *e, const char *topic) {
    const tl_cli *cli = e->cli;
    const tl_plan_options *o = &e->options;
    bool bytes = strcmp(topic, "memory") == 0, words = o->model.family != TL_FAMILY_CRUNCHER;
    if (strcmp(topic, "params") == 0)
        return;
    if (words && !tl_given(cli, TL_OPTION_SEQ))
        tl_notes_add(&e->assumed, "--seq %lld (the model's context)", (long long)o->seq);
    if (strcmp(topic, "adamw") == 0)
        return;
    if (!tl_given(cli, TL_OPTION_MICRO_BATCH))
        tl_notes_add(&e->assumed, "--micro-batch 1");
    if (!tl_given(cli, TL_OPTION_GLOBAL_BATCH))
        tl_notes_add(&e->assumed, "one micro-batch a step (--global-batch %lld)", (long long)o->micro_batch);
    if (bytes && !tl_given(cli, TL_OPTION_PRECISION))
        tl_notes_add(&e->assumed, "--precision %s", tl_option_choice(cli, TL_OPTION_PRECISION));
    if (bytes && !tl_given(cli, TL_OPTION_OPTIM))
        tl_notes_add(&e->assumed, "--optim %s", tl_option_choice(cli, TL_OPTION_OPTIM));
    if (!bytes && !tl_given(cli, TL_OPTION_FLOPS))
        tl_notes_add(&e->assumed, "--flops full");
    if (bytes && o->precision == TL_PRECISION_FP8_MIXED)
        tl_notes_add(&e->assumed,
                     "fp8 is emulated: values of the blocks' linear layers are rounded to it and kept in bf16");
    if (bytes && o->autocast)
        tl_notes_add(&e->assumed, "autocast: fp32 parameters, cast anew by each product that uses them");
    note_ways(e, bytes);
    const tl_model *m = &o->model;
    if (bytes && (m->dropout_attention > 0 || m->dropout_residual > 0 || m->dropout_embedding > 0))
        tl_notes_add(&e->assumed, "dropout as the model has it (masks of 1 byte)");
}

/* What a topic's number does not depend on is refused, so that nobody takes it for an answer. adamw says for itself what
 * the handout fixes. */
static int refuse_idle(const tl_cli *cli, const char *topic) {
    static const uint64_t batch = TL_TAKES(SEQ) | TL_TAKES(MICRO_BATCH) | TL_TAKES(GLOBAL_BATCH) | TL_TAKES(RECOMPUTE);
    static const uint64_t lora = TL_TAKES_LORA & ~TL_TAKES(LORA_ALPHA); /* which is a factor and no size */
    static const struct {
        const char *topic;
        uint64_t takes;
    } takes[] = {
        {"params", 0},
        {"flops", batch | TL_TAKES(FLOPS) | TL_TAKES(ATTENTION) | TL_TAKES(LOSS) | TL_TAKES(CHOICE) | TL_TAKES(LORA) |
                      TL_TAKES(QLORA) | TL_TAKES(LORA_TARGETS)},
        {"memory", batch | TL_TAKES(PRECISION) | TL_TAKES(AUTOCAST) | TL_TAKES(OPTIM) | TL_TAKES_CHOICES | lora}};
    const int known = (int)(sizeof takes / sizeof takes[0]);
    int asked = 0;
    while (asked < known && strcmp(takes[asked].topic, topic) != 0)
        asked++;
    for (int i = 0; asked < known && i < TL_OPTION_COUNT; i++) {
        const bool flops = takes[1].takes >> i & 1, memory = takes[2].takes >> i & 1;
        if (tl_given(cli, (tl_option)i) && !(takes[asked].takes >> i & 1))
            return tl_usage(cli, "--%s changes nothing for the topic %s; %s%s%s take%s it",
                            tl_option_name((tl_option)i), topic, flops ? "flops" : "", flops && memory ? " and " : "",
                            memory ? "memory" : "", flops && memory ? "" : "s");
    }
    return TL_EXIT_OK;
}

static int prepare(tl_explained *e, const char *topic) {
    const tl_cli *cli = e->cli;
    tl_plan_options *o = &e->options;
    tl_error error = {TL_OK, ""};
    if (tl_model_find(e->asked, &o->model, &error) != TL_OK)
        return tl_failed(cli, &error);
    int status = refuse_idle(cli, topic);
    if (status == TL_EXIT_OK && cli->own[OWN_SET])
        status = set_sizes(cli, cli->own[OWN_SET], &o->model);
    if (status != TL_EXIT_OK)
        return status;
    const tl_option_value *at = cli->options.at;
    o->devices = (tl_devices){.count = 1};
    o->precision = (tl_precision)at[TL_OPTION_PRECISION].choice;
    o->autocast = at[TL_OPTION_AUTOCAST].choice != 0;
    o->optimizer = tl_cli_optimizer(cli);
    const tl_option_value *recompute = &at[TL_OPTION_RECOMPUTE];
    o->recompute = (tl_recompute){(tl_recompute_kind)recompute->choice,
                                  recompute->choice == TL_RECOMPUTE_EVERY ? recompute->size : 0};
    status = tl_cli_choices(cli, &o->choices);
    if (status == TL_EXIT_OK)
        status = tl_cli_lora_typed(cli, &o->lora);
    if (status != TL_EXIT_OK)
        return status;
    o->micro_batch = at[TL_OPTION_MICRO_BATCH].size;
    o->global_batch = at[TL_OPTION_GLOBAL_BATCH].size;
    o->causal = at[TL_OPTION_FLOPS].choice == TL_FLOPS_CAUSAL;
    o->seq = o->model.family == TL_FAMILY_CRUNCHER ? 1 : o->model.context;
    if (strcmp(topic, "params") == 0) {
        o->seq = 1; /* the sizes of a batch are no part of it */
        o->micro_batch = 1;
        o->global_batch = 0;
    } else if (at[TL_OPTION_SEQ].size && o->model.family == TL_FAMILY_CRUNCHER) {
        return tl_usage(cli, "--seq changes nothing: %s has no sequence", o->model.name);
    } else if (at[TL_OPTION_SEQ].size) {
        o->seq = at[TL_OPTION_SEQ].size;
    }
    note_defaults(e, topic);
    if (cli->own[OWN_SET])
        tl_notes_add(&e->assumed, "--set %.100s: no longer %s as published", cli->own[OWN_SET], o->model.name);
    return TL_EXIT_OK;
}

static int run(tl_cli *cli) {
    const char *names[5] = {NULL};
    tl_explained e = {.cli = cli, .asked = cli->arguments[0], .steps = cli->own[OWN_STEPS] != NULL};
    int topic = -1;
    for (int i = 0; i < 4; i++) {
        names[i] = topics[i].name;
        if (cli->n_arguments > 1 && strcmp(cli->arguments[1], topics[i].name) == 0)
            topic = i;
    }
    if (cli->n_arguments < 2)
        return tl_usage(cli, "it needs MODEL and a topic: params, flops, memory or adamw");
    if (topic < 0) {
        const char *near = tl_nearest_of(cli->arguments[1], names);
        return tl_usage(cli, "\"%.80s\" is no topic; it takes: params, flops, memory, adamw%s%s%s", cli->arguments[1],
                        near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    }
    int status = prepare(&e, topics[topic].name);
    if (status != TL_EXIT_OK)
        return status;
    tl_error error = {TL_OK, ""};
    bool own_runs = strcmp(topics[topic].name, "adamw") == 0; /* two, and in fp32 */
    if (!own_runs && tl_plan_run_make(&e.options, true, &e.run, &error) != TL_OK)
        return tl_failed(cli, &error);
    status = topics[topic].run(&e);
    if (!own_runs)
        tl_plan_run_free(&e.run);
    return status;
}

/* ---- params --------------------------------------------------------------------------------------------------- */

/* What belongs to a layer: "85M in blocks". */
static tl_u128 in_blocks(const tl_explain_sum *sum) {
    tl_u128 value = 0;
    for (int i = 0; i < sum->count; i++)
        if (strchr(sum->term[i].pattern, '*'))
            value += sum->term[i].value;
    return value;
}

static int params_out(const tl_explained *e, const tl_explain_sum *sum, const tl_parameter_count *count) {
    const tl_cli *cli = e->cli;
    const tl_poly *const formulas[] = {sum->formula, NULL};
    char value[TL_TEXT], other[TL_TEXT], third[TL_TEXT], fourth[TL_TEXT], rest[2048];
    int at = 0;
    if (cli->format == TL_FORMAT_JSON) {
        tl_json *json = tl_cli_json_open(cli);
        if (!json)
            return TL_EXIT_FAILED;
        tl_explained_json(json, "params", "parameters", sum, formulas);
        tl_json_put_integer(json, "untied", count->untied);
        tl_json_put_integer(json, "non_embedding", count->non_embedding);
        tl_json_put_unsigned(json, "in_blocks", in_blocks(sum));
        tl_explained_assumed_json(e, &e->run, json);
        return tl_cli_json_close(cli, json);
    }
    if (cli->format != TL_FORMAT_TABLE)
        return tl_explained_print_grid(e, sum);
    snprintf(rest, sizeof rest, "= %s", tl_explained_text(&e->run, sum->formula, 0));
    tl_out_answer(cli, tl_explained_value(sum->value, value), rest);
    tl_explained_symbols_out(e, &e->run, formulas);
    at = snprintf(rest, sizeof rest, "embedding %s; ",
                  e->options.model.tied ? "counted once (tied)" : "and head are two tensors (untied)");
    if (count->untied != count->unique)
        at += snprintf(rest + at, sizeof rest - (size_t)at, "counted again as the head: %s; ",
                       tl_explained_value((tl_u128)count->untied, other));
    tl_out_item(cli, "counted", "%snon-embedding %s; in the %lld blocks %s",
                e->options.model.family == TL_FAMILY_CRUNCHER ? "" : rest,
                tl_explained_value((tl_u128)count->non_embedding, third), (long long)e->options.model.layers,
                tl_explained_value(in_blocks(sum), fourth));
    tl_explained_shares_out(e, "shares", sum);
    if (e->steps)
        tl_explained_steps_out(e, NULL, sum);
    tl_explained_assumed_out(e, &e->run);
    return TL_EXIT_OK;
}

int tl_explain_topic_params(tl_explained *e) {
    tl_explain_sum sum;
    tl_error error = {TL_OK, ""};
    if (tl_explain_params(&e->run, &sum, &error) != TL_OK)
        return tl_failed(e->cli, &error);
    tl_parameter_count count;
    tl_net_count(tl_trainer_net(e->run.trainer), &count);
    int status = params_out(e, &sum, &count);
    tl_explain_free(&sum);
    return status;
}

const tl_verb tl_verb_explain = {
    .name = "explain",
    .summary = "a number as a formula: its symbols, the numbers put in, where each came from",
    .group = TL_GROUP_BEFORE,
    .arguments = "MODEL params|flops|memory|adamw",
    .words = NULL,
    .details = "The model runs on the device meta with polynomials beside its sizes; what is\n"
               "printed is what that run booked, and its formula is evaluated and compared\n"
               "first. adamw is CS336's adamwAccounting.\n\n"
               "  tally explain gpt2-xl params\n"
               "  tally explain gpt2-xl flops --steps\n"
               "  tally explain llama-3-8b memory --seq 4096 --optim sgd\n"
               "  tally explain gpt2 memory --attention flash --loss chunked:16\n"
               "  tally explain cs336-gpt2-xl adamw",
    .takes = TL_TAKES(SEQ) | TL_TAKES(MICRO_BATCH) | TL_TAKES(GLOBAL_BATCH) | TL_TAKES(PRECISION) | TL_TAKES(AUTOCAST) |
             TL_TAKES(OPTIM) | TL_TAKES(FLOPS) | TL_TAKES(RECOMPUTE) | TL_TAKES_CHOICES |
             (TL_TAKES_LORA & ~TL_TAKES(LORA_ALPHA)),
    .own = own_options,
    .min_arguments = 1,
    .max_arguments = 2,
    .run = run,
};
