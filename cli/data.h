/* cli/data.h: files of tokens, for the verbs data, inspect and train. */
#ifndef CLI_DATA_H
#define CLI_DATA_H

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

#endif
