/* cli/data_pack.c: tally data pack, a file of tokens from texts. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data.h"
#include "tally/tokenizer.h"

enum { BLOCK = 1 << 16 };

typedef struct tl_packing {
    const tl_cli *cli;
    tl_tokenizer *tokenizer;
    tl_encoder *encoder;
    tl_token_list ids; /* of a block */
    int64_t vocab;     /* of the tokenizer */
    int64_t separator; /* −1: none */
    tl_token_writer *writer;
    int64_t text_bytes, tokens, documents;
    int64_t *starts; /* where each document begins; TL_ARGUMENT_COUNT of them */
    const char *path;
} tl_packing;

static tl_status put_id(tl_packing *p, int32_t id, tl_error *error) {
    p->tokens++;
    return tl_token_writer_put(p->writer, &id, 1, error);
}

/* Ids that came so far, to the writer. */
static tl_status flush_ids(tl_packing *p, tl_status status, tl_error *error) {
    if (status == TL_OK)
        status = tl_token_writer_put(p->writer, p->ids.ids, (int64_t)p->ids.count, error);
    p->tokens += (int64_t)p->ids.count;
    p->ids.count = 0;
    return status;
}

static tl_status put_file(tl_packing *p, const char *path, tl_error *error) {
    static char block[BLOCK];
    p->starts[p->documents] = p->tokens;
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        const int reason = errno;
        return tl_fail(error, TL_ERR_IO, "cannot read %s: %s", path, strerror(reason));
    }
    tl_status status = TL_OK;
    ssize_t n = 0;
    while (status == TL_OK && (n = read(file, block, sizeof block)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            const int reason = errno;
            status = tl_fail(error, TL_ERR_IO, "cannot read %s: %s", path, strerror(reason));
            break;
        }
        p->text_bytes += n;
        status = flush_ids(p, tl_encoder_feed(p->encoder, block, (size_t)n, &p->ids, error), error);
    }
    close(file);
    if (status == TL_OK)
        status = flush_ids(p, tl_encoder_finish(p->encoder, &p->ids, error), error);
    if (status == TL_OK && p->separator >= 0)
        status = put_id(p, (int32_t)p->separator, error);
    p->documents++;
    return status;
}

/* The output takes the place of what has its name: not of a text that is to be read. */
static tl_status check_texts(const tl_packing *p, tl_error *error) {
    struct stat output, text;
    if (stat(p->path, &output) != 0)
        return TL_OK;
    for (int i = 1; i < p->cli->n_arguments; i++)
        if (stat(p->cli->arguments[i], &text) == 0 && text.st_dev == output.st_dev && text.st_ino == output.st_ino)
            return tl_fail(error, TL_ERR_ARGUMENT, "-o %s is the text %s itself; another name would work", p->path,
                           p->cli->arguments[i]);
    return TL_OK;
}

static bool ends_with(const char *name, const char *end) {
    const size_t n = strlen(name), m = strlen(end);
    return n > m && strcmp(name + n - m, end) == 0;
}

