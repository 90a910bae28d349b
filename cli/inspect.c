/* cli/inspect.c: tally inspect FILE, what a file is and, of a model description, what was read from it. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "data.h"
#include "gguf_out.h"
#include "model_out.h"
#include "dtype_out.h"
#include "npy_out.h"
#include "tensors_out.h"

enum { OWN_DTYPE, OWN_AS, OWN_VERIFY, OWN_ALL };

static const struct argp_option own_options[] = {
    {"dtype", TL_OWN(OWN_DTYPE), "NAME", 0, "A number format instead of a file: bf16, f8e4m3; `all' lists them", 0},
    {"as", TL_OWN(OWN_AS), "NAME", 0, "What an .npy holds the bits of: bf16, f8e4m3 or f8e5m2", 0},
    {"verify", TL_OWN(OWN_VERIFY), 0, 0, "Read every value of a checkpoint and compare its checksum", 0},
    {"all", TL_OWN(OWN_ALL), 0, 0, "A row for every tensor, also of layers that are alike", 0},
    {0},
};

#define HEAD 512

typedef struct tl_kind_of_file {
    const char *kind;  /* for machines */
    const char *words; /* for people */
} tl_kind_of_file;

static bool begins(const unsigned char *head, size_t length, const char *magic, size_t n) {
    return length >= n && memcmp(head, magic, n) == 0;
}

/* What the first bytes say; .kind "json" is for the reader of descriptions, "unknown" for nobody. */
static tl_kind_of_file kind_of(const unsigned char *head, size_t length) {
    static const struct {
        const char *magic;
        size_t n;
        tl_kind_of_file is;
    } kinds[] = {
        {"GGUF", 4, {"gguf", "a GGUF model (llama.cpp)"}},
        {"PK\3\4", 4, {"zip", "a zip archive: a PyTorch checkpoint (.pt, .bin) or an .npz"}},
        {"\x93NUMPY", 6, {"npy", "a NumPy array (.npy)"}},
        {"\x80\2",
         2,
         {"pickle", "a Python pickle, as old PyTorch checkpoints are: code, not data; do not load it unseen"}},
        {"\x80\3", 2, {"pickle", "a Python pickle: code, not data; do not load it unseen"}},
        {"\x80\4", 2, {"pickle", "a Python pickle: code, not data; do not load it unseen"}},
        {"\x1f\x8b", 2, {"gzip", "a gzip archive: unpack it first"}},
        {"\x28\xb5\x2f\xfd", 4, {"zstd", "a zstd archive: unpack it first"}},
        {"\x89HDF\r\n\x1a\n", 8, {"hdf5", "an HDF5 file, as Keras writes"}},
        {"version https://git-lfs", 23, {"git-lfs", "a git-LFS pointer, not the file itself: run `git lfs pull'"}},
        {"\x7f"
         "ELF",
         4,
         {"elf", "a program or library"}},
    };
    size_t at = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (begins(head, length, kinds[i].magic, kinds[i].n))
            return kinds[i].is;
    /* safetensors: a length of 8 bytes, little-endian, then a JSON object. */
    if (length > 9 && head[8] == '{' && head[5] == 0 && head[6] == 0 && head[7] == 0)
        return (tl_kind_of_file){"safetensors", "a safetensors file"};
    if (begins(head, length, "\xef\xbb\xbf", 3))
        at = 3;
    while (at < length && (head[at] == ' ' || head[at] == '\t' || head[at] == '\n' || head[at] == '\r'))
        at++;
    if (at < length && (head[at] == '{' || head[at] == '['))
        return (tl_kind_of_file){"json", "JSON"};
    if (at + 1 < length && head[at] == '<' && (head[at + 1] == '!' || head[at + 1] == 'h' || head[at + 1] == 'H'))
        return (tl_kind_of_file){"html",
                                 "a page of HTML, not the file itself: the download asked for a log-in or failed"};
    if (length == 0)
        return (tl_kind_of_file){"empty", "an empty file"};
    return (tl_kind_of_file){"unknown", "no kind of file known here"};
}

static int print_kind(const tl_cli *cli, const char *path, tl_kind_of_file is, int64_t bytes) {
    static const tl_column columns[] = {
        {"path", "file", false, false, false},
        {"kind", "kind", false, false, false},
        {"bytes", "size", true, false, false},
        {"description", "what it is", false, false, true},
    };
    char size[TL_TEXT], digits[TL_TEXT], rest[512];
    if (cli->format == TL_FORMAT_TABLE) {
        snprintf(rest, sizeof rest, "(%s = %s B)", tl_text_bytes((double)bytes, cli->units, size),
                 tl_text_grouped((tl_u128)bytes, digits));
        tl_out_answer(cli, is.words, rest);
        tl_out_item(cli, "file", "%s", path);
        if (strcmp(is.kind, "unknown") != 0 && strcmp(is.kind, "empty") != 0)
            tl_out_item(cli, "note",
                        "what is inside is listed of config.json, safetensors, GGUF, .npy, .npz, checkpoints and token "
                        "files alone");
        return TL_EXIT_OK;
    }
    tl_grid *grid = tl_grid_new(columns, 4);
    tl_grid_string(grid, path, NULL);
    tl_grid_string(grid, is.kind, NULL);
    tl_grid_integer(grid, bytes, tl_text_bytes((double)bytes, cli->units, size));
    tl_grid_string(grid, is.words, NULL);
    int status = TL_EXIT_FAILED;
    if (cli->format == TL_FORMAT_JSON) {
        tl_json *json = tl_cli_json_open(cli);
        if (json) {
            tl_grid_json_row(grid, 0, json);
            status = tl_cli_json_close(cli, json);
        }
    } else {
        status = tl_grid_print(cli, grid, "files");
    }
    tl_grid_free(grid);
    return status;
}

