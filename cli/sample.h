/* cli/sample.h: one text being written. */
#ifndef CLI_SAMPLE_H
#define CLI_SAMPLE_H

#include "infer.h"

typedef struct tl_sampling {
    const tl_cli *cli;
    tl_opened opened;
    tl_speller speller;
    tl_infer_options plan_options;
    tl_infer_plan plan;
    tl_generate_options options;
    tl_generation done;
    tl_watch watch;
    tl_net *net;
    tl_cache *cache;
    int threads;
    int32_t *prompt, *ids;
    int64_t n_prompt, n_ids;
    int64_t weights_bytes, cache_bytes; /* measured */
    double started, first_token, last_token;
    char *text;                     /* all of it */
    size_t length, capacity, shown; /* shown: so many bytes of it */
    bool out_of_memory;
    tl_error error;
} tl_sampling;

void tl_sampling_announce(const tl_sampling *s);
/* The bytes of a token: shown, or kept for JSON. */
void tl_sampling_put(tl_sampling *s, int32_t token);
/* The beginning of a character that never came to its end. */
void tl_sampling_flush(tl_sampling *s);
int tl_sampling_report(tl_sampling *s);
void tl_sampling_free(tl_sampling *s);

#endif
