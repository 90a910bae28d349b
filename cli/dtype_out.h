/* cli/dtype_out.h: number formats, for tally inspect --dtype. */
#ifndef CLI_DTYPE_OUT_H
#define CLI_DTYPE_OUT_H

#include "verb.h"

/* Prints the format of this name, or all of them for "all"; returns the exit status. */
int tl_dtype_report(const tl_cli *cli, const char *name);

#endif
