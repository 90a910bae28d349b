/* base/sniff.h: what a file is that is not what it should be. */
#ifndef TL_BASE_SNIFF_H
#define TL_BASE_SNIFF_H

#include "tally/base.h"

/* "a zip archive (a PyTorch checkpoint is one)", from its first bytes, or NULL where they do not tell. Only marks of three
 * bytes and more, which other contents hardly begin with by chance. */
const char *tl_sniff(const void *bytes, size_t length);
/* Do the bytes begin so, behind white space and whatever the case? `word` is in lower case. */
bool tl_sniff_word(const void *bytes, size_t length, const char *word);

#endif
