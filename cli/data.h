/* cli/data.h: files of tokens, for the verbs data, inspect and train. */
#ifndef CLI_DATA_H
#define CLI_DATA_H

#include "tally/tokenizer.h"
#include "tally/tokens.h"
#include "verb.h"

/* tally data's own options, in the order of its table. */
enum {
    TL_DATA_VOCAB,
    TL_DATA_SEPARATOR,
    TL_DATA_FORM,
    TL_DATA_DTYPE,
    TL_DATA_OUTPUT,
    TL_DATA_TOKENIZER,
    TL_DATA_SPECIAL
};

/* "raw", "llmc", "npy", NULL: any; "uint16", "uint32", NULL: 0. Exit status; says what would work. */
int tl_data_options(const tl_cli *cli, const char *form, const char *dtype, tl_tokens_options *options);
/* A file of tokens, as far as its first bytes and its name tell? */
bool tl_data_is_tokens(const char *path, const unsigned char *head, size_t length, int64_t bytes);
/* What tally data info says of one file. Exit status. */
int tl_data_report(const tl_cli *cli, const char *path);
/* tally data pack (cli/data_pack.c). */
int tl_data_pack(tl_cli *cli);
/* tally data learn, encode, decode (cli/data_text.c). */
int tl_data_learn(tl_cli *cli);
int tl_data_encode(tl_cli *cli);
int tl_data_decode(tl_cli *cli);
double tl_seconds(void); /* of a clock that only goes forward */
/* --special text|encode|refuse. Exit status. */
int tl_data_special(const tl_cli *cli, tl_special *special);

/* ---- FILE.json beside a file of tokens (cli/data_sidecar.c) ----
 * {"schema":"tally/1","kind":"tokens","tokenizer","tokenizer_hash","vocab","separator" (or null),"tokens","documents",
 *  "text_bytes"}, and of several documents without a separator "starts", where each begins: `tally data pack' writes it after the
 * tokens. It may be missing: then nothing is known. */
#define TL_DATA_PATH 4096
#define TL_HASH_TEXT 32
typedef struct tl_sidecar {
    bool there;
    char path[TL_DATA_PATH];               /* of the first there is */
    char tokenizer[TL_DATA_PATH];          /* "bytes", "bytes+eot" or an absolute path */
    char hash[TL_HASH_TEXT];               /* tl_tokenizer_hash */
    int64_t vocab, separator;              /* −1: none */
    int64_t tokens, documents, text_bytes; /* text_bytes 0: not known of all files */
    const int64_t *starts; /* to be written: one a document; NULL: none. Not read back: tl_sidecar_starts */
} tl_sidecar;
/* Where each document of the stream begins, as every one of its files' notes tells; freed with free. *starts NULL: not all do. */
tl_status tl_sidecar_starts(const tl_tokens *tokens, int64_t **starts, int64_t *count, tl_error *error);
/* The same from a .npy of whole numbers, for tokens made elsewhere. */
tl_status tl_starts_from_npy(const char *path, int64_t **starts, int64_t *count, tl_error *error);
/* False where the path is too long. */
bool tl_sidecar_path(const char *tokens, char path[TL_DATA_PATH]);
/* Whether what is at its place may go: nothing, or another sidecar. */
tl_status tl_sidecar_replaces(const char *tokens, tl_error *error);
tl_status tl_sidecar_write(const char *tokens, const tl_sidecar *sidecar, tl_error *error);
/* Of all files of a stream together. One that tells of another number of tokens than its file holds is TL_ERR_FORMAT. */
tl_status tl_sidecar_read(const tl_tokens *tokens, tl_sidecar *sidecar, tl_error *error);
/* TL_ERR_ARGUMENT where both are there and differ in tokenizer or separator. */
tl_status tl_sidecar_agree(const tl_sidecar *a, const tl_sidecar *b, tl_error *error);
/* "fnv1a64:0123456789abcdef", of every id's bytes and kind. */
char *tl_tokenizer_hash(const tl_tokenizer *tokenizer, char text[TL_HASH_TEXT]);
/* A tokenizer's name that means the same from any folder. */
bool tl_tokenizer_absolute(const char *name, char path[TL_DATA_PATH]);

#endif
