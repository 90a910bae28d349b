/* cli/data.c: tally data, files of tokens: what they hold (info), whether every id can be (verify), and making them (pack). */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "data.h"
#include "tally/tokenizer.h"

enum { MOST_FREQUENT = 8, FILES_SHOWN = 6, HISTOGRAM_16 = 65536, HISTOGRAM_32 = 262144 };

typedef struct tl_data_look {
    tl_tokens *tokens;
    tl_token_scan scan;
    int64_t vocab, separator, different; /* different −1: not counted; separator −1: none */
    const char *separator_source;        /* "--separator", or what was assumed */
    tl_sidecar *sidecar;                 /* what pack noted beside them */
    int64_t *histogram, histogram_size, bytes;
    int n_frequent;
    int64_t frequent[MOST_FREQUENT];
} tl_data_look;

int tl_data_options(const tl_cli *cli, const char *form, const char *dtype, tl_tokens_options *options) {
    static const char *const forms[] = {"raw", "llmc", "npy"};
    *options = (tl_tokens_options){TL_TOKENS_ANY, 0};
    for (int i = 0; form && i < 3; i++)
        if (strcmp(form, forms[i]) == 0)
            options->form = (tl_token_form)(TL_TOKENS_RAW + i);
    if (form && options->form == TL_TOKENS_ANY)
        return tl_usage(cli, "there is no form \"%.60s\"; raw, llmc and npy would work", form);
    if (dtype && strcmp(dtype, "uint16") == 0)
        options->width = 2;
    else if (dtype && strcmp(dtype, "uint32") == 0)
        options->width = 4;
    else if (dtype)
        return tl_usage(cli, "ids are uint16 or uint32, not \"%.60s\"", dtype);
    return TL_EXIT_OK;
}

bool tl_data_is_tokens(const char *path, const unsigned char *head, size_t length, int64_t bytes) {
    tl_token_file file;
    tl_error error = {TL_OK, ""};
    const size_t n = strlen(path);
    const bool bin = n > 4 && strcmp(path + n - 4, ".bin") == 0;
    static const unsigned char magics[3][4] = {
        {0x88, 0xD8, 0x34, 0x01}, {0xA1, 0xD9, 0x34, 0x01}, {0x8A, 0xD8, 0x34, 0x01}};
    for (int i = 0; i < 3; i++) /* llm.c's, the one of evaluation files too: their reader says what they are */
        if (length >= 4 && memcmp(head, magics[i], 4) == 0)
            return true;
    /* Any bytes would do as ids: without a header the name has to say so. */
    return bin && tl_tokens_parse(head, length, bytes, path, NULL, &file, &error) == TL_OK;
}

/* ---- looking --------------------------------------------------------------------------------------------------- */

static void find_frequent(tl_data_look *l) {
    l->different = 0;
    for (int64_t id = 0; id < l->histogram_size; id++) {
        const int64_t count = l->histogram[id];
        if (count == 0)
            continue;
        l->different++;
        int at = l->n_frequent;
        while (at > 0 && l->histogram[l->frequent[at - 1]] < count)
            at--;
        if (at == MOST_FREQUENT)
            continue;
        const int last = l->n_frequent < MOST_FREQUENT ? l->n_frequent++ : MOST_FREQUENT - 1;
        for (int i = last; i > at; i--)
            l->frequent[i] = l->frequent[i - 1];
        l->frequent[at] = id;
    }
    if (l->scan.most >= l->histogram_size || l->scan.least < 0)
        l->different = -1;
}

/* Ids that end or begin documents in files met often; said as assumed. */
static void assume_separator(tl_data_look *l) {
    static const struct {
        int64_t id, least, most; /* of the largest id in the stream */
        const char *source;
    } known[] = {{50256, 50256, 50256, "GPT-2's <|endoftext|>, assumed"},
                 {128001, 128000, 128255, "Llama 3's <|end_of_text|>, assumed"},
                 {128000, 128000, 128255, "Llama 3's <|begin_of_text|>, assumed"},
                 {256, 256, 256, "the one behind 256 bytes, assumed"}};
    for (size_t i = 0; i < sizeof known / sizeof known[0] && l->separator < 0; i++)
        if (l->scan.most >= known[i].least && l->scan.most <= known[i].most && known[i].id < l->histogram_size &&
            l->histogram[known[i].id] > 0) {
            l->separator = known[i].id;
            l->separator_source = known[i].source;
            l->scan.separators = l->histogram[known[i].id];
        }
}

