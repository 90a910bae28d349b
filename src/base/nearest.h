/* base/nearest.h: the names of a table that lie closest to what was typed. */
#ifndef TALLY_BASE_NEAREST_H
#define TALLY_BASE_NEAREST_H

#include "tally/base.h"

/* Letters are compared without case and without the blanks, dots, slashes,
 * hyphens and underscores between them. */
#define TL_NEAREST_LONGEST 64

/* Insertions, deletions, replacements and swaps of neighbours between two names
 * (restricted Damerau-Levenshtein distance). Only the first TL_NEAREST_LONGEST
 * compared characters count. */
int tl_name_distance(const char *a, const char *b);

/* Writes up to `most` names as "a, b or c" into `text`, nearest first, and
 * returns how many. Names that are no likely slip of the keyboard are left out,
 * so the answer may be 0 and the text empty. An ending left off costs little.
 */
int tl_nearest_names(const char *query, const char *(*name_at)(int index), int count, int most, char *text,
                     size_t size);

/* Copies `text` for a message: at most size-1 bytes, control characters and
 * broken UTF-8 tails as '?', "..." where cut. */
const char *tl_quotable(const char *text, size_t length, char *out, size_t size);

#endif