static int report(const tl_packing *p, const tl_tokens_options *o) {
    char tokens[TL_TEXT], size[TL_TEXT], answer[128];
    const tl_cli *cli = p->cli;
    const char *dtype = o->width == 2 ? "uint16" : "uint32";
    if (cli->format != TL_FORMAT_TABLE) {
        static const tl_column columns[] = {
            {"path", "file", false, false, false},          {"form", "form", false, false, false},
            {"dtype", "dtype", false, false, false},        {"tokens", "tokens", true, false, false},
            {"documents", "documents", true, false, false}, {"text_bytes", "bytes of text", true, false, false},
            {"vocab", "vocabulary", true, false, false},    {"separator", "separator", true, false, false},
        };
        tl_grid *g = tl_grid_new(columns, 8);
        tl_grid_string(g, p->path, NULL);
        tl_grid_string(g, tl_token_form_name(o->form), NULL);
        tl_grid_string(g, dtype, NULL);
        tl_grid_integer(g, p->tokens, NULL);
        tl_grid_integer(g, p->documents, NULL);
        tl_grid_integer(g, p->text_bytes, NULL);
        tl_grid_integer(g, p->vocab, NULL);
        if (p->separator >= 0)
            tl_grid_integer(g, p->separator, NULL);
        else
            tl_grid_null(g);
        int status = TL_EXIT_FAILED;
        tl_json *json = cli->format == TL_FORMAT_JSON ? tl_cli_json_open(cli) : NULL;
        if (json) {
            tl_json_put_string(json, "action", "pack");
            tl_grid_json_row(g, 0, json);
            status = tl_cli_json_close(cli, json);
        } else if (cli->format != TL_FORMAT_JSON) {
            status = tl_grid_print(cli, g, "files");
        }
        tl_grid_free(g);
        return status;
    }
    snprintf(answer, sizeof answer, "%s tokens", tl_text_grouped((tl_u128)p->tokens, tokens));
    tl_out_answer(cli, answer,
                  o->form == TL_TOKENS_RAW && o->width == 2 ? "(raw of uint16, as nanoGPT reads)"
                  : o->form == TL_TOKENS_RAW                ? "(raw of uint32)"
                  : o->form == TL_TOKENS_NPY                ? (o->width == 2 ? "(npy of uint16)" : "(npy of uint32)")
                  : o->width == 2                           ? "(llm.c, version 1, of uint16)"
                                                            : "(llm.c, version 7, of uint32)");
    tl_out_item(cli, "file", "%s", p->path);
    tl_out_item(cli, "text", "%s in %lld document%s, %.2f bytes a token",
                tl_text_bytes((double)p->text_bytes, cli->units, size), (long long)p->documents,
                p->documents == 1 ? "" : "s", p->tokens ? (double)p->text_bytes / (double)p->tokens : 0.0);
    if (p->separator >= 0)
        tl_out_item(cli, "separator", "%lld behind each document", (long long)p->separator);
    else
        tl_out_item(cli, "separator", "none: documents follow each other without a mark%s",
                    p->documents > 1 ? "; FILE.json notes where each begins" : "");
    tl_out_item(cli, "tokenizer", "%s", tl_tokenizer_describe(p->tokenizer));
    tl_out_item(cli, "vocabulary", "%lld", (long long)p->vocab);
    return TL_EXIT_OK;
}

static int read_separator(const tl_cli *cli, tl_packing *p) {
    tl_error error = {TL_OK, ""};
    const char *text = cli->own[TL_DATA_SEPARATOR];
    p->separator = text ? -1 : tl_tokenizer_end_of_text(p->tokenizer);
    if (!text || strcmp(text, "none") == 0)
        return TL_EXIT_OK;
    if (tl_parse_size(text, &p->separator, &error) != TL_OK)
        return tl_usage(cli, "--separator: %s", error.message);
    if (p->separator < 0 || p->separator >= INT32_MAX)
        return tl_usage(cli, "--separator %.60s: 0 to 2147483646 would work", text);
    p->vocab = p->separator >= p->vocab ? p->separator + 1 : p->vocab;
    return TL_EXIT_OK;
}

int tl_data_special(const tl_cli *cli, tl_special *special) {
    static const char *const words[] = {"text", "encode", "refuse", NULL}; /* in the order of tl_special */
    const char *word = cli->own[TL_DATA_SPECIAL];
    int choice = 0;
    while (word && words[choice] && strcmp(words[choice], word) != 0)
        choice++;
    if (!words[choice])
        return tl_usage(cli, "--special %.60s: text, encode and refuse would work", word);
    *special = (tl_special)choice;
    return TL_EXIT_OK;
}

