/* cli/data_pack.c: tally data pack, a file of tokens from texts. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "data.h"

enum { BLOCK = 1 << 16 };

typedef struct tl_packing {
    const tl_cli *cli;
    int64_t vocab;     /* of the tokenizer */
    int64_t separator; /* −1: none */
    tl_token_writer *writer;
    int64_t text_bytes, tokens, documents;
    const char *path;
} tl_packing;

static tl_status put_ids(tl_packing *p, const int32_t *ids, int64_t count, tl_error *error) {
    p->tokens += count;
    return tl_token_writer_put(p->writer, ids, count, error);
}

/* The ids of a piece of text, to the writer: a byte is its own id. */
static tl_status put_text(tl_packing *p, const unsigned char *text, size_t bytes, tl_error *error) {
    static int32_t ids[BLOCK];
    for (size_t i = 0; i < bytes; i++)
        ids[i] = text[i];
    return put_ids(p, ids, (int64_t)bytes, error);
}

static tl_status put_file(tl_packing *p, const char *path, tl_error *error) {
    static unsigned char block[BLOCK];
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
        status = put_text(p, block, (size_t)n, error);
    }
    close(file);
    const int32_t separator = (int32_t)p->separator;
    if (status == TL_OK && p->separator >= 0)
        status = put_ids(p, &separator, 1, error);
    p->documents++;
    return status;
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
        tl_out_item(cli, "separator", "none: documents follow each other without a mark");
    tl_out_item(cli, "vocabulary", "%lld", (long long)p->vocab);
    return TL_EXIT_OK;
}

static int read_separator(const tl_cli *cli, tl_packing *p) {
    tl_error error = {TL_OK, ""};
    const char *text = cli->own[TL_DATA_SEPARATOR];
    if (!text || strcmp(text, "none") == 0)
        return TL_EXIT_OK;
    if (tl_parse_size(text, &p->separator, &error) != TL_OK)
        return tl_usage(cli, "--separator: %s", error.message);
    if (p->separator < 0 || p->separator > INT32_MAX)
        return tl_usage(cli, "--separator %.60s: 0 to 2147483647 would work", text);
    p->vocab = p->separator >= p->vocab ? p->separator + 1 : p->vocab;
    return TL_EXIT_OK;
}

int tl_data_pack(tl_cli *cli) {
    tl_packing p = {.cli = cli, .vocab = 256, .separator = -1, .path = cli->own[TL_DATA_OUTPUT]};
    tl_tokens_options options;
    tl_error error = {TL_OK, ""};
    const char *tokenizer = cli->own[TL_DATA_TOKENIZER];
    if (!p.path || !p.path[0])
        return tl_usage(cli, "pack needs -o FILE, where the tokens go");
    if (cli->own[TL_DATA_VOCAB])
        return tl_usage(cli, "--vocab changes nothing about pack: the tokenizer has its vocabulary");
    if (tokenizer && strcmp(tokenizer, "bytes") != 0)
        return tl_usage(cli, "there is no tokenizer \"%.80s\"; bytes would work", tokenizer);
    int status = tl_data_options(cli, cli->own[TL_DATA_FORM], cli->own[TL_DATA_DTYPE], &options);
    if (status == TL_EXIT_OK)
        status = read_separator(cli, &p);
    if (status != TL_EXIT_OK)
        return status;
    if (options.form == TL_TOKENS_ANY)
        options.form = ends_with(p.path, ".npy") ? TL_TOKENS_NPY : TL_TOKENS_RAW;
    if (!options.width)
        options.width = p.vocab <= 65536 ? 2 : 4;
    p.writer = tl_token_writer_new(p.path, options.form, options.width, NULL, &error);
    tl_status done = p.writer ? TL_OK : error.status;
    for (int i = 1; i < cli->n_arguments && done == TL_OK; i++)
        done = put_file(&p, cli->arguments[i], &error);
    done = tl_token_writer_end(p.writer, done, &error);
    return done == TL_OK ? report(&p, &options) : tl_failed(cli, &error);
}