static int print_model(const tl_cli *cli, const char *path, const tl_model *model) {
    char title[256];
    if (cli->format == TL_FORMAT_TABLE) {
        snprintf(title, sizeof title, "a model description: %s", model->name);
        tl_model_out(cli, model, title);
        tl_out_item(cli, "file", "%s", path);
        return TL_EXIT_OK;
    }
    tl_grid *grid = tl_model_grid_new();
    tl_model_grid_row(grid, model, NULL);
    int status = TL_EXIT_FAILED;
    if (cli->format == TL_FORMAT_JSON) {
        tl_json *json = tl_cli_json_open(cli);
        if (json) {
            tl_json_put_string(json, "path", path);
            tl_json_put_string(json, "kind", "config.json");
            tl_grid_json_row(grid, 0, json);
            tl_model_json_notes(json, model);
            status = tl_cli_json_close(cli, json);
        }
    } else {
        status = tl_grid_print(cli, grid, "models");
    }
    tl_grid_free(grid);
    return status;
}

static int cannot_read(const tl_cli *cli, const char *path, int reason) {
    tl_model model;
    tl_error error = {TL_OK, ""};
    if (reason == ENOENT && tl_catalogue_model(path, &model, &error) == TL_OK)
        tl_say(cli, "there is no file \"%.300s\"; `tally models %s' shows the model of the catalogue", path,
               model.name);
    else
        tl_say(cli, "cannot read \"%.300s\": %s", path, strerror(reason));
    return TL_EXIT_FAILED;
}

static int run(tl_cli *cli) {
    unsigned char head[HEAD];
    char inside[4096];
    const char *path = cli->arguments[0];
    struct stat about;
    tl_error error = {TL_OK, ""};
    if (cli->own[OWN_DTYPE])
        return cli->n_arguments ? tl_usage(cli, "a FILE or --dtype, not both")
                                : tl_dtype_report(cli, cli->own[OWN_DTYPE]);
    if (!cli->n_arguments)
        return tl_usage(cli, "it needs FILE, or --dtype NAME");
    if (stat(path, &about) != 0)
        return cannot_read(cli, path, errno);
    if (S_ISDIR(about.st_mode)) {
        if (tl_is_tensors(path, true, NULL, 0, inside, sizeof inside))
            return tl_tensors_report(cli, inside, cli->own[OWN_VERIFY] != NULL, cli->own[OWN_ALL] != NULL);
        if (snprintf(inside, sizeof inside, "%s/config.json", path) >= (int)sizeof inside)
            return cannot_read(cli, path, ENAMETOOLONG);
        path = inside;
        if (stat(path, &about) != 0) {
            tl_say(cli, "the folder \"%.300s\" holds no config.json, no model.safetensors and no checkpoints",
                   cli->arguments[0]);
            return TL_EXIT_FAILED;
        }
    }
    if (!S_ISREG(about.st_mode)) { /* a pipe or a device could keep us waiting for ever */
        tl_say(cli, "\"%.300s\" is no regular file", path);
        return TL_EXIT_FAILED;
    }
    FILE *file = fopen(path, "rb");
    if (!file)
        return cannot_read(cli, path, errno);
    size_t length = fread(head, 1, sizeof head, file);
    bool bad = ferror(file) != 0;
    int reason = errno;
    fclose(file);
    if (bad)
        return cannot_read(cli, path, reason);
    tl_kind_of_file is = kind_of(head, length);
    bool npz = strcmp(is.kind, "zip") == 0 && tl_is_npz(path);
    if (npz)
        return tl_npz_report(cli, path, cli->own[OWN_AS], (int64_t)about.st_size);
    if (strcmp(is.kind, "npy") == 0)
        return tl_npy_report(cli, path, cli->own[OWN_AS], (int64_t)about.st_size);
    if (cli->own[OWN_AS])
        return tl_usage(cli, "--as is for an .npy or .npz; \"%.300s\" is none", path);
    if (tl_is_tensors(path, false, head, length, NULL, 0))
        return tl_tensors_report(cli, path, cli->own[OWN_VERIFY] != NULL, cli->own[OWN_ALL] != NULL);
    if (strcmp(is.kind, "gguf") == 0 && !cli->own[OWN_VERIFY])
        return tl_gguf_report(cli, path, cli->own[OWN_ALL] != NULL);
    if (cli->own[OWN_VERIFY])
        return tl_usage(cli, "--verify is for a checkpoint; \"%.300s\" is none", path);
    if (strcmp(is.kind, "unknown") == 0 && tl_data_is_tokens(path, head, length, (int64_t)about.st_size))
        return tl_data_report(cli, path);
    if (strcmp(is.kind, "json") != 0)
        return print_kind(cli, path, is, (int64_t)about.st_size);
    tl_model model;
    if (tl_config_read(path, &model, &error) != TL_OK)
        return tl_failed(cli, &error); /* with the status that plan has for it */
    return print_model(cli, path, &model);
}

const tl_verb tl_verb_inspect = {
    .name = "inspect",
    .summary = "what a file or a number format is, and what it holds",
    .group = TL_GROUP_LOOKUP,
    .arguments = "FILE | --dtype NAME",
    .words = NULL,
    .details = NULL,
    .takes = 0,
    .own = own_options,
    .min_arguments = 0,
    .max_arguments = 1,
    .run = run,
};