static int open_tokenizer(const tl_cli *cli, tl_packing *p) {
    const char *name = cli->own[TL_DATA_TOKENIZER];
    tl_error error = {TL_OK, ""};
    tl_special special = TL_SPECIAL_TEXT;
    const int status = tl_data_special(cli, &special);
    if (status != TL_EXIT_OK)
        return status;
    p->tokenizer = tl_tokenizer_open(name ? name : "bytes", NULL, &error);
    p->encoder = p->tokenizer ? tl_encoder_new(p->tokenizer, special, NULL, &error) : NULL;
    if (!p->encoder)
        return tl_failed(cli, &error);
    p->vocab = tl_tokenizer_size(p->tokenizer);
    return TL_EXIT_OK;
}

/* The old one goes before the new tokens come and the new one comes after them: it never stands beside tokens that it does
 * not tell of. */
static tl_status end_file(tl_packing *p, tl_status status, tl_error *error) {
    static tl_sidecar s; /* its paths are no load for a stack */
    char path[TL_DATA_PATH];
    const char *name = p->cli->own[TL_DATA_TOKENIZER];
    if (status == TL_OK && tl_sidecar_path(p->path, path) && unlink(path) != 0 && errno != ENOENT) {
        const int reason = errno;
        status = tl_fail(error, TL_ERR_IO, "cannot remove %s: %s", path, strerror(reason));
    }
    status = tl_token_writer_end(p->writer, status, error);
    if (status != TL_OK)
        return status;
    s = (tl_sidecar){.vocab = p->vocab,
                     .separator = p->separator,
                     .tokens = p->tokens,
                     .documents = p->documents,
                     .text_bytes = p->text_bytes,
                     .starts = p->separator < 0 && p->documents > 1 ? p->starts : NULL};
    if (!tl_tokenizer_absolute(name ? name : "bytes", s.tokenizer))
        return tl_fail(error, TL_ERR_ARGUMENT, "a path of more than %d bytes", TL_DATA_PATH);
    tl_tokenizer_hash(p->tokenizer, s.hash);
    return tl_sidecar_write(p->path, &s, error);
}

static int pack(tl_packing *p) {
    const tl_cli *cli = p->cli;
    tl_tokens_options options;
    tl_error error = {TL_OK, ""};
    int status = tl_data_options(cli, cli->own[TL_DATA_FORM], cli->own[TL_DATA_DTYPE], &options);
    if (status == TL_EXIT_OK)
        status = open_tokenizer(cli, p);
    if (status == TL_EXIT_OK)
        status = read_separator(cli, p);
    if (status != TL_EXIT_OK)
        return status;
    if (options.form == TL_TOKENS_ANY)
        options.form = ends_with(p->path, ".npy") ? TL_TOKENS_NPY : TL_TOKENS_RAW;
    if (!options.width)
        options.width = p->vocab <= 65536 ? 2 : 4;
    if (tl_sidecar_replaces(p->path, &error) != TL_OK)
        return tl_failed(cli, &error);
    tl_status done = check_texts(p, &error);
    if (done == TL_OK) {
        p->writer = tl_token_writer_new(p->path, options.form, options.width, NULL, &error);
        done = error.status;
    }
    for (int i = 1; i < cli->n_arguments && done == TL_OK; i++)
        done = put_file(p, cli->arguments[i], &error);
    done = end_file(p, done, &error);
    return done == TL_OK ? report(p, &options) : tl_failed(cli, &error);
}

int tl_data_pack(tl_cli *cli) {
    static int64_t starts[TL_ARGUMENT_COUNT]; /* no load for a stack */
    tl_packing p = {.cli = cli, .separator = -1, .starts = starts, .path = cli->own[TL_DATA_OUTPUT]};
    if (!p.path || !p.path[0])
        return tl_usage(cli, "pack needs -o FILE, where the tokens go");
    if (cli->own[TL_DATA_VOCAB])
        return tl_usage(cli, "--vocab changes nothing about pack: the tokenizer has its vocabulary");
    const int status = pack(&p);
    tl_token_list_free(&p.ids);
    tl_encoder_free(p.encoder);
    tl_tokenizer_free(p.tokenizer);
    return status;
}