static int look(const tl_cli *cli, const char *const *paths, int count, const tl_tokens_options *options, bool separate,
                tl_data_look *l) {
    tl_error error = {TL_OK, ""};
    l->tokens = tl_tokens_open(paths, count, options, NULL, &error);
    if (!l->tokens)
        return tl_failed(cli, &error);
    l->histogram_size = tl_tokens_file(l->tokens, 0)->width == 2 ? HISTOGRAM_16 : HISTOGRAM_32;
    l->histogram = calloc((size_t)l->histogram_size, sizeof *l->histogram);
    l->sidecar = malloc(sizeof *l->sidecar);
    if (!l->histogram || !l->sidecar) {
        tl_say(cli, "out of memory");
        return TL_EXIT_FAILED;
    }
    if (tl_sidecar_read(l->tokens, l->sidecar, &error) != TL_OK)
        return tl_failed(cli, &error);
    if (l->sidecar->there && !l->vocab)
        l->vocab = l->sidecar->vocab;
    if (l->sidecar->there && separate && l->separator < 0) {
        l->separator = l->sidecar->separator;
        l->separator_source = "as pack noted";
    }
    const tl_token_scan_options how = {l->vocab, l->separator, l->histogram, l->histogram_size};
    if (tl_tokens_scan(l->tokens, &how, &l->scan, &error) != TL_OK)
        return tl_failed(cli, &error);
    for (int i = 0; i < tl_tokens_files(l->tokens); i++)
        l->bytes += tl_tokens_file(l->tokens, i)->bytes;
    find_frequent(l);
    if (separate)
        assume_separator(l);
    return TL_EXIT_OK;
}

static void look_end(tl_data_look *l) {
    free(l->histogram);
    free(l->sidecar);
    tl_tokens_close(l->tokens);
}

/* ---- machines' forms ------------------------------------------------------------------------------------------- */

