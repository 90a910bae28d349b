/* nn/catalogue.h: what tools/gen_models.sh makes of the files in models/. An empty field of a row is 0 here. */
#ifndef TALLY_NN_CATALOGUE_H
#define TALLY_NN_CATALOGUE_H

#include "tally/model.h"

typedef struct tl_catalogue_entry {
    const char *name;
    const char *aliases; /* separated by blanks */
    const char *note;
    const char *source;
    int64_t parameters; /* the exact published count, or 0 */
    tl_family family;
    int64_t layers, width, heads, kv_heads, head_size, ff, vocab, context;
    bool tied, gated, rope_interleaved;
    double norm_epsilon, rope_theta, rope_factor, rope_low_freq, rope_high_freq;
    int64_t rope_original_context;
    double init_std, dropout;
    void (*more)(tl_model *model); /* what the column `more` says; NULL: nothing */
} tl_catalogue_entry;

/* Sets `bit` in every layer i from `first` on where (i + 1) mod period is 0, or, with `others`, where it is not. */
void tl_catalogue_layers(tl_model *model, unsigned bit, int64_t first, int64_t period, bool others);

extern const tl_catalogue_entry tl_catalogue_table[];
extern const int tl_catalogue_table_count;

#endif
