/* cli/options.h: the options of a verb as argp has them, for parsing (cli/options.c), for their names (cli/options_names.c) and for
 * help (cli/help.c). */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include "verb.h"

_Static_assert(TL_OPTION_COUNT <= 64, "tl_verb.takes has a bit for each option");

#define TL_MERGED (TL_OPTION_COUNT + TL_OWN_COUNT + 16)
/* The verb's own options, the common ones (those it does not take hidden, to be refused by name) and the global ones. `verb` NULL:
 * the global ones alone. */
void tl_options_merge(const tl_verb *verb, struct argp_option merged[TL_MERGED]);
/* The title of the part of help that begins with common option i; NULL where none does, where the verb takes nothing of it, and
 * where it takes so few options in all that titles are in the way. */
const char *tl_options_title(const tl_verb *verb, int i);
/* Checks names and that values are there; stops at the first argument when `in_order`. Exit status, having said what is wrong. */
int tl_options_scan(const tl_cli *cli, const struct argp_option *options, int argc, char **argv, bool in_order);

#endif