static tl_grid *stream_grid(const tl_data_look *l) {
    static const tl_column columns[] = {
        {"tokens", "tokens", true, false, false},
        {"form", "form", false, false, false},
        {"dtype", "dtype", false, false, false},
        {"dtype_evidence", "evidence", false, true, true},
        {"file_count", "files", true, false, false},
        {"bytes", "bytes", true, false, false},
        {"least_id", "least", true, false, false},
        {"most_id", "most", true, false, false},
        {"different_ids", "different", true, false, false},
        {"separator", "separator", true, false, false},
        {"separators", "separators", true, false, false},
        {"vocab", "vocabulary", true, false, false},
        {"ok", "ok", false, false, false},
        {"bad_ids", "bad", true, false, false},
        {"first_bad_position", "first bad at", true, false, false},
        {"first_bad_index", "its index in the file", true, true, false},
        {"first_bad_id", "its id", true, false, false},
        {"first_bad_path", "its file", false, true, false},
        {"problem", "problem", false, false, true},
        {"tokenizer", "tokenizer", false, true, true},
        {"text_bytes", "bytes of text", true, true, false},
    };
    const tl_token_file *f = tl_tokens_file(l->tokens, 0), *bad = tl_tokens_at(l->tokens, l->scan.first_bad);
    const tl_token_scan *s = &l->scan;
    tl_grid *g = tl_grid_new(columns, (int)(sizeof columns / sizeof columns[0]));
    tl_grid_integer(g, s->count, NULL);
    tl_grid_string(g, tl_token_form_name(f->form), NULL);
    tl_grid_string(g, tl_token_file_dtype(f), NULL);
    tl_grid_string(g, f->inferred ? f->evidence : NULL, NULL);
    tl_grid_integer(g, tl_tokens_files(l->tokens), NULL);
    tl_grid_integer(g, l->bytes, NULL);
    const struct {
        bool known;
        int64_t value;
    } numbers[] = {{s->count > 0, s->least},           {s->count > 0, s->most},
                   {l->different >= 0, l->different},  {l->separator >= 0, l->separator},
                   {l->separator >= 0, s->separators}, {l->vocab > 0, l->vocab}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (numbers[i].known)
            tl_grid_integer(g, numbers[i].value, NULL);
        else
            tl_grid_null(g);
    tl_grid_boolean(g, s->bad == 0, NULL);
    tl_grid_integer(g, s->bad, NULL);
    if (bad) {
        tl_grid_integer(g, s->first_bad, NULL);
        tl_grid_integer(g, s->first_bad - bad->first, NULL);
        tl_grid_integer(g, s->first_bad_id, NULL);
        tl_grid_string(g, bad->path, NULL);
        tl_grid_string(g, s->problem, NULL);
    } else {
        for (int i = 0; i < 5; i++)
            tl_grid_null(g);
    }
    tl_grid_string(g, l->sidecar->there ? l->sidecar->tokenizer : NULL, NULL);
    if (l->sidecar->text_bytes > 0)
        tl_grid_integer(g, l->sidecar->text_bytes, NULL);
    else
        tl_grid_null(g);
    return g;
}

static void put_lists(tl_json *json, const tl_data_look *l) {
    tl_json_key(json, "files");
    tl_json_array(json);
    for (int i = 0; i < tl_tokens_files(l->tokens); i++) {
        const tl_token_file *f = tl_tokens_file(l->tokens, i);
        tl_json_object(json);
        tl_json_put_string(json, "path", f->path);
        tl_json_put_integer(json, "tokens", f->count);
        tl_json_put_integer(json, "bytes", f->bytes);
        tl_json_put_integer(json, "first_token_byte", f->offset);
        tl_json_end(json);
    }
    tl_json_end(json);
    tl_json_key(json, "most_frequent");
    tl_json_array(json);
    for (int i = 0; i < l->n_frequent; i++) {
        tl_json_object(json);
        tl_json_put_integer(json, "id", l->frequent[i]);
        tl_json_put_integer(json, "count", l->histogram[l->frequent[i]]);
        tl_json_end(json);
    }
    tl_json_end(json);
}

static int print_machine(const tl_cli *cli, const char *action, const tl_data_look *l) {
    tl_grid *grid = stream_grid(l);
    int status = TL_EXIT_FAILED;
    if (cli->format == TL_FORMAT_JSON) {
        tl_json *json = tl_cli_json_open(cli);
        if (json) {
            tl_json_put_string(json, "action", action);
            tl_grid_json_row(grid, 0, json);
            put_lists(json, l);
            status = tl_cli_json_close(cli, json);
        }
    } else {
        status = tl_grid_print(cli, grid, "streams");
    }
    tl_grid_free(grid);
    return status;
}

/* ---- for people ------------------------------------------------------------------------------------------------ */

static void out_files(const tl_cli *cli, const tl_tokens *tokens) {
    char digits[TL_TEXT];
    const int n = tl_tokens_files(tokens), shown = cli->verbosity > 0 || n <= FILES_SHOWN ? n : FILES_SHOWN - 1;
    for (int i = 0; i < shown; i++) {
        const tl_token_file *f = tl_tokens_file(tokens, i);
        if (n == 1)
            tl_out_item(cli, "file", "%s", f->path);
        else
            tl_out_item(cli, i ? "" : "files", "%s: %s", f->path, tl_text_grouped((tl_u128)f->count, digits));
    }
    if (shown < n)
        tl_out_item(cli, "", "… and %d more (-v shows them)", n - shown);
}

static void out_form(const tl_cli *cli, const tl_token_file *f) {
    if (f->form == TL_TOKENS_LLMC)
        tl_out_item(cli, "header", "llm.c, version %d; ids from byte %lld on", f->version, (long long)f->offset);
    else if (f->form == TL_TOKENS_NPY)
        tl_out_item(cli, "header", "NumPy, version %d.0; ids from byte %lld on", f->version, (long long)f->offset);
    else if (f->inferred)
        tl_out_item(cli, "header", "none; ids of %s, inferred: %s", tl_token_file_dtype(f), f->evidence);
    else
        tl_out_item(cli, "header", "none; ids of %s, as stated", tl_token_file_dtype(f));
}

static void out_documents(const tl_cli *cli, const tl_data_look *l) {
    char count[TL_TEXT], average[TL_TEXT];
    if (l->separator < 0) {
        if (l->sidecar->there && l->sidecar->documents > 1)
            tl_out_item(cli, "documents", "%s without a separator, as pack noted",
                        tl_text_grouped((tl_u128)l->sidecar->documents, count));
        else
            tl_out_item(cli, "documents", "not known: no separator is named (--separator ID)");
        return;
    }
    tl_text_grouped((tl_u128)l->scan.separators, count);
    if (l->scan.separators)
        tl_out_item(cli, "documents", "%s times the separator %lld (%s), each %s tokens or so", count,
                    (long long)l->separator, l->separator_source,
                    tl_text_grouped((tl_u128)(l->scan.count / l->scan.separators), average));
    else
        tl_out_item(cli, "documents", "the separator %lld (%s) does not occur", (long long)l->separator,
                    l->separator_source);
}

static void out_frequent(const tl_cli *cli, const tl_data_look *l) {
    char text[MOST_FREQUENT * 48] = "";
    size_t at = 0;
    for (int i = 0; i < l->n_frequent && at < sizeof text; i++) {
        const int n =
            snprintf(text + at, sizeof text - at, "%s%lld (%.3g %%)", i ? ", " : "", (long long)l->frequent[i],
                     100.0 * (double)l->histogram[l->frequent[i]] / (double)l->scan.count);
        at += n > 0 ? (size_t)n : 0;
    }
    if (l->n_frequent)
        tl_out_item(cli, "frequent", "%s", text);
}

static void out_stream(const tl_cli *cli, const tl_data_look *l) {
    char digits[TL_TEXT], size[TL_TEXT], answer[128], rest[256], different[TL_TEXT];
    const tl_token_file *f = tl_tokens_file(l->tokens, 0);
    const int n = tl_tokens_files(l->tokens);
    snprintf(answer, sizeof answer, "%s token%s", tl_text_grouped((tl_u128)l->scan.count, digits),
             l->scan.count == 1 ? "" : "s");
    snprintf(rest, sizeof rest, "(%s of %s, %s%s%.0d%s)", tl_token_form_name(f->form), tl_token_file_dtype(f),
             tl_text_bytes((double)l->bytes, cli->units, size), n > 1 ? " in " : "", n > 1 ? n : 0,
             n > 1 ? " files" : "");
    tl_out_answer(cli, answer, rest);
    out_files(cli, l->tokens);
    out_form(cli, f);
    if (l->scan.count && l->different >= 0)
        tl_out_item(cli, "ids", "%lld to %lld; %s different", (long long)l->scan.least, (long long)l->scan.most,
                    tl_text_grouped((tl_u128)l->different, different));
    else if (l->scan.count)
        tl_out_item(cli, "ids", "%lld to %lld", (long long)l->scan.least, (long long)l->scan.most);
    if (l->scan.count) {
        out_documents(cli, l);
        out_frequent(cli, l);
    }
    if (l->sidecar->there)
        tl_out_item(cli, "tokenizer", "%s, vocabulary %lld", l->sidecar->tokenizer, (long long)l->sidecar->vocab);
    if (l->sidecar->text_bytes > 0 && l->scan.count)
        tl_out_item(cli, "text", "%s, %.2f bytes a token",
                    tl_text_bytes((double)l->sidecar->text_bytes, cli->units, size),
                    (double)l->sidecar->text_bytes / (double)l->scan.count);
    if (l->scan.bad)
        tl_out_item(cli, "problem", "%s", l->scan.problem);
}

/* ---- the verb -------------------------------------------------------------------------------------------------- */

static int read_number(const tl_cli *cli, int own, const char *name, int64_t least, int64_t *value) {
    tl_error error = {TL_OK, ""};
    if (!cli->own[own])
        return TL_EXIT_OK;
    if (tl_parse_size(cli->own[own], value, &error) != TL_OK)
        return tl_usage(cli, "--%s: %s", name, error.message);
    if (*value < least || *value > INT32_MAX)
        return tl_usage(cli, "--%s %.60s: %lld to 2147483647 would work", name, cli->own[own], (long long)least);
    return TL_EXIT_OK;
}

/* A tokenizer's vocabulary, in place of --vocab. */
static int vocab_of(const tl_cli *cli, int64_t *vocab) {
    const char *name = cli->own[TL_DATA_TOKENIZER];
    tl_error error = {TL_OK, ""};
    if (!name)
        return TL_EXIT_OK;
    if (cli->own[TL_DATA_VOCAB])
        return tl_usage(cli, "--vocab or --tokenizer, not both: a tokenizer has its vocabulary");
    tl_tokenizer *tokenizer = tl_tokenizer_open(name, NULL, &error);
    if (!tokenizer)
        return tl_failed(cli, &error);
    *vocab = tl_tokenizer_size(tokenizer);
    tl_tokenizer_free(tokenizer);
    return TL_EXIT_OK;
}

static int info(const tl_cli *cli, const char *const *paths, int count, const tl_tokens_options *options,
                tl_data_look *l) {
    int status = look(cli, paths, count, options, true, l);
    if (status != TL_EXIT_OK)
        return status;
    if (cli->format != TL_FORMAT_TABLE)
        return print_machine(cli, "info", l);
    out_stream(cli, l);
    return TL_EXIT_OK;
}

static int verify(const tl_cli *cli, const tl_tokens_options *options, tl_data_look *l) {
    char digits[TL_TEXT], rest[768];
    int status = look(cli, cli->arguments + 1, cli->n_arguments - 1, options, false, l);
    if (status != TL_EXIT_OK)
        return status;
    const int verdict = l->scan.bad ? TL_EXIT_FAILED : TL_EXIT_OK;
    if (cli->format != TL_FORMAT_TABLE) {
        status = print_machine(cli, "verify", l);
        return status == TL_EXIT_OK ? verdict : status;
    }
    tl_text_grouped((tl_u128)l->scan.count, digits);
    if (l->scan.bad) {
        tl_out_answer(cli, "bad", l->scan.problem);
        tl_out_item(cli, "bad ids", "%lld of %s", (long long)l->scan.bad, digits);
        return verdict;
    }
    if (!l->scan.count) {
        tl_out_answer(cli, "empty", "0 tokens: there is no id to verify");
        return verdict;
    }
    if (l->vocab)
        snprintf(rest, sizeof rest, "%s tokens, every id below %lld (largest: %lld)", digits, (long long)l->vocab,
                 (long long)l->scan.most);
    else
        snprintf(rest, sizeof rest,
                 "%s tokens, ids %lld to %lld; without --vocab N nothing larger is known to be wrong", digits,
                 (long long)l->scan.least, (long long)l->scan.most);
    tl_out_answer(cli, "ok", rest);
    return verdict;
}

int tl_data_report(const tl_cli *cli, const char *path) {
    tl_data_look l = {.separator = -1};
    const tl_tokens_options any = {TL_TOKENS_ANY, 0};
    const int status = info(cli, &path, 1, &any, &l);
    look_end(&l);
    return status;
}

static int run(tl_cli *cli) {
    static const char *const actions[] = {"info", "verify", "pack", "learn", "encode", "decode", NULL};
    static const char *const needs[] = {"FILE",
                                        "FILE",
                                        "TEXT, the file to make tokens of",
                                        "TEXT, files to learn from",
                                        "TEXT, a file, or - for standard input",
                                        "IDS: 1,2,3, a file of them, or - for standard input"};
    static int (*const others[])(tl_cli *) = {NULL, NULL, tl_data_pack, tl_data_learn, tl_data_encode, tl_data_decode};
    tl_data_look l = {.separator = -1};
    tl_tokens_options options;
    int action = 0;
    (void)signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes is then an error of write, and is reported */
    while (actions[action] && strcmp(actions[action], cli->arguments[0]) != 0)
        action++;
    if (!actions[action]) {
        const char *near = tl_nearest_of(cli->arguments[0], actions);
        return tl_usage(cli, "info, verify, pack, learn, encode and decode would work, not \"%.60s\"%s%s%s",
                        cli->arguments[0], near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    }
    if (cli->n_arguments < 2)
        return tl_usage(cli, "%s needs %s", actions[action], needs[action]);
    if (others[action])
        return others[action](cli);
    if (cli->own[TL_DATA_OUTPUT] || cli->own[TL_DATA_SPECIAL])
        return tl_usage(cli, "--%s is for pack; %s prints what it finds",
                        cli->own[TL_DATA_OUTPUT] ? "output" : "special", actions[action]);
    if (action == 1 && cli->own[TL_DATA_SEPARATOR])
        return tl_usage(cli, "--separator changes nothing about verify; info counts documents with it");
    int status = tl_data_options(cli, cli->own[TL_DATA_FORM], cli->own[TL_DATA_DTYPE], &options);
    if (status == TL_EXIT_OK)
        status = read_number(cli, TL_DATA_VOCAB, "vocab", 1, &l.vocab);
    if (status == TL_EXIT_OK)
        status = vocab_of(cli, &l.vocab);
    if (status == TL_EXIT_OK)
        status = read_number(cli, TL_DATA_SEPARATOR, "separator", 0, &l.separator);
    if (status != TL_EXIT_OK)
        return status;
    l.separator_source = "--separator";
    status =
        action == 0 ? info(cli, cli->arguments + 1, cli->n_arguments - 1, &options, &l) : verify(cli, &options, &l);
    look_end(&l);
    return status;
}

/* In the order of TL_DATA_…. */
static const struct argp_option own_options[] = {
    {"vocab", TL_OWN(TL_DATA_VOCAB), "N", 0, "Ids must be below N; learn: how many tokens there are to be", 0},
    {"separator", TL_OWN(TL_DATA_SEPARATOR), "ID", 0,
     "The id between documents: info counts it, pack writes it; `none'", 0},
    {"form", TL_OWN(TL_DATA_FORM), "FORM", 0, "raw, llmc or npy; read: what the file says; pack: .npy, else raw", 0},
    {"dtype", TL_OWN(TL_DATA_DTYPE), "NAME", 0, "uint16 or uint32; of raw files, inferred where the ids show it", 0},
    {"output", TL_OWN(TL_DATA_OUTPUT), "FILE", 0, "Where pack writes; learn: the tokenizer's FOLDER", 0},
    {"tokenizer", TL_OWN(TL_DATA_TOKENIZER), "NAME", 0,
     "bytes (default of pack), bytes+eot, a tokenizer.json or its folder; to verify: its vocabulary", 0},
    {"special", TL_OWN(TL_DATA_SPECIAL), "text|encode|refuse", 0,
     "What <|endoftext|> in a text is to pack, encode (default text); learn: names (\"<|endoftext|>\"), none", 0},
    {0},
};

const tl_verb tl_verb_data = {
    .name = "data",
    .summary = "files of tokens: what they hold, whether every id can be, and making them",
    .group = TL_GROUP_LOOKUP,
    .arguments = "info|verify|pack|learn|encode|decode PATH…",
    .words = "info verify pack learn encode decode",
    .details = "info      form, tokens, width, range and documents of the stream\n"
               "verify    reads every id; exit 1 with the first that cannot be\n"
               "pack      makes a file of tokens of texts, each a document; FILE.json beside it\n"
               "          notes the tokenizer, for train\n"
               "learn     a tokenizer from texts: byte-level BPE of --vocab tokens\n"
               "encode    prints the ids of a file of text; - is standard input\n"
               "decode    prints the text of ids: 1,2,3, a file of them, or -\n\n"
               "FILE is a file, a folder or a quoted pattern; several are one stream. A folder's\n"
               "files are those its shards.txt lists, else all its *.bin and *.npy, by name.\n"
               "Forms: raw ids (nanoGPT), llm.c's shards of version 1 and 7, NumPy's .npy.",
    .takes = 0,
    .own = own_options,
    .letters = "    o",
    .min_arguments = 1,
    .max_arguments = TL_ARGUMENT_COUNT,
    .run = run,
};
