/* tokenizer/nfc.h: is a text in Unicode's normal form C? Internal. */
#ifndef TL_TOKENIZER_NFC_H
#define TL_TOKENIZER_NFC_H

#include "tally/base.h"

/* May this code point stand behind one whose class was *last (0 at the start) without the form changing anything? *last
 * becomes its own class. false: perhaps not. */
bool tl_nfc_follows(unsigned *last, uint32_t code);

#endif
