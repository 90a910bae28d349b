/* cli/infer.h: what eval and sample share: a model with its weights, characters of tokens, a meter around forwards. */
#ifndef CLI_INFER_H
#define CLI_INFER_H

#include "tally/infer.h"
#include "tally/lora.h"
#include "tally/machine.h"
#include "tally/meter.h"
#include "tally/tokenizer.h"
#include "verb.h"

#define TL_INFER_PATH 4096

/* ---- a model with weights (cli/infer_open.c) ---- */
typedef struct tl_opened {
    const tl_cli *cli;
    char path[TL_INFER_PATH];    /* as given */
    bool is_run;                 /* a folder with a run.json */
    bool is_file, is_checkpoint; /* a .safetensors file; one of a run */
    tl_model model;
    tl_dtype dtype; /* of the net: as the weights are stored */
    bool int8;
    tl_lora_options lora;                    /* of a run with adapters: folded into the weights once they are loaded */
    char targets[TL_LORA_TARGETS];           /* of them */
    char task[64], tokenizer[TL_INFER_PATH]; /* what run.json says; "" where it does not */
    char val[TL_INFER_PATH], data_dtype[16]; /* the tokens a run was validated on, and their width if stated */
    char tokenizer_hash[32];                 /* of the vocabulary the run was trained with */
    int64_t step;                            /* of a run's checkpoint, once loaded; −1: not known */
} tl_opened;
/* A run's folder, a Hugging Face folder, or a file of weights beside its config.json. weights: NULL or --weights. Says what
 * is wrong. */
int tl_opened_find(tl_opened *opened, const tl_cli *cli, const char *argument, const char *weights);
/* A net that takes the weights, and their values: adapters folded in, then int8 where asked. */
tl_net *tl_opened_net(const tl_opened *opened, tl_ctx *ctx);
tl_status tl_opened_load(tl_opened *opened, tl_ctx *ctx, tl_net *net, tl_error *error);
/* "f32", "int8 (from f32)" */
const char *tl_opened_weights(const tl_opened *opened, char text[64]);

/* ---- characters (cli/infer_text.c) ---- */
typedef struct tl_speller {
    enum { TL_SPELL_NONE, TL_SPELL_SUMS, TL_SPELL_TOKENIZER } kind;
    tl_tokenizer *tokenizer;
    tl_token_text spelt; /* of the last token */
    char name[160];
} tl_speller;
/* As --tokenizer says, else as the run does; none is no error. */
int tl_speller_open(tl_speller *speller, const tl_opened *opened, const char *tokenizer);
void tl_speller_close(tl_speller *speller);
const char *tl_speller_name(const tl_speller *speller);
/* The ids of a text, to be freed; what a tokenizer wants put before one comes first where `begins`. Text that looks like a
 * special token is letters. NULL with *error filled. */
int32_t *tl_speller_encode(const tl_speller *speller, const char *text, size_t bytes, bool begins, int64_t *count,
                           tl_error *error);
/* How many bytes of text a token stands for; 0 for a special one, −1 for one that is none. */
int64_t tl_speller_length(const tl_speller *speller, int32_t id);
/* "1,2,3" */
int32_t *tl_ids_parse(const char *text, int64_t *count, tl_error *error);
/* The id after which a text is over, −1 where there is none. */
int32_t tl_speller_end(const tl_speller *speller);
/* Bytes of a token; `buffer` of 32 may hold them. `first`: it begins the text. */
const char *tl_speller_bytes(tl_speller *speller, bool first, int32_t id, char buffer[32], size_t *length);

/* ---- the second instrument around forwards (cli/infer_meter.c) ---- */
typedef struct tl_bucket {
    int64_t forwards, peak_bytes, allocations;
    tl_u128 matmul;
} tl_bucket;
typedef struct tl_watch {
    tl_meter *meter;
    tl_ctx *ctx;
    tl_bucket bucket[2]; /* the first forward, all later ones */
    int64_t open;        /* the running forward; −1: none */
    bool together;       /* one bucket for all */
    double begun;        /* when the running one did */
    int64_t weights_bytes;
} tl_watch;
/* A meter, and a context that it measures. */
tl_status tl_watch_open(tl_watch *watch, int threads, tl_error *error);
void tl_watch_close(tl_watch *watch); /* with what still lives in the context */
void tl_watch_begin(tl_watch *watch, int64_t forward);
void tl_watch_end(tl_watch *watch);
/* Bytes of the blocks that hold the net's parameters and scales. */
int64_t tl_watch_weights(const tl_watch *watch, const tl_net *net);
int64_t tl_watch_cache(const tl_watch *watch, const tl_net *net, const tl_cache *cache);
bool tl_bucket_equals(const tl_bucket *measured, const tl_infer_counts *planned);

/* What a forward of these counts is bound by here: seconds by FLOPs and by bytes. */
typedef struct tl_bound_here {
    bool known;
    double flop_seconds, byte_seconds, peak, bandwidth;
    char level[8];
} tl_bound_here;
tl_bound_here tl_bound_of(int threads, tl_dtype dtype, tl_u128 matmul, tl_u128 bytes, int64_t working_set);

/* ---- options ---- */
int tl_infer_whole(const tl_cli *cli, const char *name, const char *text, int64_t low, int64_t high, int64_t *value);
int tl_infer_number(const tl_cli *cli, const char *name, const char *text, double low, double high, double *value);
/* Exit 3 and why, where `needs` is more than there is; else 0. */
int tl_infer_fits(const tl_cli *cli, int64_t needs);
/* " label  text" on stderr; not with -q. */
void tl_infer_say(const tl_cli *cli, const char *label, const char *format, ...) TL_PRINTF(3, 4);
double tl_seconds(void);

#endif
