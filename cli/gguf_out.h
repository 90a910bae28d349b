/* cli/gguf_out.h: tally inspect of a GGUF file. */
#ifndef CLI_GGUF_OUT_H
#define CLI_GGUF_OUT_H

#include "verb.h"

/* `all`: every tensor has a row of its own. */
int tl_gguf_report(const tl_cli *cli, const char *path, bool all);

#endif
